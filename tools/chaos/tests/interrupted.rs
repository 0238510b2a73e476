//! Tests that an interrupted run of `cargo xtask chaos` removes everything that it has created. Needs Linux, root to
//! create network namespaces, and Java.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use xtask::{TemporaryDirectory, command::succeeds};

/// The limit is long because a run first builds a client, and the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(300);

/// Where `ip netns add` mounts the namespaces.
const NAMESPACES: &str = "/run/netns";

/// A program `ip` that creates a namespace only after its run has ended. A janitor that does not wait has exited by
/// then.
const SLOW_IP: &str = r#"#!/bin/sh
here=$(dirname "$0")
if [ "$1 $2" = "netns add" ]; then
    : > "$here/is-adding"
    while kill -0 $PPID 2>/dev/null; do sleep 0.01; done
    sleep 0.3
fi
PATH=${PATH#"$here:"} exec ip "$@"
"#;

// Case (Found in docent itself): a run of `cargo xtask chaos` that was killed while `ip` created a
// namespace left the namespace behind; a run whose program was built anew in between did not begin.
// Case (Found in docent itself): a test that interrupts a run did not, when a shell had started it
// in the background: such jobs ignore the signal, and what they start does.
#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    if let Err(missing) = requirements() {
        return docent_tests::real::skip(missing);
    }
    for (signal, is_within_ip) in
        [(Signal::INT, false), (Signal::KILL, false), (Signal::KILL, true)]
    {
        interrupt(signal, is_within_ip);
    }
}

/// Ends a run while its clients run, or while `ip`, which outlives the run, is about to create its first namespace.
fn interrupt(signal: Signal, is_within_ip: bool) {
    let files = TemporaryDirectory::new("interrupted").unwrap();
    let mut path = std::env::var("PATH").unwrap();
    if is_within_ip {
        let program = files.path().join("ip");
        fs::write(&program, SLOW_IP).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        path = format!("{}:{path}", files.path().display());
    }
    // The program file is removed once it runs, as by a build that replaces it. It is in the target directory, because
    // a run looks there for the program of its clients.
    let original = env!("CARGO_BIN_EXE_docent-chaos");
    let program = format!("{original}{}", files.path().display().to_string().replace('/', "-"));
    fs::hard_link(original, &program).unwrap();
    let output = File::create(files.path().join("output")).unwrap();
    // A background job of a shell ignores the signal, and all its children would inherit that.
    let mut run = Command::new("env")
        .args(["--default-signal=INT", &program, "--minutes", "10", "--report"])
        .arg(files.path())
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .process_group(0)
        .spawn()
        .unwrap();
    let executable = Path::new("/proc").join(run.id().to_string()).join("exe");
    eventually("the program", || {
        fs::read_link(&executable).is_ok_and(|it| it == Path::new(&program))
    });
    fs::remove_file(&program).unwrap();

    let name = format!("-{:x}-", run.id());
    eventually("the moment to end the run", || {
        let ended = run.try_wait().unwrap();
        let output = fs::read_to_string(files.path().join("output")).unwrap_or_default();
        assert!(ended.is_none(), "{ended:?}: {output}");
        let is_client =
            |path: &PathBuf| path.to_string_lossy().rsplit('-').next().unwrap().starts_with('c');
        let clients = entries(NAMESPACES, &name).into_iter().filter(is_client);
        match is_within_ip {
            true => files.path().join("is-adding").exists(),
            false => clients.filter(|path| !processes_in(&[inode(path)]).is_empty()).count() >= 8,
        }
    });
    // The inodes identify the namespaces after their names are gone.
    let inodes: Vec<_> = entries(NAMESPACES, &name).iter().map(|path| inode(path)).collect();
    let process = Pid::from_child(&run);
    match signal {
        // Like Ctrl-C, the signal goes to the process group of the terminal. The janitor is in another group.
        Signal::INT => kill_process_group(process, signal).unwrap(),
        _ => kill_process(process, signal).unwrap(),
    }
    assert_eq!(run.wait().unwrap().signal(), Some(signal.as_raw()));
    eventually("an empty machine", || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        processes_in(&inodes).is_empty()
            && entries(NAMESPACES, &name).is_empty()
            && entries(&std::env::temp_dir().display().to_string(), &format!("chaos{name}"))
                .is_empty()
            && !mounts.contains(&name)
    });
}

/// The processes in network namespaces with these inodes.
fn processes_in(inodes: &[u64]) -> Vec<PathBuf> {
    let mut processes = entries("/proc", "");
    processes.retain(|process| {
        fs::metadata(process.join("ns/net")).is_ok_and(|of| inodes.contains(&of.ino()))
    });
    processes
}

/// The inode of a namespace; 0 if the namespace is gone.
fn inode(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |of| of.ino())
}

/// The entries of a directory whose names contain `name`.
fn entries(directory: &str, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().contains(name));
    named.map(|entry| entry.path()).collect()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Fails with what this machine lacks.
fn requirements() -> Result<(), &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("not root");
    }
    if std::env::var_os("DOCENT_TEST_CURATOR_CLASSPATH").is_none() {
        return Err("no Curator (DOCENT_TEST_CURATOR_CLASSPATH; `cargo xtask test` sets it)");
    }
    if !succeeds(Command::new("unshare").args(["--net", "--mount", "true"])) {
        return Err("this process may not create network namespaces (a container: --privileged)");
    }
    if !succeeds(Command::new("ip").arg("-Version"))
        || !succeeds(Command::new("nft").arg("--version"))
    {
        return Err("no ip or nft (iproute2, nftables)");
    }
    Ok(())
}
