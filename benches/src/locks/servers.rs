//! The servers of the services. Each uses free loopback ports and keeps its files in a temporary directory. It is
//! ended by its process ID, or by the kernel if this process is killed.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User},
};
use xtask::{
    Java, KeptPort, Result, Server, Settings, TemporaryDirectory,
    command::{find, output},
    end_of_log,
};

use crate::{process::Process, statistics::tree};

/// A set of servers that services share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    ZooKeeper,
    Etcd,
    Redis,
    Redis3,
    Postgres,
    MariaDb,
    File,
}

impl Kind {
    /// The program of the server, and the Debian package that contains it.
    const fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::ZooKeeper | Self::File => ("sh", "dash"),
            Self::Etcd => ("etcd", "etcd-server"),
            Self::Redis | Self::Redis3 => ("redis-server", "redis-server"),
            Self::Postgres => ("/usr/lib/postgresql/15/bin/postgres", "postgresql"),
            Self::MariaDb => ("mariadbd", "mariadb-server"),
        }
    }

    /// The version of the installed server as one line.
    pub(crate) fn version(self) -> Result<String> {
        if self == Self::File {
            return Ok("the operating system".into());
        }
        if self == Self::ZooKeeper {
            // The jar in use may be a link without a version, or the target of a link, so the
            // versions are taken from all names.
            let directory = std::env::var("DOCENT_JAVA_LIB").unwrap_or("/usr/share/java".into());
            let names = fs::read_dir(directory)?.flatten().map(|entry| entry.file_name());
            let version = names.filter_map(|name| {
                let rest = name.to_str()?.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
                rest.starts_with(|c: char| c.is_ascii_digit()).then(|| rest.to_owned())
            });
            return Ok(format!("ZooKeeper {}", version.max().unwrap_or_default()));
        }
        let output = Command::new(program(self)?).arg("--version").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    }
}

/// Finds a server's program.
fn program(kind: Kind) -> Result<PathBuf> {
    if kind == Kind::Etcd && cfg!(not(feature = "etcd")) {
        return Err(
            "etcd-client is not built in: no protoc (Debian package protobuf-compiler)".into()
        );
    }
    let (program, package) = kind.program();
    find(program).ok_or_else(|| format!("no {program} (Debian package {package})").into())
}

/// A command that is killed when this process ends. If this process is root, it runs as the given user.
fn owned_command(program: &Path, user: Option<&str>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(user) = user.filter(|_| nix::unistd::geteuid().is_root()) {
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    }
    command.arg("--").arg(program);
    command
}

/// Makes a user the owner of a directory, if this process is root.
fn give(directory: &Path, user: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        let user = User::from_name(user)?.ok_or_else(|| format!("no user {user}"))?;
        chown(directory, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(())
}

/// How to check that a server is ready.
#[derive(Debug, Clone, Copy)]
enum Ready {
    Redis,
    Etcd,
    Postgres,
    /// Sends a greeting to a new connection.
    Greeting,
    Accepts,
}

/// A server process, with the command line to start it again.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    program: PathBuf,
    user: Option<&'static str>,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    directory: PathBuf,
    port: KeptPort,
    ready: Ready,
    child: Option<Child>,
}

/// A server starts within a second, or within ten on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

impl ServerProcess {
    fn start(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let log = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.directory.join("log"))?;
            let mut command = owned_command(&self.program, self.user);
            command.args(&self.arguments).current_dir(&self.directory);
            command.envs(self.environment.iter().cloned());
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            let mut child = command.spawn()?;
            // If the process exits, the port or the files were still in use by its predecessor: retry.
            while child.try_wait()?.is_none() {
                if self.is_ready() {
                    self.child = Some(child);
                    return Ok(());
                }
                if Instant::now() > deadline {
                    child.kill()?;
                    child.wait()?;
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
            if Instant::now() > deadline {
                let end = end_of_log(&self.directory.join("log"));
                return Err(format!("{} did not start: {end}", self.program.display()).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_ready(&self) -> bool {
        let ask = |request: &[u8]| -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.port.address())?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(request)?;
            let mut bytes = [0; 512];
            let length = stream.read(&mut bytes)?;
            Ok(String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned())
        };
        match self.ready {
            Ready::Redis => ask(b"PING\r\n").is_ok_and(|reply| reply.starts_with("+PONG")),
            Ready::Etcd => ask(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
                .is_ok_and(|reply| reply.contains("\"true\"") || reply.contains("200 OK")),
            Ready::Postgres => {
                let mut command = Command::new("/usr/lib/postgresql/15/bin/pg_isready");
                command.args([
                    "-q",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    &self.port.address().port().to_string(),
                ]);
                command.status().is_ok_and(|status| status.success())
            }
            Ready::Greeting => ask(b"").is_ok_and(|reply| !reply.is_empty()),
            Ready::Accepts => TcpStream::connect(self.port.address()).is_ok(),
        }
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            send(child.id(), signal)?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // On SIGQUIT, PostgreSQL's processes end with their parent. On SIGKILL, they would leave shared memory behind.
        let postgres = matches!(self.ready, Ready::Postgres);
        let signal = if postgres { Signal::SIGQUIT } else { Signal::SIGKILL };
        let _ = self.end(signal);
    }
}

pub(crate) fn send(process: u32, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(process.try_into()?), signal)?)
}

/// One server.
#[derive(Debug)]
enum Member {
    Process(ServerProcess),
    ZooKeeper(Box<Server>),
}

impl Member {
    fn id(&self) -> Option<u32> {
        match self {
            Self::Process(process) => process.child.as_ref().map(Child::id),
            Self::ZooKeeper(server) => server.process_id(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) kind: Kind,
    members: Vec<Member>,
    addresses: Vec<String>,
    // Dropped, and so removed, after the servers have ended.
    directories: Vec<TemporaryDirectory>,
}

impl Servers {
    pub(crate) fn start(kind: Kind, fsync: bool) -> Result<Self> {
        Self::start_with(kind, fsync, &[])
    }

    /// Starts the servers with additional environment variables.
    pub(crate) fn start_with(
        kind: Kind,
        fsync: bool,
        environment: &[(&'static str, String)],
    ) -> Result<Self> {
        program(kind)?;
        let mut servers =
            Self { kind, members: Vec::new(), addresses: Vec::new(), directories: Vec::new() };
        let count = if kind == Kind::Redis3 { 3 } else { 1 };
        for _ in 0..count {
            servers.add(fsync, environment)?;
        }
        Ok(servers)
    }

    fn add(&mut self, fsync: bool, environment: &[(&'static str, String)]) -> Result<()> {
        if self.kind == Kind::ZooKeeper {
            let property = ("zookeeper.forceSync", if fsync { "yes" } else { "no" });
            let settings = Settings {
                // The shortest session timeout is two ticks.
                tick_time: Duration::from_millis(500),
                properties: vec![(property.0.to_owned(), property.1.to_owned())],
                ..Settings::default()
            };
            let server = Server::start(&Java::find()?, settings)?;
            self.addresses.push(server.address().to_string());
            self.members.push(Member::ZooKeeper(Box::new(server)));
            return Ok(());
        }
        // etcd 3.4 has no option to switch off durable writes, so its files are in memory.
        let in_memory = self.kind == Kind::Etcd && !fsync;
        let directory = match in_memory {
            true => TemporaryDirectory::new_in(Path::new("/dev/shm"), "locks")?,
            false => TemporaryDirectory::new("locks")?,
        };
        let path = directory.path().to_owned();
        self.directories.push(directory);
        if self.kind == Kind::File {
            self.addresses.push(path.display().to_string());
            return Ok(());
        }
        let mut process = self.process(&path, fsync)?;
        process.environment = environment.to_vec();
        self.addresses.push(process.port.address().to_string());
        process.start()?;
        self.members.push(Member::Process(process));
        Ok(())
    }

    fn process(&self, directory: &Path, fsync: bool) -> Result<ServerProcess> {
        let (kept, peers) = (KeptPort::free()?, KeptPort::free()?);
        let port = kept.address().port();
        let path = directory.display();
        let (user, ready, arguments) = match self.kind {
            Kind::Redis | Kind::Redis3 => {
                let durability =
                    if fsync { "--appendonly yes --appendfsync always" } else { "--appendonly no" };
                let line = format!("--port {port} --bind 127.0.0.1 --dir {path} {durability}");
                let mut arguments = words(&line);
                arguments.extend(["--save".to_owned(), String::new()]);
                (None, Ready::Redis, arguments)
            }
            Kind::Etcd => {
                let [client, peer] =
                    [&kept, &peers].map(|port| format!("http://{}", port.address()));
                let line = format!(
                    "--name one --data-dir {path}/data --listen-client-urls {client} --advertise-client-urls {client} \
                     --listen-peer-urls {peer} --initial-advertise-peer-urls {peer} --initial-cluster one={peer} \
                     --log-level warn --logger zap"
                );
                (None, Ready::Etcd, words(&line))
            }
            Kind::Postgres => {
                let user = "postgres";
                give(directory, user)?;
                let initdb = Path::new("/usr/lib/postgresql/15/bin/initdb");
                let line = format!("-D {path}/data -U locks --auth=trust --no-sync");
                output(
                    owned_command(initdb, Some(user)).args(words(&line)).current_dir(directory),
                )?;
                let on = if fsync { "on" } else { "off" };
                let line = format!(
                    "-D {path}/data -p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={path} \
                     -c fsync={on} -c synchronous_commit={on} -c max_connections=400"
                );
                (Some(user), Ready::Postgres, words(&line))
            }
            Kind::MariaDb => {
                let user = "mysql";
                give(directory, user)?;
                let install = find("mariadb-install-db").ok_or("no mariadb-install-db")?;
                let line = format!(
                    "--no-defaults --datadir={path}/data --auth-root-authentication-method=normal \
                     --skip-test-db --skip-name-resolve"
                );
                output(
                    owned_command(&install, Some(user)).args(words(&line)).current_dir(directory),
                )?;
                let flush = u8::from(fsync);
                let line = format!(
                    "--no-defaults --datadir={path}/data --port={port} --bind-address=127.0.0.1 \
                     --socket={path}/socket --skip-name-resolve --max-connections=400 \
                     --innodb-flush-log-at-trx-commit={flush}"
                );
                (Some(user), Ready::Greeting, words(&line))
            }
            Kind::ZooKeeper | Kind::File => return Err("not a process of ours".into()),
        };
        let program = program(self.kind)?;
        let directory = directory.to_owned();
        Ok(ServerProcess {
            program,
            user,
            arguments,
            environment: Vec::new(),
            directory,
            port: kept,
            ready,
            child: None,
        })
    }

    /// The address of the first server.
    pub(crate) fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The process IDs of the running servers.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.members.iter().filter_map(Member::id).collect()
    }

    /// Sends a signal to all processes of the first `count` servers.
    pub(crate) fn signal(&self, signal: Signal, count: usize) -> Result<()> {
        for id in self.members.iter().take(count).filter_map(Member::id) {
            for (process, _) in tree(&[id]) {
                send(process, signal)?;
            }
        }
        Ok(())
    }

    /// Kills the first `count` servers.
    pub(crate) fn kill(&mut self, count: usize) -> Result<()> {
        for member in self.members.iter_mut().take(count) {
            match member {
                Member::Process(process) => process.end(Signal::SIGKILL)?,
                Member::ZooKeeper(server) => server.kill()?,
            }
        }
        Ok(())
    }

    /// Shuts the servers down and keeps their data.
    pub(crate) fn stop(&mut self) -> Result<()> {
        for member in &mut self.members {
            match member {
                Member::Process(process) => process.end(Signal::SIGTERM)?,
                Member::ZooKeeper(server) => server.stop()?,
            }
        }
        Ok(())
    }

    /// Starts the servers that are not running, with the same ports and data.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        for member in &mut self.members {
            match member {
                Member::Process(process) if process.child.is_none() => process.start()?,
                Member::ZooKeeper(server) if server.process_id().is_none() => {
                    server.start_again()?;
                }
                Member::Process(_) | Member::ZooKeeper(_) => {}
            }
        }
        Ok(())
    }

    /// Copies the data of the servers, which must not be running. Returns the copy.
    pub(crate) fn copy_data(&self) -> Result<TemporaryDirectory> {
        let copy = TemporaryDirectory::new("snapshot")?;
        for (index, directory) in self.data_directories().iter().enumerate() {
            let to = copy.path().join(index.to_string());
            output(Command::new("cp").arg("-a").arg(directory).arg(&to))?;
        }
        Ok(copy)
    }

    /// Replaces the data of the servers, which must not be running, by a copy.
    pub(crate) fn restore_data(&self, copy: &TemporaryDirectory) -> Result<()> {
        for (index, directory) in self.data_directories().iter().enumerate() {
            fs::remove_dir_all(directory)?;
            let from = copy.path().join(index.to_string());
            output(Command::new("cp").arg("-a").arg(&from).arg(directory))?;
        }
        Ok(())
    }

    fn data_directories(&self) -> Vec<PathBuf> {
        let of_member = |member: &Member| match member {
            Member::ZooKeeper(server) => server.directory().to_owned(),
            Member::Process(process) => process.directory.clone(),
        };
        self.members.iter().map(of_member).collect()
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Starts a connection pooler in transaction mode in front of a PostgreSQL server.
pub(crate) fn pooler(server: &str) -> Result<(ServerProcess, TemporaryDirectory, String)> {
    let program = find("pgbouncer").ok_or("no pgbouncer (Debian package pgbouncer)")?;
    let (host, server_port) = server.split_once(':').ok_or("an address without a port")?;
    let directory = TemporaryDirectory::new("pgbouncer")?;
    give(directory.path(), "postgres")?;
    let port = KeptPort::free()?;
    let number = port.address().port();
    let file = directory.path().join("pgbouncer.ini");
    let text = format!(
        "[databases]\npostgres = host={host} port={server_port} user=locks dbname=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {number}\nunix_socket_dir =\n\
         auth_type = any\npool_mode = transaction\nmax_client_conn = 400\ndefault_pool_size = 20\n"
    );
    fs::write(&file, text)?;
    let mut process = ServerProcess {
        program,
        user: Some("postgres"),
        arguments: vec![file.display().to_string()],
        environment: Vec::new(),
        directory: directory.path().to_owned(),
        port,
        ready: Ready::Accepts,
        child: None,
    };
    process.start()?;
    let address = process.port.address().to_string();
    Ok((process, directory, address))
}

/// Starts a command of this program. It is killed when this process ends.
pub(crate) fn start_this_program(arguments: &[&str]) -> Result<Process> {
    Process::start(owned_command(&std::env::current_exe()?, None).args(arguments))
}
