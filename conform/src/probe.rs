//! Finds out whether there is a server that can be tested, and its version.

use std::{
    error, fmt,
    time::{Duration, Instant},
};

use crate::{
    channel::{Arrived, Channel as _, Socket},
    play::{Ended, Player},
    version::Version,
};

/// The time limit for the reply to `srvr`.
const LIMIT: Duration = Duration::from_secs(5);

/// Why nothing can be tested, or why the tests could not be finished, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unusable {
    /// The options are wrong.
    Usage(String),
    /// There is no server, or it cannot be used.
    Server(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Server(text) => f.write_str(text),
        }
    }
}

impl error::Error for Unusable {}

/// The version of a server, from its reply to `srvr`; `None` if the reply does not contain it.
pub(crate) fn version(address: &str) -> Result<Option<Version>, Unusable> {
    let mut socket = connect(address)?;
    socket.send(b"srvr");
    Ok(match socket.receive_text(Instant::now() + LIMIT) {
        Arrived::Text(text) => Version::of_status(&String::from_utf8_lossy(&text)),
        _ => None,
    })
}

/// Opens a connection.
pub(crate) fn connect(address: &str) -> Result<Socket, Unusable> {
    Socket::open(address)
        .map_err(|error| Unusable::Server(format!("{address}: no connection: {error}")))
}

/// Begins a session on the connection `label`. If that fails, the error says what kind of program
/// replies, if it is known.
pub(crate) fn begin(player: &mut Player<'_>, label: &str, address: &str) -> Result<(), Unusable> {
    let refuse = |why: &str| Err(Unusable::Server(format!("{address}: {why}")));
    match player.ask(label, "ping") {
        Ok(received) if received.kind == "OK" => Ok(()),
        Ok(received) => refuse(&format!("the reply to a ping was {received}")),
        Err(Ended::Unplayable(why) | Ended::Skipped(why)) => refuse(&why),
        Err(Ended::Deviation { actual, .. }) => {
            let is = |part: &str| actual.contains(part);
            // The length of the frame is "HTTP" or "<htm", or the frame is a TLS alert.
            if is("[48545450") || is("[3c68746d") {
                refuse("it speaks HTTP, not ZooKeeper's protocol")
            } else if is("[150301") || is("[150303") {
                refuse("it speaks TLS: give its port without TLS")
            } else if is("NOTREADONLY") {
                refuse("it is read-only: its ensemble has no quorum")
            } else if actual == "nothing" {
                refuse("no reply to the handshake within 10 s")
            } else if actual == "closed" {
                refuse(
                    "it closed the connection at the handshake: it does not serve, or is read-only",
                )
            } else if is("refused") {
                refuse("it refused a new session")
            } else {
                refuse(&format!("the reply to the handshake was {actual}"))
            }
        }
    }
}
