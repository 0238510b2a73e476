//! `docent watch`: prints events.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::Args;
use docent::{AddWatchMode, Client, EventType, WatchedEvent, Watcher};
use serde_json::json;
use tokio::sync::watch;

use super::{path_object, validate_path, within};
use crate::{
    command::{Command, missing_chroot},
    connect::ServerArgs,
    duration,
    exit::{self, CommandResult, Failure},
    output::{escape, print, print_json},
    prompt,
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
    /// The client in `docent shell`, whose name is in front of each line.
    #[arg(skip)]
    pub(crate) printer: Printer,
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
        let watcher = self.set(client).await?;
        self.follow(watcher).await
    }

    /// Sets the watch.
    pub(crate) async fn set(&self, client: &Client) -> Result<Watcher, Failure> {
        // A server accepts a watch below a missing chroot, so the chroot is checked first.
        if let Some(missing) = missing_chroot(client).await {
            return Err(missing);
        }
        let mode = if self.recursive {
            AddWatchMode::PersistentRecursive
        } else {
            AddWatchMode::Persistent
        };
        let watcher = client.add_watch(&self.path, mode).await?;
        self.printer.line(self.json, "watching", &self.path, None)?;
        Ok(watcher)
    }

    /// Prints its events.
    pub(crate) async fn follow(&self, mut watcher: Watcher) -> CommandResult {
        let mut events = 0;
        while let Some(event) = watcher.next().await.filter(|event| !event.is_end()) {
            self.printer.event(self.json, &event)?;
            events += 1;
            if self.count.is_some_and(|count| events >= count) {
                return Ok(0);
            }
        }
        let text = "session lost, and the watch with it; restart the watch and read the node again";
        Err(Failure::new(exit::NO_SERVER, text))
    }
}

/// The events of a client of `docent shell` that were printed.
#[derive(Default)]
pub(crate) struct Printed {
    count: watch::Sender<u64>,
    is_over: AtomicBool,
}

impl Printed {
    pub(crate) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// Prints no more: the shell ends the client.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Prints events, in `docent shell` with the name of their client.
#[derive(Clone, Default)]
pub(crate) struct Printer(Option<(String, Arc<Printed>)>);

impl Printer {
    pub(crate) fn of(client: &str, printed: &Arc<Printed>) -> Self {
        Self(Some((client.to_owned(), Arc::clone(printed))))
    }

    pub(crate) fn event(&self, json: bool, event: &WatchedEvent) -> Result<(), Failure> {
        let printed = self.0.as_ref().map(|(_, printed)| printed);
        if printed.is_some_and(|printed| printed.is_over()) {
            return Ok(());
        }
        let name = if event.is_resync() { "Resync" } else { name(event.event_type) };
        self.line(json, name, &event.path, event.zxid)?;
        if let Some(printed) = printed {
            printed.count.send_modify(|count| *count += 1);
            prompt::show();
        }
        Ok(())
    }

    fn line(&self, json: bool, event: &str, path: &str, zxid: Option<i64>) -> Result<(), Failure> {
        let client = self.0.as_ref().map(|(client, _)| client);
        if !json {
            let client = client.map(|name| format!("{name}: ")).unwrap_or_default();
            return print(&format!("{client}{event} {}\n", escape(path)));
        }
        let mut object = path_object(path);
        object.insert("event".to_owned(), json!(event));
        if let Some(zxid) = zxid {
            object.insert("zxid".to_owned(), json!(zxid));
        }
        if let Some(client) = client {
            object.insert("client".to_owned(), json!(client));
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
