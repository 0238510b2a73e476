//! A key distribution center (KDC) of MIT Kerberos on a free loopback port, with its files in a directory.
//!
//! It listens on 127.0.0.1 only, and reads no file of the system's Kerberos. It is killed when its [`Kdc`] is dropped,
//! and also when this process is killed: the shell around it watches its standard input.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{find, output};
use crate::{KeptPort, Result};

/// The realm of all tests.
pub const REALM: &str = "DOCENT.TEST";

/// The programs of the Debian packages krb5-kdc, krb5-admin-server and krb5-user.
const PROGRAMS: [&str; 5] = ["krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist"];

/// A KDC, running or not.
#[derive(Debug)]
pub struct Kdc {
    directory: PathBuf,
    port: KeptPort,
    process: Option<Child>,
}

impl Kdc {
    /// Checks that the programs are installed. The error names the missing ones.
    pub fn find() -> Result<()> {
        let missing: Vec<_> = PROGRAMS.into_iter().filter(|name| find(name).is_none()).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{} not installed", missing.join(", ")).into())
        }
    }

    /// Returns the environment that makes programs use the configuration and the client's keytab in `directory`.
    /// The credential cache stays that of the caller's environment (`KRB5CCNAME`).
    pub fn environment(directory: &Path) -> [(&'static str, OsString); 3] {
        let mut keytab = OsString::from("FILE:");
        keytab.push(directory.join("client.keytab"));
        [
            ("KRB5_CONFIG", directory.join("krb5.conf").into()),
            ("KRB5_KDC_PROFILE", directory.join("kdc.conf").into()),
            ("KRB5_CLIENT_KTNAME", keytab),
        ]
    }

    /// Creates the database of the realm in `directory` and starts the KDC. `relay` is the address at which clients
    /// reach it, if they must not connect to it directly.
    pub fn start(directory: &Path, relay: Option<SocketAddr>) -> Result<Self> {
        let mut kdc =
            Self { directory: directory.to_path_buf(), port: KeptPort::free()?, process: None };
        kdc.configure(relay)?;
        kdc.run("kdb5_util", &["create", "-s", "-P", "master"])?;
        kdc.start_again()?;
        Ok(kdc)
    }

    /// Writes krb5.conf for clients, server.conf, which is the same without the relay, and kdc.conf.
    fn configure(&self, relay: Option<SocketAddr>) -> Result<()> {
        let directory = self.directory.display();
        let address = self.port.address();
        let plugins = plugins()?;
        let plugins = plugins.display();
        let client = |kdc: SocketAddr| {
            format!(
                "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
                 udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = {kdc}\n }}\n"
            )
        };
        fs::write(self.directory.join("krb5.conf"), client(relay.unwrap_or(address)))?;
        fs::write(self.directory.join("server.conf"), client(address))?;
        let kdc = format!(
            "[kdcdefaults]\n kdc_listen = {address}\n kdc_tcp_listen = {address}\n[realms]\n {REALM} = {{\n  \
             database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n  \
             acl_file = {directory}/kadm5.acl\n  supported_enctypes = aes256-cts-hmac-sha1-96:normal\n }}\n\
             [dbmodules]\n db_module_dir = {plugins}/kdb\n[logging]\n kdc = FILE:{directory}/kdc.log\n"
        );
        fs::write(self.directory.join("kdc.conf"), kdc)?;
        Ok(())
    }

    /// Starts the KDC again after [`Kdc::kill`], and waits until it accepts connections.
    pub fn start_again(&mut self) -> Result<()> {
        let program = find("krb5kdc").ok_or("krb5kdc is not installed")?;
        // The shell kills the KDC when its standard input ends, and so when this process ends.
        let script = "\"$0\" -n & kdc=$!; read -r _; kill -9 $kdc; wait $kdc 2>/dev/null";
        let process = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .envs(Self::environment(&self.directory))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.process = Some(process);
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            if TcpStream::connect(self.port.address()).is_ok() {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.kill()?;
        let log = fs::read_to_string(self.directory.join("kdc.log")).unwrap_or_default();
        Err(format!("the KDC did not start: {log}").into())
    }

    /// Kills the KDC. The database is kept.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            process.wait()?;
        }
        Ok(())
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns the directory of its files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Changes the database with a command of kadmin, such as `delprinc`, and its arguments. The KDC need not run.
    pub fn kadmin(&self, command: &[&str]) -> Result<()> {
        self.run("kadmin.local", command)
    }

    /// Creates a principal with a random key, and adds the key to a keytab in the directory.
    pub fn add_principal(&self, principal: &str, keytab: &str) -> Result<()> {
        self.kadmin(&["addprinc", "-randkey", "+requires_preauth", principal])?;
        self.export(principal, keytab)
    }

    /// Adds the key of a principal to a keytab in the directory.
    pub fn export(&self, principal: &str, keytab: &str) -> Result<()> {
        let keytab = self.directory.join(keytab);
        let keytab = keytab.to_str().ok_or("a directory that is not UTF-8")?;
        self.kadmin(&["ktadd", "-norandkey", "-k", keytab, principal])
    }

    /// Runs a program of Kerberos with the files of this realm.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let program = find(name).ok_or_else(|| format!("{name} is not installed"))?;
        let mut command = Command::new(program);
        command.args(arguments).envs(Self::environment(&self.directory)).stdin(Stdio::null());
        output(&mut command).map(drop)
    }

    /// Returns the number of tickets that the KDC has issued for one kind of request: `AS_REQ`, which uses a key, or
    /// `TGS_REQ`, which uses a ticket.
    pub fn issued(&self, request: &str) -> usize {
        let log = fs::read_to_string(self.directory.join("kdc.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(request) && line.contains(" ISSUE: ")).count()
    }
}

impl Drop for Kdc {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = self.kill();
    }
}

/// Checks that the C headers and libclang are installed, which docent-gssapi needs to build. The error names the
/// missing one.
pub fn gssapi_headers() -> Result<()> {
    let mut headers = Command::new("pkg-config");
    headers.args(["--exists", "mit-krb5-gssapi"]).stdin(Stdio::null()).stderr(Stdio::null());
    if !headers.status().is_ok_and(|status| status.success()) {
        return Err("no headers of libkrb5 (libkrb5-dev), or no pkg-config".into());
    }
    let is_libclang = |name: &str| name.starts_with("libclang") && name.contains(".so");
    let has_libclang = |directory: &Path| {
        let entries = directory.read_dir().into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_str().is_some_and(is_libclang))
    };
    let llvm = Path::new("/usr/lib").read_dir().into_iter().flatten().flatten();
    let llvm = llvm.map(|entry| entry.path().join("lib"));
    let given = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    if given.into_iter().chain(llvm).any(|directory| has_libclang(&directory)) {
        Ok(())
    } else {
        Err("no libclang (libclang-dev) in /usr/lib/llvm-*/lib or LIBCLANG_PATH".into())
    }
}

/// The directory of the KDC's database module, which may be outside the system's directories.
fn plugins() -> Result<PathBuf> {
    let kdc = find("krb5kdc").ok_or("krb5kdc is not installed")?;
    let prefix = kdc.parent().and_then(Path::parent).ok_or("krb5kdc is in no directory")?;
    let libraries = prefix.join("lib").read_dir()?.flatten().map(|entry| entry.path());
    let mut plugins = libraries.map(|library| library.join("krb5/plugins"));
    let found = plugins.find(|plugins| plugins.join("kdb").is_dir());
    Ok(found.ok_or_else(|| format!("no krb5/plugins/kdb in {}/lib/*", prefix.display()))?)
}

/// A start takes milliseconds, or seconds on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How often to check whether the KDC has started.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
