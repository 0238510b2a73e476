//! Apache Curator's lock recipes over `docent-session`, frame for frame.
//!
//! Modules are Curator's packages, files its classes. [`locks::lock_internals`] tells the algorithm step by
//! step, each step with the frame it sends and the Curator method it mirrors.
//!
//! What is mirrored is Curator 5.9.0 on the wire; what is not are its defects, each listed where it would
//! be. Beyond Curator, a [`LockGuard`](locks::LockGuard) knows whether it can still be believed, says when it
//! cannot, and has a fencing token.
//!
//! Applications add the crate `docent`, which re-exports what is here.
//!
//! | recipe | Curator | |
//! |---|---|---|
//! | [`InterProcessMutex`](locks::InterProcessMutex) | the same | re-entrant for an explicit [`Owner`](locks::Owner), revocable |
//! | [`InterProcessSemaphoreMutex`](locks::InterProcessSemaphoreMutex) | the same | nobody enters it twice |
//! | [`InterProcessReadWriteLock`](locks::InterProcessReadWriteLock) | the same | a writer may go on as a reader |
//! | [`InterProcessSemaphoreV2`](locks::InterProcessSemaphoreV2) | the same | so many leases, or as a [`SharedCount`](shared::SharedCount) says |
//! | [`InterProcessMultiLock`](locks::InterProcessMultiLock) | the same | several as one: all or none |
//! | [`Revoker`](locks::Revoker) | the same | asks a holder to give way |
//! | [`SharedValue`](shared::SharedValue), [`SharedCount`](shared::SharedCount) | the same | a value that everybody sees |
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use docent_recipes::locks::InterProcessMutex;
//! use docent_session::Client;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = docent_testing::TestingServer::start().await?;
//! # let connect_string = server.connect_string();
//! let client = Client::connect(&connect_string).await?;
//! let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
//!
//! if let Some(guard) = mutex.acquire_timeout(Duration::from_secs(3)).await? {
//!     // Applied only while the lock node exists: the server looks, not we.
//!     client.create("/job", b"", docent_protocol::CreateMode::Persistent).await?;
//!     guard.guarded()?.set_data("/job", b"42", None).commit().await?;
//!     guard.release().await?;
//! }
//! # client.close().await?;
//! # Ok(())
//! # }
//! ```

mod acl_provider;
mod deadline;
mod default_data;
mod error;
mod guaranteed_delete;
pub mod locks;
mod namespace;
mod parents;
mod protection;
mod race;
mod retry_loop;
pub mod shared;
mod wake;

pub use acl_provider::{AclProvider, DefaultAclProvider};
pub use error::Error;
