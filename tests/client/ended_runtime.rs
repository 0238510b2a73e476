//! Programs that end without a close while recipes are in use: a runtime of several threads drops the tasks of the
//! client and of the recipes in any order. Sessions last 40 s or more, so nodes that disappear earlier belonged to a
//! closed session.

use docent::{
    barriers::DistributedDoubleBarrier,
    leader::LeaderLatch,
    locks::StrictMutex,
    nodes::{GroupMember, PersistentNode},
};
use tokio::runtime::{Builder, Runtime};

use super::*;

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

/// Waits only for replies, so the requests that the drops send are still in flight when the program ends.
async fn use_recipes(client: Client, path: &str) {
    let at = |name: &str| format!("{path}/{name}");
    let latch = LeaderLatch::start(&client, &at("latch"), "a").unwrap();
    let _leadership = latch.leadership().await.unwrap();
    let node = PersistentNode::start(&client, &at("kept"), CreateMode::Ephemeral, "x").unwrap();
    node.created().await.unwrap();
    let member = GroupMember::join(&client, &at("group"), "a", "x").unwrap();
    member.joined().await.unwrap();
    let mut barrier = DistributedDoubleBarrier::new(&client, &at("barrier"), 1).unwrap();
    barrier.enter().await.unwrap();
    let guard = StrictMutex::new(&client, &at("strict")).unwrap().acquire().await.unwrap();
    let token = guard.cancellation_token();
    tokio::spawn(async move {
        token.cancelled().await;
        drop(guard);
    });
}

/// Runs programs one after another: 20, or the number in `DOCENT_ENDED_RUNTIMES`.
fn run(config: &Config) {
    let rounds =
        std::env::var("DOCENT_ENDED_RUNTIMES").map_or(20, |rounds| rounds.parse().unwrap());
    let config = config.clone().with_session_timeout(Duration::from_secs(60));
    let observers = runtime(1);
    let observer = observers.block_on(config.clone().connect()).unwrap();
    for round in 0..rounds {
        let path = unique_path("ended");
        let program = runtime(4);
        program.block_on(async {
            let client = config.clone().connect().await.unwrap();
            use_recipes(client, &path).await;
        });
        drop(program);
        observers.block_on(async {
            let kept = format!("{path}/kept");
            let Ok((Some(_), mut watcher)) = observer.exists_and_watch(&kept).await else { return };
            let gone = tokio::time::timeout(Duration::from_secs(20), watcher.next()).await;
            assert!(gone.is_ok(), "round {round}: the session stays");
        });
    }
    observers.block_on(observer.close()).unwrap();
}

#[test]
fn the_end_of_a_runtime_of_several_threads_closes_the_session() {
    let servers = runtime(1);
    let server = servers.block_on(TestingServer::start()).unwrap();
    run(&Config::new(&server.connect_string()).unwrap());
}

/// A TLS stream buffers written bytes until it is flushed.
#[test]
fn the_end_of_a_runtime_of_several_threads_closes_the_session_over_tls() {
    let servers = runtime(1);
    let (authority, server) = servers.block_on(embedded());
    let tls = trust(&authority).build().unwrap();
    run(&Config::new(&server.connect_string()).unwrap().with_transport(tls));
}

#[test]
fn the_end_of_a_runtime_of_several_threads_closes_the_session_of_a_real_server() {
    let Some(server) = real_server() else { return };
    run(&Config::new(&server).unwrap());
}
