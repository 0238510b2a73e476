//! Trees of 100,000 nodes, on the embedded server.

use std::collections::HashSet;

use super::*;

/// Creates persistent nodes, many in one write.
async fn create(client: &Client, paths: &[String]) {
    for chunk in paths.chunks(1000) {
        let calls: Vec<_> =
            chunk.iter().map(|path| client.create(path, b"", CreateMode::Persistent)).collect();
        for call in calls {
            call.await.unwrap();
        }
    }
}

/// Deep, wide, and both: the stack and the queue do not grow with the tree.
// Case (Contracts of a call): a large tree is deleted.
#[tokio::test]
async fn a_tree_of_100_000_nodes_is_deleted() {
    let server = TestingServer::start().await.unwrap();
    let config = Config::new(&server.connect_string()).unwrap().with_max_requests(1000);
    let client = config.connect().await.unwrap();
    let mut paths = vec!["/t".to_owned()];
    // A chain of 2,000 nodes, a directory of 50,000, and a tree in which each node has 7 children.
    let mut deep = String::from("/t");
    for _ in 0..2000 {
        deep.push_str("/d");
        paths.push(deep.clone());
    }
    paths.push("/t/wide".to_owned());
    paths.extend((0..50_000).map(|n| format!("/t/wide/{n}")));
    let mut level = vec!["/t/tree".to_owned()];
    while paths.len() + level.len() < 100_000 {
        paths.extend(level.iter().cloned());
        level = level.iter().flat_map(|path| (0..7).map(move |n| format!("{path}/{n}"))).collect();
    }
    level.truncate(100_000 - paths.len());
    paths.extend(level);
    create(&client, &paths).await;
    assert_eq!(client.get_all_children_number("/t").await.unwrap(), 99_999);

    let before = client.metrics();
    client.delete_recursive("/t").await.unwrap();
    assert!(client.exists("/t").await.unwrap().is_none());
    let requests = client.metrics().requests - before.requests;
    let parents: HashSet<_> = paths.iter().filter_map(|path| path.rsplit_once('/')).collect();
    let parents: HashSet<_> = parents.into_iter().map(|(parent, _)| parent).collect();
    // One for a leaf, three for another node, and the exists. The root of the server is not one of them.
    assert_eq!(requests, (paths.len() + 2 * (parents.len() - 1) + 1) as u64);
    assert_eq!(client.metrics().refused, 0);
    client.close().await.unwrap();
}
