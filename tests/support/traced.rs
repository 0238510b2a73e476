//! The `tracing` events on the thread of a test.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// The fields of an event and of the span that is its parent, as text.
#[derive(Default, Clone)]
pub struct Fields(pub BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Collects the events of a level whose target contains a given text.
#[derive(Clone)]
pub struct Traced {
    level: Level,
    target: &'static str,
    events: Arc<Mutex<Vec<Fields>>>,
    spans: Arc<Mutex<Spans>>,
}

#[derive(Default)]
struct Spans {
    last: u64,
    open: BTreeMap<u64, Fields>,
}

impl Traced {
    /// Begins to collect, until the guards are dropped.
    pub fn start(level: Level, target: &'static str) -> (Self, impl Sized) {
        let traced = Self { level, target, events: Arc::default(), spans: Arc::default() };
        // With a single subscriber, `tracing` lets the first thread at a callsite decide whether it is enabled: the
        // thread of another test has no subscriber, and would disable the callsite here too.
        let second = Dispatch::new(traced.clone());
        let guard: DefaultGuard = tracing::subscriber::set_default(traced.clone());
        (traced, (guard, second))
    }

    /// The events since the last call.
    pub fn take(&self) -> Vec<Fields> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// Whether an event that was not taken has this field.
    pub fn has(&self, field: &str, value: &str) -> bool {
        let events = self.events.lock().unwrap();
        events.iter().any(|event| event.0.get(field).is_some_and(|found| found == value))
    }

    /// The number of spans that have not ended.
    pub fn open(&self) -> usize {
        self.spans.lock().unwrap().open.len()
    }
}

impl Subscriber for Traced {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().contains(self.target) && *metadata.level() == self.level
    }

    fn event(&self, event: &Event<'_>) {
        let spans = self.spans.lock().unwrap();
        let parent = event.parent().and_then(|id| spans.open.get(&id.into_u64()));
        let mut fields = parent.cloned().unwrap_or_default();
        event.record(&mut fields);
        self.events.lock().unwrap().push(fields);
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        fields.0.insert("span", attributes.metadata().name().to_owned());
        attributes.record(&mut fields);
        let mut spans = self.spans.lock().unwrap();
        spans.last += 1;
        let id = spans.last;
        spans.open.insert(id, fields);
        span::Id::from_u64(id)
    }

    fn try_close(&self, id: span::Id) -> bool {
        self.spans.lock().unwrap().open.remove(&id.into_u64());
        true
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
