//! Each request is a span at level TRACE, with its operation, path and xid.

use ::tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};
use docent_testing::fault::Fault;
use std::{collections::BTreeMap, sync::Mutex};

use super::*;

/// The target of the spans and of their events.
const TARGET: &str = "docent::request";

/// A line for each span of a request, and for each of its events.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    last: u64,
    spans: BTreeMap<u64, String>,
    lines: Vec<String>,
}

impl Requests {
    /// Begins to collect, until the guards are dropped; see [`Traced`](crate::support::traced::Traced).
    fn start() -> (Self, impl Sized) {
        let requests = Self::default();
        let second = Dispatch::new(requests.clone());
        let guard = ::tracing::subscriber::set_default(requests.clone());
        (requests, (guard, second))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().lines)
    }

    fn open(&self) -> usize {
        self.0.lock().unwrap().spans.len()
    }
}

impl Subscriber for Requests {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET && *metadata.level() == Level::TRACE
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut state = self.0.lock().unwrap();
        state.last += 1;
        let id = state.last;
        state.spans.insert(id, format!("{}{}", attributes.metadata().name(), fields.0));
        span::Id::from_u64(id)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut state = self.0.lock().unwrap();
        let parent = event.parent().map(span::Id::into_u64);
        let span = parent.and_then(|id| state.spans.get(&id)).cloned().unwrap_or_default();
        state.lines.push(format!("{span}:{}", fields.0));
    }

    fn try_close(&self, id: span::Id) -> bool {
        self.0.lock().unwrap().spans.remove(&id.into_u64());
        true
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The fields, as ` name=value`.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &match field.name() {
            "message" => format!(" {value:?}"),
            name => format!(" {name}={value:?}"),
        };
    }
}

#[tokio::test]
async fn each_request_is_a_span_with_its_operation_path_and_xid() {
    let (requests, _guard) = Requests::start();
    let fixture = Fixture::embedded().await;
    let root = fixture.observer().await;
    root.create("/app", b"", CreateMode::Persistent).await.unwrap();
    assert_eq!(requests.take(), ["request op=create path=\"/app\" xid=1: reply"]);
    // The path is the caller's, without the chroot.
    let client = root.with_chroot("/app").unwrap();
    client.create("/a", b"", CreateMode::Persistent).await.unwrap();
    let (_, watcher) = client.get_data_and_watch("/a").await.unwrap();
    client.get_data("/none").await.unwrap_err();
    drop(client.exists("/a"));
    let lines = requests.take();
    assert_eq!(
        lines,
        [
            "request op=create path=\"/a\" xid=2: reply",
            "request op=getData path=\"/a\" xid=3: reply",
            "request op=getData path=\"/none\" xid=4: failed error=no such node",
            "request op=exists path=\"/a\" xid=5: dropped by the caller",
        ]
    );
    // The request is refused before it is queued, so it has no xid.
    drop(watcher);
    client.close().await.unwrap();
    let _ = requests.take();
    client.get_data("/a").await.unwrap_err();
    let lines = requests.take();
    assert!(lines[0].starts_with("request op=getData path=\"/a\": failed"), "{lines:?}");
    assert_eq!(requests.open(), 0, "spans stay open");
}

#[tokio::test]
async fn a_lost_reply_is_in_the_span() {
    let (requests, _guard) = Requests::start();
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    fixture.tap.inject(Fault::drop_reply(OpCode::Create));
    client.create("/a", b"", CreateMode::Persistent).await.unwrap_err();
    let lines = requests.take();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("xid=1: failed error="), "{line}");
    assert!(line.contains("may have been applied"), "{line}");
}
