//! Connections to servers.

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

/// A connection: a duplex byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The future of a connection.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'a>>;

/// Creates connections. [`Tcp`] is the default; tests connect to a server in the same process.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Connects to a server. The future is dropped when it takes longer than `within`, which is passed so that an
    /// implementation can divide the time among several addresses.
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a>;

    /// Whether connections are made without TLS. If so, the error of a server that closes the connection without a
    /// reply asks whether the port requires TLS. Default: false.
    fn is_plain_text(&self) -> bool {
        false
    }
}

/// The remedy, if the connection failed because client and server do not agree on TLS.
#[cfg(feature = "tls")]
pub(super) use tls::remedy as tls_remedy;

/// The remedy, if the connection failed because client and server do not agree on TLS.
#[cfg(not(feature = "tls"))]
pub(super) const fn tls_remedy(_: &io::Error) -> Option<&'static str> {
    None
}

/// Plain TCP with `TCP_NODELAY`.
///
/// Names are resolved for every attempt, because servers move (ZOOKEEPER-1506). All addresses of a name are tried, each
/// for its share of the time. The first one is chosen at random: an address that accepts connections but serves no
/// clients must not hide the others in every attempt.
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
                        // This is an optimisation; its failure does not matter.
                        let _ = stream.set_nodelay(true);
                        return Ok(Box::new(stream) as Box<dyn ByteStream>);
                    }
                    Ok(Err(error)) => last = error,
                    Err(_) => last = io::ErrorKind::TimedOut.into(),
                }
            }
            Err(last)
        })
    }

    fn is_plain_text(&self) -> bool {
        true
    }
}
