//! A hand-off wakes exactly one waiter.

use super::*;

on_both_servers! {
    a_hand_off_wakes_one_of_a_thousand_waiters
}

const WAITERS: usize = 1000;
const HAND_OFFS: usize = 20;

async fn a_hand_off_wakes_one_of_a_thousand_waiters(fixture: Fixture) {
    // A thousand listings of a thousand names keep a debug build busy.
    let session = |config: Config| config.with_session_timeout(ms(30_000));
    let (client, _tap) = fixture.client_with("A", session).await;
    // A lock object for each waiter: a release wakes all waiters of its own object, as in Curator.
    let mutex = || mutex(&fixture, &client);
    let mut holder = mutex().acquire().await.unwrap();
    let (granted, mut next) = tokio::sync::mpsc::unbounded_channel();
    let mut waiters = Vec::new();
    while waiters.len() < WAITERS {
        waiters.extend((0..WAITERS / 10).map(|_| {
            let (mutex, granted) = (mutex(), granted.clone());
            tokio::spawn(async move {
                let _ = granted.send(mutex.acquire().await.unwrap());
            })
        }));
        // In batches, so that a slow machine has a deadline for each.
        has_watches(&client, waiters.len()).await;
    }
    let before = fixture.tap.len();
    for _ in 0..HAND_OFFS {
        holder.release().await.unwrap();
        holder = within_deadline("the next holder", next.recv()).await.unwrap();
    }
    let is_event = |record: &Record| {
        record.path().is_some_and(|path| record.is_event(EventType::NodeDeleted, path))
    };
    let events = fixture.tap.trace().since(before).filter(is_event);
    assert_eq!(events.iter().count(), HAND_OFFS, "one event for each");
    assert_eq!(fixture.requests(before, OpCode::GetChildren2), HAND_OFFS, "one listing for each");
    assert_eq!(fixture.requests(before, OpCode::GetData), 0, "no new watch");
    for waiter in waiters {
        waiter.abort();
    }
    drop((holder, next));
    client.close().await.unwrap();
}
