//! The driver of zookeeper-async for `docent conform client`: `conform_zookeeper_async CONNECT`.

use std::{
    error::Error,
    fmt::Display,
    io::stdin,
    sync::{Arc, Mutex},
    time::Duration,
};

use zookeeper_async::{
    Acl, CreateMode, WatchedEvent, WatchedEventType, ZkError, ZkState, ZooKeeper,
};

/// What the listener was told last, because the client has no method for it.
type State = Arc<Mutex<&'static str>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let connect = std::env::args().nth(1).ok_or("CONNECT is missing")?;
    let (mut client, state) = (None, State::new(Mutex::new("connected")));
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let [number, verb, arguments @ ..] = &words[..] else { continue };
        let answer = match (*verb, arguments, &client) {
            // The client has no transactions.
            ("multi", ..) => {
                say(format!("{number} skip"));
                continue;
            }
            ("connect", [timeout], _) => {
                start(&connect, timeout.parse()?, &state).await.map(|it| {
                    client = Some(it);
                    String::new()
                })
            }
            ("close", [], Some(client)) => client.close().await.map(|()| String::new()),
            ("state", [], _) => Ok(state.lock().map_or("unknown", |state| *state).to_owned()),
            (_, _, Some(client)) => answer(client, verb, arguments).await,
            _ => Err(ZkError::BadArguments),
        };
        match answer {
            Ok(value) => say(format!("{number} ok {value}").trim_end()),
            // `NoNode` is NONODE.
            Err(error) => say(format!("{number} error {}", format!("{error:?}").to_uppercase())),
        }
        if *verb == "close" {
            break;
        }
    }
    Ok(())
}

async fn start(connect: &str, timeout: u64, state: &State) -> Result<ZooKeeper, ZkError> {
    let timeout = Duration::from_millis(timeout);
    let client = ZooKeeper::connect(connect, timeout, |_: WatchedEvent| ()).await?;
    let state = Arc::clone(state);
    client.add_listener(move |now| {
        let word = match now {
            ZkState::Connected | ZkState::ConnectedReadOnly => "connected",
            // The session has ended.
            ZkState::Closed => "expired",
            _ => "suspended",
        };
        say(format!("! state {word}"));
        if let Ok(mut state) = state.lock() {
            *state = word;
        }
    });
    // The client does not wait for its session.
    client.exists("/", false).await?;
    Ok(client)
}

async fn answer(client: &ZooKeeper, verb: &str, arguments: &[&str]) -> Result<String, ZkError> {
    let bytes = |data: &str| data.as_bytes().to_vec();
    match (verb, arguments) {
        ("create", [path, data]) => {
            let acl = Acl::open_unsafe().clone();
            client.create(path, bytes(data), acl, CreateMode::Persistent).await
        }
        ("get", [path]) => {
            let (data, stat) = client.get_data(path, false).await?;
            Ok(format!("{} {}", stat.version, String::from_utf8_lossy(&data)))
        }
        ("set", [path, data, version @ ..]) => {
            let version = version.first().and_then(|version| version.parse().ok());
            Ok(client.set_data(path, bytes(data), version).await?.version.to_string())
        }
        ("delete", [path]) => client.delete(path, None).await.map(|()| String::new()),
        ("children", [path]) => Ok(client.get_children(path, false).await?.len().to_string()),
        ("watch", [path]) => {
            let watched = (*path).to_owned();
            let stat = client.exists_w(path, move |event| {
                let is_end = event.event_type == WatchedEventType::None;
                say(format!("! {} {watched}", if is_end { "end" } else { "event" }));
            });
            Ok(stat.await?.is_some().to_string())
        }
        _ => Err(ZkError::BadArguments),
    }
}

fn say(line: impl Display) {
    println!("{line}");
}
