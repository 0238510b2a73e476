//! `docent set`, `create` and `delete`.

use std::time::Duration;

use clap::Args;
use docent::{Acl, Client, CreateMode, CreateOptions, Error, ErrorKind, Stat, Ttl};
use docent_protocol::acl::OPEN_ACL_UNSAFE;

use super::{acl, list_tree, path_object, read_data, stat_json, validate_new_path, validate_path};
use crate::{
    command::{Command, missing_chroot},
    connect::ServerArgs,
    duration,
    exit::{self, CommandResult, Failure},
    output::{escape, print, print_json},
};

/// Write the data of a node
#[derive(Args)]
#[command(after_long_help = format!("\
Examples:
  docent set /app/config '{{\"a\": 1}}'
  docent set /app/config - < config.json
  docent set --version 3 /app/config new    only if the version is still 3

{}", exit::HELP))]
pub(crate) struct Set {
    /// Fail unless the node has this version
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(0..))]
    version: Option<i32>,
    /// Print the new Stat as one JSON object
    #[arg(long)]
    json: bool,
    /// Path of the node
    path: String,
    /// New data; - reads standard input; put -- before data that begins with a hyphen
    #[arg(allow_negative_numbers = true)]
    data: String,
    #[arg(skip)]
    bytes: Vec<u8>,
}

impl Command for Set {
    fn reads_input(&self) -> bool {
        self.data == "-"
    }

    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)?;
        self.bytes = read_data(&self.data)?;
        Ok(())
    }

    async fn run(&self, client: &Client) -> CommandResult {
        let stat = client.set_data(&self.path, &self.bytes, self.version).await?;
        if self.json {
            print_json(stat_json(&stat))?;
        }
        Ok(0)
    }
}

/// Create a node, and print its path
///
/// Ephemeral nodes would be deleted with the session of this command: see docent
/// lock, and create -e in docent shell.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent create /app/config '{{}}'
  docent create -p /app/a/b/c               with missing parents
  job=$(docent create -s /app/jobs/job- do-it)
  docent create --acl auth::cdrwa --auth digest:me:secret /app/mine x

{}", exit::HELP))]
pub(crate) struct Create {
    /// Create missing parents, with the same ACL
    #[arg(short, long)]
    parents: bool,
    /// Append a number of ten digits to the name, which increases with each node
    #[arg(short, long)]
    sequential: bool,
    /// Create a container, which servers delete some time after its last child
    #[arg(short, long, conflicts_with_all = ["sequential", "ttl"])]
    container: bool,
    /// Time to live without a change and without children (if servers allow it)
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<Ttl>,
    /// ACL in the format of zkCli: SCHEME:ID:PERMISSIONS,... [default: world:anyone:cdrwa]
    #[arg(long, value_name = "ACL", value_delimiter = ',', value_parser = acl::parse)]
    acl: Vec<acl::Entry>,
    /// Print one JSON object: path and stat
    #[arg(long)]
    json: bool,
    /// Path of the node
    path: String,
    /// Data; - reads standard input
    #[arg(default_value = "", allow_negative_numbers = true)]
    data: String,
    #[arg(skip)]
    bytes: Vec<u8>,
    /// Whether the node ends with the session. Only `docent shell` keeps its sessions.
    #[arg(skip)]
    pub(crate) ephemeral: bool,
}

fn ttl(text: &str) -> Result<Ttl, String> {
    let time = duration::parse_positive(text)?;
    Ttl::from_duration(time).ok_or_else(|| {
        let max = Duration::from_millis(u64::try_from(Ttl::MAX.as_millis()).unwrap_or(u64::MAX));
        format!("must be from 1ms to {}", duration::format(max))
    })
}

impl Command for Create {
    fn reads_input(&self) -> bool {
        self.data == "-"
    }

    fn prepare(&mut self, server: &ServerArgs) -> Result<(), Failure> {
        validate_new_path(&self.path, self.sequential)?;
        if self.ephemeral && (self.container || self.ttl.is_some()) {
            return Err(Failure::usage("an ephemeral node is no container, and has no --ttl"));
        }
        if self.acl.iter().any(acl::Entry::is_of_the_connection) && !server.is_authenticated()? {
            let text = "--acl auth:: means the users of this connection, and it has none; add --auth (or DOCENT_AUTH)";
            return Err(Failure::usage(text));
        }
        // The message does not show the password.
        if self.acl.iter().any(acl::Entry::has_clear_password) {
            let text = "--acl digest:USER:HASH:PERMISSIONS takes the hash of the password, not a password in clear; write auth::PERMISSIONS with --auth digest:USER:PASSWORD, or the HASH of: printf %s USER:PASSWORD | openssl dgst -sha1 -binary | base64";
            return Err(Failure::usage(text));
        }
        self.bytes = read_data(&self.data)?;
        Ok(())
    }

    async fn run(&self, client: &Client) -> CommandResult {
        let mode = match (self.sequential, self.container, self.ttl) {
            (false, ..) if self.ephemeral => CreateMode::Ephemeral,
            (true, ..) if self.ephemeral => CreateMode::EphemeralSequential,
            (false, false, None) => CreateMode::Persistent,
            (true, _, None) => CreateMode::PersistentSequential,
            (_, true, _) => CreateMode::Container,
            (false, _, Some(ttl)) => CreateMode::PersistentWithTtl(ttl),
            (true, _, Some(ttl)) => CreateMode::PersistentSequentialWithTtl(ttl),
        };
        let acl: Vec<Acl<'_>> = self.acl.iter().map(acl::Entry::as_acl).collect();
        let acl = if acl.is_empty() { OPEN_ACL_UNSAFE } else { &acl };
        let options = CreateOptions::new(mode).with_acl(acl);
        let options = if self.parents { options.with_parents() } else { options };
        let created = self.create(client, options).await;
        let (path, stat) = created.map_err(|error| match error.kind() {
            ErrorKind::NoNode => Failure::new(
                exit::NO_NODE,
                format_args!("{error}: the parent does not exist; -p creates it"),
            ),
            _ => error.into(),
        })?;
        if let Some(stat) = stat {
            let mut object = path_object(&path);
            object.insert("stat".to_owned(), stat_json(&stat));
            print_json(object)?;
        } else {
            print(&format!("{}\n", escape(&path)))?;
        }
        Ok(0)
    }
}

impl Create {
    /// Requests the Stat only for `--json`: servers before 3.5.0 return none.
    async fn create(
        &self,
        client: &Client,
        options: CreateOptions<'_>,
    ) -> Result<(String, Option<Stat>), Error> {
        if self.json {
            let created = client.create_with_stat(&self.path, &self.bytes, options).await;
            return created.map(|(path, stat)| (path, Some(stat)));
        }
        let created = client.create(&self.path, &self.bytes, options).await;
        created.map(|path| (path, None))
    }
}

/// Delete a node
///
/// With -r, its descendants too: all or none, in one transaction, unless that is
/// too large (500,000 bytes of paths); then in several, children first.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = format!("\
Examples:
  docent delete /app/config
  docent delete --version 3 /app/config     only if the version is still 3
  docent delete -r /app                     with its descendants
  docent delete -f /app/flag                exit code 0 without the node too

{}", exit::HELP))]
pub(crate) struct Delete {
    /// Delete its descendants too
    #[arg(short, long, conflicts_with = "version")]
    recursive: bool,
    /// Ignore a node that does not exist
    #[arg(short, long)]
    force: bool,
    /// Fail unless the node has this version
    #[arg(long, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(0..))]
    version: Option<i32>,
    /// Path of the node
    path: String,
}

/// The largest transaction, in bytes: far below the servers' default limit of 1,048,575 bytes (`jute.maxbuffer`).
const TRANSACTION_BYTES: usize = 500_000;
/// The number of attempts to delete a tree that other clients change.
const MAX_ATTEMPTS: u32 = 10;

impl Command for Delete {
    fn prepare(&mut self, _: &ServerArgs) -> Result<(), Failure> {
        validate_path(&self.path)?;
        if self.path == "/" {
            return Err(Failure::usage("/ cannot be deleted; give a node below it"));
        }
        Ok(())
    }

    async fn run(&self, client: &Client) -> CommandResult {
        let deleted = if self.recursive {
            delete_tree(client, &self.path).await
        } else {
            client.delete(&self.path, self.version).await.map_err(Failure::from)
        };
        match deleted {
            Err(failure) if failure.code == exit::NO_NODE && self.force => {
                missing_chroot(client).await.map_or(Ok(0), Err)
            }
            other => other.map(|()| 0),
        }
    }
}

async fn delete_tree(client: &Client, root: &str) -> Result<(), Failure> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let paths = list_tree(client, root, None).await?;
        match delete_all(client, &paths).await {
            // Another client creates or deletes nodes in the tree: the tree is listed again.
            Err(error)
                if attempt < MAX_ATTEMPTS
                    && matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NotEmpty) => {}
            other => return Ok(other?),
        }
    }
}

/// Deletes nodes in reverse order, in as few transactions as possible.
async fn delete_all(client: &Client, paths: &[String]) -> Result<(), docent::Error> {
    let mut transaction = client.transaction();
    for path in paths.iter().rev() {
        if transaction.delete(path, None).encoded_len() > TRANSACTION_BYTES {
            transaction.commit().await?;
            transaction.clear();
        }
    }
    transaction.commit().await.map(|_| ())
}
