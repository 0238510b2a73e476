//! Two peers that contend for one lock as fast as they can.

use super::history::History;
use super::peer::Peer;

/// Each peer acquires and releases the lock `rounds` times; returns the history.
///
/// The handle is `KIND:PATH` of an exclusive lock.
pub async fn contend(first: &Peer, second: &Peer, handle: &str, rounds: usize) -> History {
    let history = History::new();
    let take_turns = async |peer: &Peer| {
        for _ in 0..rounds {
            let acquired = peer.ask(format!("acquire {handle}")).await;
            acquired.ok();
            let hold = history.acquired(handle, peer.name(), acquired.at);
            // Also makes the hold last a round trip to the server.
            history.token(hold, peer.token(handle).await);
            history.releasing(hold);
            peer.ask(format!("release {handle}")).await.ok();
        }
    };
    tokio::join!(take_turns(first), take_turns(second));
    assert_eq!(history.count(), 2 * rounds);
    history
}
