//! Signals that end a run: its nodes and processes are removed before the program ends.

#[cfg(unix)]
use crate::{exit, supervisor::Signals};

/// The signals of this program. Systems other than Unix have none, and the program ends at once.
pub(super) struct Interrupts {
    #[cfg(unix)]
    signals: Signals,
}

impl Interrupts {
    /// Starts to listen; within a runtime.
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signals: Signals::listen()?,
        })
    }

    /// Waits for a signal, and returns the exit code that says so.
    pub(super) async fn next(&mut self) -> u8 {
        #[cfg(unix)]
        return exit::from_signal(self.signals.next().await.as_raw());
        #[cfg(not(unix))]
        std::future::pending().await
    }
}
