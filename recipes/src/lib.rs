//! Apache Curator's lock recipes over `docent-session`, frame for frame.
//!
//! Modules are Curator's packages, files its classes. [`locks::lock_internals`] tells the algorithm step by
//! step, each step with the frame it sends and the Curator method it mirrors.
//!
//! What is mirrored is Curator 5.9.0 on the wire; what is not are its defects, each listed where it would
//! be. Beyond Curator, a [`LockGuard`](locks::LockGuard) knows whether it can still be believed, says when it
//! cannot, and has a fencing token.
//!
//! Applications add the crate `docent`, which re-exports what is here.

mod acl_provider;
mod deadline;
mod default_data;
mod error;
mod guaranteed_delete;
pub mod locks;
mod namespace;
mod parents;
mod protection;
mod race;
mod retry_loop;
pub mod shared;
mod wake;

pub use acl_provider::{AclProvider, DefaultAclProvider};
pub use error::Error;
