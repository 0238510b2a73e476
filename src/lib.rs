//! A ZooKeeper client and Apache Curator's lock recipes, written from scratch.
//!
//! A docent shows visitors round a zoo: this one guides between ZooKeeper and Curator.
//!
//! # Example
//!
//! ```
//! use docent::{Client, Error, InterProcessMutex};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = docent_testing::TestingServer::start().await?;
//! # let connect_string = server.connect_string();
//! // Several servers and a chroot: "zk1:2181,zk2:2181,zk3:2181/app".
//! let client = Client::connect(&connect_string).await?;
//! // Closes the session at the end, also after an error.
//! client.run(print).await?;
//! # Ok(())
//! # }
//!
//! async fn print(client: Client) -> Result<(), Error> {
//!     let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
//!     let guard = mutex.acquire().await?;
//!     println!("held, fencing token {}", guard.fencing_token().await?);
//!     guard.release().await
//! }
//! ```
//!
//! # Where to begin
//!
//! | task | |
//! |---|---|
//! | connect, read, write, watch | [`Client`]; settings: [`Config`] |
//! | several writes at once | [`Transaction`] |
//! | one holder at a time | [`InterProcessMutex`]; not re-entrant: [`InterProcessSemaphoreMutex`] |
//! | the same, with holds that are proven not to overlap | [`StrictMutex`] |
//! | many readers or one writer | [`InterProcessReadWriteLock`] |
//! | a limited number of holders | [`InterProcessSemaphoreV2`] |
//! | several locks: all or none | [`InterProcessMultiLock`] |
//! | hold a lock, know when it is lost | [`LockGuard`] |
//! | ask a holder to release its lock | [`Revoker`] |
//! | one leader, until it leaves; for one term at a time | [`LeaderLatch`]; [`LeaderSelector`] |
//! | lead, know when the leadership ends | [`Leadership`] |
//! | create a node once, although a reply is lost | [`create_protected`] |
//! | a node, its children or a tree in memory | [`CuratorCache`] |
//! | keep a node present; be a member of a group | [`PersistentNode`], [`PersistentTtlNode`]; [`GroupMember`] |
//! | a value that processes share | [`SharedValue`], [`SharedCount`] |
//! | a number that processes count with | [`DistributedAtomicLong`], [`DistributedAtomicInteger`] |
//! | a value that is changed by compare-and-set | [`DistributedAtomicValue`] |
//! | wait until a node is deleted | [`DistributedBarrier`] |
//! | enter and leave together | [`DistributedDoubleBarrier`] |
//! | find the instances of a service | the crate [`docent-discovery`](https://docs.rs/docent-discovery) |
//! | connection states | [`ConnectionState`], [`Client::states`] |
//! | errors: what went wrong, was it applied, may it be retried | [`Error`], [`ErrorKind`] |
//! | retries | [`retry`] |
//! | follow the servers of the ensemble | [`EnsembleTracker`] |
//! | a program without async | [`docent::blocking`](https://docs.rs/docent/latest/docent/blocking) (feature `blocking`) |
//! | a server for tests | [`TestingServer`](https://docs.rs/docent-testing) (feature `testing`) |
//!
//! Programs for everyday tasks, explained: [`cookbook`].
//!
//! # What a lock guarantees
//!
//! A holder can lose its lock before it can notice the loss: read [`LockGuard`] before relying on a lock.
//!
//! # Features
//!
//! Most programs take the default, and `tls` where the servers have it. Each row is a program that reads one node: the crates of
//! others below it, the CPU time of its cold release build in seconds, and its size, stripped, in KiB.
//!
//! | feature | crates | seconds | KiB | |
//! |---|--:|--:|--:|---|
//! | none: `default-features = false` | 16 | 44 | 1,284 | the client alone |
//! | `recipes` (default) | 20 | 71 | 1,284 | Curator's recipes |
//! | `tls` | 32 | 94 | 1,381 | TLS connections by rustls with ring |
//! | `tls-aws-lc-rs` | 37 | 156 | 1,392 | the same with aws-lc-rs. For its build that is validated for FIPS 140-3, let your program depend on `rustls` with the feature `fips`, too, which takes cmake and Go |
//! | `tls-no-provider` | 27 | – | – | the same with the provider that the program has installed, which the other features prefer, too |
//! | `tls-platform-roots` | 36 | 110 | 1,382 | with `tls`: `TlsOptions::with_platform_roots`, certificates that the platform trusts |
//! | `dns-srv` | 93 | 141 | 2,804 | connect strings `dns-srv://name`, whose servers are SRV records: [`config::ConnectString`] |
//! | `sasl` | 26 | 70 | 1,314 | SASL authentication by DIGEST-MD5, or by another mechanism, such as Kerberos by `docent-gssapi` |
//! | `stream` | 20 | as the default | | [`Watcher`], [`Events`] and [`Latest`] as streams of `futures-core` |
//! | `blocking` | 20 | 75 | 1,284 | the module [`blocking`](https://docs.rs/docent/latest/docent/blocking): the client and the recipes for programs without async |
//! | `metrics` | 23 | 64 | 1,295 | the counters of [`client::Metrics`], for the crate `metrics` |
//! | `machine` | 20 | as the default | | the module [`machine`](https://docs.rs/docent/latest/docent/machine): the session without I/O |
//! | `testing` | 25 | 83 | 1,284 | an embedded server and a recording proxy, for tests of programs that use docent |
//!
//! A light client, beside its peers with their default features:
//!
//! | client | crates | seconds | KiB |
//! |---|--:|--:|--:|
//! | `docent-session` without features: the machine, on a blocking socket, as in its example `embed` | 3 | 16 | 744 |
//! | `docent` without features | 16 | 44 | 1,284 |
//! | tokio-zookeeper 0.4 | 32 | 33 | 892 |
//! | zookeeper-async 5 | 49 | 51 | 1,069 |
//! | zookeeper-client 0.11 | 90 | 69 | 1,088 |
//!
//! (November 2026, rustc 1.95, Linux, two cores of x86-64, shared with other work: the times vary by a tenth from run to run.
//! `cargo tree --edges no-dev` has the crates.)
//!
//! # Layers
//!
//! The root has what programs name every day. What they name now and then is in a module of its topic, with the rest of
//! that topic:
//!
//! | | |
//! |---|---|
//! | [`client`] | what the calls of a [`Client`] return, and its metrics |
//! | [`config`] | the values of a [`Config`]: servers, credentials, limits |
//! | [`acl`], [`ensemble`], [`error`], [`session`], [`watch`] | access rights; reconfiguration; causes of errors; leases; watched paths |
//! | [`retry`] | Curator's retry policies |
//! | [`locks`], [`leader`], [`cache`], [`nodes`], [`atomic`], [`barriers`], [`shared`] | Curator's recipes |
//! | [`runtime`], [`sasl`](https://docs.rs/docent/latest/docent/sasl), [`tls`](https://docs.rs/docent/latest/docent/tls) | seams for another runtime, another mechanism, certificates |
//! | [`machine`](https://docs.rs/docent/latest/docent/machine) (feature `machine`) | the session without I/O, for programs that drive it themselves |
//! | [`testing`](https://docs.rs/docent-testing) (feature `testing`) | the embedded server |
//!
//! Each layer is also a crate: [`docent-protocol`](https://docs.rs/docent-protocol) is the wire protocol, which only
//! programs without a client need, and of which this crate shows no more than the types of its own signatures;
//! [`docent-session`](https://docs.rs/docent-session) has the client, and
//! [`docent-recipes`](https://docs.rs/docent-recipes) the recipes.
#![cfg_attr(
    not(feature = "recipes"),
    doc = "

[`CuratorCache`]: https://docs.rs/docent-recipes
[`DistributedAtomicInteger`]: https://docs.rs/docent-recipes
[`DistributedAtomicLong`]: https://docs.rs/docent-recipes
[`DistributedAtomicValue`]: https://docs.rs/docent-recipes
[`DistributedBarrier`]: https://docs.rs/docent-recipes
[`DistributedDoubleBarrier`]: https://docs.rs/docent-recipes
[`GroupMember`]: https://docs.rs/docent-recipes
[`InterProcessMultiLock`]: https://docs.rs/docent-recipes
[`InterProcessMutex`]: https://docs.rs/docent-recipes
[`InterProcessReadWriteLock`]: https://docs.rs/docent-recipes
[`InterProcessSemaphoreMutex`]: https://docs.rs/docent-recipes
[`InterProcessSemaphoreV2`]: https://docs.rs/docent-recipes
[`LeaderLatch`]: https://docs.rs/docent-recipes
[`LeaderSelector`]: https://docs.rs/docent-recipes
[`Leadership`]: https://docs.rs/docent-recipes
[`LockGuard`]: https://docs.rs/docent-recipes
[`PersistentNode`]: https://docs.rs/docent-recipes
[`PersistentTtlNode`]: https://docs.rs/docent-recipes
[`Revoker`]: https://docs.rs/docent-recipes
[`SharedCount`]: https://docs.rs/docent-recipes
[`SharedValue`]: https://docs.rs/docent-recipes
[`StrictMutex`]: https://docs.rs/docent-recipes
[`create_protected`]: https://docs.rs/docent-recipes
[`atomic`]: https://docs.rs/docent-recipes
[`barriers`]: https://docs.rs/docent-recipes
[`cache`]: https://docs.rs/docent-recipes
[`cookbook`]: https://docs.rs/docent/latest/docent/cookbook
[`leader`]: https://docs.rs/docent-recipes
[`locks`]: https://docs.rs/docent-recipes
[`nodes`]: https://docs.rs/docent-recipes
[`shared`]: https://docs.rs/docent-recipes"
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod acl;
#[cfg(feature = "blocking")]
pub mod blocking;

#[cfg(feature = "recipes")]
pub mod cookbook;

#[doc(inline)]
pub use docent_protocol::{Acl, AddWatchMode, CreateMode, EventType, OpCode, Perms, Stat, Ttl};
#[cfg(feature = "recipes")]
#[doc(inline)]
pub use docent_recipes::{
    atomic::{
        self, AtomicOptions, DistributedAtomicInteger, DistributedAtomicLong,
        DistributedAtomicValue,
    },
    barriers::{self, DistributedBarrier, DistributedDoubleBarrier},
    cache::{self, CacheEvent, CacheOptions, CuratorCache},
    leader::{self, LeaderLatch, LeaderOptions, LeaderSelector, Leadership},
    locks::{
        self, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
        InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockGuard, LockOptions, Owner,
        Revoker, StrictMutex,
    },
    nodes::{self, GroupMember, NodeOptions, PersistentNode, PersistentTtlNode, create_protected},
    shared::{self, SharedCount, SharedValue},
};
#[cfg(feature = "machine")]
#[doc(inline)]
pub use docent_session::machine;
#[cfg(feature = "sasl")]
#[doc(inline)]
pub use docent_session::sasl;
#[cfg(feature = "tls-no-provider")]
#[doc(inline)]
pub use docent_session::tls;
#[doc(inline)]
pub use docent_session::{
    Children, Client, Config, ConnectionState, CreateOptions, EnsembleTracker, Error, ErrorKind,
    Events, Latest, Node, Outcome, SessionToken, Transaction, TransactionResult, WatchedEvent,
    Watcher, client, config, ensemble, error, retry, runtime, session, watch,
};
#[cfg(feature = "testing")]
#[doc(no_inline)]
pub use docent_testing as testing;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
