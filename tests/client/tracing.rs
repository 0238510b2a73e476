//! Each request is a span at level TRACE, with its operation, path and xid.

use ::tracing::Level;
use docent_testing::fault::Fault;
use std::collections::BTreeMap;

use super::*;
use crate::support::traced::Traced;

fn start() -> (Traced, impl Sized) {
    Traced::start(Level::TRACE, "docent::request")
}

/// A line for each event of a request, with the fields of its span.
fn lines(requests: &Traced) -> Vec<String> {
    let line = |event: &BTreeMap<&str, String>| {
        let fields = event.iter().map(|(name, value)| format!("{name}={value}"));
        fields.collect::<Vec<_>>().join(" ")
    };
    requests.take().iter().map(|event| line(&event.0)).collect()
}

#[tokio::test]
async fn each_request_is_a_span_with_its_operation_path_and_xid() {
    let (requests, _guard) = start();
    let fixture = Fixture::embedded().await;
    let root = fixture.observer().await;
    root.create("/app", b"", CreateMode::Persistent).await.unwrap();
    assert_eq!(lines(&requests), ["message=reply op=create path=/app span=request xid=1"]);
    // The path is the caller's, without the chroot.
    let client = root.with_chroot("/app").unwrap();
    client.create("/a", b"", CreateMode::Persistent).await.unwrap();
    let (_, watcher) = client.get_data_and_watch("/a").await.unwrap();
    client.get_data("/none").await.unwrap_err();
    drop(client.exists("/a"));
    assert_eq!(
        lines(&requests),
        [
            "message=reply op=create path=/a span=request xid=2",
            "message=reply op=getData path=/a span=request xid=3",
            "error=no such node message=failed op=getData path=/none span=request xid=4",
            "message=dropped by the caller op=exists path=/a span=request xid=5",
        ]
    );
    // The request is refused before it is queued, so it has no xid.
    drop(watcher);
    client.close().await.unwrap();
    let _ = requests.take();
    client.get_data("/a").await.unwrap_err();
    let refused = requests.take();
    let field = |name: &str| refused[0].0.get(name).map(String::as_str);
    let found = ["message", "op", "path", "xid"].map(field);
    assert_eq!(found, [Some("failed"), Some("getData"), Some("/a"), None]);
    assert_eq!(requests.open(), 0, "spans stay open");
}

#[tokio::test]
async fn a_lost_reply_is_in_the_span() {
    let (requests, _guard) = start();
    let fixture = Fixture::embedded().await;
    let (client, _tap) = fixture.client("A").await;
    fixture.tap.inject(Fault::drop_reply(OpCode::Create));
    client.create("/a", b"", CreateMode::Persistent).await.unwrap_err();
    let lines = lines(&requests);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("message=failed ") && line.ends_with(" xid=1"), "{line}");
    assert!(line.contains("may have been applied"), "{line}");
}
