//! The client for applications.

// rustdoc shows the methods of `Client` in the order of these modules: the everyday ones first.
mod connect;

mod config;

#[expect(clippy::module_inception, reason = "it has the type `Client`, beside its extensions")]
mod client;

mod parents;

mod create_or_set;
mod delete_recursive;
mod wait;

mod transaction;

mod retry_loop;
mod retry_policy;

mod subtree;

mod session;

mod admin;
mod allow;
pub mod children;
mod chroot;
mod cleanup;
mod ensemble_config;
mod ensemble_tracker;
mod events;
mod exchange;
mod proof;
pub(crate) mod response;
pub mod retry;
mod watcher;

pub use self::{
    admin::Reconfig,
    allow::Allow,
    children::Children,
    cleanup::Cleanup,
    client::Client,
    ensemble_config::{EnsembleConfig, EnsembleServer, InvalidEnsembleConfig},
    ensemble_tracker::EnsembleTracker,
    events::{Events, Latest, StateEvent},
    response::{AclEntries, Call, ClientInfo, Node, Response},
    session::WeakClient,
    transaction::{
        MultiReadResponse, ReadResult, Transaction, TransactionResponse, TransactionResult,
    },
    watcher::{AddWatchResponse, OnDrop, WatchResponse, Watcher},
};
