//! Wakes a waiter when the state of its connection changes.

use docent_session::{Client, ConnectionState};

/// Changes of the connection state since the subscription.
///
/// In Curator too, a change of the connection wakes the waiters: it notifies every watcher.
pub(crate) struct StateChanges(tokio::sync::watch::Receiver<Option<ConnectionState>>);

impl StateChanges {
    /// Subscribes to later changes. Call it before the request whose result decides whether to wait.
    pub(crate) fn subscribe(client: &Client) -> Self {
        let mut state = client.state();
        state.mark_unchanged();
        Self(state)
    }

    /// Waits for a change, or for the end of the client.
    pub(crate) async fn changed(&mut self) {
        // An error means that the client has ended: the waiter has to look at that, too.
        let _ = self.0.changed().await;
    }
}

/// Whether a state is a connection to a server of the quorum. A read-only server refuses creates, and its listings prove
/// nothing.
pub(crate) fn is_read_write(state: Option<ConnectionState>) -> bool {
    matches!(state, Some(ConnectionState::Connected | ConnectionState::Reconnected))
}
