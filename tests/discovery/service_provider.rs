//! Providers, which pick one instance for a call.

use docent_discovery::{ProviderOptions, RandomStrategy, ServiceProvider, StickyStrategy};

use super::*;

async fn initialized(provider: &ServiceProvider) {
    within_deadline("the load", provider.initialized()).await.unwrap();
}

fn picks(provider: &ServiceProvider, count: usize) -> String {
    let pick = |_| provider.instance().map_or_else(|| "-".to_owned(), |one| one.id().to_owned());
    (0..count).map(pick).collect()
}

/// Waits until the provider has these instances, `id:port`.
async fn provides(provider: &ServiceProvider, wanted: &[&str]) {
    until(&format!("{wanted:?}"), async || {
        let instances = provider.instances();
        names(instances.iter().map(|one| &**one)) == wanted
    })
    .await;
}

/// `TestServiceProvider.testBasic`, testDisabledInstance.
async fn a_provider_uses_the_enabled_instances_in_turn(fixture: Fixture) {
    let ((a, _ta), (b, _tb)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs) = (discovery(&fixture, &a), discovery(&fixture, &b));
    for (id, port) in [("a", 1), ("b", 2), ("c", 3)] {
        done("the registration", ours.register(web(id, port))).await;
    }
    let provider = theirs.service_provider("web").unwrap();
    initialized(&provider).await;
    let before = fixture.tap.len();
    assert_eq!(picks(&provider, 7), "abcabca");
    let secure = ProviderOptions::default()
        .with_filter(|one| one.port() != Some(1))
        .with_filter(|one| one.port() != Some(3));
    let filtered = theirs.service_provider_with("web", secure).unwrap();
    initialized(&filtered).await;
    assert_eq!(picks(&filtered, 3), "bbb");
    done("disabled", ours.set_enabled("web", "b", false)).await;
    provides(&provider, &["a:1", "c:3"]).await;
    provides(&filtered, &[]).await;
    assert_eq!(picks(&filtered, 1), "-");
    assert_eq!(provider.cache().instances().len(), 3);
    // A pick sends no request.
    let sent = fixture.sent("B", before);
    let reads = sent.iter().filter(|op| **op == OpCode::GetData).count();
    assert!(reads <= 6, "{sent:?}");
    done("enabled", ours.set_enabled("web", "b", true)).await;
    provides(&filtered, &["b:2"]).await;
    within_deadline("the close", provider.close()).await;
    assert_eq!(picks(&provider, 1), "-");
}

/// `TestStrategies.testSticky`: the same instance until it is gone or has moved.
// Case (Service discovery): the same pick over a reconnect.
async fn a_sticky_provider_keeps_its_instance_over_a_reconnect(fixture: Fixture) {
    let ((a, ta), (b, _tb)) = (fixture.client("A").await, fixture.client("B").await);
    let (ours, theirs) = (discovery(&fixture, &a), discovery(&fixture, &b));
    for id in ["a", "b", "c"] {
        done("the registration", ours.register(web(id, 1))).await;
    }
    let options =
        ProviderOptions::default().with_strategy(StickyStrategy::new(RandomStrategy::new(&b)));
    let provider = theirs.service_provider_with("web", options).unwrap();
    initialized(&provider).await;
    let pick = picks(&provider, 1);
    assert_eq!(picks(&provider, 9), pick.repeat(9));
    // An instance with the same fields in another session is the same instance.
    let before = stat(&b, &node(&fixture, &pick)).await.czxid;
    ta.kill_session(DEADLINE).await.unwrap();
    for id in ["a", "b", "c"] {
        eventually("a new node", async || {
            let stat = b.exists(&node(&fixture, id)).await.unwrap()?;
            (stat.czxid > before).then_some(())
        })
        .await;
    }
    provides(&provider, &["a:1", "b:1", "c:1"]).await;
    done("the end", ours.unregister("web", &pick)).await;
    until("another one", async || {
        let other = picks(&provider, 1);
        other != pick && picks(&provider, 5) == other.repeat(5)
    })
    .await;
}

on_both_servers! {
    a_provider_uses_the_enabled_instances_in_turn
    a_sticky_provider_keeps_its_instance_over_a_reconnect
}
