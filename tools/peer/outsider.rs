//! Verbs without an object: the session, and plain requests.

use std::sync::atomic::Ordering;

use docent::{Acl, Config, CreateMode, ErrorKind, Outcome, Perms};

use super::{Answer, Failure, Peer, done, kept::mode, list, text, token};

pub(super) async fn command(peer: &Peer, verb: &str, args: &[String]) -> Answer {
    let client = &peer.client;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match (verb, args.as_slice()) {
        ("session", []) => match client.session() {
            Some(session) => Ok(Some(format!("{:x}", session.session_id()))),
            None => Err(docent::Error::new(ErrorKind::ConnectionLoss, Outcome::NotApplied).into()),
        },
        ("children", [path]) => {
            let (children, _) = client.get_children_with_stat(path).await?;
            let mut names = children.to_vec();
            names.sort_unstable();
            Ok(Some(list(names)))
        }
        ("read", [path]) => {
            let node = client.get_data(path).await?;
            let (data, stat) = (token(&node.data), node.stat);
            let (version, owner) = (stat.version, stat.ephemeral_owner);
            Ok(Some(format!("{data} {version} {owner:x} {}", stat.czxid)))
        }
        ("make", [path, data, mode_text]) => {
            client.create(path, text(data).as_bytes(), mode(mode_text)?).await?;
            done()
        }
        ("makero", [path]) => {
            let read = [Acl::new(Perms::READ, "world", "anyone")];
            client.create_with_acl(path, b"", CreateMode::Persistent, &read).await?;
            done()
        }
        ("write", [path, data]) => {
            client.set_data(path, text(data).as_bytes(), None).await?;
            done()
        }
        ("remove", [path]) => {
            client.delete(path, None).await?;
            done()
        }
        ("expire", []) => {
            // The client's clock jumps over the deadline of its lease; the request makes it look at the clock.
            let timeout = client.session_timeout().as_nanos().try_into().unwrap_or(u64::MAX);
            peer.clock_offset.fetch_add(timeout, Ordering::AcqRel);
            drop(client.sync("/"));
            done()
        }
        ("killsession", [server]) => {
            let token = client.session_token();
            let token = token.ok_or_else(|| Failure::command("there is no session"))?;
            let second = Config::new(server)?.with_session(token).connect().await?;
            second.close().await?;
            done()
        }
        _ => Err(Failure::unknown(verb, &args)),
    }
}
