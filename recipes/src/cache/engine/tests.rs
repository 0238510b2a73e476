//! The rounds of a cache, and what makes it read again.

use docent_protocol::CreateMode;
use docent_session::{Client, Outcome};
use docent_testing::TestingServer;

use super::{super::tree::Tree, *};

/// Seed 29122 of the simulator: a reply in hand when the connection is lost made the cache fresh.
// Case (Found in docent itself): a reply in hand when the connection was lost made a cache
// initialized and fresh, although nothing reported its changes.
// Case (Found in docent itself): the state of the connection came after a cache's last event:
// its round had nothing left to read and never ended, so that it stayed stale.
#[test]
fn no_round_ends_without_a_connection() {
    let shared = Arc::new(Shared::new(16, Tree::default()));
    let mut engine = Engine::new("/root".into(), CacheOptions::default(), Arc::clone(&shared));
    let missing = || Err(Error::new(ErrorKind::NoNode, Outcome::NotApplied));
    engine.connected();
    engine.begin_round();
    let read = engine.next_read().unwrap();
    engine.disconnected();
    engine.on_data(&read, missing());
    let is_fresh = || {
        let state = shared.read();
        (state.initialized, !state.stale)
    };
    engine.connected();
    assert_eq!(is_fresh(), (false, false));
    engine.begin_round();
    let read = engine.next_read().unwrap();
    engine.on_data(&read, missing());
    assert_eq!(is_fresh(), (true, true));
    // Seed 549976: nothing is left to read when the connection is known.
    engine.disconnected();
    engine.begin_round();
    engine.on_event(EventType::NodeDeleted, &"/root".into(), None);
    assert_eq!(is_fresh(), (true, false));
    engine.connected();
    assert_eq!(is_fresh(), (true, true));
}

/// Recording D35 of Curator. With replies that arrive one by one, the cache was initialized without what an event had
/// shown.
// Case (Found in docent itself): a cache was initialized while reads that events had caused were in flight.
#[test]
fn the_first_round_waits_once_for_the_reads_of_events() {
    let shared = Arc::new(Shared::new(16, Tree::default()));
    let mut engine = Engine::new("/root".into(), CacheOptions::default(), Arc::clone(&shared));
    let refused = || Err(Error::new(ErrorKind::NoAuth, Outcome::NotApplied));
    engine.connected();
    engine.begin_round();
    let root = engine.next_read().unwrap();
    engine.on_event(EventType::NodeCreated, &"/root/a".into(), None);
    let a = engine.next_read().unwrap();
    engine.on_data(&root, refused());
    assert!(!shared.read().initialized);
    // Under constant changes the round ends all the same.
    engine.on_event(EventType::NodeCreated, &"/root/b".into(), None);
    engine.on_data(&a, refused());
    assert!(shared.read().initialized);
}

/// A child that a lagging server did not have when its event came, and one that came while its parent was being listed.
#[tokio::test]
async fn what_a_reply_left_out_is_looked_for_again() {
    let server = TestingServer::start().await.unwrap();
    let client = Client::connect(&server.connect_string()).await.unwrap();
    client.create("/root", b"", CreateMode::Persistent).await.unwrap();
    let shared = Arc::new(Shared::new(16, Tree::default()));
    let mut engine = Engine::new("/root".into(), CacheOptions::default(), shared);
    let data = async || client.get_data("/root").await;
    let listing = async || client.get_children_with_stat("/root").await;
    engine.connected();
    engine.begin_round();
    let read = engine.next_read().unwrap();
    engine.on_data(&read, data().await);
    let read = engine.next_read().unwrap();
    engine.on_children(&read, listing().await);
    engine.on_event(EventType::NodeCreated, &"/root/a".into(), None);
    let missing = Err(Error::new(ErrorKind::NoNode, Outcome::NotApplied));
    let read = engine.next_read().unwrap();
    engine.on_data(&read, missing);
    assert!(engine.next_read().is_none());

    engine.begin_round();
    let read = engine.next_read().unwrap();
    engine.on_data(&read, data().await);
    let list = engine.next_read().unwrap();
    assert_eq!(list.kind, Kind::Children, "the parent is unchanged");
    engine.new_watch(Mode::OneShot);
    engine.on_event(EventType::NodeChildrenChanged, &"/root".into(), None);
    engine.on_children(&list, listing().await);
    assert_eq!(engine.next_read().unwrap().kind, Kind::Children);
}
