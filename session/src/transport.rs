//! How a connection to a server is made.

use std::{fmt, future::Future, io, pin::Pin, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};

use crate::Host;

#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsOptions};

/// A connection: bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection in the making.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Makes connections. [`Tcp`] is the usual one; tests connect to a server in the same process.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Connects to a server. Dropped when it takes longer than `within`, which is there so that the time
    /// can be shared out among several addresses.
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a>;
}

/// Plain TCP, `TCP_NODELAY`.
///
/// Names are looked up at every attempt, for servers move (ZOOKEEPER-1506), and all addresses of a name
/// are tried, each for its share of the time. Which one is first is left to chance: behind one that takes
/// connections and serves nobody there may be one that does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Transport for Tcp {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let mut addresses: Vec<_> =
                lookup_host((host.name.as_str(), host.port)).await?.collect();
            let count = u64::try_from(addresses.len()).unwrap_or(1).max(1);
            let first = getrandom::u64().unwrap_or_default() % count;
            addresses.rotate_left(usize::try_from(first).unwrap_or(0));
            let share = within / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in addresses {
                match timeout(share, TcpStream::connect(address)).await {
                    Ok(Ok(stream)) => {
                        // An optimisation, no reason to leave a server that is there.
                        let _ = stream.set_nodelay(true);
                        return Ok(Box::new(stream) as Box<dyn Stream>);
                    }
                    Ok(Err(error)) => last = error,
                    Err(_) => last = io::ErrorKind::TimedOut.into(),
                }
            }
            Err(last)
        })
    }
}
