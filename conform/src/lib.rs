//! Conformance tests for servers that speak ZooKeeper's protocol: `docent conform`.
//!
//! A case is a short script of what is sent, and what a server must reply. The cases are text files below `cases`, one
//! for each group; `cases/README.md` describes their notation. They were checked against real servers, and each names
//! its source: a class and method of ZooKeeper, or an issue.
//!
//! This crate uses only docent's codec and not its sessions, so a mistake of docent's client does not affect it.
//!
//! ```no_run
//! let options = docent_conform::Options::new(["127.0.0.1:2181"]);
//! let report = docent_conform::run(&options, |verdict| {
//!     println!("{verdict}");
//!     std::ops::ControlFlow::Continue(())
//! })?;
//! assert_eq!(report.failures(docent_conform::Level::Must), 0);
//! # Ok::<(), docent_conform::Unusable>(())
//! ```

mod case;
mod channel;
mod html;
mod play;
mod probe;
mod received;
mod report;
mod request;
mod run;
#[cfg(test)]
mod tests;
mod value;
mod version;

pub use case::{Case, Level, all};
pub use html::matrix;
pub use probe::Unusable;
pub use report::{Report, Verdict, VerdictKind};
pub use run::{Options, matches, run};
pub use version::Version;
