//! A client that locks on command: `lock_peer CONNECT [SESSION_MS [RETRIES]]`. `peer/mod.rs` describes the protocol,
//! `peer/locks.rs` the verbs, and `peer/nodes.rs` those of single nodes.

mod peer;

#[tokio::main]
async fn main() {
    peer::run("lock_peer").await;
}
