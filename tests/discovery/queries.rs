//! Queries for the instances of other processes.

use super::*;

/// In Curator, one node that is not an instance fails the whole query.
// Case (Service discovery): a node that is not an instance.
async fn a_node_that_is_no_instance_is_left_out(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let discovery = discovery(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    for bad in ["notjson", "", "[]"] {
        let path = node(&fixture, "bad");
        a.create(&path, bad.as_bytes(), CreateMode::Ephemeral).await.unwrap();
        assert_eq!(names(&discovery.query_for_instances("web").await.unwrap()), ["i1:1"]);
        let error = discovery.query_for_instance("web", "bad").await.unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::BadReply, Some(path.as_str())));
        a.delete(&path, None).await.unwrap();
    }
}

/// There are more instances than are read at once, and the connection breaks during the query.
async fn a_query_survives_a_broken_connection(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let discovery = discovery(&fixture, &a);
    let ids: Vec<String> = (0..150).map(|number| format!("i{number:03}")).collect();
    for id in &ids {
        drop(discovery.register(web(id, 1)));
    }
    fixture.children(&format!("{}/web", fixture.path), ids.len()).await;
    let wanted: Vec<String> = ids.iter().map(|id| format!("{id}:1")).collect();
    for op in [OpCode::GetChildren2, OpCode::GetData] {
        fixture.tap.inject(Fault::drop_reply(op).of("A").nth(1));
        let found = within_deadline("the query", discovery.query_for_instances("web")).await;
        assert_eq!(names(&found.unwrap()), wanted);
    }
    fixture.tap.inject(Fault::drop_before(OpCode::GetData).of("A"));
    let found = within_deadline("the query", discovery.query_for_instance("web", "i007")).await;
    assert_eq!(found.unwrap(), Some(web("i007", 1)));
}

/// A query leaves room for other requests, and works with a small request limit.
// Case (Found in docent itself): discovery: a query failed with `TooManyRequests` when the limit of
// the client was below 64.
async fn a_query_keeps_within_the_limit_of_requests(fixture: Fixture) {
    let observer = fixture.observer().await;
    fixture.create_path(&observer).await;
    observer.create(&format!("{}/web", fixture.path), b"", CreateMode::Persistent).await.unwrap();
    let ids: Vec<String> = (0..40).map(|number| format!("i{number:02}")).collect();
    for id in &ids {
        let json = format!(r#"{{"name":"web","id":"{id}","port":1}}"#);
        let path = node(&fixture, id);
        observer.create(&path, json.as_bytes(), CreateMode::Ephemeral).await.unwrap();
    }
    let wanted: Vec<String> = ids.iter().map(|id| format!("{id}:1")).collect();
    for limit in [1, 2, 7, 50] {
        let config = Config::new(&fixture.server).unwrap().with_max_requests(limit);
        let client = config.connect().await.unwrap();
        let discovery = discovery(&fixture, &client);
        let found = within_deadline("the query", discovery.query_for_instances("web")).await;
        assert_eq!(names(&found.unwrap()), wanted, "{limit}");
        // Other requests take all but one place.
        let others: Vec<_> = (1..limit).map(|_| client.sync("/")).collect();
        let found = within_deadline("the query", discovery.query_for_instances("web")).await;
        assert_eq!(names(&found.unwrap()), wanted, "{limit} with others");
        for other in others {
            other.await.unwrap();
        }
        client.close().await.unwrap();
    }
}

on_both_servers! {
    a_node_that_is_no_instance_is_left_out
    a_query_survives_a_broken_connection
    a_query_keeps_within_the_limit_of_requests
}
