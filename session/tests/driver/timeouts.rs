//! Time limits of single calls: each kind of future, its outcome, and the request that it leaves.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    task::Poll,
};

use super::*;
use crate::support::*;

const LIMIT: Duration = ms(300);

const LATE: (ErrorKind, Outcome) = (ErrorKind::OperationTimeout, Outcome::Unknown);

/// The future is not polled before the time is over, and needs no timer of its own.
#[tokio::test(start_paused = true)]
async fn each_future_of_a_call_ends_at_its_limit_which_counts_from_the_call() {
    let (client, mut conn, _net) = connected().await;
    let begin = stopwatch();
    let mode = CreateMode::Persistent;
    let mut transaction = client.transaction();
    transaction.create("/a", b"", mode);
    let get = client.get_data("/a").timeout(LIMIT);
    let allowed = client.get_data("/a").timeout(LIMIT).allow(ErrorKind::OperationTimeout);
    let create = client.create("/a", b"", mode).timeout(LIMIT);
    let watch = client.get_data_and_watch("/a").timeout(LIMIT);
    let exists = client.exists_and_watch("/a").timeout(LIMIT);
    let added = client.add_watch("/a", AddWatchMode::Persistent).timeout(LIMIT);
    let commit = transaction.commit().timeout(LIMIT);
    let reads = client.multi_read(&[Read::GetData("/a")]).timeout(LIMIT);
    let auth = client.add_auth("digest", b"u:p").timeout(LIMIT);
    let others = client.get_data("/b");
    let write = client.create_or_set("/a", b"", mode).timeout(LIMIT);
    let (written, ()) = tokio::join!(write, async {
        let mut sent = 0;
        while sent < 11 {
            conn.request().await;
            sent += 1;
        }
    });
    assert_eq!(begin.elapsed(), LIMIT);
    assert_eq!(refusal(written), LATE);
    assert_eq!(refusal(within_limit("get", get).await), LATE);
    assert!(within_limit("an allowed error", allowed).await.unwrap().is_none());
    assert_eq!(refusal(within_limit("create", create).await), LATE);
    assert_eq!(refusal(within_limit("watch", watch).await), LATE);
    assert_eq!(refusal(within_limit("exists", exists).await), LATE);
    assert_eq!(refusal(within_limit("add a watch", added).await), LATE);
    assert_eq!(refusal(within_limit("commit", commit).await), LATE);
    assert_eq!(refusal(within_limit("reads", reads).await), LATE);
    assert_eq!(refusal(within_limit("auth", auth).await), LATE);
    assert!(begin.elapsed() < LIMIT + ms(10));
    drop(others);
}

// Case (Found in docent itself): a call of several requests whose reply arrived with its limit made a further request.
#[tokio::test(start_paused = true)]
async fn no_request_is_made_when_the_limit_has_passed() {
    let (client, mut conn, _net) = connected().await;
    let mut call = client.ensure_path("/a/b", CreateMode::Persistent).timeout(LIMIT);
    let is_pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut call).poll(cx).is_pending()));
    assert!(is_pending.await);
    let (xid, _) = conn.request().await;
    tokio::time::sleep(LIMIT * 2).await;
    conn.reply(xid, 0, ErrorCode::NoNode, &[]).await;
    read(&client, &mut conn, "/next").await;
    assert_eq!(refusal(within_limit("the limit", call).await), LATE);
    assert_eq!(client.metrics().requests, 2);
}

// Case (Found in docent itself): a call of several requests whose limit had passed sent one that waited for a connection;
// its error named neither operation nor path.
#[tokio::test(start_paused = true)]
async fn no_request_of_a_call_is_sent_after_its_limit() {
    let (dialer, mut net) = net();
    let client = start(config(), dialer);
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    let create = client.create("/late/1", b"", options).timeout(LIMIT);
    let ensure = client.ensure_path("/late/2", CreateMode::Persistent).timeout(LIMIT);
    let delete = client.delete_recursive("/late/3").timeout(LIMIT);
    let write = client.create_or_set("/late/4", b"", CreateMode::Persistent).timeout(LIMIT);
    let wait = client.wait_until_exists("/late/5").timeout(LIMIT);
    let dropped = client.get_data("/dropped");
    let (create, ensure, delete, write, wait) = tokio::join!(create, ensure, delete, write, wait);
    for (error, call) in [
        (create.unwrap_err(), "create /late/1: "),
        (ensure.unwrap_err(), "create /late/2: "),
        (delete.unwrap_err(), "delete /late/3: "),
        (write.map(drop).unwrap_err(), "setData /late/4: "),
        (wait.map(drop).unwrap_err(), "exists /late/5: "),
    ] {
        let text = error.to_string();
        assert!(text.starts_with(call), "{text}");
        let limit = "not finished within 300ms, the time limit of the call";
        assert!(text.contains(limit), "{text}");
        assert_eq!((error.kind(), error.outcome()), LATE);
    }
    // A future that is dropped leaves its request.
    drop(dropped);
    let (mut conn, _) = net.serve(7).await;
    assert!(conn.answer_data(b"").await.contains("/dropped"));
    client.wait_until_connected(LONG).await.unwrap();
    let next = client.get_data("/next");
    assert!(conn.answer_data(b"").await.contains("/next"));
    within_limit("the next", next).await.unwrap();
    assert_eq!(pending_and_watches(&client), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_read_was_too_late_is_not_kept() {
    let (client, mut conn, _net) = connected().await;
    let late = client.get_data_and_watch("/a").timeout(LIMIT);
    let (xid, _) = conn.request().await;
    assert_eq!(refusal(within_limit("the limit", late).await), LATE);
    conn.data(xid, b"").await;
    conn.event(EventType::NodeDataChanged, "/a").await;
    read(&client, &mut conn, "/a").await;
    assert_eq!(pending_and_watches(&client), (0, 0));
}

/// All requests of the call have one limit, and none is sent behind it.
#[tokio::test(start_paused = true)]
async fn a_create_with_parents_and_a_wait_have_one_limit() {
    let (client, mut conn, _net) = connected().await;
    let begin = stopwatch();
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    let create = tokio::spawn(client.create("/a/b", b"", options).timeout(LIMIT));
    let (xid, _) = conn.request().await;
    tokio::time::sleep(ms(200)).await;
    conn.reply(xid, 0, ErrorCode::NoNode, &[]).await;
    let (xid, _) = conn.request().await;
    assert_eq!(refusal(within_limit("the limit", create).await.unwrap()), LATE);
    assert_eq!(begin.elapsed(), LIMIT);
    conn.reply(xid, 0, ErrorCode::NoNode, &[]).await;

    let wait = client.wait_until_deleted("/c").timeout(LIMIT);
    let (waited, ()) = tokio::join!(wait, async {
        let (xid, request) = conn.request().await;
        assert!(request.contains("/c"), "a create behind the limit: {request}");
        conn.reply(xid, 0, ErrorCode::Ok, &stat_body()).await;
        conn.reply_next(0, ErrorCode::Ok, &stat_body()).await;
    });
    assert_eq!(refusal(waited), LATE);
}

/// Settings are checked when a client is made of them, before a connection is made.
#[tokio::test(start_paused = true)]
async fn a_setting_that_is_not_allowed_is_named_by_the_connect() {
    let (dialer, net) = net();
    let config = config().with_transport(dialer).with_max_requests(0);
    let named = "max_requests is 0: expected at least 1";
    for error in [
        config.clone().start().unwrap_err(),
        config.clone().connect().await.unwrap_err(),
        Client::connect_with(config).await.unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::InvalidConfig, Outcome::NotApplied)
        );
        assert!(error.to_string().contains(named), "{error}");
    }
    assert!(net.has_no_arrivals());
}
