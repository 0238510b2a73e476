//! The renewal of the proven bound of the session.

use std::future::Future;

use tracing::debug;

use super::client::Client;
use crate::{Error, runtime::Instant};

impl Client {
    /// Renews the proven bound of the session ([`SessionLease::proven_until`](crate::session::SessionLease::proven_until)) by a
    /// write that changes nothing: a transaction that checks that `path` exists. Returns the bound, which has moved unless
    /// the reconnect below was given up, or left out because it can prove nothing: for a session of another process, and
    /// once a server (a ClickHouse Keeper) has replaced a session instead of resuming it.
    ///
    /// The guards and leaderships of recipes do this by themselves, if their options say so. A bound that has expired
    /// moves too, but not for the [claims](crate::session::SessionClaim) made before.
    ///
    /// # Requests and cost
    ///
    /// A write proves that the session was renewed only on a connection that was made for that, or to the leader:
    ///
    /// * By default the client first **reconnects to the same server, with the same session**, unless its connection is
    ///   younger than a tenth of the session timeout. That costs a TCP connection (and a TLS handshake, SASL and
    ///   credentials, if they are used), the handshake, setWatches for the watches of the client, and for all other
    ///   callers a pause of a few round trips. No request is lost or reordered: requests in flight are answered first, and
    ///   those queued meanwhile are sent on the next connection. If the replies take longer than a sixth of the session
    ///   timeout, the reconnect is given up, and the bound does not move. A persistent watch reports a
    ///   [resync](crate::WatchedEvent::is_resync), after which a cache reads its nodes again: give a large cache a separate
    ///   client. [`state`](Self::state) does not change, unless the attempt fails. The bound then counts from the
    ///   time when the connect request was sent.
    /// * With [`direct_servers`](crate::Config::with_direct_servers), **at the leader** or a stand-alone server, the
    ///   write is enough. The bound then counts from the time when the write was sent.
    ///
    /// The write is a multi (14) with one check (13). The ensemble commits it as any write.
    ///
    /// # Errors
    ///
    /// `NoNode` when `path` does not exist, and those of [every call](Self#errors) except `TooManyRequests`: like
    /// [`cleanup`](Self::cleanup), the write is accepted above the limits, so that a full queue ends no hold. The bound has not
    /// moved then.
    ///
    /// # Cancel safety
    ///
    /// The write is queued by the call itself. Dropping the future discards the reply; the bound moves all the same.
    pub fn renew_proof(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Instant, Error>> + Send + use<> {
        let response = self.transaction().check(path, None).commit_as_proof();
        let client = self.clone();
        async move {
            response.await?;
            let until = client.session().map_or(Instant::ZERO, |lease| lease.proven_until());
            let at_leader = client.handle.shared.with(|machine| machine.is_at_leader());
            let left = until.duration_since(client.now());
            let rule = if at_leader { "write at the leader" } else { "reconnect" };
            debug!(rule, ?left, "proven bound");
            Ok(until)
        }
    }
}
