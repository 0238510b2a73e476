//! What tests of ZooKeeper programs need. **Test doubles only**: nothing here keeps anything on disk
//! or replicates anything.
//!
//! * [`TestingServer`], [`TestingCluster`]: an embedded server that every ZooKeeper client accepts.
//! * [`tap`]: a recording proxy in front of any ZooKeeper server, real or not, with faults on request.
//! * [`fault`]: the vocabulary of those faults.
//!
//! The crate knows the wire protocol (`docent-protocol`) and no client: what it says about a client is
//! evidence, because it can only have seen its bytes.

pub mod fault;
pub mod server;
pub mod tap;

pub use server::{TestingCluster, TestingServer};
