//! Nodes from the command line: what they share.

mod acl;
pub(crate) mod multi;
pub(crate) mod read;
pub(crate) mod watch;
pub(crate) mod write;

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
};

use docent::{Client, ErrorKind, Stat};
use serde_json::{Map, Value, json};

use crate::{
    exit::{self, Failure},
    queue::join,
};

/// The names of a Stat's fields, and their values, as zkCli prints them.
fn fields(stat: &Stat) -> [(&'static str, i64, bool); 11] {
    [
        ("czxid", stat.czxid, true),
        ("ctime", stat.ctime, false),
        ("mzxid", stat.mzxid, true),
        ("mtime", stat.mtime, false),
        ("pzxid", stat.pzxid, true),
        ("cversion", stat.cversion.into(), false),
        ("version", stat.version.into(), false),
        ("aversion", stat.aversion.into(), false),
        ("ephemeralOwner", stat.ephemeral_owner, true),
        ("dataLength", stat.data_length.into(), false),
        ("numChildren", stat.num_children.into(), false),
    ]
}

/// `name = value`, a line each; ids in hexadecimal, times in milliseconds since 1970.
fn stat_lines(stat: &Stat) -> String {
    let line = |(name, value, is_id)| {
        if is_id { format!("{name} = {value:#x}\n") } else { format!("{name} = {value}\n") }
    };
    fields(stat).into_iter().map(line).collect()
}

/// The same as an object: numbers as they are.
fn stat_json(stat: &Stat) -> Value {
    let fields = fields(stat).map(|(name, value, _)| (name.to_owned(), value.into()));
    Value::Object(Map::from_iter(fields))
}

/// An object that begins with a path.
fn object(path: &str) -> Map<String, Value> {
    Map::from_iter([("path".to_owned(), json!(path))])
}

/// One object on one line.
fn print_json(object: impl Into<Value>) -> Result<(), Failure> {
    print(&format!("{}\n", object.into()))
}

/// All of it at once, and now.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The data on the command line; `-` is the standard input, to its end.
fn given(data: &str) -> Result<Vec<u8>, Failure> {
    if data != "-" {
        return Ok(data.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(|error| {
        Failure::new(exit::IO, format_args!("cannot read the standard input: {error}"))
    })?;
    Ok(bytes)
}

/// Paths that are none are refused before there is a connection.
fn check(path: &str) -> Result<(), Failure> {
    docent_protocol::path::validate(path)
        .map_err(|error| Failure::usage(format_args!("{path:?}: {error}; a path looks like /a/b")))
}

/// A node and all below it, parents before children, in the order of their names. What goes meanwhile is left out.
/// Listings are asked for many at a time.
async fn tree(client: &Client, root: &str) -> Result<Vec<String>, Failure> {
    const AT_ONCE: usize = 256;
    let mut found = vec![root.to_owned()];
    let mut ahead = VecDeque::from([root.to_owned()]);
    while !ahead.is_empty() {
        let batch: Vec<_> = ahead.drain(..ahead.len().min(AT_ONCE)).collect();
        let asked: Vec<_> = batch.iter().map(|path| client.get_children(path)).collect();
        for (path, answer) in batch.iter().zip(asked) {
            match answer.await {
                Ok(children) => {
                    let below: Vec<_> = children.iter().map(|name| join(path, &name)).collect();
                    found.extend(below.iter().cloned());
                    ahead.extend(below);
                }
                Err(error) if error.kind() == ErrorKind::NoNode && path != root => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    // A parent's path is the beginning of its children's; the slash goes before anything in a name.
    found.sort_by(|one, other| one.split('/').cmp(other.split('/')));
    Ok(found)
}
