//! The return to a better server: one of lower cost that is reachable again, or among equals one with fewer connections.
//!
//! Once in each [`failback`](crate::Config::with_failback) interval, at a random time of its second half, a client asks all
//! servers of its list for their status, by `srvr`. It moves
//!
//! | to | if | chosen |
//! |---|---|---|
//! | a server of lower cost | it serves | by the lowest cost, then the fewest connections |
//! | one of the same cost | the client's own has more connections than the mean by 5 % and by one, with probability 2 (own - mean) / own | at random, weighted by what each lacks to the mean |
//!
//! The probability lets as many clients move as are too many, twice, because those that look later see the moves of the
//! earlier ones and stay. Questions count as connections, hence the one.
//!
//! A move is a planned reconnect, as a [renewal](super::proof) makes it, with the same session: nothing more is sent, the
//! replies to requests in flight are awaited, for [`reattach`](crate::Timeouts::reattach) at most, and queued requests go
//! out on the next connection. If the server is not reached within the same time, the client returns to the one it left. The
//! state of the connection does not change unless that fails too: by then half of the session timeout has passed.
//!
//! There is no move to a server that does not reply to `srvr`, or lags behind the last zxid that the client had seen when it
//! asked; none on a Keeper, which resumes no session, on a read-only server, or while holds renew the proven bound, for which
//! a delay counts. A server that does not know the session is not reached either: until it creates an ephemeral node, a
//! session may be local to the server that was left. After a move that has failed, the interval is twice as long, up to 16
//! times, until one succeeds or the connection is lost.

use super::{
    answers::{Answers, Reply},
    connect_string::Host,
    server_status::ServerStatus,
    session::{Event, Session},
};
use crate::{
    Error, ErrorKind, planted,
    time::{Instant, NEVER},
};

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Sets the costs of the servers, which an application computes: the lower, the better. They order the attempts to
    /// connect, and decide about a return. A server without a cost is the worst. Moves no connection by itself.
    pub fn set_costs(&mut self, costs: impl IntoIterator<Item = (Host, u64)>) {
        self.hosts.set_costs(costs);
    }

    /// Replaces the connection by a new one, to the best server that serves, with the same session. Completes `token` once
    /// there is a new connection; fails if there is none to replace, if the servers resume no session, if the replies to
    /// the requests in flight do not come in time, or if the session ends.
    pub fn reconnect(&mut self, token: T, now: Instant) {
        if self.is_ended() || self.is_closing() {
            return self.complete(Some(token), Err(self.refusal()));
        }
        if !self.is_connected() || self.is_read_only() {
            let why = "there is no connection to the quorum; the client looks for one already";
            let error = Error::refused(ErrorKind::ConnectionLoss, why);
            return self.complete(Some(token), Err(error));
        }
        if self.operations.replaces_sessions() {
            return self.complete(Some(token), Err(resumes_no_session()));
        }
        self.relocation.add_caller(token);
        let is_waiting = self.connection.search().is_some_and(|search| search.is_waiting());
        if self.connection.is_migrating() {
            self.connection.limit_migration(now + self.timeouts.reattach);
        } else if !is_waiting {
            self.begin_survey(now);
        }
    }

    /// The status of a server, which was asked for it; `None` if it did not reply, or does not serve. `connection` is the
    /// number that came with the question.
    pub fn handle_status(
        &mut self,
        now: Instant,
        connection: u64,
        host: &Host,
        status: Option<ServerStatus>,
    ) {
        if connection != self.metrics.connections || !self.is_connected() {
            return;
        }
        if self.connection.host() == Some(host) {
            // Without a reply the role is not known.
            if let Some(status) = status {
                self.note_role(status.leads);
            }
        }
        if status.is_some_and(|status| status.is_keeper) {
            self.operations.note_replacement();
        }
        if self.connection.search_mut().is_some_and(|search| search.note_answer(host, status)) {
            self.end_survey(now);
        }
    }

    /// Sets the time of the next survey, if clients return.
    pub(super) fn plan_survey(&mut self, now: Instant) {
        match self.config.failback {
            Some(interval) if !self.is_read_only() => {
                let interval = interval.saturating_mul(self.relocation.delay());
                let jitter = self.hosts.rng_mut().jitter(interval / 2);
                self.connection.search_better(now + interval / 2 + jitter);
            }
            _ => self.connection.end_search(),
        }
    }

    /// While connected: looks for another server, if it is time.
    pub(super) fn search(&mut self, now: Instant) {
        if self.is_read_only() {
            return self.search_read_write(now);
        }
        let Some(search) = self.connection.search().filter(|search| search.next_at() <= now) else {
            return;
        };
        if search.is_waiting() {
            self.end_survey(now);
        } else if self.may_return(now) && self.hosts.len() > 1 {
            self.begin_survey(now);
        } else {
            self.plan_survey(now);
        }
    }

    /// Asks each server for its status, once even if it is listed twice.
    fn begin_survey(&mut self, now: Instant) {
        let mut asked: Vec<Host> = Vec::new();
        for host in self.hosts.list() {
            if !asked.contains(host) {
                asked.push(host.clone());
            }
        }
        self.connection.search_better(now).begin_survey(now, asked.len(), self.last_zxid);
        let number = self.metrics.connections;
        self.events.extend(asked.into_iter().map(|host| Event::ProbeStatus(host, number)));
    }

    /// Decides with the answers that are there.
    fn end_survey(&mut self, now: Instant) {
        let answers = self.connection.search_mut().map(|search| search.end_survey());
        let mut answers = answers.unwrap_or_default();
        answers.retain(|(host, _)| self.hosts.list().contains(host));
        self.plan_survey(now);
        if self.operations.replaces_sessions() {
            return self.fail_callers(&resumes_no_session());
        }
        let is_requested = self.relocation.has_callers();
        if self.connection.is_migrating() && is_requested {
            self.connection.limit_migration(now + self.timeouts.reattach);
        }
        if !is_requested && !self.may_return(now) || self.connection.is_migrating() {
            return;
        }
        let Some(current) = self.server().cloned() else { return };
        let target = self.choose(&current, &answers);
        if let Some(target) = target.or_else(|| is_requested.then_some(current)) {
            self.relocation.plan(target);
            self.connection.reattach(now + self.timeouts.reattach);
        }
    }

    /// Whether a move without a request is allowed.
    fn may_return(&self, now: Instant) -> bool {
        if planted::is("never-returns") {
            return false;
        }
        let is_proven = self.renewal.is_used_since(now - self.timeouts.session);
        let is_local = self.identity.as_ref().is_none_or(|known| known.local);
        let stays = self.is_closing() || self.operations.replaces_sessions();
        // The replies in flight, the attempt and the return take half of the session timeout at most.
        let has_time =
            self.lease().is_some_and(|lease| lease.deadline() > now + self.timeouts.reattach * 3);
        self.is_connected() && !is_proven && !is_local && !stays && has_time
    }

    /// The server to move to.
    fn choose(&mut self, current: &Host, answers: &[(Host, ServerStatus)]) -> Option<Host> {
        let best = answers.iter().map(|(host, _)| self.hosts.cost(host)).min()?;
        let own_cost = self.hosts.cost(current);
        let equals: Vec<_> = answers
            .iter()
            .filter(|(host, _)| self.hosts.cost(host) == best)
            .map(|(host, status)| (host, u64::from(status.connections)))
            .collect();
        if best < own_cost {
            let fewest = equals.iter().map(|(_, connections)| *connections).min()?;
            return self.draw(equals.iter().map(|(host, n)| (*host, u64::from(*n == fewest))));
        }
        let (_, own) = equals.iter().find(|(host, _)| *host == current)?;
        let (count, total) = (equals.len() as u64, equals.iter().map(|(_, n)| *n).sum::<u64>());
        // All numbers are multiplied by the number of servers, and compared with the mean so.
        let (own, mean) = (*own * count, total);
        if own * 100 <= mean * 105 + count * 100 {
            return None;
        }
        if self.hosts.rng_mut().below(own) >= 2 * (own - mean) {
            return None;
        }
        self.draw(equals.iter().map(|(host, n)| (*host, mean.saturating_sub(*n * count))))
    }

    /// Draws one of these by their weights.
    fn draw<'a>(&mut self, of: impl Iterator<Item = (&'a Host, u64)> + Clone) -> Option<Host> {
        let mut at = self.hosts.rng_mut().below(of.clone().map(|(_, weight)| weight).sum());
        for (host, weight) in of {
            if at < weight {
                return Some(host.clone());
            }
            at -= weight;
        }
        None
    }

    // The move.

    /// Whether a planned reconnect is under way, to a server that is chosen already.
    pub(crate) const fn is_moving(&self) -> bool {
        self.renewal.is_moving() || self.connection.is_reattaching()
    }

    /// The connection to `host` has ended. Returns the server to connect to without a change of state: that of a planned
    /// reconnect, or the one that was left for a server that was not reached.
    pub(super) fn next_of_plan(&mut self, host: &Host, is_planned: bool) -> Option<Host> {
        if is_planned {
            return Some(self.relocation.depart(host));
        }
        let left = self.relocation.take_left();
        let has_failed = left.is_some() || self.relocation.cancel();
        self.note_end_of_move(has_failed);
        left.filter(|_| self.renewal.is_moving())
    }

    /// A move has failed, or the connection is lost without one.
    fn note_end_of_move(&mut self, has_failed: bool) {
        self.metrics.failed_moves += u64::from(has_failed);
        self.relocation.note_end(has_failed);
    }

    /// There is a new connection.
    pub(super) fn arrive(&mut self) {
        if self.relocation.take_left().is_some() {
            self.metrics.moves += 1;
            self.relocation.note_end(false);
        }
        for token in self.relocation.take_callers() {
            self.complete(Some(token), Ok(Reply::empty(self.last_zxid)));
        }
    }

    /// The requests in flight have no reply in time: gives a planned reconnect up. Another migration goes on.
    pub(super) fn end_wait_for_replies(&mut self, now: Instant) {
        if !self.connection.is_reattaching() {
            self.connection.limit_migration(NEVER);
        } else if self.keep_connection() {
            self.plan_survey(now);
        }
        let why = "requests in flight have no reply; the connection is kept";
        self.fail_callers(&Error::refused(ErrorKind::OperationTimeout, why));
    }

    /// Gives a migration up: the connection is kept. Returns whether it was a move.
    pub(super) fn keep_connection(&mut self) -> bool {
        self.connection.cancel_migration();
        let is_move = self.relocation.cancel();
        if is_move {
            self.note_end_of_move(true);
        }
        is_move
    }

    /// Fails the calls that wait for a new connection.
    pub(super) fn fail_callers(&mut self, error: &Error) {
        for token in self.relocation.take_callers() {
            self.complete(Some(token), Err(error.clone()));
        }
    }
}

#[cfg(test)]
impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// The cost of a server.
    pub(crate) fn cost(&self, host: &Host) -> u64 {
        self.hosts.cost(host)
    }
}

fn resumes_no_session() -> Error {
    let why = "the servers resume no session (ClickHouse Keeper): a reconnect would end it";
    Error::refused(ErrorKind::Unimplemented, why)
}
