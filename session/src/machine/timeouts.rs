//! All intervals derived from the session timeout.
//!
//! `T` is the requested timeout until the server has replied, then the granted one.
//!
//! | interval | value | why |
//! |---|---|---|
//! | connect | T / number of servers | limit of an attempt (connecting, the handshake and SASL together): a server that accepts connections and never replies must not use up the session (go-zk#79) |
//! | attempt | connect, but at most connection timeout / number of servers, and at most remaining session time / number of untried servers, the latter at least connect / 3 | every server is tried before a caller gives up, and before the session is lost: after a silence, a third of T remains |
//! | read | 2/3 T | without a reply or a part of one for this long, the connection is dead; the session may still exist |
//! | lease | T - margin after the send time of the last answered request | the session counts as lost, whatever arrives on its connection. The header of a reply is an answer, so a reply that takes long has this time from its request on |
//! | ping | 1/3 T, at most 10 s | one round trip may be lost and the next ping is still in time (ZOOKEEPER-1751) |
//! | expiration | T x percent / 100, at most T - margin | after this long without contact, the session counts as lost (CURATOR-405). Percent 0 is 100, as in Curator |
//! | pause | T/8, at least 10 ms | longest pause between attempts while there is a session, whatever [`Backoff`](crate::config::Backoff) allows; half of the remaining session time, if that is less |
//! | reattach | T/6, at least 100 ms | limit of a planned reconnect: for the replies to requests in flight, and again for the attempt |
//! | margin | 1/20 T, at least 10 ms | subtracted from the naive deadline, for clocks that run at different rates and the delay until the caller runs |
//!
//! Source: `ClientCnxn.SendThread.run`, `onConnected`; Curator's `ConnectionStateManager`.

use std::time::Duration;

use crate::planted;

/// The intervals of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// `T`: requested, or granted.
    pub(crate) session: Duration,
    /// The limit of an attempt: connecting, the handshake and SASL together.
    pub(crate) connect: Duration,
    /// The time without a reply after which the connection is closed.
    pub(crate) read: Duration,
    /// The time without a write after which a ping is sent.
    pub(crate) ping: Duration,
    /// The time after the last contact with a server at which a session without a connection counts as lost; at most
    /// `session` less `margin`. The last contact is the send time of the last answered request.
    pub(crate) expiration: Duration,
    /// The longest pause between two attempts to connect while there is a session.
    pub(crate) pause: Duration,
    /// The limit of a planned reconnect, which renews the proven bound of the session: once for the replies to the
    /// requests in flight, and once for the attempt to connect.
    pub(crate) reattach: Duration,
    /// How much earlier than the server the client considers the session expired.
    pub(crate) margin: Duration,
}

/// The largest timeout that the handshake can carry.
const MAX_SESSION: Duration = Duration::from_millis(i32::MAX as u64);

/// The longest interval between pings.
const MAX_PING: Duration = Duration::from_secs(10);

/// The least time for a connection to succeed.
const MIN_CONNECT: Duration = Duration::from_millis(100);

/// The least interval between attempts that fail immediately.
pub(crate) const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Scheduling alone can take this long.
const MIN_MARGIN: Duration = Duration::from_millis(10);

impl Timeouts {
    /// The intervals for a session timeout, a number of servers, and a percentage.
    #[must_use]
    pub(crate) fn new(session: Duration, servers: usize, expiration_percent: u8) -> Self {
        let session = session.min(MAX_SESSION);
        let margin = (session / 20).max(MIN_MARGIN);
        let percent = if expiration_percent == 0 { 100 } else { expiration_percent };
        let expiration = session * u32::from(percent) / 100;
        Self {
            session,
            connect: connect(session, servers),
            read: if planted::is("silence-unnoticed") { session } else { session * 2 / 3 },
            ping: if planted::is("pings-late") { session * 3 / 5 } else { session / 3 }
                .min(MAX_PING),
            expiration: expiration.min(session.saturating_sub(margin)),
            pause: (session / 8).max(MIN_PAUSE),
            reattach: (session / 6).max(MIN_CONNECT),
            margin,
        }
    }

    /// The limit of one attempt. `share` is one server's share of the connection timeout. `left` is one untried
    /// server's share of the remaining session time, if there is a session to lose.
    pub(crate) fn attempt(&self, share: Duration, left: Option<Duration>) -> Duration {
        let longest = self.connect.min(share);
        let attempt = left.map_or(longest, |left| left.max(self.connect / 3).min(longest));
        attempt.max(MIN_CONNECT)
    }

    /// Recomputes the connect interval for another number of servers.
    pub(crate) fn share_among(&mut self, servers: usize) {
        self.connect = connect(self.session, servers);
    }
}

fn connect(session: Duration, servers: usize) -> Duration {
    (session / u32::try_from(servers).unwrap_or(u32::MAX).max(1)).max(MIN_CONNECT)
}

/// How long a proof is valid on the local clock, if both clocks run at rates that differ by less than 1 %.
pub(crate) fn proven(timeout: Duration) -> Duration {
    timeout - timeout / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_table_for_six_seconds_and_three_servers() {
        let timeouts = Timeouts::new(ms(6000), 3, 100);
        assert_eq!(
            timeouts,
            Timeouts {
                session: ms(6000),
                connect: ms(2000),
                read: ms(4000),
                ping: ms(2000),
                expiration: ms(5700),
                pause: ms(750),
                reattach: ms(1000),
                margin: ms(300),
            }
        );
    }

    #[test]
    fn an_attempt_leaves_time_for_all_servers_before_the_caller_or_the_session_is_lost() {
        let attempt = |session, share, left: Option<u64>| {
            Timeouts::new(ms(session), 3, 100).attempt(ms(share), left.map(ms))
        };
        // The defaults: a session timeout of 60 s, and a connection timeout of 15 s shared by three servers.
        assert_eq!(attempt(60_000, 5000, None), ms(5000));
        assert_eq!(attempt(60_000, 5000, Some(20_000)), ms(5000));
        assert_eq!(attempt(60_000, 5000, Some(100)), ms(5000));
        // A short session: its own share; less when less remains; never less than a share of its last third.
        assert_eq!(attempt(6000, 5000, None), ms(2000));
        assert_eq!(attempt(6000, 5000, Some(6000)), ms(2000));
        assert_eq!(attempt(6000, 5000, Some(800)), ms(800));
        assert_eq!(attempt(6000, 5000, Some(0)).as_millis(), 666);
        assert_eq!(attempt(600, 0, Some(0)), MIN_CONNECT);
    }

    #[test]
    fn a_lost_ping_leaves_time_for_another() {
        for millis in [200, 1000, 40_000, 1_000_000] {
            let timeouts = Timeouts::new(ms(millis), 1, 100);
            assert!(timeouts.ping * 2 <= timeouts.read, "{millis}");
            assert!(timeouts.read + timeouts.ping <= timeouts.session, "{millis}");
        }
    }
}
