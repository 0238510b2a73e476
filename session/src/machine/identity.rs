//! The identity of a session.

use std::{fmt, sync::Arc, time::Duration};

use super::{lease::SessionLease, operations::Operations};
use crate::{SessionToken, time::Instant};

/// The identity of a session, and the data of its lease.
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) password: Box<[u8]>,
    pub(super) lease: Arc<SessionLease>,
    /// The base of the proven bound: the send time of the request that created the session, or of the one that renewed the
    /// bound last.
    pub(super) proven_base: Instant,
    /// The shortest timeout that a server has granted it. A new leader returns to the timeout of the creation, and a server
    /// that the client has left reports it to the leader once more, with the timeout granted there.
    pub(super) shortest_timeout: Duration,
    /// Whether this client has created it, and knows the timeout of its creation.
    pub(super) created_here: bool,
    /// The timeout requested at creation, and again at each re-attach.
    pub(super) asked_timeout: Duration,
    /// Whether a server has accepted it from this client. A resumed session is unconfirmed until then.
    pub(super) accepted: bool,
    /// Whether a read-only server created it, so that no other server knows it.
    pub(super) local: bool,
}

impl Identity {
    pub(super) fn handed_in(
        session: &SessionToken,
        asked_timeout: Duration,
        operations: &Arc<Operations>,
    ) -> Self {
        Self {
            id: session.session_id(),
            password: session.password().into(),
            // The time of its last renewal is unknown, and nothing about its creation can be proved.
            lease: SessionLease::new(
                session.session_id(),
                Instant::ZERO,
                Instant::ZERO,
                operations,
            ),
            proven_base: Instant::ZERO,
            shortest_timeout: Duration::MAX,
            created_here: false,
            asked_timeout,
            accepted: false,
            local: false,
        }
    }

    /// Whether the proven bound can be renewed: the timeout of its creation, to which a later leader returns, is known,
    /// and so is the session to the quorum.
    pub(super) const fn is_provable(&self) -> bool {
        !self.local && self.created_here
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("id", &format_args!("{:#x}", self.id))
            .finish_non_exhaustive()
    }
}
