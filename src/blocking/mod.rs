//! docent for programs without async: the client, its recipes and their guards with methods that wait.
//!
//! The names are those of the async client without `.await`: [`blocking::Client`](Client) is [`docent::Client`], and
//! `blocking::locks::InterProcessMutex` is `docent::InterProcessMutex`. Settings, options, errors and values, such as
//! [`Config`](crate::Config), `LockOptions` or [`Stat`](crate::Stat), are the same types. Needs the feature `blocking`.
//!
//! Service discovery is in the crate `docent-discovery`, whose feature `blocking` has it for this client.
//!
//! # Example
//!
#![cfg_attr(feature = "recipes", doc = "```")]
#![cfg_attr(not(feature = "recipes"), doc = "```ignore")]
//! use std::time::Duration;
//! use docent::{Error, blocking::{Client, locks::InterProcessMutex}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Runtime::new()?;
//! # let server = runtime.block_on(docent_testing::TestingServer::start())?;
//! # let connect_string = server.connect_string();
//! let client = Client::connect(&connect_string)?;
//! // Closes the session at the end, also after an error or a panic.
//! client.run(print)?;
//! # Ok(())
//! # }
//!
//! fn print(client: Client) -> Result<(), Error> {
//!     let mutex = InterProcessMutex::new(&client, "/locks/printer")?;
//!     if let Some(guard) = mutex.acquire_timeout(Duration::from_secs(30))? {
//!         println!("held, fencing token {}", guard.fencing_token()?);
//!         guard.release()?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # What differs from the async client
//!
//! | async | blocking |
//! |---|---|
//! | `Config::start` | [`Client::start_with`]; for `Config::connect`, both have `Client::connect_with` |
//! | `tokio::time::timeout` around a wait | the method with the suffix `_timeout`; [`Client::wait_timeout`] for the rest |
//! | `client.get_data("/a").allow(kind).await?` | `client.get_data("/a").allow(kind)?`, with the trait [`Allow`] |
//! | `next`, streams | iterators over results; with a limit of time: the trait [`Events`] |
//! | `changed`, `lost`, which return no `Result` | a `Result`, which is an error inside a runtime only |
//! | a `watch::Receiver` | [`Receiver`], whose values are cloned |
//! | several calls at once in one task | threads, which share a client; or [`Client::async_client`] and [`Client::wait`] |
//! | a future that is dropped | the limit of time of the call, or the end of its client |
//!
//! # Threads
//!
//! Each client has one thread, which reads, writes, and sends pings: a session stays alive however long the threads of
//! the program compute or wait. It ends when the client and everything that was made from it has been dropped and the
//! session is closed. A thread for each client, and not one for all, keeps them apart: what one client's listeners and
//! filters cost delays no ping of another one. With [`Config::with_runtime`](crate::Config::with_runtime) the client
//! runs where that says, and has no thread.
//!
//! Every type here is usable from any thread: a guard that one thread acquired may be released or dropped by another
//! one. A drop never waits, except for the last one of a client (see [`Client`](Client#the-end)).
//!
//! Listeners and filters are called on the client's thread. Blocking calls are refused there, since they would wait for
//! themselves.
//!
//! # Inside an async runtime
//!
//! A call that waits would block a thread of the runtime. In a task of tokio, in the body of `#[tokio::main]` and in
//! `block_on`, such a call sends nothing and fails with [`ErrorKind::WouldBlock`](crate::ErrorKind::WouldBlock): use
//! [`docent::Client`] there. `tokio::task::spawn_blocking` has threads on which it works. Other executors, and
//! tasks in `tokio::task::unconstrained`, are not recognized: the call then blocks their thread until it is done.
//!
//! [`docent::Client`]: crate::Client

#[macro_use]
mod forward;

mod client;
mod context;
mod events;
#[doc(hidden)]
pub mod internal;
mod receiver;
mod thread;
mod transaction;
mod wait;

pub use client::{Client, WeakClient};
pub use events::{Events, States, TimeoutIter, Watcher};
pub use receiver::{EnsembleTracker, Receiver};
pub use transaction::{Allow, Transaction};

#[cfg(feature = "recipes")]
pub mod atomic;
#[cfg(feature = "recipes")]
pub mod barriers;
#[cfg(feature = "recipes")]
pub mod cache;
#[cfg(feature = "recipes")]
mod create_protected;
#[cfg(feature = "recipes")]
mod held;
#[cfg(feature = "recipes")]
pub mod leader;
#[cfg(feature = "recipes")]
pub mod locks;
#[cfg(feature = "recipes")]
pub mod nodes;
#[cfg(feature = "recipes")]
pub mod shared;

#[cfg(feature = "recipes")]
pub use {
    create_protected::{create_protected, create_protected_with},
    held::Held,
};
