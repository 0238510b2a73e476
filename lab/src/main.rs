//! `docent-lab`: serves the lab's page.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use clap::{Args, Parser, error::ErrorKind};
use docent_lab::{
    lessons,
    script::{Script, schedule_line},
    serve::Lab,
    traffic::Traffic,
};
use docent_sim::exhaust::Schedule;

/// `EX_USAGE`.
const USAGE: u8 = 64;
/// `EX_DATAERR`.
const DATA: u8 = 65;
/// `EX_OSERR`.
const OS: u8 = 71;
/// `EX_IOERR`.
const IO: u8 = 74;

/// The longest file of a schedule in bytes: its diagram is in comments.
const LONGEST_SCHEDULE: u64 = 4 << 20;

#[derive(Debug, Parser)]
#[command(
    name = "docent lab",
    about = "Serve a page on which a lock can be watched, wound back and broken",
    long_about = "Serve a page on which a lock can be watched, wound back and broken\n\n\
                  The first line of the output is the page's address. Runs until it is killed. Nothing is loaded from elsewhere, \
                  and nothing is written.",
    after_help = "Exit codes:\n  64  wrong usage\n  65  the file is no capture, or no schedule\n  \
                  71  the address is in use, or cannot be bound\n  74  the file cannot be read",
    max_term_width = 100
)]
struct Arguments {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// What a run needs to know; required for an address beyond loopback
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Option<String>,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    subject: Subject,
    /// Port of the servers in a capture of tshark; may be repeated
    #[arg(long, default_value = "2181", requires = "capture")]
    port: Vec<u16>,
}

/// What the page shows first, in place of a lesson.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Subject {
    /// Show the lesson of this name
    #[arg(long, value_name = "NAME", value_parser = lesson)]
    lesson: Option<String>,
    /// Show the plan that `cargo xtask sim` draws from this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Show a run of `cargo xtask exhaust`: the file that it has written
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Relay clients that connect to LISTEN to the server UPSTREAM, and show their traffic
    #[arg(long, value_name = "LISTEN=UPSTREAM", value_parser = relay)]
    tap: Option<(SocketAddr, String)>,
    /// Show captured traffic: a file of `docent tap --capture`, or of tshark as in `docent decode --help`
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

fn relay(text: &str) -> Result<(SocketAddr, String), String> {
    let (listen, upstream) = text.split_once('=').ok_or("is no LISTEN=UPSTREAM")?;
    let listen = listen.parse().map_err(|_| "LISTEN is no address such as 127.0.0.1:2182")?;
    let is_server = upstream
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if is_server {
        Ok((listen, upstream.to_owned()))
    } else {
        Err("UPSTREAM is no HOST:PORT".to_owned())
    }
}

fn lesson(name: &str) -> Result<String, String> {
    let lessons = lessons::all()?;
    let known = lessons.iter().find(|lesson| lesson.name == name);
    let names = || lessons.iter().map(|lesson| lesson.name).collect::<Vec<_>>().join(", ");
    known.map(|_| name.to_owned()).ok_or_else(|| format!("there are {}", names()))
}

/// The fewest characters of a token.
const LEAST_TOKEN: usize = 16;

fn token(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if text.len() < LEAST_TOKEN || !text.chars().all(is_good) {
        return Err(format!("a token has at least {LEAST_TOKEN} letters and digits"));
    }
    Ok(text.to_owned())
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, text)) => {
            eprintln!("docent lab: {text}");
            ExitCode::from(code)
        }
    }
}

/// The exit code, and the reason in one line.
type Failure = (u8, String);

fn serve(arguments: Arguments) -> Result<(), Failure> {
    let (fragment, traffic, relay) = subject(&arguments)?;
    let lab = Lab::start(arguments.listen, arguments.token.clone(), traffic)
        .map_err(|error| of_address(arguments.listen, &error))?;
    let token = arguments.token.map(|token| format!("?token={token}")).unwrap_or_default();
    let address = format!("http://{}/{token}{fragment}", lab.address());
    // A closed output is no reason to end.
    let _ = writeln!(io::stdout(), "{address}");
    if let Some(relay) = relay {
        let _ = writeln!(io::stdout(), "clients connect to {relay}");
    }
    if arguments.open {
        open(&address);
    }
    lab.wait().map_err(|error| (OS, error.to_string()))
}

type Shown = (String, Option<Traffic>, Option<SocketAddr>);

/// The fragment of the page's address, the traffic, and the address of the relay.
fn subject(arguments: &Arguments) -> Result<Shown, Failure> {
    let traffic = || "#traffic".to_owned();
    let Subject { lesson, seed, schedule, tap, capture } = &arguments.subject;
    if let Some(lesson) = lesson {
        return Ok((format!("#lesson={lesson}"), None, None));
    }
    if let Some((listen, upstream)) = tap {
        let relay = Traffic::relay(*listen, upstream);
        let (relay, address) = relay.map_err(|error| of_address(*listen, &error))?;
        return Ok((traffic(), Some(relay), Some(address)));
    }
    if let Some(path) = capture {
        let read = Traffic::read(path, &arguments.port).map_err(|error| of_file(path, &error))?;
        return Ok((traffic(), Some(read), None));
    }
    let script = match (seed, schedule) {
        (Some(seed), _) => format!("plan {seed}"),
        (None, Some(path)) => read_schedule(path).map_err(|error| of_file(path, &error))?,
        (None, None) => return Ok((String::new(), None, None)),
    };
    Ok((format!("#{}", encoded(&script)), None, None))
}

/// The script of the schedule in a file.
fn read_schedule(path: &Path) -> io::Result<String> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let mut text = String::new();
    File::open(path)?.take(LONGEST_SCHEDULE).read_to_string(&mut text)?;
    let schedule = Schedule::from_ron(&text).map_err(invalid)?;
    let line = schedule_line(&schedule);
    line.parse::<Script>().map_err(invalid)?;
    Ok(line)
}

/// A script as part of an address, as the page writes it.
fn encoded(script: &str) -> String {
    let shown = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        byte if byte.is_ascii_alphanumeric() || b"-,:".contains(&byte) => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    script.bytes().map(shown).collect()
}

fn of_address(address: SocketAddr, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::InvalidInput { USAGE } else { OS };
    (code, format!("{address}: {error}"))
}

fn of_file(path: &Path, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::InvalidData { DATA } else { IO };
    (code, format!("{}: {error}", path.display()))
}

fn usage(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelp {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or(&text);
    let line: Vec<_> = paragraph.lines().map(str::trim).collect();
    let line = line.join(" ");
    eprintln!("docent lab: {}; see `docent lab --help`", line.trim_start_matches("error: "));
    ExitCode::from(USAGE)
}

fn open(address: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if cfg!(windows) {
        "explorer"
    } else {
        "xdg-open"
    };
    let mut command = Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(error) = command.spawn() {
        eprintln!("docent lab: {program}: {error}; open the address by hand");
    }
}
