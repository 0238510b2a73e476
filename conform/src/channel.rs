//! Connections: real ones, and those of a recording.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use docent_protocol::frame;

/// The longest frame that is read.
const FRAME_LIMIT: usize = 16 << 20;

/// The longest reply to a four-letter word.
const TEXT_LIMIT: usize = 1 << 20;

/// The time for a connection to open.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

/// What a connection delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The payload of a frame.
    Frame(Vec<u8>),
    /// Everything up to the end of the connection.
    Text(Vec<u8>),
    /// The server has closed the connection.
    Closed,
    /// Nothing came in time.
    Nothing,
}

/// A connection.
pub(crate) trait Channel {
    /// Sends bytes. A connection that is closed takes them too: what it delivers says so.
    fn send(&mut self, bytes: &[u8]);

    /// Waits for a frame.
    fn receive(&mut self, until: Instant) -> Arrived;

    /// Waits for the end of the connection, and returns all that came before.
    fn receive_text(&mut self, until: Instant) -> Arrived;
}

/// Opens connections.
pub(crate) trait Network {
    /// Opens a connection to a server of the list.
    fn open(&mut self, server: usize) -> io::Result<Box<dyn Channel>>;
}

/// The servers that are tested.
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
    /// Bytes that came and are no whole frame yet.
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

    /// Reads more bytes; returns whether some came.
    fn fill(&mut self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || self.is_closed {
            return false;
        }
        let mut bytes = [0; 8192];
        // An error of the timeout itself ends the connection, as every other.
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
        // The end of the connection is what the script looks at.
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
                // No length of a frame: what came is all that there is to see.
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
