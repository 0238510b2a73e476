//! SASL by DIGEST-MD5, on the embedded server.

use docent_protocol::{Acl, CreateMode, Perms};
use docent_session::{Config, ConnectionState, CreateOptions, ErrorKind};
use docent_testing::{
    TestingServer,
    server::{self, Version},
};

use crate::support::*;

async fn guarded(required: bool) -> TestingServer {
    TestingServer::start_with(server::Config {
        sasl_users: [("bob".to_owned(), "pw".to_owned())].into(),
        sasl_required: required,
        ..server::Config::default()
    })
    .await
    .unwrap()
}

fn config_for(server: &TestingServer) -> Config {
    Config::new(&server.connect_string()).unwrap()
}

#[tokio::test]
async fn the_right_password_opens_the_nodes_of_bob() {
    for required in [false, true] {
        let server = guarded(required).await;
        let bob = config_for(&server).with_sasl("bob", "pw");
        let client = soon("bob", bob.connect()).await.unwrap();
        let acl = [Acl::new(Perms::ALL, "sasl", "bob")];
        client
            .create("/his", b"x", CreateOptions::new(CreateMode::Persistent).with_acl(&acl))
            .await
            .unwrap();
        let ids = client.who_am_i().await.unwrap();
        assert!(ids.iter().any(|id| (&*id.auth_scheme, &*id.user) == ("sasl", "bob")), "{ids:?}");

        // The server forgets the identity with the connection.
        let mut states = client.states();
        server.cut_connections();
        soon("a new connection", async {
            while states.next().await != Some(ConnectionState::Reconnected.into()) {}
        })
        .await;
        assert_eq!(soon("a read", client.get_data("/his")).await.unwrap().data, "x");

        let anonymous = soon("a session", config_for(&server).connect()).await;
        let kind = anonymous.unwrap().get_data("/his").await.unwrap_err().kind();
        let refused = [ErrorKind::SessionClosedRequireSaslAuth, ErrorKind::AuthFailed];
        assert!(if required { refused.contains(&kind) } else { kind == ErrorKind::NoAuth });
    }
}

#[tokio::test]
async fn a_wrong_password_or_user_gets_nowhere() {
    for required in [false, true] {
        let server = guarded(required).await;
        for (user, password) in [("bob", "wrong"), ("eve", "pw")] {
            let config = config_for(&server).with_sasl(user, password);
            let error = soon("a refusal", config.connect()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
            assert!(!error.to_string().contains("wrong"), "{error}");
        }
    }
    let server = TestingServer::start().await.unwrap();
    let config = config_for(&server).with_sasl("bob", "pw");
    let error = soon("a refusal", config.connect()).await.unwrap_err();
    assert!(error.to_string().contains("not configured"), "{error}");
}

/// 3.4 closes the connection instead of refusing, which is ambiguous: the client tries again.
#[tokio::test]
async fn a_server_of_3_4_refuses_silently() {
    let server = TestingServer::start_with(server::Config {
        sasl_users: [("bob".to_owned(), "pw".to_owned())].into(),
        version: Version::V3_4,
        ..server::Config::default()
    })
    .await
    .unwrap();
    let client = config_for(&server).with_sasl("bob", "wrong").start().unwrap();
    let reported = async {
        loop {
            let error = client.wait_until_connected(ms(50)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionLoss);
            if error.to_string().contains("no reply to SASL") {
                break;
            }
        }
    };
    soon("the reason", reported).await;
    let config = config_for(&server).with_sasl("bob", "pw");
    soon("a client", config.connect()).await.unwrap();
}
