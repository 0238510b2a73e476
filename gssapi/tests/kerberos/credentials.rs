//! Keytabs, and credential caches whose tickets are expired, missing or wrong.

use std::{fs, time::Duration};

use docent_gssapi::{Gssapi, GssapiErrorKind};
use docent_protocol::{Acl, CreateMode, Perms};
use docent_session::{Client, ConnectionState, CreateOptions, ErrorKind, session::StateEvent};
use xtask::Server;

use crate::support::{
    connect, eventually, in_realms, kind_of, restart, sasl_user, within_deadline,
};

/// Connects in vain, and returns the text of the error, which has this cause.
async fn refused(server: &Server, kerberos: Gssapi, cause: GssapiErrorKind) -> String {
    let error = connect(server, kerberos).await.unwrap_err();
    let (kind, text) = kind_of(&error);
    assert_eq!((error.kind(), kind), (ErrorKind::AuthFailed, Some(cause)), "{text}");
    text
}

/// Waits until an attempt of the client has failed because its ticket has expired. The client goes on.
async fn fails_for_an_expired_ticket(client: &Client) {
    eventually("a failed attempt", async || {
        let error = client.wait_until_connected(Duration::from_millis(100)).await.err()?;
        kind_of(&error).0.filter(|kind| *kind == GssapiErrorKind::TicketExpired)
    })
    .await;
    assert_eq!(client.ended(), None);
}

in_realms! {
    "FILE";

    async fn a_reconnect_after_the_expiry_takes_a_new_ticket_from_the_keytab(place) {
        let realm = place.realm();
        realm.kdc.kadmin(&["modprinc", "-maxlife", "10 seconds", "app"]).unwrap();
        let server = realm.server().await;
        let client = connect(&server, Gssapi::new()).await.unwrap();
        let session = client.session().unwrap().session_id();
        let ours = [Acl::new(Perms::ALL, "sasl", "app@DOCENT.TEST")];
        client.create("/ours", b"", CreateOptions::new(CreateMode::Persistent).with_acl(&ours)).await.unwrap();
        let requests = realm.kdc.issued("AS_REQ");
        realm.expiry().await;
        // A connection that is authenticated stays so.
        client.get_data("/ours").await.unwrap();

        let mut states = client.states();
        let _server = restart(server).await;
        within_deadline("a new connection", async {
            while states.next().await != Some(ConnectionState::Reconnected.into()) {}
        })
        .await;
        client.get_data("/ours").await.unwrap();
        assert_eq!(client.session().unwrap().session_id(), session);
        assert!(realm.kdc.issued("AS_REQ") > requests, "no new ticket");
    }

    async fn a_credential_cache_serves_without_a_keytab_until_its_ticket_expires(place) {
        let keytab = place.path().join("client.keytab");
        let hidden = place.path().join("hidden.keytab");
        let realm = place.realm();
        fs::rename(&keytab, &hidden).unwrap();
        let server = realm.server().await;
        let text = refused(&server, Gssapi::new(), GssapiErrorKind::NoTicket).await;
        assert!(text.contains("kinit"), "{text}");

        let path = hidden.to_str().unwrap();
        realm.kdc.run("kinit", &["-l", "8s", "-k", "-t", path, "app"]).unwrap();
        let kerberos = Gssapi::new();
        let client = connect(&server, kerberos).await.unwrap();
        assert_eq!(sasl_user(&client).await.as_deref(), Some("app@DOCENT.TEST"));
        realm.expiry().await;
        refused(&server, Gssapi::new(), GssapiErrorKind::TicketExpired).await;

        // A client that has been connected survives if the cache is renewed late.
        let mut states = client.states();
        let _server = restart(server).await;
        fails_for_an_expired_ticket(&client).await;
        realm.kdc.run("kinit", &["-k", "-t", path, "app"]).unwrap();
        within_deadline("a new connection", async {
            let is_connected = |event: StateEvent| event.state().is_some_and(ConnectionState::is_connected);
            while !states.next().await.is_some_and(is_connected) {}
        })
        .await;
        assert_eq!(sasl_user(&client).await.as_deref(), Some("app@DOCENT.TEST"));
    }

    async fn a_key_that_the_kdc_has_replaced_ends_the_client(place) {
        let realm = place.realm();
        realm.kdc.kadmin(&["cpw", "-randkey", "app"]).unwrap();
        let server = realm.server().await;
        let text = refused(&server, Gssapi::new(), GssapiErrorKind::WrongKey).await;
        assert!(text.contains("export the keytab again"), "{text}");

        // The keytab has no key of this principal.
        let other = Gssapi::new().with_principal("other").unwrap();
        refused(&server, other, GssapiErrorKind::NoTicket).await;
    }

    async fn an_unknown_principal_ends_the_client(place) {
        let realm = place.realm();
        realm.kdc.kadmin(&["delprinc", "-force", "app"]).unwrap();
        let server = realm.server().await;
        refused(&server, Gssapi::new(), GssapiErrorKind::UnknownPrincipal).await;
    }

    /// The keytab follows a replaced key late: the same client connects once it is there.
    async fn a_key_that_is_replaced_while_the_client_runs_is_taken_at_the_next_connection(place) {
        let realm = place.realm();
        realm.kdc.kadmin(&["modprinc", "-maxlife", "10 seconds", "app"]).unwrap();
        let server = realm.server().await;
        let client = connect(&server, Gssapi::new()).await.unwrap();
        realm.kdc.kadmin(&["cpw", "-randkey", "app"]).unwrap();
        realm.expiry().await;
        let _server = restart(server).await;
        // The library ignores the failed renewal and uses the ticket it has.
        fails_for_an_expired_ticket(&client).await;
        realm.kdc.export("app", "client.keytab").unwrap();
        within_deadline("a connection", client.wait_until_connected(crate::support::DEADLINE))
            .await
            .unwrap();
        assert_eq!(sasl_user(&client).await.as_deref(), Some("app@DOCENT.TEST"));
    }
}
