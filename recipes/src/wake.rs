//! What wakes a waiter besides its watch.

use docent_session::{Client, ConnectionState};

/// Any change of the connection's state, from the moment it was armed.
///
/// Curator's waiters are woken by it too: their watches hear of every change of the connection.
pub(crate) struct Wake(tokio::sync::watch::Receiver<Option<ConnectionState>>);

impl Wake {
    /// From now on. To be called before the request whose answer is then waited upon.
    pub(crate) fn arm(client: &Client) -> Self {
        let mut state = client.state();
        state.mark_unchanged();
        Self(state)
    }

    pub(crate) async fn changed(&mut self) {
        // An error means that the client has gone; then, too, there is reason to look.
        let _ = self.0.changed().await;
    }
}
