//! The signals that end a program, or tell it something.

use std::{
    collections::BTreeSet,
    future::{pending, poll_fn},
    io,
    task::Poll,
};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What is passed on to the command, and ends the waiting before it.
const PASSED_ON: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// Those that have come.
pub(super) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Listens from now on, but not to what our caller has had ignored (`nohup`, `trap '' INT`): the command
    /// ignores that too.
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        PASSED_ON
            .into_iter()
            .filter(|signal| !ignored.contains(&signal.as_raw()))
            .map(|one| Ok((one, signal(SignalKind::from_raw(one.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// SIGTSTP, which stops us unless we listen.
pub(super) struct Stops(Option<Stream>);

impl Stops {
    /// Listens from now on, unless that signal is ignored: then there is no shell to take over.
    pub(super) fn listen() -> Self {
        let number = Signal::TSTP.as_raw();
        if ignored().contains(&number) {
            return Self(None);
        }
        Self(signal(SignalKind::from_raw(number)).ok())
    }

    /// The next one.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(super) async fn next(&mut self) {
        let came = match &mut self.0 {
            Some(stream) => stream.recv().await,
            None => None,
        };
        if came.is_none() {
            pending().await
        }
    }
}

/// The numbers of the ignored signals, where the system tells: see proc(5).
fn ignored() -> BTreeSet<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|number| mask & (1 << (number - 1)) != 0).collect()
}
