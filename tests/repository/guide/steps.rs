//! The step of `LockInternals` that sent a frame: read from the frame, and compared with the steps that the library
//! traces. What a client believes from there on is in the traced events alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, Once, PoisonError},
    time::Instant,
};

use docent_protocol::{ErrorCode, OpCode};
use docent_testing::tap::{Field, Record, Tap, Value, What};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{self, Visit},
    span,
};

use super::by_hand;

/// An event of a lock or an election.
#[derive(Debug, Clone)]
pub(crate) struct Traced {
    /// The number of records before it.
    pub(super) seq: u64,
    pub(super) at: Instant,
    /// The step of `LockInternals`.
    pub(super) step: Option<u64>,
    /// What the client believes of its node from here on: `holds`, `waits`, `over`.
    pub(super) belief: String,
    /// The node that it waits for.
    pub(super) ahead: String,
    /// The seconds for which a hold lasts without another reply; none if the lock asks no clock.
    pub(super) left: Option<String>,
    /// The lock's path in the first three steps, then that of its node.
    pub(super) path: String,
    /// The name of the client, if the path does not say it: of a lock that is made by hand.
    client: String,
}

/// The events since the last call of [`take_traced`], and the tap whose records they are among.
struct Log {
    tap: Option<Arc<Tap>>,
    events: Vec<Traced>,
}

static LOG: Mutex<Log> = Mutex::new(Log { tap: None, events: Vec::new() });

/// Traces all locks of this process from here on, among the records of this tap. Only one test of this target uses locks
/// itself.
pub(crate) fn trace_beside(tap: &Arc<Tap>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Collector).unwrap());
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    *log = Log { tap: Some(Arc::clone(tap)), events: Vec::new() };
}

pub(crate) fn take_traced() -> Vec<Traced> {
    std::mem::take(&mut LOG.lock().unwrap_or_else(PoisonError::into_inner).events)
}

struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_lock = ["docent_recipes", by_hand::TARGET].iter();
        is_lock.clone().any(|target| metadata.target().starts_with(target))
            && *metadata.level() == Level::TRACE
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut field = |name: &str| fields.0.remove(name);
        let (step, belief) = (field("step"), field("belief").unwrap_or_default());
        if step.is_none() && belief.is_empty() {
            return;
        }
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let traced = Traced {
            // A frame is recorded before it is forwarded: those that the client knows are counted.
            seq: log.tap.as_ref().map_or(0, |tap| tap.len()),
            at: Instant::now(),
            step: step.and_then(|step| step.parse().ok()),
            belief,
            ahead: field("ahead").unwrap_or_default(),
            left: field("left_s"),
            path: field("path").unwrap_or_default(),
            client: field("client").unwrap_or_default(),
        };
        log.events.push(traced);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The fields of an event as text.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &field::Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// The parts of a name by which a node of `LockInternals` is recognized.
const NAMES: [&str; 3] = ["-lock-", "__READ__", "__WRIT__"];

pub(super) fn is_lock_node(path: &str) -> bool {
    is_protected(path) && NAMES.iter().any(|name| path.contains(name))
}

/// Whether the path says which client has created the node: lock nodes, and those of elections and leases.
fn is_protected(path: &str) -> bool {
    path.contains("/_c_")
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The node of a client, identified by its path without the number.
#[derive(Debug, Clone)]
struct Node {
    client: String,
    /// Its last create failed because the parent was missing.
    lacks_parent: bool,
    deleted: bool,
}

/// The nodes of a diagram's clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frames {
    nodes: BTreeMap<String, Node>,
    bases: BTreeSet<String>,
    /// The paths of the nodes that have been held.
    held: BTreeSet<String>,
    /// The paths of the nodes that were held before the next frames.
    held_before: BTreeSet<String>,
}

impl Frames {
    /// Compares the traced steps with those of the next frames, and returns the clients of the events.
    pub(crate) fn verify_steps<'a>(
        &mut self,
        records: impl Iterator<Item = &'a Record>,
        traced: &[Traced],
    ) -> Vec<String> {
        let held = traced.iter().filter(|it| it.belief == "holds" && is_lock_node(&it.path));
        self.held_before.clone_from(&self.held);
        self.held.extend(held.map(|it| it.path.clone()));
        // The rows are made later, from the state before these frames.
        let mut after = self.clone();
        let shown: BTreeSet<_> = records.filter_map(|record| after.step(record)).collect();
        let is_lock = |path: &str| is_lock_node(path) || after.bases.contains(path);
        let steps: BTreeSet<_> =
            traced.iter().filter(|it| is_lock(&it.path)).filter_map(|it| it.step).collect();
        // No frame shows the decision, nor that a waiter is woken by the clock.
        let without_frame = BTreeSet::from([6, 8]);
        let missing = steps.difference(&shown).any(|step| !without_frame.contains(step));
        // A dropped acquire leaves the queue in the background, which no event traces.
        let wrong = shown.difference(&steps).any(|step| *step != 9);
        assert!(!missing && !wrong, "traced {steps:?}, shown {shown:?}");
        let client = |it: &Traced| match after.node(&it.path) {
            Some(node) => node.client.clone(),
            None => it.client.clone(),
        };
        traced.iter().map(client).collect()
    }

    /// The step that sent a request, or that an event wakes.
    pub(crate) fn step(&mut self, record: &Record) -> Option<u64> {
        let client = &*record.client;
        let path = record.path().unwrap_or_default();
        match &record.what {
            What::Request { op: OpCode::Create2 | OpCode::Create, .. } if is_protected(path) => {
                let node = Node { client: client.to_owned(), lacks_parent: false, deleted: false };
                let before = self.nodes.insert(path.to_owned(), node);
                is_lock_node(path).then(|| {
                    self.bases.insert(parent(path).to_owned());
                    match before {
                        None => 1,
                        Some(node) if node.lacks_parent => 2,
                        Some(_) => 3,
                    }
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
                        is_lock_node(path).then(|| if self.held.contains(path) { 10 } else { 9 })
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

    /// The client that has created a node.
    pub(super) fn owner(&self, path: &str) -> Option<&str> {
        self.node(path).map(|node| node.client.as_str())
    }

    fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.iter().find(|(start, _)| path.starts_with(*start)).map(|(_, node)| node)
    }

    fn node_mut(&mut self, path: &str) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|(start, _)| path.starts_with(*start)).map(|(_, node)| node)
    }
}

fn watches(fields: &[Field]) -> bool {
    fields.iter().any(|field| field.name == "watch" && field.value == Value::Bool(true))
}
