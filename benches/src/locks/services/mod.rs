//! The lock services, each with the client that a Rust team would use.

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
    /// A held lock. What its drop releases must not affect the measurements.
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

    /// Revokes the lease of this contender without the client's knowledge.
    async fn disturb(&self) -> Result<()> {
        Err("this service has no lease to revoke".into())
    }
}

/// A service. docs/LOCK-SERVICES.md describes its client.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Whether a stopped holder loses the lock after some time.
    pub(crate) has_lease: bool,
}

pub(crate) const ENTRIES: [Entry; 12] = [
    leased("zookeeper-docent", Kind::ZooKeeper),
    leased("zookeeper-docent-pipelined", Kind::ZooKeeper),
    leased("zookeeper-docent-strict", Kind::ZooKeeper),
    leased("zookeeper-client", Kind::ZooKeeper),
    leased("etcd", Kind::Etcd),
    leased("redis-set-nx", Kind::Redis),
    leased("redlock-1", Kind::Redis),
    leased("redlock-3", Kind::Redis3),
    connected("postgres-advisory", Kind::Postgres),
    connected("mariadb-get-lock", Kind::MariaDb),
    connected("mariadb-for-update", Kind::MariaDb),
    connected("file", Kind::File),
];

/// A service whose locks expire.
const fn leased(name: &'static str, kind: Kind) -> Entry {
    Entry { name, kind, has_lease: true }
}

/// A service whose locks end with the connection or the process of their holder.
const fn connected(name: &'static str, kind: Kind) -> Entry {
    Entry { name, kind, has_lease: false }
}

/// Finds a service by its name.
pub(crate) fn entry(name: &str) -> Result<&'static Entry> {
    let found = ENTRIES.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        format!("no service {name:?}; the services are {}", names.join(", ")).into()
    })
}

/// Calls a generic function with the type of a service as its parameter.
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
