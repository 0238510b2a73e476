//! Every interval that follows from the session timeout, in one table.
//!
//! `T` is the timeout asked for until the server has answered, then the one it granted.
//!
//! | interval | value | why |
//! |---|---|---|
//! | connect | T / number of servers | connecting *and* the handshake: a server that takes connections and says nothing must not use up the session (go-zk#79) |
//! | read | 2/3 T | hearing nothing for so long is a dead connection, not an ended session |
//! | ping | 1/3 T, at most 10 s | one round trip may be lost and the next ping still comes in time (ZOOKEEPER-1751) |
//! | expiration | T x percent / 100 | without a connection for so long, the session is taken as lost (CURATOR-405) |
//! | margin | 1/20 T, at least 10 ms | taken off the naive deadline for the clocks' different rates and the way to the caller |
//!
//! Source: `ClientCnxn.SendThread.run`, `onConnected`; Curator's `ConnectionStateManager`.

use std::time::Duration;

/// The intervals of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// `T`: asked for, or granted.
    pub session: Duration,
    /// For connecting and the handshake together.
    pub connect: Duration,
    /// How long nothing need be heard before the connection is given up.
    pub read: Duration,
    /// How long nothing may be sent before a ping is.
    pub ping: Duration,
    /// How long a session may be without a connection.
    pub expiration: Duration,
    /// How much earlier than the server one stops to believe in the session.
    pub margin: Duration,
}

/// The handshake has no room for more.
const MAX_SESSION: Duration = Duration::from_millis(i32::MAX as u64);

/// Pings are never further apart.
const MAX_PING: Duration = Duration::from_secs(10);

/// Below it, no connection could be made.
const MIN_CONNECT: Duration = Duration::from_millis(100);

/// Scheduling alone takes that long at times.
const MIN_MARGIN: Duration = Duration::from_millis(10);

impl Timeouts {
    /// For a session timeout, a number of servers, and a percentage.
    #[must_use]
    pub fn new(session: Duration, servers: usize, expiration_percent: u8) -> Self {
        let session = session.min(MAX_SESSION);
        Self {
            session,
            connect: connect(session, servers),
            read: session * 2 / 3,
            ping: (session / 3).min(MAX_PING),
            expiration: session * u32::from(expiration_percent) / 100,
            margin: (session / 20).max(MIN_MARGIN),
        }
    }

    /// The number of servers is another one.
    pub(crate) fn share_among(&mut self, servers: usize) {
        self.connect = connect(self.session, servers);
    }
}

fn connect(session: Duration, servers: usize) -> Duration {
    (session / u32::try_from(servers).unwrap_or(u32::MAX).max(1)).max(MIN_CONNECT)
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
                expiration: ms(6000),
                margin: ms(300),
            }
        );
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
