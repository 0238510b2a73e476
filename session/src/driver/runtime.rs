//! Where a client runs: its clock, its timers, its tasks, its connections and its randomness.
//!
//! Clock, timers, tasks, connections and randomness of a client come from its [`Runtime`] alone, with two exceptions:
//! `Config::start` takes the current tokio runtime if none is set, and the default jitter of `ExponentialBackoffRetry`
//! (`with_seed` replaces it).

use std::{
    fmt,
    future::Future,
    net::IpAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    net::{UdpSocket, lookup_host},
    runtime::Handle,
};

use super::{
    clock::Clock,
    transport::{Tcp, Transport},
};
use crate::config::Host;

/// A task of a client, which its runtime polls to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work that may block, which runs once.
pub type BlockingWork = Box<dyn FnOnce() + Send>;

/// The future of a [local address](Runtime::local_address).
pub type LocalAddress<'a> = Pin<Box<dyn Future<Output = Option<IpAddr>> + Send + 'a>>;

/// A timer that can be set again. It is ready once its time has elapsed, as often as it is polled, until it is reset.
pub trait Timer: Future<Output = ()> + Send {
    /// Sets the timer to `after` from now. The task that polled it last need not be woken for the earlier time.
    fn reset(self: Pin<&mut Self>, after: Duration);
}

/// Everything that a client and its recipes take from their surroundings: one value, given to
/// [`Config::with_runtime`](crate::Config::with_runtime). The handle of a tokio runtime is one; with another
/// implementation, a client runs on any executor, or in a simulation in which time is virtual and chance is seeded.
///
/// The client spawns a task for its driver and short tasks for timers, probes and clean-up. Nothing else in it waits for
/// time or I/O: the futures that it returns are woken by these tasks, so callers can poll them on any executor.
///
/// The example `smol` runs a client and a mutex without tokio's runtime. Its file `runtime.rs` is the whole glue, 60 lines
/// to copy: timers, tasks, and sockets, whose traits of `futures-io` are adapted by `tokio-util` (feature `compat`).
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The clock of leases, timeouts and deadlines, unless [`Config::with_clock`](crate::Config::with_clock) sets
    /// another. Default: that of the system.
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// How connections are made, and names resolved, unless
    /// [`Config::with_transport`](crate::Config::with_transport) says otherwise.
    fn transport(&self) -> Arc<dyn Transport>;

    /// A timer that is ready after `after`, not earlier: it is trusted, and ends a wait of that time. It is created anywhere, and polled only by tasks of this runtime.
    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>>;

    /// Runs a task to its end. A wait with a timeout may have no end if its task is dropped while the driver's is not.
    /// This is called anywhere: on any thread, in destructors, inside and outside the runtime. When
    /// the runtime has ended, the task is dropped; when it ends, its tasks are dropped, in any order.
    fn spawn(&self, task: Task);

    /// Wakes the task that is being polled, once the other tasks and timers of this runtime have had their turn: the task
    /// has more input than it handles at once. Default: wakes it immediately, for executors that poll tasks in turn.
    fn yield_task(&self, cx: &mut Context<'_>) {
        cx.waker().wake_by_ref();
    }

    /// Runs work that may block for seconds, such as a request to a key server for SASL, without holding up the tasks of
    /// this runtime. Work that is dropped counts as failed. Default: on a new thread, which delays no end of a runtime
    /// or program.
    fn spawn_blocking(&self, work: BlockingWork) {
        // Without a thread, the work is dropped.
        let _ = std::thread::Builder::new().name("docent-blocking".to_owned()).spawn(work);
    }

    /// Fills `bytes` with random bytes, from which GUIDs, nonces, seeds and jitter are made. Different clients must get
    /// different bytes: two contenders with one GUID would take each other's node for their own. Default: the system's.
    ///
    /// Returns false if there is no randomness; the bytes are unspecified then.
    fn fill_random(&self, bytes: &mut [u8]) -> bool {
        getrandom::fill(bytes).is_ok()
    }

    /// The address of this host from which `server` is reached: the default data of a lock's node. Polled by tasks of
    /// this runtime. Default: none, and the data is empty.
    fn local_address<'a>(&'a self, server: &'a Host) -> LocalAddress<'a> {
        let _ = server;
        Box::pin(std::future::ready(None))
    }
}

/// The runtime of tokio; needs IO and time enabled.
impl Runtime for Handle {
    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(Tcp)
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        // Outside a runtime, creating a timer of tokio panics.
        let _entered = self.enter();
        Box::pin(TokioTimer(Box::pin(tokio::time::sleep(after))))
    }

    fn spawn(&self, task: Task) {
        drop(Self::spawn(self, task));
    }

    /// A task that wakes itself is polled 61 times before a runtime of one thread looks at its timers.
    fn yield_task(&self, cx: &mut Context<'_>) {
        // The first poll leaves the waker to the runtime.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }

    /// Sends nothing: the address is that of an unconnected socket for this destination.
    fn local_address<'a>(&'a self, server: &'a Host) -> LocalAddress<'a> {
        Box::pin(async move {
            let server = lookup_host((server.name.as_str(), server.port)).await.ok()?.next()?;
            let any: IpAddr = if server.is_ipv4() {
                std::net::Ipv4Addr::UNSPECIFIED.into()
            } else {
                std::net::Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((any, 0)).await.ok()?;
            socket.connect(server).await.ok()?;
            Some(socket.local_addr().ok()?.ip())
        })
    }
}

struct TokioTimer(Pin<Box<tokio::time::Sleep>>);

impl Future for TokioTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl Timer for TokioTimer {
    #[expect(clippy::disallowed_methods, reason = "tokio's timers are set on tokio's clock")]
    fn reset(mut self: Pin<&mut Self>, after: Duration) {
        self.0.as_mut().reset(tokio::time::Instant::now() + after);
    }
}
