//! A TCP port that this process keeps even while no socket listens on it.

use std::{io, net::SocketAddr, time::Duration};

use tokio::net::TcpListener;
#[cfg(target_os = "linux")]
use tokio::net::TcpSocket;

/// A port on which servers of this process listen, one after the other.
///
/// Without a socket that holds it, the kernel may give the port of a stopped server to any process that asks for a free
/// one, and the clients of the server would connect to that process.
#[derive(Debug)]
pub(crate) struct KeptPort {
    addr: SocketAddr,
    /// Bound, so that the port is not free, but not listening, so that connections are refused. Only Linux lets a
    /// second socket of the same process listen beside it.
    #[cfg(target_os = "linux")]
    _held: TcpSocket,
}

impl KeptPort {
    /// Takes a port, or a free one for port 0, and listens on it.
    pub(crate) async fn listen(addr: SocketAddr) -> io::Result<(Self, TcpListener)> {
        #[cfg(target_os = "linux")]
        let (held, addr) = hold(addr)?;
        let listener = TcpListener::bind(addr).await?;
        let port = Self {
            addr: listener.local_addr()?,
            #[cfg(target_os = "linux")]
            _held: held,
        };
        Ok((port, listener))
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Listens on the port after its listener was dropped. Retries while it is in use: where a port cannot be reused at
    /// once, old connections occupy it until their tasks notice that they were aborted.
    pub(crate) async fn listen_again(&self) -> io::Result<TcpListener> {
        const TRIES: u32 = 1000;
        let mut tries = 0;
        loop {
            tokio::task::yield_now().await;
            match TcpListener::bind(self.addr).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                bound => return bound,
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn hold(addr: SocketAddr) -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Listeners set it too: without it on both sockets, the second bind would be refused.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    let addr = socket.local_addr()?;
    Ok((socket, addr))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpStream;

    use super::*;

    // Case (Found in docent itself): a stopped test server gave its port away: another process was
    // given it as a free one, and the clients that waited for the server found that process.
    #[tokio::test]
    async fn a_port_is_kept_while_nothing_listens_on_it() {
        let (port, listener) = KeptPort::listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        drop(listener);
        let refused = TcpStream::connect(port.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // Like the kernel's search for a free port, this bind shares no port.
        let other = TcpSocket::new_v4().unwrap().bind(port.addr()).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::AddrInUse);
        let listener = port.listen_again().await.unwrap();
        let (accepted, connected) =
            tokio::join!(listener.accept(), TcpStream::connect(port.addr()));
        accepted.unwrap();
        connected.unwrap();
        let second = KeptPort::listen(port.addr()).await.unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn the_ports_of_the_free_search_differ() {
        let mut ports = Vec::new();
        for _ in 0..500 {
            let (port, _) = KeptPort::listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
            ports.push(port);
        }
        let mut numbers: Vec<_> = ports.iter().map(|port| port.addr().port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 500);
    }
}
