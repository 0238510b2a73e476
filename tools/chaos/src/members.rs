//! The members of the ensemble: processes of ZooKeeper, each in its own namespace.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use xtask::{Java, Result, workspace::root};

use crate::janitor::Janitor;
use crate::lock::lock;
use crate::network::{Host, Network};
use crate::{Signal, signal};

/// The environment variable with the directory of another version of the servers.
const SERVER_LIBRARY: &str = "DOCENT_CHAOS_SERVER_LIB";

/// With this argument, the program sends `srvr` to a server; it runs in the server's namespace.
pub(crate) const ASK: &str = "--ask";

const CLIENT_PORT: u16 = 2181;

/// A member starts within seconds, or within a minute on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// The time within which a member that reaches a majority must serve again.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// The size of the file system that a fault fills.
const DISK_BYTES: usize = 96 << 20;

pub(crate) struct Members {
    java: Java,
    classes: PathBuf,
    network: Arc<Network>,
    directory: PathBuf,
    processes: Vec<Mutex<Option<Child>>>,
}

impl Members {
    /// Creates the directories and namespaces of the members.
    pub(crate) fn new(
        janitor: &Janitor,
        java: &Java,
        network: &Arc<Network>,
        directory: &Path,
        count: usize,
    ) -> Result<Self> {
        let java = match std::env::var_os(SERVER_LIBRARY) {
            Some(library) => Java::with_class_path(jars(Path::new(&library))?)?,
            None => java.clone(),
        };
        let members = Self {
            classes: java.compile(&root().join("xtask/java/WatchedServer.java"))?,
            java,
            network: Arc::clone(network),
            directory: directory.to_path_buf(),
            processes: (0..count).map(|_| Mutex::default()).collect(),
        };
        // A copy, because this program may be rebuilt during the run.
        fs::copy(crate::PROGRAM, members.asker())?;
        for index in 0..count {
            network.add(janitor, Host::Member(index))?;
            let data = members.data(index);
            fs::create_dir_all(&data)?;
            if index + 1 == count {
                let path = data.display().to_string();
                janitor.register("mount", &path)?;
                let size = format!("size={DISK_BYTES}");
                let mount = ["-t", "tmpfs", "-o", &size, "docent", &path];
                if !Command::new("mount")
                    .args(mount)
                    .stdin(janitor.awaited_input()?)
                    .status()?
                    .success()
                {
                    return Err("cannot mount a tmpfs".into());
                }
            }
            fs::write(data.join("myid"), format!("{}\n", index + 1))?;
            fs::write(members.config(index), members.zoo_cfg(index))?;
        }
        Ok(members)
    }

    pub(crate) fn count(&self) -> usize {
        self.processes.len()
    }

    pub(crate) fn connect_string(&self) -> String {
        let addresses = (0..self.count()).map(|index| address(index).to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The member with this address in the connect string.
    pub(crate) fn index_of(&self, server: &str) -> Option<usize> {
        (0..self.count()).find(|index| address(*index).to_string() == server)
    }

    /// Starts a member, unless it runs.
    pub(crate) fn start(&self, index: usize) -> Result<()> {
        let mut process = self.process(index);
        if let Some(running) = process.as_mut()
            && running.try_wait()?.is_none()
        {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(self.log(index))?;
        let java = self.java.command(&self.classes)?;
        let mut command = self.network.command(Host::Member(index));
        command.arg(java.get_program()).args(java.get_args());
        command.args(PROPERTIES).arg("WatchedServer").arg(self.member_directory(index));
        command.arg(self.config(index)).current_dir(self.member_directory(index));
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).process_group(0);
        *process = Some(command.spawn()?);
        Ok(())
    }

    /// Starts a member whose file system was full, and waits until it serves clients.
    ///
    /// A server that cannot read a log whose last record is incomplete (ZOOKEEPER-1621) exits, or retries for ever. Its
    /// data are then removed, as an operator would do. That is safe once all other members serve, because each of them
    /// has all committed writes. Returns whether the data were removed.
    pub(crate) fn start_after_full_disk(&self, index: usize) -> Result<bool> {
        self.start(index)?;
        if self.serves_within(index, RECOVERY_TIMEOUT).is_ok() {
            return Ok(false);
        }
        let mut others = (0..self.count()).filter(|other| *other != index);
        others.try_for_each(|other| self.wait_until_serving(other))?;
        if self.mode(index).is_some() {
            return Ok(false);
        }
        self.kill(index)?;
        fs::remove_dir_all(self.data(index).join("version-2"))?;
        self.start(index)?;
        self.wait_until_serving(index)?;
        Ok(true)
    }

    /// Waits until every member serves clients.
    pub(crate) fn wait_until_all_serve(&self) -> Result<()> {
        (0..self.count()).try_for_each(|index| self.wait_until_serving(index))
    }

    pub(crate) fn wait_until_serving(&self, index: usize) -> Result<()> {
        self.serves_within(index, START_TIMEOUT)
    }

    fn serves_within(&self, index: usize, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if self.mode(index).is_some() {
                return Ok(());
            }
            if !self.is_running(index) {
                return Err(
                    format!("member {} ended: {}", index + 1, self.end_of_log(index)).into()
                );
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err(format!("member {} serves no client: {}", index + 1, self.end_of_log(index)).into())
    }

    /// The member that says that it is the leader.
    pub(crate) fn leader(&self) -> Option<usize> {
        thread::scope(|scope| {
            let asked: Vec<_> =
                (0..self.count()).map(|index| scope.spawn(move || self.mode(index))).collect();
            let modes = asked.into_iter().map(|mode| mode.join().ok().flatten());
            modes.enumerate().find(|(_, mode)| mode.as_deref() == Some("leader")).map(|(at, _)| at)
        })
    }

    /// Kills a member and waits for its end.
    pub(crate) fn kill(&self, index: usize) -> Result<()> {
        if let Some(mut process) = self.process(index).take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    pub(crate) fn signal(&self, index: usize, number: Signal) {
        if let Some(process) = self.process(index).as_ref() {
            signal(process.id(), number);
        }
    }

    /// Whether the process was started and has not exited by itself.
    pub(crate) fn is_running(&self, index: usize) -> bool {
        let mut process = self.process(index);
        process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Fills the file system of the last member. It stays full until [`Members::empty_disk`].
    pub(crate) fn fill_disk(&self) -> Result<()> {
        let mut file = File::create(self.filling())?;
        let zeros = vec![0; 64 << 10];
        // Writes until there is no space left: the error is the purpose.
        while std::io::Write::write_all(&mut file, &zeros).is_ok() {}
        Ok(())
    }

    pub(crate) fn empty_disk(&self) -> Result<()> {
        Ok(fs::remove_file(self.filling())?)
    }

    /// The version that the servers report.
    pub(crate) fn version(&self) -> Option<String> {
        (0..self.count()).find_map(|index| {
            // A member without a leader reports no version, only that it serves no requests.
            let answer = self.ask(index)?;
            let line = answer.lines().find_map(|line| line.strip_prefix("Zookeeper version: "))?;
            line.split('-').next().map(str::to_owned)
        })
    }

    fn mode(&self, index: usize) -> Option<String> {
        let answer = self.ask(index)?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    fn ask(&self, index: usize) -> Option<String> {
        let mut command = self.network.command(Host::Member(index));
        command.arg(self.asker()).args([ASK, &address(index).to_string()]);
        let output = command.stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn process(&self, index: usize) -> MutexGuard<'_, Option<Child>> {
        #[expect(clippy::indexing_slicing, reason = "callers take the index from `count`")]
        lock(&self.processes[index])
    }

    fn member_directory(&self, index: usize) -> PathBuf {
        self.directory.join(format!("m{}", index + 1))
    }

    fn data(&self, index: usize) -> PathBuf {
        self.member_directory(index).join("data")
    }

    /// The copy of this program, which asks the servers.
    fn asker(&self) -> PathBuf {
        self.directory.join("chaos")
    }

    fn filling(&self) -> PathBuf {
        self.data(self.count().saturating_sub(1)).join("filling")
    }

    fn config(&self, index: usize) -> PathBuf {
        self.member_directory(index).join("zoo.cfg")
    }

    /// Whether a member has logged that its data differ from those of the leader. Servers compare digests of their data
    /// since 3.6 (`DataTree.compareDigest`).
    pub(crate) fn has_other_data(&self, index: usize) -> bool {
        fs::read_to_string(self.log(index)).is_ok_and(|log| log.contains("digest mismatch"))
    }

    fn log(&self, index: usize) -> PathBuf {
        self.directory.join(format!("m{}.log", index + 1))
    }

    fn end_of_log(&self, index: usize) -> String {
        xtask::end_of_log(&self.log(index))
    }

    fn zoo_cfg(&self, index: usize) -> String {
        let address = Host::Member(index).address();
        let mut text = format!(
            "tickTime=500\ninitLimit=12\nsyncLimit=7\nmaxClientCnxns=0\ndataDir={}\nclientPort={CLIENT_PORT}\n\
             clientPortAddress={address}\nadmin.enableServer=false\n",
            self.data(index).display()
        );
        for member in 0..self.count() {
            let address = Host::Member(member).address();
            text += &format!("server.{}={address}:2888:3888\n", member + 1);
        }
        text
    }
}

/// Prints a server's reply to `srvr`. This process runs in the namespace of that server.
pub(crate) fn ask(address: &str) -> Result<()> {
    print!("{}", xtask::four_letter_word(address.parse()?, "srvr")?);
    Ok(())
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from((Host::Member(index).address(), CLIENT_PORT))
}

/// The class path of all jars in a directory.
fn jars(directory: &Path) -> Result<OsString> {
    let entries = fs::read_dir(directory)
        .map_err(|error| format!("{} ({SERVER_LIBRARY}): {error}", directory.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let jars = paths.filter(|path| path.extension().is_some_and(|extension| extension == "jar"));
    Ok(std::env::join_paths(jars)?)
}

/// The options of the Java process of a member.
const PROPERTIES: [&str; 8] = [
    "-Xmx128m",
    "-Dzookeeper.extendedTypesEnabled=true",
    "-Dznode.container.checkIntervalMs=10000",
    // A killed process loses nothing that it has handed to the kernel, so writes need not wait for the disk.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.4lw.commands.whitelist=srvr",
    // An election waits this long for a member that is cut off.
    "-Dzookeeper.cnxTimeout=1000",
    // A member without a leader repeats its vote at least every two seconds, instead of once a minute.
    "-Dzookeeper.fastleader.maxNotificationInterval=2000",
    // The number of kilobytes by which a log grows: few, so that a full disk is noticed soon.
    "-Dzookeeper.preAllocSize=64",
];
