//! Apache Curator's recipes for locks, leader election and kept nodes over `docent-session`.
//!
//! Modules are Curator's packages, files its classes. [`locks::lock_internals`] describes the algorithm step by
//! step, each step with the frame it sends and the Curator method it mirrors.
//!
//! The recipes send the frames of Curator 5.9.0, except for differences that each module and `docs/CURATOR.md` list, with
//! their reasons: its defects are not mirrored. Unlike Curator's, a [`LockGuard`](locks::LockGuard) knows whether the lock is still held,
//! reports its loss, and has a fencing token.
//!
//! Applications add the crate `docent`, which re-exports the modules of this one.
//!
//! | recipe | Curator | |
//! |---|---|---|
//! | [`InterProcessMutex`](locks::InterProcessMutex) | the same | re-entrant for an explicit [`Owner`](locks::Owner), revocable |
//! | [`InterProcessSemaphoreMutex`](locks::InterProcessSemaphoreMutex) | the same | a mutex that is not re-entrant |
//! | [`InterProcessReadWriteLock`](locks::InterProcessReadWriteLock) | the same | many readers or one writer; a writer can downgrade |
//! | [`InterProcessSemaphoreV2`](locks::InterProcessSemaphoreV2) | the same | a fixed number of leases, or that of a [`SharedCount`](shared::SharedCount) |
//! | [`InterProcessMultiLock`](locks::InterProcessMultiLock) | the same | several locks: all or none |
//! | [`StrictMutex`](locks::StrictMutex) | – | a mutex whose holds are proven not to overlap |
//! | [`Revoker`](locks::Revoker) | the same | asks a holder to release its lock |
//! | [`SharedValue`](shared::SharedValue), [`SharedCount`](shared::SharedCount) | the same | a value shared between processes |
//! | [`DistributedAtomicLong`](atomic::DistributedAtomicLong), [`DistributedAtomicInteger`](atomic::DistributedAtomicInteger) | the same | a number that processes count with |
//! | [`DistributedAtomicValue`](atomic::DistributedAtomicValue) | the same | a value that is changed by compare-and-set |
//! | [`DistributedBarrier`](barriers::DistributedBarrier) | the same | waiters that pass when a node is deleted |
//! | [`DistributedDoubleBarrier`](barriers::DistributedDoubleBarrier) | the same | members that enter and leave together |
//! | [`LeaderLatch`](leader::LeaderLatch) | the same | leads until it is closed |
//! | [`LeaderSelector`](leader::LeaderSelector) | the same | leads for one term at a time: while a future runs |
//! | [`PersistentNode`](nodes::PersistentNode), [`PersistentTtlNode`](nodes::PersistentTtlNode) | the same | a node that is kept present |
//! | [`GroupMember`](nodes::GroupMember) | the same | the members of a group |
//! | [`CuratorCache`](cache::CuratorCache) | the same, with its bridge to `TreeCache` | a node, its children or a tree in memory |
//! | [`create_protected`](nodes::create_protected) | `create().withProtection()` | a node that is created once, although a reply is lost |
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use docent::{Client, InterProcessMutex};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = docent_testing::TestingServer::start().await?;
//! # let connect_string = server.connect_string();
//! let client = Client::connect(&connect_string).await?;
//! let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
//!
//! if let Some(guard) = mutex.acquire_timeout(Duration::from_secs(3)).await? {
//!     // The server applies it only while the lock node exists.
//!     client.create("/job", b"", docent::CreateMode::Persistent).await?;
//!     guard.guarded()?.set_data("/job", b"42", None).commit().await?;
//!     guard.release().await?;
//! }
//! # client.close().await?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod acl_provider;
pub mod atomic;
pub mod barriers;
mod base_path;
pub mod cache;
mod cancellation_token;
mod create;
mod create_protected;
mod deadline;
mod default_data;
mod error;
mod guaranteed_delete;
mod held;
pub mod leader;
pub mod locks;
mod namespace;
mod node_task;
pub mod nodes;
mod options;
mod parents;
mod path;
mod persistent_retry;
mod planted;
mod protection;
mod read_nodes;
mod recreate_pause;
mod select;
mod sent_creates;
mod settle;
pub mod shared;
mod state_changes;
mod swap;
mod sync;
mod timer;

pub use acl_provider::{AclProvider, DefaultAclProvider};
pub use docent_session::{Error, ErrorKind, Outcome};
#[doc(hidden)]
pub use read_nodes::read_nodes;
