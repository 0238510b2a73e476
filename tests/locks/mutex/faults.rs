//! `InterProcessMutex` under faults: each test checks one rule, on a server behind a tap.

use std::{process::Command, time::Duration};

use docent::{
    Client, Config, ConnectionState, CreateOptions, Error, ErrorKind, OpCode,
    locks::{InterProcessMutex, LockGuard, Owner},
};
use docent_testing::{TestingServer, fault::Fault, tap::TapClient};

use crate::{
    Fixture, mutex, options,
    support::{
        DEADLINE, eventually,
        peer::{Options, Peer, Side},
        reaches, within_deadline,
    },
};

on_both_servers! {
    a_node_found_after_a_lost_reply_has_its_fencing_token
    a_lost_listing_is_repeated_and_the_node_is_kept
    a_predecessor_deleted_before_it_is_watched_makes_the_waiter_list_again
    an_owner_enters_again_and_others_do_not
    a_hold_survives_a_cut_connection
    a_place_in_the_queue_survives_a_cut_connection
    a_killed_session_ends_the_hold_for_ever
    a_hold_ends_by_the_clock_when_the_server_is_silent
    lock_data_over_the_limit_is_refused_before_it_is_sent
    a_closed_client_acquires_nothing_and_wakes_its_waiters
    an_acl_without_create_permission_fails_the_acquire
    a_stopped_process_does_not_count_its_lock_as_held
}

/// A mutex, with its client and that client of the tap.
struct Contender {
    client: Client,
    tap: TapClient,
    mutex: InterProcessMutex,
}

async fn contender(fixture: &Fixture, label: &str) -> Contender {
    let (client, tap) = fixture.client(label).await;
    let mutex = mutex(fixture, &client);
    Contender { client, tap, mutex }
}

async fn participants(contender: &Contender, count: usize) -> Vec<String> {
    eventually(&format!("{count} participants"), async || {
        Some(contender.mutex.participants().await.unwrap()).filter(|all| all.len() == count)
    })
    .await
}

impl Contender {
    async fn acquire(&self) -> LockGuard {
        within_deadline("acquire", self.mutex.acquire()).await.unwrap()
    }

    fn spawn_acquire(&self) -> tokio::task::JoinHandle<Result<LockGuard, Error>> {
        let mutex = self.mutex.clone();
        tokio::spawn(async move { mutex.acquire().await })
    }
}

// Lost requests and replies.

/// An adopted node has a fencing token too.
// Case (What broke other clients): a lost create is not found again.
async fn a_node_found_after_a_lost_reply_has_its_fencing_token(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    let first = a.acquire().await;
    let before = first.fencing_token().await.unwrap();
    first.release().await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Create2));
    let guard = a.acquire().await;
    let stat = a.client.exists(guard.path()).await.unwrap().unwrap();
    assert_eq!(guard.fencing_token().await.unwrap(), stat.czxid);
    assert!(stat.czxid > before);
}

async fn a_lost_listing_is_repeated_and_the_node_is_kept(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    a.acquire().await.release().await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::GetChildren2));
    let guard = a.acquire().await;
    assert_eq!(a.mutex.participants().await.unwrap(), [guard.path()]);
}

// The queue.

async fn a_predecessor_deleted_before_it_is_watched_makes_the_waiter_list_again(fixture: Fixture) {
    let (a, b) = (contender(&fixture, "A").await, contender(&fixture, "B").await);
    let guard = a.acquire().await;
    fixture.tap.inject(Fault::delay_request(OpCode::GetData, DEADLINE).of("B"));
    let waiting = b.spawn_acquire();
    fixture.wait_for_frame("B", |record| record.is_request(OpCode::GetData)).await;
    guard.release().await.unwrap();
    fixture.tap.end_delays();
    let second = within_deadline("the second", waiting).await.unwrap().unwrap();
    second.release().await.unwrap();
    assert_eq!(fixture.sequence("B"), "CLWLD");
}

async fn an_owner_enters_again_and_others_do_not(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    let (owner, other) = (Owner::new(), Owner::new());
    let outer = a.mutex.acquire_as(&owner).await.unwrap();
    let inner = a.mutex.acquire_as(&owner).await.unwrap();
    assert_eq!(outer.path(), inner.path());
    let refused = a.mutex.acquire_as_timeout(&other, Duration::ZERO).await.unwrap();
    assert!(refused.is_none());
    outer.release().await.unwrap();
    assert!(inner.is_held() && a.mutex.is_owned_by(&owner), "the inner guard still holds it");
    inner.release().await.unwrap();
    assert!(!a.mutex.is_owned_by(&owner));
    fixture.wait_until_empty().await;
}

// Connections and sessions.

async fn a_hold_survives_a_cut_connection(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    let guard = a.acquire().await;
    let (session, token) = (guard.session_id(), guard.fencing_token().await.unwrap());
    a.tap.cut();
    reaches(&a.client, ConnectionState::Reconnected).await;
    assert!(guard.is_held());
    assert_eq!(a.client.session().unwrap().session_id(), session);
    assert_eq!(a.mutex.participants().await.unwrap(), [guard.path()]);
    let stat = a.client.exists(guard.path()).await.unwrap().unwrap();
    assert_eq!(stat.czxid, token);
    guard.release().await.unwrap();
    fixture.wait_until_empty().await;
}

// Case (What broke other clients): a waiter never wakes after a reconnect.
async fn a_place_in_the_queue_survives_a_cut_connection(fixture: Fixture) {
    let (a, b, c) = (
        contender(&fixture, "A").await,
        contender(&fixture, "B").await,
        contender(&fixture, "C").await,
    );
    let holder = a.acquire().await;
    let second = b.spawn_acquire();
    participants(&a, 2).await;
    let third = c.spawn_acquire();
    let queue = participants(&a, 3).await;
    fixture.wait_for_frame("B", |record| record.is_reply(OpCode::GetData)).await;
    b.tap.cut();
    reaches(&b.client, ConnectionState::Reconnected).await;
    assert_eq!(a.mutex.participants().await.unwrap(), queue);
    holder.release().await.unwrap();
    let second = within_deadline("the second", second).await.unwrap().unwrap();
    assert_eq!(second.path(), queue[1]);
    assert!(!third.is_finished());
    second.release().await.unwrap();
    let third = within_deadline("the third", third).await.unwrap().unwrap();
    third.release().await.unwrap();
}

/// The hold ends before the client has a new session.
// Case (Failure cases, 20): expiry while holding one.
async fn a_killed_session_ends_the_hold_for_ever(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    let guard = a.acquire().await;
    let cancelled = guard.cancellation_token();
    let mut states = a.client.states();
    a.tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("lost", guard.lost()).await;
    assert!(!guard.is_held());
    within_deadline("the token", cancelled.cancelled()).await;
    // The lock can be acquired in the new session; the old guard stays lost.
    let again = a.acquire().await;
    assert!(again.is_held() && !guard.is_held());
    assert_ne!(again.session_id(), guard.session_id());
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};
    for expected in [Connected, Suspended, Lost, Reconnected] {
        assert_eq!(within_deadline("a state", states.next()).await, Some(expected.into()));
    }
    guard.release().await.unwrap();
    again.release().await.unwrap();
    fixture.wait_until_empty().await;
}

/// Without a connection, the hold ends with the deadline of the session's lease.
async fn a_hold_ends_by_the_clock_when_the_server_is_silent(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    let guard = a.acquire().await;
    let deadline = a.client.session().unwrap().deadline();
    a.tap.stall();
    within_deadline("lost", guard.lost()).await;
    assert!(a.client.now() > deadline && !guard.is_held());
    a.tap.resume();
    a.tap.cut();
    within_deadline("a new connection", a.client.wait_until_connected(DEADLINE)).await.unwrap();
    assert!(!guard.is_held(), "a lost guard is held again");
}

/// A process that was stopped compares the clock before it counts the lock as held.
// Case (Failure cases, 28): a process stopped for longer than its session.
async fn a_stopped_process_does_not_count_its_lock_as_held(fixture: Fixture) {
    if !cfg!(unix) {
        return;
    }
    let options = Options { session: Duration::from_secs(4), ..Options::default() };
    let (first, second) = tokio::join!(
        Peer::docent(&fixture.server, options),
        Peer::start(Side::Docent, "second", &fixture.server, options)
    );
    let handle = format!("mutex:{}", fixture.path);
    first.ask(format!("acquire {handle}")).await.ok();
    assert!(first.held(&handle).await);
    let signal = |name: &str| {
        let id = first.process_id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    signal("-STOP");
    // Granted after the server has expired the first session.
    second.ask(format!("acquire {handle}")).await.ok();
    let asked = first.send(format!("held {handle}"));
    signal("-CONT");
    assert_eq!(asked.reply().await.ok(), "false");
    first.event(&format!("lost {handle}")).await;
}

/// Each step begins in time, or right behind the one before: all of them share the second behind the deadline.
// Case (Found in docent itself): with slow replies, each step of a timed acquire took up to a
// second behind its deadline: three steps, 2.7 s.
#[tokio::test]
async fn a_timed_acquire_with_slow_replies_takes_at_most_one_second_more() {
    let fixture = Fixture::embedded().await;
    let (a, b) = (contender(&fixture, "A").await, contender(&fixture, "B").await);
    let guard = a.acquire().await;
    for op in [OpCode::Create2, OpCode::GetChildren2, OpCode::GetData] {
        fixture.tap.inject(Fault::delay_reply(op, Duration::from_millis(900)).of("B"));
    }
    let acquired = b.mutex.acquire_timeout(Duration::ZERO).await;
    assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Unanswered);
    // The second has passed during the second reply: the third step, which would begin after 1.8 s, does not.
    let watches = fixture.tap.trace().of("B").filter(|record| record.is_request(OpCode::GetData));
    assert_eq!(watches.iter().count(), 0);
    fixture.tap.clear_faults();
    participants(&b, 1).await;
    guard.release().await.unwrap();
}

// Dropped futures and guards.

// Invalid input, and closed clients.

#[tokio::test]
async fn a_lock_path_must_be_a_path_and_not_the_root() {
    let config = Config::new("127.0.0.1:1").unwrap();
    let client = config.start().unwrap();
    for (path, rule) in [
        ("", "must not be empty"),
        ("locks", "must begin with a slash"),
        ("/locks/", "must not end with a slash"),
        ("/locks//a", "empty node name"),
        ("/locks/../a", "relative node name"),
        ("/a\0b", "U+0000"),
        ("/", "children of the root"),
    ] {
        let error = InterProcessMutex::new(&client, path).unwrap_err().to_string();
        assert!(error.contains(rule) && error.contains(&format!("{path:?}")), "{path:?}: {error}");
    }
}

async fn lock_data_over_the_limit_is_refused_before_it_is_sent(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    let options = options().with_data(vec![0; 1 << 20]);
    let mutex = InterProcessMutex::with_options(&a.client, &fixture.path, options).unwrap();
    let error = mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RequestTooLarge);
    assert!(error.to_string().contains("1048575"), "{error}");
    assert_eq!(fixture.sequence("A"), "");
}

async fn a_closed_client_acquires_nothing_and_wakes_its_waiters(fixture: Fixture) {
    let (a, b) = (contender(&fixture, "A").await, contender(&fixture, "B").await);
    let _guard = a.acquire().await;
    let waiting = b.spawn_acquire();
    participants(&a, 2).await;
    b.client.close().await.unwrap();
    let error = within_deadline("the waiter", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(b.mutex.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    participants(&a, 1).await;
}

async fn an_acl_without_create_permission_fails_the_acquire(fixture: Fixture) {
    let a = contender(&fixture, "A").await;
    let read_only = docent::acl::READ_ACL_UNSAFE;
    let parent = fixture.path.rsplit_once('/').unwrap().0.to_owned();
    let _ = a.client.create(&parent, b"", docent::CreateMode::Container).await;
    a.client
        .create(
            &fixture.path,
            b"",
            CreateOptions::new(docent::CreateMode::Persistent).with_acl(read_only),
        )
        .await
        .unwrap();
    let error = a.mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
}

/// The listing went with a create that was refused, so it does not have the node of the next one.
#[tokio::test]
async fn a_pipelined_listing_before_the_create_that_counts_is_not_used() {
    let server = TestingServer::start().await.unwrap();
    let fixture = Fixture::on(server.connect_string(), None).await;
    let (client, _tap) = fixture.client("A").await;
    let options = options().with_pipelined_listing();
    let mutex = InterProcessMutex::with_options(&client, &fixture.path, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let before = fixture.tap.len();
    server.throttle(1);
    mutex.acquire().await.unwrap().release().await.unwrap();
    let trace = fixture.tap.trace().since(before);
    let creates = trace.iter().filter(|record| record.is_request(OpCode::Create2)).count();
    assert_eq!(creates, 2, "the refused one, and one that is used");
}
