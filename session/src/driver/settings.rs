//! The settings of a driver: the part of the configuration that the machine does not know.

use std::sync::Arc;

use super::{clock::Clock, preference::Preference, runtime::Runtime, transport::Transport};

/// The settings of a driver. [`Config`](crate::Config) sets and documents each of them.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) transport: Option<Arc<dyn Transport>>,
    pub(crate) clock: Option<Clock>,
    pub(crate) runtime: Option<Arc<dyn Runtime>>,
    pub(crate) max_watch_events: usize,
    pub(crate) seed: Option<u64>,
    pub(crate) preference: Option<Preference>,
    /// Whether the program has set the time of the failback, or switched it off.
    pub(crate) failback_is_set: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            transport: None,
            clock: None,
            runtime: None,
            max_watch_events: 1000,
            seed: None,
            preference: None,
            failback_is_set: false,
        }
    }
}
