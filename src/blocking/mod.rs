//! docent for programs without async: a client with methods that wait, and a way to wait for everything else.
//!
//! | what a thread needs | |
//! |---|---|
//! | a client | [`Client`]: connects, reads, writes, watches, waits for each reply |
//! | a lock, a leadership, a number | [`InterProcessMutex`], [`LeaderLatch`], [`DistributedAtomicLong`] and the other types here, made of the client, with methods that wait |
//! | any other call of the client, any other recipe, service discovery | the async type, such as `docent::SharedCount`; [`wait`](fn@wait) waits for each call |
//! | a limit of time | [`wait_timeout`], around any call |
//! | events | iterators: [`Client::add_watch`], [`Client::states`]; [`Blocking::wrap`] makes one of every [`EventSource`] |
//!
//! Settings, options, errors and values, such as [`Config`](crate::Config) or [`Stat`](crate::Stat), are the same types.
//! Needs the feature `blocking`.
#![cfg_attr(
    not(feature = "recipes"),
    doc = "

[`InterProcessMutex`]: https://docs.rs/docent/latest/docent/blocking
[`LeaderLatch`]: https://docs.rs/docent/latest/docent/blocking
[`DistributedAtomicLong`]: https://docs.rs/docent/latest/docent/blocking
"
)]
//!
//! # Example
//!
#![cfg_attr(feature = "recipes", doc = "```")]
#![cfg_attr(not(feature = "recipes"), doc = "```ignore")]
//! use std::time::Duration;
//! use docent::{Error, SharedCount, blocking::{Client, InterProcessMutex, wait}};
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
//!         // An async recipe, for which the thread waits.
//!         let pages = wait(|| SharedCount::start(&client, "/pages", 0))?;
//!         wait(|| pages.set_count(pages.count() + 1))?;
//!         guard.release()?;
//!     }
//!     Ok(())
//! }
//! ```
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
//! one. A drop never waits, except for the [last one](Blocking) of a client.
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

mod client;
mod events;
mod handle;
#[cfg(feature = "recipes")]
mod recipes;
mod thread;
mod waiting;

pub use client::{Allow, Client};
pub use events::EventSource;
pub use handle::Blocking;
#[cfg(feature = "recipes")]
pub use recipes::*;
pub use waiting::{wait, wait_timeout};
