//! SASL, against a server that does what the test says, and against the embedded one.

use docent_protocol::{
    Acl, CreateMode, Decode, Encode, ErrorCode, EventType, OpCode, Perms,
    jute::Reader,
    reply::SaslReply,
    request::{RequestHeader, SaslRequest},
};
use docent_session::{Client, Config, ConnectionState, ErrorKind};
use docent_testing::{
    TestingServer,
    server::{self, Version},
};
use md5::{Digest, Md5};

use crate::support::*;

const CHALLENGE: &[u8] = b"realm=\"zk-sasl-md5\",nonce=\"N\",charset=utf-8,algorithm=md5-sess";

fn bob() -> Config {
    config().with_sasl("bob", "pw").unwrap()
}

impl Conn {
    /// The next word of SASL: its xid, and itself.
    async fn sasl(&mut self) -> (i32, String) {
        let payload = self.frame().await.expect("a word of SASL");
        let mut reader = Reader::new(&payload);
        let header = RequestHeader::decode(&mut reader).unwrap();
        assert_eq!(header.op, OpCode::Sasl);
        let token = SaslRequest::decode(&mut reader).unwrap().token.expect("a token, if empty");
        (header.xid, String::from_utf8(token.to_vec()).unwrap())
    }

    async fn answer_sasl(&mut self, xid: i32, err: ErrorCode, token: Option<&[u8]>) {
        self.send_bytes(&sasl_reply(xid, err, token)).await;
    }

    /// Up to the client's response.
    async fn challenge(&mut self) -> (i32, String) {
        let (xid, first) = self.sasl().await;
        assert_eq!(first, "");
        self.answer_sasl(xid, ErrorCode::Ok, Some(CHALLENGE)).await;
        self.sasl().await
    }

    /// The whole exchange.
    async fn authenticate(&mut self) {
        let (xid, response) = self.challenge().await;
        self.answer_sasl(xid, ErrorCode::Ok, Some(proof(&response).as_bytes())).await;
    }
}

fn sasl_reply(xid: i32, err: ErrorCode, token: Option<&[u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    SaslReply { token }.encode(&mut body);
    reply(xid, 0, err, &body)
}

/// What a server that knows bob's password says to a response; checks the response on the way.
fn proof(response: &str) -> String {
    let hex = |text: &[u8]| -> String {
        Md5::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let cnonce = response.split("cnonce=\"").nth(1).unwrap().split('"').next().unwrap();
    let secret = Md5::digest(b"bob:zk-sasl-md5:pw");
    let a1 = hex(&[&secret[..], format!(":N:{cnonce}").as_bytes()].concat());
    let digest = |method: &str| {
        let a2 = hex(format!("{method}:zookeeper/zk-sasl-md5").as_bytes());
        hex(format!("{a1}:N:00000001:{cnonce}:auth:{a2}").as_bytes())
    };
    assert!(response.contains(&format!("response={},", digest("AUTHENTICATE"))), "{response}");
    format!("rspauth={}", digest(""))
}

/// The error of a refusal: of connect, of a call, and of a later one.
async fn assert_refused(client: Client, mut conn: Conn, net: &Net, why: &str) {
    let error = soon("a refusal", client.wait_until_connected(LONG)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    assert!(error.to_string().contains(why), "{error}");
    let late = soon("a late call", client.get_data("/late")).await.unwrap_err();
    assert_eq!((late.kind(), late.detail()), (ErrorKind::AuthFailed, error.detail()));
    assert_eq!(client.ended(), Some(ErrorKind::AuthFailed));
    assert_eq!(conn.frame().await, None, "the connection is given up");
    assert!(net.is_quiet(), "and there is no other");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_the_password_is_not_believed() {
    let (dialer, mut net) = net();
    let client = start(bob(), dialer);
    let (mut conn, _) = net.serve(7).await;
    let (xid, response) = conn.challenge().await;
    // All that an impostor has: the client's own words.
    let parrot = format!("rspauth={}", &response.split("response=").nth(1).unwrap()[..32]);
    conn.answer_sasl(xid, ErrorCode::Ok, Some(parrot.as_bytes())).await;
    assert_refused(client, conn, &net, "has not proved").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_sasl_is_named_as_such() {
    let (dialer, mut net) = net();
    let client = start(bob(), dialer);
    let (mut conn, _) = net.serve(7).await;
    let (xid, _) = conn.sasl().await;
    conn.answer_sasl(xid, ErrorCode::Ok, None).await;
    assert_refused(client, conn, &net, "SASL is not configured on the server").await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_password_is_final() {
    for err in [ErrorCode::AuthFailed, ErrorCode::SessionClosedRequireSaslAuth] {
        let (dialer, mut net) = net();
        let client = start(bob(), dialer);
        let (mut conn, _) = net.serve(7).await;
        let (xid, _) = conn.challenge().await;
        conn.answer_sasl(xid, err, None).await;
        assert_refused(client, conn, &net, "refused the SASL user or password").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_in_the_middle_is_left_with_the_session_kept() {
    let (dialer, mut net) = net();
    let client = start(bob(), dialer);
    let (mut silent, _) = net.serve(7).await;
    silent.challenge().await;
    assert_eq!(silent.frame().await, None, "no ping, and the end");
    let mut conn = net.accept().await;
    assert_eq!(conn.handshake().await.session_id, 7);
    conn.grant(7, 6000).await;
    conn.authenticate().await;
    soon("a connection", client.wait_until_connected(LONG)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cut_in_the_middle_of_any_word_begins_again() {
    let (dialer, mut net) = net();
    // The pauses grow meanwhile: these are no servers that one could work with.
    let client = start(bob().with_connection_timeout(LONG), dialer);
    let call = client.get_data("/a");
    for kept in 0..sasl_reply(1, ErrorCode::Ok, Some(CHALLENGE)).len() {
        let (mut conn, _) = net.serve(7).await;
        let (xid, _) = conn.sasl().await;
        let word = sasl_reply(xid, ErrorCode::Ok, Some(CHALLENGE));
        conn.send_bytes(&word[..kept]).await;
    }
    let (mut conn, _) = net.serve(7).await;
    let (xid, response) = conn.challenge().await;
    let word = sasl_reply(xid, ErrorCode::Ok, Some(proof(&response).as_bytes()));
    conn.send_bytes(&word[..30]).await;
    drop(conn);

    let (mut conn, _) = net.serve(7).await;
    let (xid, _) = conn.sasl().await;
    // Byte by byte, a word is as good as in one piece.
    for byte in sasl_reply(xid, ErrorCode::Ok, Some(CHALLENGE)) {
        conn.send_bytes(&[byte]).await;
    }
    let (xid, response) = conn.sasl().await;
    for byte in sasl_reply(xid, ErrorCode::Ok, Some(proof(&response).as_bytes())) {
        conn.send_bytes(&[byte]).await;
    }
    let (xid, _) = conn.request().await;
    conn.data(xid, b"x").await;
    assert_eq!(soon("the call", call).await.unwrap().data, "x");
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_authenticates_again_before_it_sets_its_watches() {
    let (dialer, mut net) = net();
    let client = start(bob().with_auth("digest", b"u:p"), dialer);
    let (mut conn, _) = net.serve(7).await;
    conn.authenticate().await;
    let (xid, request) = conn.request().await;
    assert!(request.starts_with("Auth"), "{request}");
    conn.reply(xid, 0, ErrorCode::Ok, &[]).await;
    let watch = client.get_data_and_watch("/w");
    let (xid, _) = conn.request().await;
    conn.data(xid, b"x").await;
    let (_, mut watcher) = soon("the read", watch).await.unwrap();
    drop(conn);

    let mut states = client.states();
    let (mut conn, _) = net.serve(7).await;
    conn.authenticate().await;
    for expected in ["Auth", "SetWatches"] {
        let (xid, request) = conn.request().await;
        assert!(request.starts_with(expected), "{request}");
        conn.reply(xid, 0, ErrorCode::Ok, &[]).await;
    }
    soon("the state", async { while states.next().await != Some(ConnectionState::Reconnected) {} })
        .await;
    conn.event(EventType::NodeDataChanged, "/w").await;
    let event = soon("the event", watcher.changed()).await;
    assert_eq!(event.event_type, EventType::NodeDataChanged);
}

#[tokio::test(start_paused = true)]
async fn the_last_clone_gone_in_the_middle_still_closes_the_session() {
    let (dialer, mut net) = net();
    let client = start(bob(), dialer);
    let (mut conn, _) = net.serve(7).await;
    let (xid, response) = conn.challenge().await;
    drop(client);
    conn.answer_sasl(xid, ErrorCode::Ok, Some(proof(&response).as_bytes())).await;
    conn.confirm_close().await;
}

// The embedded server.

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
async fn the_right_password_opens_what_is_bobs() {
    for required in [false, true] {
        let server = guarded(required).await;
        let bob = config_for(&server).with_sasl("bob", "pw").unwrap();
        let client = soon("bob", bob.connect()).await.unwrap();
        let acl = [Acl::new(Perms::ALL, "sasl", "bob")];
        client.create_with_acl("/his", b"x", CreateMode::Persistent, &acl).await.unwrap();
        let ids = client.who_am_i().await.unwrap();
        assert!(ids.iter().any(|id| (&*id.auth_scheme, &*id.user) == ("sasl", "bob")), "{ids:?}");

        // The server forgets it with the connection.
        let mut states = client.states();
        server.cut_connections();
        soon("a new connection", async {
            while states.next().await != Some(ConnectionState::Reconnected) {}
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
            let config = config_for(&server).with_sasl(user, password).unwrap();
            let error = soon("a refusal", config.connect()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
            assert!(!error.to_string().contains("wrong"), "{error}");
        }
    }
    let server = TestingServer::start().await.unwrap();
    let config = config_for(&server).with_sasl("bob", "pw").unwrap();
    let error = soon("a refusal", config.connect()).await.unwrap_err();
    assert!(error.to_string().contains("not configured"), "{error}");
}

/// 3.4 closes the connection instead of refusing, which may mean anything: the client goes on trying.
#[tokio::test]
async fn a_server_of_3_4_refuses_silently() {
    let server = TestingServer::start_with(server::Config {
        sasl_users: [("bob".to_owned(), "pw".to_owned())].into(),
        version: Version::V3_4,
        ..server::Config::default()
    })
    .await
    .unwrap();
    let client = config_for(&server).with_sasl("bob", "wrong").unwrap().start();
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
    let config = config_for(&server).with_sasl("bob", "pw").unwrap();
    soon("a client", config.connect()).await.unwrap();
}
