//! `docent set`, `create` and `delete`.

use std::time::Duration;

use clap::Args;
use docent::{Acl, Client, CreateMode, ErrorKind, Ttl};
use docent_protocol::acl::OPEN_ACL_UNSAFE;

use super::{acl, check, given, object, print, print_json, stat_json, tree};
use crate::{
    command::Command,
    connect::ServerArgs,
    duration,
    exit::{self, Ended, Failure},
};

/// Write the data of a node
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent set /app/config '{{\"a\": 1}}'
  docent set /app/config - < config.json
  docent set --version 3 /app/config new    only if that is still its version

{}", exit::TABLE))]
pub(crate) struct Set {
    /// Only if the node has this version
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(0..))]
    version: Option<i32>,
    /// Print the new stat, as one JSON object
    #[arg(long)]
    json: bool,
    /// The node
    path: String,
    /// The data; - is the standard input, and -- stands before data that begin with a hyphen
    #[arg(allow_negative_numbers = true)]
    data: String,
    #[arg(skip)]
    bytes: Vec<u8>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command for Set {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)?;
        self.bytes = given(&self.data)?;
        Ok(())
    }

    async fn run(&self, client: &Client) -> Ended {
        let stat = client.set_data(&self.path, &self.bytes, self.version).await?;
        if self.json {
            print_json(stat_json(&stat))?;
        }
        Ok(0)
    }
}

/// Create a node, and print its path
///
/// An ephemeral node would go with this command's session, so there is no option
/// for one: see docent lock.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent create /app/config '{{}}'
  docent create -p /app/a/b/c               with parents that are missing
  job=$(docent create -s /app/jobs/job- do-it)
  docent create --acl auth::cdrwa --auth digest:me:secret /app/mine x

{}", exit::TABLE))]
pub(crate) struct Create {
    /// Create parents that are missing too; they get the same ACL
    #[arg(short, long)]
    parents: bool,
    /// Ten digits behind the name, greater for each
    #[arg(short, long)]
    sequential: bool,
    /// Goes some time after its last child went
    #[arg(short, long, conflicts_with_all = ["sequential", "ttl"])]
    container: bool,
    /// Goes when it was not changed for so long, and has no children (if servers allow it)
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<Ttl>,
    /// SCHEME:ID:PERMISSIONS,... as zkCli takes it [default: world:anyone:cdrwa]
    #[arg(long, value_name = "ACL", value_delimiter = ',', value_parser = acl::parse)]
    acl: Vec<acl::Entry>,
    /// One JSON object: path and stat
    #[arg(long)]
    json: bool,
    /// The node
    path: String,
    /// The data; - is the standard input
    #[arg(default_value = "", allow_negative_numbers = true)]
    data: String,
    #[arg(skip)]
    bytes: Vec<u8>,
    #[command(flatten)]
    server: ServerArgs,
}

fn ttl(text: &str) -> Result<Ttl, String> {
    let time = duration::positive(text)?;
    Ttl::from_duration(time).ok_or_else(|| {
        let max = Duration::from_millis(u64::try_from(Ttl::MAX.as_millis()).unwrap_or(u64::MAX));
        format!("must be from 1ms to {}", duration::show(max))
    })
}

impl Command for Create {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        // With -s, the name may be empty: all digits.
        let named = if self.sequential { self.path.trim_end_matches('/') } else { &self.path };
        check(if named.is_empty() { "/" } else { named })?;
        self.bytes = given(&self.data)?;
        Ok(())
    }

    async fn run(&self, client: &Client) -> Ended {
        let mode = match (self.sequential, self.container, self.ttl) {
            (false, false, None) => CreateMode::Persistent,
            (true, _, None) => CreateMode::PersistentSequential,
            (_, true, _) => CreateMode::Container,
            (false, _, Some(ttl)) => CreateMode::PersistentWithTtl(ttl),
            (true, _, Some(ttl)) => CreateMode::PersistentSequentialWithTtl(ttl),
        };
        let acl: Vec<Acl<'_>> = self.acl.iter().map(acl::Entry::as_acl).collect();
        let acl = if acl.is_empty() { OPEN_ACL_UNSAFE } else { &acl };
        let created = match client.create2(&self.path, &self.bytes, mode, acl).await {
            Err(error) if error.kind() == ErrorKind::NoNode && self.parents => {
                create_parents(client, &self.path, acl).await?;
                client.create2(&self.path, &self.bytes, mode, acl).await
            }
            other => other,
        };
        let (path, stat) = created.map_err(|error| match error.kind() {
            ErrorKind::NoNode => Failure::new(
                exit::NO_NODE,
                format_args!("{error}: its parent does not exist; -p creates it"),
            ),
            _ => error.into(),
        })?;
        if self.json {
            let mut object = object(&path);
            object.insert("stat".to_owned(), stat_json(&stat));
            print_json(object)?;
        } else {
            print(&format!("{path}\n"))?;
        }
        Ok(0)
    }
}

/// Creates the ancestors of a node, from the root.
async fn create_parents(client: &Client, path: &str, acl: &[Acl<'_>]) -> Result<(), Failure> {
    for (end, _) in path.match_indices('/').skip(1) {
        let parent = path.get(..end).unwrap_or_default();
        match client.create_with_acl(parent, b"", CreateMode::Persistent, acl).await {
            Err(error) if error.kind() != ErrorKind::NodeExists => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Delete a node
///
/// With -r, all below it too: in one transaction, so all of it or nothing, unless
/// that is too large (half a MiB of paths); then in several, children first.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent delete /app/config
  docent delete --version 3 /app/config     only if nobody has written since
  docent delete -r /app                     and all below it
  docent delete -f /app/flag                no node is no failure

{}", exit::TABLE))]
pub(crate) struct Delete {
    /// All below it too
    #[arg(short, long, conflicts_with = "version")]
    recursive: bool,
    /// A node that does not exist is no failure
    #[arg(short, long)]
    force: bool,
    /// Only if the node has this version
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(0..))]
    version: Option<i32>,
    /// The node
    path: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// How much one transaction takes: far from a server's limit of 1,048,575 bytes.
const TRANSACTION_BYTES: usize = 500_000;
/// How often a tree that changes meanwhile is looked at again.
const ATTEMPTS: u32 = 10;

impl Command for Delete {
    fn server(&self) -> &ServerArgs {
        &self.server
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        check(&self.path)?;
        if self.path == "/" {
            return Err(Failure::usage("/ cannot be deleted; name a node below it"));
        }
        Ok(())
    }

    async fn run(&self, client: &Client) -> Ended {
        let deleted = if self.recursive {
            delete_tree(client, &self.path).await
        } else {
            client.delete(&self.path, self.version).await.map_err(Failure::from)
        };
        match deleted {
            Err(failure) if failure.code == exit::NO_NODE && self.force => Ok(0),
            other => other.map(|()| 0),
        }
    }
}

async fn delete_tree(client: &Client, root: &str) -> Result<(), Failure> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let paths = tree(client, root).await?;
        match delete_all(client, &paths).await {
            // Somebody creates or deletes below it: look again.
            Err(error)
                if attempt < ATTEMPTS
                    && matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NotEmpty) => {}
            other => return Ok(other?),
        }
    }
}

/// Deletes nodes, the last one first, in as few transactions as can be.
async fn delete_all(client: &Client, paths: &[String]) -> Result<(), docent::Error> {
    let (mut transaction, mut bytes) = (client.transaction(), 0);
    for path in paths.iter().rev() {
        transaction = transaction.delete(path, None);
        // What goes on the wire beside the path: lengths, the version, the header.
        bytes += path.len() + client.config().connect_string.chroot().map_or(0, str::len) + 17;
        if bytes > TRANSACTION_BYTES {
            transaction.commit().await?;
            (transaction, bytes) = (client.transaction(), 0);
        }
    }
    transaction.commit().await.map(|_| ())
}
