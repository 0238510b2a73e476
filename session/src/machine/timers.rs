//! The timers of a session: which one is next, and what is done when it is due.

use super::{
    answers::Answers,
    connection::{Due, Search},
    session::{Closing, Session},
};
use crate::time::{Instant, earlier};

/// The capacity of a buffer that an idle session keeps, in bytes.
const KEPT_BYTES: usize = 512;

/// The capacity of a queue that an idle session keeps, in entries.
const KEPT_ENTRIES: usize = 16;

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// When [`handle_timeout`](Self::handle_timeout) is due. Any other call can change it.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_ended() {
            return None;
        }
        let connection = self.connection.next_timeout(self.timeouts.ping, self.silent_at());
        let closing = match self.closing {
            Closing::Requested { until, .. } => Some(until),
            Closing::No => None,
        };
        let search = self.connection.search().map(Search::next_at);
        // By hand: an iterator over an array of options costs over a thousand instructions in every call.
        let connection = earlier(connection, closing);
        let auth = earlier(self.next_expiry(), self.next_auth_deadline());
        let requests = earlier(auth, self.requests.next_deadline());
        let others = earlier(self.unset.retry_at(), earlier(search, self.expires_at()));
        earlier(earlier(connection, requests), others)
    }

    /// Handles the timeouts that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Closing::Requested { until, .. } = self.closing
            && until <= now
        {
            return self.end_unconfirmed();
        }
        let mut due = self.connection.due(now, self.timeouts.ping, self.silent_at());
        if due == Some(Due::Replies) {
            self.end_wait_for_replies(now);
            // A ping may be due as well.
            due = self.connection.due(now, self.timeouts.ping, self.silent_at());
        }
        match due {
            Some(Due::Silence) => {
                let silence = now.duration_since(self.connection.last_heard());
                self.connection.give_up(format_args!("nothing received for {silence:?}"));
            }
            Some(Due::Ping) => self.ping(now),
            Some(Due::Attempt) => self.connection.give_up("the attempt timed out"),
            #[cfg(feature = "sasl")]
            Some(Due::Authentication) => {
                let why = self.overdue_sasl();
                self.connection.give_up(why);
            }
            Some(Due::Replies) | None => {}
        }
        self.expire_if_due(now);
        if self.is_ended() {
            return;
        }
        self.fail_overdue(now);
        self.fail_timed_out(now);
        self.search(now);
        self.retry_watches(now);
        self.operations.review(now);
    }

    /// When the connection is closed because no reply came.
    fn silent_at(&self) -> Instant {
        self.connection.silent_at(&self.timeouts).min(self.close_silent_at())
    }

    fn ping(&mut self, now: Instant) {
        self.connection.ping(now);
        self.metrics.pings += 1;
        if self.requests.is_empty() {
            self.give_back_memory();
        }
    }

    /// Frees the memory of a burst that an idle session does not need.
    pub(super) fn give_back_memory(&mut self) {
        self.requests.shrink_to(KEPT_BYTES, KEPT_ENTRIES);
        self.connection.shrink_to(KEPT_BYTES);
        self.answers.shrink_to(KEPT_ENTRIES);
        self.buffers.clear();
        self.events.shrink_to(KEPT_ENTRIES);
    }
}
