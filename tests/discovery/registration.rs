//! The nodes that a registration creates, and when they are deleted.

use docent::CreateOptions;
use docent_discovery::ServiceType;

use super::*;

type Written = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// C27: with Curator's default serializer, a disabled instance looks enabled to every reader.
async fn a_disabled_instance_is_disabled_for_every_reader(fixture: Fixture) {
    let ((a, _ta), (b, _tb)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs) = (discovery(&fixture, &a), discovery(&fixture, &b));
    let is_enabled =
        async || theirs.query_for_instance("web", "i1").await.unwrap().unwrap().is_enabled();
    done("the registration", ours.register(web("i1", 80).with_enabled(false))).await;
    assert!(!is_enabled().await);
    done("enabled", ours.set_enabled("web", "i1", true)).await;
    assert!(is_enabled().await);
    assert!(!data(&b, &node(&fixture, "i1")).await.contains("enabled"));
    done("disabled", ours.set_enabled("web", "i1", false)).await;
    assert!(!is_enabled().await);
    let unknown = refusal(ours.set_enabled("web", "i2", false)).await;
    assert_eq!(unknown, ErrorKind::BadArguments);
}

/// Each call writes, as in Curator, even if the form is the one that this process wrote last.
// Case (Found in docent itself): discovery: `update`, `set_enabled` and a repeated `register` wrote
// nothing when the form was the one that this process had written last, whatever another process
// had written since.
async fn each_call_replaces_a_change_of_an_operator(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let operator = fixture.observer().await;
    let discovery = discovery(&fixture, &a);
    done("the registration", discovery.register(web("i1", 80))).await;
    let path = node(&fixture, "i1");
    let ours = data(&operator, &path).await;
    let theirs = ours.replace("}", ",\"enabled\":false}");
    let calls: [&dyn Fn() -> Written; 3] = [
        &|| Box::pin(discovery.set_enabled("web", "i1", true)),
        &|| Box::pin(discovery.update(web("i1", 80))),
        &|| Box::pin(discovery.register(web("i1", 80))),
    ];
    for call in calls {
        operator.set_data(&path, theirs.as_bytes(), None).await.unwrap();
        done("the write", call()).await;
        assert_eq!(data(&operator, &path).await, ours);
    }
}

async fn a_dropped_call_registers_all_the_same(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let discovery = discovery(&fixture, &a);
    drop(discovery.register(web("i1", 1)));
    finds(&discovery, &["i1:1"]).await;
    drop(discovery.update(web("i1", 2)));
    finds(&discovery, &["i1:2"]).await;
    drop(discovery.unregister("web", "i1"));
    finds(&discovery, &[]).await;
    drop(discovery.register(web("i2", 1)));
    drop(discovery.close());
    finds(&discovery, &[]).await;
}

/// C33: in Curator, the close deletes permanent instances, too.
async fn a_permanent_instance_outlives_its_discovery_and_is_adopted_by_the_next(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let permanent = |port| web("i1", port).with_service_type(ServiceType::Permanent);
    let first = discovery(&fixture, &a);
    done("the registration", first.register(permanent(1))).await;
    done("the close", first.close()).await;
    let path = node(&fixture, "i1");
    let czxid = stat(&a, &path).await.czxid;
    let second = discovery(&fixture, &a);
    done("the registration", second.register(permanent(2))).await;
    finds(&second, &["i1:2"]).await;
    assert_eq!(stat(&a, &path).await.czxid, czxid, "the same node");
    done("the end", second.unregister("web", "i1")).await;
    finds(&second, &[]).await;
}

on_both_servers! {
    a_disabled_instance_is_disabled_for_every_reader
    each_call_replaces_a_change_of_an_operator
    a_dropped_call_registers_all_the_same
    a_permanent_instance_outlives_its_discovery_and_is_adopted_by_the_next
}

#[tokio::test]
async fn wrong_arguments_are_refused_before_anything_is_sent() {
    let fixture = Fixture::embedded().await;
    let (a, _tap) = fixture.client("A").await;
    let discovery = discovery(&fixture, &a);
    let before = fixture.tap.len();
    for (name, id, why) in [
        ("web", "", "it is empty"),
        ("web", "a/b", "it contains a slash"),
        ("web", "..", "\"..\""),
        ("", "i", "it is empty"),
        ("/web", "i", "it contains a slash"),
        ("team/web", "i", "it contains a slash; use another base path"),
    ] {
        let instance: ServiceInstance = ServiceInstance::new(name, id);
        let refused = within_deadline("an error", discovery.register(instance)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidPath, "{name:?} {id:?}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let refused = discovery.query_for_ids("team/web").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPath);
    for base in ["", "web", "/web/", "//"] {
        let refused = ServiceDiscovery::new(&a, base).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidPath, "{base:?}");
    }
    assert_eq!(discovery.service_cache("").unwrap_err().kind(), ErrorKind::InvalidPath);
    assert_eq!(refusal(discovery.update(web("i1", 1))).await, ErrorKind::BadArguments);
    assert_eq!(fixture.sent("A", before), []);
    done("the registration", discovery.register(web("i1", 1))).await;
    let other = web("i1", 1).with_service_type(ServiceType::Static);
    assert_eq!(refusal(discovery.register(other)).await, ErrorKind::BadArguments);
    // The base path may be the root.
    let root = ServiceDiscovery::new(&a, "/").unwrap();
    done("at the root", root.register(ServiceInstance::new("team", "1"))).await;
    assert_eq!(root.query_for_ids("team").await.unwrap(), ["1"]);
    let ids = [0, 1].map(|_| root.new_instance("web").unwrap().id().to_owned());
    assert!(ids[0] != ids[1] && ids[0].len() == 36);
}

/// A discovery whose registration of `i1` was refused by the ACL of its service, and the path of the service.
async fn refused(fixture: &Fixture, client: &Client) -> (ServiceDiscovery, String) {
    fixture.create_path(client).await;
    let parent = format!("{}/web", fixture.path);
    let read = [docent::Acl::new(docent::Perms::READ, "world", "anyone")];
    let options = CreateOptions::new(CreateMode::Persistent).with_acl(&read);
    client.create(&parent, b"", options).await.unwrap();
    let discovery = discovery(fixture, client);
    assert_eq!(refusal(discovery.register(web("i1", 1))).await, ErrorKind::NoAuth);
    (discovery, parent)
}

/// The next call retries a registration that was refused.
#[tokio::test]
async fn a_refused_registration_is_tried_again() {
    let fixture = Fixture::embedded().await;
    let (a, _tap) = fixture.client("A").await;
    let (discovery, parent) = refused(&fixture, &a).await;
    // The order of the calls decides which data is written, not the order in which their futures are polled.
    let late = discovery.register(web("i1", 1));
    drop(discovery.update(web("i1", 2)));
    assert_eq!(refusal(late).await, ErrorKind::NoAuth);
    a.delete(&parent, None).await.unwrap();
    done("the registration", discovery.register(web("i1", 2))).await;
    finds(&discovery, &["i1:2"]).await;
}

/// A future that is polled late does not write its older data.
// Case (Found in docent itself): discovery: the future of a repeated registration, polled late,
// wrote its bytes over those of a later update.
#[tokio::test]
async fn a_late_wait_writes_nothing() {
    let fixture = Fixture::embedded().await;
    let (a, tap) = fixture.client("A").await;
    let (discovery, parent) = refused(&fixture, &a).await;
    let late = discovery.register(web("i1", 1));
    assert_eq!(refusal(discovery.update(web("i1", 2))).await, ErrorKind::NoAuth);
    refusal(late).await;
    a.delete(&parent, None).await.unwrap();
    tap.cut();
    finds(&discovery, &["i1:2"]).await;
}
