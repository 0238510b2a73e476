//! `docent-lab`: serves the lab's page.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    process::{Command, ExitCode, Stdio},
};

use clap::{Parser, error::ErrorKind};
use docent_lab::{serve::Lab, tap::Tap};

/// `EX_USAGE`.
const USAGE: u8 = 64;
/// `EX_OSERR`.
const OS: u8 = 71;

#[derive(Debug, Parser)]
#[command(
    name = "docent lab",
    about = "Serve a page on which a lock can be watched, wound back and broken",
    long_about = "Serve a page on which a lock can be watched, wound back and broken\n\n\
                  The first line of the output is the page's address. Runs until it is killed. Nothing is loaded from elsewhere, \
                  and nothing is written.",
    after_help = "Exit codes:\n  64  wrong usage\n  71  the address is in use, or cannot be bound",
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
    /// Show the plan that `cargo xtask sim` draws from this seed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Relay clients that connect to LISTEN to the server UPSTREAM, and show their traffic
    #[arg(long, value_name = "LISTEN=UPSTREAM", value_parser = relay, conflicts_with = "seed")]
    tap: Option<(SocketAddr, String)>,
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
    let tap = match &arguments.tap {
        Some((listen, upstream)) => match Tap::start(*listen, upstream) {
            Ok(tap) => Some(tap),
            Err(error) => return fail(*listen, &error),
        },
        None => None,
    };
    let lab = match Lab::start(arguments.listen, arguments.token.clone(), tap.clone()) {
        Ok(lab) => lab,
        Err(error) => return fail(arguments.listen, &error),
    };
    let token = arguments.token.map(|token| format!("?token={token}")).unwrap_or_default();
    let subject = match (arguments.seed, &tap) {
        (Some(seed), _) => format!("#plan+{seed}"),
        (None, Some(_)) => "#tap".to_owned(),
        (None, None) => String::new(),
    };
    let address = format!("http://{}/{token}{subject}", lab.address());
    // A closed output is no reason to end.
    let _ = writeln!(io::stdout(), "{address}");
    if let Some(tap) = tap {
        let _ = writeln!(io::stdout(), "clients connect to {}", tap.address());
    }
    if arguments.open {
        open(&address);
    }
    lab.wait();
    ExitCode::SUCCESS
}

fn fail(address: SocketAddr, error: &io::Error) -> ExitCode {
    let code = if error.kind() == io::ErrorKind::InvalidInput { USAGE } else { OS };
    eprintln!("docent lab: {address}: {error}");
    ExitCode::from(code)
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
