//! Watchers and connection states as streams of `futures-core`.

use futures_core::{FusedStream, Stream};
use std::{future::poll_fn, pin::Pin};

use super::*;
use crate::support::*;

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    within_limit("the stream", poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx))).await
}

#[tokio::test(start_paused = true)]
async fn a_persistent_watch_is_a_stream_of_its_events_and_its_end() {
    let (client, mut conn, _net) = connected().await;
    let mut watcher = watch(&client, &mut conn, "/a", AddWatchMode::Persistent).await;
    for event_type in [EventType::NodeDeleted, EventType::NodeCreated] {
        conn.event(event_type, "/a").await;
        assert_eq!(next(&mut watcher).await.unwrap().event_type, event_type);
        assert!(!watcher.is_terminated());
    }
    let (end, closed, ()) = tokio::join!(next(&mut watcher), client.close(), conn.confirm_close());
    closed.unwrap();
    assert!(end.unwrap().is_end() && watcher.is_terminated());
    assert_eq!(next(&mut watcher).await, None);
}

#[tokio::test(start_paused = true)]
async fn the_states_are_a_stream_that_ends_with_the_client() {
    let (client, conn, mut net) = connected().await;
    let mut states = client.states();
    assert_eq!(next(&mut states).await, Some(ConnectionState::Connected.into()));
    let (state, ()) = tokio::join!(next(&mut states), async { drop(conn) });
    assert_eq!(state, Some(ConnectionState::Suspended.into()));
    // A future that is dropped while it waits loses nothing, and both ways take turns.
    tokio::time::timeout(ms(0), states.next()).await.unwrap_err();
    let (mut conn, _) = net.serve(7).await;
    assert_eq!(next(&mut states).await, Some(ConnectionState::Reconnected.into()));
    assert!(!states.is_terminated());
    let (state, closed, ()) = tokio::join!(next(&mut states), client.close(), conn.confirm_close());
    closed.unwrap();
    assert_eq!(state, None);
    assert!(states.is_terminated());
    assert_eq!((states.next().await, next(&mut states).await), (None, None));
}
