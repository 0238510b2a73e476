//! Creates with parents, and create-or-set.

use super::*;

fn create_abc(client: &Client) -> JoinHandle<Result<String, Error>> {
    run(client, async |client| {
        client
            .create("/a/b/c", b"data", CreateOptions::new(CreateMode::Persistent).with_parents())
            .await
    })
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_parent_exists_takes_one_create() {
    let (client, mut conn, _net) = connected().await;
    let call = create_abc(&client);
    conn.script(&[("Create", "/a/b/c", Created)]).await;
    assert_eq!(result("the create", call).await.unwrap(), "/a/b/c");
    assert_eq!(client.metrics().requests, 1);
}

// Case (Contracts of a call): the parents of a new node are missing.
#[tokio::test(start_paused = true)]
async fn missing_parents_are_found_from_below_and_created_from_above() {
    let (client, mut conn, _net) = connected().await;
    let call = create_abc(&client);
    conn.script(&[
        ("Create", "/a/b/c", NO_NODE),
        ("Exists", "/a/b", NO_NODE),
        ("Exists", "/a", NO_NODE),
        ("Create", "/a", Created),
        // Another client has created the node meanwhile.
        ("Create", "/a/b", NODE_EXISTS),
        ("Create", "/a/b/c", Created),
    ])
    .await;
    assert_eq!(result("the create", call).await.unwrap(), "/a/b/c");
    assert_eq!(client.metrics().requests, 6);
}

/// CURATOR-715, and servers since 3.9.2, which refuse an exists without READ.
#[tokio::test(start_paused = true)]
async fn ancestors_above_an_existing_one_are_not_looked_at() {
    for found in [Answer::Stat, NO_AUTH] {
        let (client, mut conn, _net) = connected().await;
        let call =
            run(&client, async |client| client.ensure_path("/a/b/c", CreateMode::Container).await);
        conn.script(&[("Exists", "/a/b/c", NO_NODE), ("Exists", "/a/b", found)]).await;
        let (xid, request) = conn.expect("CreateContainer", "/a/b/c").await;
        assert!(request.contains("Container"), "{request}");
        conn.answer(xid, "/a/b/c", Fails(ErrorCode::NodeExists)).await;
        result("the parents", call).await.unwrap();
        assert_eq!(client.metrics().requests, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn parents_that_vanish_are_created_again_but_not_for_ever() {
    let (client, mut conn, _net) = connected().await;
    let call = create_abc(&client);
    conn.script(&[("Create", "/a/b/c", NO_NODE)]).await;
    // Deleted between the exists of the parent and its create, then between its create and that of the node.
    conn.script(&[
        ("Exists", "/a/b", NO_NODE),
        ("Exists", "/a", Answer::Stat),
        ("Create", "/a/b", NO_NODE),
        ("Exists", "/a/b", NO_NODE),
        ("Exists", "/a", NO_NODE),
        ("Create", "/a", Created),
        ("Create", "/a/b", Created),
        ("Create", "/a/b/c", NO_NODE),
    ])
    .await;
    for _ in 0..8 {
        conn.script(&[("Exists", "/a/b", Answer::Stat), ("Create", "/a/b/c", NO_NODE)]).await;
    }
    let error = result("the create", call).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NoNode, Some("/a/b/c")));

    let call = run(&client, async |client| client.ensure_path("/a", CreateMode::Persistent).await);
    for _ in 0..10 {
        conn.script(&[("Exists", "/a", NO_NODE), ("Create", "/a", NO_NODE)]).await;
    }
    let error = result("the parents", call).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NoNode, Some("/a")));
}

/// A server before 3.5.1 replies to the request that it does not know, and then closes the connection. The next request may
/// be sent in between.
#[tokio::test(start_paused = true)]
async fn a_node_in_place_of_a_container_survives_the_end_of_the_connection() {
    let (client, mut conn, mut net) = connected().await;
    let call = run(&client, async |client| client.ensure_path("/a", CreateMode::Container).await);
    let refused = Fails(ErrorCode::Unimplemented);
    conn.script(&[("Exists", "/a", NO_NODE), ("CreateContainer", "/a", refused)]).await;
    let mut conn = conn.lose_reply("Create(", "/a", &mut net).await;
    conn.script(&[("Create(", "/a", Created)]).await;
    result("the parents", call).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_cannot_be_created_is_named() {
    let (client, mut conn, _net) = connected().await;
    let app = client.with_chroot("/app").unwrap();
    // The error names the paths below the chroot, and `/` for the chroot itself.
    for (refused, named) in [("/app/a", "/a"), ("/app", "/")] {
        let call = run(&app, async |app| {
            app.create("/a/b", b"", CreateOptions::new(CreateMode::Persistent).with_parents()).await
        });
        conn.script(&[
            ("Create", "/app/a/b", NO_NODE),
            ("Exists", "/app/a", NO_NODE),
            ("Exists", "/app", NO_NODE),
        ])
        .await;
        if refused == "/app/a" {
            conn.script(&[("Create", "/app", Created)]).await;
        }
        conn.script(&[("Create", refused, NO_AUTH)]).await;
        let error = result("the create", call).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::NoAuth, Outcome::NotApplied));
        assert_eq!((error.operation(), error.path()), (Some(OpCode::Create), Some(named)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_a_create_with_parents_is_not_asked_for_again() {
    for lost in 0..3 {
        let (client, mut conn, mut net) = connected().await;
        let call = create_abc(&client);
        let steps = [
            ("Create", "/a/b/c", NO_NODE),
            ("Exists", "/a/b", NO_NODE),
            ("Exists", "/a", Answer::Stat),
            ("Create", "/a/b", Created),
        ];
        let (before, path) = [(0, "/a/b/c"), (1, "/a/b"), (3, "/a/b")][lost];
        conn.script(&steps[..before]).await;
        conn.request().await;
        drop(conn);
        let error = result("the create", call).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), LOST);
        assert_eq!(error.path(), Some(path));
        // Only the next call is sent on the next connection.
        let (mut conn, _) = net.serve(7).await;
        let next = client.get_data("/next");
        conn.expect("GetData", "/next").await;
        drop(next);
    }
}

// Case (Found in docent itself): the errors of invalid paths in `multi_read`, `with_chroot` and the
// creates of parents named neither their operation nor their path.
#[tokio::test(start_paused = true)]
async fn parents_of_no_use_and_invalid_paths_are_refused_before_anything_is_sent() {
    let (client, _conn, _net) = connected().await;
    let refused = (ErrorKind::BadArguments, Outcome::NotApplied);
    for mode in [CreateMode::Ephemeral, CreateMode::PersistentSequential] {
        assert_eq!(refusal(client.ensure_path("/a/b", mode).await), refused);
        let options = CreateOptions::new(CreateMode::Persistent).with_parents_mode(mode);
        let call = client.create("/a/b", b"", options);
        let error = call.await.unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::BadArguments, Some("/a/b")));
        assert!(error.to_string().contains("ephemeral nor sequential"), "{error}");
    }
    let mode = CreateMode::Persistent;
    for error in [
        client.ensure_path("a//", mode).await.unwrap_err(),
        client.create("a//", b"", CreateOptions::new(mode).with_parents()).await.unwrap_err(),
    ] {
        assert_eq!((error.operation(), error.path()), (Some(OpCode::Create), Some("a//")));
    }
    let sequential = client.create_or_set("/a", b"", CreateMode::EphemeralSequential);
    assert_eq!(refusal(sequential.await), refused);
    let mut transaction = client.transaction();
    transaction.create("/a/b", b"", CreateOptions::new(mode).with_parents());
    let error = transaction.commit().await.unwrap_err();
    assert_eq!((error.kind(), error.index()), (ErrorKind::BadArguments, Some(0)));
    assert!(error.to_string().contains("creates no parents"), "{error}");
    assert_eq!(client.with_chroot("a").unwrap_err().path(), Some("a"));
    // The root always exists.
    client.ensure_path("/", mode).await.unwrap();
    assert_eq!(client.metrics().requests, 0);
}

/// The create is queued by its call, in the order of calls, and has copied its arguments.
#[tokio::test(start_paused = true)]
async fn a_create_with_parents_is_queued_by_its_call() {
    let (client, mut conn, _net) = connected().await;
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    let create = client.create_with_stat(&format!("/a/{}", "b"), &[7; 9], options);
    let read = client.get_data("/after");
    drop(client.create("/dropped/b", b"", options));
    let (xid, request) = conn.expect("Create2", "/a/b").await;
    conn.answer(xid, "/a/b", NO_NODE).await;
    conn.script(&[("GetData", "/after", NO_NODE), ("Create", "/dropped/b", NO_NODE)]).await;
    assert_eq!(refusal(read.await), (ErrorKind::NoNode, Outcome::NotApplied));
    let create = tokio::spawn(create);
    conn.script(&[("Exists", "/a", NO_NODE), ("Create", "/a", Created)]).await;
    let (xid, again) = conn.expect("Create2", "/a/b").await;
    assert_eq!(again, request);
    conn.answer(xid, "/a/b", NODE_EXISTS).await;
    let exists = (ErrorKind::NodeExists, Outcome::NotApplied);
    assert_eq!(refusal(result("the create", create).await), exists);
}

fn create_or_set(client: &Client) -> JoinHandle<Result<Option<Stat>, Error>> {
    run(client, async |client| client.create_or_set("/a", b"data", CreateMode::Persistent).await)
}

// Case (Contracts of a call): a node that is written is created or deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn create_or_set_goes_on_when_others_create_and_delete_the_node() {
    let (client, mut conn, _net) = connected().await;
    let call = create_or_set(&client);
    conn.script(&[("SetData", "/a", Answer::Stat)]).await;
    assert!(result("a set", call).await.unwrap().is_some());
    let call = create_or_set(&client);
    conn.script(&[
        ("SetData", "/a", NO_NODE),
        ("Create", "/a", NODE_EXISTS),
        ("SetData", "/a", NO_NODE),
        ("Create", "/a", Created),
    ])
    .await;
    assert_eq!(result("a create", call).await.unwrap(), None);

    let call = run(&client, async |client| {
        let options = CreateOptions::new(CreateMode::Ephemeral).with_parents();
        client.create_or_set("/a/b", b"data", options).await
    });
    conn.script(&[
        ("SetData", "/a/b", NO_NODE),
        ("Create", "/a/b", NO_NODE),
        ("Exists", "/a", NO_NODE),
        ("Create", "/a", Created),
        ("Create", "/a/b", Created),
    ])
    .await;
    assert_eq!(result("with parents", call).await.unwrap(), None);

    let call = create_or_set(&client);
    for _ in 0..10 {
        conn.script(&[("SetData", "/a", NO_NODE), ("Create", "/a", NODE_EXISTS)]).await;
    }
    assert_eq!(
        refusal(result("the end", call).await),
        (ErrorKind::NodeExists, Outcome::NotApplied)
    );
}

#[tokio::test(start_paused = true)]
async fn create_or_set_needs_a_parent_and_repeats_no_lost_write() {
    let (client, mut conn, mut net) = connected().await;
    let call = create_or_set(&client);
    conn.script(&[("SetData", "/a", NO_NODE), ("Create", "/a", NO_NODE)]).await;
    assert_eq!(refusal(result("no parent", call).await), (ErrorKind::NoNode, Outcome::NotApplied));
    for before in 0..2 {
        let call = create_or_set(&client);
        conn.script(&[("SetData", "/a", NO_NODE)][..before]).await;
        conn.request().await;
        drop(conn);
        assert_eq!(refusal(result("a lost reply", call).await), LOST);
        conn = net.serve(7).await.0;
    }
    assert_eq!(client.metrics().requests, 5);
}
