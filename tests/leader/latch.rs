//! A latch without faults. Tests ported from Curator's `TestLeaderLatch` have the Java name above them.

use docent::{
    leader::CloseMode,
    runtime::{Runtime, Task, Timer, Transport},
};
use std::{
    pin::Pin,
    sync::{Mutex, OnceLock},
};
use tokio::runtime::Handle;

use super::*;

on_both_servers! {
    a_latch_leads_and_has_a_token
    listeners_hear_of_each_change_in_order
    a_dropped_latch_leaves_the_election
    a_closed_latch_refuses_to_wait
    a_participant_that_leaves_after_the_listing_is_left_out
    a_write_of_a_former_leader_is_refused
    a_slow_listener_hears_of_the_end_before_the_next_leadership
}

fn latch(fixture: &Fixture, client: &Client, id: &str) -> LeaderLatch {
    LeaderLatch::start_with(client, &fixture.path, id, options()).unwrap()
}

/// `TestLeaderLatch.testBasic`.
// Case (Leader election and kept nodes): a leadership is a value whose end is known at once, and
// ends before the delete.
async fn a_latch_leads_and_has_a_token(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let latch = latch(&fixture, &a, "idA");
    let leadership = leads(&latch).await;
    assert!(leadership.is_held() && latch.current_leadership().is_some());
    let stat = a.exists(leadership.path()).await.unwrap().unwrap();
    assert_eq!(leadership.fencing_token().await.unwrap(), stat.czxid);
    assert_eq!(leadership.session_id(), stat.ephemeral_owner);
    assert_eq!(latch.our_path().as_deref(), Some(leadership.path()));
    let participants = latch.participants().await.unwrap();
    assert_eq!(participants.len(), 1);
    assert!(participants[0].id == "idA" && participants[0].is_leader);
    assert_eq!(latch.leader().await.unwrap().unwrap().id, "idA");

    let token = leadership.cancellation_token();
    let before = fixture.tap.len();
    let closing = latch.close();
    // The leadership ends in the call itself, before the delete is sent.
    assert!(!leadership.is_held() && token.is_cancelled());
    assert!(latch.current_leadership().is_none());
    within_deadline("the close", closing).await.unwrap();
    fixture.children(&fixture.path, 0).await;
    assert_eq!(fixture.sent("A", before), [OpCode::Delete]);
    assert_eq!(latch.our_path(), None);
}

/// `TestLeaderLatch.testCallbackSanity`, `testCallbackNotifyLeader`, `testCallbackDontNotify`.
async fn listeners_hear_of_each_change_in_order(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    for (mode, hears) in [(CloseMode::NotifyLeader, true), (CloseMode::Silent, false)] {
        let options = options().with_close_mode(mode);
        let latch = LeaderLatch::start_with(&a, &fixture.path, "a", options).unwrap();
        let mut changes = latch.changes();
        assert!(matches!(change(&mut changes).await, Some(LeadershipChange::Leader(_))));
        // A late listener is notified of the present state.
        let mut late = latch.changes();
        assert!(matches!(change(&mut late).await, Some(LeadershipChange::Leader(_))));
        latch.close().await.unwrap();
        if hears {
            assert!(matches!(change(&mut changes).await, Some(LeadershipChange::NotLeader)));
        }
        assert!(change(&mut changes).await.is_none());
    }
}

async fn a_dropped_latch_leaves_the_election(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let first = latch(&fixture, &a, "a");
    let leadership = leads(&first).await;
    let clone = first.clone();
    drop(first);
    assert!(leadership.is_held(), "there is another clone");
    drop(clone);
    assert!(!leadership.is_held());
    fixture.children(&fixture.path, 0).await;
}

/// `TestLeaderLatch.testBasicAlt`.
async fn a_closed_latch_refuses_to_wait(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    let first = latch(&fixture, &a, "a");
    leads(&first).await;
    let second = latch(&fixture, &a, "b");
    let waiting = tokio::spawn({
        let second = second.clone();
        async move { second.leadership().await }
    });
    fixture.children(&fixture.path, 2).await;
    second.close().await.unwrap();
    let error = within_deadline("the end of the wait", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(second.leadership().await.unwrap_err().kind(), ErrorKind::Closed);
    // A second close waits for the same end.
    second.close().await.unwrap();
    // The end of the client ends the latch, and its listeners are notified.
    let mut changes = first.changes();
    assert!(matches!(change(&mut changes).await, Some(LeadershipChange::Leader(_))));
    a.close().await.unwrap();
    assert!(matches!(change(&mut changes).await, Some(LeadershipChange::NotLeader)));
    assert!(change(&mut changes).await.is_none());
    assert_eq!(first.leadership().await.unwrap_err().kind(), ErrorKind::Closed);
}

/// The leader leaves after the listing of the queue, and before the read of its node.
async fn a_participant_that_leaves_after_the_listing_is_left_out(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let first = latch(&fixture, &a, "a");
    leads(&first).await;
    let second = latch(&fixture, &b, "b");
    // It reads the leader's node, too, with a watch.
    has_watches(&b, 1).await;
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::delay_request(OpCode::GetData, DEADLINE).of("B"));
    let (participants, ()) = tokio::join!(second.participants(), async {
        records.until(DEADLINE, request("B", OpCode::GetData)).await.unwrap();
        within_deadline("the close", first.close()).await.unwrap();
        fixture.tap.end_delays();
    });
    let participants = participants.unwrap();
    let participants: Vec<_> = participants.iter().map(|one| (&*one.id, one.is_leader)).collect();
    assert_eq!(participants, [("b", true)]);
}

// Case (Leader election and kept nodes): writes of a former leader.
async fn a_write_of_a_former_leader_is_refused(fixture: Fixture) {
    let (a, _a) = fixture.client("A").await;
    fixture.create_path(&a).await;
    let at = format!("{}/work", fixture.path);
    a.create(&at, b"", CreateMode::Persistent).await.unwrap();
    let first = latch(&fixture, &a, "a");
    let leadership = leads(&first).await;
    leadership.guarded().unwrap().set_data(&at, b"1", None).commit().await.unwrap();
    let mut late = leadership.guarded().unwrap();
    late.set_data(&at, b"2", None);
    first.close().await.unwrap();
    let error = late.commit().await.unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::NoNode, Some(0)));
    assert_eq!(leadership.guarded().unwrap_err().kind(), ErrorKind::LockLost);
    assert_eq!(&*a.get_data(&at).await.unwrap().data, b"1");
}

/// The node is deleted, and the next leadership begins before the listener looks.
async fn a_slow_listener_hears_of_the_end_before_the_next_leadership(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let latch = latch(&fixture, &a, "a");
    let mut changes = latch.changes();
    let Some(LeadershipChange::Leader(first)) = change(&mut changes).await else {
        panic!("no leadership")
    };
    a.delete(first.path(), None).await.unwrap();
    within_deadline("the loss", first.lost()).await;
    let next = leads(&latch).await;
    assert!(matches!(change(&mut changes).await, Some(LeadershipChange::NotLeader)));
    let change = change(&mut changes).await;
    assert!(matches!(&change, Some(LeadershipChange::Leader(one)) if one.epoch() == next.epoch()));
}

/// With several threads, the latch's task may run during the call of `close`: after the end of the leadership, and
/// before the rest.
// Case (Found in docent itself): the close of a latch ended its leadership first; on several
// threads, the task listed the queue before the rest of the close, and a silent close notified its
// listeners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_on_another_thread_sends_only_the_delete_and_is_silent() {
    let fixture = Fixture::embedded().await;
    let (a, _tap) = fixture.client("A").await;
    fixture.create_path(&a).await;
    for round in 0..300 {
        let latch = latch(&fixture, &a, "a");
        let mut changes = latch.changes();
        let first = change(&mut changes).await;
        assert!(matches!(first, Some(LeadershipChange::Leader(_))), "{first:?}");
        let before = fixture.tap.len();
        within_deadline("the close", latch.close_with(CloseMode::Silent)).await.unwrap();
        assert_eq!(fixture.sent("A", before), [OpCode::Delete], "round {round}");
        let other = change(&mut changes).await;
        assert!(other.is_none(), "round {round}: {other:?}");
    }
}

/// A runtime that closes the latch when a task is spawned while the latch has a node. This is the task that renews the
/// bound: it is spawned between the claim of a leadership and its publication.
#[derive(Debug)]
struct ClosesTheLatch {
    handle: Handle,
    latch: Arc<OnceLock<LeaderLatch>>,
    leads_after_close: Mutex<Option<oneshot::Sender<bool>>>,
}

impl Runtime for ClosesTheLatch {
    fn transport(&self) -> Arc<dyn Transport> {
        self.handle.transport()
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        self.handle.timer(after)
    }

    fn spawn(&self, task: Task) {
        Runtime::spawn(&self.handle, task);
        let Some(latch) = self.latch.get().filter(|latch| latch.our_path().is_some()) else {
            return;
        };
        let Some(leads) = self.leads_after_close.lock().unwrap().take() else { return };
        drop(latch.close());
        let latch = latch.clone();
        // Runs after this poll of the latch's task, and before the next one.
        self.handle.spawn(async move {
            leads.send(latch.current_leadership().is_some()).unwrap();
        });
    }
}

/// The leadership is claimed before the close, and would be published after it.
// Case (Found in docent itself): a leadership began after the call of `LeaderLatch::close`, for a
// moment: its claim had passed the check for a close that was not yet there.
#[tokio::test]
async fn no_leadership_begins_after_the_call_of_close() {
    let server = TestingServer::start().await.unwrap();
    let (leads_after_close, leads) = oneshot::channel();
    let shared = Arc::<OnceLock<LeaderLatch>>::default();
    let (handle, latch) = (Handle::current(), Arc::clone(&shared));
    let config = Config::new(&server.connect_string()).unwrap();
    let leads_after_close = Mutex::new(Some(leads_after_close));
    let runtime = ClosesTheLatch { handle, latch, leads_after_close };
    let client = config.with_runtime(runtime).connect().await.unwrap();
    let options = lock_options().with_proven_renewal(Duration::from_secs(3));
    let latch = LeaderLatch::start_with(&client, "/latch", "A", options).unwrap();
    let mut changes = latch.changes();
    shared.set(latch).unwrap();
    assert!(!within_deadline("the close", leads).await.unwrap());
    assert!(change(&mut changes).await.is_none(), "none was reported");
    let latch = shared.get().unwrap();
    within_deadline("the end of the close", latch.close()).await.unwrap();
    assert_eq!(client.get_children("/latch").await.unwrap().len(), 0);
    assert_eq!(latch.last_path_is_leader(), None);
}
