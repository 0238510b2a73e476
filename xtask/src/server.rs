//! `cargo xtask server`: runs a real ZooKeeper in the foreground.

use std::io;
use std::process::ExitCode;

use xtask::{Result, Server, Settings};

use crate::packages;

/// Runs the server until standard input ends. If this process is killed, the server's own standard input ends, and
/// it exits.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let port = match arguments.as_slice() {
        [] => 0,
        ["--port", port] => {
            port.parse().map_err(|_| format!("--port {port}: must be from 0 to 65535"))?
        }
        _ => return Ok(crate::usage()),
    };
    let java = packages::java()?;
    let server = Server::start(&java, Settings { port, ..Settings::default() })?;
    println!("listening on {}", server.address());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(ExitCode::SUCCESS)
}
