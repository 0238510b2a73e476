//! Waiters for the end of a claim, and the field that decides when a session is taken as lost.

use docent_session::{runtime::Instant, session::SessionClaim};
use std::sync::atomic::AtomicU64;

use super::*;
use crate::support::*;

fn claim(client: &Client) -> SessionClaim {
    client.session().expect("a session").claim()
}

/// Lets all ready tasks run, then polls the future once.
async fn is_lost(lost: &mut std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    std::future::poll_fn(|cx| std::task::Poll::Ready(lost.as_mut().poll(cx).is_ready())).await
}

/// LOST, the end of the watches and the end of the claim are at the same instant.
#[tokio::test(start_paused = true)]
async fn a_silent_server_ends_claim_session_and_watches_at_once() {
    let (client, mut conn, net) = connected().await;
    let call = client.get_data_and_watch("/a");
    conn.answer_data(b"").await;
    let (_, mut watcher) = within_limit("the read", call).await.unwrap();
    let claim = claim(&client);
    let deadline = claim.lease().deadline();
    let mut states = client.states();
    next_is(&mut states, ConnectionState::Connected).await;
    drop(net);
    next_is(&mut states, ConnectionState::Suspended).await;
    assert!(deadline.duration_since(client.now()) >= ms(1600), "a third of 6 s, less the margin");
    next_is(&mut states, ConnectionState::Lost).await;
    assert!(
        client.now().duration_since(deadline) <= ms(1),
        "{:?}",
        client.now().duration_since(deadline)
    );
    assert!(within_limit("the end of the watch", watcher.next()).await.unwrap().is_end());
    within_limit("the end of the claim", claim.lost()).await;
    assert!(client.now().duration_since(deadline) <= ms(1));
    drop(conn);
}

/// The claim does not last until its deadline then.
#[tokio::test(start_paused = true)]
async fn a_claim_ends_when_the_server_says_so_and_when_the_client_ends() {
    for ending in ["expired", "closed", "detached", "refused"] {
        let (client, mut conn, mut net) = connected().await;
        let claim = claim(&client);
        let mut lost = pin!(claim.lost());
        assert!(!is_lost(&mut lost).await);
        match ending {
            "expired" => {
                drop(conn);
                let (_conn, _) = net.serve_for(0, 0).await;
            }
            "closed" => {
                close(&client, &mut conn).await;
            }
            "detached" => assert!(client.detach().is_some()),
            _ => {
                let auth = client.add_auth("digest", b"u:p");
                conn.request().await;
                conn.reply(xid::AUTH, 0, ErrorCode::AuthFailed, &[]).await;
                within_limit("auth", auth).await.unwrap_err();
            }
        }
        let before = client.now();
        within_limit(ending, lost).await;
        assert!(client.now().duration_since(before) <= ms(100), "{ending}");
    }
}

/// Another server grants less time than the claim's timer is set to.
#[tokio::test(start_paused = true)]
async fn a_claim_follows_a_deadline_that_comes_nearer() {
    let (client, conn, mut net) =
        connected_with(config().with_session_timeout(ms(60_000)), 60_000).await;
    let claim = claim(&client);
    let mut lost = pin!(claim.lost());
    assert!(!is_lost(&mut lost).await);
    drop(conn);
    let (conn, _) = net.serve_for(7, 6000).await;
    let before = client.now();
    lost.await;
    let waited = client.now().duration_since(before);
    assert!(waited > ms(5600) && waited <= ms(5701), "{waited:?}");
    drop(conn);
}

/// The claim is polled where there is no runtime, and after the client's runtime has ended.
#[test]
fn a_claim_is_waited_for_outside_a_runtime_and_ends_with_the_clients() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (client, conn, net) = runtime.block_on(connected());
    let claim = claim(&client);
    let (notify, ended) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn({
        let claim = claim.clone();
        move || {
            let mut lost = pin!(claim.lost());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(lost.as_mut().poll(&mut cx).is_pending());
            notify.send(()).unwrap();
            while lost.as_mut().poll(&mut cx).is_pending() {
                std::thread::yield_now();
            }
        }
    });
    ended.recv().unwrap();
    drop(runtime);
    waiting.join().unwrap();
    assert!(claim.lease().is_lost());
    drop((client, conn, net));
}

/// After a suspension of the machine the clock has advanced and the timers have not. No waiter depends on the timers.
// Case (Found in docent itself): after a suspension of the machine, `lost()` waited for a timer,
// although `is_held()` was false or a late reply had voided the claim: up to a third of the
// timeout, and up to all of it after a reply.
#[tokio::test(start_paused = true)]
async fn a_claim_found_void_ends_its_waits_before_a_timer_does() {
    for by_reply in [false, true] {
        let (dialer, mut net) = net();
        let (clock, suspended) = (Clock::tokio(), Arc::new(AtomicU64::new(0)));
        let jump = Arc::clone(&suspended);
        let clock = Clock::from_fn(move || clock.now() + ms(suspended.load(Ordering::Relaxed)));
        let client = config().with_clock(clock).with_transport(dialer).start().unwrap();
        let (mut conn, _) = net.serve(7).await;
        client.wait_until_connected(LONG).await.unwrap();
        let claim = claim(&client);
        let waits: Vec<_> = (0..3)
            .map(|_| {
                let claim = claim.clone();
                tokio::spawn(async move { claim.lost().await })
            })
            .collect();
        let call = client.get_data("/slow");
        let (xid, _) = conn.request().await;
        let before = stopwatch();
        jump.store(7_000, Ordering::Relaxed);
        if by_reply {
            conn.data(xid, b"").await;
            let _ = within_limit("the reply, or the end of the session", call).await;
        } else {
            assert!(!claim.is_valid(client.now()));
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(waits.iter().all(tokio::task::JoinHandle::is_finished), "by a reply: {by_reply}");
        assert_eq!(stopwatch(), before, "no timer was waited for");
        assert!(client.now() > Instant::ZERO + ms(7_000));
    }
}
