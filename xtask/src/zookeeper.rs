//! A real ZooKeeper server on a free loopback port, with its files in a temporary directory.
//!
//! It listens on 127.0.0.1 only. It is killed when its [`Server`] is dropped. It exits when this process is
//! killed, because it watches its standard input (`java/WatchedServer.java`).

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Java, KeptPort, Result, TemporaryDirectory};

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The client port; 0 selects a free port.
    pub port: u16,
    /// The server's unit of time. Session timeouts are from 2 ticks to an hour unless `config` sets other limits.
    pub tick_time: Duration,
    /// The number of the server in an ensemble. Its members are listed in `config`.
    pub id: Option<usize>,
    /// Further lines of `zoo.cfg`, which override the others.
    pub config: Vec<(String, String)>,
    /// Further Java system properties, which override the others.
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

/// A server, running or not. It is killed, and its files removed, on drop.
#[derive(Debug)]
pub struct Server {
    java: Java,
    classes: PathBuf,
    settings: Settings,
    address: SocketAddr,
    /// Absent if the settings name a port.
    _port: Option<KeptPort>,
    directory: TemporaryDirectory,
    process: Option<Child>,
}

impl Server {
    /// Starts a server and waits until it replies.
    pub fn start(java: &Java, settings: Settings) -> Result<Self> {
        let mut server = Self::new(java, settings)?;
        server.start_again()?;
        Ok(server)
    }

    /// Creates a server without starting it.
    pub(crate) fn new(java: &Java, settings: Settings) -> Result<Self> {
        let free = (settings.port == 0).then(KeptPort::free).transpose()?;
        let fixed = SocketAddr::from(([127, 0, 0, 1], settings.port));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("java/WatchedServer.java");
        Ok(Self {
            java: java.clone(),
            classes: java.compile(&source)?,
            address: free.as_ref().map_or(fixed, KeptPort::address),
            _port: free,
            settings,
            directory: TemporaryDirectory::new("zookeeper")?,
            process: None,
        })
    }

    /// Starts the server after [`Server::stop`] or [`Server::kill`], with the same port and data, and waits until it
    /// replies.
    pub fn start_again(&mut self) -> Result<()> {
        let _turn = self.java.turn()?;
        for _ in 0..START_ATTEMPTS {
            self.spawn()?;
            if self.wait_until_ready()? {
                return Ok(());
            }
            // A fixed port may stay busy for a moment after its last use, so retry.
        }
        Err(format!("ZooKeeper did not start: {}", self.end_of_log()).into())
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process ID while the server runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Returns the directory of its configuration, data and log.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Shuts the server down and keeps its data.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            let sent = process.stdin.take().map(|mut input| input.write_all(b"stop\n"));
            if !matches!(sent, Some(Ok(()))) {
                process.kill()?;
            }
            process.wait()?;
        }
        Ok(())
    }

    /// Kills the server and keeps its data.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Sends a four letter word such as `ruok` or `srvr` and returns the reply.
    pub fn four_letter_word(&self, word: &str) -> io::Result<String> {
        four_letter_word(self.address, word)
    }

    /// Starts the process without waiting for a reply.
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
            "tickTime={tick_time}\nmaxSessionTimeout=3600000\nmaxClientCnxns=0\n\
             dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n",
            data.display().to_string().replace('\\', "/"),
            self.address.port(),
        );
        for (name, value) in &self.settings.config {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }

    /// Waits until the server started by [`Server::spawn`] serves clients. Returns `false` if its process has ended.
    /// Kills it and fails after `START_TIMEOUT`.
    pub(crate) fn wait_until_ready(&mut self) -> Result<bool> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            let ended = self.process.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() {
                self.kill()?;
                return Ok(false);
            }
            // Another server may listen on a fixed port, so a reply alone is not enough.
            if self.four_letter_word("ruok").is_ok_and(|reply| reply == "imok")
                && self.has_our_directory()
            {
                return Ok(true);
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.kill()?;
        Err(format!("no reply within {START_TIMEOUT:?}; {}", self.end_of_log()).into())
    }

    /// Whether the server that replies uses the directory of this one.
    fn has_our_directory(&self) -> bool {
        let name = self.directory().file_name().unwrap_or_default().to_string_lossy();
        self.four_letter_word("conf").is_ok_and(|configuration| configuration.contains(&*name))
    }

    pub(crate) fn end_of_log(&self) -> String {
        end_of_log(&self.directory.path().join("log"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killed before its files are removed. An error cannot be reported here.
        let _ = self.kill();
    }
}

/// The last lines of a log, for an error.
#[must_use]
pub fn end_of_log(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
}

/// Sends a four letter word to a server and returns the whole reply.
pub fn four_letter_word(address: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, REPLY_TIMEOUT)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.write_all(word.as_bytes())?;
    let (mut reply, mut part) = (Vec::new(), [0; 4096]);
    // A server that starts does not always close the connection (ZOOKEEPER-5051).
    while reply != b"imok" && !reply.starts_with(NOT_SERVING) {
        match stream.read(&mut part)? {
            0 => break,
            length => reply.extend(part.iter().take(length)),
        }
    }
    String::from_utf8(reply).map_err(io::Error::other)
}

/// The properties that the tests require.
const SYSTEM_PROPERTIES: [(&str, &str); 4] = [
    // Containers and TTL nodes.
    ("zookeeper.extendedTypesEnabled", "true"),
    // The default is a minute, which is longer than any test.
    ("znode.container.checkIntervalMs", "1000"),
    // Test data need not survive a power failure, so writes do not wait for the disk.
    ("zookeeper.forceSync", "no"),
    ("zookeeper.4lw.commands.whitelist", "*"),
];

/// Enough attempts for a port that is still busy, few enough for a broken installation.
const START_ATTEMPTS: u32 = 5;

/// A start takes about a second, but has taken more than a minute on two processors at a load of
/// 15.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// How often to check whether the server has started.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The reply of a server that does not serve clients.
const NOT_SERVING: &[u8] = b"This ZooKeeper instance is not currently serving requests";

/// The time limit of a four letter word, whose reply takes about a millisecond.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_reply_of_a_server_that_starts_needs_no_close() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for reply in [&b"imok"[..], NOT_SERVING] {
            thread::scope(|scope| {
                let client = scope.spawn(|| four_letter_word(address, "ruok"));
                let (mut server, _) = listener.accept().unwrap();
                server.write_all(reply).unwrap();
                assert_eq!(client.join().unwrap().unwrap().as_bytes(), reply);
                drop(server);
            });
        }
    }
}
