//! `docent watch`: events, a line each.

use std::time::Duration;

use clap::Args;
use docent::{Client, EventType, protocol::AddWatchMode};
use serde_json::json;

use super::{check, object, print, print_json};
use crate::{
    command::Command,
    connect::ServerArgs,
    data, duration,
    exit::{self, Ended, Failure},
};

/// Print what happens to a node, a line for each event
///
/// The node need not exist. Needs servers since 3.6.
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent watch /app/config | while read event path; do ...; done
  docent watch -r /app                      and to all below it
  docent watch --count 1 --timeout 30s /app/ready

Lines: `watching PATH` once the watch is set, then EVENT PATH. Events are
NodeCreated, NodeDataChanged, NodeDeleted, NodeChildrenChanged (without -r), and
Resync: the connection was lost for a while, and what happened meanwhile is not
told, so read again. With --json, one object a line: event, path, and zxid where
the server tells it.

Runs until --count, --timeout (exit code 124), or a signal.

{}", exit::TABLE))]
pub(crate) struct Watch {
    /// All below it too
    #[arg(short, long)]
    recursive: bool,
    /// End after so many events
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so long
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// The node
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for Watch {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)
    }

    async fn run(&self, client: &Client) -> Ended {
        match self.timeout {
            None => self.watch(client).await,
            Some(time) => match tokio::time::timeout(time, self.watch(client)).await {
                Ok(ended) => ended,
                Err(_) => Ok(exit::NOT_ACQUIRED),
            },
        }
    }
}

impl Watch {
    async fn watch(&self, client: &Client) -> Ended {
        let mode = if self.recursive {
            AddWatchMode::PersistentRecursive
        } else {
            AddWatchMode::Persistent
        };
        let mut watcher = client.add_watch(&self.path, mode).await?;
        self.show("watching", &self.path, None)?;
        let mut events = 0;
        loop {
            let event = watcher.changed().await;
            let name = if event.is_resync() {
                "Resync"
            } else if event.is_end() {
                let text =
                    "the session was lost, and the watch with it; start again, and read again";
                return Err(Failure::new(exit::NO_SERVER, text));
            } else {
                name(event.event_type)
            };
            self.show(name, &event.path, event.zxid)?;
            events += 1;
            if self.count.is_some_and(|count| events >= count) {
                return Ok(0);
            }
        }
    }

    fn show(&self, event: &str, path: &str, zxid: Option<i64>) -> Result<(), Failure> {
        if !self.json {
            return print(&format!("{event} {}\n", data::shown(path.as_bytes())));
        }
        let mut object = object(path);
        object.insert("event".to_owned(), json!(event));
        if let Some(zxid) = zxid {
            object.insert("zxid".to_owned(), json!(zxid));
        }
        print_json(object)
    }
}

/// ZooKeeper's names.
fn name(event: EventType) -> &'static str {
    match event {
        EventType::NodeCreated => "NodeCreated",
        EventType::NodeDeleted => "NodeDeleted",
        EventType::NodeDataChanged => "NodeDataChanged",
        EventType::NodeChildrenChanged => "NodeChildrenChanged",
        _ => "Event",
    }
}
