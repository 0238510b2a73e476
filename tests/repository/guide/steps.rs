//! The step of `LockInternals` that sent a frame: read from the frame, and compared with the steps that the library
//! traces.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use docent_protocol::{ErrorCode, OpCode};
use docent_testing::tap::{Field, Record, Value, What};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{self, Visit},
    span,
};

/// A step that a lock has traced, and the path in its event: the lock's for the first three steps, then its node's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Traced {
    step: u64,
    path: String,
}

type Log = Arc<Mutex<Vec<Traced>>>;

/// The steps traced since the last call, in this process. Only one test of this target uses locks itself.
pub(crate) fn take_traced() -> Vec<Traced> {
    static LOG: OnceLock<Log> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Log::default();
        tracing::subscriber::set_global_default(Collector(Arc::clone(&log))).unwrap();
        log
    });
    std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Collector(Log);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("docent_recipes") && *metadata.level() == Level::TRACE
    }

    fn event(&self, event: &Event<'_>) {
        let mut traced = Traced::default();
        event.record(&mut traced);
        if traced.step > 0 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(traced);
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Visit for Traced {
    fn record_i64(&mut self, field: &field::Field, value: i64) {
        if field.name() == "step" {
            self.step = value.try_into().unwrap_or_default();
        }
    }

    fn record_str(&mut self, field: &field::Field, value: &str) {
        if field.name() == "path" {
            value.clone_into(&mut self.path);
        }
    }

    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        if field.name() == "path" {
            self.path = format!("{value:?}").trim_matches('"').to_owned();
        }
    }
}

/// The parts of a name by which a node of `LockInternals` is recognized.
const NAMES: [&str; 3] = ["-lock-", "__READ__", "__WRIT__"];

fn is_lock_node(path: &str) -> bool {
    path.contains("/_c_") && NAMES.iter().any(|name| path.contains(name))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// A lock node, identified by its path without the number.
#[derive(Debug, Clone)]
struct Node {
    client: String,
    /// Its last create failed because the parent was missing.
    lacks_parent: bool,
    deleted: bool,
}

/// The lock nodes of a diagram.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frames {
    nodes: BTreeMap<String, Node>,
    bases: BTreeSet<String>,
    /// The paths of the nodes that have been held.
    held: BTreeSet<String>,
    /// The paths of the nodes that were held before the next frames.
    held_before: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct NewHold {
    pub(crate) client: String,
    pub(crate) lock: String,
}

impl Frames {
    /// Compares the traced steps with those of the next frames, and returns the holds that begin in these frames. The
    /// inner mutex of a semaphore does not count as a hold.
    pub(crate) fn verify_steps<'a>(
        &mut self,
        records: impl Iterator<Item = &'a Record>,
        traced: &[Traced],
    ) -> Vec<NewHold> {
        let decided = traced.iter().filter(|it| it.step == 6 && is_lock_node(&it.path));
        let decided: Vec<_> = decided.map(|it| it.path.clone()).collect();
        self.held_before.clone_from(&self.held);
        self.held.extend(decided.iter().cloned());
        // The rows are made later, from the state before these frames.
        let mut after = self.clone();
        let shown: BTreeSet<_> = records.filter_map(|record| after.step(record)).collect();
        let is_lock = |path: &str| is_lock_node(path) || after.bases.contains(path);
        let traced: BTreeSet<_> =
            traced.iter().filter(|it| is_lock(&it.path)).map(|it| it.step).collect();
        // No frame shows the decision, nor that a waiter is woken by the clock.
        let without_frame = BTreeSet::from([6, 8]);
        let missing = traced.difference(&shown).any(|step| !without_frame.contains(step));
        // A dropped acquire leaves the queue in the background, which no event traces.
        let wrong = shown.difference(&traced).any(|step| *step != 9);
        assert!(!missing && !wrong, "traced {traced:?}, shown {shown:?}");
        let new_holds = decided.iter().filter(|path| !parent(path).ends_with("/locks"));
        new_holds
            .filter_map(|path| {
                let client = after.node(path)?.client.clone();
                Some(NewHold { client, lock: parent(path).to_owned() })
            })
            .collect()
    }

    /// The step that sent a request, or that an event wakes.
    pub(crate) fn step(&mut self, record: &Record) -> Option<u64> {
        let client = &*record.client;
        let path = record.path().unwrap_or_default();
        match &record.what {
            What::Request { op: OpCode::Create2 | OpCode::Create, .. } if is_lock_node(path) => {
                self.bases.insert(parent(path).to_owned());
                let node = Node { client: client.to_owned(), lacks_parent: false, deleted: false };
                Some(match self.nodes.insert(path.to_owned(), node) {
                    None => 1,
                    Some(node) if node.lacks_parent => 2,
                    Some(_) => 3,
                })
            }
            What::Reply { op: Some(OpCode::Create2), err: ErrorCode::NoNode, .. } => {
                let mine = self.nodes.values_mut().filter(|node| node.client == client);
                mine.for_each(|node| node.lacks_parent = true);
                None
            }
            What::Request { op, fields, .. } => {
                let below = format!("{path}/");
                let is_base = self.bases.contains(path);
                let is_parent = is_base || self.bases.iter().any(|it| it.starts_with(&below));
                let is_own = self.node(path).is_some_and(|node| node.client == client);
                match op {
                    OpCode::Exists if is_parent || is_lock_node(path) => Some(2),
                    OpCode::CreateContainer if is_parent => Some(2),
                    OpCode::Sync | OpCode::GetChildren if is_base => Some(3),
                    OpCode::GetChildren2 if is_base => Some(5),
                    OpCode::GetData if is_lock_node(path) && watches(fields) => {
                        match (is_own, self.held_before.contains(path)) {
                            (false, _) => Some(7),
                            (true, false) => Some(4),
                            // The watch is set again after each event.
                            (true, true) => None,
                        }
                    }
                    OpCode::Delete if is_own => {
                        if let Some(node) = self.node_mut(path) {
                            node.deleted = true;
                        }
                        Some(if self.held.contains(path) { 10 } else { 9 })
                    }
                    OpCode::CheckWatches if is_lock_node(path) => Some(10),
                    _ => None,
                }
            }
            What::Event { path, .. } if is_lock_node(path) => {
                self.waits(client, parent(path)).then_some(8)
            }
            _ => None,
        }
    }

    /// Whether a client has a node in the queue of a lock, and did not hold the lock before.
    fn waits(&self, client: &str, base: &str) -> bool {
        self.nodes.iter().any(|(start, node)| {
            let is_held = self.held_before.iter().any(|path| path.starts_with(start));
            node.client == client && parent(start) == base && !node.deleted && !is_held
        })
    }

    fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.iter().find(|(start, _)| path.starts_with(*start)).map(|(_, node)| node)
    }

    fn node_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|(start, _)| path.starts_with(*start)).map(|(_, node)| node)
    }

    /// Whether this request is the first delete of a held node, by its holder. Call it before [`step`](Self::step).
    pub(crate) fn ends_hold(&self, record: &Record) -> bool {
        let path = record.path().unwrap_or_default();
        let is_own = |node: &Node| node.client == *record.client && !node.deleted;
        record.is_request(OpCode::Delete)
            && self.node(path).is_some_and(is_own)
            && self.held.contains(path)
            && !parent(path).ends_with("/locks")
    }
}

fn watches(fields: &[Field]) -> bool {
    fields.iter().any(|field| field.name == "watch" && field.value == Value::Bool(true))
}
