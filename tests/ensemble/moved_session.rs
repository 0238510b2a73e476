//! A session that another connection, at another member, has taken over: the first connection ends, even if the server
//! keeps it open, and the client takes the session back.

use docent::Error;
use docent_testing::server::Version;

use super::*;
use crate::support::ensemble::address;

async fn commit(client: &Client) -> Result<(), Error> {
    let mut transaction = client.transaction();
    transaction.check("/", None);
    within_deadline("a transaction", transaction.commit()).await.map(drop)
}

/// `members` are the addresses of two members.
async fn a_moved_session_is_taken_back(members: [String; 2], context: &str) {
    let [first, second] = members.map(|member| Ensemble::config_of(&member));
    let client = first.connect().await.unwrap();
    commit(&client).await.unwrap();
    let session = session_id(&client);
    let other = second.with_session(client.session_token()).connect().await.unwrap();
    commit(&other).await.unwrap();
    assert_eq!(session_id(&other), session, "{context}");
    drop(other.detach());

    let error = commit(&client).await.unwrap_err();
    // 3.4 replies that the session has moved, and keeps the connection; the others close it without a reply.
    match error.kind() {
        ErrorKind::SessionMoved => assert_eq!(error.outcome(), Outcome::NotApplied, "{context}"),
        kind => assert_eq!(kind, ErrorKind::ConnectionLoss, "{context}: {error}"),
    }
    eventually("the session is taken back", async || commit(&client).await.ok()).await;
    assert_eq!(session_id(&client), session, "{context}");
    assert_eq!(client.metrics().connections, 2, "{context}");
}

#[tokio::test]
async fn a_moved_session_is_taken_back_embedded() {
    for version in Version::ALL {
        let config = server::Config { servers: 3, version, ..server::Config::default() };
        let cluster = TestingCluster::start_with(config).await.unwrap();
        let members = [0, 1].map(|member| address(&cluster, member));
        a_moved_session_is_taken_back(members, &version.to_string()).await;
    }
}

#[tokio::test]
async fn a_moved_session_is_taken_back_real() {
    if let Some(ensemble) = Ensemble::real(3, 10).await {
        let members = [0, 1].map(|member| ensemble.connect_to(member));
        a_moved_session_is_taken_back(members, "real").await;
    }
}
