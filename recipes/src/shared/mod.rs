//! Values shared between processes.
//!
//! Source: `org.apache.curator.framework.recipes.shared`.

mod shared_count;
mod shared_value;

pub use shared_count::{SharedCount, count_of};
pub use shared_value::{SharedValue, VersionedValue};
