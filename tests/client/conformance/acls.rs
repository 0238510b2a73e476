//! Permissions, and the identities of a client.

use super::{Fixture, refused};
use crate::*;

async fn an_acl_is_read_and_written_by_its_own_version(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    let (entries, stat) = fixture.client.get_acl(&path).await.unwrap();
    assert_eq!(entries.to_vec(), acl::OPEN_ACL_UNSAFE);
    assert_eq!(stat.aversion, 0);
    let read_only = [Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone")];
    let stat = fixture.client.set_acl(&path, &read_only, Some(0)).await.unwrap();
    assert_eq!((stat.aversion, stat.version), (1, 0));
    assert_eq!(fixture.client.get_acl(&path).await.unwrap().0.to_vec(), read_only);
    refused(fixture.client.set_acl(&path, &read_only, Some(0)).await, ErrorKind::BadVersion);
    refused(fixture.client.set_data(&path, b"", None).await, ErrorKind::NoAuth);
    refused(fixture.client.set_acl(&path, &[], None).await, ErrorKind::InvalidAcl);
    let unknown = [Acl::new(Perms::ALL, "nosuch", "x")];
    refused(fixture.client.set_acl(&path, &unknown, None).await, ErrorKind::InvalidAcl);
    refused(fixture.client.get_acl(&fixture.path("none")).await, ErrorKind::NoNode);
    refused(
        fixture.client.set_acl(&fixture.path("none"), &read_only, None).await,
        ErrorKind::NoNode,
    );
}

// Case (Pitfalls of the wire, 44): what exists and getACL show differs.
async fn credentials_open_nodes_that_are_closed_to_others(fixture: Fixture) {
    let path = fixture.path("mine");
    let mine = CreateOptions::new(CreateMode::Persistent).with_acl(acl::CREATOR_ALL_ACL);
    refused(fixture.client.create(&path, b"", mine).await, ErrorKind::InvalidAcl);
    fixture.client.add_auth("digest", b"alice:secret").await.unwrap();
    fixture.client.create(&path, b"x", mine).await.unwrap();
    assert_eq!(fixture.client.get_data(&path).await.unwrap().data, "x");
    let stranger = fixture.another().await;
    refused(stranger.get_data(&path).await, ErrorKind::NoAuth);
    refused(stranger.get_children(&path).await, ErrorKind::NoAuth);
    refused(stranger.set_data(&path, b"", None).await, ErrorKind::NoAuth);
    refused(stranger.get_acl(&path).await, ErrorKind::NoAuth);
    refused(
        stranger.create(&format!("{path}/x"), b"", CreateMode::Persistent).await,
        ErrorKind::NoAuth,
    );
    // Deletes are permitted by the ACL of the parent.
    stranger.add_auth("digest", b"alice:secret").await.unwrap();
    assert_eq!(stranger.get_data(&path).await.unwrap().data, "x");
}

/// CVE-2024-23944: the event of a node that the client may not read is not sent, but still ends a one-shot watch.
// Case (Pitfalls of the wire, 37): an event that the ACL filters.
async fn an_event_that_the_acl_hides_ends_its_watch_in_silence(fixture: Fixture) {
    let owner = &fixture.client;
    owner.add_auth("digest", b"alice:secret").await.unwrap();
    let path = fixture.node("a", b"").await;
    let (stranger, other) = (fixture.another().await, fixture.another().await);
    let (_, mut once) = other.get_data_and_watch(&path).await.unwrap();
    let mut always = stranger.add_watch(&path, AddWatchMode::Persistent).await.unwrap();

    owner.set_acl(&path, acl::CREATOR_ALL_ACL, None).await.unwrap();
    owner.set_data(&path, b"hidden", None).await.unwrap();
    refused(stranger.get_data(&path).await, ErrorKind::NoAuth);
    refused(other.get_data(&path).await, ErrorKind::NoAuth);
    assert_eq!((once.try_next(), always.try_next()), (None, None));

    owner.set_acl(&path, acl::OPEN_ACL_UNSAFE, None).await.unwrap();
    owner.set_data(&path, b"seen", None).await.unwrap();
    let event = within_deadline("an event", always.next()).await.unwrap();
    assert_eq!(event.event_type, EventType::NodeDataChanged);
    // Reading the nodes again shows the changes that the ACL has hidden.
    assert_eq!(other.get_data(&path).await.unwrap().data, "seen");
    assert_eq!(once.try_next(), None, "its watch is gone from the server");
}

super::on_all_servers! {
    an_event_that_the_acl_hides_ends_its_watch_in_silence,
    an_acl_is_read_and_written_by_its_own_version,
    credentials_open_nodes_that_are_closed_to_others,
}
