//! The step of `LockInternals` that sent a frame, compared with the steps that the library traces. What a client believes
//! from there on is in the traced events alone.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, Once, PoisonError},
    time::Instant,
};

use docent_protocol::ErrorCode;
use docent_steps::{Frame, Recognizer};
use docent_testing::tap::{Field, Record, Tap, Value, What};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::by_hand;
use crate::support::traced::Fields;

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
    pub(super) client: String,
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

/// The step that sends a request, or that an event wakes.
pub(super) fn step(steps: &mut Recognizer<String>, record: &Record) -> Option<u64> {
    let path = record.path().unwrap_or_default();
    let parts = parts(record);
    let frame = match &record.what {
        What::Request { op, fields, .. } => {
            Frame::Request { op: op.name()?, path, watches: watches(fields), parts: &parts }
        }
        What::Reply { op: Some(op), err, .. } => {
            Frame::Reply { op: op.name()?, is_no_node: *err == ErrorCode::NoNode }
        }
        What::Event { path, .. } => Frame::Event { path },
        _ => return None,
    };
    steps.step(&record.client.to_string(), frame)?.number.map(u64::from)
}

/// Compares the traced steps of locks with those of the frames.
pub(super) fn verify(shown: &BTreeSet<u64>, traced: &[Traced], is_lock: impl Fn(&str) -> bool) {
    let traced: BTreeSet<_> =
        traced.iter().filter(|it| is_lock(&it.path)).filter_map(|it| it.step).collect();
    // No frame shows the decision, nor that a waiter is woken by the clock.
    let without_frame = BTreeSet::from([6, 8]);
    let missing = traced.difference(shown).any(|step| !without_frame.contains(step));
    // A dropped acquire leaves the queue in the background, which no event traces.
    let wrong = shown.difference(&traced).any(|step| *step != 9);
    assert!(!missing && !wrong, "traced {traced:?}, shown {shown:?}");
}

/// The operations and paths of a multi.
fn parts(record: &Record) -> Vec<(&str, &str)> {
    let What::Request { fields, .. } = &record.what else { return Vec::new() };
    let multis = fields.iter().filter_map(|field| match &field.value {
        Value::Multi(parts) => Some(parts),
        _ => None,
    });
    let parts = multis.flatten().map(|(op, _, fields)| {
        let path = fields.iter().find_map(|field| match &field.value {
            Value::Path(path) => Some(path.as_str()),
            _ => None,
        });
        (op.as_str(), path.unwrap_or_default())
    });
    parts.collect()
}

fn watches(fields: &[Field]) -> bool {
    fields.iter().any(|field| field.name == "watch" && field.value == Value::Bool(true))
}
