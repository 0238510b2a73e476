//! Verbs for single nodes, without retries: plain, synced and fenced reads, and writes.
//!
//! `create PATH DATA`; `set PATH DATA VERSION` (`-1`: any), which replies `VERSION MZXID SESSION`; `get PATH`,
//! `syncget PATH` and `fencedget PATH FENCE`, which reply `VERSION MZXID SESSION DATA`. A fenced read follows a write
//! of the same session to the node FENCE, so it is linearizable. SESSION is `-` if the session has changed meanwhile.
//! The error of a write is `ID err KIND OUTCOME TEXT`, with the OUTCOME `NotApplied` or `Unknown`.

use docent::{Client, CreateMode, Stat};

use super::{Answer, Failure, done, list};

pub(super) const VERBS: [&str; 6] = ["children", "create", "set", "get", "syncget", "fencedget"];

pub(super) async fn command(client: &Client, verb: &str, args: &[&str]) -> Answer {
    let before = session(client);
    let node = match (verb, args) {
        ("children", [path]) => {
            let (children, _) = client.get_children_with_stat(path).await?;
            return Ok(Some(list(children.to_vec())));
        }
        ("create", [path, data]) => {
            let created = client.create(path, data.as_bytes(), CreateMode::Persistent).await;
            created.map_err(Failure::of_write)?;
            return done();
        }
        ("set", [path, data, version]) => {
            let version = version.parse().map_err(|_| Failure::command("no version"))?;
            let version = Some(version).filter(|version: &i32| *version >= 0);
            let stat = client.set_data(path, data.as_bytes(), version).await;
            return Ok(Some(state(client, before, &stat.map_err(Failure::of_write)?)));
        }
        ("get", [path]) => client.get_data(path).await?,
        ("syncget", [path]) => {
            client.sync(path).await?;
            client.get_data(path).await?
        }
        ("fencedget", [path, fence]) => {
            let read = match client.set_data(fence, b"fence", None).await {
                Ok(_) => client.get_data(path).await,
                Err(error) => Err(error),
            };
            // In another session, the read may reach another server than the write.
            if before.is_none() || session(client) != before {
                let text = "the write and the read were of two sessions";
                return Err(Failure("SessionChanged".to_owned(), text.to_owned()));
            }
            read?
        }
        _ => return Err(Failure::unknown(verb, args)),
    };
    let data = String::from_utf8_lossy(&node.data);
    Ok(Some(format!("{} {data}", state(client, before, &node.stat))))
}

/// `VERSION MZXID SESSION`.
fn state(client: &Client, before: Option<i64>, stat: &Stat) -> String {
    let same = before.filter(|before| session(client) == Some(*before));
    let session = same.map_or_else(|| "-".to_owned(), |id| format!("{id:x}"));
    format!("{} {} {session}", stat.version, stat.mzxid)
}

fn session(client: &Client) -> Option<i64> {
    client.session_token().map(|token| token.session_id())
}
