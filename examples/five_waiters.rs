//! A lock with one holder and five waiters: who holds it, and which node each of the others watches.
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::locks::standard_lock_internals_driver::{
    PredicateResults, gets_the_lock, sorted_contenders,
};
use docent::{Client, Error, InterProcessMutex};
use docent_testing::TestingServer;
use std::{collections::BTreeMap, time::Duration};

const PATH: &str = "/examples/five-waiters";

/// The lock nodes in the order of the queue, once there are `length` of them.
async fn queue(mutex: &InterProcessMutex, length: usize) -> Result<Vec<String>, Error> {
    loop {
        let nodes = mutex.participants().await?;
        if nodes.len() == length {
            return Ok(nodes);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Prints the decision of each contender: the function is the one that the locks call.
fn show(event: &str, queue: &[String], clients: &BTreeMap<String, char>) {
    let contenders = sorted_contenders(queue.iter().map(String::as_str), "lock-");
    let decisions = contenders.iter().map(|contender| {
        let client = clients[contender.name];
        match gets_the_lock(&contenders, contender.name, 1) {
            Ok(PredicateResults::GetsTheLock) => format!("{client} holds"),
            Ok(PredicateResults::PathToWatch(ahead)) => format!("{client}>{}", clients[ahead]),
            Err(error) => format!("{client}: {error:?}"),
        }
    });
    println!("{event}: {}", decisions.collect::<Vec<_>>().join(" "));
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect = std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let mutex = InterProcessMutex::new(&Client::connect(&connect).await?, PATH)?;
    let (mut names, mut clients) = (BTreeMap::new(), BTreeMap::new());
    let mut acquires = BTreeMap::new();
    for name in 'A'..='F' {
        let client = Client::connect(&connect).await?;
        let lock = InterProcessMutex::new(&client, PATH)?;
        acquires.insert(name, tokio::spawn(async move { lock.acquire().await }));
        clients.insert(name, client);
        names.extend(queue(&mutex, clients.len()).await?.pop().map(|node| (node, name)));
    }
    show("six contenders", &queue(&mutex, 6).await?, &names);
    acquires.remove(&'D').ok_or("D is here")?.abort();
    show("D gives up", &queue(&mutex, 5).await?, &names);
    clients.remove(&'B').ok_or("B is here")?.close().await?;
    show("B's session ends", &queue(&mutex, 4).await?, &names);
    acquires.remove(&'A').ok_or("A is here")?.await??.release().await?;
    show("A releases", &queue(&mutex, 3).await?, &names);
    Ok(())
}
