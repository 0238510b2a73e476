//! Retries by a policy.

use super::*;

/// A write whose reply was lost is not repeated; a read is, and so is a write that was not applied.
// Case (Contracts of a call): a retried write whose reply was lost.
#[tokio::test(start_paused = true)]
async fn a_retry_repeats_only_operations_that_were_not_applied() {
    let (client, conn, mut net) = connected().await;
    let write = run(&client, async |client| {
        client
            .retry(&RetryForever { retry_interval: ms(1) }, || client.set_data("/a", b"", None))
            .await
    });
    let conn = conn.lose_reply("SetData", "/a", &mut net).await;
    assert_eq!(refusal(result("the write", write).await), LOST);

    let read = run(&client, async |client| client.retry(&TWICE, || client.get_data("/a")).await);
    let mut conn = conn.lose_reply("GetData", "/a", &mut net).await;
    let (xid, _) = conn.expect("GetData", "/a").await;
    conn.data(xid, b"x").await;
    assert_eq!(result("the read", read).await.unwrap().data, "x");

    let begin = stopwatch();
    let write = run(&client, async |client| {
        client.retry(&TWICE, || async { client.set_data("/a", b"", None).await }).await
    });
    let throttled = ("SetData", "/a", Fails(ErrorCode::ThrottledOp));
    conn.script(&[throttled, throttled, ("SetData", "/a", Answer::Stat)]).await;
    result("the write", write).await.unwrap();
    assert!(begin.elapsed() >= ms(1000) && begin.elapsed() < ms(1100), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_retry_ends_as_the_policy_says() {
    let (client, mut conn, _net) = connected().await;
    let call = run(&client, async |client| client.retry(&TWICE, || client.get_data("/a")).await);
    conn.script(&[("GetData", "/a", Fails(ErrorCode::ThrottledOp)); 3]).await;
    let throttled = (ErrorKind::ThrottledOp, Outcome::NotApplied);
    assert_eq!(refusal(result("the last", call).await), throttled);
    let call = run(&client, async |client| client.retry(&TWICE, || client.get_data("/a")).await);
    conn.script(&[("GetData", "/a", NO_NODE)]).await;
    assert_eq!(refusal(result("no node", call).await), (ErrorKind::NoNode, Outcome::NotApplied));
    close(&client, &mut conn).await;
    let forever = RetryForever { retry_interval: ms(1) };
    let call = client.retry(&forever, || client.get_data("/a"));
    assert_eq!(refusal(within_limit("a closed client", call).await), CLOSED);
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_call_is_repeated_whatever_its_outcome() {
    let (client, conn, mut net) = connected().await;
    let call = run(&client, async |client| {
        client
            .retry_idempotent(&TWICE, || {
                client.create_or_set("/a", b"data", CreateMode::Persistent)
            })
            .await
    });
    let mut conn = conn.lose_reply("SetData", "/a", &mut net).await;
    conn.script(&[("SetData", "/a", Answer::Stat)]).await;
    assert!(result("the write", call).await.unwrap().is_some());
}

// Case (Found in docent itself): an idempotent call whose first reply was lost, and whose repetition was refused, was reported as
// not applied: a release, and a `SharedValue::try_set_value`.
#[tokio::test(start_paused = true)]
async fn the_outcome_of_an_idempotent_call_is_that_of_all_attempts() {
    let (client, conn, mut net) = connected().await;
    let call = run(&client, async |client| {
        client.retry_idempotent(&TWICE, || client.delete("/a", None)).await
    });
    let mut conn = conn.lose_reply("Delete", "/a", &mut net).await;
    conn.script(&[("Delete", "/a", Fails(ErrorCode::NoAuth))]).await;
    let refused = (ErrorKind::NoAuth, Outcome::Unknown);
    assert_eq!(refusal(result("the delete", call).await), refused);
}

/// Asks for a pause without allowing the retry, as `RetryUntilElapsed` does at its end.
#[derive(Debug)]
struct PausesAndRefuses;

impl RetryPolicy for PausesAndRefuses {
    fn allow_retry(&self, _retry_count: u32, _elapsed: Duration) -> Verdict {
        Verdict { allowed: false, wait: ms(10) }
    }
}

/// A pause of tokio's timer would panic there.
#[test]
fn a_retry_pauses_outside_a_runtime() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (dialer, _net) = net();
    let client = {
        let _inside = runtime.enter();
        start(config(), dialer)
    };
    let fails = || std::future::ready(Err::<(), _>(Error::refused(ErrorKind::ThrottledOp, "")));
    let here = Builder::new_current_thread().build().unwrap();
    let error = here.block_on(client.retry(&PausesAndRefuses, fails)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ThrottledOp);
    // When the client's runtime has ended, there are no pauses.
    drop(runtime);
    let policy = RetryNTimes::new(3, ms(3_600_000));
    assert_eq!(
        here.block_on(client.retry(&policy, fails)).unwrap_err().kind(),
        ErrorKind::ThrottledOp
    );
}
