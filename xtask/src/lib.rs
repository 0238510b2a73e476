//! Java, real ZooKeeper servers, and examples as programs, for `cargo xtask` and the integration tests.
//!
//! Concurrent runs do not conflict: they use free ports, and directories that are temporary or are renamed only when
//! complete. Every process started here exits with this process, even if this process is killed.

mod arguments;
pub mod command;
mod ensemble;
mod example;
mod expand;
mod java;
mod kept_port;
mod kerberos;
mod temporary;
pub mod workspace;
mod zookeeper;

pub use arguments::Arguments;
pub use ensemble::{Ensemble, Role};
pub use example::{EXAMPLES_BUILT, example};
pub use expand::{as_wrapper, expand, permit_unstable_documentation};
pub use java::{Java, Turn};
pub use kept_port::KeptPort;
pub use kerberos::{Kdc, REALM, gssapi_headers};
pub use temporary::TemporaryDirectory;
pub use zookeeper::{Server, Settings, end_of_log, four_letter_word};

/// The error of a task; its message is shown to the user.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a task.
pub type Result<T> = std::result::Result<T, Error>;
