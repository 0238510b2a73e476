//! `docent locks` shows the holders and waiters of a lock. `docent revoke` asks the holders to release it.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use clap::Args;
use docent::{Children, Client, ErrorKind, Watcher, locks::Revoker, retry::RetryNTimes};
use serde_json::{Value, json};

use crate::{
    command::{Command, missing_chroot},
    connect::ServerArgs,
    duration,
    exit::{self, CommandResult, Failure},
    nodes::validate_path,
    output::{escape, json_line, print, print_json, report},
    queue::{Kind, Queue, SEMAPHORE, join, read_or_empty},
};

/// Show the holders and waiters of a lock
///
/// Works on the locks of docent and Curator: mutex, read/write lock, semaphore;
/// and on leader elections: latches, and selectors, whose nodes are those of a
/// mutex.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent locks /locks/backup
  docent locks --watch /locks/backup     updated: a screen on a terminal,
                                         else a table for each change
  docent locks --json /locks/backup | jq -r 'select(.state == \"held\").owner'

Columns:
  state    held, or the position among the waiters
  kind     mutex, read, write, lease (of a semaphore), or latch (of an election)
  token    the fencing token: the czxid of the node
  session  the session that owns the node
  age      time since the node was created, by the clocks of the server and of
           this machine
  owner    data of the node: docent lock and docent lead write user, host,
           process and command, Curator the address of the host, or the id of a
           latch. (revocable): the node is empty, as the nodes of revocable
           locks are

With --json, one object per line: position, state (held, waiting), kind, path,
session, token, age_ms, owner, revocable; with --watch, one array per line for
each change.

Prints nothing for a lock without holders and waiters, and a note on standard
error if the path does not exist; the exit code is 0.

{}", exit::HELP))]
pub(crate) struct Locks {
    /// Show changes until a signal arrives
    #[arg(short, long)]
    watch: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Path of the lock
    path: String,
}

/// Changes within this time after the first one are shown together.
const BATCH_DELAY: Duration = Duration::from_millis(20);

impl Command for Locks {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        if !self.watch {
            match Queue::read(client, &self.path).await {
                Ok(queue) => self.print(&queue)?,
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    if let Some(missing) = missing_chroot(client).await {
                        return Err(missing);
                    }
                    // Not an error, because a server deletes the path of a lock some time after its last use.
                    let path = &self.path;
                    report(format_args!(
                        "docent locks: {path} does not exist: no holder, no waiter"
                    ));
                }
                Err(error) => return Err(error.into()),
            }
            return Ok(0);
        }
        if let Some(missing) = missing_chroot(client).await {
            return Err(missing);
        }
        let mut shown: Option<Vec<_>> = None;
        loop {
            // Watches first, so that no change after the read is missed.
            let watchers = set_watches(client, &self.path).await?;
            let queue = read_or_empty(client, &self.path).await?;
            let now: Vec<_> = queue
                .entries
                .iter()
                .map(|entry| (entry.path.clone(), entry.is_holder, entry.data.clone()))
                .collect();
            if shown.as_ref() != Some(&now) {
                self.print(&queue)?;
                shown = Some(now);
            }
            first_event(watchers).await?;
            tokio::time::sleep(BATCH_DELAY).await;
        }
    }
}

impl Locks {
    fn print(&self, queue: &Queue) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let objects = queue.entries.iter().enumerate().map(|(at, entry)| entry.json(at));
        if self.json && self.watch {
            out.write_all(json_line(&Value::Array(objects.collect())).as_bytes())?;
        } else if self.json {
            for object in objects {
                out.write_all(json_line(&object).as_bytes())?;
            }
        } else {
            if self.watch && out.is_terminal() {
                // Moves the cursor to the upper left corner and erases the screen.
                out.write_all(b"\x1b[H\x1b[2J")?;
            }
            let text = match table(queue) {
                text if text.is_empty() && self.watch => "no holder\n".to_owned(),
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

/// Formats the queue with aligned columns.
fn table(queue: &Queue) -> String {
    let mut rows = Vec::new();
    let mut waiting = 0;
    for entry in &queue.entries {
        let state = if entry.is_holder {
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
            duration::format(entry.age),
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

/// Sets watches on everything that changes the queue: its nodes, their data, and missing directories.
async fn set_watches(client: &Client, path: &str) -> Result<Vec<Watcher>, Failure> {
    let mut watchers = Vec::new();
    let [locks, leases] = SEMAPHORE.map(|name| join(path, name));
    for directory in [path, &locks, &leases] {
        let (children, watcher) = children_and_watch(client, directory).await?;
        watchers.push(watcher);
        for name in children.iter().filter(|name| !SEMAPHORE.contains(name)) {
            let read = client.get_data_and_watch(&join(directory, name));
            watchers.extend(read.allow(ErrorKind::NoNode).await?.map(|(_, watcher)| watcher));
        }
    }
    Ok(watchers)
}

/// Returns the children of a node and a watcher for them. For a missing node, returns no children and a watcher for its
/// creation.
async fn children_and_watch(client: &Client, path: &str) -> Result<(Children, Watcher), Failure> {
    loop {
        if let Some(read) = client.get_children_and_watch(path).allow(ErrorKind::NoNode).await? {
            return Ok(read);
        }
        let (stat, watcher) = client.exists_and_watch(path).await?;
        // A node created between the two requests has children that are not watched yet.
        if stat.is_none() {
            return Ok((Children::default(), watcher));
        }
    }
}

/// Waits for the first event of any watcher.
async fn first_event(mut watchers: Vec<Watcher>) -> Result<(), Failure> {
    let event = std::future::poll_fn(|cx| {
        for watcher in &mut watchers {
            if let std::task::Poll::Ready(event) = watcher.poll_next(cx) {
                return std::task::Poll::Ready(event);
            }
        }
        std::task::Poll::Pending
    })
    .await;
    if event.is_none_or(|event| event.is_end()) {
        let text = "session lost, and the watches with it; restart the command";
        return Err(Failure::new(exit::NO_SERVER, text));
    }
    Ok(())
}

/// Ask the holder of a revocable lock to release it
///
/// Writes `__REVOKE__` to the holder's node, as Curator's Revoker does. This is a
/// request: `docent lock --revocable` ends its command and releases the lock;
/// other programs may ignore it.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent revoke /locks/backup             every holder: one, or several readers
  docent revoke /locks/backup/_c_f1...-lock-0000000007
  docent revoke --force /locks/backup     non-revocable holders too

Prints the path of each node it has written. Semaphores and leaders cannot be
revoked.

{}", exit::HELP))]
pub(crate) struct Revoke {
    /// Write to the nodes of non-revocable locks too, which overwrites their data
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Path of the lock, or of one lock node
    path: String,
}

impl Command for Revoke {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        let nodes = self.target_nodes(client).await?;
        if nodes.is_empty() {
            let path = &self.path;
            let text = format!("{path} has no holder; `docent locks {path}` lists the waiters");
            return Err(Failure::new(exit::NO_NODE, text));
        }
        let not_revocable = nodes.iter().find(|(_, is_revocable)| !is_revocable);
        if let Some((path, _)) = not_revocable.filter(|_| !self.force) {
            let text = format!(
                "{path} is not revocable (docent lock --revocable creates revocable locks); --force writes to it anyway"
            );
            return Err(Failure::new(exit::REFUSED, text));
        }
        let policy = RetryNTimes::new(3, Duration::from_millis(100));
        for (path, _) in nodes {
            Revoker::attempt_revoke(client, &policy, &path).await?;
            if self.json {
                print_json(json!({ "path": path }))?;
            } else {
                print(&format!("{}\n", escape(&path)))?;
            }
        }
        Ok(0)
    }
}

impl Revoke {
    /// Returns the nodes of all holders, or the given lock node, each with whether it is revocable.
    async fn target_nodes(&self, client: &Client) -> Result<Vec<(String, bool)>, Failure> {
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
        let holders =
            queue.holders().filter(|holder| !matches!(holder.kind, Kind::Lease | Kind::Latch));
        Ok(holders.map(|holder| (holder.path.clone(), holder.is_revocable())).collect())
    }
}
