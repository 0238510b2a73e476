//! One hold of a lock or a leadership, as its client reports it.

use crate::history::{known, now};
use crate::peers::{Answer, Library, Peer};
use crate::world::{MILLISECOND, World};

/// A hold. It ends with [`Hold::release`] or [`Hold::end`], which record it.
pub(crate) struct Hold<'a> {
    world: &'a World,
    peer: &'a Peer,
    pub(crate) handle: &'a str,
    pub(crate) token: Option<u64>,
    /// The node was gone when its token was asked for.
    is_gone: bool,
    called: u64,
    pub(crate) granted: u64,
    /// The end of the proven part of the hold, as docent reports it.
    pub(crate) proven: Option<u64>,
    /// The first and the last time at which the client reported that it holds the lock.
    held: Option<(u64, u64)>,
    /// The member that the client was connected to when it last reported that it holds the lock.
    /// Only docent's clients report it.
    member: Option<usize>,
}

/// The interval between two `held` commands.
const QUESTION_INTERVAL_MS: u64 = 60;

impl<'a> Hold<'a> {
    /// Acquires a lock. Returns `None` if that fails; after an error, only after a pause.
    pub(crate) fn acquire(
        world: &'a World,
        peer: &'a Peer,
        handle: &'a str,
        wait_ms: u64,
    ) -> Option<Self> {
        let called = now();
        let granted = match ask(world, peer, &format!("acquire {handle} {wait_ms}")) {
            Answer::Ok { at, .. } => at,
            Answer::False | Answer::Stuck => return None,
            Answer::Failed { .. } | Answer::Gone => {
                world.sleep_ms(200);
                return None;
            }
        };
        world.counters.holds.add(1);
        let mut hold = Hold {
            world,
            peer,
            handle,
            token: None,
            is_gone: false,
            called,
            granted,
            proven: None,
            held: None,
            member: None,
        };
        hold.is_held();
        if peer.library == Library::Docent {
            hold.proven = hold.number("proven");
        }
        match hold.ask("token", "") {
            Answer::Ok { text, .. } => hold.token = text.parse().ok(),
            Answer::Failed { kind, .. } => hold.is_gone = kind == "NoNode",
            _ => {}
        }
        Some(hold)
    }

    /// The token as the history has it.
    pub(crate) fn token_text(&self) -> String {
        if self.is_gone { "gone".to_owned() } else { known(self.token) }
    }

    fn number(&self, verb: &str) -> Option<u64> {
        match self.ask(verb, "") {
            Answer::Ok { text, .. } => text.parse().ok(),
            _ => None,
        }
    }

    /// Asks whether the lock is held.
    pub(crate) fn is_held(&mut self) -> bool {
        let Answer::Ok { text, .. } = self.ask("held", "") else { return false };
        let mut words = text.split(' ');
        if words.next() != Some("true") {
            return false;
        }
        let Some(at) = words.next().and_then(|at| at.parse().ok()) else { return false };
        let member = words.next().and_then(|server| self.world.members.index_of(server));
        self.member = member.or(self.member);
        let from = self.held.map_or(self.granted, |(from, _)| from);
        // The client may have handled this command before it wrote the reply to the acquire.
        self.held = Some((from.min(at), at));
        true
    }

    /// Keeps the lock until a time or its loss. If the hold is renewed, also reads its proven bound.
    pub(crate) fn keep(&mut self, until: u64, renews: bool) {
        while self.is_held() {
            if renews {
                // The bound of a hold never goes back, but the client has none to report once it has lost the hold.
                self.proven = self.proven.max(self.number("proven"));
            }
            if now() >= until || self.world.is_stopping() {
                return;
            }
            self.world.sleep_until(until.min(now() + QUESTION_INTERVAL_MS * MILLISECOND));
        }
    }

    /// Sends a command about this hold.
    pub(crate) fn ask(&self, verb: &str, rest: &str) -> Answer {
        ask(self.world, self.peer, format!("{verb} {} {rest}", self.handle).trim_end())
    }

    /// Releases the lock.
    pub(crate) fn release(self) {
        let (at, had_ended) = (now(), self.peer.has_ended());
        match self.ask("release", "") {
            Answer::Ok { .. } => self.end(Some(at), "released"),
            Answer::Failed { .. } | Answer::False => self.end(Some(at), "failed"),
            // Nobody has released it, so its proven part goes on.
            Answer::Gone if had_ended => self.end(None, "killed"),
            Answer::Gone => self.end(Some(at), "gone"),
            Answer::Stuck => self.end(Some(at), "stuck"),
        }
    }

    /// Records the end of a hold. `release` is the time at which it was released, or its session or process ended, if
    /// that is known.
    pub(crate) fn end(self, release: Option<u64>, end: &str) {
        let lock = self.handle.split_once(':').map_or(self.handle, |(_, path)| path);
        let held = known(self.held.map(|(from, to)| format!("{from}-{to}")));
        self.world.history.add(format_args!(
            "hold lock={lock} client={} kind={} token={} called={} granted={} proven={} release={} end={end} held={held} member={}",
            self.peer.name,
            self.peer.library.name(),
            self.token_text(),
            self.called,
            self.granted,
            known(self.proven),
            known(release),
            known(self.member),
        ));
    }
}

/// Sends a command to a client. One without a reply is recorded.
pub(crate) fn ask(world: &World, peer: &Peer, command: &str) -> Answer {
    let answer = peer.ask(command);
    if answer == Answer::Stuck {
        stuck(world, peer, command.split(' ').next().unwrap_or_default());
    }
    answer
}

/// Records a command without a reply.
pub(crate) fn stuck(world: &World, peer: &Peer, command: &str) {
    world.counters.stuck.add(1);
    world.history.add(format_args!(
        "stuck client={} kind={} command={command} at={}",
        peer.name,
        peer.library.name(),
        now()
    ));
    world.sleep_ms(1_000);
}
