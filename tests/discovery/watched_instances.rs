//! Instances that another process writes while they are registered here (`ServiceDiscoveryBuilder.watchInstances`).

use docent::Events;

use super::*;

/// A discovery that adopts changes of other processes.
fn watching(fixture: &Fixture, client: &Client) -> ServiceDiscovery {
    let options = options().with_watched_instances();
    ServiceDiscovery::with_options(client, &fixture.path, options).unwrap()
}

/// Waits until a change of another process is adopted, and returns its data.
async fn adopted(events: &mut Events<NodeEvent>) -> String {
    loop {
        match within_deadline("an event", events.next()).await.unwrap() {
            NodeEvent::DataAdopted { data } => return String::from_utf8(data.to_vec()).unwrap(),
            NodeEvent::Created { .. } | NodeEvent::Lost | NodeEvent::Restored => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The data of the instance, once its node is another one than that with this `czxid`.
async fn registered_again(client: &Client, path: &str, czxid: i64) -> String {
    let node = eventually("another node", async || {
        let node = client.get_data(path).await.ok()?;
        (node.stat.czxid != czxid).then_some(node)
    })
    .await;
    String::from_utf8(node.data.to_vec()).unwrap()
}

// Case (Service discovery): another process writes a registered instance (`watchInstances`): its
// form is kept over a new session.
async fn a_change_of_another_process_is_kept_in_a_new_session(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = watching(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    let mut events = discovery.events("web", "i1").unwrap();
    let path = node(&fixture, "i1");
    let (czxid, ours) = (stat(&observer, &path).await.czxid, data(&observer, &path).await);
    let theirs = ours.replace("\"port\":1", "\"port\":2").replace("}", ",\"enabled\":false}");
    observer.set_data(&path, theirs.as_bytes(), None).await.unwrap();
    assert_eq!(adopted(&mut events).await, theirs);
    let form = discovery.instance("web", "i1").unwrap();
    assert_eq!(form, web("i1", 2).with_enabled(false));
    assert_eq!(stat(&observer, &path).await.version, 1, "nothing is written");
    tap.kill_session(DEADLINE).await.unwrap();
    assert_eq!(registered_again(&observer, &path, czxid).await, theirs);
    // A change by this process starts from the form that the other process wrote.
    done("enabled", discovery.set_enabled("web", "i1", true)).await;
    assert_eq!(data(&observer, &path).await, ours.replace("\"port\":1", "\"port\":2"));
    done("the update", discovery.update(web("i1", 3))).await;
    assert_eq!(discovery.instance("web", "i1"), Some(web("i1", 3)));
    // So does a change without a call of `instance` before it.
    observer.set_data(&path, theirs.as_bytes(), None).await.unwrap();
    assert_eq!(adopted(&mut events).await, theirs);
    done("enabled", discovery.set_enabled("web", "i1", true)).await;
    assert_eq!(data(&observer, &path).await, ours.replace("\"port\":1", "\"port\":2"));
    // A registration replaces the form that the other process wrote.
    observer.set_data(&path, theirs.as_bytes(), None).await.unwrap();
    assert_eq!(adopted(&mut events).await, theirs);
    done("the registration", discovery.register(web("i1", 3))).await;
    finds(&discovery, &["i1:3"]).await;
    done("the end", discovery.unregister("web", "i1")).await;
    assert_eq!(discovery.instance("web", "i1"), None);
}

async fn data_that_is_not_the_instance_is_not_kept(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = watching(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    let mut events = discovery.events("web", "i1").unwrap();
    let path = node(&fixture, "i1");
    let (czxid, ours) = (stat(&observer, &path).await.czxid, data(&observer, &path).await);
    let static_type = ours.replace("DYNAMIC", "STATIC");
    for wrong in ["notjson", "", &ours.replace("i1", "i2"), &ours.replace("web", "x"), &static_type]
    {
        observer.set_data(&path, wrong.as_bytes(), None).await.unwrap();
        // The next read follows the invalid write.
        let theirs = ours.replace("\"port\":1", "\"port\":2");
        assert_eq!(discovery.instance("web", "i1"), Some(web("i1", 1)), "{wrong}");
        assert_eq!(data(&observer, &path).await, wrong, "it is left");
        observer.set_data(&path, theirs.as_bytes(), None).await.unwrap();
        assert_eq!(adopted(&mut events).await, theirs, "{wrong}");
        observer.set_data(&path, ours.as_bytes(), None).await.unwrap();
        assert_eq!(adopted(&mut events).await, ours, "{wrong}");
    }
    observer.set_data(&path, b"notjson", None).await.unwrap();
    tap.kill_session(DEADLINE).await.unwrap();
    assert_eq!(registered_again(&observer, &path, czxid).await, ours);
}

async fn a_change_of_another_process_in_an_outage_is_kept(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = watching(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    let mut events = discovery.events("web", "i1").unwrap();
    let path = node(&fixture, "i1");
    let theirs = data(&observer, &path).await.replace("\"port\":1", "\"port\":2");
    tap.refuse().await.unwrap();
    tap.cut();
    observer.set_data(&path, theirs.as_bytes(), None).await.unwrap();
    tap.accept().await.unwrap();
    assert_eq!(adopted(&mut events).await, theirs);
    assert_eq!(discovery.instance("web", "i1"), Some(web("i1", 2)));
    // A pending update of this process wins.
    tap.refuse().await.unwrap();
    tap.cut();
    let last = theirs.replace("\"port\":2", "\"port\":3");
    observer.set_data(&path, last.as_bytes(), None).await.unwrap();
    let updated = discovery.update(web("i1", 4));
    tap.accept().await.unwrap();
    done("the update", updated).await;
    finds(&discovery, &["i1:4"]).await;
    assert_eq!(discovery.instance("web", "i1"), Some(web("i1", 4)));
}

async fn without_the_option_a_change_of_another_process_is_replaced_in_a_new_session(
    fixture: Fixture,
) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = discovery(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    let path = node(&fixture, "i1");
    let (czxid, ours) = (stat(&observer, &path).await.czxid, data(&observer, &path).await);
    let theirs = ours.replace("\"port\":1", "\"port\":2");
    observer.set_data(&path, theirs.as_bytes(), None).await.unwrap();
    assert_eq!(discovery.instance("web", "i1"), Some(web("i1", 1)));
    tap.kill_session(DEADLINE).await.unwrap();
    assert_eq!(registered_again(&observer, &path, czxid).await, ours);
}

on_both_servers! {
    a_change_of_another_process_is_kept_in_a_new_session
    data_that_is_not_the_instance_is_not_kept
    a_change_of_another_process_in_an_outage_is_kept
    without_the_option_a_change_of_another_process_is_replaced_in_a_new_session
}
