//! A directed run: a script takes the choices that a seed draws elsewhere.
//!
//! Messages take no time. They wait in one queue for each connection and direction, and whenever no task is ready, the director
//! takes the next **move**: the arrival of the first message of a queue, a timer that is due, or a fault of the scope. Time goes
//! on when there is no other move. Beyond the end of the script, each choice is the first one: first the servers, then the
//! processes in their order, and no fault.
//!
//! Ready tasks are no choice. A poll changes its own process, and adds messages to its own queues, so polls of different
//! processes commute: the processes take turns in their order. The tasks of one process are polled in the order of their start.
//!
//! # Moves that commute
//!
//! Two moves commute if they lead to the same state in both orders: inputs of different processes, an input of a process and
//! one of a server, and two reads at a server. Of two orders, one is left out: a move does not follow a later one (by
//! [`Place`]) that it commutes with, if it was possible before that one too. No state is lost by this. Assume that a state can
//! be reached by some last moves, and take the latest of these by its place. If it is left out, it follows a later one that it
//! commutes with, so that later one could be the last move to the same state: a contradiction.
//!
//! # Known states
//!
//! A run ends at a move from a state that another run has been in: whatever follows was, or will be, tried from there. Two runs
//! are in one state if they agree in a hash of
//!
//! * the time, the faults so far with their times, and the number of those that may follow;
//! * for each process, the messages that have arrived at it, the timers that have woken it and the faults that concern it, in
//!   their order, with their times.
//!   A process is deterministic: its clock, its randomness and its numbers depend on nothing else, and the order of its polls
//!   neither. So this determines its tasks and timers, what it has sent, and what its workers believe;
//! * the whole state of the servers, and all changes that they have applied, with their times;
//! * all messages in flight, and the state of each connection;
//! * if the history is compared with a specification, the states of that which it may have led to.
//!
//! No task is ready then, for tasks that a check wakes are polled first. The memory of a check is not part of the state. It
//! follows from the above, for a check remembers states with their times, and no order of events at different processes at one
//! instant.

use std::{
    collections::VecDeque,
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    mem,
};

use super::{
    PossibleFault, World,
    connections::{Arrival, Connection, Direction},
    core::{Core, Event},
    director::{Directed, Director, Move, Place, Request, hash},
    lock::lock,
    time::Nanos,
};

impl World {
    /// Lets the director make a move.
    pub(super) fn direct(&self) -> Directed {
        let now = self.now();
        let mut core = self.core();
        if core.director.is_some() && !lock(&self.inner.ready).is_empty() {
            // A check has woken a task.
            return Directed::Moved;
        }
        let Some(mut director) = core.director.take() else { return Directed::Nothing };
        let is_due = |(_, event): &(_, &Event)| !matches!(event, Event::Wake(..));
        let first = core.queue.range(..=(now, u64::MAX)).find(is_due).map(|(key, _)| *key);
        let mut moves = if first.is_some() {
            Vec::new()
        } else {
            core.moves(&mut director, &self.inner.faults, now)
        };
        let is_beyond = director.taken.len() >= director.script.len();
        if moves.is_empty() {
            director.last = None;
            core.director = Some(director);
            let event = first.and_then(|key| core.queue.remove(&key));
            drop(core);
            return event.map_or(Directed::Nothing, |event| {
                self.handle(event);
                Directed::Moved
            });
        }
        let is_wanted = is_beyond || director.path.is_some();
        let state = is_wanted.then(|| core.state(&mut director, now));
        if is_beyond && state.is_some_and(|state| !lock(&director.known).insert(state)) {
            core.director = Some(director);
            return Directed::Known;
        }
        let possible = moves.iter().map(|(place, _)| *place).collect();
        director.leave_out(&mut moves);
        if moves.is_empty() {
            core.director = Some(director);
            return Directed::Known;
        }
        let (place, chosen) = moves[director.choose(moves.len())];
        director.last = Some((place, possible));
        if let (Some(path), Some(state)) = (&mut director.path, state) {
            path.push((state, place));
        }
        core.director = Some(director);
        core.steps += 1;
        drop(core);
        self.make(chosen);
        Directed::Moved
    }

    fn make(&self, chosen: Move) {
        let (now, mut core) = (self.now(), self.core());
        let processes = core.processes.len();
        let Some(director) = &mut core.director else { return };
        director.is_stirred |= matches!(chosen, Move::Arrive(..) | Move::Fault(_));
        director.last_polled = (0, 0);
        match chosen {
            Move::Time => {}
            Move::Wake(key) => {
                let Some(Event::Wake(pid, waker)) = core.queue.remove(&key) else { return };
                if let Some(director) = &mut core.director {
                    director.note_input(pid, now);
                }
                drop(core);
                waker.wake();
            }
            Move::Arrive(connection, direction) => {
                let queue = director.queues.get_mut(&(connection, direction));
                let Some(segment) = queue.and_then(VecDeque::pop_front) else { return };
                core.arrive(self.elapsed(), Arrival { connection, direction, segment });
            }
            Move::Fault(number) => {
                director.budget -= 1;
                director.past = hash((director.past, now, number));
                let fault = &self.inner.faults[number];
                let concerned = fault.pid.map_or(0..processes, |pid| pid..pid + 1);
                concerned.for_each(|pid| director.note_input(pid, ("fault", now, number)));
                drop(core);
                (fault.begin)(self);
            }
        }
    }
}

impl Core {
    /// The next moves, in the order of their places; the faults are the last ones.
    fn moves(
        &self,
        director: &mut Director,
        faults: &[PossibleFault],
        now: Nanos,
    ) -> Vec<(Place, Move)> {
        let mut woken = Vec::new();
        let mut moves = Vec::new();
        for (key, event) in self.queue.range(..=(now, u64::MAX)) {
            if let Event::Wake(pid, _) = event
                && !woken.contains(pid)
            {
                woken.push(*pid);
                moves.push((Place::Timer(*pid), Move::Wake(*key)));
            }
        }
        let heads = director.queues.iter().filter_map(|(of, queue)| Some((*of, queue.front()?)));
        moves.extend(heads.map(|((id, direction), segment)| {
            let (pid, number) = self.network.number_of(id);
            let place = match direction {
                Direction::ToServer => Place::Server(pid, number, Request::of(segment)),
                Direction::ToClient => Place::Client(pid, number),
            };
            (place, Move::Arrive(id, direction))
        }));
        moves.sort_by_key(|(place, _)| *place);
        if director.budget == 0 || now >= self.disturbances.peace_at {
            return moves;
        }
        if moves.is_empty() && mem::take(&mut director.is_stirred) {
            moves.push((Place::World, Move::Time));
        }
        if !moves.is_empty() {
            let possible = faults.iter().enumerate().filter(|(_, fault)| (fault.applies)(self));
            moves.extend(possible.map(|(number, _)| (Place::World, Move::Fault(number))));
        }
        moves
    }

    /// A hash of the state: see the head of this file.
    fn state(&self, director: &mut Director, now: Nanos) -> u64 {
        let mut hasher = DefaultHasher::new();
        let followed = director.follower.as_mut().map(|of| of.follow(&self.history.records));
        followed.hash(&mut hasher);
        (now, director.past, director.budget, &director.inputs).hash(&mut hasher);
        let _ = write!(Text(&mut hasher), "{:?}", self.ensemble());
        let mut connections = Vec::new();
        for (id, connection) in self.network.connections.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            self.network.number_of(id).hash(&mut hasher);
            let _ = write!(Text(&mut hasher), "{:?}", Shown(connection));
            for direction in [Direction::ToServer, Direction::ToClient] {
                let queue = director.queues.get(&(id, direction));
                let _ = write!(Text(&mut hasher), "{queue:?}");
                direction.hash(&mut hasher);
            }
            connections.push(hasher.finish());
        }
        // Their numbers in the world depend on the order in which different processes connect.
        connections.sort_unstable();
        connections.hash(&mut hasher);
        hasher.finish()
    }
}

/// The state of a connection that does not follow from the inputs of its process.
struct Shown<'a>(&'a Connection);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(c) = self;
        let pipes = [&c.to_server, &c.to_client].map(|pipe| (pipe.is_broken, &pipe.stalled));
        let ends = (c.member, c.server, c.state, c.inbox_end, c.is_dropped, c.is_severed);
        write!(f, "{pipes:?} {ends:?}")
    }
}

/// Hashes a text while it is written.
struct Text<'a>(&'a mut DefaultHasher);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
