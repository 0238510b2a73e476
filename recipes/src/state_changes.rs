//! The state of a connection, whose changes wake waiters.
//!
//! In Curator too, a change of the connection wakes the waiters: it notifies every watcher. A waiter calls
//! [`Client::state`](docent_session::Client::state) before the request whose result decides whether to wait, and looks again
//! after a change, and after the end of the client.

use docent_session::{Client, ConnectionState, Latest};

/// The state of a connection.
pub(crate) type Connection = Latest<Option<ConnectionState>>;

/// Whether a state is a connection to a server of the quorum. A read-only server refuses creates, and its listings prove
/// nothing.
pub(crate) fn is_read_write(state: Option<ConnectionState>) -> bool {
    matches!(state, Some(ConnectionState::Connected | ConnectionState::Reconnected))
}

/// The current session.
pub(crate) fn session_id(client: &Client) -> Option<i64> {
    client.session().map(|session| session.session_id())
}

/// Whether the current value is the one that a reader has seen, and is wanted.
pub(crate) fn is_unchanged<T: Clone + Send + Sync + 'static>(
    seen: &Latest<T>,
    is_wanted: impl FnOnce(T) -> bool,
) -> bool {
    // A clone: to look at the value is not to have seen a later one. It is looked at first, so that one which comes
    // meanwhile counts as a change.
    is_wanted(seen.clone().get()) && !seen.has_changed()
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    // Case (Found in docent itself): a node counted as seen on a connection that began while its owner looked at the state.
    #[test]
    fn a_value_that_comes_during_the_look_is_a_change() {
        let (sender, receiver) = watch::channel(1);
        let seen = Latest::new(receiver);
        assert!(is_unchanged(&seen, |value| value == 1));
        assert!(!is_unchanged(&seen, |value| value == 2));
        let comes = |value| {
            sender.send_replace(2);
            value == 1
        };
        assert!(!is_unchanged(&seen, comes));
        assert!(!is_unchanged(&seen, |value| value == 2), "the look before has not seen it");
    }
}
