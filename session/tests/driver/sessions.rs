//! A session over several connections: kept, expired, moved, refused; and the events of its watches.

use super::*;
use crate::support::*;

/// A session timeout without a limit does not overflow.
#[tokio::test(start_paused = true)]
async fn settings_at_their_limits_are_no_panic() {
    let (dialer, mut net) = net();
    let config =
        config().with_session_timeout(Duration::MAX).with_connection_timeout(Duration::MAX);
    let client = start(config, dialer);
    let mut conn = net.accept().await;
    assert_eq!(conn.handshake().await.time_out, i32::MAX);
    conn.grant(7, i32::MAX).await;
    within_limit("a session", client.wait_until_connected(Duration::MAX)).await.unwrap();
    drop(conn);
    let _ = net.serve(7).await;
}

/// A watcher that is not polled delays no other, keeps a limited number of events, and reports that it dropped some.
// Case (Pitfalls of the wire, 39): a consumer that does not look.
// Case (Failure cases, 17): a consumer that does not look.
#[tokio::test(start_paused = true)]
async fn an_unread_watcher_keeps_a_limited_number_of_events_and_reports_the_loss() {
    let config = config().with_max_watch_events(10);
    let (client, mut conn, _net) = connected_with(config, 6000).await;
    let mut watcher = watch(&client, &mut conn, "/a", AddWatchMode::Persistent).await;
    for _ in 0..10_005 {
        conn.event(EventType::NodeDataChanged, "/a").await;
    }
    read(&client, &mut conn, "/b").await;
    let first = within_limit("the marker", watcher.next()).await.unwrap();
    assert!(first.is_resync() && !first.is_end(), "{first:?}");
    let mut kept = 0;
    while let Some(event) = watcher.try_next() {
        assert_eq!(event.event_type, EventType::NodeDataChanged);
        kept += 1;
    }
    assert!((1..10).contains(&kept), "{kept}");
}

/// A resync names the watched path, whichever node the dropped event was about.
// Case (Found in docent itself): the resync after dropped events named the node of the last of
// them.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_has_missed_events_names_its_own_path() {
    let config =
        config().with_max_watch_events(2).with_connect_string("one:1/app".parse().unwrap());
    let (client, mut conn, _net) = connected_with(config, 6000).await;
    let mut watcher = watch(&client, &mut conn, "/a", AddWatchMode::PersistentRecursive).await;
    for number in 0..3 {
        conn.event(EventType::NodeCreated, &format!("/app/a/{number}")).await;
    }
    read(&client, &mut conn, "/b").await;
    let marker = watcher.try_next().unwrap();
    assert!(marker.is_resync() && &*marker.path == "/a", "{marker:?}");
    let event = watcher.try_next().unwrap();
    assert!(&*event.path == "/a/2" && watcher.try_next().is_none(), "{event:?}");
}

/// An addWatch reply without its four bytes (ClickHouse#98499), and the watch given back on drop.
// Case (Pitfalls of the wire, 4): addWatch is answered with four bytes, or none.
#[tokio::test(start_paused = true)]
async fn a_persistent_watch_is_given_back_when_it_is_dropped() {
    let (client, mut conn, _net) = connected().await;
    let call = client.add_watch("/a", AddWatchMode::Persistent);
    conn.reply_next(5, ErrorCode::Ok, &[]).await;
    let watcher = within_limit("the watch", call).await.unwrap();
    assert_eq!(pending_and_watches(&client), (0, 1));
    drop(watcher);
    // Before its reply too.
    drop(client.add_watch("/c", AddWatchMode::Persistent));
    for name in ["RemoveWatches", "AddWatch", "RemoveWatches"] {
        let (xid, request) = conn.request().await;
        assert!(request.contains(name), "{request}");
        conn.reply(xid, 5, ErrorCode::Ok, &[]).await;
    }
    let call = client.add_watch("/b", AddWatchMode::Persistent);
    conn.reply_next(5, ErrorCode::Ok, &[]).await;
    within_limit("the watch", call).await.unwrap().forget();
    let call = client.get_data("/next");
    assert!(conn.request().await.1.contains("/next"), "forgetting sends nothing");
    drop(call);
}

// Case (Found in docent itself): a watcher that had delivered its event waited for ever when the
// client ended.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_has_delivered_its_event_has_ended() {
    let (client, mut conn, _net) = connected().await;
    let call = client.get_data_and_watch("/a");
    conn.answer_data(b"").await;
    let (_, mut watcher) = within_limit("the read", call).await.unwrap();
    conn.event(EventType::NodeDataChanged, "/a").await;
    let event = within_limit("the event", watcher.next()).await.unwrap();
    assert_eq!(event.event_type, EventType::NodeDataChanged);
    assert_eq!(within_limit("the end", watcher.next()).await, None);
}
