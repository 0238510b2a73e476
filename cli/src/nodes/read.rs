//! `docent get`, `ls`, `stat` and `sync`.

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use docent::{Client, Error, ErrorKind, Node, Outcome};

use super::{Hidden, Watching, list_tree, path_object, stat_json, stat_lines, validate_path};
use crate::{
    command::{Command, missing_chroot},
    connect::ServerArgs,
    data,
    exit::{self, CommandResult, Failure},
    output::{escape, json_line, print, print_json},
    queue::join,
};

/// Print the data of a node, byte for byte
///
/// On a terminal, a newline is added to data that does not end with one.
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent get /app/config > config.json
  docent get -r /app                    the node and its descendants, one line
                                        each: PATH TAB DATA, with control
                                        characters escaped
  docent get -s /app/config             and its Stat, as `get -s` of zkCli
  docent get --json /app/config | jq .stat.version

With --json, one object per line: path, data (data_base64 if it is not UTF-8),
stat.

{}", exit::HELP))]
pub(crate) struct Get {
    /// Print the node and its descendants
    #[arg(short, long)]
    recursive: bool,
    /// Print the Stat too, behind a line break
    #[arg(short, long, conflicts_with_all = ["recursive", "json"])]
    stat: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Path of the node
    path: String,
    /// Whether data ends its line, as on a terminal.
    #[arg(skip)]
    pub(crate) ends_line: bool,
    #[arg(skip)]
    pub(crate) watching: Watching,
}

impl Command for Get {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        self.watching.check(self.recursive)?;
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        if !self.recursive {
            let node = if self.watching.is_on() {
                self.watching.keep(client.get_data_and_watch(&self.path).await?)
            } else {
                client.get_data(&self.path).await?
            };
            self.print_node(&self.path, &node)?;
            return Ok(0);
        }
        let mut hidden = Hidden::default();
        let paths = list_tree(client, &self.path, Some(&mut hidden)).await?;
        for batch in paths.chunks(256) {
            let replies: Vec<_> = batch.iter().map(|path| client.get_data(path)).collect();
            for (path, reply) in batch.iter().zip(replies) {
                match reply.await {
                    Ok(node) => self.print_node(path, &node)?,
                    Err(error) if error.kind() == ErrorKind::NoNode && *path != self.path => {}
                    Err(error) => hidden.note(error)?,
                }
            }
        }
        hidden.into_result()
    }
}

impl Get {
    fn print_node(&self, path: &str, node: &Node) -> Result<(), Failure> {
        if self.json {
            let mut object = path_object(path);
            data::insert(&mut object, &node.data);
            object.insert("stat".to_owned(), stat_json(&node.stat));
            return print_json(object);
        }
        if self.recursive {
            return print(&format!("{}\t{}\n", escape(path), data::escape(&node.data)));
        }
        let mut out = io::stdout().lock();
        out.write_all(&node.data)?;
        if self.stat {
            out.write_all(format!("\n{}", stat_lines(&node.stat)).as_bytes())?;
        } else if (self.ends_line || out.is_terminal())
            && !node.data.is_empty()
            && !node.data.ends_with(b"\n")
        {
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
  docent ls -r /app                     full paths of the node and its
                                        descendants
  docent ls -l /app                     with version, size, number of children,
                                        and the session of ephemeral nodes

With --json, one object per line: path, and stat with -l.

{}", exit::HELP))]
pub(crate) struct Ls {
    /// List full paths of the node and its descendants
    #[arg(short, long)]
    recursive: bool,
    /// Print version, size, number of children and session of each node
    #[arg(short, long)]
    long: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Path of the node
    path: String,
    #[arg(skip)]
    pub(crate) watching: Watching,
}

impl Command for Ls {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        self.watching.check(self.recursive)?;
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        let mut hidden = Hidden::default();
        let paths = if self.recursive {
            list_tree(client, &self.path, Some(&mut hidden)).await?
        } else {
            let children = if self.watching.is_on() {
                self.watching.keep(client.get_children_and_watch(&self.path).await?)
            } else {
                client.get_children(&self.path).await?
            };
            children.sorted().iter().map(|name| join(&self.path, name)).collect()
        };
        for batch in paths.chunks(256) {
            self.print_nodes(client, batch, &mut hidden).await?;
        }
        hidden.into_result()
    }
}

impl Ls {
    async fn print_nodes(
        &self,
        client: &Client,
        paths: &[String],
        hidden: &mut Hidden,
    ) -> Result<(), Failure> {
        let replies: Vec<_> =
            paths.iter().filter(|_| self.long).map(|path| client.exists(path)).collect();
        let mut replies = replies.into_iter();
        let mut text = String::new();
        for path in paths {
            let stat = match replies.next() {
                Some(reply) => match reply.await {
                    Ok(Some(stat)) => Some(stat),
                    // The node was deleted meanwhile.
                    Ok(None) => continue,
                    Err(error) => {
                        hidden.note(error)?;
                        None
                    }
                },
                None => None,
            };
            if self.json {
                let mut object = path_object(path);
                if let Some(stat) = &stat {
                    object.insert("stat".to_owned(), stat_json(stat));
                }
                text.push_str(&json_line(&object.into()));
                continue;
            }
            let name = if self.recursive { path } else { path.rsplit('/').next().unwrap_or(path) };
            let name = escape(name);
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

/// Print the Stat of a node; exit code 1 if it does not exist
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent stat /app/config
  if docent stat /app/ready >/dev/null; then ...; fi
  docent stat --json /app/config | jq .version

Lines are those of zkCli, with times in UTC. With --json, one object of numbers,
with the names of zookeeper.jute and times in milliseconds since 1970.

{}", exit::HELP))]
pub(crate) struct StatCommand {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Path of the node
    path: String,
    #[arg(skip)]
    pub(crate) watching: Watching,
}

impl Command for StatCommand {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        let stat = if self.watching.is_on() {
            self.watching.keep(client.exists_and_watch(&self.path).await?)
        } else {
            client.exists(&self.path).await?
        };
        let Some(stat) = stat else {
            let missing = Error::new(ErrorKind::NoNode, Outcome::NotApplied);
            return Err(missing.with_path(&self.path).into());
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
/// Each command opens a new connection, perhaps to another server: connect to a
/// single server if that matters.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent sync / && echo the ensemble has a leader

{}", exit::HELP))]
pub(crate) struct SyncCommand {
    /// Path of a node; servers ignore it
    #[arg(default_value = "/")]
    path: String,
}

impl Command for SyncCommand {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)
    }

    async fn run(&self, client: &Client) -> CommandResult {
        client.sync(&self.path).await?;
        // Servers ignore the path of a sync. After it, the check of the chroot is up to date.
        missing_chroot(client).await.map_or(Ok(0), Err)
    }
}
