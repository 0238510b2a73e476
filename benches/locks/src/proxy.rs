//! A TCP proxy that counts round trips and bytes, and can lose a reply or stand still.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use crate::Result;

/// The counters and the faults of all connections of a proxy.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Bytes from clients that follow bytes from the server, or begin a connection: requests, or one write of several.
    flights: AtomicU64,
    from_clients: AtomicU64,
    from_servers: AtomicU64,
    /// Each connection that is older than this epoch loses its next reply.
    epoch: AtomicU64,
    stalled: AtomicBool,
}

/// A proxy in front of one server. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What passed through a proxy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) flights: u64,
    pub(crate) bytes: u64,
}

impl Proxy {
    pub(crate) fn start(target: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let proxy = Self { address: listener.local_addr()?, shared: Arc::default() };
        let (shared, target) = (Arc::clone(&proxy.shared), target.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Without a server the client's connection is closed.
                if let Ok(server) = TcpStream::connect(&target) {
                    let _ = connect(client, server, &shared);
                }
            }
        });
        Ok(proxy)
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn counted(&self) -> Counted {
        let bytes = self.shared.from_clients.load(SeqCst) + self.shared.from_servers.load(SeqCst);
        Counted { flights: self.shared.flights.load(SeqCst), bytes }
    }

    /// Each existing connection that sends a request from now on is cut in place of the reply to it.
    pub(crate) fn lose_next_replies(&self) {
        self.shared.epoch.fetch_add(1, SeqCst);
    }

    /// Forwards nothing from now on; connections stay open.
    pub(crate) fn stall(&self) {
        self.shared.stalled.store(true, SeqCst);
    }
}

/// One connection through the proxy.
#[derive(Debug)]
struct Connection {
    born: u64,
    /// Whether the last bytes came from the client.
    asked: AtomicBool,
    /// Whether the client has sent something since the replies were to be lost.
    doomed: AtomicBool,
}

fn connect(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let connection = Arc::new(Connection {
        born: shared.epoch.load(SeqCst),
        asked: AtomicBool::new(false),
        doomed: AtomicBool::new(false),
    });
    let (of_client, of_server) = (client.try_clone()?, server.try_clone()?);
    let (one, other) = (Arc::clone(shared), Arc::clone(&connection));
    thread::spawn(move || forward(&of_client, &of_server, &one, &other, true));
    let shared = Arc::clone(shared);
    thread::spawn(move || forward(&server, &client, &shared, &connection, false));
    Ok(())
}

fn forward(
    mut from: &TcpStream,
    mut to: &TcpStream,
    shared: &Shared,
    connection: &Connection,
    from_client: bool,
) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { break };
        while shared.stalled.load(SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        if from_client {
            if shared.epoch.load(SeqCst) > connection.born {
                connection.doomed.store(true, SeqCst);
            }
            if !connection.asked.swap(true, SeqCst) {
                shared.flights.fetch_add(1, SeqCst);
            }
            shared.from_clients.fetch_add(length as u64, SeqCst);
        } else {
            if connection.doomed.load(SeqCst) {
                break;
            }
            connection.asked.store(false, SeqCst);
            shared.from_servers.fetch_add(length as u64, SeqCst);
        }
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back each byte.
    fn echo() -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
                });
            }
        });
        address
    }

    #[test]
    fn round_trips_and_bytes_are_counted() {
        let proxy = Proxy::start(&echo()).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        for _ in 0..5 {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        let counted = proxy.counted();
        assert_eq!((counted.flights, counted.bytes), (5, 10));
    }

    #[test]
    fn a_lost_reply_cuts_the_connection_once() {
        let proxy = Proxy::start(&echo()).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        proxy.lose_next_replies();
        client.write_all(b"x").unwrap();
        assert!(client.read_exact(&mut [0]).is_err());
        let mut again = TcpStream::connect(proxy.address()).unwrap();
        again.write_all(b"x").unwrap();
        again.read_exact(&mut [0]).unwrap();
    }
}
