//! The client for applications, the futures that its methods return, and the values they resolve to.

// rustdoc shows the methods of `Client` in the order of these modules: the everyday ones first.
mod connect;

mod config;

#[expect(clippy::module_inception, reason = "it has the type `Client`, beside its extensions")]
mod client;

mod create_options;
mod parents;

mod create_or_set;
mod delete_recursive;
mod wait;

mod transaction;

mod retry_loop;
mod retry_policy;

mod subtree;

mod session;

mod timeout;

pub(crate) mod admin;
mod allow;
mod arguments;
pub mod children;
mod chroot;
mod cleanup;
pub(crate) mod ensemble_config;
pub(crate) mod ensemble_tracker;
pub(crate) mod events;
mod exchange;
mod proof;
pub(crate) mod response;
pub mod retry;
pub(crate) mod watcher;

#[doc(hidden)]
pub use self::cleanup::Cleanup;
pub use self::{
    allow::Allow,
    children::Children,
    client::Client,
    create_options::CreateOptions,
    response::{AclEntries, Call, ClientInfo, Node, Response},
    session::WeakClient,
    transaction::{
        MultiReadResponse, ReadResult, Transaction, TransactionResponse, TransactionResult,
    },
    watcher::{AddWatchResponse, WatchResponse},
};
pub use crate::machine::metrics::{Latency, Metrics};
pub use docent_protocol::{operation::Read, sequence_number};
