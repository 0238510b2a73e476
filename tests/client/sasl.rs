//! SASL with a real server, whose users are in a JAAS configuration.

use super::*;

/// The users; their passwords cover each form that a digest has to handle.
const USERS: [(&str, &str); 4] =
    [("bob", "bobpw"), ("eve", "a \"quoted\\ one"), ("jürgen", "pässwört"), ("li", "päss✓")];

/// A server that knows [`USERS`].
struct Fixture {
    server: RealServer,
    _files: TemporaryDirectory,
}

impl Fixture {
    /// `more` are additional lines of `zoo.cfg`. `None` if there is no server, which is then reported.
    #[track_caller]
    fn start(more: &[(&str, &str)]) -> impl Future<Output = Option<Self>> {
        let files = TemporaryDirectory::new("sasl").unwrap();
        let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let users: String = USERS
            .iter()
            .map(|(user, password)| format!("  user_{user}=\"{}\"\n", escaped(password)))
            .collect();
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
        let jaas = format!("Server {{\n  {module} required\n{users};\n}};\n");
        let jaas = files.write("server.jaas", jaas).unwrap();
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        let config = [&[("authProvider.1", provider)], more].concat();
        let login = [("java.security.auth.login.config", jaas.to_str().unwrap())];
        let server = RealServer::start_with(settings(&config, &login));
        async move { Some(Self { server: server.await?, _files: files }) }
    }

    fn config(&self) -> Config {
        Config::new(&self.server.connect())
            .unwrap()
            .with_session_timeout(Duration::from_secs(60))
            .with_connection_timeout(crate::support::DEADLINE)
    }

    async fn connect_as(&self, user: &str, password: &str) -> Result<Client, Error> {
        let config = self.config().with_sasl(user, password);
        within_deadline("a client", config.connect()).await
    }

    async fn connect_anonymously(&self) -> Client {
        within_deadline("a client", self.config().connect()).await.unwrap()
    }

    async fn assert_refused(&self, user: &str, password: &str, why: &str) {
        let error = self.connect_as(user, password).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn every_user_has_its_id_and_owns_its_nodes() {
    let Some(fixture) = Fixture::start(&[]).await else { return };
    let anonymous = fixture.connect_anonymously().await;
    for (user, password) in USERS {
        let client = fixture.connect_as(user, password).await.unwrap();
        let ids = client.who_am_i().await.unwrap();
        let proved = ids.iter().any(|id| (&*id.auth_scheme, &*id.user) == ("sasl", user));
        assert!(proved, "{user}: {ids:?}");

        let path = format!("/{}", user.len());
        let acl = [Acl::new(Perms::ALL, "sasl", user)];
        let own = CreateOptions::new(CreateMode::Persistent).with_acl(&acl);
        client.create(&path, b"x", own).await.unwrap();
        assert_eq!(client.get_data(&path).await.unwrap().data, "x");
        assert_eq!(anonymous.get_data(&path).await.unwrap_err().kind(), ErrorKind::NoAuth);
        client.delete(&path, None).await.unwrap();
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_wrong_password_or_user_ends_the_client() {
    let Some(fixture) = Fixture::start(&[]).await else { return };
    fixture.assert_refused("bob", "wrong", "refused the SASL user or password").await;
    // Not with bob's password: for an unknown user, a real server checks the password of the user who was looked up
    // last, on any connection (`SaslServerCallbackHandler.userName`).
    fixture.assert_refused("mallory", "mallorypw", "refused the SASL user or password").await;
    fixture.assert_refused("jürgen", "passwort", "refused the SASL user or password").await;
}

#[tokio::test]
async fn a_lost_connection_and_a_restarted_server_are_authenticated_again() {
    let Some(mut fixture) = Fixture::start(&[]).await else { return };
    let client = fixture.connect_as("bob", "bobpw").await.unwrap();
    let acl = [Acl::new(Perms::ALL, "sasl", "bob")];
    let own = CreateOptions::new(CreateMode::Persistent).with_acl(&acl);
    client.create("/his", b"1", own).await.unwrap();
    let (_, mut watcher) = client.get_data_and_watch("/his").await.unwrap();
    let session = session_id(&client);
    let mut states = client.states();

    fixture.server.restart().await;
    passes(&mut states, ConnectionState::Reconnected).await;
    assert_eq!(session_id(&client), session);
    client.set_data("/his", b"2", None).await.unwrap();
    // The watch was set again.
    let event = within_deadline("the event", watcher.next()).await.unwrap();
    assert_eq!(event.event_type, EventType::NodeDataChanged);
    client.close().await.unwrap();
}

/// `sessionRequireClientSASLAuth`, and its successor since 3.7, `enforce.auth`.
#[tokio::test]
async fn a_server_that_requires_sasl_accepts_clients_with_it() {
    for required in [
        &[("sessionRequireClientSASLAuth", "true")][..],
        &[("enforce.auth.enabled", "true"), ("enforce.auth.schemes", "sasl")][..],
    ] {
        let Some(fixture) = Fixture::start(required).await else { return };
        let client = fixture.connect_as("bob", "bobpw").await.unwrap();
        let path = client.create("/a", b"", CreateMode::Ephemeral).await.unwrap();
        client.close().await.unwrap();

        fixture.assert_refused("bob", "wrong", "refused the SASL user or password").await;

        // The client has a session until its first request or ping, which the server refuses.
        let anonymous = fixture.connect_anonymously().await;
        let error = within_deadline("a refusal", anonymous.get_data(&path)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SessionClosedRequireSaslAuth, "{error}");
        let idle = fixture.connect_anonymously().await;
        eventually("the end", async || idle.ended()).await;
        assert_eq!(idle.ended(), Some(ErrorKind::AuthFailed));
    }
}

/// With `allowSaslFailedClients`, the server would serve the client without authentication; docent refuses that.
#[tokio::test]
async fn a_wrong_password_fails_on_a_server_that_accepts_all_clients() {
    let Some(fixture) = Fixture::start(&[("allowSaslFailedClients", "true")]).await else { return };
    fixture.assert_refused("bob", "wrong", "did not accept the SASL user or password").await;
    fixture.connect_as("bob", "bobpw").await.unwrap();
}

#[tokio::test]
async fn a_server_without_sasl_ends_the_client() {
    let Some(server) = RealServer::start().await else { return };
    let config = Config::new(&server.connect()).unwrap().with_sasl("bob", "bobpw");
    let error = within_deadline("a refusal", config.connect()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed);
    assert!(error.to_string().contains("SASL is not configured"), "{error}");
}
