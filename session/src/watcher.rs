//! What applications hold while they watch a node.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use docent_protocol::{EventType, KeeperState};
use tokio::sync::Notify;

use crate::{WatchedEvent, chroot::Chroot, driver::Shared};

/// Where the event of one watch is put.
#[derive(Debug)]
pub(crate) struct Slot {
    event: Mutex<Option<WatchedEvent>>,
    filled: Notify,
}

/// The side of a watch that the session keeps.
#[derive(Debug, Clone)]
pub(crate) struct Notifier(Arc<Slot>);

impl PartialEq for Notifier {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Slot { event: Mutex::new(None), filled: Notify::new() }))
    }

    pub(crate) fn notify(&self, event: WatchedEvent) {
        *self.0.event.lock().unwrap_or_else(PoisonError::into_inner) = Some(event);
        self.0.filled.notify_one();
    }
}

/// A watch on a node: one event, once.
///
/// It survives reconnects: the next server is told of it, and what changed meanwhile comes as an event. It
/// ends with the session, with an event of type [`EventType::None`].
///
/// Dropping it forgets it here; the server still sends its event, which is then ignored.
pub struct Watcher {
    notifier: Notifier,
    /// The server's.
    path: Arc<str>,
    chroot: Chroot,
    session: Weak<Shared>,
    /// Whether the reply of its request was seen, so that it stands in the watch table or its event came.
    confirmed: bool,
}

impl Watcher {
    pub(crate) const fn new(
        notifier: Notifier,
        path: Arc<str>,
        chroot: Chroot,
        session: Weak<Shared>,
    ) -> Self {
        Self { notifier, path, chroot, session, confirmed: false }
    }

    /// The request was answered.
    pub(crate) const fn confirm(mut self) -> Self {
        self.confirmed = true;
        self
    }

    /// The event, if it has come and was not taken yet.
    pub fn try_changed(&mut self) -> Option<WatchedEvent> {
        let mut event =
            self.notifier.0.event.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        event.path = self.chroot.strip(&event.path).into();
        Some(event)
    }

    /// The node, as the client calls it.
    #[must_use]
    pub fn path(&self) -> &str {
        self.chroot.strip(&self.path)
    }

    /// Waits for the event.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. Once the event was returned, another call waits for ever but for
    /// the end of the client.
    pub async fn changed(&mut self) -> WatchedEvent {
        loop {
            let taken = self.notifier.0.event.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(mut event) = taken {
                event.path = self.chroot.strip(&event.path).into();
                return event;
            }
            if self.session.strong_count() == 0 {
                return WatchedEvent {
                    event_type: EventType::None,
                    state: KeeperState::Closed,
                    path: self.chroot.strip(&self.path).into(),
                    zxid: None,
                };
            }
            self.notifier.0.filled.notified().await;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.forget_watch(&self.path, &self.notifier, self.confirmed);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("path", &self.path).finish_non_exhaustive()
    }
}
