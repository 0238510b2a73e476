//! Requests that wait for capacity: their order, requests without a waiter, the pace of a server.

use super::*;
use crate::support::*;

fn waiting(max_requests: usize) -> Config {
    config().with_when_full(WhenFull::Wait).with_max_requests(max_requests)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_goes_out_in_its_turn_whether_or_not_its_future_is_kept() {
    let (client, mut conn, _net) = connected_with(waiting(1), 6000).await;
    let first = client.get_data("/1");
    drop(client.get_data("/dropped"));
    let mut polled = Box::pin(client.get_data("/polled"));
    assert!(poll_once(&mut polled).await.is_none(), "answered before it was sent");
    drop(polled);
    let last = client.get_data("/4");
    for expected in ["/1", "/dropped", "/polled", "/4"] {
        let (xid, request) = conn.request().await;
        assert!(request.contains(expected), "{request}");
        conn.data(xid, expected.as_bytes()).await;
    }
    assert_eq!(within_limit("the first", first).await.unwrap().data, "/1");
    assert_eq!(within_limit("the last", last).await.unwrap().data, "/4");
    assert_eq!(client.metrics().refused, 0);
}

/// Polls a future once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

/// One write takes a part of a long burst: the next one follows without anything else to wake the task.
#[tokio::test(start_paused = true)]
async fn a_long_burst_is_written_in_parts() {
    let (client, mut conn, _net) = connected().await;
    let path = format!("/{}", "x".repeat(999));
    let calls: Vec<_> = (0..1000).map(|_| client.get_data(&path)).collect();
    let before = stopwatch();
    for _ in &calls {
        conn.request().await;
    }
    assert_eq!(stopwatch(), before, "no timer was waited for");
}
