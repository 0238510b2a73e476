//! Curator's cache: a node, its children or a whole tree in memory, kept up to date.
//!
//! Source: `org.apache.curator.framework.recipes.cache`.

mod cache_event;
mod curator_cache;
mod engine;
mod event;
mod node;
mod one_shot;
mod options;
mod reads;
mod shared;
mod tree;
mod updater;

pub use cache_event::CacheEvent;
pub use curator_cache::{CacheState, CuratorCache};
pub use node::CachedNode;
pub use options::CacheOptions;
