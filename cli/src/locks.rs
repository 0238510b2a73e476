//! `docent locks`: who holds a lock and who waits; `docent revoke`: asking for it.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use clap::Args;
use docent::{
    Client, ErrorKind,
    recipes::locks::Revoker,
    session::{Watcher, retry::RetryNTimes},
};
use serde_json::{Value, json};

use crate::{
    command::Command,
    connect::ServerArgs,
    duration,
    exit::{self, Ended, Failure},
    queue::{Queue, SEMAPHORE, join, read_or_empty},
};

/// Show who holds a lock and who waits for it
///
/// Any lock of docent's or Curator's: a mutex, a read/write lock, a semaphore.
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent locks /locks/backup
  docent locks --watch /locks/backup     kept current: a screen on a terminal,
                                         else a table for each change
  docent locks --json /locks/backup | jq -r 'select(.state == \"held\").owner'

Columns:
  state    held, or the place among those who wait
  kind     mutex, read, write, or lease (of a semaphore)
  token    the fencing token: the node's czxid
  session  the session that the node goes with
  age      since its node was made, by the server's clock and this one
  owner    what the node says; docent lock says who and what, Curator the
           address of the host. (revocable): the node is empty, as those are
           that listen to docent revoke

With --json, one object a line: position, state (held, waiting), kind, path,
session, token, age_ms, owner, revocable; with --watch one array a line for each
change.

A lock that nobody uses prints nothing, and is no failure.

{}", exit::TABLE))]
pub(crate) struct Locks {
    /// Keep the view current, until a signal
    #[arg(short, long)]
    watch: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// The lock
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// A change rarely comes alone: those of so long make one view.
const GATHER: Duration = Duration::from_millis(20);

impl Command for Locks {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)
    }

    async fn run(&self, client: &Client) -> Ended {
        if !self.watch {
            let queue = read_or_empty(client, &self.path).await?;
            self.show(&queue)?;
            return Ok(0);
        }
        let mut shown: Option<Vec<_>> = None;
        loop {
            // The watches are set before what they are about is read.
            let watchers = watches(client, &self.path).await?;
            let queue = read_or_empty(client, &self.path).await?;
            let now: Vec<_> = queue
                .entries
                .iter()
                .map(|entry| (entry.path.clone(), entry.holds, entry.data.clone()))
                .collect();
            if shown.as_ref() != Some(&now) {
                self.show(&queue)?;
                shown = Some(now);
            }
            any(watchers).await?;
            tokio::time::sleep(GATHER).await;
        }
    }
}

impl Locks {
    fn show(&self, queue: &Queue) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let objects = queue.entries.iter().enumerate().map(|(at, entry)| entry.json(at));
        if self.json && self.watch {
            writeln!(out, "{}", Value::Array(objects.collect()))?;
        } else if self.json {
            for object in objects {
                writeln!(out, "{object}")?;
            }
        } else {
            if self.watch && out.is_terminal() {
                // From the upper left corner of an empty screen.
                out.write_all(b"\x1b[H\x1b[2J")?;
            }
            let text = match table(queue) {
                text if text.is_empty() && self.watch => "nobody holds it\n".to_owned(),
                text => text,
            };
            out.write_all(text.as_bytes())?;
            if self.watch && !out.is_terminal() {
                out.write_all(b"\n")?;
            }
        }
        Ok(out.flush()?)
    }
}

fn table(queue: &Queue) -> String {
    let mut rows = Vec::new();
    let mut waiting = 0;
    for entry in &queue.entries {
        let state = if entry.holds {
            "held".to_owned()
        } else {
            waiting += 1;
            format!("{waiting}.")
        };
        rows.push([
            state,
            entry.kind.name().to_owned(),
            entry.token.to_string(),
            format!("{:#x}", entry.session),
            duration::show(entry.age),
            entry.owner(),
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    rows.insert(0, ["STATE", "KIND", "TOKEN", "SESSION", "AGE", "OWNER"].map(str::to_owned));
    let width = |at: usize| {
        let widths = rows.iter().filter_map(|row| row.get(at)).map(|text| text.chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..5).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", row.last().map_or("", String::as_str));
    }
    text
}

/// Watches for anything that changes the queue: its nodes, what they say, and where they would be.
async fn watches(client: &Client, path: &str) -> Result<Vec<Watcher>, Failure> {
    let mut all = Vec::new();
    let [locks, leases] = SEMAPHORE.map(|name| join(path, name));
    for directory in [path, &locks, &leases] {
        match client.get_children_and_watch(directory).await {
            Ok((children, watcher)) => {
                all.push(watcher);
                for name in children.iter().filter(|name| !SEMAPHORE.contains(&&**name)) {
                    match client.get_data_and_watch(&join(directory, &name)).await {
                        Ok((_, watcher)) => all.push(watcher),
                        Err(error) if error.kind() == ErrorKind::NoNode => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NoNode => {
                all.push(client.exists_and_watch(directory).await?.1);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Waits for the first event of any.
async fn any(mut watchers: Vec<Watcher>) -> Result<(), Failure> {
    let event = std::future::poll_fn(|cx| {
        for watcher in &mut watchers {
            if let std::task::Poll::Ready(event) = watcher.poll_changed(cx) {
                return std::task::Poll::Ready(event);
            }
        }
        std::task::Poll::Pending
    })
    .await;
    if event.is_end() {
        let text = "the session was lost, and the watches with it; start again";
        return Err(Failure::new(exit::NO_SERVER, text));
    }
    Ok(())
}

/// Ask for a lock: its holder gives it up, if it listens
///
/// Writes `__REVOKE__` into the holder's node, as Curator's Revoker does. It is a
/// request: `docent lock --revocable` ends its command and gives the lock up;
/// what others do is up to them.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent revoke /locks/backup             all who hold it: one, or several readers
  docent revoke /locks/backup/_c_f1...-lock-0000000007
  docent revoke --force /locks/backup     also those who do not listen

Prints the path of each node it has written to. Semaphores cannot be revoked.

{}", exit::TABLE))]
pub(crate) struct Revoke {
    /// Write also to nodes whose owners do not listen; what the nodes say is lost
    #[arg(short, long)]
    force: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// The lock, or one node of it
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for Revoke {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)
    }

    async fn run(&self, client: &Client) -> Ended {
        let nodes = self.nodes(client).await?;
        if nodes.is_empty() {
            let text = format!("nobody holds {}", self.path);
            return Err(Failure::new(exit::NO_NODE, text));
        }
        let deaf = nodes.iter().find(|(_, listens)| !listens);
        if let Some((path, _)) = deaf.filter(|_| !self.force) {
            let text = format!(
                "the owner of {path} does not listen (docent lock --revocable does); --force writes anyway"
            );
            return Err(Failure::new(exit::REFUSED, text));
        }
        let policy = RetryNTimes::new(3, Duration::from_millis(100));
        for (path, _) in nodes {
            Revoker::attempt_revoke(client, &policy, &path).await?;
            let mut out = io::stdout().lock();
            if self.json {
                writeln!(out, "{}", json!({ "path": path }))?;
            } else {
                writeln!(out, "{path}")?;
            }
        }
        Ok(0)
    }
}

impl Revoke {
    /// The nodes of those who hold it, or the one that was named; and whether their owners listen.
    async fn nodes(&self, client: &Client) -> Result<Vec<(String, bool)>, Failure> {
        let path = &self.path;
        let name = path.rsplit('/').next().unwrap_or_default();
        if ["-lock-", "-__READ__", "-__WRIT__"].iter().any(|kind| name.contains(kind)) {
            let parent = docent_protocol::path::parent(path).unwrap_or("/");
            let queue = read_or_empty(client, parent).await?;
            let node = queue.entries.into_iter().find(|entry| entry.path == *path);
            return Ok(node
                .map(|node| (node.path.clone(), node.is_revocable()))
                .into_iter()
                .collect());
        }
        let queue = read_or_empty(client, path).await?;
        let holders = queue.holders().filter(|holder| holder.kind != crate::queue::Kind::Lease);
        Ok(holders.map(|holder| (holder.path.clone(), holder.is_revocable())).collect())
    }
}

fn check(path: &str) -> Result<(), Failure> {
    docent_protocol::path::validate(path)
        .map_err(|error| Failure::usage(format_args!("{path:?}: {error}; a path looks like /a/b")))
}
