//! The links: between the members, and between a member and its clients.
//!
//! A link has a direction. Messages sent over a cut link are kept, and arrive in order once the link is healed, as
//! TCP would resend them; a connection that either end has given up meanwhile stays closed. Over a link that is not
//! cut, messages arrive at once.

use std::time::Duration;

use super::{
    connection::{Connection, State},
    ensemble::Ensemble,
    member::{Member, Role},
    messages::{Answer, Body, Message},
};

/// One end of a link: a member, or the clients of the member at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A member, by its index.
    Member(usize),
    /// All clients of the member at the other end.
    Clients,
}

impl From<usize> for Peer {
    fn from(member: usize) -> Self {
        Self::Member(member)
    }
}

impl Ensemble {
    /// Cuts a link in one direction: messages from `from` no longer arrive at `to`. Composable: a partition is a set
    /// of cut links. Has no effect on a link that is cut already.
    ///
    /// No end notices at once. Between members: a follower that hears nothing from its leader goes on answering
    /// pings and reads, and closes its clients' connections after [`sync_limit`](super::Config::sync_limit) ticks. A
    /// leader that hears from no majority goes on answering pings, reads and `sync`, and steps down within a tick
    /// after that. The others elect a leader among them once they have given up the old one. Writes wait meanwhile,
    /// and all requests behind them on their connection; they may take effect when the link is healed.
    ///
    /// Between a member and its [`Clients`](Peer::Clients): bytes wait on their side. No connection can be made, in
    /// whichever direction the link is cut.
    ///
    /// The other direction of the link goes on. (Over a real TCP connection it stands still soon, as nothing is
    /// acknowledged.)
    pub fn cut(&mut self, now: Duration, from: impl Into<Peer>, to: impl Into<Peer>) {
        self.set_now(now);
        match (from.into(), to.into()) {
            (Peer::Member(from), Peer::Member(to)) => {
                if from != to && from.max(to) < self.members.len() {
                    self.links.held.entry((from, to)).or_default();
                }
            }
            (Peer::Member(member), Peer::Clients) => self.set_mute(member, true),
            (Peer::Clients, Peer::Member(member)) => self.set_deaf(member, true),
            (Peer::Clients, Peer::Clients) => {}
        }
    }

    /// Heals a link in one direction. Messages sent over it meanwhile arrive in order on the connections that still
    /// exist. Members without a leader look for one.
    pub fn heal(&mut self, now: Duration, from: impl Into<Peer>, to: impl Into<Peer>) {
        self.set_now(now);
        match (from.into(), to.into()) {
            (Peer::Member(from), Peer::Member(to)) => {
                if let Some(held) = self.links.held.remove(&(from, to)) {
                    self.links.mail.extend(held);
                }
            }
            (Peer::Member(member), Peer::Clients) => self.set_mute(member, false),
            (Peer::Clients, Peer::Member(member)) => self.set_deaf(member, false),
            (Peer::Clients, Peer::Clients) => {}
        }
        self.needs_leader_search = true;
        self.pump();
    }

    /// Whether a link is cut in this direction.
    #[must_use]
    pub fn is_cut(&self, from: impl Into<Peer>, to: impl Into<Peer>) -> bool {
        let member = |at: usize| self.members.get(at);
        match (from.into(), to.into()) {
            (Peer::Member(from), Peer::Member(to)) => self.links.held.contains_key(&(from, to)),
            (Peer::Member(at), Peer::Clients) => member(at).is_some_and(|member| member.mute),
            (Peer::Clients, Peer::Member(at)) => member(at).is_some_and(|member| member.deaf),
            (Peer::Clients, Peer::Clients) => false,
        }
    }

    /// Cuts all links between a member and the other members, in both directions. Its clients still reach it.
    pub fn isolate(&mut self, now: Duration, member: usize) {
        for other in (0..self.members.len()).filter(|other| *other != member) {
            self.cut(now, member, other);
            self.cut(now, other, member);
        }
    }

    /// Cuts the links between a member and its clients, in both directions. The other members still reach it.
    pub fn isolate_from_clients(&mut self, now: Duration, member: usize) {
        self.cut(now, Peer::Clients, member);
        self.cut(now, member, Peer::Clients);
    }

    /// Heals all links.
    pub fn heal_all(&mut self, now: Duration) {
        let cut: Vec<_> = self.links.held.keys().copied().collect();
        for (from, to) in cut {
            self.heal(now, from, to);
        }
        for member in 0..self.members.len() {
            self.heal(now, Peer::Clients, member);
            self.heal(now, member, Peer::Clients);
        }
    }

    fn set_mute(&mut self, at: usize, mute: bool) {
        let Some(member) = self.members.get_mut(at) else { return };
        member.mute = mute;
        if !mute {
            let waits = |c: &Connection| c.state == State::Closing || !c.output.is_empty();
            let of_member = self.connections.iter().filter(|(_, c)| c.member == at && waits(c));
            self.ready.extend(of_member.map(|(id, _)| *id));
        }
    }

    fn set_deaf(&mut self, at: usize, deaf: bool) {
        let Some(member) = self.members.get_mut(at) else { return };
        member.deaf = deaf;
        self.read_waiting(at);
    }

    /// Handles the input that waited while a member did not hear its clients, if it hears them now.
    pub(super) fn read_waiting(&mut self, at: usize) {
        if self.members.get(at).is_none_or(Member::hears_nothing) {
            return;
        }
        let of_member = self.connections.iter().filter(|(_, c)| c.member == at);
        let ids: Vec<_> = of_member.map(|(id, c)| (*id, c.is_abandoned)).collect();
        for (id, is_abandoned) in ids {
            self.process_input(id);
            if is_abandoned {
                self.remove(id);
            }
        }
    }

    // Between members.

    /// Sends a message from a learner to its leader.
    pub(super) fn post_to_leader(&mut self, from: usize, body: Body) {
        let Some(following) = self.members.get(from).and_then(|m| m.following.as_ref()) else {
            return;
        };
        let (channel, to) = (following.channel, following.leader);
        self.links.post(Message { channel, from, to, body });
    }

    /// Sends a message from a leader to one of its learners.
    pub(super) fn post_to_learner(&mut self, from: usize, to: usize, body: Body) {
        let leading = self.members.get(from).and_then(|member| member.leading.as_ref());
        let Some(learner) = leading.and_then(|leading| leading.learners.get(&to)) else { return };
        self.links.post(Message { channel: learner.channel, from, to, body });
    }

    /// Delivers all messages, and those that they cause. A nested call leaves its messages to the outermost one.
    pub(super) fn pump(&mut self) {
        if std::mem::replace(&mut self.is_pumping, true) {
            return;
        }
        loop {
            if let Some(message) = self.links.mail.pop_front() {
                self.deliver(message);
            } else if let Some(id) = self.opened.pop_front() {
                self.process_input(id);
            } else if std::mem::take(&mut self.needs_leader_search) {
                self.search_for_leaders();
            } else {
                break;
            }
        }
        self.is_pumping = false;
    }

    fn deliver(&mut self, message: Message) {
        let Message { channel, from, to, body } = message;
        let now = self.now;
        let Some(member) = self.members.get_mut(to) else { return };
        // In order: a message that arrives while others still wait is queued behind them.
        if member.paused || !member.unread.is_empty() {
            return member.unread.push_back(Message { channel, from, to, body });
        }
        if let Some(leading) = &mut member.leading {
            let tick = leading.tick;
            let learner = leading.learners.get_mut(&from).filter(|l| l.channel == channel);
            let Some(learner) = learner else { return };
            learner.last_heard = now;
            learner.last_tick = tick;
            self.hear_learner(to, from, body);
        } else if let Some(following) = &mut member.following
            && following.channel == channel
        {
            following.last_heard = now;
            self.hear_leader(to, body);
        }
    }

    fn hear_learner(&mut self, at: usize, from: usize, body: Body) {
        let now = self.now;
        let Some(leading) = self.members.get_mut(at).and_then(|m| m.leading.as_mut()) else {
            return;
        };
        match body {
            Body::Touched(sessions) => {
                for (id, timeout) in sessions {
                    leading.sessions.touch(id, timeout, now);
                }
            }
            Body::Ack(zxid) => {
                if let Some(learner) = leading.learners.get_mut(&from) {
                    learner.acked = learner.acked.max(zxid);
                }
                self.count_acks(at);
            }
            Body::Request(forwarded) => self.lead_write(at, &forwarded),
            Body::Revalidate(resume) => {
                let id = resume.context.session_id;
                let exists = leading.sessions.attach(id, resume.timeout, from, now);
                self.post_to_learner(at, from, Body::Revalidated(resume, exists));
            }
            Body::Sync(context) => {
                // No majority is consulted: the sync waits only for the proposals before it.
                leading.syncs.push_back((leading.zxid, context));
                self.answer_syncs(at);
            }
            Body::Closed => {
                leading.learners.remove(&from);
            }
            _ => {}
        }
    }

    fn hear_leader(&mut self, at: usize, body: Body) {
        let Some(member) = self.members.get_mut(at) else { return };
        match body {
            Body::Ping => {
                let touched = member.following.as_mut().map(|f| std::mem::take(&mut f.touched));
                self.post_to_leader(at, Body::Touched(touched.unwrap_or_default()));
            }
            Body::Propose(entry) => {
                let zxid = entry.zxid;
                member.accepted.push_back(entry);
                self.post_to_leader(at, Body::Ack(zxid));
            }
            Body::Commit(zxid) => {
                member.committed = zxid;
                self.apply_committed(at, false);
            }
            Body::Answer(context, answer) => self.finish(context, answer),
            Body::Revalidated(resume, exists) => self.revalidated(resume, exists),
            Body::Synced(context) => {
                self.apply_committed(at, true);
                self.finish(context, Answer::Synced);
            }
            Body::Closed => self.lose_leader(at),
            _ => {}
        }
    }

    /// Answers the syncs of learners whose proposals are committed.
    pub(super) fn answer_syncs(&mut self, at: usize) {
        let Some(member) = self.members.get_mut(at) else { return };
        let ordered = member.accepted.back().is_some_and(|entry| entry.zxid > member.committed);
        let committed = if ordered { member.committed } else { i64::MAX };
        let Some(leading) = &mut member.leading else { return };
        let due = leading.syncs.partition_point(|(zxid, _)| *zxid <= committed);
        let due: Vec<_> = leading.syncs.drain(..due).collect();
        for (_, context) in due {
            self.post_to_learner(at, context.member, Body::Synced(context));
        }
    }

    // Time.

    /// The next instant at which a leader pings, or an end of a connection between members gives it up.
    pub(super) fn next_peer_timer(&self) -> Option<u64> {
        let limit = self.sync_limit();
        let of_member = |member: &Member| {
            let following = member.following.as_ref().map(|f| f.last_heard + limit);
            let leading = member.leading.as_ref().filter(|_| member.role == Role::Leader);
            let learners = leading.into_iter().flat_map(|leading| leading.learners.values());
            let learner = learners.map(|learner| learner.last_heard + limit).min();
            [following, leading.map(|leading| leading.next_ping), learner]
                .into_iter()
                .flatten()
                .min()
        };
        self.members.iter().filter(|member| !member.paused).filter_map(of_member).min()
    }

    /// The time after which a silent connection between members is given up, in milliseconds.
    fn sync_limit(&self) -> u64 {
        self.sessions_tick().saturating_mul(u64::from(self.config.sync_limit.max(1)))
    }

    /// Handles the pings and timeouts between members that [`next_peer_timer`](Self::next_peer_timer) has announced.
    ///
    /// Source: `Leader.lead`, `LearnerHandler.synced`, `Learner.readPacket`.
    pub(super) fn handle_peer_timers(&mut self, due: u64) {
        self.now = self.now.max(due);
        let (now, limit) = (self.now, self.sync_limit());
        let half_tick = (self.sessions_tick() / 2).max(1);
        for at in 0..self.members.len() {
            let Some(member) = self.members.get_mut(at).filter(|m| !m.paused) else { continue };
            let Some(leading) = member.leading.as_mut().filter(|l| l.next_ping <= now) else {
                continue;
            };
            if member.role != Role::Leader {
                continue;
            }
            leading.next_ping = now + half_tick;
            leading.is_half = !leading.is_half;
            if !leading.is_half {
                leading.tick += 1;
            }
            let checks = !leading.is_half;
            let learners: Vec<_> = leading.learners.keys().copied().collect();
            if checks && !self.has_quorum(at) {
                self.step_down(at);
            } else {
                for learner in learners {
                    self.post_to_learner(at, learner, Body::Ping);
                }
            }
            self.pump();
        }
        for at in 0..self.members.len() {
            let Some(member) = self.members.get_mut(at).filter(|m| !m.paused) else { continue };
            if member.following.as_ref().is_some_and(|f| f.last_heard + limit <= now) {
                self.post_to_leader(at, Body::Closed);
                self.lose_leader(at);
            } else if let Some(leading) = &member.leading {
                let silent = leading.learners.iter().filter(|(_, l)| l.last_heard + limit <= now);
                let silent: Vec<_> = silent.map(|(learner, _)| *learner).collect();
                for learner in silent {
                    self.drop_learner(at, learner);
                }
            }
        }
        self.pump();
    }

    fn drop_learner(&mut self, at: usize, learner: usize) {
        self.post_to_learner(at, learner, Body::Closed);
        if let Some(leading) = self.members.get_mut(at).and_then(|m| m.leading.as_mut()) {
            leading.learners.remove(&learner);
        }
    }
}
