//! A free loopback port for a server in another process, which may stop and start again.

use std::io;
use std::net::SocketAddr;

/// A loopback port that no other process is assigned while this value lives, whether or not a server listens on it.
///
/// The server must set `SO_REUSEADDR`, as Java and most other servers do. Only on Linux can it then bind the port
/// beside the socket that reserves it; elsewhere the port is not reserved, and was only free a moment ago.
#[derive(Debug)]
pub struct KeptPort {
    address: SocketAddr,
    /// Bound, so that the port is reserved, but not listening, so that connections are refused.
    #[cfg(target_os = "linux")]
    _held: rustix::fd::OwnedFd,
}

impl KeptPort {
    /// Reserves a free port.
    #[cfg(target_os = "linux")]
    pub fn free() -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

        // A program started at the same time must not inherit the socket.
        let held =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::sockopt::set_socket_reuseaddr(&held, true)?;
        rustix::net::bind(&held, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = rustix::net::getsockname(&held)?.try_into()?;
        Ok(Self { address, _held: held })
    }

    /// Chooses a free port.
    #[cfg(not(target_os = "linux"))]
    pub fn free() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        Ok(Self { address: listener.local_addr()? })
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_server_may_listen_on_a_kept_port_again_and_again() {
        let port = KeptPort::free().unwrap();
        for _ in 0..3 {
            let refused = TcpStream::connect(port.address()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(port.address()).unwrap();
            TcpStream::connect(port.address()).unwrap();
            listener.accept().unwrap();
        }
    }

    #[test]
    fn a_kept_port_is_not_free() {
        let kept: Vec<_> = (0..500).map(|_| KeptPort::free().unwrap()).collect();
        let mut numbers: Vec<_> = kept.iter().map(|port| port.address().port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 500);
        for _ in 0..500 {
            let other = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
            assert!(!numbers.contains(&other.port()), "{other}");
        }
    }
}
