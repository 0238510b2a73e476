//! The renewal of the proven bound: what shows that no server can have expired the session.
//!
//! A server that a leader no longer hears answers pings, reads and `sync` for a while, and so does a leader without a
//! quorum. Their replies prove nothing. The reply to a committed write proves that the session existed, and with it one
//! of two things that reset its timeout at the leader:
//!
//! | rule | base of the bound | why |
//! |---|---|---|
//! | write at the leader | the write was sent | a leader resets the timeout for each request of its own clients. Only with [`direct_servers`](crate::Config::with_direct_servers), after a reply to `srvr` from the address of the connection |
//! | reconnect | the connect request of the connection was sent | every server asks the leader about a session that is resumed, and the leader resets its timeout |
//!
//! In both cases the leader was still the leader afterwards, because it committed a write that was sent later on the same
//! connection: a server closes all connections before it looks for another leader, so one connection belongs to one term
//! of one leader. A later leader gives each session its full timeout anew, and starts after that write. The bound
//! does not depend on the tick time or the sync limit, and holds if servers stall. A write through a follower moves
//! nothing by itself.
//!
//! A server matches the leader's answers about a session by its id. With two connect requests outstanding, the answer to
//! the first may complete the second. So the base is the send time of the earliest connect request without a reply. A
//! write forgets these: the server forwards it behind the connect request, and the leader handles both in that order.
//!
//! The reconnect is planned: nothing more is sent, the replies to requests in flight are awaited, for
//! [`reattach`](super::timeouts::Timeouts::reattach) at most, and queued requests go out on the next connection. If the replies do
//! not come in time, the connection is kept, and the bound with it. Watches are set again, as after any reconnect. The
//! state of the connection does not change unless the attempt fails.
//!
//! A Keeper resumes no session, and a planned reconnect loses it. The client learns that from the first reconnect, which
//! costs one session, and plans none from then on.
//!
//! Source: `LeaderZooKeeperServer`, `Learner.validateSession`, `LearnerHandler` (`REVALIDATE`),
//! `ZooKeeperServer.submitRequestNow`, `LeaderSessionTracker`.

use docent_protocol::{
    Decode as _,
    jute::Reader,
    multi::{MultiReply, MultiResult},
};

use super::{
    answers::Answers,
    connection::Role,
    identity::Identity,
    session::{Event, Session},
    timeouts::proven,
};
use crate::{planted, time::Instant};

/// A connection younger than this part of the session timeout is not replaced: several holds of one session that are
/// renewed together need one reconnect.
const YOUNG: u32 = 10;

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Prepares a [`submit_proof`](Self::submit_proof): replaces the connection by a new one to the same server, once the
    /// requests in flight are answered, unless it is young or is known to end at the leader. The requests queued from
    /// now on are sent on the new connection. If the replies take too long, the connection is kept.
    pub fn reattach(&mut self, now: Instant) {
        self.renewal.begin_use();
        self.probe_role();
        let is_young =
            now.duration_since(self.connection.attached_at()) < self.timeouts.session / YOUNG;
        let stays = !self.is_connected() || self.is_read_only() || self.is_closing();
        // A reconnect that can prove nothing is left out, and one that loses the session, as on a Keeper.
        let known = self.identity.as_ref();
        let is_provable =
            !self.operations.replaces_sessions() && known.is_some_and(Identity::is_provable);
        if !stays
            && is_provable
            && !is_young
            && !self.connection.is_migrating()
            && !self.is_at_leader()
            && !planted::is("proof-by-any-write")
        {
            self.connection.reattach(now + self.timeouts.reattach);
        }
    }

    /// The answer of a server to the question for its role: whether it leads the ensemble, or stands alone. `connection`
    /// is the number that came with the question.
    pub fn handle_role(&mut self, connection: u64, leads: bool) {
        // The connection existed before the question, and the next write shows that it outlived the answer.
        if connection == self.metrics.connections && self.is_connected() {
            self.connection.set_role(if leads { Role::Leader } else { Role::Other });
        }
    }

    /// Whether the connection is known to end at the leader, so that a write alone renews the proven bound.
    #[must_use]
    pub(crate) fn is_at_leader(&self) -> bool {
        self.connection.role() == Role::Leader
    }

    /// Asks for the role of the server, once for each connection.
    pub(super) fn probe_role(&mut self) {
        let number = self.metrics.connections;
        let is_wanted = self.config.direct_servers
            && self.renewal.needs_role(number)
            && self.connection.role() == Role::Unknown
            && !self.is_read_only();
        if is_wanted && let Some(host) = self.server().cloned() {
            self.renewal.note_probe(number);
            self.events.push_back(Event::ProbeRole(host, number));
        }
    }

    /// Records that a server accepted the session in reply to a connect request.
    pub(super) fn attached(&mut self, sent_at: Instant, is_resumed: bool) {
        if self.is_read_only() {
            return;
        }
        if !is_resumed {
            self.renewal.forget();
        }
        let base = self.renewal.note_reply(sent_at);
        self.connection.set_attached_at(base);
        if self.renewal.is_follower() {
            self.connection.set_role(Role::Other);
        }
    }

    /// Records the reply to a [`submit_proof`](Self::submit_proof). Only success is a proof.
    pub(super) fn note_proof(&mut self, reply: &[u8]) {
        let is_error = |result| matches!(result, MultiResult::Error(_));
        let Ok(results) = MultiReply::decode(&mut Reader::new(reply)) else { return };
        let has_none = results.iter().next().is_none();
        if self.is_read_only() || has_none || results.iter().any(is_error) {
            return;
        }
        self.renewal.note_write();
        let attached_at = self.connection.attached_at();
        let sent_at = self.requests.last_answered_sent_at().unwrap_or(attached_at);
        // The reply to an earlier write may have been delayed while its server lost the connection and was elected.
        let by_write = self.connection.was_at_leader(sent_at) || planted::is("proof-by-any-write");
        self.proof = Some(if by_write { sent_at.max(attached_at) } else { attached_at });
    }

    /// Moves the proven bound: the session was renewed at `base` or later.
    pub(super) fn prove(&mut self, now: Instant, base: Instant) {
        let lasts = proven(self.timeouts.session);
        let base = if planted::is("proof-from-receipt") { now } else { base };
        if let Some(identity) = self.identity.as_mut().filter(|known| known.is_provable())
            && identity.lease.prove(now, base + lasts)
        {
            identity.proven_base = base;
        }
    }
}
