//! `docent get`, `ls`, `stat` and `sync`.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use docent::{Client, ErrorKind, session::Node};

use super::{check, object, print, print_json, stat_json, stat_lines, tree};
use crate::{
    command::Command,
    connect::ServerArgs,
    data,
    exit::{self, Ended, Failure},
    queue::join,
};

/// Print the data of a node, byte for byte
///
/// On a terminal, a newline is added where there is none.
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent get /app/config > config.json
  docent get -r /app                    all below, a line each: PATH TAB DATA,
                                        control characters escaped
  docent get --json /app/config | jq .stat.version

With --json, one object a line: path, data (data_base64 when it is no text),
stat.

{}", exit::TABLE))]
pub(crate) struct Get {
    /// The node and all below it
    #[arg(short, long)]
    recursive: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// The node
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for Get {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)
    }

    async fn run(&self, client: &Client) -> Ended {
        if !self.recursive {
            let node = client.get_data(&self.path).await?;
            self.show(&self.path, &node)?;
            return Ok(0);
        }
        let paths = tree(client, &self.path).await?;
        for batch in paths.chunks(256) {
            let asked: Vec<_> = batch.iter().map(|path| client.get_data(path)).collect();
            for (path, answer) in batch.iter().zip(asked) {
                match answer.await {
                    Ok(node) => self.show(path, &node)?,
                    Err(error) if error.kind() == ErrorKind::NoNode && *path != self.path => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(0)
    }
}

impl Get {
    fn show(&self, path: &str, node: &Node) -> Result<(), Failure> {
        if self.json {
            let mut object = object(path);
            data::put(&mut object, &node.data);
            object.insert("stat".to_owned(), stat_json(&node.stat));
            return print_json(object);
        }
        if self.recursive {
            return print(&format!("{path}\t{}\n", data::shown(&node.data)));
        }
        let mut out = io::stdout().lock();
        out.write_all(&node.data)?;
        if out.is_terminal() && !node.data.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }
}

/// List the children of a node, sorted
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent ls /app
  docent ls -r /app                     full paths of it and of all below it
  docent ls -l /app                     with version, size, number of children,
                                        and the session if ephemeral

With --json, one object a line: path, and stat with -l.

{}", exit::TABLE))]
pub(crate) struct Ls {
    /// The node and all below it, by full paths
    #[arg(short, long)]
    recursive: bool,
    /// With what is known about each
    #[arg(short, long)]
    long: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// The node
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for Ls {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)
    }

    async fn run(&self, client: &Client) -> Ended {
        let paths = if self.recursive {
            tree(client, &self.path).await?
        } else {
            let mut names = client.get_children(&self.path).await?.to_vec();
            names.sort_unstable();
            names.iter().map(|name| join(&self.path, name)).collect()
        };
        for batch in paths.chunks(256) {
            self.show(client, batch).await?;
        }
        Ok(0)
    }
}

impl Ls {
    async fn show(&self, client: &Client, paths: &[String]) -> Result<(), Failure> {
        let asked: Vec<_> =
            paths.iter().filter(|_| self.long).map(|path| client.exists(path)).collect();
        let mut stats = asked.into_iter();
        let mut text = String::new();
        for path in paths {
            let stat = match stats.next() {
                Some(answer) => match answer.await? {
                    Some(stat) => Some(stat),
                    // It has gone meanwhile.
                    None => continue,
                },
                None => None,
            };
            if self.json {
                let mut object = object(path);
                if let Some(stat) = &stat {
                    object.insert("stat".to_owned(), stat_json(stat));
                }
                text.push_str(&format!("{}\n", serde_json::Value::Object(object)));
                continue;
            }
            let name = if self.recursive { path } else { path.rsplit('/').next().unwrap_or(path) };
            let name = data::shown(name.as_bytes());
            match &stat {
                None => text.push_str(&format!("{name}\n")),
                Some(stat) => {
                    let owner = match stat.ephemeral_owner {
                        0 => "-".to_owned(),
                        owner => format!("{owner:#x}"),
                    };
                    text.push_str(&format!(
                        "v{:<5} {:>8} B {:>6} children {owner:>18}  {name}\n",
                        stat.version, stat.data_length, stat.num_children
                    ));
                }
            }
        }
        print(&text)
    }
}

/// Print what is known about a node; exit code 1 when there is none
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent stat /app/config
  if docent stat /app/ready >/dev/null; then ...; fi
  docent stat --json /app/config | jq .version

Lines are NAME = VALUE: ids in hexadecimal, times in milliseconds since 1970.
With --json, one object with numbers.

{}", exit::TABLE))]
pub(crate) struct StatCommand {
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// The node
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for StatCommand {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)
    }

    async fn run(&self, client: &Client) -> Ended {
        let Some(stat) = client.exists(&self.path).await? else {
            let text = format!("{}: no such node", self.path);
            return Err(Failure::new(exit::NO_NODE, text));
        };
        if self.json {
            print_json(stat_json(&stat))?
        } else {
            print(&stat_lines(&stat))?
        }
        Ok(0)
    }
}

/// Wait until the server has caught up with the leader
///
/// Each command is a connection of its own, perhaps to another server: name one
/// server where that matters.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent sync / && echo the ensemble has a leader

{}", exit::TABLE))]
pub(crate) struct SyncCommand {
    /// A path; servers do not look at it
    #[arg(default_value = "/")]
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for SyncCommand {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)
    }

    async fn run(&self, client: &Client) -> Ended {
        client.sync(&self.path).await?;
        Ok(0)
    }
}
