//! Commands of single nodes, without retries: plain, synced and fenced reads, and writes.

use std::time::Duration;

use docent::{Client, CreateMode, Error, Node};

use super::{answer, answer_write};

/// Whether the verb is one of these commands; its answer follows.
///
/// `create PATH DATA`; `set PATH DATA VERSION` (`-1`: any), answered with the new version; `get PATH`, `syncget PATH`
/// and `fencedget PATH FENCE`, answered with `VERSION MZXID SESSION DATA`. A fenced read is one behind a write of the
/// same session to another node, so it is linearizable. SESSION is `-` if the session has changed meanwhile.
///
/// `settled WATCHES` is answered when the client has no pending request, and this number of watches.
pub(crate) fn command(client: &Client, id: &str, verb: &str, args: &[String]) -> bool {
    let (client, id) = (client.clone(), id.to_owned());
    match (verb, args) {
        ("create", [path, data]) => {
            let (path, data) = (path.clone(), data.clone());
            tokio::spawn(async move {
                let created = client.create(&path, data.as_bytes(), CreateMode::Persistent).await;
                answer_write(&id, created.map(|_| String::new()));
            });
        }
        ("set", [path, data, version]) => {
            let Ok(version) = version.parse::<i32>() else { return false };
            let version = Some(version).filter(|version| *version >= 0);
            let (path, data) = (path.clone(), data.clone());
            tokio::spawn(async move {
                let set = client.set_data(&path, data.as_bytes(), version).await;
                answer_write(&id, set.map(|stat| stat.version.to_string()));
            });
        }
        ("get", [path]) => {
            let path = path.clone();
            tokio::spawn(async move {
                let session = session(&client);
                let node = client.get_data(&path).await;
                answer_read(&client, &id, session, node);
            });
        }
        ("syncget", [path]) => {
            let path = path.clone();
            tokio::spawn(async move {
                let session = session(&client);
                let node = match client.sync(&path).await {
                    Ok(_) => client.get_data(&path).await,
                    Err(error) => Err(error),
                };
                answer_read(&client, &id, session, node);
            });
        }
        ("fencedget", [path, fence]) => {
            let (path, fence) = (path.clone(), fence.clone());
            tokio::spawn(async move {
                let session = session(&client);
                let node = match client.set_data(&fence, b"fence", None).await {
                    Ok(_) => client.get_data(&path).await,
                    Err(error) => Err(error),
                };
                answer_fenced(&client, &id, session, node);
            });
        }
        ("settled", [watches]) => {
            let Ok(watches) = watches.parse::<usize>() else { return false };
            tokio::spawn(async move {
                settle(&client, watches).await;
                answer(&id, Ok(Some(String::new())));
            });
        }
        _ => return false,
    }
    true
}

async fn settle(client: &Client, watches: usize) {
    loop {
        let metrics = client.metrics();
        if (metrics.pending, metrics.watches) == (0, watches) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn session(client: &Client) -> Option<i64> {
    client.session_token().map(|token| token.session_id())
}

fn text(client: &Client, before: Option<i64>, node: &Node) -> String {
    let same = before.filter(|before| session(client) == Some(*before));
    let session = same.map_or_else(|| "-".to_owned(), |id| format!("{id:x}"));
    let data = String::from_utf8_lossy(&node.data);
    format!("{} {} {session} {data}", node.stat.version, node.stat.mzxid)
}

fn answer_read(client: &Client, id: &str, before: Option<i64>, node: Result<Node, Error>) {
    answer(id, node.map(|node| Some(text(client, before, &node))));
}

/// As a read, but only of one session: the write and the read in different sessions may be of different servers.
fn answer_fenced(client: &Client, id: &str, before: Option<i64>, node: Result<Node, Error>) {
    if before.is_none() || session(client) != before {
        super::say(&format!("{id} err SessionChanged the write and the read were of two sessions"));
        return;
    }
    answer_read(client, id, before, node);
}
