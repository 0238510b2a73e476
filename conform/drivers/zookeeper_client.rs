//! The driver of zookeeper-client for `docent conform client`: `conform_zookeeper_client CONNECT`.

use std::{error::Error as StdError, fmt::Display, io::stdin, time::Duration};

use zookeeper_client::{Acls, Client, CreateMode, Error, EventType, MultiWriteError, SessionState};

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let connect = std::env::args().nth(1).ok_or("CONNECT is missing")?;
    let mut client = None;
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let [number, verb, arguments @ ..] = &words[..] else { continue };
        let answer = match (*verb, arguments, &client) {
            ("connect", [timeout], _) => start(&connect, timeout.parse()?).await.map(|started| {
                client = Some(started);
                String::new()
            }),
            ("close", [], Some(_)) => {
                close(client.take()).await;
                Ok(String::new())
            }
            (_, _, Some(client)) => answer(client, verb, arguments).await,
            _ => Err(Error::Unimplemented),
        };
        match answer {
            Ok(value) => say(format!("{number} ok {value}").trim_end()),
            Err(error) => say(format!("{number} error {}", name(&error))),
        }
        if *verb == "close" {
            break;
        }
    }
    Ok(())
}

async fn start(connect: &str, timeout: u64) -> Result<Client, Error> {
    let connector = Client::connector().with_session_timeout(Duration::from_millis(timeout));
    let client = connector.connect(connect).await?;
    let mut states = client.state_watcher();
    tokio::spawn(async move {
        loop {
            say(format!("! state {}", word(states.changed().await)));
        }
    });
    Ok(client)
}

/// A session ends when the last client of it is dropped.
async fn close(client: Option<Client>) {
    if let Some(mut states) = client.map(|client| client.state_watcher()) {
        while !states.state().is_terminated() {
            states.changed().await;
        }
    }
}

async fn answer(client: &Client, verb: &str, arguments: &[&str]) -> Result<String, Error> {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    match (verb, arguments) {
        ("create", [path, data]) => {
            client.create(path, data.as_bytes(), &options).await?;
            Ok((*path).to_owned())
        }
        ("get", [path]) => {
            let (data, stat) = client.get_data(path).await?;
            Ok(format!("{} {}", stat.version, String::from_utf8_lossy(&data)))
        }
        ("set", [path, data, version @ ..]) => {
            let version = version.first().and_then(|version| version.parse().ok());
            Ok(client.set_data(path, data.as_bytes(), version).await?.version.to_string())
        }
        ("delete", [path]) => client.delete(path, None).await.map(|()| String::new()),
        ("children", [path]) => Ok(client.list_children(path).await?.len().to_string()),
        ("watch", [path]) => {
            let (stat, watcher) = client.check_and_watch_stat(path).await?;
            let path = (*path).to_owned();
            tokio::spawn(async move {
                let is_end = watcher.changed().await.event_type == EventType::Session;
                say(format!("! {} {path}", if is_end { "end" } else { "event" }));
            });
            Ok(stat.is_some().to_string())
        }
        ("multi", [first, second]) => {
            let mut writer = client.new_multi_writer();
            writer.add_create(first, b"", &options)?;
            writer.add_create(second, b"", &options)?;
            match writer.commit().await {
                Ok(_) => Ok(String::new()),
                Err(MultiWriteError::RequestFailed { source }) => Err(source),
                Err(MultiWriteError::OperationFailed { source, .. }) => Err(source),
            }
        }
        ("state", []) => Ok(word(client.state()).to_owned()),
        _ => Err(Error::Unimplemented),
    }
}

fn word(state: SessionState) -> &'static str {
    match state {
        SessionState::SyncConnected | SessionState::ConnectedReadOnly => "connected",
        SessionState::Expired => "expired",
        SessionState::Closed => "closed",
        _ => "suspended",
    }
}

/// `NoNode` is NONODE.
fn name(error: &Error) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_ascii_uppercase()
}

fn say(line: impl Display) {
    println!("{line}");
}
