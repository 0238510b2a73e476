//! The client itself: its servers, its ensemble, its session and its load.

use std::sync::PoisonError;

use docent::{Client, Reconfig};

use super::{Answer, Failure, Peer, millis, node_operations::bytes_token, outsider};

/// Whether a verb is one of these. The handle of each is `-`, but for `auth` and `busy`.
pub(super) fn is_verb(verb: &str, args: &[String]) -> bool {
    match verb {
        "auth" | "busy" | "ensemble" | "listeners" | "reconfig" | "untrack" => true,
        "session" | "killsession" => args.first().is_some_and(|handle| handle == "-"),
        _ => false,
    }
}

pub(super) async fn command(peer: &Peer, verb: &str, args: &[String]) -> Answer {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match (verb, args.as_slice()) {
        ("ensemble", ["-"]) => Ok(Some(connect_string(&peer.client))),
        ("auth", [scheme, text]) => {
            peer.client.add_auth(scheme, text.as_bytes()).await?;
            Ok(Some(String::new()))
        }
        ("untrack", ["-"]) => {
            drop(peer.tracker.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(Some(String::new()))
        }
        // Of the watches that are left, since there are no listeners.
        ("listeners", ["-"]) => Ok(Some(peer.client.metrics().watches.to_string())),
        // No thread runs listeners.
        ("busy", [time]) => millis(time).map(|_| Some(String::new())),
        ("reconfig", [_, server]) => {
            let change = Reconfig::Incremental { joining: Some(server), leaving: None };
            let node = peer.client.reconfig(change, None).await?;
            Ok(Some(bytes_token(Some(&node.data))))
        }
        ("session" | "killsession", ["-", ..]) => {
            let rest: Vec<_> = args.iter().skip(1).map(|arg| (*arg).to_owned()).collect();
            outsider::command(peer, verb, &rest).await
        }
        _ => Err(Failure::unknown(verb, &args)),
    }
}

/// The servers that the client chooses from, sorted by their text as Curator sorts them, and its chroot.
fn connect_string(client: &Client) -> String {
    let mut servers: Vec<_> = client.servers().iter().map(ToString::to_string).collect();
    servers.sort_unstable();
    servers.join(",") + client.chroot().unwrap_or_default()
}
