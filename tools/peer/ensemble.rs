//! The verbs of the client itself: its servers, its ensemble and its watches.

use docent::{Client, ensemble::Reconfig};

use super::{Answer, Failure, Peer, lock, node_operations::bytes_token};

/// All of them have the handle `-`, except `auth`.
pub(super) const VERBS: [&str; 5] = ["auth", "ensemble", "listeners", "reconfig", "untrack"];

pub(super) async fn command(peer: &Peer, verb: &str, args: &[&str]) -> Answer {
    match (verb, args) {
        ("ensemble", ["-"]) => Ok(Some(connect_string(&peer.client))),
        ("auth", [scheme, text]) => {
            peer.client.add_auth(scheme, text.as_bytes()).await?;
            Ok(Some(String::new()))
        }
        ("untrack", ["-"]) => {
            drop(lock(&peer.tracker).take());
            Ok(Some(String::new()))
        }
        // docent has no listeners, so the number of remaining watches is reported.
        ("listeners", ["-"]) => Ok(Some(peer.client.metrics().watches.to_string())),
        ("reconfig", [_, server]) => {
            let change = Reconfig::Incremental { joining: Some(server), leaving: None };
            let node = peer.client.reconfig(change, None).await?;
            Ok(Some(bytes_token(Some(&node.data))))
        }
        _ => Err(Failure::unknown(verb, args)),
    }
}

/// The servers that the client chooses from, sorted as text like Curator's, and its chroot.
fn connect_string(client: &Client) -> String {
    let mut servers: Vec<_> = client.servers().iter().map(ToString::to_string).collect();
    servers.sort_unstable();
    servers.join(",") + client.chroot().unwrap_or_default()
}
