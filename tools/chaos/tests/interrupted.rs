//! The end of a run of `cargo xtask chaos`: it removes all that it has created, and nothing else. Needs Linux; to create
//! network namespaces root, and Java.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use xtask::TemporaryDirectory;

/// The program of `cargo xtask chaos`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_docent-chaos");

/// A run builds a client before it creates anything; a machine may be busy.
const DEADLINE: Duration = Duration::from_secs(300);

/// The length of a run that the test ends: longer than the deadline, so that no run ends by itself before.
const MINUTES: &str = "10";

/// Where `ip netns add` mounts the namespaces.
const NAMESPACES: &str = "/run/netns";

// Case (Found in docent itself): a run of `cargo xtask chaos` that was killed while `ip` created a
// namespace left the namespace behind; a run whose program was built anew in between did not begin.
// Case (Found in docent itself): a test that interrupts a run did not, when a shell had started it
// in the background: such jobs ignore the signal, and what they start does.
#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let test = "chaos an_interrupted_run_leaves_nothing_behind";
    if let Err(missing) = requirements() {
        return skip(test, missing);
    }
    let foreign = [Foreign::new("foreign"), Foreign::new("docent-foreign")];
    let bridges = links("bridge");
    for (end, moment) in [
        // Ctrl-C is a signal to the process group of the terminal.
        (End::Interrupt, Moment::ClientsRun),
        (End::Kill, Moment::ClientsRun),
        (End::Interrupt, Moment::MembersRun),
        (End::Kill, Moment::FirstNamespace),
        (End::Kill, Moment::WithinIp),
    ] {
        let mut run = Run::start(moment);
        run.wait_for(moment);
        let created = run.created();
        let status = run.end(end);
        let signal = if end == End::Interrupt { Signal::INT } else { Signal::KILL };
        assert_eq!(status.signal(), Some(signal.as_raw()), "{end:?} at {moment:?}: {status}");
        eventually(&format!("an empty machine after {end:?} at {moment:?}"), || {
            let left = created.left(&run.name());
            if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
        });
        foreign.iter().for_each(Foreign::check);
        assert_eq!(links("bridge"), bridges, "a bridge in the machine's own network");
    }
}

#[test]
fn without_root_a_run_says_so_and_stops() {
    let test = "chaos without_root_a_run_says_so_and_stops";
    // A copy that everybody may execute.
    let directory = TemporaryDirectory::new("no-root").unwrap();
    let program = directory.path().join("chaos");
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        if !succeeds("setpriv", &["--version"]) {
            return skip(test, "no setpriv (util-linux)");
        }
        // By another process: this one may be forked while it has the file open for writing.
        assert!(succeeds("cp", &[PROGRAM, &program.display().to_string()]));
        let modes = [directory.path(), &program].map(|path| path.display().to_string());
        assert!(succeeds("chmod", &["755", &modes[0], &modes[1]]));
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command
    } else {
        Command::new(PROGRAM)
    };
    let run = command.args(["--minutes", "0.5"]).current_dir("/").stdin(Stdio::null());
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let name = name(run.id());
    let output = run.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "chaos: needs root, for network namespaces: `sudo cargo xtask chaos`\n"
    );
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &[][..]));
    assert_eq!(Created::default().left(&name), [""; 0]);
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Interrupt,
    Kill,
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// A process of `ip` is about to create a namespace, and outlives the run.
    WithinIp,
    /// Others are being created.
    FirstNamespace,
    /// There is a process in the namespace of each member, and the file system that becomes full is mounted.
    MembersRun,
    /// There is a process in the namespace of each long-lived client, too.
    ClientsRun,
}

/// A program `ip` that creates a namespace after the end of its run only. By then a janitor that does not wait has ended.
const SLOW_IP: &str = r#"#!/bin/sh
here=$(dirname "$0")
if [ "$1 $2" = "netns add" ]; then
    : > "$here/is-adding"
    while kill -0 $PPID 2>/dev/null; do sleep 0.01; done
    sleep 0.3
fi
PATH=${PATH#"$here:"} exec ip "$@"
"#;

/// A run in its own process group.
struct Run {
    process: Child,
    /// Its report and its output.
    files: TemporaryDirectory,
}

/// A part of the names of all that a run creates.
fn name(process: u32) -> String {
    format!("-{process:x}-")
}

impl Run {
    fn start(moment: Moment) -> Self {
        let files = TemporaryDirectory::new("interrupted").unwrap();
        let mut path = std::env::var("PATH").unwrap();
        if moment == Moment::WithinIp {
            let program = files.path().join("ip");
            fs::write(&program, SLOW_IP).unwrap();
            fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
            path = format!("{}:{path}", files.path().display());
        }
        let output = File::create(files.path().join("output")).unwrap();
        // Its file is removed once it runs, as by a build that replaces it.
        let program = format!("{PROGRAM}{}", files.path().display().to_string().replace('/', "-"));
        fs::hard_link(PROGRAM, &program).unwrap();
        // A shell's job in the background ignores the signal, and so would all that it starts.
        let process = Command::new("env")
            .arg("--default-signal=INT")
            .arg(&program)
            .args(["--minutes", MINUTES, "--report"])
            .arg(files.path())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .process_group(0)
            .spawn()
            .unwrap();
        let run = Self { process, files };
        let runs = Path::new("/proc").join(run.process.id().to_string()).join("exe");
        eventually("the program of the run", || match fs::read_link(&runs) {
            Ok(path) if path == Path::new(&program) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        fs::remove_file(program).unwrap();
        run
    }

    fn name(&self) -> String {
        name(self.process.id())
    }

    fn wait_for(&mut self, moment: Moment) {
        let name = self.name();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let namespaces = namespaces(&name);
            let with_processes = |kind: char| {
                let of_kind = namespaces.iter().filter(|path| is_of(path, kind));
                of_kind.filter(|path| !processes_in(&[inode(path)]).is_empty()).count()
            };
            let is_reached = match moment {
                Moment::WithinIp => self.files.path().join("is-adding").exists(),
                Moment::FirstNamespace => !namespaces.is_empty(),
                Moment::MembersRun => {
                    with_processes('m') == 3 && !mounts(&name, "tmpfs").is_empty()
                }
                Moment::ClientsRun => with_processes('c') >= 8,
            };
            if is_reached {
                return;
            }
            let ended = self.process.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "no {moment:?}: {}",
                self.output()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the namespaces and janitors of the run, which are no longer found by name once the run is removed.
    fn created(&self) -> Created {
        let inodes = namespaces(&self.name()).iter().map(|path| inode(path)).collect();
        let parent = format!("PPid:\t{}\n", self.process.id());
        let janitors = processes(|process| {
            let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains("--janitor")
                && fs::read_to_string(process.join("status")).is_ok_and(|of| of.contains(&parent))
        });
        assert_eq!(janitors.len(), 1);
        Created { inodes, janitors }
    }

    fn end(&mut self, end: End) -> ExitStatus {
        let process = Pid::from_child(&self.process);
        match end {
            End::Interrupt => kill_process_group(process, Signal::INT).unwrap(),
            End::Kill => kill_process(process, Signal::KILL).unwrap(),
        }
        self.process.wait().unwrap()
    }

    fn output(&self) -> String {
        fs::read_to_string(self.files.path().join("output")).unwrap_or_default()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A failed test ends its run.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a run has created and what cannot be found by the name of the run.
#[derive(Debug, Default)]
struct Created {
    /// The network namespaces, by which processes are found after the names of the namespaces are gone.
    inodes: Vec<u64>,
    janitors: Vec<String>,
}

impl Created {
    /// Returns the remains of the run.
    fn left(&self, name: &str) -> Vec<String> {
        let names = ["docent", "docent-chaos"].map(|prefix| format!("{prefix}{name}"));
        // The processes first: they may create the rest.
        let mut left = processes(|process| {
            let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&arguments);
            names.iter().any(|name| arguments.contains(name))
        });
        left.extend(processes_in(&self.inodes));
        left.extend(self.janitors.iter().filter(|process| is_running(process)).cloned());
        left.extend(mounts(name, ""));
        let directories = entries(&std::env::temp_dir())
            .into_iter()
            .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&names[1]));
        let paths = namespaces(name).into_iter().chain(directories);
        left.extend(paths.map(|path| path.display().to_string()));
        left
    }
}

/// A namespace of somebody else with a process.
struct Foreign {
    name: String,
    process: Child,
}

impl Foreign {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{:x}", std::process::id());
        assert!(succeeds("ip", &["netns", "add", &name]));
        let process = Command::new("ip")
            .args(["netns", "exec", &name, "sleep", "3600"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let foreign = Self { name, process };
        eventually("a process of another namespace", || {
            let processes = processes_in(&[inode(&foreign.path())]);
            if processes.is_empty() { Err("none".to_owned()) } else { Ok(()) }
        });
        foreign
    }

    fn path(&self) -> PathBuf {
        Path::new(NAMESPACES).join(&self.name)
    }

    fn check(&self) {
        let process = self.process.id().to_string();
        assert_eq!(processes_in(&[inode(&self.path())]), [process], "{}", self.name);
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = succeeds("ip", &["netns", "delete", &self.name]);
    }
}

/// The namespaces of a run.
fn namespaces(name: &str) -> Vec<PathBuf> {
    let of_run = |path: &PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with(&format!("docent{name}"))
    };
    entries(Path::new(NAMESPACES)).into_iter().filter(of_run).collect()
}

/// Whether this is the namespace of a member (`m`) or of a client (`c`).
fn is_of(namespace: &Path, kind: char) -> bool {
    namespace.to_string_lossy().rsplit('-').next().unwrap().starts_with(kind)
}

/// The mounts of a run, of a type that begins so.
fn mounts(name: &str, kind: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let names = ["docent", "docent-chaos"].map(|prefix| format!("/{prefix}{name}"));
    let of_run = |line: &&str| {
        let mut words = line.split(' ').skip(1);
        let path = words.next().unwrap();
        names.iter().any(|name| path.contains(name)) && words.next().unwrap().starts_with(kind)
    };
    mounts.lines().filter(of_run).map(str::to_owned).collect()
}

/// The links of a type in the machine's own network.
fn links(kind: &str) -> BTreeSet<String> {
    let output =
        Command::new("ip").args(["-brief", "link", "show", "type", kind]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The processes in network namespaces with these inodes.
fn processes_in(inodes: &[u64]) -> Vec<String> {
    processes(|process| {
        fs::metadata(process.join("ns/net")).is_ok_and(|of| inodes.contains(&of.ino()))
    })
}

fn processes(is_wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let ids = entries(Path::new("/proc")).into_iter().filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.bytes().all(|byte| byte.is_ascii_digit()) && is_wanted(path)
    });
    ids.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// A process that has ended stays until its parent notices.
fn is_running(process: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(process).join("status"));
    status.is_ok_and(|status| !status.contains("State:\tZ"))
}

/// 0 for a namespace that is gone.
fn inode(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |of| of.ino())
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Polls until the answer is `Ok`. The last error is reported.
fn eventually(what: &str, mut poll: impl FnMut() -> Result<(), String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(text) = poll() {
        assert!(Instant::now() < deadline, "not in time: {what}:\n{text}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The error is what this machine lacks.
fn requirements() -> Result<(), &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("not root");
    }
    if std::env::var_os("DOCENT_TEST_CURATOR_CLASSPATH").is_none() {
        return Err("no Curator (DOCENT_TEST_CURATOR_CLASSPATH; `cargo xtask test` sets it)");
    }
    if !succeeds("unshare", &["--net", "--mount", "true"]) {
        return Err("this process may not create network namespaces (a container: --privileged)");
    }
    if !succeeds("ip", &["-Version"]) || !succeeds("nft", &["--version"]) {
        return Err("no ip or nft (iproute2, nftables)");
    }
    Ok(())
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    xtask::command::succeeds(Command::new(program).args(arguments))
}

/// Reports and counts that a test is skipped.
fn skip(test: &str, reason: &str) {
    // Not eprintln!, which is captured and dropped when a test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(file) = std::env::var_os("DOCENT_TEST_SKIPS") {
        let mut file = File::options().create(true).append(true).open(file).unwrap();
        // One write, so that the lines of test programs that run at once stay whole.
        file.write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
    }
}
