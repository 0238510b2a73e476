//! Recursive deletes.

use super::*;

fn delete_a(client: &Client) -> JoinHandle<Result<(), Error>> {
    run(client, async |client| client.delete_recursive("/a").await)
}

#[tokio::test(start_paused = true)]
async fn children_that_come_and_go_meanwhile_are_deleted_or_forgotten() {
    let (client, mut conn, _net) = connected().await;
    let call = delete_a(&client);
    conn.script(&[
        ("Delete", "/a", NOT_EMPTY),
        ("GetChildren", "/a", Children(&["x", "y"])),
        // Deleted by another client before its delete, and before its listing.
        ("Delete", "/a/y", NO_NODE),
        ("Delete", "/a/x", NOT_EMPTY),
        ("GetChildren", "/a/x", NO_NODE),
        // A child created since.
        ("Delete", "/a", NOT_EMPTY),
        ("GetChildren", "/a", Children(&["z"])),
        ("Delete", "/a/z", NOT_EMPTY),
        // Its children deleted since.
        ("GetChildren", "/a/z", Children(&[])),
        ("Delete", "/a/z", Empty),
        ("Delete", "/a", Empty),
    ])
    .await;
    result("the delete", call).await.unwrap();

    let call = delete_a(&client);
    conn.script(&[("Delete", "/a", NO_NODE)]).await;
    result("no node", call).await.unwrap();
    assert_eq!(client.metrics().requests, 12);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_always_has_new_children_is_given_up() {
    let (client, mut conn, _net) = connected().await;
    let call = delete_a(&client);
    for _ in 0..10 {
        conn.script(&[
            ("Delete", "/a", NOT_EMPTY),
            ("GetChildren", "/a", Children(&["x"])),
            ("Delete", "/a/x", Empty),
        ])
        .await;
    }
    conn.script(&[("Delete", "/a", NOT_EMPTY)]).await;
    let error = result("the delete", call).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NotEmpty, Some("/a")));
}

#[tokio::test(start_paused = true)]
async fn the_first_error_ends_a_recursive_delete() {
    let (client, mut conn, mut net) = connected().await;
    let call = delete_a(&client);
    conn.script(&[
        ("Delete", "/a", NOT_EMPTY),
        ("GetChildren", "/a", Children(&["x", "y"])),
        ("Delete", "/a/y", NO_AUTH),
    ])
    .await;
    let error = result("the delete", call).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::NoAuth, Some("/a/y")));
    conn.script(&[("Delete", "/a/x", Empty)]).await;

    let call = delete_a(&client);
    conn.script(&[("Delete", "/a", NOT_EMPTY)]).await;
    let mut conn = conn.lose_reply("GetChildren", "/a", &mut net).await;
    assert_eq!(refusal(result("the delete", call).await), LOST);
    let next = client.get_data("/next");
    conn.expect("GetData", "/next").await;
    drop(next);
}

/// With a queue of two requests, all others would be refused.
#[tokio::test(start_paused = true)]
async fn a_recursive_delete_keeps_to_the_limit_of_requests() {
    let names: Vec<_> = (0..600).map(|n| n.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for (max_requests, window) in [(2, 2), (1_000_000, 256)] {
        let (dialer, mut net) = net();
        let client = start(config().with_max_requests(max_requests), dialer);
        let (mut conn, _) = net.serve(7).await;
        let call = delete_a(&client);
        conn.script(&[("Delete", "/a", NOT_EMPTY), ("GetChildren", "/a", Children(&names))]).await;
        for left in (0..600).rev() {
            let (xid, _) = conn.request().await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(client.metrics().pending, window.min(left + 1));
            conn.answer(xid, "", Empty).await;
        }
        conn.script(&[("Delete", "/a", Empty)]).await;
        result("the delete", call).await.unwrap();
        assert_eq!(client.metrics().refused, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_root_is_not_deleted() {
    let (client, mut conn, _net) = connected().await;
    for path in ["/", "/zookeeper"] {
        let error = client.delete_recursive(path).await.unwrap_err();
        let refused = (ErrorKind::BadArguments, Outcome::NotApplied);
        assert_eq!((error.kind(), error.outcome()), refused);
        assert_eq!((error.operation(), error.path()), (Some(OpCode::Delete), Some(path)));
        assert!(error.to_string().contains("cannot be deleted"), "{error}");
    }
    assert_eq!(client.metrics().requests, 0);
    // Under a chroot, these paths are other nodes.
    let app = client.with_chroot("/app").unwrap();
    let call = run(&app, async |app| {
        app.delete_recursive("/zookeeper").await?;
        app.delete_recursive("/").await
    });
    conn.script(&[
        ("Delete", "/app/zookeeper", Empty),
        ("Delete", "/app", NOT_EMPTY),
        ("GetChildren", "/app", Children(&["x"])),
        ("Delete", "/app/x", Empty),
        ("Delete", "/app", Empty),
    ])
    .await;
    result("the deletes", call).await.unwrap();
}
