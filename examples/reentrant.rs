//! A re-entrant mutex between two clients: a method that needs the lock may call another that needs it too, and
//! the other client gets in when the last of them has left.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::time::Duration;

use docent::{
    Client,
    recipes::{
        Error,
        locks::{InterProcessMutex, Owner},
    },
};
use docent_testing::TestingServer;

/// Moves money between accounts. Each step needs the lock, and takes it.
async fn transfer(mutex: &InterProcessMutex, owner: &Owner, bobs: &Bob) -> Result<(), Error> {
    let guard = mutex.acquire_as(owner).await?;
    println!("Alice transfers; {}", bobs.turn().await?);
    for step in ["withdraws", "deposits"] {
        // Entered again: nothing is sent, and nobody waits for himself.
        let inner = mutex.acquire_as(owner).await?;
        println!("Alice {step}, by the same lock node: {}", inner.lock_path() == guard.lock_path());
        inner.release().await?;
    }
    println!("Alice has left the inner rooms; {}", bobs.turn().await?);
    guard.release().await
}

/// The other client, who looks in now and then.
struct Bob(InterProcessMutex);

impl Bob {
    async fn turn(&self) -> Result<&'static str, Error> {
        // No time at all: a free lock is got all the same.
        match self.0.acquire_timeout(Duration::ZERO).await? {
            Some(guard) => guard.release().await.map(|()| "Bob gets in"),
            None => Ok("Bob is kept out"),
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

    // What may be entered again has an owner: Curator's thread, but said aloud and never guessed.
    transfer(&mutex, &Owner::new(), &bobs).await?;
    println!("Alice is done; {}", bobs.turn().await?);
    alice.close().await?;
    Ok(bob.close().await?)
}
