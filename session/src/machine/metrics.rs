//! The counters of a session.

use std::time::Duration;

use super::connect_string::Host;

/// Counters of a client since its start, and its current state. A snapshot; cheap enough to take every second.
///
/// # The crate `metrics`
///
/// With the feature `metrics`, each client records these values with the crate `metrics`, whose recorder the program
/// chooses, once a second while there is traffic, and with each ping. The values of several clients add up. There are no
/// labels, except for the server.
///
/// | field | name | kind |
/// |---|---|---|
/// | `requests` | `docent_requests_total` | counter |
/// | `replies` | `docent_replies_total` | counter |
/// | `error_replies` | `docent_error_replies_total` | counter |
/// | `refused` | `docent_refused_requests_total` | counter |
/// | `timed_out` | `docent_timed_out_requests_total` | counter |
/// | `events` | `docent_watch_events_total` | counter |
/// | `pings` | `docent_pings_total` | counter |
/// | `attempts` | `docent_connection_attempts_total` | counter |
/// | `connections` | `docent_connections_total` | counter |
/// | `sessions` | `docent_sessions_total` | counter |
/// | `moves` | `docent_moves_total` | counter |
/// | `failed_moves` | `docent_failed_moves_total` | counter |
/// | `bytes_sent` | `docent_sent_bytes_total` | counter |
/// | `bytes_received` | `docent_received_bytes_total` | counter |
/// | `pending` | `docent_pending_requests` | gauge |
/// | `in_flight` | `docent_requests_in_flight` | gauge |
/// | `pending_bytes` | `docent_pending_bytes` | gauge |
/// | `outgoing_bytes` | `docent_outgoing_bytes` | gauge |
/// | `watches` | `docent_watches` | gauge |
/// | `server` | `docent_connected_clients`, with the label `server` | gauge |
/// | `latency` | `docent_request_latency_seconds` | histogram, of the middles of the buckets of [`Latency`] |
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Requests queued, including the client's own requests for its watches; excluding pings and handshakes.
    pub requests: u64,
    /// Replies to them, with or without an error.
    pub replies: u64,
    /// Replies with an error.
    pub error_replies: u64,
    /// Requests refused by the client: too large, too many, or the session is closed.
    pub refused: u64,
    /// Requests without a reply within the request timeout.
    pub timed_out: u64,
    /// Watch events from servers.
    pub events: u64,
    /// Pings sent.
    pub pings: u64,
    /// Attempts to connect.
    pub attempts: u64,
    /// Sessions accepted by a server: the first connection and each reconnect.
    pub connections: u64,
    /// Sessions created: one, and one more for each lost session.
    pub sessions: u64,
    /// Moves to a better server, by [`with_failback`](crate::Config::with_failback) or on request.
    pub moves: u64,
    /// Such moves that were given up: the requests in flight had no reply in time, or the server was not reached.
    pub failed_moves: u64,
    /// Bytes written to sockets.
    pub bytes_sent: u64,
    /// Bytes of complete frames received.
    pub bytes_received: u64,
    /// Pending requests now, sent or not.
    pub pending: usize,
    /// Requests in flight now: the sent ones of the pending requests.
    pub in_flight: usize,
    /// The size of all pending requests, in bytes.
    pub pending_bytes: usize,
    /// Bytes not written to a socket yet.
    pub outgoing_bytes: usize,
    /// Watches in the table now.
    pub watches: usize,
    /// The server that the client is connected to.
    pub server: Option<Host>,
    /// The time from the write of a request to the socket until its reply was read.
    pub latency: Latency,
}

/// The number of buckets: the last one begins at 2^30 microseconds, 18 minutes.
const BUCKETS: usize = 32;

/// A histogram of durations, in powers of two of microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    buckets: [u64; BUCKETS],
    count: u64,
    sum: Duration,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, sum: Duration::ZERO }
    }
}

impl Latency {
    /// Records `times` equal durations.
    pub(crate) fn record(&mut self, duration: Duration, times: u32) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        // Bucket 0 is below one microsecond; bucket n is from 2^(n-1) to below 2^n microseconds.
        let index = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(bucket) = self.buckets.get_mut(index.min(BUCKETS - 1)) {
            *bucket += u64::from(times);
        }
        self.count += u64::from(times);
        self.sum = self.sum.saturating_add(duration.saturating_mul(times));
    }

    /// The number of recorded durations.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all recorded durations.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// For each bucket, its upper bound (exclusive), and the number of durations in it. The last bucket is unbounded.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(index, count)| (end(index), *count))
    }

    /// An upper bound of the quantile `quantile` (0 to 1) of all durations; at most twice the true value. Zero if there
    /// are no durations.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a count"
        )]
        let wanted = ((self.count as f64) * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (end, count) in self.buckets() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return end;
            }
        }
        Duration::ZERO
    }
}

const fn end(index: usize) -> Duration {
    if index + 1 < BUCKETS { Duration::from_micros(1 << index) } else { Duration::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_powers_of_two() {
        let mut latency = Latency::default();
        for micros in [0, 1, 2, 3, 900, u64::MAX] {
            latency.record(Duration::from_micros(micros), 1);
        }
        let filled: Vec<_> = latency.buckets().filter(|(_, count)| *count > 0).collect();
        let us = Duration::from_micros;
        assert_eq!(filled, [(us(1), 1), (us(2), 1), (us(4), 2), (us(1024), 1), (Duration::MAX, 1)]);
        assert_eq!(latency.count(), 6);
    }

    #[test]
    fn a_quantile_is_a_bound() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), Duration::ZERO);
        for micros in 1..=1000 {
            latency.record(Duration::from_micros(micros), 1);
        }
        assert_eq!(latency.quantile(0.5), Duration::from_micros(512));
        assert_eq!(latency.quantile(0.99), Duration::from_micros(1024));
        assert_eq!(latency.quantile(0.0), Duration::from_micros(2));
    }
}
