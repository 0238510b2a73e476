//! Connections to servers. Tests replace them by recordings.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use docent_protocol::frame;

/// The longest frame that is accepted.
const FRAME_LIMIT: usize = 16 << 20;

/// The length after which a reply to a four letter word is cut off.
const TEXT_LIMIT: usize = 1 << 20;

/// The time limit for opening a connection, and for a write.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// What has arrived on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The payload of a frame.
    Frame(Vec<u8>),
    /// All bytes up to the end of the connection.
    Text(Vec<u8>),
    /// The server has closed the connection.
    Closed,
    /// Nothing arrived in time.
    Nothing,
}

/// A connection.
pub(crate) trait Channel {
    /// Sends bytes. A closed connection accepts them too: it is noticed by a receive.
    fn send(&mut self, bytes: &[u8]);

    /// Waits for a frame.
    fn receive(&mut self, until: Instant) -> Arrived;

    /// Waits until the connection ends, and returns all bytes that arrived before.
    fn receive_text(&mut self, until: Instant) -> Arrived;
}

/// Opens connections.
pub(crate) trait Network {
    /// Opens a connection to a server, given by its index in the list.
    fn open(&mut self, server: usize) -> io::Result<Box<dyn Channel>>;
}

/// The servers under test.
#[derive(Debug, Clone)]
pub(crate) struct Servers(pub(crate) Vec<String>);

impl Network for Servers {
    fn open(&mut self, server: usize) -> io::Result<Box<dyn Channel>> {
        let address = self.0.get(server).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Socket::open(address)?))
    }
}

/// A TCP connection.
pub(crate) struct Socket {
    stream: TcpStream,
    /// Bytes that have arrived but are not a whole frame yet.
    buffer: Vec<u8>,
    is_closed: bool,
}

impl Socket {
    pub(crate) fn open(address: &str) -> io::Result<Self> {
        let mut last = io::ErrorKind::NotFound.into();
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, OPEN_LIMIT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_write_timeout(Some(OPEN_LIMIT))?;
                    return Ok(Self { stream, buffer: Vec::new(), is_closed: false });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Reads more bytes. Returns whether there were any.
    fn fill(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || self.is_closed {
            return false;
        }
        let mut bytes = [0; 8192];
        // An error of setting the timeout ends the connection, like every other error.
        let count =
            self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(&mut bytes));
        match count {
            Ok(count) if count > 0 => {
                self.buffer.extend_from_slice(bytes.get(..count).unwrap_or_default());
                true
            }
            Err(error) if is_timeout(&error) => false,
            Ok(_) | Err(_) => {
                self.is_closed = true;
                false
            }
        }
    }

    fn end(&self) -> Arrived {
        if self.is_closed { Arrived::Closed } else { Arrived::Nothing }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

impl Channel for Socket {
    fn send(&mut self, bytes: &[u8]) {
        // The script notices the end of the connection when it receives.
        let _ = self.stream.write_all(bytes);
    }

    fn receive(&mut self, until: Instant) -> Arrived {
        loop {
            match frame::split(&self.buffer, FRAME_LIMIT) {
                Ok(Some((payload, rest))) => {
                    let (payload, rest) = (payload.to_vec(), rest.to_vec());
                    self.buffer = rest;
                    return Arrived::Frame(payload);
                }
                // The length of the frame is invalid, so everything that has arrived is shown.
                Err(_) => return Arrived::Frame(std::mem::take(&mut self.buffer)),
                Ok(None) => {}
            }
            if !self.fill(until) && (self.is_closed || Instant::now() >= until) {
                return self.end();
            }
        }
    }

    fn receive_text(&mut self, until: Instant) -> Arrived {
        while !self.is_closed && Instant::now() < until && self.buffer.len() < TEXT_LIMIT {
            self.fill(until);
        }
        match (self.is_closed, self.buffer.is_empty()) {
            (true, true) => Arrived::Closed,
            (false, true) => Arrived::Nothing,
            _ => Arrived::Text(std::mem::take(&mut self.buffer)),
        }
    }
}
