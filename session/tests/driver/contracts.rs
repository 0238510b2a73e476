//! The contracts of a call: its outcome in each situation.

use super::*;
use crate::support::*;

/// A request is queued by the call itself: it is sent in the order of the calls, also if its future is never polled.
// Case (Contracts of a call): a future that is never polled.
#[tokio::test(start_paused = true)]
async fn a_future_that_is_never_polled_is_sent_in_its_turn() {
    let (client, mut conn, _net) = connected().await;
    let unpolled = client.delete("/first", None);
    let second = client.delete("/second", None);
    assert!(conn.request().await.1.contains("/first"));
    assert!(conn.request().await.1.contains("/second"));
    drop((unpolled, second));
}

/// Calls without an await between them are sent in one write.
#[tokio::test(start_paused = true)]
async fn gathered_requests_are_written_at_once() {
    let (client, mut conn, _net) = connected().await;
    let calls: Vec<_> = (0..100).map(|n| client.get_data(&format!("/{n}"))).collect();
    let mut bytes = vec![0; 1 << 16];
    let read = tokio::io::AsyncReadExt::read(&mut conn.stream, &mut bytes);
    let count = within_limit("the requests", read).await.unwrap();
    // 4 + 8 bytes of header, 4 + 2 or 3 of path, 1 of flag.
    assert_eq!(count, 10 * 19 + 90 * 20);
    drop(calls);
}

/// The parts of a long burst follow each other without anything else that wakes the task.
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

// Case (Failure cases, 10): the late reply of a dropped future.
// Case (Contracts of a call): a future that is dropped.
#[tokio::test(start_paused = true)]
async fn a_dropped_future_does_not_shift_the_answers_of_others() {
    let (client, mut conn, _net) = connected().await;
    let first = client.get_data("/1");
    let second = client.get_data("/2");
    drop(first);
    for _ in 0..2 {
        let (xid, request) = conn.request().await;
        let data = if request.contains("/1") { b"one" } else { b"two" };
        conn.data(xid, data).await;
    }
    assert_eq!(within_limit("the second", second).await.unwrap().data, "two");
}

/// A read that was given up before its answer leaves nothing in the watch table.
#[tokio::test(start_paused = true)]
async fn a_dropped_watch_response_leaves_no_watch_behind() {
    let (client, mut conn, _net) = connected().await;
    drop(client.get_data_and_watch("/given-up"));
    let after = client.get_data("/after");
    for _ in 0..2 {
        conn.answer_data(b"").await;
    }
    within_limit("an answer behind it", after).await.unwrap();
    assert_eq!(pending_and_watches(&client), (0, 0));
}

// Case (Contracts of a call): the last client is dropped.
#[tokio::test(start_paused = true)]
async fn the_last_clone_closes_the_session() {
    let (client, mut conn, net) = connected().await;
    let clone = client.clone();
    drop(client);
    let call = clone.get_data("/a");
    conn.answer_data(b"").await;
    within_limit("an answer to the clone", call).await.unwrap();
    drop(clone);
    conn.confirm_close().await;
    assert_eq!(net.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_gone_does_not_wait_for_a_silent_server() {
    let (client, mut conn, net) = connected().await;
    drop(client);
    assert_eq!(conn.request().await.1, "CloseSession");
    assert_eq!(conn.maybe_request().await, None, "within the grace");
    assert!(net.has_no_arrivals());
}

// Case (Contracts of a call): a call after close.
#[tokio::test(start_paused = true)]
async fn after_close_everything_is_refused_at_once() {
    let (client, mut conn, _net) = connected().await;
    close(&client, &mut conn).await;
    assert_eq!(refusal(within_limit("a call", client.get_data("/a")).await), CLOSED);
    assert_eq!(refusal(within_limit("another close", client.close()).await).0, ErrorKind::Closed);
    assert_eq!(
        refusal(within_limit("a wait", client.wait_until_connected(ms(1000))).await).0,
        ErrorKind::Closed,
        "a closed client is not connected"
    );
}

/// The runtime of the client ends; its callers run on another one.
// Case (Contracts of a call): the runtime goes.
// Case (Found in docent itself): the calls of a client whose runtime had ended, whose session was detached, or whose
// transport had panicked failed with "the client is closed", although nothing had closed it.
#[test]
fn a_runtime_that_ends_completes_all_waits() {
    let theirs = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (dialer, mut net) = net();
    let (client, conn) = theirs.block_on(async {
        let client = start(config(), dialer);
        let (conn, _) = net.serve(7).await;
        client.wait_until_connected(LONG).await.unwrap();
        (client, conn)
    });
    let call = client.get_data("/a");
    theirs.shutdown_background();
    let ours = Builder::new_current_thread().enable_all().build().unwrap();
    let error = ours.block_on(async {
        tokio::time::timeout(ms(30_000), call).await.expect("an end to the wait").unwrap_err()
    });
    let later = ours.block_on(async { client.get_data("/b").await.unwrap_err() });
    for error in [error, later] {
        assert_eq!(error.kind(), ErrorKind::Closed);
        let text = "the client is closed: the runtime that it was started in has ended";
        assert!(error.to_string().contains(text), "{error}");
    }
    drop(conn);
}

/// The runtime ends before the client's task was polled.
#[test]
fn a_runtime_that_ends_at_once_completes_all_waits() {
    let theirs = Builder::new_current_thread().enable_all().build().unwrap();
    let (dialer, _net) = net();
    let client = {
        let _inside = theirs.enter();
        start(config(), dialer)
    };
    let call = client.get_data("/a");
    drop(theirs);
    let ours = Builder::new_current_thread().enable_all().build().unwrap();
    let kind = ours.block_on(async {
        refusal(tokio::time::timeout(ms(5000), call).await.expect("an end to the wait")).0
    });
    assert_eq!(kind, ErrorKind::Closed);
}

/// By the rules of `PathUtils.validatePath`; its flag `isSequential` validates the name with a digit behind it.
// Case (Found in docent itself): a sequential create of `//` was sent, and the server refused it;
// one of `/a/.`, whose name goes on with digits, was not sent.
#[tokio::test(start_paused = true)]
async fn every_method_refuses_bad_paths_before_anything_is_sent() {
    use docent_protocol::{AddWatchMode, Ttl, WatcherType, acl, operation::Read};

    let (client, mut conn, _net) = connected().await;
    let chrooted = client.with_chroot("/app").unwrap();
    let sequential =
        ["", "1", "a", "//", "/a//", "///", "/a//b", "/./a", "/a/../b", "/a\0", "/\u{7f}/"];
    let others = ["/a/", "/.", "/..", "/a/.", "/a/..", "/\u{1f}", "/\u{d7ff}\u{e000}", "/\u{ffff}"];
    for client in [client.clone(), chrooted] {
        let refused = |method: &str, path: &str, error: Error| {
            let found = (error.kind(), error.outcome());
            assert_eq!(found, (ErrorKind::InvalidPath, Outcome::NotApplied), "{method} {path:?}");
            assert!(error.to_string().contains(&format!("{path:?}")), "{method}: {error}");
        };
        for path in sequential {
            for mode in [
                CreateMode::PersistentSequential,
                CreateMode::EphemeralSequential,
                CreateMode::PersistentSequentialWithTtl(Ttl::MAX),
            ] {
                let options = CreateOptions::new(mode);
                for options in [options, options.with_parents()] {
                    let error = client.create(path, b"", options).await.unwrap_err();
                    refused("create", path, error);
                    let error = client.create_with_stat(path, b"", options).await.unwrap_err();
                    refused("create_with_stat", path, error);
                }
                let mut transaction = client.transaction();
                let commit = transaction.create(path, b"", mode).commit();
                refused("Transaction::create", path, commit.await.unwrap_err());
            }
        }
        for path in sequential.into_iter().chain(others) {
            macro_rules! refused {
                ($($method:ident($($argument:expr),*))*) => {$(
                    refused(stringify!($method), path, client.$method(path, $($argument),*).await.unwrap_err());
                )*};
            }
            refused! {
                create(b"", CreateMode::Ephemeral)
                create_with_stat(b"", CreateMode::Container)
                create(b"", CreateOptions::new(CreateMode::Persistent).with_parents())
                create_or_set(b"", CreateMode::Persistent)
                ensure_path(CreateMode::Persistent)
                delete(None)
                delete_recursive()
                exists()
                exists_and_watch()
                get_data()
                get_data_and_watch()
                set_data(b"", None)
                get_children()
                get_children_and_watch()
                get_children_with_stat()
                get_children_with_stat_and_watch()
                sync()
                add_watch(AddWatchMode::Persistent)
                add_watch(AddWatchMode::PersistentRecursive)
                remove_watches(WatcherType::Any)
                check_watches(WatcherType::Any)
                get_acl()
                set_acl(acl::OPEN_ACL_UNSAFE, None)
                get_ephemerals()
                get_all_children_number()
                wait_until_exists()
                wait_until_deleted()
            }
            refused("with_chroot", path, client.with_chroot(path).unwrap_err());
            let cleanup = client.cleanup();
            refused("Cleanup::delete", path, cleanup.delete(path, None).await.unwrap_err());
            let listed = cleanup.get_children_with_stat(path).await;
            refused("Cleanup::get_children_with_stat", path, listed.unwrap_err());
            for read in [Read::GetData(path), Read::GetChildren(path)] {
                refused("multi_read", path, client.multi_read(&[read]).await.unwrap_err());
            }
            let other = client.clone();
            let mut transactions: [_; 5] = std::array::from_fn(|_| client.transaction());
            let [create, delete, set_data, check, check_of] = &mut transactions;
            create.create(path, b"", CreateMode::Persistent);
            delete.delete(path, None);
            set_data.set_data(path, b"", None);
            check.check(path, None);
            check_of.check_of(&other, path, None);
            for transaction in transactions {
                refused("Transaction", path, transaction.commit().await.unwrap_err());
            }
        }
    }
    // The name of a sequential node may consist of its digits, or of dots and digits.
    for path in ["/", "/a/", "/.", "/a/..", "/good"] {
        let call = client.create(path, b"", CreateMode::PersistentSequential);
        let (xid, request) = conn.request().await;
        assert!(request.contains(&format!("{path:?}")), "{path:?} was sent first: {request}");
        conn.data(xid, b"").await;
        drop(call);
    }
}

/// The server takes no bytes, so part of a write is left over. A call made after the cut still has its
/// deadline noticed.
#[tokio::test(start_paused = true)]
async fn a_half_written_request_does_not_make_the_driver_deaf() {
    let (dialer, mut net) = net_with_capacity(64);
    let client = start(config().with_session_timeout(ms(60_000)), dialer);
    let (conn, _) = net.serve_for(7, 60_000).await;
    client.wait_until_connected(LONG).await.unwrap();
    let stuck = client.set_data("/a", &[0; 1000], None);
    tokio::task::yield_now().await;
    drop(conn);
    assert_eq!(refusal(within_limit("the stuck one", stuck).await), LOST);
    // The next connection gets nothing of what was left over, and no reply for a minute.
    let mut silent = net.accept().await;
    silent.handshake().await;
    let before = client.now();
    let call = client.get_data("/b");
    assert_eq!(refusal(within_limit("its deadline", call).await).0, ErrorKind::ConnectionLoss);
    assert!(
        client.now().duration_since(before) < ms(3100),
        "{:?}",
        client.now().duration_since(before)
    );
}

// Case (Failure cases, 1): a frame split at every byte.
#[tokio::test(start_paused = true)]
async fn frames_may_be_split_at_every_byte() {
    let (client, mut conn, _net) = connected().await;
    let replies = |base: i32| {
        let one = reply(base + 1, 5, ErrorCode::Ok, &get_data_body(b"one"));
        [one, reply(base + 2, 6, ErrorCode::NoNode, &[])].concat()
    };
    for cut in 0..=replies(0).len() {
        let mut bytes = replies(i32::try_from(cut).unwrap() * 2);
        let first = client.get_data("/1");
        let second = client.get_data("/2");
        conn.request().await;
        conn.request().await;
        let tail = bytes.split_off(cut);
        conn.send_bytes(&bytes).await;
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        conn.send_bytes(&tail).await;
        assert_eq!(within_limit("one", first).await.unwrap().data, "one", "cut at {cut}");
        assert_eq!(refusal(within_limit("two", second).await).0, ErrorKind::NoNode, "cut at {cut}");
    }
}

/// A wake-up between the driver's check and its sleep is not lost: another thread sends requests in a loop.
#[test]
fn no_wake_up_is_lost() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (dialer, mut net) = net();
    let client = {
        let _inside = runtime.enter();
        config().with_session_timeout(ms(600_000)).with_transport(dialer).start().unwrap()
    };
    runtime.spawn(async move {
        let (mut conn, _) = net.serve_for(7, 600_000).await;
        conn.answer_all().await;
    });
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    for _ in 0..2000 {
                        let call = client.get_data("/a");
                        tokio::time::timeout(ms(30_000), call).await.expect("an answer").unwrap();
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Listeners that are never polled delay no connection.
#[tokio::test(start_paused = true)]
async fn listeners_that_never_read_delay_no_one() {
    let (client, mut conn, mut net) = connected().await;
    let _states: Vec<_> = (0..3).map(|_| client.states()).collect();
    let (done, mut all) = mpsc::unbounded_channel();
    for _ in 0..200 {
        drop(conn);
        conn = net.serve(7).await.0;
        let _ = done.send(());
    }
    assert_eq!(all.len(), 200);
    all.close();
}
