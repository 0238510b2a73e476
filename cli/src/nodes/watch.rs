//! `docent watch`: prints events.

use std::time::Duration;

use clap::Args;
use docent::{AddWatchMode, Client, EventType};
use serde_json::json;

use super::{path_object, validate_path, within};
use crate::{
    command::{Command, missing_chroot},
    connect::ServerArgs,
    duration,
    exit::{self, CommandResult, Failure},
    output::{escape, print, print_json},
};

/// Print the events of a node, one line each
///
/// The node need not exist, but a chroot must. Requires ZooKeeper 3.6 or later.
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent watch /app/config | while read event path; do ...; done
  docent watch -r /app                      and of its descendants
  docent watch --count 1 --timeout 30s /app/ready

Lines: `watching PATH` once the watch is set, then EVENT PATH. Events are
NodeCreated, NodeDataChanged, NodeDeleted, NodeChildrenChanged (without -r), and
Resync: events may have been missed while the connection was lost, so read again.
With --json, one object per line: event, path, and zxid if the server sends it.

Runs until --count, --timeout (exit code 124), or a signal.

{}", exit::HELP))]
pub(crate) struct Watch {
    /// Watch its descendants too
    #[arg(short, long)]
    recursive: bool,
    /// Exit after N events
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this time, with code 124
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Path of the node
    path: String,
}

impl Command for Watch {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        within(self.timeout, self.watch(client)).await
    }
}

impl Watch {
    async fn watch(&self, client: &Client) -> CommandResult {
        // A server accepts a watch below a missing chroot, so the chroot is checked first.
        if let Some(missing) = missing_chroot(client).await {
            return Err(missing);
        }
        let mode = if self.recursive {
            AddWatchMode::PersistentRecursive
        } else {
            AddWatchMode::Persistent
        };
        let mut watcher = client.add_watch(&self.path, mode).await?;
        self.print_event("watching", &self.path, None)?;
        let mut events = 0;
        while let Some(event) = watcher.next().await.filter(|event| !event.is_end()) {
            let name = if event.is_resync() { "Resync" } else { name(event.event_type) };
            self.print_event(name, &event.path, event.zxid)?;
            events += 1;
            if self.count.is_some_and(|count| events >= count) {
                return Ok(0);
            }
        }
        let text = "session lost, and the watch with it; restart the watch and read the node again";
        Err(Failure::new(exit::NO_SERVER, text))
    }

    fn print_event(&self, event: &str, path: &str, zxid: Option<i64>) -> Result<(), Failure> {
        if !self.json {
            return print(&format!("{event} {}\n", escape(path)));
        }
        let mut object = path_object(path);
        object.insert("event".to_owned(), json!(event));
        if let Some(zxid) = zxid {
            object.insert("zxid".to_owned(), json!(zxid));
        }
        print_json(object)
    }
}

/// Returns ZooKeeper's name of an event type.
fn name(event: EventType) -> &'static str {
    match event {
        EventType::NodeCreated => "NodeCreated",
        EventType::NodeDeleted => "NodeDeleted",
        EventType::NodeDataChanged => "NodeDataChanged",
        EventType::NodeChildrenChanged => "NodeChildrenChanged",
        _ => "Event",
    }
}
