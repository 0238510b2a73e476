//! SASL by DIGEST-MD5, on the embedded server.

use docent_testing::server::{self, Version};

use super::*;
use crate::support::*;

fn config_for(server: &TestingServer) -> Config {
    Config::new(&server.connect_string()).unwrap()
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
    within_limit("the reason", reported).await;
    let config = config_for(&server).with_sasl("bob", "pw");
    within_limit("a client", config.connect()).await.unwrap();
}
