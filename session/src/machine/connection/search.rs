//! The search for another server while connected: for a read-write one, or for a better one.

use std::time::Duration;

use crate::{config::Host, machine::server_status::ServerStatus, time::Instant};

/// The search for another server.
///
/// Source, for a read-write one: `ClientCnxn.SendThread.pingRwServer`.
#[derive(Debug)]
pub(crate) struct Search {
    next_at: Instant,
    interval: Duration,
    round: usize,
    /// The servers that were asked for their status.
    survey: Option<Survey>,
}

/// The answers of servers about their status.
#[derive(Debug)]
struct Survey {
    /// The number of servers that were asked.
    asked: usize,
    /// The last zxid that the client had seen then. A server that lags behind it would close the handshake.
    zxid: i64,
    /// Those that have answered. Without a status: those that do not serve, or did not say so.
    answers: Vec<(Host, Option<ServerStatus>)>,
}

/// The first pause of the search for a read-write server, and the longest.
const SEARCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// The longest wait for the answers of servers. A driver gives each of them a second.
const SURVEY: Duration = Duration::from_secs(2);

impl Search {
    /// The search for a read-write server.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { next_at: now + SEARCH.0, interval: SEARCH.0, round: 0, survey: None }
    }

    /// The search for a better server, which begins at this time.
    pub(crate) const fn at(next_at: Instant) -> Self {
        Self { next_at, interval: Duration::ZERO, round: 0, survey: None }
    }

    pub(crate) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Begins the next round if it is due, and returns the number of those before it.
    pub(crate) fn next_round(&mut self, now: Instant) -> Option<usize> {
        if self.next_at > now {
            return None;
        }
        let round = self.round;
        self.round += 1;
        self.interval = (self.interval * 2).min(SEARCH.1);
        self.next_at = now + self.interval;
        Some(round)
    }

    /// Begins the wait for the answers of this number of servers. `zxid` is the last one that the client has seen.
    pub(crate) fn begin_survey(&mut self, now: Instant, asked: usize, zxid: i64) {
        self.next_at = now + SURVEY;
        self.survey = Some(Survey { asked, zxid, answers: Vec::new() });
    }

    /// Whether servers were asked, and their answers are pending.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.survey.is_some()
    }

    /// Records the answer of a server; returns whether all have answered now.
    pub(crate) fn note_answer(&mut self, host: &Host, status: Option<ServerStatus>) -> bool {
        let Some(survey) = &mut self.survey else { return false };
        if !survey.answers.iter().any(|(other, _)| other == host) {
            survey.answers.push((host.clone(), status));
        }
        survey.answers.len() >= survey.asked
    }

    /// Ends the wait, and returns the servers that serve, without those that lag behind.
    pub(crate) fn end_survey(&mut self) -> Vec<(Host, ServerStatus)> {
        let Some(Survey { zxid, answers, .. }) = self.survey.take() else { return Vec::new() };
        let serving = answers.into_iter().filter_map(|(host, status)| Some((host, status?)));
        serving.filter(|(_, status)| status.zxid.is_none_or(|other| other >= zxid)).collect()
    }
}
