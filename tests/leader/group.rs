//! Groups, and the views of their members.

use bytes::Bytes;
use std::collections::BTreeMap;

use super::*;

on_both_servers! {
    the_members_are_read_at_once
    a_view_follows_the_group
    a_view_outlasts_cuts_and_sessions
}

type Members = BTreeMap<String, Bytes>;

/// Waits until a view shows these members.
async fn shows(view: &mut Events<Result<Arc<Members>, Error>>, wanted: &[(&str, &str)]) {
    let seen = async {
        loop {
            let members = view.next().await.unwrap().unwrap();
            let members: Vec<_> = members.iter().map(|(id, data)| (&**id, &**data)).collect();
            let is_one = |(one, wanted): (&(&str, &[u8]), &(&str, &str))| {
                one.0 == wanted.0 && one.1 == wanted.1.as_bytes()
            };
            if members.len() == wanted.len() && members.iter().zip(wanted).all(is_one) {
                break;
            }
        }
    };
    within_deadline(&format!("{wanted:?}"), seen).await;
}

// Case (Leader election and kept nodes): the view of a group: members come, go and change.
async fn a_view_follows_the_group(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let first = GroupMember::join(&a, &fixture.path, "a", "1").unwrap();
    let mut view = first.view();
    // The view works before the group exists.
    shows(&mut view, &[("a", "1")]).await;
    let second = GroupMember::join(&b, &fixture.path, "b", "1").unwrap();
    shows(&mut view, &[("a", "1"), ("b", "1")]).await;
    second.set_this_data("2");
    shows(&mut view, &[("a", "1"), ("b", "2")]).await;
    first.set_this_data("2");
    shows(&mut view, &[("a", "2"), ("b", "2")]).await;
    // A dropped wait loses no change.
    let waiting = tokio::time::timeout(ms(10), view.next());
    assert!(waiting.await.is_err(), "no change");
    second.leave().await.unwrap();
    shows(&mut view, &[("a", "2")]).await;
    first.leave().await.unwrap();
    assert!(within_deadline("the end", view.next()).await.is_none());
}

async fn a_view_outlasts_cuts_and_sessions(fixture: Fixture) {
    let (a, ta) = fixture.client("A").await;
    let (b, _b) = fixture.client("B").await;
    let first = GroupMember::join(&a, &fixture.path, "a", "").unwrap();
    within_deadline("A", first.joined()).await.unwrap();
    let path = format!("{}/secret", fixture.path);
    let acl = [Acl::new(Perms::CREATE, "world", "anyone")];
    b.create(&path, b"", CreateOptions::new(CreateMode::Ephemeral).with_acl(&acl)).await.unwrap();
    let mut view = first.view();
    let error = within_deadline("the refusal", view.next()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth, "reported once");
    shows(&mut view, &[("a", "")]).await;
    ta.refuse().await.unwrap();
    ta.cut();
    let second = GroupMember::join(&b, &fixture.path, "b", "1").unwrap();
    within_deadline("B", second.joined()).await.unwrap();
    ta.accept().await.unwrap();
    shows(&mut view, &[("a", ""), ("b", "1")]).await;
    ta.kill_session(DEADLINE).await.unwrap();
    second.set_this_data("2");
    shows(&mut view, &[("a", ""), ("b", "2")]).await;
    drop(first);
    assert!(within_deadline("the end", view.next()).await.is_none());
}

/// The first reply is delayed until the reads of the other members have been sent.
async fn the_members_are_read_at_once(fixture: Fixture) {
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let member = GroupMember::join(&a, &fixture.path, "own", "").unwrap();
    within_deadline("the join", member.joined()).await.unwrap();
    for id in 0..100 {
        let path = format!("{}/{id:02}", fixture.path);
        b.create(&path, b"", CreateMode::Ephemeral).await.unwrap();
    }
    let mut records = fixture.tap.subscribe();
    fixture.tap.inject(Fault::delay_reply(OpCode::GetData, DEADLINE).of("A"));
    let (members, ()) = tokio::join!(member.current_members(), async {
        let (mut requests, mut replies) = (0, 0);
        let are_sent = |r: &Record| {
            requests += usize::from(request("A", OpCode::GetData)(r));
            replies += usize::from(reply("A", OpCode::GetData)(r));
            requests == 64 && replies == 1
        };
        records.until(DEADLINE, are_sent).await.unwrap();
        fixture.tap.end_delays();
    });
    assert_eq!(members.unwrap().len(), 101);
}

/// A reader that is too slow for every event receives the members that have come, and not those that have left.
#[tokio::test]
async fn a_slow_reader_of_a_view_sees_who_has_left() {
    // More than the events that a cache keeps for a reader (1,024), and the reads that it has in flight (128).
    const COUNT: usize = 1500;
    let fixture = Fixture::embedded().await;
    let ((a, _a), (b, _b)) = (fixture.client("A").await, fixture.client("B").await);
    let member = GroupMember::join(&a, &fixture.path, "own", "").unwrap();
    within_deadline("the join", member.joined()).await.unwrap();
    let left = format!("{}/left", fixture.path);
    b.create(&left, b"", CreateMode::Ephemeral).await.unwrap();
    let mut view = member.view();
    shows(&mut view, &[("left", ""), ("own", "")]).await;
    let mut records = fixture.tap.subscribe();
    b.delete(&left, None).await.unwrap();
    let mut created = Vec::new();
    for number in 0..COUNT {
        let path = format!("{}/{number:04}", fixture.path);
        created.push(b.create(&path, b"", CreateMode::Ephemeral));
    }
    for create in created {
        create.await.unwrap();
    }
    // All but the last reads are answered and handled: their number is limited.
    let mut reads = 0;
    let are_read = |record: &Record| {
        reads += usize::from(request("A", OpCode::GetData)(record));
        reads == COUNT
    };
    records.until(DEADLINE, are_read).await.unwrap();
    let members = within_deadline("the members", view.next()).await.unwrap().unwrap();
    assert!(members.contains_key("0000"));
    assert!(!members.contains_key("left"), "it has left");
}
