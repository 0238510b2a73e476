//! A real ZooKeeper server of our own, on a free loopback port, with its files in a temporary
//! directory.
//!
//! It listens on 127.0.0.1 only. It ends with its [`Server`], and when our process dies without a
//! chance to drop anything: it watches its standard input (`java/WatchedServer.java`).

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Java, Result, TemporaryDirectory};

/// What may differ between servers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The client port; 0 is any free one.
    pub port: u16,
    /// The server's unit of time: sessions last 2 to 20 ticks unless `config` says otherwise.
    pub tick_time: Duration,
    /// Its number in an ensemble, whose members `config` lists.
    pub id: Option<usize>,
    /// More lines of `zoo.cfg`; they come last, so they win.
    pub config: Vec<(String, String)>,
    /// More Java system properties; they come last, so they win.
    pub properties: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: 0,
            tick_time: Duration::from_millis(500),
            id: None,
            config: Vec::new(),
            properties: Vec::new(),
        }
    }
}

/// A running (or stopped, or killed) server. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct Server {
    java: Java,
    classes: PathBuf,
    settings: Settings,
    address: SocketAddr,
    directory: TemporaryDirectory,
    process: Option<Child>,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub fn start(java: &Java, settings: Settings) -> Result<Self> {
        let mut server = Self::new(java, settings)?;
        server.start_again()?;
        Ok(server)
    }

    /// A server that is not running yet.
    pub(crate) fn new(java: &Java, settings: Settings) -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/WatchedServer.java");
        Ok(Self {
            java: java.clone(),
            classes: java.compile(&source)?,
            address: SocketAddr::from(([127, 0, 0, 1], settings.port)),
            settings,
            directory: TemporaryDirectory::new("zookeeper")?,
            process: None,
        })
    }

    /// Starts it after [`Server::stop`] or [`Server::kill`], and waits until it answers: same
    /// port, same data.
    pub fn start_again(&mut self) -> Result<()> {
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            if self.address.port() == 0 {
                self.address = free_loopback_addresses(1)?.remove(0);
            }
            self.spawn()?;
            match self.wait_until_it_answers() {
                Ok(()) => return Ok(()),
                // Somebody took the port between our look and the server's: try another.
                Err(Failure::Died(text)) if self.settings.port == 0 && self.is_new() => {
                    self.address.set_port(0);
                    last = Some(text);
                }
                // A port that must be this one may be busy for a moment after its last user.
                Err(Failure::Died(text)) => last = Some(text),
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        Err(format!("ZooKeeper did not start: {}", last.unwrap_or_default()).into())
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Where its configuration, data and log are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Stops it as an administrator would, keeping its data.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            let asked = process.stdin.take().map(|mut input| input.write_all(b"stop\n"));
            if !matches!(asked, Some(Ok(()))) {
                process.kill()?;
            }
            process.wait()?;
        }
        Ok(())
    }

    /// Kills it as a power cut would, keeping its data.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Asks it something like `ruok` or `srvr`.
    pub fn four_letter_word(&self, word: &str) -> io::Result<String> {
        four_letter_word(self.address, word)
    }

    /// Whether no client can have seen this address yet.
    fn is_new(&self) -> bool {
        !self.directory.path().join(ANSWERED).exists()
    }

    /// Starts the process, without waiting for anything.
    pub(crate) fn spawn(&mut self) -> Result<()> {
        let directory = self.directory.path();
        let data = self.data();
        fs::create_dir_all(&data)?;
        if let Some(id) = self.settings.id {
            fs::write(data.join("myid"), format!("{id}\n"))?;
        }
        let config = directory.join("zoo.cfg");
        fs::write(&config, self.zoo_cfg(&data))?;
        let log = File::create(directory.join("log"))?;

        let mut command = self.java.command(&self.classes)?;
        for (name, value) in SYSTEM_PROPERTIES {
            command.arg(format!("-D{name}={value}"));
        }
        for (name, value) in &self.settings.properties {
            command.arg(format!("-D{name}={value}"));
        }
        let process = command
            .arg("WatchedServer")
            .args([directory, &config])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn zoo_cfg(&self, data: &Path) -> String {
        let tick_time = self.settings.tick_time.as_millis();
        let mut text = format!(
            "tickTime={tick_time}\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n\
             dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n",
            data.display().to_string().replace('\\', "/"),
            self.address.port(),
        );
        for (name, value) in &self.settings.config {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }

    /// Waits until the process of [`Server::spawn`] serves clients; if not, the process is gone.
    pub(crate) fn wait_until_it_answers(&mut self) -> std::result::Result<(), Failure> {
        let outcome = self.wait();
        if outcome.is_err() {
            let _ = self.kill();
        }
        outcome
    }

    fn wait(&mut self) -> std::result::Result<(), Failure> {
        let data = self.data();
        let deadline = Instant::now() + START_DEADLINE;
        while Instant::now() < deadline {
            let ended = self.process.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                return Err(Failure::Died(format!("{status}; {}", self.end_of_log())));
            }
            // Another server may have taken the port, so it is not enough that one answers.
            if self.four_letter_word("ruok").is_ok_and(|answer| answer == "imok")
                && self.answers_from(&data)
            {
                File::create(self.directory.path().join(ANSWERED))?;
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
        let log = self.end_of_log();
        Err(Failure::Other(format!("no answer within {START_DEADLINE:?}; {log}").into()))
    }

    fn answers_from(&self, data: &Path) -> bool {
        let name = self.directory.path().file_name().unwrap_or(data.as_os_str());
        let configuration = self.four_letter_word("conf").unwrap_or_default();
        configuration.contains(&*name.to_string_lossy())
    }

    fn end_of_log(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // By its id, before its files go; there is nobody to tell about a failure.
        let _ = self.kill();
    }
}

/// Sends an administrator's word to a server and reads all of its answer.
pub fn four_letter_word(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, WORD_DEADLINE)?;
    stream.set_read_timeout(Some(WORD_DEADLINE))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// So many addresses, all different, that nobody uses right now.
pub(crate) fn free_loopback_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let listeners: io::Result<Vec<_>> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect();
    listeners?.iter().map(TcpListener::local_addr).collect()
}

/// Why a start failed: only a server that died may have met a busy port.
pub(crate) enum Failure {
    Died(String),
    Other(crate::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}

/// What the tests rely on.
const SYSTEM_PROPERTIES: [(&str, &str); 4] = [
    // Containers and TTL nodes.
    ("zookeeper.extendedTypesEnabled", "true"),
    // The default, a minute, is longer than any test.
    ("znode.container.checkIntervalMs", "1000"),
    // Test data may be lost in a power cut, so no write waits for the disk.
    ("zookeeper.forceSync", "no"),
    ("zookeeper.4lw.commands.whitelist", "*"),
];

/// The file that says that the server has answered once.
const ANSWERED: &str = "answered";

/// More than enough for a port race, little enough for a broken installation.
const START_ATTEMPTS: u32 = 5;

/// A start takes about a second; a busy machine may need ten.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// A start is watched often enough not to be felt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A word is answered in a millisecond or so.
const WORD_DEADLINE: Duration = Duration::from_secs(5);
