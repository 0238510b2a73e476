//! What `cargo xtask` and the integration tests share: Java, and real ZooKeeper servers in it.
//!
//! Everything here can run twice side by side: ports are free ones, directories are temporary or
//! written under another name first. Every process started here ends with ours, even if we are
//! killed.

mod ensemble;
mod java;
mod temporary;
mod zookeeper;

pub use ensemble::{Ensemble, Role};
pub use java::Java;
pub use temporary::TemporaryDirectory;
pub use zookeeper::{Server, Settings, four_letter_word};

/// The failure of a chore: text for the person who ran it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a chore.
pub type Result<T> = std::result::Result<T, Error>;
