//! A hand-off wakes exactly one waiter.

use super::*;

on_both_servers! {
    a_hand_off_wakes_one_of_a_thousand_waiters
}

const WAITERS: usize = 1000;
const HAND_OFFS: usize = 20;

async fn a_hand_off_wakes_one_of_a_thousand_waiters(fixture: Fixture) {
    let tap = fixture.tap.client("A").await.unwrap();
    // A thousand listings of a thousand names keep a debug build busy.
    let config = Config::new(&tap.connect_string()).unwrap().with_session_timeout(ms(30_000));
    let client = config.connect().await.unwrap();
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
        let waiting = async || (pending_and_watches(&client) == (0, waiters.len())).then_some(());
        eventually("every waiter waits", waiting).await;
    }
    let before = fixture.tap.len();
    for _ in 0..HAND_OFFS {
        holder.release().await.unwrap();
        holder = within_deadline("the next holder", next.recv()).await.unwrap();
    }
    let trace = fixture.tap.trace().since(before);
    let count = |wanted: &dyn Fn(&docent_testing::tap::Record) -> bool| {
        trace.iter().filter(|record| wanted(record)).count()
    };
    let event = |record: &docent_testing::tap::Record| {
        record.path().is_some_and(|path| record.is_event(EventType::NodeDeleted, path))
    };
    assert_eq!(count(&event), HAND_OFFS, "one event a hand-off");
    assert_eq!(count(&|r| r.is_request(OpCode::GetChildren2)), HAND_OFFS, "one listing each");
    assert_eq!(count(&|r| r.is_request(OpCode::GetData)), 0, "no new watch");
    for waiter in waiters {
        waiter.abort();
    }
    drop((holder, next));
    client.close().await.unwrap();
}
