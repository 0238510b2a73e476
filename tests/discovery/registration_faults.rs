//! Registrations during broken connections, lost replies and lost sessions.

use super::*;

/// C39: Curator registers the address of the first registration again. `TestServiceDiscovery.testCrashedServer`,
/// testCrashedInstance.
async fn after_a_new_session_the_last_form_is_registered(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = discovery(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    done("the other form", discovery.register(web("i1", 3))).await;
    done("the registration", discovery.register(web("i2", 1))).await;
    done("the update", discovery.update(web("i2", 4))).await;
    let before = stat(&observer, &node(&fixture, "i1")).await.czxid;
    tap.kill_session(DEADLINE).await.unwrap();
    for (id, port) in [("i1", 3), ("i2", 4)] {
        eventually("a new node", async || {
            let node = observer.get_data(&node(&fixture, id)).await.ok()?;
            let port = format!("\"port\":{port},");
            (node.stat.czxid > before && String::from_utf8_lossy(&node.data).contains(&port))
                .then_some(())
        })
        .await;
    }
}

/// C30: in Curator, an instance that disappears between create and delete stops the registration of all others.
// Case (Service discovery): instances are registered again, whatever becomes of the others.
async fn each_instance_is_registered_again_whatever_becomes_of_the_others(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = discovery(&fixture, &a);
    for id in ["i1", "i2", "i3"] {
        done("the registration", discovery.register(web(id, 80))).await;
    }
    tap.refuse().await.unwrap();
    tap.cut();
    for id in ["i1", "i2", "i3"] {
        observer.delete(&node(&fixture, id), None).await.unwrap();
    }
    // Another client takes the first id with an ephemeral node, and the second with a persistent one.
    observer.create(&node(&fixture, "i1"), b"theirs", CreateMode::Ephemeral).await.unwrap();
    observer.create(&node(&fixture, "i2"), b"theirs", CreateMode::Persistent).await.unwrap();
    tap.accept().await.unwrap();
    eventually("the third", async || observer.exists(&node(&fixture, "i3")).await.unwrap()).await;
    for id in ["i1", "i2"] {
        assert_eq!(data(&observer, &node(&fixture, id)).await, "theirs");
        observer.delete(&node(&fixture, id), None).await.unwrap();
    }
    finds(&discovery, &["i1:80", "i2:80", "i3:80"]).await;
}

async fn a_lost_reply_to_an_update_and_to_an_unregistration_is_repeated(fixture: Fixture) {
    let (a, _tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = discovery(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    fixture.tap.inject(Fault::drop_before(OpCode::SetData).of("A"));
    done("the update", discovery.update(web("i1", 2))).await;
    finds(&discovery, &["i1:2"]).await;
    fixture.tap.inject(Fault::drop_reply(OpCode::SetData).of("A"));
    done("the update", discovery.update(web("i1", 3))).await;
    finds(&discovery, &["i1:3"]).await;
    fixture.tap.inject(Fault::drop_before(OpCode::Delete).of("A"));
    // The call fails if the delete is left to the background (CURATOR-617).
    let _ = within_deadline("the end", discovery.unregister("web", "i1")).await;
    until("no node", async || observer.exists(&node(&fixture, "i1")).await.unwrap().is_none())
        .await;
}

/// The first delete was applied, and another client has taken the id before the loss of the reply is detected.
// Case (Found in docent itself): the close of a kept node repeated a delete whose reply was lost,
// and deleted the node that another client had created at the path since.
async fn a_repeated_delete_spares_the_instance_that_took_the_place(fixture: Fixture) {
    let ((a, ta), (b, _tb)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs) = (discovery(&fixture, &a), discovery(&fixture, &b));
    done("ours", ours.register(web("i1", 1))).await;
    assert_eq!(refusal(theirs.register(web("i1", 2))).await, ErrorKind::NodeExists);
    let mut events = theirs.events("web", "i1").unwrap();
    ta.refuse().await.unwrap();
    fixture.tap.inject(Fault::drop_reply(OpCode::Delete).of("A"));
    let ended = ours.unregister("web", "i1");
    let created = loop {
        match within_deadline("an event", events.next()).await.unwrap() {
            NodeEvent::Created { czxid, .. } => break czxid,
            NodeEvent::Conflict { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    ta.accept().await.unwrap();
    done("the end", ended).await;
    assert_eq!(Some(stat(&b, &node(&fixture, "i1")).await.czxid), created);
    finds(&ours, &["i1:2"]).await;
}

/// The same form is registered again while another client's instance has the id, and while our own node does not exist
/// yet.
async fn an_unchanged_instance_that_is_not_there_is_not_registered(fixture: Fixture) {
    let (a, tap) = fixture.client("A").await;
    let observer = fixture.observer().await;
    let discovery = discovery(&fixture, &a);
    done("the registration", discovery.register(web("i1", 1))).await;
    let mut events = discovery.events("web", "i1").unwrap();
    let mut comes = async |wanted: fn(&NodeEvent) -> bool| {
        while !wanted(&within_deadline("an event", events.next()).await.unwrap()) {}
    };
    let path = node(&fixture, "i1");
    tap.refuse().await.unwrap();
    tap.cut();
    observer.delete(&path, None).await.unwrap();
    observer.create(&path, b"theirs", CreateMode::Ephemeral).await.unwrap();
    tap.accept().await.unwrap();
    comes(|event| matches!(event, NodeEvent::Conflict { .. })).await;
    assert_eq!(refusal(discovery.register(web("i1", 1))).await, ErrorKind::NodeExists);
    assert_eq!(refusal(discovery.set_enabled("web", "i1", true)).await, ErrorKind::NodeExists);
    observer.delete(&path, None).await.unwrap();
    comes(|event| matches!(event, NodeEvent::Restored)).await;
    done("the registration", discovery.register(web("i1", 1))).await;
    // The node is deleted, and not created again yet.
    fixture.tap.inject(Fault::delay_reply(OpCode::Create2, DEADLINE).of("A"));
    observer.delete(&path, None).await.unwrap();
    comes(|event| matches!(event, NodeEvent::Lost)).await;
    let mut registered = std::pin::pin!(discovery.register(web("i1", 1)));
    poll_once(registered.as_mut());
    fixture.tap.end_delays();
    done("the registration", registered).await;
    finds(&discovery, &["i1:1"]).await;
}

/// `TestServiceDiscovery.testNoServerOnStart`.
// Case (Service discovery): a registration without a connection.
async fn an_instance_waits_for_the_first_connection(fixture: Fixture) {
    let tap = fixture.tap.client("A").await.unwrap();
    tap.refuse().await.unwrap();
    let config = Config::new(&tap.connect_string()).unwrap();
    let a =
        config.with_session_timeout(ms(6000)).with_connection_timeout(ms(5000)).start().unwrap();
    let discovery = discovery(&fixture, &a);
    let registered = discovery.register(web("i1", 1));
    drop(discovery.register(web("i2", 1)));
    done("the end", discovery.unregister("web", "i2")).await;
    tap.accept().await.unwrap();
    done("the registration", registered).await;
    finds(&discovery, &["i1:1"]).await;
}

on_both_servers! {
    after_a_new_session_the_last_form_is_registered
    each_instance_is_registered_again_whatever_becomes_of_the_others
    a_lost_reply_to_an_update_and_to_an_unregistration_is_repeated
    a_repeated_delete_spares_the_instance_that_took_the_place
    an_unchanged_instance_that_is_not_there_is_not_registered
    an_instance_waits_for_the_first_connection
}
