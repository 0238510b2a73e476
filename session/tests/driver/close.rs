//! The end of a client: by `close`, by its last drop, with its runtime.

use docent_session::session::StateEvent;

use super::*;
use crate::support::*;

/// A silent server gets its share of the time, as an attempt to connect does.
// Case (Found in docent itself): `close` on a connection whose server had fallen silent left the
// session, although other servers served.
#[tokio::test(start_paused = true)]
async fn a_close_on_a_silent_server_goes_to_the_next() {
    let config = config()
        .with_session_timeout(ms(60_000))
        .with_connect_string("one:1,two:1,three:1".parse().unwrap());
    let (client, silent, mut net) = connected_with(config, 60_000).await;
    // Long after the last answer: the share begins with the close.
    tokio::time::sleep(ms(5000)).await;
    let begin = stopwatch();
    let close = client.close();
    let (mut conn, asked) = net.serve(7).await;
    assert_eq!(asked.session_id, 7);
    assert_ne!(conn.host, silent.host);
    assert!((ms(1000)..ms(1200)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    conn.confirm_close().await;
    within_limit("close", close).await.unwrap();
}

/// The client stays at a server that still answers the requests in front of a close.
#[tokio::test(start_paused = true)]
async fn a_close_behind_slow_answers_waits_for_them() {
    let config = config()
        .with_session_timeout(ms(60_000))
        .with_connect_string("one:1,two:1,three:1".parse().unwrap());
    let (client, mut conn, _net) = connected_with(config, 60_000).await;
    let reads: Vec<_> = (0..2).map(|_| client.get_data("/a")).collect();
    let close = client.close();
    for _ in 0..2 {
        let (xid, _) = conn.request().await;
        tokio::time::sleep(ms(900)).await;
        conn.data(xid, b"x").await;
    }
    conn.confirm_close().await;
    within_limit("close", close).await.unwrap();
    for read in reads {
        within_limit("a read", read).await.unwrap();
    }
}

/// Listeners from before and after the end complete, whether or not a clone of the client is alive.
// Case (Found in docent itself): after `close`, listeners of the state waited for ever, and the
// state said connected.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_client_ends_its_states() {
    let (client, mut conn, _net) = connected().await;
    let (mut state, mut states) = (client.state(), client.states());
    close(&client, &mut conn).await;
    for state in [&mut state, &mut client.state()] {
        assert!(!state.get().is_some_and(ConnectionState::is_connected));
        assert_eq!(within_limit("the end of the state", state.next()).await, None);
    }
    next_is(&mut states, ConnectionState::Connected).await;
    assert_eq!(within_limit("the end of the states", states.next()).await, None);
    let mut late = client.states();
    assert_eq!(within_limit("the end of the states", late.next()).await, None);
}

/// The states that were published before the end are delivered.
#[tokio::test(start_paused = true)]
async fn states_end_behind_the_last_one() {
    let (client, mut conn, _net) = connected().await;
    let mut states = client.states();
    let auth = client.add_auth("digest", b"user:wrong");
    conn.reply_next(0, ErrorCode::AuthFailed, &[]).await;
    within_limit("auth", auth).await.unwrap_err();
    for expected in [Some(ConnectionState::Connected), Some(ConnectionState::Lost), None] {
        assert_eq!(
            within_limit("a state", states.next()).await.and_then(StateEvent::state),
            expected
        );
    }
    assert_eq!(client.state().get(), Some(ConnectionState::Lost));
}

/// `run` closes the session of a body that returns, that returns early, and that panics.
// Case (Contracts of a call): a program ends as it should.
#[tokio::test(start_paused = true)]
async fn run_closes_the_session_whatever_its_body_does() {
    use std::panic::AssertUnwindSafe;
    for panics in [false, true] {
        let (client, mut conn, _net) = connected().await;
        let kept = client.clone();
        let run = tokio::spawn(AssertUnwindSafe(client.run(async move |client| {
            drop(client.delete("/queued", None));
            assert!(!panics, "on purpose");
            Err::<(), _>(client.get_data("//").await.unwrap_err())
        })));
        let (xid, request) = conn.request().await;
        assert!(request.contains("/queued"), "{request}");
        assert_eq!(conn.request().await, (xid + 1, "CloseSession".to_owned()));
        tokio::task::yield_now().await;
        assert!(!run.is_finished(), "it waits for the answers");
        conn.reply(xid, 9, ErrorCode::Ok, &[]).await;
        conn.reply(xid + 1, 10, ErrorCode::Ok, &[]).await;
        match within_limit("the end of run", run).await {
            Ok(result) => assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidPath),
            Err(join) => assert!(panics && join.is_panic()),
        }
        assert_eq!(kept.ended(), Some(ErrorKind::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn run_returns_the_result_of_its_body_even_without_a_server() {
    let (client, conn, net) = connected().await;
    drop((conn, net));
    let begin = stopwatch();
    assert_eq!(within_limit("run", client.run(async |_| 42)).await, 42);
    assert!(begin.elapsed() <= ms(3010), "{:?}", begin.elapsed());

    // A body that has closed the client itself.
    let (client, mut conn, _net) = connected().await;
    let run = tokio::spawn(client.run(async |client| client.close().await));
    conn.confirm_close().await;
    within_limit("run", run).await.unwrap().unwrap();
}

/// A task that was started in the body may still have a clone: dropped handles would not close the session.
// Case (Contracts of a call): a run that is dropped while clones live.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_closes_the_session_of_other_clones_too() {
    let (client, mut conn, _net) = connected().await;
    let clone = client.clone();
    let mut run = Box::pin(client.run(async |client| client.get_data("/a").await));
    let poll = std::future::poll_fn(|cx| std::task::Poll::Ready(run.as_mut().poll(cx).is_ready()));
    assert!(!poll.await);
    conn.answer_data(b"").await;
    drop(run);
    conn.confirm_close().await;
    assert_eq!(refusal(within_limit("a call", clone.get_data("/b")).await).0, ErrorKind::Closed);
}
