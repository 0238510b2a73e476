//! Connections to servers.

use std::{fmt, future::Future, io, pin::Pin, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Error, config::Host};

#[cfg(feature = "dns-srv")]
mod dns_srv;
mod tcp;
#[cfg(feature = "tls-no-provider")]
mod tls;
pub use tcp::{Tcp, TcpOptions};
#[cfg(feature = "tls-no-provider")]
pub use tls::{Tls, TlsOptions};

/// A connection: a duplex byte stream.
///
/// It is shut down (`poll_shutdown`) only when its runtime ends while replies are still to come, and is then dropped. The
/// stream of [`Tcp`] reads on in that drop, for up to 100 ms: closing a socket before a reply has arrived resets the
/// connection, and the server may lose closeSession.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// The future of a connection.
pub type Connecting<'a> =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'a>>;

/// The future of a [lookup of servers](Transport::lookup_servers).
pub type ServerLookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<Host>>> + Send + 'a>>;

/// Creates connections. [`Tcp`] is the default; tests connect to a server in the same process.
///
/// # Example
///
/// Connections through a SOCKS5 proxy (RFC 1928), which resolves the names of the servers. For TLS through the proxy:
/// [`TlsOptions::with_transport`](crate::tls::TlsOptions::with_transport).
///
/// ```
/// # extern crate docent_session as docent;
/// use std::{io, time::Duration};
///
/// use docent::{Config, config::Host, runtime::{ByteStream, Connecting, Transport}};
/// use tokio::{
///     io::{AsyncReadExt as _, AsyncWriteExt as _},
///     net::TcpStream,
/// };
///
/// #[derive(Debug)]
/// struct Socks5 {
///     proxy: String,
/// }
///
/// impl Transport for Socks5 {
///     fn connect<'a>(&'a self, host: &'a Host, _within: Duration) -> Connecting<'a> {
///         Box::pin(async move {
///             let mut stream = TcpStream::connect(&self.proxy).await?;
///             stream.set_nodelay(true)?;
///             // Version 5, one method: no authentication.
///             stream.write_all(&[5, 1, 0]).await?;
///             let mut method = [0; 2];
///             stream.read_exact(&mut method).await?;
///             // Connect (1) to a name (3).
///             let length = u8::try_from(host.name.len()).map_err(io::Error::other)?;
///             let mut request = vec![5, 1, 0, 3, length];
///             request.extend_from_slice(host.name.as_bytes());
///             request.extend_from_slice(&host.port.to_be_bytes());
///             stream.write_all(&request).await?;
///             let mut reply = [0; 4];
///             stream.read_exact(&mut reply).await?;
///             let [5, 0, _, address_type] = reply else {
///                 return Err(io::Error::other(format!("refused by the proxy: {reply:?}")));
///             };
///             let length = match address_type {
///                 1 => 4,
///                 4 => 16,
///                 _ => usize::from(stream.read_u8().await?),
///             };
///             stream.read_exact(&mut vec![0; length + 2]).await?;
///             Ok(Box::new(stream) as Box<dyn ByteStream>)
///         })
///     }
/// }
///
/// # async fn proxy(listener: tokio::net::TcpListener) -> io::Result<()> {
/// #     let (mut client, _) = listener.accept().await?;
/// #     client.read_exact(&mut [0; 3]).await?;
/// #     client.write_all(&[5, 0]).await?;
/// #     let mut head = [0; 5];
/// #     client.read_exact(&mut head).await?;
/// #     let mut name = vec![0; usize::from(head[4])];
/// #     client.read_exact(&mut name).await?;
/// #     let port = client.read_u16().await?;
/// #     let name = String::from_utf8(name).map_err(io::Error::other)?;
/// #     let mut server = TcpStream::connect((name, port)).await?;
/// #     client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
/// #     tokio::io::copy_bidirectional(&mut client, &mut server).await?;
/// #     Ok(())
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?.to_string();
/// # tokio::spawn(proxy(listener));
/// # let server = docent_testing::TestingServer::start().await?;
/// # let connect_string = server.connect_string();
/// let proxy = Socks5 { proxy: address };
/// let client = Config::new(&connect_string)?.with_transport(proxy).connect().await?;
/// assert!(client.exists("/zookeeper").await?.is_some());
/// # Ok(())
/// # }
/// ```
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Connects to a server. The future is dropped when it takes longer than `within`, which is passed so that an
    /// implementation can divide the time among several addresses.
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a>;

    /// Looks up the servers of `dns-srv://name`: the targets and ports of its SRV records. An empty list is an error, too; of
    /// more than 64 servers, the first 64 by name are used.
    /// Default: with the feature `dns-srv`, asks the DNS servers that the system is configured with; needs a runtime of
    /// tokio. Without the feature, an error.
    ///
    /// Source: `DnsSrvHostProvider.DnsSrvResolver` (ZOOKEEPER-4956).
    fn lookup_servers<'a>(&'a self, name: &'a str) -> ServerLookup<'a> {
        #[cfg(feature = "dns-srv")]
        return Box::pin(dns_srv::lookup(name));
        #[cfg(not(feature = "dns-srv"))]
        {
            let _ = name;
            let why = "a lookup of servers requires the feature dns-srv of docent";
            Box::pin(std::future::ready(Err(io::Error::new(io::ErrorKind::Unsupported, why))))
        }
    }

    /// Checks that every option has an allowed value. `connect` and `start` do so. Default: all are allowed.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`; the text names the option, its value, and what is allowed.
    fn validate(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether connections are made by TLS; `None` if that is unknown, which is the default. Without TLS, the error of a
    /// server that closes the connection without a reply asks whether the port requires it. With TLS, an
    /// [`EnsembleTracker`](crate::EnsembleTracker) follows the addresses of the secure ports.
    fn is_tls(&self) -> Option<bool> {
        None
    }
}

#[cfg(feature = "tls-no-provider")]
pub(super) use tls::tls_failure;

/// The text of an error about TLS, and whether it passes.
#[cfg(not(feature = "tls-no-provider"))]
pub(super) const fn tls_failure(_: &io::Error) -> Option<(String, crate::error::TlsFailure)> {
    None
}
