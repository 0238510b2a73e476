//! A re-entrant mutex between two clients: a method that needs the lock may call another that needs it too.
//! The other client acquires the lock after the last release.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::time::Duration;

use docent::{Client, Error, InterProcessMutex, Owner};
use docent_testing::TestingServer;

/// Moves money between accounts. Each step acquires the lock.
async fn transfer(mutex: &InterProcessMutex, owner: &Owner, bobs: &Bob) -> Result<(), Error> {
    let guard = mutex.acquire_as(owner).await?;
    println!("Alice transfers; {}", bobs.turn().await?);
    for step in ["withdraws", "deposits"] {
        // The same owner: nothing is sent, and the acquire does not wait.
        let inner = mutex.acquire_as(owner).await?;
        println!("Alice {step}, by the same lock node: {}", inner.path() == guard.path());
        inner.release().await?;
    }
    println!("Alice has released the inner holds; {}", bobs.turn().await?);
    guard.release().await
}

/// The other client, which tries to acquire the lock now and then.
struct Bob(InterProcessMutex);

impl Bob {
    async fn turn(&self) -> Result<&'static str, Error> {
        // A zero timeout still acquires a free lock.
        match self.0.acquire_timeout(Duration::ZERO).await? {
            Some(guard) => guard.release().await.map(|()| "Bob acquires it"),
            None => Ok("Bob does not acquire it"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let (alice, bob) =
        (Client::connect(&connect_string).await?, Client::connect(&connect_string).await?);
    let mutex = InterProcessMutex::new(&alice, "/examples/reentrant")?;
    let bobs = Bob(InterProcessMutex::new(&bob, "/examples/reentrant")?);

    // A re-entrant hold has an owner: in Curator the thread, here a value that the caller passes.
    transfer(&mutex, &Owner::new(), &bobs).await?;
    println!("Alice is done; {}", bobs.turn().await?);
    alice.close().await?;
    Ok(bob.close().await?)
}
