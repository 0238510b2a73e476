//! TCP, the default transport, and its socket options.

use std::{
    fmt,
    io::{self, Read as _},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
    runtime::is_rt_shutdown_err,
    time::timeout,
};

use super::{super::clock::Clock, ByteStream, Connecting, Transport};
use crate::{Error, ErrorKind, config::Host};

/// How long the drop of a connection that was shut down waits for the server. The server need not reply in this time:
/// it only has to read the requests that it has received.
const LINGER: Duration = Duration::from_millis(100);

/// Plain TCP with `TCP_NODELAY`. [`TcpOptions`] has more options.
///
/// Names are resolved for every attempt, because servers move (ZOOKEEPER-1506). All addresses of a name are tried, each
/// for its share of the time. The first one is chosen at random: an address that accepts connections but serves no
/// clients must not hide the others in every attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Transport for Tcp {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        Box::pin(connect(TcpOptions::new(), host, within))
    }

    fn is_tls(&self) -> Option<bool> {
        Some(false)
    }
}

/// TCP as by [`Tcp`], with options of the socket.
///
/// The client finds out by itself that a connection is dead: it sends pings, and expects a reply within two thirds of the
/// session timeout. The options are for networks that need more: a firewall that forgets connections between two pings
/// ([`with_keepalive`](Self::with_keepalive)), or a long session whose requests should fail earlier
/// ([`with_user_timeout`](Self::with_user_timeout)).
///
/// ```
/// # extern crate docent_session as docent;
/// use std::time::Duration;
/// use docent::{Config, runtime::TcpOptions};
///
/// let tcp = TcpOptions::new()
///     .with_keepalive(Duration::from_secs(15), Duration::from_secs(5), 3)
///     .with_user_timeout(Duration::from_secs(10));
/// let config = Config::new("zk1:2181,zk2:2181")?.with_transport(tcp);
/// # let _ = config;
/// # Ok::<(), docent::Error>(())
/// ```
///
/// The setters do not fail: `connect` and `start` refuse an option with a value that is not allowed.
///
/// For TLS: [`TlsOptions::with_transport`](crate::tls::TlsOptions::with_transport).
#[derive(Debug, Clone, Default)]
pub struct TcpOptions {
    keepalive: Option<Keepalive>,
    user_timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Keepalive {
    idle: Duration,
    interval: Duration,
    probes: u32,
}

impl Keepalive {
    fn validate(&self) -> Result<(), Error> {
        let seconds = Duration::from_secs(1)..Duration::from_secs(32_768);
        for (name, value) in [("idle", self.idle), ("interval", self.interval)] {
            if !seconds.contains(&value) {
                return Err(refused(format_args!(
                    "the keepalive {name} is {value:?}: expected 1 s to 32767 s"
                )));
            }
        }
        let probes = self.probes;
        if !(1..=127).contains(&probes) {
            return Err(refused(format_args!("keepalive probes are {probes}: expected 1 to 127")));
        }
        Ok(())
    }

    fn of_socket(&self) -> TcpKeepalive {
        let keepalive = TcpKeepalive::new().with_time(self.idle);
        #[cfg(any(unix, windows))]
        let keepalive = keepalive.with_interval(self.interval).with_retries(self.probes);
        keepalive
    }
}

impl TcpOptions {
    /// The options of [`Tcp`].
    #[must_use]
    pub const fn new() -> Self {
        Self { keepalive: None, user_timeout: None }
    }

    /// Sends probes (`SO_KEEPALIVE`) when nothing was received for `idle`: one each `interval`. The connection ends after
    /// `probes` of them without a reply. The operating system counts whole seconds, and a fraction is dropped; systems
    /// other than Unix and Windows choose the intervals.
    ///
    /// An `idle` or `interval` that is not within 1 s to 32,767 s is not allowed, nor are `probes` that are not within 1 to
    /// 127: the limits of Linux, which would refuse them for each connection.
    ///
    /// Source: `MAX_TCP_KEEPIDLE`, `MAX_TCP_KEEPINTVL` and `MAX_TCP_KEEPCNT` of Linux.
    #[must_use]
    pub const fn with_keepalive(mut self, idle: Duration, interval: Duration, probes: u32) -> Self {
        self.keepalive = Some(Keepalive { idle, interval, probes });
        self
    }

    /// Ends the connection when sent bytes are not acknowledged within this time (`TCP_USER_TIMEOUT`, in milliseconds,
    /// and a fraction is dropped). On Linux and Android; other systems do not have it, and ignore it here.
    ///
    /// A time that is not within 1 ms to 2,147,483,647 ms (24 days), the largest that Linux accepts, is not allowed.
    #[must_use]
    pub const fn with_user_timeout(mut self, timeout: Duration) -> Self {
        self.user_timeout = Some(timeout);
        self
    }

    fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        // This is an optimisation; its failure does not matter.
        let _ = stream.set_nodelay(true);
        let socket = SockRef::from(stream);
        if let Some(keepalive) = &self.keepalive {
            socket.set_tcp_keepalive(&keepalive.of_socket())?;
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if self.user_timeout.is_some() {
            socket.set_tcp_user_timeout(self.user_timeout)?;
        }
        Ok(())
    }
}

fn refused(why: impl fmt::Display) -> Error {
    Error::refused(ErrorKind::InvalidConfig, format_args!("TCP: {why}"))
}

impl Transport for TcpOptions {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        Box::pin(connect(self.clone(), host, within))
    }

    fn validate(&self) -> Result<(), Error> {
        if let Some(keepalive) = &self.keepalive {
            keepalive.validate()?;
        }
        let allowed = 1..=i32::MAX.unsigned_abs().into();
        match self.user_timeout {
            Some(timeout) if !allowed.contains(&timeout.as_millis()) => Err(refused(format_args!(
                "the user timeout is {timeout:?}: expected 1 ms to {} ms",
                i32::MAX
            ))),
            _ => Ok(()),
        }
    }

    fn is_tls(&self) -> Option<bool> {
        Some(false)
    }
}

async fn connect(
    options: TcpOptions,
    host: &Host,
    within: Duration,
) -> io::Result<Box<dyn ByteStream>> {
    let mut addresses: Vec<_> = lookup_host((host.name.as_str(), host.port)).await?.collect();
    let count = u64::try_from(addresses.len()).unwrap_or(1).max(1);
    let first = getrandom::u64().unwrap_or_default() % count;
    addresses.rotate_left(usize::try_from(first).unwrap_or(0));
    let share = within / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                options.apply(&stream)?;
                return Ok(Box::new(TcpConnection { stream, is_shut_down: false }));
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

/// A TCP connection. Once it is shut down, its drop waits until the server has closed its side, up to [`LINGER`].
#[derive(Debug)]
struct TcpConnection {
    stream: TcpStream,
    is_shut_down: bool,
}

impl AsyncRead for TcpConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TcpConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            // The socket outlives its runtime.
            Poll::Ready(Err(error)) if is_rt_shutdown_err(&error) => {
                Poll::Ready(self.stream.try_write(bytes))
            }
            poll => poll,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(cx, slices) {
            // As above: TLS writes this way.
            Poll::Ready(Err(error)) if is_rt_shutdown_err(&error) => {
                Poll::Ready(self.stream.try_write_vectored(slices))
            }
            poll => poll,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut_down = true;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        if self.is_shut_down {
            // After an error there is nothing to wait for.
            let _ = self.linger();
        }
    }
}

impl TcpConnection {
    /// Reads to the end of the stream without the runtime, which may have ended.
    fn linger(&self) -> io::Result<()> {
        let socket = SockRef::from(&self.stream);
        socket.set_nonblocking(false)?;
        // The socket waits on the clock of the system.
        let clock = Clock::system();
        let until = clock.now() + LINGER;
        let mut buffer = [0; 4096];
        loop {
            let rest = until.duration_since(clock.now());
            // A timeout below the resolution of the socket would be none.
            if rest < Duration::from_millis(1) {
                return Ok(());
            }
            socket.set_read_timeout(Some(rest))?;
            if (&*socket).read(&mut buffer)? == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    /// Read back from the socket.
    #[tokio::test]
    async fn the_options_are_those_of_the_socket() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let seconds = Duration::from_secs;
        let socket = SockRef::from(&stream);
        TcpOptions::new().apply(&stream).unwrap();
        assert!(socket.tcp_nodelay().unwrap() && !socket.keepalive().unwrap());
        let options = TcpOptions::new().with_keepalive(seconds(15), seconds(5), 3);
        options.with_user_timeout(seconds(10)).apply(&stream).unwrap();
        assert!(socket.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            let keepalive =
                (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
            assert_eq!(keepalive, (seconds(15), seconds(5)));
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(seconds(10)));
        }
    }

    /// A client that outlives its runtime sends closeSession; TLS writes it vectored.
    // Case (Found in docent itself): over TLS, the session of a client that outlived its runtime
    // stayed: a write in parts failed behind the runtime.
    #[test]
    fn a_connection_can_be_written_after_its_runtime_has_ended() {
        use crate::driver::last_connection::at_once;

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let host =
            Host { name: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let within = Duration::from_secs(5);
        let mut stream = runtime.block_on(async { Tcp.connect(&host, within).await }).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        drop(runtime);
        let written = at_once(|cx| Pin::new(&mut stream).poll_write(cx, b"one"));
        assert!(matches!(written, Some(Poll::Ready(Ok(3)))), "{written:?}");
        let slices = [io::IoSlice::new(b"two")];
        let written = at_once(|cx| Pin::new(&mut stream).poll_write_vectored(cx, &slices));
        assert!(matches!(written, Some(Poll::Ready(Ok(3)))), "{written:?}");
        drop(stream);
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "onetwo");
    }

    /// The limits are those of the system.
    // Case (Found in docent itself): a TCP option that the system refuses was accepted, failed each
    // attempt, and was reported without its name when the connection timeout had passed.
    #[tokio::test]
    async fn an_option_that_the_system_refuses_is_refused_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let new = TcpOptions::new;
        let (second, max) = (Duration::from_secs(1), Duration::from_secs(32_767));
        for (options, name) in [
            (new().with_keepalive(second / 2, second, 3), "keepalive idle is 500ms"),
            (new().with_keepalive(second, max + second, 3), "keepalive interval is 32768s"),
            (new().with_keepalive(Duration::MAX, second, 3), "keepalive idle"),
            (new().with_keepalive(second, second, 0), "keepalive probes are 0"),
            (new().with_keepalive(second, second, 128), "keepalive probes are 128"),
            (new().with_user_timeout(Duration::ZERO), "user timeout is 0ns"),
            (new().with_user_timeout(Duration::MAX), "user timeout"),
        ] {
            let config = Config::new("127.0.0.1:2181").unwrap().with_transport(options);
            let error = config.connect().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(name), "{error}");
        }
        let longest = Duration::from_millis(i32::MAX.unsigned_abs().into());
        for (time, probes, user) in [(second, 1, longest), (max, 127, Duration::from_millis(1))] {
            let options = new().with_keepalive(time, time, probes).with_user_timeout(user);
            options.validate().unwrap();
            options.apply(&stream).unwrap();
        }
    }
}
