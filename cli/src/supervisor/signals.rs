//! The signals that `docent` handles.

use std::{
    collections::BTreeSet,
    future::{pending, poll_fn},
    io,
    task::Poll,
};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The signals that are forwarded to the command; before the command is started, they end the acquire.
const FORWARDED: [Signal; 6] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

/// The stream of received signals to forward.
pub(crate) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Starts to listen, except for signals that the parent process has set to be ignored (`nohup`, `trap '' INT`):
    /// the command inherits that.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        FORWARDED
            .into_iter()
            .filter(|signal| !ignored.contains(&signal.as_raw()))
            .map(|one| Ok((one, signal(SignalKind::from_raw(one.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
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

/// The stream of SIGTSTP, which would stop this process if it did not listen.
pub(super) struct TerminalStops(Option<Stream>);

impl TerminalStops {
    /// Starts to listen. If the signal is ignored, it does not: there is no shell with job control.
    pub(super) fn listen() -> Self {
        let number = Signal::TSTP.as_raw();
        if ignored().contains(&number) {
            return Self(None);
        }
        Self(signal(SignalKind::from_raw(number)).ok())
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no signal is lost.
    pub(super) async fn next(&mut self) {
        let received = match &mut self.0 {
            Some(stream) => stream.recv().await,
            None => None,
        };
        if received.is_none() {
            pending().await
        }
    }
}

/// Returns the numbers of the ignored signals, from `SigIgn` of proc(5); none on systems without it.
fn ignored() -> BTreeSet<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|number| mask & (1 << (number - 1)) != 0).collect()
}
