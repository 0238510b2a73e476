//! A client that runs every other recipe on command:
//! `recipe_peer CONNECT [SESSION_MS [RETRIES [FLAGS | SLEEP_MS [POLICY]]]]`. `peer/mod.rs` describes the protocol.

mod peer;

#[tokio::main]
async fn main() {
    peer::run("recipe_peer").await;
}
