//! Service discovery: registration, queries, caches and providers, calls inside runtimes, drops.

use std::{thread, time::Duration};

use docent::{
    ErrorKind, NodeEvent,
    blocking::{Client, Events},
};
use docent_discovery::{
    DiscoveryOptions, JsonInstanceSerializer, ProviderOptions, RandomStrategy, ServiceCacheEvent,
    ServiceInstance, ServiceType, UriSpec,
    blocking::{NodeEvents, ServiceCache, ServiceCacheEvents, ServiceDiscovery, ServiceProvider},
};
use docent_testing::tap::TapClient;

use crate::{
    runtimes::{assert_refused, in_each_runtime},
    server::Server,
    support::{DEADLINE, eventually_blocking},
};

blocking_on_both_servers! {
    instances_are_registered_found_and_unregistered
    a_payload_is_a_type_of_the_application
    a_cache_follows_a_service
    a_provider_picks_instances
    threads_share_a_discovery
    events_report_a_lost_session
    an_instance_waits_until_another_one_is_gone
    what_others_write_is_adopted
    waits_of_a_discovery_have_limits
    discovery_inside_a_runtime_is_refused
    a_discovery_may_be_dropped_inside_a_runtime
    the_last_drop_of_a_discovery_unregisters
}

fn discovery(server: &Server, client: &Client) -> ServiceDiscovery {
    ServiceDiscovery::new(client, &server.fixture.path).unwrap()
}

/// A client behind the tap.
fn behind_tap(server: &Server) -> (Client, TapClient) {
    let tap = server.block_on(server.fixture.tap.client("A")).unwrap();
    let config = docent::Config::new(&tap.connect_string()).unwrap();
    (Client::connect_with(config.with_session_timeout(Duration::from_secs(6))).unwrap(), tap)
}

fn web(id: &str, port: u16) -> ServiceInstance {
    ServiceInstance::new("web", id).with_address("10.1.1.1").with_port(port)
}

fn ports<'a>(instances: impl IntoIterator<Item = &'a ServiceInstance>) -> Vec<Option<i32>> {
    instances.into_iter().map(ServiceInstance::port).collect()
}

fn loaded(cache: &ServiceCache) {
    assert!(cache.initialized_timeout(DEADLINE).unwrap(), "the first load");
}

#[track_caller]
fn next<E: Events<Item = Result<T, docent::Error>>, T>(events: &mut E) -> T {
    events.next_timeout(DEADLINE).expect("an event").unwrap()
}

/// The events up to the one that is wanted.
fn until(events: &mut NodeEvents, is_wanted: impl Fn(&NodeEvent) -> bool) -> Vec<NodeEvent> {
    let mut before = Vec::new();
    loop {
        let event = next(events);
        if is_wanted(&event) {
            return before;
        }
        before.push(event);
    }
}

fn instances_are_registered_found_and_unregistered(server: Server) {
    let (client, observer) = (server.client(), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    assert_eq!(theirs.query_for_names().unwrap(), [""; 0]);
    let random = ours.new_instance("web").unwrap();
    assert_eq!((random.name(), random.id().len()), ("web", 36));
    ours.register(web("a", 1)).unwrap();
    ours.register(web("b", 2)).unwrap();
    assert_eq!(theirs.query_for_names().unwrap(), ["web"]);
    assert_eq!(theirs.query_for_ids("web").unwrap(), ["a", "b"]);
    assert_eq!(ports(&theirs.query_for_instances("web").unwrap()), [Some(1), Some(2)]);
    let found = theirs.query_for_instance("web", "a").unwrap().unwrap();
    assert_eq!(Some(&found), ours.instance("web", "a").as_ref());
    assert_eq!(ours.path("web", "a").unwrap(), server.path("web/a"));

    ours.update(web("a", 3)).unwrap();
    ours.set_enabled("web", "b", false).unwrap();
    let found = theirs.query_for_instances("web").unwrap();
    assert_eq!(ports(&found), [Some(3), Some(2)]);
    assert_eq!([true, false], [found[0].is_enabled(), found[1].is_enabled()]);
    assert_eq!(ours.update(web("c", 1)).unwrap_err().kind(), ErrorKind::BadArguments);
    let slash = ours.register(ServiceInstance::new("a/b", "1")).unwrap_err();
    assert_eq!(slash.kind(), ErrorKind::InvalidPath);

    ours.unregister("web", "a").unwrap();
    ours.unregister("web", "no such instance").unwrap();
    assert_eq!(theirs.query_for_instance("web", "a").unwrap(), None);
    assert!(ours.instance("web", "a").is_none() && ours.events("web", "a").is_none());
    ours.close().unwrap();
    assert_eq!(theirs.query_for_instances("web").unwrap(), []);
    assert_eq!(ours.register(web("a", 1)).unwrap_err().kind(), ErrorKind::Closed);
    assert!(format!("{ours:?}").contains(&server.fixture.path));
    client.close().unwrap();
}

fn a_payload_is_a_type_of_the_application(server: Server) {
    let client = server.client();
    let zones = ServiceDiscovery::with_payload::<String>(&client, &server.fixture.path).unwrap();
    let uri = "{scheme}://{address}:{port}".parse::<UriSpec>().unwrap();
    let zone = ServiceInstance::new("web", "a").with_address("web.local").with_port(80);
    zones.register(zone.with_uri_spec(uri).with_payload("eu-west".to_owned())).unwrap();
    let options = DiscoveryOptions::default().with_serializer(JsonInstanceSerializer::new());
    let any: ServiceDiscovery =
        ServiceDiscovery::with_options(&client, &server.fixture.path, options).unwrap();
    let found = any.query_for_instance("web", "a").unwrap().unwrap();
    assert_eq!(found.payload().unwrap(), "eu-west");
    assert_eq!(found.build_uri().unwrap(), "http://web.local:80");
    let invalid = ServiceDiscovery::new(&client, "services").unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::InvalidPath);
}

fn a_cache_follows_a_service(server: Server) {
    let (client, observer) = (server.client(), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    ours.register(web("a", 1)).unwrap();
    let cache = theirs.service_cache("web").unwrap();
    loaded(&cache);
    cache.initialized().unwrap();
    assert!(!cache.is_stale() && cache.failures().is_empty());
    assert_eq!(cache.instances()[0].port(), Some(1));

    let mut events = cache.events();
    ours.register(web("b", 2)).unwrap();
    let ServiceCacheEvent::Added { instance } = next(&mut events) else { panic!("not added") };
    assert_eq!((instance.id(), instance.port()), ("b", Some(2)));
    ours.update(web("b", 3)).unwrap();
    let ServiceCacheEvent::Changed { old, new } = next(&mut events) else { panic!("unchanged") };
    assert_eq!((old.port(), new.port()), (Some(2), Some(3)));
    ours.unregister("web", "b").unwrap();
    let ServiceCacheEvent::Removed { instance } = next(&mut events) else { panic!("not removed") };
    assert_eq!(instance.port(), Some(3));
    observer.create(&server.path("web/c"), b"nothing", docent::CreateMode::Ephemeral).unwrap();
    let ServiceCacheEvent::Unreadable { path, .. } = next(&mut events) else { panic!("readable") };
    assert_eq!(*path, *server.path("web/c"));
    assert_eq!(cache.failures().len(), 1);

    // Without an event, the limit of time ends the iterator, and a later event is read again.
    let limit = Duration::from_millis(1);
    assert_eq!(events.timeout_iter(limit).count(), 0);
    let late = events.next_timeout(limit).unwrap().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::OperationTimeout);
    // A thread that waits is woken by the close.
    let reader = thread::spawn(move || events.map(Result::unwrap).count());
    let clone = cache.clone();
    cache.close().unwrap();
    assert_eq!(reader.join().unwrap(), 0);
    assert!(clone.instances().is_empty());
    assert_eq!(clone.initialized().unwrap_err().kind(), ErrorKind::Closed);
}

fn a_provider_picks_instances(server: Server) {
    let (client, observer) = (server.client(), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    for (id, port) in [("a", 1), ("b", 2), ("c", 3)] {
        ours.register(web(id, port)).unwrap();
    }
    let provider = theirs.service_provider("web").unwrap();
    assert!(provider.initialized_timeout(DEADLINE).unwrap());
    let picks = |provider: &ServiceProvider| -> String {
        let pick =
            |_| provider.instance().map_or_else(|| "-".to_owned(), |one| one.id().to_owned());
        (0..6).map(pick).collect()
    };
    assert_eq!(picks(&provider), "abcabc");
    // A filter runs on the thread of the call, and may make calls of its own.
    let asker = observer.clone();
    let options = ProviderOptions::default()
        .with_strategy(RandomStrategy::new(observer.async_client()))
        .with_filter(move |one| asker.exists("/").unwrap().is_some() && one.port() == Some(2));
    let filtered = theirs.service_provider_with("web", options).unwrap();
    filtered.initialized().unwrap();
    assert_eq!(picks(&filtered), "bbbbbb");

    let failing = provider.cache().instances()[0].clone();
    provider.note_error(&failing);
    provider.clone().note_error(&failing);
    assert_eq!(ports(provider.instances().iter().map(|one| &**one)), [Some(2), Some(3)]);
    ours.set_enabled("web", "b", false).unwrap();
    for (provider, left) in [(&filtered, "------"), (&provider, "cccccc")] {
        eventually_blocking("the drained instance", || (picks(provider) == left).then_some(()));
    }
    assert_eq!(provider.cache().instances().len(), 3);
    provider.close().unwrap();
    assert_eq!(picks(&provider), "------");
}

fn threads_share_a_discovery(server: Server) {
    let (client, observer) = (server.client(), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    let cache = theirs.service_cache("web").unwrap();
    let mut events = cache.events();
    let threads: Vec<_> = (0..8_u16)
        .map(|number| {
            let discovery = ours.clone();
            thread::spawn(move || discovery.register(web(&number.to_string(), number)).unwrap())
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut added = Vec::new();
    while added.len() < 8 {
        if let ServiceCacheEvent::Added { instance } = next(&mut events) {
            added.extend(instance.port());
        }
    }
    added.sort_unstable();
    assert_eq!(added, (0..8).collect::<Vec<_>>());
    // The discovery is dropped on another thread than the one that made it.
    thread::spawn(move || drop(ours)).join().unwrap();
    eventually_blocking("no instance", || cache.instances().is_empty().then_some(()));
}

/// The process of the instance, and that of its callers.
fn events_report_a_lost_session(server: Server) {
    let ((client, tap), observer) = (behind_tap(&server), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    ours.register(web("a", 1)).unwrap();
    let mut events = ours.events("web", "a").unwrap();
    let cache = theirs.service_cache("web").unwrap();
    loaded(&cache);
    let mut seen = cache.events();
    server.block_on(tap.kill_session(DEADLINE)).unwrap();
    until(&mut events, |event| matches!(event, NodeEvent::Lost));
    until(&mut events, |event| matches!(event, NodeEvent::Restored));
    assert!(matches!(next(&mut seen), ServiceCacheEvent::Removed { .. }));
    let ServiceCacheEvent::Added { instance } = next(&mut seen) else { panic!("not added") };
    assert_eq!(instance.port(), Some(1));
    ours.close().unwrap();
    assert!(events.map(Result::unwrap).all(|event| !matches!(event, NodeEvent::Lost)));
}

fn an_instance_waits_until_another_one_is_gone(server: Server) {
    let (client, other) = (server.client(), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &other));
    ours.register(web("a", 1)).unwrap();
    let taken = theirs.register(web("a", 2)).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::NodeExists);
    let mut events = theirs.events("web", "a").unwrap();
    ours.unregister("web", "a").unwrap();
    until(&mut events, |event| matches!(event, NodeEvent::Created { .. }));
    let found = ours.query_for_instance("web", "a").unwrap().unwrap();
    assert_eq!(found.port(), Some(2));
}

fn what_others_write_is_adopted(server: Server) {
    let (client, operator) = (server.client(), server.client());
    let options = DiscoveryOptions::default().with_watched_instances();
    let ours: ServiceDiscovery =
        ServiceDiscovery::with_options(&client, &server.fixture.path, options).unwrap();
    ours.register(web("a", 1)).unwrap();
    let mut events = ours.events("web", "a").unwrap();
    let path = server.path("web/a");
    let form = String::from_utf8(operator.get_data(&path).unwrap().data.to_vec()).unwrap();
    let theirs = form.replace("\"port\":1", "\"port\":2");
    operator.set_data(&path, theirs.as_bytes(), None).unwrap();
    until(&mut events, |event| matches!(event, NodeEvent::DataAdopted { .. }));
    assert_eq!(ours.instance("web", "a").unwrap().port(), Some(2));
}

fn waits_of_a_discovery_have_limits(server: Server) {
    let ((client, tap), observer) = (behind_tap(&server), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    assert!(ours.register_timeout(web("a", 1), DEADLINE).unwrap());
    assert!(ours.update_timeout(web("a", 2), DEADLINE).unwrap());
    assert!(ours.set_enabled_timeout("web", "a", false, DEADLINE).unwrap());
    server.block_on(tap.refuse()).unwrap();
    tap.cut();
    let short = Duration::from_millis(20);
    assert!(!ours.register_timeout(web("b", 1), short).unwrap());
    assert!(!ours.update_timeout(web("b", 2), short).unwrap());
    assert!(!ours.set_enabled_timeout("web", "a", true, short).unwrap());
    assert!(!ours.service_cache("web").unwrap().initialized_timeout(short).unwrap());
    assert!(!ours.service_provider("web").unwrap().initialized_timeout(short).unwrap());
    server.block_on(tap.accept()).unwrap();
    // All the same.
    eventually_blocking("the instances", || {
        let found = theirs.query_for_instances("web").unwrap();
        let enabled = found.iter().all(ServiceInstance::is_enabled);
        (ports(&found) == [Some(2), Some(2)] && enabled).then_some(())
    });
}

fn discovery_inside_a_runtime_is_refused(server: Server) {
    let client = server.client();
    let ours = discovery(&server, &client);
    ours.register(web("a", 1)).unwrap();
    let (cache, provider) = (ours.service_cache("web").unwrap(), ours.service_provider("web"));
    let provider = provider.unwrap();
    loaded(&cache);
    provider.initialized().unwrap();
    in_each_runtime(|| {
        let (ours, cache, provider) = (ours.clone(), cache.clone(), provider.clone());
        async move {
            assert_refused(ours.register(web("b", 1)));
            assert_refused(ours.register_timeout(web("b", 1), DEADLINE));
            assert_refused(ours.update(web("a", 2)));
            assert_refused(ours.update_timeout(web("a", 2), DEADLINE));
            assert_refused(ours.set_enabled("web", "a", false));
            assert_refused(ours.set_enabled_timeout("web", "a", false, DEADLINE));
            assert_refused(ours.unregister("web", "a"));
            assert_refused(ours.query_for_names());
            assert_refused(ours.query_for_ids("web"));
            assert_refused(ours.query_for_instances("web"));
            assert_refused(ours.query_for_instance("web", "a"));
            assert_refused(ours.close());
            assert_refused(ours.events("web", "a").unwrap().next().unwrap());
            assert_refused(cache.initialized());
            assert_refused(cache.initialized_timeout(DEADLINE));
            assert_refused(cache.events().next().unwrap());
            assert_refused(cache.events().next_timeout(DEADLINE).unwrap());
            assert_refused(cache.close());
            assert_refused(provider.initialized());
            assert_refused(provider.initialized_timeout(DEADLINE));
            assert_refused(provider.close());
            // What does not wait is allowed.
            assert_eq!(provider.instance().unwrap().port(), Some(1));
            assert_eq!(ours.instance("web", "a").unwrap().port(), Some(1));
        }
    });
    // Nothing was sent, and nothing is closed.
    assert_eq!(ports(&ours.query_for_instances("web").unwrap()), [Some(1)]);
    assert_eq!(client.get_data(&server.path("web/a")).unwrap().stat.version, 0);
    ours.update(web("a", 2)).unwrap();
    eventually_blocking("the update", || {
        (cache.instances()[0].port() == Some(2) && provider.instance()?.port() == Some(2))
            .then_some(())
    });
}

fn a_discovery_may_be_dropped_inside_a_runtime(server: Server) {
    let (client, observer) = (server.client(), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    ours.register(web("a", 1)).unwrap();
    let cache = ours.service_cache("web").unwrap();
    loaded(&cache);
    let (events, provider) = (cache.events(), ours.service_provider("web").unwrap());
    // The last of their client, too.
    server.block_on(async move { drop((client, events, provider, cache, ours)) });
    eventually_blocking("no instance", || {
        theirs.query_for_instances("web").unwrap().is_empty().then_some(())
    });
}

fn the_last_drop_of_a_discovery_unregisters(server: Server) {
    let (client, observer) = (server.client(), server.client());
    let (ours, theirs) = (discovery(&server, &client), discovery(&server, &observer));
    ours.register(web("a", 1)).unwrap();
    let permanent = web("b", 2).with_service_type(ServiceType::Permanent);
    ours.register(permanent).unwrap();
    let clone = ours.clone();
    drop(ours);
    assert_eq!(clone.query_for_ids("web").unwrap(), ["a", "b"]);
    let mut events: NodeEvents = clone.events("web", "a").unwrap();
    drop(clone);
    // The client is still there.
    eventually_blocking("the permanent one alone", || {
        (theirs.query_for_ids("web").unwrap() == ["b"]).then_some(())
    });
    assert!(events.all(|event| !matches!(event.unwrap(), NodeEvent::Lost)), "closed, not lost");
    observer.delete(&server.path("web/b"), None).unwrap();

    // So is a cache, whose reader it ends.
    let cache = theirs.service_cache("web").unwrap();
    loaded(&cache);
    let mut events: ServiceCacheEvents = cache.events();
    drop(cache);
    assert!(events.next_timeout(DEADLINE).is_none());
    assert!(client.ended().is_none());
}
