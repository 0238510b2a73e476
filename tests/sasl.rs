//! SASL with a real server, whose users are in a JAAS configuration.

#![allow(clippy::unwrap_used, reason = "clippy knows test functions, not what they call")]

mod support;

use std::{fs, time::Duration};

use docent::{Acl, Client, Config, ConnectionState, CreateMode, ErrorKind, Perms, session::Error};
use support::{eventually, real::RealServer, within_deadline};
use xtask::{Settings, TemporaryDirectory};

/// Who there is, with passwords in each of the forms that enter the digest.
const USERS: [(&str, &str); 4] =
    [("bob", "bobpw"), ("eve", "a \"quoted\\ one"), ("jürgen", "pässwört"), ("li", "päss✓")];

/// A server that knows these users.
struct Guarded {
    server: RealServer,
    _files: TemporaryDirectory,
}

impl Guarded {
    /// With more lines of `zoo.cfg`. `None` if there is no server, which is then told.
    #[track_caller]
    fn start(more: &[(&str, &str)]) -> impl Future<Output = Option<Self>> {
        let files = TemporaryDirectory::new("sasl").unwrap();
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let users: String = USERS
            .iter()
            .map(|(user, password)| format!("  user_{user}=\"{}\"\n", escaped(password)))
            .collect();
        let jaas = files.path().join("server.jaas");
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        fs::write(&jaas, format!("Server {{\n  {module} required\n{users};\n}};\n")).unwrap();
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        let config = [("authProvider.1", provider)]
            .iter()
            .chain(more)
            .map(|(name, value)| line(name, value))
            .collect();
        let properties = vec![line("java.security.auth.login.config", &jaas.display().to_string())];
        let settings = Settings { config, properties, ..Settings::default() };
        let server = RealServer::start_with(settings);
        async move { Some(Self { server: server.await?, _files: files }) }
    }

    fn config(&self) -> Config {
        Config::new(&self.server.connect())
            .unwrap()
            .with_session_timeout(Duration::from_secs(10))
            .with_connection_timeout(support::DEADLINE)
    }

    async fn connect_as(&self, user: &str, password: &str) -> Result<Client, Error> {
        let config = self.config().with_sasl(user, password).unwrap();
        within_deadline("a client", Client::connect_with(config)).await
    }

    async fn connect_as_nobody(&self) -> Result<Client, Error> {
        within_deadline("a client", Client::connect_with(self.config())).await
    }

    async fn assert_refused(&self, user: &str, password: &str, why: &str) {
        let error = self.connect_as(user, password).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn every_user_is_who_it_says_and_owns_what_it_owns() {
    let Some(guarded) = Guarded::start(&[]).await else { return };
    let nobody = guarded.connect_as_nobody().await.unwrap();
    for (user, password) in USERS {
        let client = guarded.connect_as(user, password).await.unwrap();
        let ids = client.who_am_i().await.unwrap();
        let proved = ids.iter().any(|id| (&*id.auth_scheme, &*id.user) == ("sasl", user));
        assert!(proved, "{user}: {ids:?}");

        let path = format!("/{}", user.len());
        let acl = [Acl::new(Perms::ALL, "sasl", user)];
        client.create_with_acl(&path, b"x", CreateMode::Persistent, &acl).await.unwrap();
        assert_eq!(client.get_data(&path).await.unwrap().data, "x");
        assert_eq!(nobody.get_data(&path).await.unwrap_err().kind(), ErrorKind::NoAuth);
        client.delete(&path, None).await.unwrap();
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_wrong_password_or_user_ends_the_client() {
    let Some(guarded) = Guarded::start(&[]).await else { return };
    guarded.assert_refused("bob", "wrong", "refused the SASL user or password").await;
    // Not with bob's password: for a user that it does not know, a real server takes the password of the user
    // that was asked for last, on whatever connection (`SaslServerCallbackHandler.userName`).
    guarded.assert_refused("mallory", "mallorypw", "refused the SASL user or password").await;
    guarded.assert_refused("jürgen", "passwort", "refused the SASL user or password").await;
}

#[tokio::test]
async fn a_connection_that_is_lost_and_a_server_that_is_restarted_are_told_again() {
    let Some(mut guarded) = Guarded::start(&[]).await else { return };
    let client = guarded.connect_as("bob", "bobpw").await.unwrap();
    let acl = [Acl::new(Perms::ALL, "sasl", "bob")];
    client.create_with_acl("/his", b"1", CreateMode::Persistent, &acl).await.unwrap();
    let (_, mut watcher) = client.get_data_and_watch("/his").await.unwrap();
    let session = client.session().unwrap().session_id();
    let mut states = client.states();

    guarded.server.restart().await;
    within_deadline("a new connection", async {
        while states.next().await != Some(ConnectionState::Reconnected) {}
    })
    .await;
    assert_eq!(client.session().unwrap().session_id(), session);
    client.set_data("/his", b"2", None).await.unwrap();
    let event = within_deadline("the event of a watch that was set again", watcher.changed()).await;
    assert_eq!(event.event_type, docent::EventType::NodeDataChanged);
    client.close().await.unwrap();
}

/// `sessionRequireClientSASLAuth`, and what came for it in 3.7: `enforce.auth`.
#[tokio::test]
async fn a_server_that_requires_sasl_lets_in_who_has_it() {
    for required in [
        &[("sessionRequireClientSASLAuth", "true")][..],
        &[("enforce.auth.enabled", "true"), ("enforce.auth.schemes", "sasl")][..],
    ] {
        let Some(guarded) = Guarded::start(required).await else { return };
        let client = guarded.connect_as("bob", "bobpw").await.unwrap();
        let path = client.create("/a", b"", CreateMode::Ephemeral).await.unwrap();
        client.close().await.unwrap();

        guarded.assert_refused("bob", "wrong", "refused the SASL user or password").await;

        // Has a session, but no more: its first request, or its first ping, is the last.
        let nobody = guarded.connect_as_nobody().await.unwrap();
        let error = within_deadline("a refusal", nobody.get_data(&path)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionClosedRequireSaslAuth, "{error}");
        let idle = guarded.connect_as_nobody().await.unwrap();
        eventually("the end", async || idle.ended()).await;
        assert_eq!(idle.ended(), Some(ErrorKind::AuthFailed));
    }
}

/// `allowSaslFailedClients`: the server would go on with a client that has proved nothing.
#[tokio::test]
async fn a_server_that_lets_everybody_in_does_not_make_a_wrong_password_right() {
    let Some(guarded) = Guarded::start(&[("allowSaslFailedClients", "true")]).await else { return };
    guarded.assert_refused("bob", "wrong", "did not accept the SASL user or password").await;
    guarded.connect_as("bob", "bobpw").await.unwrap();
}

#[tokio::test]
async fn a_server_without_sasl_ends_the_client() {
    let Some(server) = RealServer::start().await else { return };
    let config = Config::new(&server.connect()).unwrap().with_sasl("bob", "bobpw").unwrap();
    let error = within_deadline("a refusal", Client::connect_with(config)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    assert!(error.to_string().contains("SASL is not configured"), "{error}");
}
