//! InterProcessMutex when things go wrong: each test is one rule, on a server behind a tap.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "clippy knows test functions, not what they call"
)]

mod support;

use std::{
    pin::pin,
    process::Command,
    task::{Context, Waker},
    time::Duration,
};

use docent::{
    Client, Config, ConnectionState, ErrorKind,
    protocol::OpCode,
    recipes::{
        Error,
        locks::{InterProcessMutex, LockGuard, LockOptions, Owner},
    },
    session::retry::{RetryForever, RetryNTimes},
};
use docent_testing::{
    fault::Fault,
    tap::{Record, Tap, TapClient},
};
use support::{
    DEADLINE, eventually,
    history::History,
    peer::{Options, Peer, Side},
    real::{RealServer, is_real, server, unique_path},
    within_deadline,
};
use xtask::Settings;

/// A server behind a tap, and a path nobody else uses.
struct Stage {
    tap: Tap,
    server: String,
    path: String,
}

/// A client and its side of the tap.
struct Actor {
    client: Client,
    tap: TapClient,
    mutex: InterProcessMutex,
}

const SESSION: Duration = Duration::from_secs(6);

fn policy() -> LockOptions {
    LockOptions::default().with_retry_policy(RetryNTimes::new(5, Duration::from_millis(100)))
}

impl Stage {
    async fn set() -> Self {
        Self::set_on(server()).await
    }

    async fn set_on(server: String) -> Self {
        let tap = Tap::start(&server).await.unwrap();
        Self { tap, server, path: unique_path("mutex") }
    }

    async fn actor(&self, label: &str) -> Actor {
        let tap = self.tap.client(label).await.unwrap();
        let config = Config::new(&tap.connect_string())
            .unwrap()
            .with_session_timeout(SESSION)
            .with_connection_timeout(Duration::from_secs(5));
        let client = Client::connect_with(config).await.unwrap();
        let mutex = InterProcessMutex::with_options(&client, &self.path, policy()).unwrap();
        Actor { client, tap, mutex }
    }

    /// Waits for a frame of somebody's.
    async fn seen(&self, label: &str, wanted: impl Fn(&Record) -> bool + Send) {
        let of_label = |record: &Record| &*record.client == label && wanted(record);
        self.tap.wait_for(DEADLINE, of_label).await.unwrap();
    }

    /// The operations that somebody sent below the path, as `1.9` of the specification writes them.
    fn sequence(&self, label: &str) -> String {
        let letter = |record: &Record| {
            [
                (OpCode::Create2, "C"),
                (OpCode::GetChildren2, "L"),
                (OpCode::GetData, "W"),
                (OpCode::Delete, "D"),
                (OpCode::GetChildren, "F"),
                (OpCode::CreateContainer, "K"),
                (OpCode::CheckWatches, "X"),
            ]
            .into_iter()
            .find(|(op, _)| record.is_request(*op))
            .map(|(_, letter)| letter)
        };
        self.tap.trace().of(label).iter().filter_map(letter).collect()
    }

    /// Waits until nothing of ours is left.
    async fn is_empty(&self) {
        let observer = Client::connect(&self.server).await.unwrap();
        eventually("an empty lock path", async || match observer.get_children(&self.path).await {
            Ok(children) => children.is_empty().then_some(()),
            Err(error) => (error.kind() == ErrorKind::NoNode).then_some(()),
        })
        .await;
        observer.close().await.unwrap();
    }

    async fn participants(&self, actor: &Actor, count: usize) -> Vec<String> {
        eventually("so many participants", async || {
            Some(actor.mutex.participants().await.unwrap()).filter(|all| all.len() == count)
        })
        .await
    }
}

impl Actor {
    async fn acquire(&self) -> LockGuard {
        within_deadline("acquire", self.mutex.acquire()).await.unwrap()
    }

    fn spawn_acquire(&self) -> tokio::task::JoinHandle<Result<LockGuard, Error>> {
        let mutex = self.mutex.clone();
        tokio::spawn(async move { mutex.acquire().await })
    }

    async fn in_state(&self, wanted: ConnectionState) {
        let mut state = self.client.state();
        within_deadline("a state", state.wait_for(|state| *state == Some(wanted))).await.unwrap();
    }
}

// Lost requests and replies.

#[tokio::test]
async fn a_lost_create_request_is_sent_again_once() {
    // One that lets the container be, which is empty while there is no connection.
    let never = ("znode.container.checkIntervalMs".into(), "3600000".into());
    let settings = Settings { properties: vec![never], ..Settings::default() };
    let unreaped = if is_real() { RealServer::start_with(settings).await } else { None };
    let stage = Stage::set_on(unreaped.as_ref().map_or_else(server, RealServer::connect)).await;
    let a = stage.actor("A").await;
    a.acquire().await.release().await.unwrap();
    stage.tap.inject(Fault::drop_before(OpCode::Create2));
    let guard = a.acquire().await;
    assert_eq!(a.mutex.participants().await.unwrap(), [guard.lock_path()]);
    guard.release().await.unwrap();
    assert_eq!(stage.sequence("A"), "CKKCLD".to_owned() + "CFCL" + "L" + "D");
}

/// N1: Curator loses track of its node, and blocks everybody until its session ends.
#[tokio::test]
async fn a_create_that_is_lost_twice_leaves_one_node() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    a.acquire().await.release().await.unwrap();
    stage.tap.inject(Fault::drop_before(OpCode::Create2));
    stage.tap.inject(Fault::drop_reply(OpCode::Create2).nth(2));
    let guard = a.acquire().await;
    assert_eq!(a.mutex.participants().await.unwrap(), [guard.lock_path()]);
    guard.release().await.unwrap();
    stage.is_empty().await;
}

/// An adopted node has a fencing token too.
#[tokio::test]
async fn a_node_found_after_a_lost_reply_has_its_fencing_token() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let first = a.acquire().await;
    let before = first.fencing_token().await.unwrap();
    first.release().await.unwrap();
    stage.tap.inject(Fault::drop_reply(OpCode::Create2));
    let guard = a.acquire().await;
    let stat = a.client.exists(guard.lock_path()).await.unwrap().unwrap();
    assert_eq!(guard.fencing_token().await.unwrap(), stat.czxid);
    assert!(stat.czxid > before);
}

#[tokio::test]
async fn a_lost_listing_is_asked_again_and_the_node_is_kept() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    a.acquire().await.release().await.unwrap();
    stage.tap.inject(Fault::drop_reply(OpCode::GetChildren2));
    let guard = a.acquire().await;
    assert_eq!(a.mutex.participants().await.unwrap(), [guard.lock_path()]);
}

/// CURATOR-45: retries used up, the node is found and deleted in the background.
#[tokio::test]
async fn a_create_that_fails_for_good_leaves_no_node() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    a.acquire().await.release().await.unwrap();
    let none = LockOptions::default().with_retry_policy(RetryNTimes::new(0, Duration::ZERO));
    let mutex = InterProcessMutex::with_options(&a.client, &stage.path, none).unwrap();
    stage.tap.inject(Fault::drop_reply(OpCode::Create2));
    let error = mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss));
    stage.is_empty().await;
}

#[tokio::test]
async fn a_delete_that_is_lost_is_done_in_the_background() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let none = LockOptions::default().with_retry_policy(RetryNTimes::new(0, Duration::ZERO));
    let mutex = InterProcessMutex::with_options(&a.client, &stage.path, none).unwrap();
    let guard = mutex.acquire().await.unwrap();
    stage.tap.inject(Fault::drop_before(OpCode::Delete).times(3));
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::ConnectionLoss));
    stage.is_empty().await;
}

// The queue.

#[tokio::test]
async fn a_predecessor_that_goes_before_it_is_watched_makes_the_waiter_look_again() {
    let stage = Stage::set().await;
    let (a, b) = (stage.actor("A").await, stage.actor("B").await);
    let guard = a.acquire().await;
    let delay = Duration::from_millis(500);
    stage.tap.inject(Fault::delay_request(OpCode::GetData, delay).of("B"));
    let waiting = b.spawn_acquire();
    stage.seen("B", |record| record.is_request(OpCode::GetData)).await;
    guard.release().await.unwrap();
    let second = within_deadline("the second", waiting).await.unwrap().unwrap();
    second.release().await.unwrap();
    assert_eq!(stage.sequence("B"), "CLWLD");
}

#[tokio::test]
async fn holders_follow_each_other_with_growing_tokens_and_never_overlap() {
    let stage = Stage::set().await;
    let history = History::new();
    let actors = [stage.actor("A").await, stage.actor("B").await, stage.actor("C").await];
    let rounds = async |actor: &Actor| {
        for round in 0..15 {
            let guard = actor.acquire().await;
            let hold = history.acquired(&stage.path, actor.tap.label(), std::time::Instant::now());
            history.token(hold, guard.fencing_token().await.unwrap());
            assert!(guard.is_held());
            if round % 5 == 4 {
                // Without it, whoever holds is never disturbed.
                actor.tap.cut();
                tokio::task::yield_now().await;
            }
            history.releasing(hold);
            guard.release().await.unwrap();
        }
    };
    tokio::join!(rounds(&actors[0]), rounds(&actors[1]), rounds(&actors[2]));
    assert_eq!(history.len(), 45);
    history.assert_exclusive();
    stage.is_empty().await;
}

#[tokio::test]
async fn an_owner_enters_again_and_others_do_not() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let (owner, other) = (Owner::new(), Owner::new());
    let outer = a.mutex.acquire_as(&owner).await.unwrap();
    let inner = a.mutex.acquire_as(&owner).await.unwrap();
    assert_eq!(outer.lock_path(), inner.lock_path());
    let refused = a.mutex.acquire_as_timeout(&other, Duration::ZERO).await.unwrap();
    assert!(refused.is_none());
    outer.release().await.unwrap();
    assert!(inner.is_held() && a.mutex.is_owned_by(&owner), "the inner guard is still there");
    inner.release().await.unwrap();
    assert!(!a.mutex.is_owned_by(&owner));
    stage.is_empty().await;
}

// Connections and sessions.

#[tokio::test]
async fn a_hold_survives_a_cut_connection() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let guard = a.acquire().await;
    let (session, token) = (guard.session_id(), guard.fencing_token().await.unwrap());
    a.tap.cut();
    a.in_state(ConnectionState::Reconnected).await;
    assert!(guard.is_held());
    assert_eq!(a.client.session().unwrap().session_id(), session);
    assert_eq!(a.mutex.participants().await.unwrap(), [guard.lock_path()]);
    let stat = a.client.exists(guard.lock_path()).await.unwrap().unwrap();
    assert_eq!(stat.czxid, token);
    guard.release().await.unwrap();
    stage.is_empty().await;
}

#[tokio::test]
async fn a_place_in_the_queue_survives_a_cut_connection() {
    let stage = Stage::set().await;
    let (a, b, c) = (stage.actor("A").await, stage.actor("B").await, stage.actor("C").await);
    let holder = a.acquire().await;
    let second = b.spawn_acquire();
    stage.participants(&a, 2).await;
    let third = c.spawn_acquire();
    let queue = stage.participants(&a, 3).await;
    stage.seen("B", |record| record.is_reply(OpCode::GetData)).await;
    b.tap.cut();
    b.in_state(ConnectionState::Reconnected).await;
    assert_eq!(a.mutex.participants().await.unwrap(), queue);
    holder.release().await.unwrap();
    let second = within_deadline("the second", second).await.unwrap().unwrap();
    assert_eq!(second.lock_path(), queue[1]);
    assert!(!third.is_finished());
    second.release().await.unwrap();
    let third = within_deadline("the third", third).await.unwrap().unwrap();
    third.release().await.unwrap();
}

/// The holder learns of it before it can believe anything else.
#[tokio::test]
async fn a_killed_session_ends_the_hold_for_ever() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let guard = a.acquire().await;
    let cancelled = guard.cancellation_token();
    let mut states = a.client.states();
    a.tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("lost", guard.lost()).await;
    assert!(!guard.is_held());
    within_deadline("the token", cancelled.cancelled()).await;
    // In the new session, the lock can be had again; the old guard does not come back to life.
    let again = a.acquire().await;
    assert!(again.is_held() && !guard.is_held());
    assert_ne!(again.session_id(), guard.session_id());
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};
    for expected in [Connected, Suspended, Lost, Reconnected] {
        assert_eq!(within_deadline("a state", states.next()).await, Some(expected));
    }
    guard.release().await.unwrap();
    again.release().await.unwrap();
    stage.is_empty().await;
}

#[tokio::test]
async fn an_owner_does_not_enter_a_lost_hold_again() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let owner = Owner::new();
    let guard = a.mutex.acquire_as(&owner).await.unwrap();
    a.tap.kill_session(DEADLINE).await.unwrap();
    within_deadline("lost", guard.lost()).await;
    assert!(!a.mutex.is_owned_by(&owner));
    let error = a.mutex.acquire_as(&owner).await.unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error}");
    drop(guard);
    let guard = within_deadline("a new hold", a.mutex.acquire_as(&owner)).await.unwrap();
    assert!(guard.is_held());
}

/// CURATOR-604 without the double hold: the place in the queue is lost with the session.
#[tokio::test]
async fn a_waiter_whose_session_is_killed_queues_again() {
    let stage = Stage::set().await;
    let (a, b) = (stage.actor("A").await, stage.actor("B").await);
    let holder = a.acquire().await;
    let waiting = b.spawn_acquire();
    let queue = stage.participants(&a, 2).await;
    stage.seen("B", |record| record.is_reply(OpCode::GetData)).await;
    b.tap.kill_session(DEADLINE).await.unwrap();
    eventually("another node of B's", async || {
        let now = a.mutex.participants().await.unwrap();
        (now.len() == 2 && now[1] != queue[1]).then_some(())
    })
    .await;
    holder.release().await.unwrap();
    let guard = within_deadline("acquire", waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
    assert_eq!(guard.session_id(), b.client.session().unwrap().session_id());
}

/// Without a connection, belief ends with the session timeout, whoever asks and whenever.
#[tokio::test]
async fn a_hold_ends_by_the_clock_when_the_server_is_silent() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let guard = a.acquire().await;
    let deadline = a.client.session().unwrap().deadline();
    a.tap.hold();
    within_deadline("lost", guard.lost()).await;
    assert!(a.client.now() > deadline && !guard.is_held());
    a.tap.resume();
    a.tap.cut();
    within_deadline("a new connection", a.client.wait_until_connected(DEADLINE)).await.unwrap();
    assert!(!guard.is_held(), "once lost, lost for ever");
}

/// reliability case 28: a process that was stopped asks its clock before it believes anything.
#[cfg(unix)]
#[tokio::test]
async fn a_stopped_process_does_not_believe_in_its_lock() {
    let server = server();
    if !Side::Docent.is_available() {
        return;
    }
    let options = Options { session: Duration::from_secs(4), ..Options::default() };
    let (first, second) = tokio::join!(
        Peer::docent(&server, options),
        Peer::start(Side::Docent, "second", &server, options)
    );
    let handle = format!("mutex:{}", unique_path("stopped"));
    first.ask(format!("acquire {handle}")).await.ok();
    assert!(first.held(&handle).await);
    let signal = |name: &str| {
        let id = first.process_id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    signal("-STOP");
    // Granted once the server has given the first one up.
    second.ask(format!("acquire {handle}")).await.ok();
    let asked = first.send(format!("held {handle}"));
    signal("-CONT");
    assert_eq!(asked.reply().await.ok(), "false");
    first.event(&format!("lost {handle}")).await;
}

/// N8: Curator goes on as long as the policy allows, here for ever. That it takes a second more at most is told in
/// `locks/time.rs`.
#[tokio::test]
async fn a_timed_acquire_is_bounded_without_a_connection() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    a.acquire().await.release().await.unwrap();
    a.tap.refuse().await.unwrap();
    a.tap.cut();
    let options = LockOptions::default()
        .with_retry_policy(RetryForever { retry_interval: Duration::from_millis(100) });
    let mutex = InterProcessMutex::with_options(&a.client, &stage.path, options).unwrap();
    let acquire = mutex.acquire_timeout(Duration::from_millis(300));
    let got = within_deadline("out of time", acquire).await;
    assert!(matches!(got, Ok(None)), "{got:?}");
    a.tap.accept().await.unwrap();
    stage.is_empty().await;
}

// Dropped futures and guards.

#[tokio::test]
async fn a_dropped_guard_gives_the_lock_up() {
    let stage = Stage::set().await;
    let (a, b) = (stage.actor("A").await, stage.actor("B").await);
    let guard = a.acquire().await;
    let waiting = b.spawn_acquire();
    stage.participants(&a, 2).await;
    drop(guard);
    within_deadline("acquire", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_guard_dropped_on_another_thread_gives_the_lock_up() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let guard = a.acquire().await;
    std::thread::spawn(move || drop(guard)).join().unwrap();
    stage.is_empty().await;
}

#[tokio::test]
async fn a_dropped_waiter_leaves_the_queue() {
    let stage = Stage::set().await;
    let (a, b) = (stage.actor("A").await, stage.actor("B").await);
    let guard = a.acquire().await;
    let waiting = b.spawn_acquire();
    stage.participants(&a, 2).await;
    stage.seen("B", |record| record.is_reply(OpCode::GetData)).await;
    waiting.abort();
    assert_eq!(stage.participants(&a, 1).await, [guard.lock_path()]);
}

/// CURATOR-79: dropped while the create is on its way, its node is found and deleted.
#[tokio::test]
async fn an_acquire_dropped_during_its_create_leaves_no_node() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    a.acquire().await.release().await.unwrap();
    stage.tap.inject(Fault::delay_reply(OpCode::Create2, Duration::from_millis(300)));
    let waiting = a.spawn_acquire();
    let creates = |record: &Record| record.is_request(OpCode::Create2);
    // The third: the first two made the parents and the first hold.
    eventually("the create", async || {
        (stage.tap.trace().iter().filter(|record| creates(record)).count() == 3).then_some(())
    })
    .await;
    waiting.abort();
    stage.seen("A", |record| record.is_reply(OpCode::Create2)).await;
    stage.is_empty().await;
    assert!(a.client.exists("/").await.unwrap().is_some(), "the session is usable");
}

/// Dropped at every point where it can be dropped, an acquire leaves nothing behind.
#[tokio::test]
async fn an_acquire_dropped_at_any_point_leaves_no_node() {
    let stage = Stage::set().await;
    let (a, b) = (stage.actor("A").await, stage.actor("B").await);
    let guard = a.acquire().await;
    for polls in 0..40 {
        let finished = {
            let mut acquire = pin!(b.mutex.acquire_timeout(Duration::from_millis(20)));
            let mut finished = false;
            for _ in 0..polls {
                let mut cx = Context::from_waker(Waker::noop());
                if acquire.as_mut().poll(&mut cx).is_ready() {
                    finished = true;
                    break;
                }
                // Long enough for an answer most of the time; what matters is that the points differ.
                tokio::time::sleep(Duration::from_micros(700)).await;
            }
            finished
        };
        assert_eq!(stage.participants(&a, 1).await, [guard.lock_path()], "after {polls} polls");
        if finished {
            break;
        }
    }
    guard.release().await.unwrap();
    b.acquire().await.release().await.unwrap();
    stage.is_empty().await;
}

// Bad input, and the end.

#[tokio::test]
async fn a_lock_path_must_be_a_path_and_not_the_root() {
    let config = Config::new("127.0.0.1:1").unwrap();
    let client = Client::start(config);
    for (path, rule) in [
        ("", "must not be empty"),
        ("locks", "must begin with a slash"),
        ("/locks/", "must not end with a slash"),
        ("/locks//a", "empty node name"),
        ("/locks/../a", "relative node name"),
        ("/a\0b", "U+0000"),
        ("/", "the root is no place"),
    ] {
        let error = InterProcessMutex::new(&client, path).unwrap_err().to_string();
        assert!(error.contains(rule) && error.contains(&format!("{path:?}")), "{path:?}: {error}");
    }
}

#[tokio::test]
async fn lock_data_over_the_limit_is_refused_before_it_is_sent() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let options = policy().with_data(vec![0; 1 << 20]);
    let mutex = InterProcessMutex::with_options(&a.client, &stage.path, options).unwrap();
    let error = mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::RequestTooLarge));
    assert!(error.to_string().contains("1048575"), "{error}");
    assert_eq!(stage.sequence("A"), "");
}

#[tokio::test]
async fn a_closed_client_acquires_nothing_and_wakes_its_waiters() {
    let stage = Stage::set().await;
    let (a, b) = (stage.actor("A").await, stage.actor("B").await);
    let _guard = a.acquire().await;
    let waiting = b.spawn_acquire();
    stage.participants(&a, 2).await;
    b.client.close().await.unwrap();
    let error = within_deadline("the waiter", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed));
    assert_eq!(b.mutex.acquire().await.unwrap_err().kind(), Some(ErrorKind::Closed));
    stage.participants(&a, 1).await;
}

#[tokio::test]
async fn an_acl_that_forbids_it_fails_the_acquire() {
    let stage = Stage::set().await;
    let a = stage.actor("A").await;
    let read_only = docent::protocol::acl::READ_ACL_UNSAFE;
    let parent = stage.path.rsplit_once('/').unwrap().0.to_owned();
    let _ = a.client.create(&parent, b"", docent::CreateMode::Container).await;
    a.client
        .create_with_acl(&stage.path, b"", docent::CreateMode::Persistent, read_only)
        .await
        .unwrap();
    let error = a.mutex.acquire().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth));
}
