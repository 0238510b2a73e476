//! The thread of a blocking client, with the runtime of its tasks.
//!
//! The thread ends when the last owner of the client's `Runtime` is dropped. The driver is one of them, so the session
//! is closed by then. No guard or watcher joins the thread. Each client has its own: a listener that takes its time
//! delays the pings of one session only, and the session needs pings while no call is made.

use std::{
    convert::Infallible, fmt, io, pin::Pin, sync::Arc, sync::mpsc::sync_channel, task::Context,
    thread, time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::mpsc,
};

use crate::{
    Error, ErrorKind,
    config::Host,
    runtime::{LocalAddress, Runtime, Task, Timer, Transport},
};

/// A runtime on its own thread. The thread ends when this value is dropped: the client and its driver share it, so
/// the session is closed by then.
pub(super) struct OwnThread {
    handle: Handle,
    /// Never sends: its drop ends the thread.
    _alive: mpsc::Sender<Infallible>,
}

impl OwnThread {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let why = format_args!("no thread for the client: {error}");
            Error::refused(ErrorKind::InvalidConfig, why).caused_by(error)
        };
        let (alive, mut ended) = mpsc::channel(1);
        // The runtime is made in its thread: it must not be dropped in another runtime, even if this fails.
        let (started, handle) = sync_channel(1);
        thread::Builder::new()
            .name("docent".to_owned())
            .spawn(move || {
                let runtime = match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(Err(error))),
                };
                if started.send(Ok(runtime.handle().clone())).is_ok() {
                    runtime.block_on(ended.recv());
                }
            })
            .map_err(failed)?;
        let ended = |_| Err(io::Error::other("it ended at once"));
        let handle = handle.recv().unwrap_or_else(ended).map_err(failed)?;
        Ok(Self { handle, _alive: alive })
    }
}

impl Runtime for OwnThread {
    fn transport(&self) -> Arc<dyn Transport> {
        Runtime::transport(&self.handle)
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        Runtime::timer(&self.handle, after)
    }

    fn spawn(&self, task: Task) {
        Runtime::spawn(&self.handle, task);
    }

    fn yield_task(&self, cx: &mut Context<'_>) {
        Runtime::yield_task(&self.handle, cx);
    }

    fn local_address<'a>(&'a self, server: &'a Host) -> LocalAddress<'a> {
        Runtime::local_address(&self.handle, server)
    }
}

impl fmt::Debug for OwnThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnThread").finish_non_exhaustive()
    }
}
