//! A Python program that used kazoo's `Lock`. During the move both run: they take the same lock and exclude each other.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::{env, error::Error, thread, time::Duration};

use docent::blocking::{Allow, Client, wait};
use docent::locks::standard_lock_internals_driver::Contender;
use docent::locks::{LockInternalsDriver, LockNode};
use docent::{
    CreateMode, CreateOptions, ErrorKind, InterProcessMutex, LockOptions, client::sequence_number,
};
use docent_testing::TestingServer;

const LOCK: &str = "/examples/kazoo/lock";
const COUNT: &str = "/examples/kazoo/count";
const LIMIT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Lock nodes as kazoo's `Lock` sees them: they end with `__lock__` and the number from the server.
#[derive(Debug)]
struct KazooLock;

impl LockInternalsDriver for KazooLock {
    fn creates_the_lock(&self, _: &str) -> LockNode {
        LockNode { name: "__lock__".to_owned(), mode: CreateMode::EphemeralSequential }
    }

    fn sorted<'a>(&self, children: &[&'a str], _: &str) -> Vec<Contender<'a>> {
        let contender = |name: &'a str| {
            let (_, digits) = name.rsplit_once("__lock__")?;
            Some(Contender { sequence: sequence_number(digits)?, name })
        };
        let mut contenders: Vec<_> = children.iter().filter_map(|name| contender(name)).collect();
        contenders.sort_unstable();
        contenders
    }
}

/// Adds to a number that is read and written: without the lock, writes of others would be lost.
fn count(client: &Client, name: &str) -> Result<()> {
    // kazoo creates the path of a lock once, and does not expect that a server removes it: no container.
    let options = LockOptions::default().with_data(name.to_owned()).without_container_parents();
    let mutex = InterProcessMutex::with_driver(client, LOCK, options, KazooLock)?;
    for _ in 0..10 {
        let guard = wait(|| mutex.acquire_timeout(LIMIT))?.ok_or("the lock is busy")?;
        let number: u64 = String::from_utf8(client.get_data(COUNT)?.data.to_vec())?.parse()?;
        let next = (number + 1).to_string();
        // Refused once the lock is lost; kazoo's program would write on.
        wait(async || guard.guarded()?.set_data(COUNT, next.as_bytes(), None).commit().await)?;
        wait(|| guard.release())?;
    }
    Ok(())
}

fn main() -> Result<()> {
    // The embedded server is async: it has a runtime of its own.
    let runtime = tokio::runtime::Runtime::new()?;
    let embedded = runtime.block_on(TestingServer::start())?;
    let connect = env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let client = Client::connect(&connect)?;
    let options = CreateOptions::new(CreateMode::Persistent).with_parents();
    client.create(COUNT, b"0", options).allow(ErrorKind::NodeExists)?;
    thread::scope(|scope| {
        let workers = ["docent 1", "docent 2"].map(|name| {
            let client = &client;
            scope.spawn(move || count(client, name))
        });
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err("a panic".into())))
    })?;
    println!("count: {}", String::from_utf8(client.get_data(COUNT)?.data.to_vec())?);
    Ok(client.close()?)
}
