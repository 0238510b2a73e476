//! Conformance tests for servers that speak ZooKeeper's protocol: `docent conform`.
//!
//! A case is a short script: what is sent, and what a server replies. The cases are text files below `cases`, one for each
//! group; `cases/README.md` describes their notation. They were checked against real servers, and each has its source: a
//! class and method of ZooKeeper, or an issue.
//!
//! The judge uses the codec of docent alone, and no session of it: a mistake of docent's client is none of this crate.
//!
//! ```no_run
//! let options = docent_conform::Options::new(["127.0.0.1:2181"]);
//! let report = docent_conform::run(&options, |verdict| println!("{verdict}"))?;
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
pub use run::{Options, run};
pub use version::Version;
