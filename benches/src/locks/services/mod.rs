//! The lock services, each by the client that a Rust team would use.

#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod mariadb;
mod postgres;
mod redis;
mod zookeeper;

use std::time::Duration;

#[cfg(feature = "etcd")]
pub(crate) use etcd::Etcd;
pub(crate) use file::FileLock;
pub(crate) use mariadb::{ForUpdate, GetLock};
pub(crate) use postgres::Advisory;
pub(crate) use redis::{RedLock, SetNx};
pub(crate) use zookeeper::{Docent, Kezhuw, Pipelined, Plain, Strict};

use xtask::{Arguments, Result};

use super::servers::Kind;

/// How to reach a service.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `HOST:PORT` of each server; for the file lock, a directory.
    pub(crate) addresses: Vec<String>,
    /// The session timeout, or the time to live of a lock.
    pub(crate) lease: Duration,
}

impl Target {
    /// Reads `--addresses` and `--lease-ms`.
    pub(crate) fn new(arguments: &Arguments) -> Result<Self> {
        let addresses = arguments.text("addresses").ok_or("--addresses is missing")?;
        Ok(Self {
            addresses: addresses.split(',').map(str::to_owned).collect(),
            lease: Duration::from_millis(arguments.number("lease-ms", 10_000)?),
        })
    }

    /// The first address.
    pub(crate) fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }
}

/// A connection to a lock service: a contender.
#[allow(async_fn_in_trait)]
pub(crate) trait Service: Sized + 'static {
    /// A held lock. Its drop releases nothing that the measurements depend on.
    type Guard: 'static;

    async fn connect(target: &Target) -> Result<Self>;

    /// Creates what a lock needs permanently: parent nodes, a row.
    async fn prepare(&self, _lock: &str) -> Result<()> {
        Ok(())
    }

    /// Waits for the lock.
    async fn acquire(&self, lock: &str) -> Result<Self::Guard>;

    /// Whether the client reports the lock as held.
    async fn is_held(&self, guard: &Self::Guard) -> bool;

    /// The fencing token, if the service has one.
    async fn token(&self, _guard: &Self::Guard) -> Option<i64> {
        None
    }

    async fn release(&self, guard: Self::Guard) -> Result<()>;

    /// Revokes the lease of this contender without its knowledge.
    async fn disturb(&self) -> Result<()> {
        Err("this service has no lease to revoke".into())
    }
}

/// A service, as the report describes it.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The client, and how it waits.
    pub(crate) client: &'static str,
    /// Where the answer to "do I still hold it?" comes from.
    pub(crate) held: &'static str,
    /// The fencing token.
    pub(crate) token: Option<&'static str>,
    /// Whether a stopped holder loses the lock by the passage of time.
    pub(crate) has_lease: bool,
}

pub(crate) const ENTRIES: [Entry; 12] = [
    Entry {
        name: "zookeeper-docent",
        kind: Kind::ZooKeeper,
        client: "docent, InterProcessMutex; one event to one waiter",
        held: "client's clock and the session's replies",
        token: Some("czxid of the lock node"),
        has_lease: true,
    },
    Entry {
        name: "zookeeper-docent-pipelined",
        kind: Kind::ZooKeeper,
        client: "docent with a pipelined listing; one event to one waiter",
        held: "client's clock and the session's replies",
        token: Some("czxid of the lock node"),
        has_lease: true,
    },
    Entry {
        name: "zookeeper-docent-strict",
        kind: Kind::ZooKeeper,
        client: "docent, StrictMutex; one event to one waiter, which waits for the lease of a holder that did not release",
        held: "client's clock and the last hold that a majority has confirmed",
        token: Some("czxid of the lock node"),
        has_lease: true,
    },
    Entry {
        name: "zookeeper-client",
        kind: Kind::ZooKeeper,
        client: "zookeeper-client 0.11, Client::lock; one event to one waiter",
        held: "the client's session state",
        token: Some("czxid of the lock node, which the caller reads"),
        has_lease: true,
    },
    Entry {
        name: "etcd",
        kind: Kind::Etcd,
        client: "etcd-client 0.16, lock with a lease kept alive every third of it; the call waits on the server",
        held: "our deadline from the last keep-alive reply, as Go's client has one",
        token: Some("revision in the reply to lock"),
        has_lease: true,
    },
    Entry {
        name: "redis-set-nx",
        kind: Kind::Redis,
        client: "redis 0.32, SET NX PX, release and renewal by Lua; polls every 10 to 30 ms",
        held: "our deadline from the last renewal",
        token: None,
        has_lease: true,
    },
    Entry {
        name: "redlock-1",
        kind: Kind::Redis,
        client: "rslock 0.7, one server; its retries: a random delay below 200 ms",
        held: "our deadline from validity_time and the last extend",
        token: None,
        has_lease: true,
    },
    Entry {
        name: "redlock-3",
        kind: Kind::Redis3,
        client: "rslock 0.7, three servers; its retries: a random delay below 200 ms",
        held: "our deadline from validity_time and the last extend",
        token: None,
        has_lease: true,
    },
    Entry {
        name: "postgres-advisory",
        kind: Kind::Postgres,
        client: "tokio-postgres 0.7, pg_advisory_lock; the call waits on the server",
        held: "whether the client knows that its connection is closed",
        token: None,
        has_lease: false,
    },
    Entry {
        name: "mariadb-get-lock",
        kind: Kind::MariaDb,
        client: "mysql_async 0.36, GET_LOCK; the call waits on the server",
        held: "asks the server: IS_USED_LOCK",
        token: None,
        has_lease: false,
    },
    Entry {
        name: "mariadb-for-update",
        kind: Kind::MariaDb,
        client: "mysql_async 0.36, SELECT ... FOR UPDATE in a transaction; the call waits on the server",
        held: "asks the server: a query on the connection succeeds",
        token: None,
        has_lease: false,
    },
    Entry {
        name: "file",
        kind: Kind::File,
        client: "std::fs::File::lock in a blocking thread",
        held: "always yes",
        token: None,
        has_lease: false,
    },
];

/// Finds a service by its name.
pub(crate) fn entry(name: &str) -> Result<&'static Entry> {
    let found = ENTRIES.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        format!("no service {name:?}; the services are {}", names.join(", ")).into()
    })
}

/// Calls a generic function with the type of a service.
#[macro_export]
macro_rules! with_service {
    ($name:expr, $function:ident($($argument:expr),*)) => {{
        use $crate::locks::services as s;
        match $name {
            "zookeeper-docent" => $function::<s::Docent<s::Plain>>($($argument),*).await,
            "zookeeper-docent-pipelined" => {
                $function::<s::Docent<s::Pipelined>>($($argument),*).await
            }
            "zookeeper-docent-strict" => $function::<s::Docent<s::Strict>>($($argument),*).await,
            "zookeeper-client" => $function::<s::Kezhuw>($($argument),*).await,
            #[cfg(feature = "etcd")]
            "etcd" => $function::<s::Etcd>($($argument),*).await,
            "redis-set-nx" => $function::<s::SetNx>($($argument),*).await,
            "redlock-1" | "redlock-3" => $function::<s::RedLock>($($argument),*).await,
            "postgres-advisory" => $function::<s::Advisory>($($argument),*).await,
            "mariadb-get-lock" => $function::<s::GetLock>($($argument),*).await,
            "mariadb-for-update" => $function::<s::ForUpdate>($($argument),*).await,
            "file" => $function::<s::FileLock>($($argument),*).await,
            other => Err(format!("no service {other:?}").into()),
        }
    }};
}
