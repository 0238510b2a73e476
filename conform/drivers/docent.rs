//! docent's driver for `docent conform client`: `conform_driver CONNECT`.

use std::{error::Error, fmt::Display, time::Duration};

use docent::{Client, Config, ConnectionState, CreateMode, ErrorKind};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let connect = std::env::args().nth(1).ok_or("CONNECT is missing")?;
    let mut lines = BufReader::new(stdin()).lines();
    let mut client = None;
    while let Some(line) = lines.next_line().await? {
        let words: Vec<_> = line.split(' ').collect();
        let [number, verb, arguments @ ..] = &words[..] else { continue };
        let answer = match (*verb, arguments, &client) {
            ("connect", [timeout], _) => start(&connect, timeout.parse()?).await.map(|started| {
                client = Some(started);
                String::new()
            }),
            ("close", [], Some(client)) => client.close().await.map(|()| String::new()),
            (_, _, Some(client)) => answer(client, verb, arguments).await,
            _ => Err(unusable()),
        };
        match answer {
            Ok(value) => say(format!("{number} ok {value}").trim_end()),
            Err(error) => say(format!("{number} error {}", name(error.kind()))),
        }
        if *verb == "close" {
            break;
        }
    }
    Ok(())
}

async fn start(connect: &str, timeout: u64) -> Result<Client, docent::Error> {
    let config = Config::new(connect)?.with_session_timeout(Duration::from_millis(timeout));
    let client = config.connect().await?;
    let mut states = client.states();
    tokio::spawn(async move {
        while let Some(event) = states.next().await {
            if let Some(state) = event.state() {
                say(format!("! state {}", word(Some(state))));
            }
        }
    });
    Ok(client)
}

async fn answer(client: &Client, verb: &str, arguments: &[&str]) -> Result<String, docent::Error> {
    let node = CreateMode::Persistent;
    match (verb, arguments) {
        ("create", [path, data]) => client.create(path, data.as_bytes(), node).await,
        ("get", [path]) => {
            let node = client.get_data(path).await?;
            Ok(format!("{} {}", node.stat.version, String::from_utf8_lossy(&node.data)))
        }
        ("set", [path, data, version @ ..]) => {
            let version = version.first().and_then(|version| version.parse().ok());
            Ok(client.set_data(path, data.as_bytes(), version).await?.version.to_string())
        }
        ("delete", [path]) => client.delete(path, None).await.map(|()| String::new()),
        ("children", [path]) => Ok(client.get_children(path).await?.len().to_string()),
        ("watch", [path]) => {
            let (stat, mut watcher) = client.exists_and_watch(path).await?;
            let path = (*path).to_owned();
            tokio::spawn(async move {
                if watcher.next().await.is_some_and(|event| !event.is_end()) {
                    say(format!("! event {path}"));
                }
            });
            Ok(stat.is_some().to_string())
        }
        ("multi", [first, second]) => {
            let mut transaction = client.transaction();
            transaction.create(first, b"", node).create(second, b"", node);
            transaction.commit().await.map(|_| String::new())
        }
        ("state", []) => Ok(word(client.state().get()).to_owned()),
        _ => Err(unusable()),
    }
}

/// The word for a state; `None` is before the first connection.
fn word(state: Option<ConnectionState>) -> &'static str {
    match state {
        Some(state) if state.is_connected() => "connected",
        Some(ConnectionState::Lost) => "expired",
        _ => "suspended",
    }
}

/// ZooKeeper's name of an error.
fn name(kind: ErrorKind) -> String {
    format!("{kind:?}").to_uppercase()
}

/// The error of a task that has no client, or that is unknown.
fn unusable() -> docent::Error {
    docent::Error::new(ErrorKind::Closed, docent::Outcome::NotApplied)
}

fn say(line: impl Display) {
    println!("{line}");
}
