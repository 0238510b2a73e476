//! `docent conform`: conformance tests of servers, and of clients.

mod client;
mod interrupt;
mod output;

use std::{
    ops::ControlFlow,
    process,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use clap::{Args, Subcommand};
use docent_conform::{Options, Unusable, Version};

use self::{
    interrupt::Interrupts,
    output::{Matrix, Outputs},
};

use crate::{
    exit::{self, CommandResult, Failure},
    output::{print, report},
};

/// Test whether servers speak ZooKeeper's protocol as ZooKeeper does, or what a client does under faults
///
/// Each case sends frames and compares what comes with what a ZooKeeper of the same version sends. Everything happens
/// below one new node, which is deleted in the end.
#[derive(Args)]
#[command(after_long_help = HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Conform {
    /// The servers, HOST:PORT; several of one ensemble with commas between them
    #[arg(value_name = "HOST:PORT", required_unless_present = "list", num_args = 1,
        value_delimiter = ',', value_parser = server)]
    servers: Vec<String>,
    /// Version of the servers: auto (as they say by `srvr`), 3.4 to 3.10 or 3.8.4, keeper-26.6
    #[arg(long, value_name = "VERSION", default_value = "auto", value_parser = version)]
    version: ServerVersion,
    /// Credentials for the subtree: SCHEME:AUTH, such as digest:user:password
    #[arg(long, value_name = "SCHEME:AUTH", value_parser = credentials)]
    auth: Option<(String, String)>,
    /// Node below which everything happens
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = parent)]
    parent: String,
    /// Also send requests that end some servers for good or lose their data; the address must be said again
    #[arg(long, value_name = "HOST:PORT")]
    harmful: Option<String>,
    #[command(flatten)]
    outputs: Outputs,
    #[command(subcommand)]
    other: Option<Other>,
}

/// What is done instead of the test of a server.
#[derive(Subcommand)]
enum Other {
    Client(client::ConformClient),
    Matrix(Matrix),
}

const HELP: &str = "\
Exit codes:
  0   no MUST failed
  1   a MUST failed
  64  wrong usage: an option, a file, an unknown version; nothing was tested
  69  no server, or none that can be tested; or it was gone in the end
  74  a report cannot be written
  128+N  ended by signal N; a second signal ends the program before the nodes are deleted";

/// `auto`, or a version.
#[derive(Clone, Copy)]
struct ServerVersion(Option<Version>);

fn version(text: &str) -> Result<ServerVersion, String> {
    if text == "auto" {
        return Ok(ServerVersion(None));
    }
    let version = Version::parse(text);
    let why = "is neither auto nor a version, such as 3.8, 3.9.5 or keeper-26.6";
    version.map(|version| ServerVersion(Some(version))).ok_or_else(|| why.to_owned())
}

fn server(text: &str) -> Result<String, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) => Ok(text.to_owned()),
        _ => Err("is not HOST:PORT".to_owned()),
    }
}

fn credentials(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').ok_or("is not SCHEME:AUTH, such as digest:user:password")?;
    Ok((parts.0.to_owned(), parts.1.to_owned()))
}

fn parent(text: &str) -> Result<String, String> {
    docent_protocol::path::validate(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

impl Conform {
    pub(crate) fn run(self) -> CommandResult {
        match self.other {
            Some(Other::Client(client)) => return client.run(),
            Some(Other::Matrix(matrix)) => return matrix.run(),
            None => {}
        }
        if self.outputs.list {
            return list();
        }
        let wanted = self.outputs.wanted()?;
        let options = self.options()?;
        let (mut shown, signal) = (Ok(()), listen()?);
        let ended_by = || signal.load(Ordering::Relaxed);
        let ran = docent_conform::run(&options, |verdict| {
            shown = self.outputs.show(verdict);
            if shown.is_err() || ended_by() > 0 {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let ran = ran.map_err(|error| match error {
            Unusable::Usage(text) => Failure::usage(text),
            other => Failure::new(exit::NO_SERVER, other),
        })?;
        for left in &ran.left {
            report(format_args!("docent conform: not deleted: {left}"));
        }
        shown?;
        match ended_by() {
            0 => wanted.write(ran),
            code => Ok(code),
        }
    }

    fn options(&self) -> Result<Options, Failure> {
        let mut options =
            Options::new(self.servers.iter().map(String::as_str)).parent(&*self.parent);
        if let Some(pattern) = &self.outputs.only {
            options = options.only(pattern);
        }
        if let ServerVersion(Some(version)) = self.version {
            options = options.version(version);
        }
        if let Some((scheme, auth)) = &self.auth {
            options = options.auth(scheme, auth);
        }
        match &self.harmful {
            None => Ok(options),
            Some(address) if *address == self.servers.join(",") => Ok(options.allow_harm()),
            Some(address) => Err(Failure::usage(format_args!(
                "--harmful {address}: is not the address that is tested; nothing was sent"
            ))),
        }
    }
}

/// Starts to listen to signals. The number is the exit code that says so as soon as there was one; a second signal ends
/// the program.
fn listen() -> Result<Arc<AtomicU8>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut interrupts = {
        let _within = runtime.enter();
        Interrupts::listen()?
    };
    let code = Arc::new(AtomicU8::new(0));
    let written = Arc::clone(&code);
    thread::spawn(move || {
        runtime.block_on(async {
            written.store(interrupts.next().await, Ordering::Relaxed);
            process::exit(interrupts.next().await.into());
        })
    });
    Ok(code)
}

fn list() -> CommandResult {
    for case in docent_conform::all().map_err(|error| Failure::new(exit::SOFTWARE, error))? {
        print(&format!("{:<6} {}: {} ({})\n", case.level, case.id, case.about, case.source))?;
    }
    Ok(0)
}
