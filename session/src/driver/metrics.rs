//! Feeds the crate `metrics` with the counters of the machine; [`Metrics`] documents the names.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::{machine::metrics::Metrics, time::Instant};

/// The shortest time between two records. There is one with each ping at least, so that no timer is needed.
const INTERVAL: Duration = Duration::from_secs(1);

/// Records what has changed since the last record, so that the values of several clients add up.
#[derive(Default)]
pub(super) struct Recorder {
    last: Metrics,
    due: Option<Instant>,
}

impl Recorder {
    /// Whether to record at `now`.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        self.due = Some(now + INTERVAL);
        true
    }

    pub(super) fn record(&mut self, new: Metrics) {
        let old = std::mem::replace(&mut self.last, new);
        let new = &self.last;
        count("docent_requests_total", old.requests, new.requests);
        count("docent_replies_total", old.replies, new.replies);
        count("docent_error_replies_total", old.error_replies, new.error_replies);
        count("docent_refused_requests_total", old.refused, new.refused);
        count("docent_timed_out_requests_total", old.timed_out, new.timed_out);
        count("docent_watch_events_total", old.events, new.events);
        count("docent_pings_total", old.pings, new.pings);
        count("docent_connection_attempts_total", old.attempts, new.attempts);
        count("docent_connections_total", old.connections, new.connections);
        count("docent_sessions_total", old.sessions, new.sessions);
        count("docent_sent_bytes_total", old.bytes_sent, new.bytes_sent);
        count("docent_received_bytes_total", old.bytes_received, new.bytes_received);
        measure("docent_pending_requests", old.pending, new.pending);
        measure("docent_requests_in_flight", old.in_flight, new.in_flight);
        measure("docent_pending_bytes", old.pending_bytes, new.pending_bytes);
        measure("docent_outgoing_bytes", old.outgoing_bytes, new.outgoing_bytes);
        measure("docent_watches", old.watches, new.watches);
        for ((end, old), (_, new)) in old.latency.buckets().zip(new.latency.buckets()) {
            let times = usize::try_from(new.saturating_sub(old)).unwrap_or(usize::MAX);
            if times > 0 {
                histogram!("docent_request_latency_seconds").record_many(middle(end), times);
            }
        }
    }

    /// Takes the values of a client that has ended out of the gauges.
    pub(super) fn end(&mut self, last: Metrics) {
        let (pending, in_flight, pending_bytes, outgoing_bytes, watches) = (0, 0, 0, 0, 0);
        let gauges = Metrics { pending, in_flight, pending_bytes, outgoing_bytes, watches, ..last };
        self.record(gauges);
    }
}

fn count(name: &'static str, old: u64, new: u64) {
    if new > old {
        counter!(name).increment(new - old);
    }
}

fn measure(name: &'static str, old: usize, new: usize) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let change = new.abs_diff(old) as f64;
    if new > old {
        gauge!(name).increment(change);
    } else if old > new {
        gauge!(name).decrement(change);
    }
}

/// The middle of a bucket that ends at `end` and begins at half of that, in seconds.
fn middle(end: Duration) -> f64 {
    // The last bucket has no end: it begins at 2^30 microseconds.
    let end = end.min(Duration::from_micros(1 << 31));
    end.as_secs_f64() * 0.75
}
