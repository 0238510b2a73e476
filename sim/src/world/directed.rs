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
    collections::{BTreeMap, HashSet, VecDeque},
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    sync::{Arc, Mutex},
};

use docent::ErrorKind;
use docent_protocol::OpCode;
use docent_testing::server::AppliedChange;

use super::{
    World,
    connections::{Arrival, Connection, Direction, Segment},
    core::{Core, Event, TaskId},
    history::Record,
    lock::lock,
    time::{Nanos, Pid},
};

/// A choice that was made: its number, and the number of alternatives.
pub(crate) type Choice = (u8, u8);

/// The states that runs of one scope have been in, as hashes.
pub(crate) type KnownStates = Arc<Mutex<HashSet<u64>>>;

/// A fault that may happen at any point.
pub(crate) struct PossibleFault {
    /// The process that it concerns; `None`: all.
    pub(crate) pid: Option<Pid>,
    /// Whether it would have an effect now.
    pub(crate) applies: Box<dyn Fn(&Core) -> bool + Send + Sync>,
    pub(crate) begin: Box<dyn Fn(&World) + Send + Sync>,
}

/// Compares the history of a run with a specification.
pub(crate) trait Follow: Send {
    /// Compares the records that are new. Returns a hash of all that they decide about those that follow.
    fn follow(&mut self, records: &[Record]) -> u64;

    /// The first record that is no step of the specification.
    fn refused(&self) -> Option<&str>;
}

/// Takes the choices of one run.
#[derive(Default)]
pub(crate) struct Director {
    script: Vec<u8>,
    /// The choices so far. A single move is no choice.
    pub(crate) taken: Vec<Choice>,
    known: KnownStates,
    faults: Arc<Vec<PossibleFault>>,
    /// The number of faults that may still happen.
    budget: usize,
    /// Another rule than those of the checks.
    pub(crate) follower: Option<Box<dyn Follow>>,
    /// The errors, by name, with which calls may end although no fault explains them.
    pub(crate) errors: Vec<String>,
    /// The messages in flight.
    queues: BTreeMap<(usize, Direction), VecDeque<Segment>>,
    /// Whether something has happened since a fault was possible without a message in flight.
    is_stirred: bool,
    /// The last move, and the places of all that were possible with it.
    last: Option<(Place, Vec<Place>)>,
    last_polled: (Pid, TaskId),
    numbers: BTreeMap<Pid, u64>,
    /// A hash of the inputs of each process.
    inputs: BTreeMap<Pid, u64>,
    /// A hash of the faults, and of the changes that the servers have applied.
    past: u64,
    /// Whether moves that commute are tried in both orders.
    pub(crate) leaves_nothing_out: bool,
    /// All states with their moves, if they are wanted: those of the script cost as much as the run.
    pub(crate) path: Option<Vec<(u64, Place)>>,
}

/// Something that may happen next.
#[derive(Clone, Copy)]
enum Move {
    Wake((Nanos, u64)),
    Arrive(usize, Direction),
    Time,
    Fault(usize),
}

/// What a move concerns. Unlike a [`Move`], it does not depend on the order in which different processes connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A request arrives on a process's connection of this number.
    Server(Pid, usize, Request),
    /// Something arrives at a process, on its connection of this number.
    Client(Pid, usize),
    /// A timer of a process is due.
    Timer(Pid),
    /// Everything: it commutes with nothing.
    World,
}

/// How a request changes the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    /// It connects, which nothing but the number of the connection depends on.
    Connect,
    /// It changes nothing but the state of its own connection.
    Read,
    Write,
}

impl Request {
    fn of(segment: &Segment) -> Self {
        const READS: [OpCode; 5] = [
            OpCode::Ping,
            OpCode::Exists,
            OpCode::GetData,
            OpCode::GetChildren,
            OpCode::GetChildren2,
        ];
        let Segment::Data(data) = segment else {
            let connects = matches!(segment, Segment::Connect);
            return if connects { Self::Connect } else { Self::Write };
        };
        let mut rest = &data[..];
        while let Some((length, frame)) = rest.split_first_chunk() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            // The xid, and the operation. A connect request has neither, and begins with 0.
            let number = |at: usize| Some(i32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
            let is_read = READS.iter().any(|of| number(4) == Some(i32::from(*of)));
            match frame.get(length..) {
                Some(behind) if is_read && number(0) != Some(0) => rest = behind,
                _ => return Self::Write,
            }
        }
        if rest.is_empty() { Self::Read } else { Self::Write }
    }
}

impl Place {
    fn commutes_with(self, other: Self) -> bool {
        use Request::{Connect, Read};
        match (self, other) {
            (Self::World, _) | (_, Self::World) => false,
            (Self::Server(.., one), Self::Server(.., other)) => {
                matches!((one, other), (Read, Read)) || (one == Connect) != (other == Connect)
            }
            (Self::Server(..), _) | (_, Self::Server(..)) => true,
            (
                Self::Client(one, _) | Self::Timer(one),
                Self::Client(other, _) | Self::Timer(other),
            ) => one != other,
        }
    }
}

/// What a director has done.
pub(super) enum Directed {
    /// Nothing: there is no move, and time may go on. Also in a run without director.
    Nothing,
    /// A move.
    Moved,
    /// Another run has been in this state.
    Known,
}

impl Director {
    pub(crate) fn new(
        script: Vec<u8>,
        known: KnownStates,
        faults: Arc<Vec<PossibleFault>>,
        budget: usize,
    ) -> Self {
        Self { script, known, faults, budget, is_stirred: true, ..Self::default() }
    }

    /// Whether the scope says that calls may end with this error.
    pub(super) fn expects(&self, kind: ErrorKind) -> bool {
        self.errors.contains(&format!("{kind:?}"))
    }

    pub(super) fn send(&mut self, connection: usize, direction: Direction, segment: Segment) {
        self.queues.entry((connection, direction)).or_default().push_back(segment);
    }

    /// The next of the ready tasks of a process: each has its turn.
    pub(super) fn next_task(
        &mut self,
        pid: Pid,
        ready: impl Iterator<Item = TaskId> + Clone,
    ) -> Option<TaskId> {
        let later = ready.clone().filter(|id| (pid, *id) > self.last_polled).min();
        let next = later.filter(|_| pid == self.last_polled.0).or_else(|| ready.min())?;
        self.last_polled = (pid, next);
        Some(next)
    }

    /// A number that depends on its process only.
    pub(super) fn next_number(&mut self, pid: Option<Pid>) -> u64 {
        let place = pid.map_or(0, |pid| pid + 1);
        let number = self.numbers.entry(place).or_default();
        *number += 1;
        *number * 64 + place as u64
    }

    /// Notes an input of a process.
    pub(super) fn note_input(&mut self, pid: Pid, input: impl Hash) {
        let inputs = self.inputs.entry(pid).or_default();
        *inputs = hash((*inputs, input));
    }

    /// Notes what the servers have applied.
    pub(super) fn note_changes(&mut self, now: Nanos, changes: &[AppliedChange]) {
        for change in changes {
            let (path, event) = (&change.path, format!("{:?}", change.event_type));
            self.past = hash((self.past, now, change.zxid, path, event));
        }
    }

    /// Leaves out the moves that come before the last one in another order.
    fn leave_out(&self, moves: &mut Vec<(Place, Move)>) {
        if self.leaves_nothing_out {
            return;
        }
        let Some((last, possible)) = &self.last else { return };
        moves.retain(|(place, _)| {
            !(place < last && place.commutes_with(*last) && possible.contains(place))
        });
    }

    /// Takes the next choice of the script, or the first one.
    fn choose(&mut self, count: usize) -> usize {
        if count == 1 {
            return 0;
        }
        let count = u8::try_from(count).expect("a scope has fewer moves at once");
        let choice = self.script.get(self.taken.len()).copied().unwrap_or(0) % count;
        self.taken.push((choice, count));
        usize::from(choice)
    }
}

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
        let mut moves = if first.is_some() { Vec::new() } else { core.moves(&mut director, now) };
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
                let faults = Arc::clone(&director.faults);
                let concerned = faults[number].pid.map_or(0..processes, |pid| pid..pid + 1);
                concerned.for_each(|pid| director.note_input(pid, ("fault", now, number)));
                drop(core);
                (faults[number].begin)(self);
            }
        }
    }
}

impl Core {
    /// The next moves, in the order of their places; the faults are the last ones.
    fn moves(&self, director: &mut Director, now: Nanos) -> Vec<(Place, Move)> {
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
            let faults = director.faults.iter().enumerate();
            let possible = faults.filter(|(_, fault)| (fault.applies)(self));
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

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
