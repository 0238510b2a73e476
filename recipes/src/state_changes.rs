//! The state of a connection, whose changes wake waiters.
//!
//! In Curator too, a change of the connection wakes the waiters: it notifies every watcher. A waiter calls
//! [`Client::state`](docent_session::Client::state) before the request whose result decides whether to wait, and looks again
//! after a change, and after the end of the client.

use docent_session::{ConnectionState, Latest};

/// The state of a connection.
pub(crate) type Connection = Latest<Option<ConnectionState>>;

/// Whether a state is a connection to a server of the quorum. A read-only server refuses creates, and its listings prove
/// nothing.
pub(crate) fn is_read_write(state: Option<ConnectionState>) -> bool {
    matches!(state, Some(ConnectionState::Connected | ConnectionState::Reconnected))
}
