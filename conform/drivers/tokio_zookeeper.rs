//! The driver of tokio-zookeeper for `docent conform client`: `conform_tokio_zookeeper CONNECT`.

use std::{
    error::Error,
    fmt::{Debug, Display},
    io::stdin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use tokio::task::JoinHandle;
use tokio_zookeeper::{Acl, CreateMode, KeeperState, ZooKeeper, ZooKeeperBuilder, error::Multi};

/// What the events say of the session, because the client has no method for it.
type State = Arc<Mutex<&'static str>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let connect = std::env::args().nth(1).ok_or("CONNECT is missing")?;
    let (mut client, mut events) = (None, None);
    let state = State::new(Mutex::new("connected"));
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let [number, verb, arguments @ ..] = &words[..] else { continue };
        let answer = match (*verb, arguments, &client) {
            ("connect", [timeout], _) => {
                start(&connect, timeout.parse()?, &state).await.map(|it| {
                    (client, events) = (Some(it.0), Some(it.1));
                    String::new()
                })
            }
            ("close", [], _) => {
                // A session ends when the client is dropped, and the events with it.
                client = None;
                if let Some(events) = events.take() {
                    events.await?;
                }
                Ok(String::new())
            }
            ("state", [], _) => Ok(state.lock().map_or("unknown", |state| *state).to_owned()),
            (_, _, Some(client)) => answer(client, verb, arguments).await,
            _ => Err("UNIMPLEMENTED".to_owned()),
        };
        match answer {
            Ok(value) => say(format!("{number} ok {value}").trim_end()),
            Err(error) => say(format!("{number} error {error}")),
        }
        if *verb == "close" {
            break;
        }
    }
    Ok(())
}

async fn start(
    connect: &str,
    timeout: u64,
    state: &State,
) -> Result<(ZooKeeper, JoinHandle<()>), String> {
    let mut builder = ZooKeeperBuilder::default();
    builder.set_timeout(Duration::from_millis(timeout));
    let address = connect.parse().map_err(name)?;
    let (client, mut events) = builder.connect(&address).await.map_err(text)?;
    let state = Arc::clone(state);
    let events = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let word = match event.keeper_state {
                KeeperState::SyncConnected | KeeperState::ConnectedReadOnly => "connected",
                KeeperState::Expired => "expired",
                _ => "suspended",
            };
            say(format!("! state {word}"));
            if let Ok(mut state) = state.lock() {
                *state = word;
            }
        }
    });
    Ok((client, events))
}

async fn answer(client: &ZooKeeper, verb: &str, arguments: &[&str]) -> Result<String, String> {
    let (acl, mode) = (Acl::open_unsafe(), CreateMode::Persistent);
    let bytes = |data: &str| data.as_bytes().to_vec();
    match (verb, arguments) {
        ("create", [path, data]) => {
            client.create(path, bytes(data), acl, mode).await.map_err(text)?.map_err(name)
        }
        ("get", [path]) => {
            let (data, stat) = client.get_data(path).await.map_err(text)?.ok_or("NONODE")?;
            Ok(format!("{} {}", stat.version, String::from_utf8_lossy(&data)))
        }
        ("set", [path, data, version @ ..]) => {
            let version = version.first().and_then(|version| version.parse().ok());
            let stat = client.set_data(path, version, bytes(data)).await.map_err(text)?;
            Ok(stat.map_err(name)?.version.to_string())
        }
        ("delete", [path]) => {
            client.delete(path, None).await.map_err(text)?.map_err(name)?;
            Ok(String::new())
        }
        ("children", [path]) => {
            let children = client.get_children(path).await.map_err(text)?;
            Ok(children.ok_or("NONODE")?.len().to_string())
        }
        ("watch", [path]) => {
            let (event, stat) = client.with_watcher().exists(path).await.map_err(text)?;
            let path = (*path).to_owned();
            tokio::spawn(async move {
                say(format!("! {} {path}", if event.await.is_ok() { "event" } else { "end" }));
            });
            Ok(stat.is_some().to_string())
        }
        ("multi", [first, second]) => {
            let multi = client.multi().create(first, bytes(""), acl, mode);
            let results = multi.create(second, bytes(""), acl, mode).run().await.map_err(text)?;
            for error in results.into_iter().filter_map(Result::err) {
                match error {
                    Multi::RolledBack | Multi::Skipped => {}
                    Multi::Create { source } => return Err(name(source)),
                    error => return Err(name(error)),
                }
            }
            Ok(String::new())
        }
        _ => Err("UNIMPLEMENTED".to_owned()),
    }
}

/// An error of the client, which is a text.
fn text(error: impl Display) -> String {
    error.to_string().replace(' ', "-")
}

/// `BadVersion { .. }` is BADVERSION.
fn name(error: impl Debug) -> String {
    let text = format!("{error:?}");
    text.split(' ').next().unwrap_or_default().to_ascii_uppercase()
}

fn say(line: impl Display) {
    println!("{line}");
}
