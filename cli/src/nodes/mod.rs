//! The commands that read and write nodes, and the code they share.

mod acl;
mod date;
pub(crate) mod multi;
pub(crate) mod read;
pub(crate) mod tree;
pub(crate) mod watch;
pub(crate) mod write;

use std::{
    collections::VecDeque,
    io::{self, Read as _},
    time::Duration,
};

use docent::{Client, ErrorKind, Stat, Watcher};
use docent_protocol::path::{self, PathError};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use self::date::date;
use crate::{
    exit::{self, CommandResult, Failure},
    queue::join,
};

/// Where a read leaves its watch. No command of its own keeps the session for its event; `docent shell` does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watching(Option<mpsc::UnboundedSender<Watcher>>);

impl Watching {
    pub(crate) const fn by(watchers: mpsc::UnboundedSender<Watcher>) -> Self {
        Self(Some(watchers))
    }

    const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    fn check(&self, recursive: bool) -> Result<(), Failure> {
        if self.is_on() && recursive {
            return Err(Failure::usage(
                "-w is a watch of one node; use `watch -r`, or leave out -r",
            ));
        }
        Ok(())
    }

    /// Hands over the watch, and returns the reply.
    fn keep<R>(&self, (reply, watcher): (R, Watcher)) -> R {
        if let Some(watchers) = &self.0 {
            // A receiver that is gone has no use for it.
            let _ = watchers.send(watcher);
        }
        reply
    }
}

/// Formats a Stat as zkCli does, with times in UTC.
///
/// Source: `StatPrinter`.
fn stat_lines(stat: &Stat) -> String {
    format!(
        "cZxid = {:#x}\nctime = {}\nmZxid = {:#x}\nmtime = {}\npZxid = {:#x}\ncversion = {}\ndataVersion = {}\n\
         aclVersion = {}\nephemeralOwner = {:#x}\ndataLength = {}\nnumChildren = {}\n",
        stat.czxid,
        date(stat.ctime),
        stat.mzxid,
        date(stat.mtime),
        stat.pzxid,
        stat.cversion,
        stat.version,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
    )
}

/// Returns a Stat as a JSON object of numbers, with the names of zookeeper.jute.
fn stat_json(stat: &Stat) -> Value {
    json!({
        "czxid": stat.czxid,
        "ctime": stat.ctime,
        "mzxid": stat.mzxid,
        "mtime": stat.mtime,
        "pzxid": stat.pzxid,
        "cversion": stat.cversion,
        "version": stat.version,
        "aversion": stat.aversion,
        "ephemeralOwner": stat.ephemeral_owner,
        "dataLength": stat.data_length,
        "numChildren": stat.num_children,
    })
}

/// Returns a JSON object with the member `path`.
fn path_object(path: &str) -> Map<String, Value> {
    Map::from_iter([("path".to_owned(), json!(path))])
}

/// Returns the data of an argument; `-` reads standard input to its end.
fn read_data(data: &str) -> Result<Vec<u8>, Failure> {
    if data != "-" {
        return Ok(data.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    // A longer request is refused anyway.
    let limit = docent_protocol::frame::DEFAULT_LIMIT;
    let limit_with_one = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    io::stdin().lock().take(limit_with_one).read_to_end(&mut bytes).map_err(|error| {
        Failure::new(exit::IO, format_args!("cannot read standard input: {error}"))
    })?;
    if bytes.len() > limit {
        let text = format!(
            "standard input has more than {limit} bytes, the limit of a request (jute.maxbuffer); nothing was sent"
        );
        return Err(Failure::new(exit::REFUSED, text));
    }
    Ok(bytes)
}

/// The nodes of a tree that ACLs hide. They are reported together at the end.
#[derive(Debug, Default)]
struct Hidden {
    first: Option<docent::Error>,
    count: usize,
}

impl Hidden {
    /// Notes a `NoAuth` error. Returns any other error.
    fn note(&mut self, error: docent::Error) -> Result<(), Failure> {
        if error.kind() != ErrorKind::NoAuth {
            return Err(error.into());
        }
        self.count += 1;
        self.first.get_or_insert(error);
        Ok(())
    }

    /// The result of a command that has printed all other nodes.
    fn into_result(self) -> CommandResult {
        let Some(error) = self.first else { return Ok(0) };
        let Failure { code, .. } = Failure::from(error.clone());
        let others = match self.count - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        Err(Failure::new(code, format_args!("not all nodes could be read: {error}{others}")))
    }
}

/// Runs a command that prints changes, for a limited time.
async fn within(
    limit: Option<Duration>,
    run: impl Future<Output = CommandResult>,
) -> CommandResult {
    match limit {
        None => run.await,
        Some(limit) => tokio::time::timeout(limit, run).await.unwrap_or(Ok(exit::NOT_ACQUIRED)),
    }
}

/// Validates a path, before the command connects.
pub(crate) fn validate_path(path: &str) -> Result<(), Failure> {
    path::validate(path).map_err(|error| invalid_path(path, error))
}

/// Like [`validate_path`], for a node to be created. The name of a sequential node may be empty, because the server
/// appends its number.
fn validate_new_path(path: &str, sequential: bool) -> Result<(), Failure> {
    if sequential {
        path::validate_sequential(path).map_err(|error| invalid_path(path, error))
    } else {
        validate_path(path)
    }
}

fn invalid_path(path: &str, error: PathError) -> Failure {
    Failure::usage(format_args!("\"{path}\": {error}; a path looks like /a/b"))
}

/// Lists a node and its descendants, sorted by path, so that parents precede children. Leaves out nodes that are
/// deleted meanwhile. Up to 256 requests are in flight. Children that the ACL hides are noted in `hidden`; if that is
/// `None`, they are an error.
async fn list_tree(
    client: &Client,
    root: &str,
    mut hidden: Option<&mut Hidden>,
) -> Result<Vec<String>, Failure> {
    const BATCH: usize = 256;
    let mut found = vec![root.to_owned()];
    let mut unvisited = VecDeque::from([root.to_owned()]);
    while !unvisited.is_empty() {
        let batch: Vec<_> = unvisited.drain(..unvisited.len().min(BATCH)).collect();
        let replies: Vec<_> = batch.iter().map(|path| client.get_children(path)).collect();
        for (path, reply) in batch.iter().zip(replies) {
            match reply.await {
                Ok(children) => {
                    let paths: Vec<_> = children.iter().map(|name| join(path, name)).collect();
                    found.extend(paths.iter().cloned());
                    unvisited.extend(paths);
                }
                Err(error) if error.kind() == ErrorKind::NoNode && path != root => {}
                Err(error) => match &mut hidden {
                    Some(hidden) => hidden.note(error)?,
                    None => return Err(error.into()),
                },
            }
        }
    }
    // Sorted by component: as whole strings, `/a-b` would come between `/a` and `/a/b`.
    found.sort_by(|one, other| one.split('/').cmp(other.split('/')));
    Ok(found)
}
