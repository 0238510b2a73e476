//! A client and a mutex on smol: another executor, other sockets and timers, and no tokio runtime in the process. The
//! same few trait methods run a client in a simulation, where time is virtual.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…).

use std::time::Duration;

use docent::{Client, Config, Error, InterProcessMutex};

mod runtime;

/// Two contenders for one mutex.
async fn work(client: Client) -> Result<(), Error> {
    let mutex = InterProcessMutex::new(&client, "/examples/smol")?;
    let first = mutex.acquire().await?;
    println!("the first holds the mutex");
    let waiter = smol::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await?.release().await }
    });
    let third = mutex.acquire_timeout(Duration::from_millis(100)).await?;
    println!("another attempt gives up after 100 ms: {}", third.is_none());
    first.release().await?;
    waiter.await?;
    println!("the second held it after the first");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let connect = std::env::var("DOCENT_CONNECT").map_err(|_| "set DOCENT_CONNECT=host:port")?;
    smol::block_on(async {
        let client = Config::new(&connect)?.with_runtime(runtime::Smol).connect().await?;
        client.run(work).await?;
        assert!(tokio::runtime::Handle::try_current().is_err());
        Ok(())
    })
}
