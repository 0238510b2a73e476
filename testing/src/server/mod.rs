//! An embedded ZooKeeper server: **a test double**. It keeps nothing on disk and replicates nothing.
//!
//! It speaks ZooKeeper's own wire protocol, so every client works with it: ours, Java's, Curator, kazoo.

mod acl;
mod config;
mod connection;
mod controls;
mod digest;
mod election;
mod ensemble;
mod handshake;
mod java;
mod listen;
mod log;
mod prep;
mod reads;
mod requests;
#[cfg(feature = "sasl")]
mod sasl;
mod sessions;
mod testing_cluster;
mod testing_server;
mod tree;
mod version;
mod watches;
mod words;
mod writes;

pub use self::{
    config::Config,
    ensemble::{ConnectionId, Ensemble, Role},
    testing_cluster::TestingCluster,
    testing_server::TestingServer,
    version::Version,
};
