//! Who may do what, and who one is.

use docent::protocol::{Acl, AddWatchMode, Perms, acl};
use docent::{CreateMode, ErrorKind, EventType};

use crate::support::within_deadline;
use crate::{Playground, refused};

async fn an_acl_is_read_and_written_by_its_own_version() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    let (entries, stat) = play.client.get_acl(&path).await.unwrap();
    assert_eq!(entries.to_vec(), acl::OPEN_ACL_UNSAFE);
    assert_eq!(stat.aversion, 0);
    let read_only = [Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone")];
    let stat = play.client.set_acl(&path, &read_only, Some(0)).await.unwrap();
    assert_eq!((stat.aversion, stat.version), (1, 0));
    assert_eq!(play.client.get_acl(&path).await.unwrap().0.to_vec(), read_only);
    refused(play.client.set_acl(&path, &read_only, Some(0)).await, ErrorKind::BadVersion);
    refused(play.client.set_data(&path, b"", None).await, ErrorKind::NoAuth);
    refused(play.client.set_acl(&path, &[], None).await, ErrorKind::InvalidAcl);
    let nobody = [Acl::new(Perms::ALL, "nosuch", "x")];
    refused(play.client.set_acl(&path, &nobody, None).await, ErrorKind::InvalidAcl);
    refused(play.client.get_acl(&play.path("none")).await, ErrorKind::NoNode);
    refused(play.client.set_acl(&play.path("none"), &read_only, None).await, ErrorKind::NoNode);
}

async fn credentials_open_what_is_closed_to_others() {
    let Some(play) = Playground::new().await else { return };
    let path = play.path("mine");
    refused(
        play.client.create_with_acl(&path, b"", CreateMode::Persistent, acl::CREATOR_ALL_ACL).await,
        ErrorKind::InvalidAcl,
    );
    play.client.add_auth("digest", b"alice:secret").await.unwrap();
    play.client
        .create_with_acl(&path, b"x", CreateMode::Persistent, acl::CREATOR_ALL_ACL)
        .await
        .unwrap();
    assert_eq!(play.client.get_data(&path).await.unwrap().data, "x");
    let stranger = play.another().await;
    refused(stranger.get_data(&path).await, ErrorKind::NoAuth);
    refused(stranger.get_children(&path).await, ErrorKind::NoAuth);
    refused(stranger.set_data(&path, b"", None).await, ErrorKind::NoAuth);
    refused(stranger.get_acl(&path).await, ErrorKind::NoAuth);
    refused(
        stranger.create(&format!("{path}/x"), b"", CreateMode::Persistent).await,
        ErrorKind::NoAuth,
    );
    // Deleting is up to the parent.
    stranger.add_auth("digest", b"alice:secret").await.unwrap();
    assert_eq!(stranger.get_data(&path).await.unwrap().data, "x");
}

async fn the_server_says_who_one_is() {
    let Some(play) = Playground::new().await else { return };
    let schemes = |infos: Vec<docent::session::ClientInfo>| {
        let mut infos: Vec<_> =
            infos.into_iter().map(|info| (info.auth_scheme, info.user)).collect();
        infos.sort();
        infos
    };
    let ip = ("ip".to_owned(), "127.0.0.1".to_owned());
    assert_eq!(schemes(play.client.who_am_i().await.unwrap()), std::slice::from_ref(&ip));
    play.client.add_auth("digest", b"alice:secret").await.unwrap();
    let digest = ("digest".to_owned(), "alice".to_owned());
    assert_eq!(schemes(play.client.who_am_i().await.unwrap()), [digest, ip]);
}

/// reliability case 36: final.
async fn credentials_of_no_scheme_end_the_client() {
    let Some(play) = Playground::new().await else { return };
    let client = play.another().await;
    assert_eq!(client.add_auth("nosuch", b"x").await.unwrap_err().kind(), ErrorKind::AuthFailed);
    assert_eq!(client.ended(), Some(ErrorKind::AuthFailed));
}

async fn the_configuration_is_there_and_closed_to_change() {
    let Some(play) = Playground::new().await else { return };
    // A server that stands alone has none to tell.
    play.client.get_config().await.unwrap();
    let (_, watcher) = play.client.get_config_and_watch().await.unwrap();
    assert_eq!(watcher.path(), "/zookeeper/config");
    let change = docent::session::Reconfig::Incremental { joining: None, leaving: Some("9") };
    refused(play.client.reconfig(change, None).await, ErrorKind::ReconfigDisabled);
}

/// pitfall 37 (CVE-2024-23944): an event of a node that may not be read is told to nobody, and ends a
/// one-shot watch all the same.
async fn an_event_that_the_acl_hides_ends_its_watch_in_silence() {
    let Some(play) = Playground::new().await else { return };
    let owner = &play.client;
    owner.add_auth("digest", b"alice:secret").await.unwrap();
    let path = play.node("a", b"").await;
    let (stranger, other) = (play.another().await, play.another().await);
    let (_, mut once) = other.get_data_and_watch(&path).await.unwrap();
    let mut always = stranger.add_watch(&path, AddWatchMode::Persistent).await.unwrap();

    owner.set_acl(&path, acl::CREATOR_ALL_ACL, None).await.unwrap();
    owner.set_data(&path, b"hidden", None).await.unwrap();
    refused(stranger.get_data(&path).await, ErrorKind::NoAuth);
    refused(other.get_data(&path).await, ErrorKind::NoAuth);
    assert_eq!((once.try_changed(), always.try_changed()), (None, None));

    owner.set_acl(&path, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    owner.set_data(&path, b"seen", None).await.unwrap();
    let event = within_deadline("an event", always.changed()).await;
    assert_eq!(event.event_type, EventType::NodeDataChanged);
    // The remedy: to read again what may have been hidden.
    assert_eq!(other.get_data(&path).await.unwrap().data, "seen");
    assert_eq!(once.try_changed(), None, "its watch is gone from the server");
}

crate::stories! {
    an_event_that_the_acl_hides_ends_its_watch_in_silence,
    an_acl_is_read_and_written_by_its_own_version,
    credentials_open_what_is_closed_to_others,
    the_server_says_who_one_is,
    credentials_of_no_scheme_end_the_client,
    the_configuration_is_there_and_closed_to_change,
}
