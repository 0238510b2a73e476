//! A login, the identity of its principal, and the names of the server.

use std::time::Duration;

use docent_gssapi::{Gssapi, GssapiErrorKind};
use docent_protocol::{Acl, CreateMode, EventType, Perms};
use docent_session::{ConnectionState, CreateOptions, ErrorKind, sasl::SaslMechanism as _};
use xtask::Settings;

use crate::support::{
    config, connect, in_realms, kind_of, restart, sasl_user, start_server, within_deadline,
};

in_realms! {
    "DIR";

    async fn a_principal_owns_its_nodes(place) {
        let realm = place.realm();
        realm.kdc.add_principal("other", "client.keytab").unwrap();
        let server = realm.server().await;
        let app = Gssapi::new().with_principal("app@DOCENT.TEST").unwrap();
        let client = connect(&server, app).await.unwrap();
        assert_eq!(sasl_user(&client).await.as_deref(), Some("app@DOCENT.TEST"));

        let ours = [Acl::new(Perms::ALL, "sasl", "app@DOCENT.TEST")];
        client.create("/ours", b"x", CreateOptions::new(CreateMode::Persistent).with_acl(&ours)).await.unwrap();
        assert_eq!(client.get_data("/ours").await.unwrap().data, "x");

        let anonymous = within_deadline("a client", config(server.address()).connect()).await;
        let refused = anonymous.unwrap().get_data("/ours").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoAuth);
        let other = Gssapi::new().with_principal("other").unwrap();
        let other = connect(&server, other).await.unwrap();
        assert_eq!(sasl_user(&other).await.as_deref(), Some("other@DOCENT.TEST"));
        assert_eq!(other.get_data("/ours").await.unwrap_err().kind(), ErrorKind::NoAuth);
        let theirs = [Acl::new(Perms::ALL, "sasl", "other@DOCENT.TEST")];
        let refused = other.set_acl("/ours", &theirs, None).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoAuth);
        client.delete("/ours", None).await.unwrap();
    }

    async fn a_restarted_server_gets_a_ticket_for_the_same_session(place) {
        let realm = place.realm();
        let server = realm.server().await;
        let client = connect(&server, Gssapi::new()).await.unwrap();
        let ours = [Acl::new(Perms::ALL, "sasl", "app@DOCENT.TEST")];
        client.create("/ours", b"1", CreateOptions::new(CreateMode::Persistent).with_acl(&ours)).await.unwrap();
        let (_, mut watcher) = client.get_data_and_watch("/ours").await.unwrap();
        let session = client.session().unwrap().session_id();
        let mut states = client.states();

        let _server = restart(server).await;
        within_deadline("a new connection", async {
            while states.next().await != Some(ConnectionState::Reconnected.into()) {}
        })
        .await;
        assert_eq!(client.session().unwrap().session_id(), session);
        client.set_data("/ours", b"2", None).await.unwrap();
        let event = within_deadline("an event", watcher.next()).await.unwrap();
        assert_eq!(event.event_type, EventType::NodeDataChanged);
    }

    /// The server and the client use different mechanisms.
    async fn digest_md5_works_beside_kerberos_and_each_refuses_the_other(place) {
        let realm = place.realm();
        let kerberos = realm.server().await;
        let digest = "org.apache.zookeeper.server.auth.DigestLoginModule required user_bob=\"pw\"";
        let digest = realm.server_with(digest).await;
        let app = connect(&kerberos, Gssapi::new()).await.unwrap();
        let bob = config(digest.address()).with_sasl("bob", "pw");
        let bob = within_deadline("a client", bob.connect()).await.unwrap();
        assert_eq!(sasl_user(&app).await.as_deref(), Some("app@DOCENT.TEST"));
        assert_eq!(sasl_user(&bob).await.as_deref(), Some("bob"));

        let config_for_digest = config(digest.address()).with_sasl_mechanism(Gssapi::new());
        let app = config_for_digest.with_connection_timeout(Duration::from_secs(10));
        let refused = within_deadline("an error", app.connect()).await.unwrap_err();
        let (kind, text) = kind_of(&refused);
        assert_eq!(kind, Some(GssapiErrorKind::InvalidToken), "{text}");
        assert!(text.contains("DIGEST-MD5") && text.contains("Krb5LoginModule"), "{text}");
        let bob = config(kerberos.address()).with_sasl("bob", "pw");
        let refused = within_deadline("a refusal", bob.connect()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AuthFailed, "{refused}");
        assert!(refused.to_string().contains("refused the SASL user or password"), "{refused}");
    }

    async fn a_server_without_sasl_ends_the_client(place) {
        let _realm = place.realm();
        let server = start_server(Settings::default()).await;
        let refused = connect(&server, Gssapi::new()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AuthFailed, "{refused}");
        assert!(refused.to_string().contains("SASL is not configured"), "{refused}");
    }

    /// As in `SaslServerPrincipal`: the canonical name of the address, the name in the connect string, or a given
    /// principal.
    async fn the_servers_principal_follows_from_its_address_or_the_settings(place) {
        let realm = place.realm();
        let server = realm.server().await;
        let by_address = format!("127.0.0.1:{}", server.address().port());
        let by_address = config(server.address()).with_connect_string(by_address.parse().unwrap());
        let short = Duration::from_secs(5);

        // zookeeper/localhost, the canonical name of 127.0.0.1.
        for kerberos in [
            Gssapi::new(),
            Gssapi::new().with_server_realm("DOCENT.TEST").unwrap(),
            Gssapi::new().with_server_principal("zookeeper/localhost@DOCENT.TEST").unwrap(),
        ] {
            let shown = format!("{kerberos:?}");
            let config = by_address.clone().with_sasl_mechanism(kerberos);
            let client = within_deadline(&shown, config.connect()).await;
            client.unwrap_or_else(|error| panic!("{shown}: {error}"));
        }
        // Principals that do not exist: zookeeper/127.0.0.1, and kafka/localhost.
        for (kerberos, named) in [
            (Gssapi::new().with_canonicalize_hostname(false), "zookeeper/127.0.0.1"),
            (Gssapi::new().with_service_name("kafka").unwrap(), "kafka@127.0.0.1"),
        ] {
            let config = by_address.clone().with_sasl_mechanism(kerberos);
            let config = config.with_connection_timeout(short);
            let error = within_deadline("an error", config.connect()).await.unwrap_err();
            let (kind, text) = kind_of(&error);
            assert_eq!(error.kind(), ErrorKind::ConnectionLoss, "{text}");
            assert_eq!(kind, Some(GssapiErrorKind::UnknownServer), "{text}");
            assert!(text.contains(named), "{text}");
        }
        // The principal of another server: the ticket is valid, but this server cannot read it.
        realm.kdc.add_principal("zookeeper/elsewhere", "elsewhere.keytab").unwrap();
        let kerberos = Gssapi::new().with_server_principal("zookeeper/elsewhere").unwrap();
        let refused = connect(&server, kerberos).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AuthFailed, "{refused}");
    }
}

#[test]
fn the_mechanism_has_its_registered_name() {
    assert_eq!(Gssapi::new().name(), "GSSAPI");
}
