//! Curator's connection states, derived from the events of a session.

use std::fmt;

/// The state of a client's connection, as in Curator.
///
/// Source: Curator's `ConnectionState`, `ConnectionStateManager`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// Connected for the first time. Occurs once in the life of a client.
    Connected,
    /// Not connected. Ephemeral nodes and locks of the session may or may not still exist: stop side effects until the
    /// next state.
    Suspended,
    /// Connected again, with the same session or, after [`Lost`](Self::Lost), with a new one.
    Reconnected,
    /// The session has ended, and its ephemeral nodes are deleted now or soon. Either a server reported the expiry, or
    /// no server of the quorum was reached by the deadline of the [`SessionLease`](crate::session::SessionLease). The deadline
    /// counts from the last contact, as servers do. So everything held in the session ends before another client can
    /// acquire it, as far as the deadline is right.
    ///
    /// Curator's `ConnectionStateManager` counts a whole session timeout from SUSPENDED. SUSPENDED follows silence only
    /// after two thirds of the timeout, so Curator is up to two thirds of a timeout later than the servers.
    Lost,
    /// Connected to a read-only server, which is cut off from the quorum. This proves nothing about a session of the
    /// quorum: locks held in it end at the deadline of its lease, and then the state is [`Lost`](Self::Lost).
    ReadOnly,
}

impl ConnectionState {
    /// Whether requests can be answered in this state.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::Reconnected | Self::ReadOnly)
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connected => "CONNECTED",
            Self::Suspended => "SUSPENDED",
            Self::Reconnected => "RECONNECTED",
            Self::Lost => "LOST",
            Self::ReadOnly => "READ_ONLY",
        })
    }
}

/// Computes the next state; repeats of the current one are dropped.
#[derive(Debug, Default)]
pub(crate) struct ConnectionStates {
    current: Option<ConnectionState>,
    was_connected: bool,
}

impl ConnectionStates {
    pub(crate) const fn current(&self) -> Option<ConnectionState> {
        self.current
    }

    pub(crate) fn disconnected(&mut self) -> Option<ConnectionState> {
        // Lost is the worse state and stays until there is a connection.
        if self.current == Some(ConnectionState::Lost) {
            None
        } else {
            self.enter(ConnectionState::Suspended)
        }
    }

    pub(crate) fn expired(&mut self) -> Option<ConnectionState> {
        self.enter(ConnectionState::Lost)
    }

    pub(crate) fn connected(&mut self, read_only: bool) -> Option<ConnectionState> {
        let state = match (read_only, self.was_connected) {
            (true, _) => ConnectionState::ReadOnly,
            (false, false) => ConnectionState::Connected,
            (false, true) => ConnectionState::Reconnected,
        };
        self.was_connected |= !read_only;
        self.enter(state)
    }

    /// Clears the state.
    pub(crate) const fn close(&mut self) {
        self.current = None;
    }

    fn enter(&mut self, state: ConnectionState) -> Option<ConnectionState> {
        if self.current == Some(state) {
            return None;
        }
        self.current = Some(state);
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState::{Connected, Lost, ReadOnly, Reconnected, Suspended};

    #[test]
    fn connected_comes_once_and_repeats_are_dropped() {
        let mut states = ConnectionStates::default();
        let published = [
            states.connected(false),
            states.disconnected(),
            states.disconnected(),
            states.connected(false),
            states.disconnected(),
            states.expired(),
            states.disconnected(),
            states.connected(false),
        ];
        assert_eq!(
            published,
            [
                Some(Connected),
                Some(Suspended),
                None,
                Some(Reconnected),
                Some(Suspended),
                Some(Lost),
                None,
                Some(Reconnected)
            ]
        );
    }

    #[test]
    fn a_read_only_server_is_a_state_of_its_own() {
        let mut states = ConnectionStates::default();
        assert_eq!(states.connected(true), Some(ReadOnly));
        assert_eq!(states.disconnected(), Some(Suspended));
        assert_eq!(states.connected(false), Some(Connected));
    }
}
