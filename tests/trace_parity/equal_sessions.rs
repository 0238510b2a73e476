//! Scenes about sessions and clients that begin and end, in which Curator makes no mistake on the wire.

use std::time::Duration;

use docent::{
    Client, Config, ConnectionState,
    protocol::OpCode,
    recipes::{
        Error,
        locks::{InterProcessMutex, Owner},
    },
};
use docent_testing::fault::Fault;

use super::{Scene, options};
use crate::support::{DEADLINE, within_deadline};

/// Over soon, for those who wait until it is.
const SHORT: Duration = Duration::from_secs(2);

/// The client gives its session up, between a create that is lost and the search for its node.
pub(crate) async fn scene_09_the_session_ends_during_a_create(scene: Scene) {
    let (a, tap) = scene.client_with("A", SHORT).await;
    let mutex = scene.mutex(&a);
    mutex.acquire().await.unwrap().release().await.unwrap();
    scene.tap.inject(Fault::drop_before(OpCode::Create2));
    tap.refuse().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    scene.has_given_up(&a, &tap).await;
    within_deadline("acquire", waiting).await.unwrap().unwrap().release().await.unwrap();
    a.close().await.unwrap();
    scene.assert_equal();
}

/// The wire is the same; what is believed is not: Curator lets the thread in again.
pub(crate) async fn scene_21_the_session_ends_while_holding(scene: Scene) {
    let (a, tap) = scene.client_with("A", SHORT).await;
    let (mutex, owner) = (scene.mutex(&a), Owner::new());
    let guard = mutex.acquire_as(&owner).await.unwrap();
    scene.gives_up_its_session(&a, &tap).await;
    a.wait_until_connected(DEADLINE).await.unwrap();
    assert!(!guard.is_held() && !mutex.is_acquired_in_this_process());
    let error = mutex.acquire_as(&owner).await.unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error}");
    guard.release().await.unwrap();
    a.close().await.unwrap();
    scene.assert_equal();
}

pub(crate) async fn scene_25_a_client_closes_while_it_waits(scene: Scene) {
    a_client_closes_while_it_waits(scene, " 20000").await;
}

/// N4: Curator after 5.9.0 waits for ever. The wire is the same.
pub(crate) async fn scene_32_a_client_closes_while_it_waits_without_end(scene: Scene) {
    a_client_closes_while_it_waits(scene, "").await;
}

async fn a_client_closes_while_it_waits(scene: Scene, wait: &str) {
    let [a, b] = scene.actors(["A", "B"]).await;
    a.acquire().await;
    drop(b.peer.send(format!("acquire {}{wait}", b.handle)));
    scene.waits("B").await;
    scene.close([b]).await;
    a.release().await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_35_the_server_ends_the_holders_session(scene: Scene) {
    let [a, b] = scene.actors(["A", "B"]).await;
    a.acquire().await;
    let waiting = b.queues();
    scene.waits("B").await;
    scene.tap.kill_session("A", DEADLINE).await.unwrap();
    waiting.reply().await.ok();
    b.release().await;
    a.peer.event(&format!("lost {}", a.handle)).await;
    a.peer.event("state RECONNECTED").await;
    a.release().await;
    scene.close([a, b]).await;
    scene.assert_equal();
}

/// The create is never answered, and what it may have made is looked for in the next session.
pub(crate) async fn scene_37_the_server_ends_the_session_of_a_create(scene: Scene) {
    let a = scene.actor_with("A", 0, &[]).await;
    a.acquire().await;
    a.release().await;
    scene.tap.inject(Fault::drop_before(OpCode::Create2));
    a.tap.refuse().await.unwrap();
    assert_eq!(a.queues().reply().await.error_kind(), "ConnectionLoss");
    scene.tap.kill_session("A", DEADLINE).await.unwrap();
    a.tap.accept().await.unwrap();
    scene.answered("A", 2, OpCode::GetChildren2).await;
    scene.close([a]).await;
    scene.assert_equal();
}

pub(crate) async fn scene_43_the_first_create_of_a_client(scene: Scene) {
    let tap = scene.tap.client("A").await.unwrap();
    // Nobody waits for its session.
    let client = Client::start(Config::new(&tap.connect_string()).unwrap());
    let options = options().with_default_data("127.0.0.1");
    let mutex = InterProcessMutex::with_options(&client, &scene.root, options).unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    client.close().await.unwrap();
    scene.assert_equal();
}

pub(crate) async fn scene_54_the_client_gives_its_session_up(scene: Scene) {
    let (b, tap) = scene.client_with("B", SHORT).await;
    assert!(b.exists("/").await.unwrap().is_some());
    let mut states = b.states();
    scene.gives_up_its_session(&b, &tap).await;
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};
    for expected in [Connected, Suspended, Lost, Reconnected] {
        assert_eq!(within_deadline("a state", states.next()).await, Some(expected));
    }
    b.close().await.unwrap();
    scene.assert_equal();
}
