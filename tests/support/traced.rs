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

/// The fields of an event, as text.
#[derive(Default)]
pub struct Fields(pub BTreeMap<&'static str, String>);

impl Visit for Fields {
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
}

impl Traced {
    /// Begins to collect, until the guards are dropped.
    pub fn start(level: Level, target: &'static str) -> (Self, impl Sized) {
        let traced = Self { level, target, events: Arc::default() };
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
}

impl Subscriber for Traced {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().contains(self.target) && *metadata.level() == self.level
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.events.lock().unwrap().push(fields);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
