//! Sessions: how they begin, are handed over, and end.

use docent::SessionToken;
use docent_protocol::operation::WhoAmI;

use super::{Fixture, server};
use crate::support::DEADLINE;
use crate::*;

// Case (What broke other clients): no close.
async fn close_takes_the_ephemeral_nodes_with_it(fixture: Fixture) {
    let other = fixture.another().await;
    let path = fixture.path("e");
    other.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
    other.close().await.unwrap();
    assert_eq!(fixture.client.exists(&path).await.unwrap(), None);
    assert_eq!(other.get_data(&path).await.unwrap_err().kind(), ErrorKind::Closed);
}

// Case (Found in docent itself): a ping or closeSession that was submitted as a request broke the
// connection.
async fn any_request_can_be_sent_as_it_is(fixture: Fixture) {
    let body = fixture.client.submit(&WhoAmI).await.unwrap();
    assert!(body.zxid > 0 && !body.bytes.is_empty());
}

/// The client has seen a greater zxid than the server's, as after a restore from a backup.
// Case (Pitfalls of the wire, 17): ahead of every server.
async fn a_client_ahead_of_the_server_reports_it_and_starts_anew(fixture: Fixture) {
    let token = fixture.client.detach().unwrap();
    let zxid = token.last_zxid() + (1 << 40);
    let ahead = SessionToken::new(token.session_id(), token.password(), zxid);
    let config = Config::new(&server().unwrap()).unwrap();
    let config = config.with_session_timeout(Duration::from_secs(1));
    let client = config.with_session(ahead).start().unwrap();
    let seen = eventually("a report of it", async || client.ahead_of_servers()).await;
    assert_eq!(seen, zxid);
    client.wait_until_connected(DEADLINE).await.unwrap();
    assert_eq!(client.ahead_of_servers(), None);
    assert_ne!(session_id(&client), token.session_id());
}

async fn a_session_that_is_handed_over_keeps_its_nodes(fixture: Fixture) {
    let path = fixture.path("e");
    let first = fixture.another().await;
    first.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
    let (held, watcher) = (first.session().unwrap(), fixture.client.exists_and_watch(&path));
    let watcher = &mut watcher.await.unwrap().1;
    let token = first.detach().unwrap();
    assert!(held.is_lost(), "another client may hold its locks now");

    let config = Config::new(&server().unwrap()).unwrap().with_session(token.clone());
    let heir = config.connect().await.unwrap();
    assert_eq!(session_id(&heir), token.session_id());
    let stat = heir.exists(&path).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, token.session_id());
    drop(first);
    heir.sync("/").await.unwrap();
    assert!(heir.exists(&path).await.unwrap().is_some(), "the first closes nothing any more");
    heir.close().await.unwrap();
    within_deadline("the node to go", watcher.next()).await;

    // An ended session cannot be continued: LOST is reported, and there is a new session.
    let config = Config::new(&server().unwrap()).unwrap().with_session(token.clone());
    let late = config.start().unwrap();
    let mut states = late.states();
    let first = within_deadline("a state", states.next()).await;
    assert_eq!(first, Some(ConnectionState::Lost.into()));
    passes(&mut states, ConnectionState::Connected).await;
    assert_ne!(session_id(&late), token.session_id());
}

super::on_all_servers! {
    a_session_that_is_handed_over_keeps_its_nodes,
    a_client_ahead_of_the_server_reports_it_and_starts_anew,
    close_takes_the_ephemeral_nodes_with_it,
    any_request_can_be_sent_as_it_is,
}
