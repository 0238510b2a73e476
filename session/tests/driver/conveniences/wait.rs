//! Waits for the creation or deletion of a node.

use super::*;

fn wait_for_a(client: &Client) -> JoinHandle<Result<Stat, Error>> {
    run(client, async |client| client.wait_until_exists("/a").await)
}

/// Answers the requests of a wait for the creation of a node, up to its watch.
async fn until_it_waits(conn: &mut Conn) {
    conn.script(&[("Exists", "/a", NO_NODE)]).await;
    let (xid, request) = conn.expect("Exists", "/a").await;
    assert!(request.contains("watch: true"), "{request}");
    conn.answer(xid, "/a", NO_NODE).await;
}

/// A client that waits for the creation of `/a`.
async fn waiting() -> (Client, Conn, Net, JoinHandle<Result<Stat, Error>>) {
    let (client, mut conn, net) = connected().await;
    let call = wait_for_a(&client);
    until_it_waits(&mut conn).await;
    (client, conn, net, call)
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_creation_and_leaves_no_watch() {
    let (client, mut conn, _net, call) = waiting().await;
    conn.event(EventType::NodeCreated, "/a").await;
    // Deleted again before it was read.
    until_it_waits(&mut conn).await;
    conn.event(EventType::NodeCreated, "/a").await;
    let (xid, request) = conn.expect("Exists", "/a").await;
    assert!(request.contains("watch: false"), "{request}");
    conn.answer(xid, "/a", Answer::Stat).await;
    assert_eq!(result("the wait", call).await.unwrap(), Stat::default());
    assert_eq!((client.metrics().watches, client.metrics().pending), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_deletion() {
    let (client, mut conn, _net) = connected().await;
    let call = run(&client, async |client| client.wait_until_deleted("/a").await);
    let exists = ("Exists", "/a", Answer::Stat);
    conn.script(&[exists, exists]).await;
    conn.event(EventType::NodeDataChanged, "/a").await;
    conn.script(&[exists, exists]).await;
    conn.event(EventType::NodeDeleted, "/a").await;
    result("the wait", call).await.unwrap();
    assert_eq!((client.metrics().watches, client.metrics().pending), (0, 0));
    let call = run(&client, async |client| client.wait_until_deleted("/a").await);
    conn.script(&[("Exists", "/a", NO_NODE)]).await;
    result("no node", call).await.unwrap();
}

/// Created or deleted between the read without a watch and the one with it.
#[tokio::test(start_paused = true)]
async fn a_change_before_the_watch_ends_the_wait_and_the_watch() {
    let (client, mut conn, _net) = connected().await;
    let call = wait_for_a(&client);
    conn.script(&[("Exists", "/a", NO_NODE), ("Exists", "/a", Answer::Stat)]).await;
    conn.script(&[("RemoveWatches", "/a", Empty)]).await;
    result("the wait", call).await.unwrap();
    assert_eq!(client.metrics().watches, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_leaves_no_watch() {
    let (client, mut conn, _net) = connected().await;
    // While it waits.
    let call = wait_for_a(&client);
    until_it_waits(&mut conn).await;
    let other = client.exists("/other");
    conn.script(&[("Exists", "/other", NO_NODE)]).await;
    within_limit("a reply behind it", other).await.unwrap();
    assert_eq!(client.metrics().watches, 1);
    call.abort();
    conn.script(&[("RemoveWatches", "/a", Empty)]).await;
    assert_eq!(client.metrics().watches, 0);
    // Before the reply to the read that sets the watch.
    let call = wait_for_a(&client);
    conn.script(&[("Exists", "/a", NO_NODE)]).await;
    let (xid, _) = conn.expect("Exists", "/a").await;
    call.abort();
    assert!(within_limit("its end", call).await.is_err());
    conn.answer(xid, "/a", NO_NODE).await;
    let other = client.exists("/other");
    loop {
        let (xid, request) = conn.request().await;
        if request.starts_with("Exists") {
            conn.answer(xid, "/other", NO_NODE).await;
            break;
        }
        assert!(request.starts_with("RemoveWatches"), "{request}");
        conn.answer(xid, "/a", Empty).await;
    }
    within_limit("a reply behind it", other).await.unwrap();
    assert_eq!(client.metrics().watches, 0);
}

// Case (What broke other clients): a reconnect ends the task.
// Case (Contracts of a call): a wait for a node loses its connection.
#[tokio::test(start_paused = true)]
async fn a_wait_goes_on_with_the_next_connection() {
    let (_client, conn, mut net, call) = waiting().await;
    drop(conn);
    let (mut conn, _) = net.serve(7).await;
    let (xid, request) = conn.request().await;
    assert_eq!(xid, xid::SET_WATCHES);
    assert!(request.contains(r#"exist_watches: ["/a"]"#), "{request}");
    conn.event(EventType::NodeCreated, "/a").await;
    conn.reply(xid, 9, ErrorCode::Ok, &[]).await;
    // Lost with the next connection: only a read, so it is sent again.
    let mut conn = conn.lose_reply("Exists", "/a", &mut net).await;
    conn.script(&[("Exists", "/a", Answer::Stat)]).await;
    result("the wait", call).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_goes_on_in_the_next_session() {
    let (client, conn, mut net, call) = waiting().await;
    drop(conn);
    let (_conn, _) = net.serve_for(0, 0).await;
    let (mut conn, _) = net.serve(8).await;
    until_it_waits(&mut conn).await;
    conn.event(EventType::NodeCreated, "/a").await;
    conn.script(&[("Exists", "/a", Answer::Stat)]).await;
    result("the wait", call).await.unwrap();
    assert_eq!(client.session().unwrap().session_id(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_wait_outlasts_an_overloaded_server_with_growing_pauses() {
    let (client, mut conn, _net) = connected().await;
    let begin = stopwatch();
    let call = wait_for_a(&client);
    for _ in 0..5 {
        conn.script(&[("Exists", "/a", Fails(ErrorCode::ThrottledOp))]).await;
    }
    conn.script(&[("Exists", "/a", Answer::Stat)]).await;
    result("the wait", call).await.unwrap();
    // 100, 200, 400, 800 and 1600 ms.
    let waited = begin.elapsed();
    assert!(waited >= ms(3100) && waited < ms(3200), "{waited:?}");
    let call = wait_for_a(&client);
    conn.script(&[("Exists", "/a", NO_AUTH)]).await;
    assert_eq!(refusal(result("a refusal", call).await), (ErrorKind::NoAuth, Outcome::NotApplied));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_client() {
    let (client, mut conn, _net, call) = waiting().await;
    close(&client, &mut conn).await;
    assert_eq!(refusal(result("the wait", call).await), CLOSED);
}

/// Without any server, for longer than the session: the read fails again and again, and the wait goes on.
#[tokio::test(start_paused = true)]
async fn a_wait_outlasts_an_outage() {
    let (dialer, mut net) = net();
    let client = start(config(), dialer);
    let call = wait_for_a(&client);
    let silent = tokio::time::timeout(ms(60_000), async {
        loop {
            drop(net.accept().await);
        }
    });
    assert!(silent.await.is_err());
    assert!(!call.is_finished());
    let (mut conn, _) = net.serve(7).await;
    conn.script(&[("Exists", "/a", Answer::Stat)]).await;
    result("the wait", call).await.unwrap();
}
