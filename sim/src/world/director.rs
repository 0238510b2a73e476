//! What takes the choices of a directed run, and which moves there are. [`directed`](super::directed) says how such a run goes.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::{Arc, Mutex},
};

use docent::ErrorKind;
use docent_protocol::OpCode;
use docent_testing::server::AppliedChange;

use super::{
    connections::{Direction, Segment},
    history::Record,
    time::{Nanos, Pid, TaskId},
};

/// A choice that was made: its number, and the number of alternatives.
pub(crate) type Choice = (u8, u8);

/// The states that runs of one scope have been in, as hashes.
pub(crate) type KnownStates = Arc<Mutex<HashSet<u64>>>;

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
    pub(super) script: Vec<u8>,
    /// The choices so far. A single move is no choice.
    pub(crate) taken: Vec<Choice>,
    pub(super) known: KnownStates,
    /// The number of faults that may still happen.
    pub(super) budget: usize,
    /// Another rule than those of the checks.
    pub(crate) follower: Option<Box<dyn Follow>>,
    /// The errors, by name, with which calls may end although no fault explains them.
    pub(crate) errors: Vec<String>,
    /// The messages in flight.
    pub(super) queues: BTreeMap<(usize, Direction), VecDeque<Segment>>,
    /// Whether something has happened since a fault was possible without a message in flight.
    pub(super) is_stirred: bool,
    /// The last move, and the places of all that were possible with it.
    pub(super) last: Option<(Place, Vec<Place>)>,
    pub(super) last_polled: (Pid, TaskId),
    numbers: BTreeMap<Pid, u64>,
    /// A hash of the inputs of each process.
    pub(super) inputs: BTreeMap<Pid, u64>,
    /// A hash of the faults, and of the changes that the servers have applied.
    pub(super) past: u64,
    /// Whether moves that commute are tried in both orders.
    pub(crate) leaves_nothing_out: bool,
    /// All states with their moves, if they are wanted: those of the script cost as much as the run.
    pub(crate) path: Option<Vec<(u64, Place)>>,
}

/// Something that may happen next.
#[derive(Clone, Copy)]
pub(super) enum Move {
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
    pub(super) fn of(segment: &Segment) -> Self {
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
    pub(crate) fn new(script: Vec<u8>, known: KnownStates, budget: usize) -> Self {
        Self { script, known, budget, is_stirred: true, ..Self::default() }
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
    pub(super) fn leave_out(&self, moves: &mut Vec<(Place, Move)>) {
        if self.leaves_nothing_out {
            return;
        }
        let Some((last, possible)) = &self.last else { return };
        moves.retain(|(place, _)| {
            !(place < last && place.commutes_with(*last) && possible.contains(place))
        });
    }

    /// Takes the next choice of the script, or the first one.
    pub(super) fn choose(&mut self, count: usize) -> usize {
        if count == 1 {
            return 0;
        }
        let count = u8::try_from(count).expect("a scope has fewer moves at once");
        let choice = self.script.get(self.taken.len()).copied().unwrap_or(0) % count;
        self.taken.push((choice, count));
        usize::from(choice)
    }
}

pub(super) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
