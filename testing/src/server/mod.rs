//! An embedded ZooKeeper server: **a test double**. It stores nothing on disk and replicates nothing.
//!
//! It speaks the ZooKeeper wire protocol, so every client works with it: docent, the Java client, Curator, kazoo.

mod acl;
mod config;
mod connection;
mod controls;
mod election;
mod ensemble;
mod four_letter_words;
mod handshake;
mod inspect;
mod java;
mod links;
mod listen;
mod log;
mod member;
mod membership;
mod messages;
mod prep;
#[cfg(feature = "tls-no-provider")]
mod provider;
mod reads;
mod requests;
#[cfg(feature = "sasl")]
mod sasl;
mod session_passwd;
mod sessions;
mod settings;
mod test_state;
mod testing_cluster;
mod testing_server;
#[cfg(feature = "tls-no-provider")]
mod tls;
mod tree;
mod version;
mod watches;
mod writes;
#[cfg(feature = "tls-no-provider")]
mod x509;

#[cfg(feature = "tls-no-provider")]
pub use self::tls::Tls;
pub use self::{
    config::Config, ensemble::Ensemble, links::Peer, member::Role, messages::ConnectionId,
    test_state::AppliedChange, testing_cluster::TestingCluster, testing_server::TestingServer,
    version::Version,
};
