//! Scenes of the chapters on a queue of five waiters and on revocation.

use std::sync::Arc;

use docent::{EventType, locks::Revoker, retry::RetryOneTime};

use super::{
    diagram::Diagram,
    scenes::{has_read, mutex},
    stage::Stage,
};

/// A holds the lock, B to F wait in this order; the scene begins when all of them wait.
pub(super) async fn five_waiters() -> Diagram {
    let mut stage = Stage::new("five-waiters", "Five waiters, and three ways to leave").await;
    let clients: [_; 6] = stage.clients_and(&["/lock"]).await;
    let first = mutex(&clients[0]);
    let guard = stage.hidden_step("A", first.acquire()).await;
    let mut waiting = Vec::new();
    for (name, client) in ["B", "C", "D", "E", "F"].into_iter().zip(&clients[1..]) {
        let mutex = mutex(client);
        waiting.push(tokio::spawn(async move { mutex.acquire().await }));
        stage.hidden_until(name, has_read(name)).await;
    }
    stage.diagram.pause("A works; B, C, D, E and F wait, each for the one before it");
    waiting[2].abort();
    let note = "D gives up, and deletes its node: E is woken, looks, and watches C";
    stage.until("D", note, has_read("E")).await;
    // B's process dies. If it stayed on the stage, its client would wait for a barrier's reply.
    let session = clients[1].session().unwrap().session_id();
    stage.diagram.pause("B is silent for its whole session timeout");
    stage.vanish("B");
    assert!(stage.server.expire_session(session));
    let note = "B's session expires: C is woken, looks, and watches A";
    stage.until("C", note, has_read("C")).await;
    stage.diagram.pause("A works; C, E and F wait");
    let third = waiting.remove(1);
    let hand_over = async {
        guard.release().await?;
        third.await.unwrap()
    };
    let note = "A releases: C is woken, looks, and holds the lock. E and F have not heard of it";
    let third = stage.step("A", note, hand_over).await;
    assert!(third.is_held());
    stage.diagram
}

pub(super) async fn revocation() -> Diagram {
    let mut stage = Stage::new("revocation", "B requests the lock, and A releases it").await;
    let [a, b] = stage.clients_and(&["/lock"]).await;
    let first = mutex(&a);
    let requested = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&requested);
    first.make_revocable(move || notify.notify_one());
    let note = "A acquires a revocable lock: it also watches its own node";
    let guard = stage.step("A", note, first.acquire()).await;
    stage.diagram.pause("A works");
    let revoke = async {
        let policy = RetryOneTime { sleep_between_retry: std::time::Duration::from_millis(10) };
        Revoker::attempt_revoke(&b, &policy, guard.path()).await?;
        requested.notified().await;
        Ok::<_, docent::Error>(())
    };
    let note = "B writes the request into A's node; A's listener is called";
    stage.step("B", note, revoke).await;
    stage.diagram.pause("A finishes its step");
    let path = guard.path().to_owned();
    let release = tokio::spawn(guard.release());
    let remark = "(A releases. Its watch fires at its own delete; A drops the event.)";
    stage.diagram.remark("A", "NodeDeleted", remark);
    stage
        .until("A", "A releases, because it wants to", |record| {
            &*record.client == "A" && record.is_event(EventType::NodeDeleted, &path)
        })
        .await;
    release.await.unwrap().unwrap();
    stage.diagram
}
