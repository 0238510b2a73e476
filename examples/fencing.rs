//! Fencing tokens: two clients that both believe that they hold the lock, and a storage that refuses the stale one
//! by its token.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use docent::{Client, InterProcessMutex};
use docent_testing::TestingServer;

/// The protected resource: a file server, a database, anything that can store one number.
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

    // The server does this when Alice's session ends while she is paused or cut off. Here Bob's client does it, so
    // that there is nothing to wait for.
    bob.delete(alices.path(), None).await?;

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
