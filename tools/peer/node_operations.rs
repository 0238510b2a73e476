//! Plain operations on nodes, for the set-up and the checks of the data recipes.
//!
//! `settled [WATCHES]` replies when the client has no pending request, and this number of watches.
//!
//! Bytes are one token: `-` for none, `""` for zero bytes, `0x...` for hex; any other token stands for itself.

use std::time::Duration;

use docent::{Acl, Client, CreateMode, CreateOptions, ErrorKind, Perms, acl, watch::WatcherType};

use super::{Answer, Failure, done, gzip, kept::mode};

pub(super) const VERBS: [&str; 14] = [
    "create", "createz", "set", "setz", "get", "delete", "rmr", "mk", "acl", "exists", "watch",
    "check", "sync", "settled",
];

/// The bytes of a token.
pub(super) fn bytes(token: &str) -> Result<Vec<u8>, Failure> {
    match token {
        "-" | "\"\"" => Ok(Vec::new()),
        _ => match token.strip_prefix("0x") {
            None => Ok(token.as_bytes().to_vec()),
            Some(hex) => hex
                .as_bytes()
                .chunks(2)
                .map(|digits| u8::from_str_radix(&String::from_utf8_lossy(digits), 16))
                .collect::<Result<_, _>>()
                .map_err(|_| Failure::command(format!("{token} is no hex"))),
        },
    }
}

/// The token of bytes; `None` if there are none.
pub(super) fn bytes_token(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "-".to_owned(),
        Some([]) => "\"\"".to_owned(),
        Some(bytes) => {
            let is_text = bytes.iter().all(|byte| (0x21..=0x7e).contains(byte))
                && ![&b"-"[..], b"\"\""].contains(&bytes)
                && !bytes.starts_with(b"0x");
            if is_text {
                String::from_utf8_lossy(bytes).into_owned()
            } else {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("0x{hex}")
            }
        }
    }
}

/// The name of Curator's exception for an error.
pub(super) fn exception(kind: ErrorKind) -> String {
    format!("{kind:?}Exception")
}

fn failure(error: docent::Error) -> Failure {
    Failure(exception(error.kind()), error.to_string())
}

pub(super) async fn command(client: &Client, verb: &str, args: &[&str]) -> Answer {
    match (verb, args) {
        ("create", [path, data, mode_word @ ..]) if mode_word.len() < 2 => {
            let mode = mode_word.first().map_or(Ok(CreateMode::Persistent), |word| mode(word))?;
            return client.create(path, &bytes(data)?, mode).await.map(Some).map_err(failure);
        }
        ("set", [path, data, version @ ..]) if version.len() < 2 => {
            let version = version.first().map(|version| version.parse()).transpose();
            let version = version.map_err(|_| Failure::command("no version"))?;
            let stat = client.set_data(path, &bytes(data)?, version).await.map_err(failure)?;
            return Ok(Some(stat.version.to_string()));
        }
        ("createz", [path, data]) => {
            let data = gzip::compress(&bytes(data)?);
            client.create(path, &data, CreateMode::Persistent).await.map_err(failure)?;
        }
        ("setz", [path, data]) => {
            let data = gzip::compress(&bytes(data)?);
            let stat = client.set_data(path, &data, None).await.map_err(failure)?;
            return Ok(Some(stat.version.to_string()));
        }
        ("acl", [path, word]) => {
            let closed = [Acl::new(Perms::from_number(30), "world", "anyone")];
            let acl = match *word {
                "none" => &closed,
                "open" => acl::OPEN_ACL_UNSAFE,
                _ => return Err(Failure::command(format!("{word} is neither none nor open"))),
            };
            client.set_acl(path, acl, None).await.map_err(failure)?;
        }
        ("get", [path]) => {
            let node = client.get_data(path).await.map_err(failure)?;
            return Ok(Some(format!("{} {}", node.stat.version, bytes_token(Some(&node.data)))));
        }
        ("delete", [path]) => client.delete(path, None).await.map_err(failure)?,
        ("rmr", [path]) => {
            if client.exists(path).await.map_err(failure)?.is_none() {
                return Ok(Some("none".to_owned()));
            }
            client.delete_recursive(path).await.map_err(failure)?;
        }
        ("mk", [path, data @ ..]) if data.len() < 2 => {
            let data = data.first().map_or(Ok(Vec::new()), |data| bytes(data))?;
            let options = CreateOptions::new(CreateMode::Persistent).with_parents();
            client.create_or_set(path, &data, options).await.map_err(failure)?;
        }
        ("exists", [path]) => {
            let stat = client.exists(path).await.map_err(failure)?;
            return Ok(Some(stat.is_some().to_string()));
        }
        // Watches a node, but ignores the event.
        ("watch", [path]) => client.get_data_and_watch(path).await.map_err(failure)?.1.forget(),
        ("check", [path]) => {
            client.check_watches(path, WatcherType::Any).await.map_err(failure)?;
        }
        // Without a connection, replies at once.
        ("sync", []) if !client.state().get().is_some_and(|state| state.is_connected()) => {
            return Ok(None);
        }
        ("sync", []) => client.sync("/").await.map_err(failure)?,
        ("settled", watches) if watches.len() < 2 => {
            let watches = watches.first().and_then(|watches| watches.parse::<usize>().ok());
            // More than once: the task that a reply has woken may not have run yet.
            let mut looks = 0;
            while looks < 5 {
                let metrics = client.metrics();
                let is_settled = metrics.pending == 0
                    && watches.is_none_or(|watches| watches == metrics.watches);
                looks = if is_settled { looks + 1 } else { 0 };
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        _ => return Err(Failure::unknown(verb, args)),
    }
    done()
}
