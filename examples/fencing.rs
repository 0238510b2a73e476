//! Why a lock is not enough, and what is: two clients that both believe in the lock, and a storage that knows
//! better, because it looks at their fencing tokens.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{Client, recipes::locks::InterProcessMutex};
use docent_testing::TestingServer;

/// What the lock protects: a file server, a database, anything that can remember one number.
#[derive(Default)]
struct Storage {
    highest_token: i64,
    text: &'static str,
}

impl Storage {
    fn write(&mut self, token: i64, text: &'static str) -> Result<(), String> {
        if token < self.highest_token {
            return Err(format!("token {token} is stale, {} was here", self.highest_token));
        }
        self.highest_token = token;
        self.text = text;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let (alice, bob) =
        (Client::connect(&connect_string).await?, Client::connect(&connect_string).await?);
    let mut storage = Storage::default();

    let alices = InterProcessMutex::new(&alice, "/examples/fencing")?.acquire().await?;
    let alices_token = alices.fencing_token().await?;

    // What the server does when Alice's session ends and she cannot hear of it, for she is paused, or cut off. A
    // third hand does it here, so that there is nothing to wait for.
    bob.delete(alices.lock_path(), None).await?;

    let bobs = InterProcessMutex::new(&bob, "/examples/fencing")?.acquire().await?;
    println!("Alice believes: {}, Bob believes: {}", alices.is_held(), bobs.is_held());
    let written = storage.write(bobs.fencing_token().await?, "by Bob");
    println!("Bob writes: {written:?}");
    println!("Alice writes: {:?}", storage.write(alices_token, "by Alice"));
    println!("the text is {}", storage.text);

    alices.release().await?;
    bobs.release().await?;
    alice.close().await?;
    Ok(bob.close().await?)
}
