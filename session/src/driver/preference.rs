//! The preference of an application for servers: a cost of each, computed outside the machine and its lock.

use std::{
    any::{Any, type_name},
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
    time::Duration,
};

use tracing::error;

use crate::{
    config::Host,
    sync::{Mutex, MutexGuard},
};

/// A server that a client may connect to, as the function of
/// [`Config::with_server_preference`](crate::Config::with_server_preference) sees it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    host: &'a Host,
    connect_time: Option<Duration>,
}

impl<'a> Candidate<'a> {
    /// The server.
    #[must_use]
    pub const fn host(&self) -> &'a Host {
        self.host
    }

    /// How long the last connection to it took to open: its name is looked up, TCP connects, and TLS, if it is used, is
    /// negotiated. `None` if this client has opened none yet.
    #[must_use]
    pub const fn connect_time(&self) -> Option<Duration> {
        self.connect_time
    }
}

/// The function of an application.
#[derive(Clone)]
pub(crate) struct Preference {
    cost: Arc<dyn Fn(&Candidate<'_>) -> u64 + Send + Sync>,
    name: &'static str,
}

impl Preference {
    pub(crate) fn new<F>(cost: F) -> Self
    where
        F: Fn(&Candidate<'_>) -> u64 + Send + Sync + 'static,
    {
        Self { cost: Arc::new(cost), name: type_name::<F>() }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The costs of the servers of one client.
#[derive(Debug)]
pub(super) struct Costs {
    preference: Preference,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    connect_times: HashMap<Host, Duration>,
    has_panicked: bool,
}

impl Costs {
    pub(super) fn new(preference: Preference) -> Self {
        Self { preference, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_connect_time(&self, host: &Host, took: Duration) {
        self.known().connect_times.insert(host.clone(), took);
    }

    /// The cost of each of these servers, and forgets what is known of others. `None` if the function panics, or has
    /// panicked: it is not called again.
    pub(super) fn compute(&self, hosts: &[Host]) -> Option<Vec<(Host, u64)>> {
        let times = {
            let mut known = self.known();
            if known.has_panicked {
                return None;
            }
            known.connect_times.retain(|host, _| hosts.contains(host));
            known.connect_times.clone()
        };
        // Without a lock: the function is free to use its client.
        let cost = |host: &Host| {
            let candidate = Candidate { host, connect_time: times.get(host).copied() };
            match catch_unwind(AssertUnwindSafe(|| (self.preference.cost)(&candidate))) {
                Ok(cost) => Some((host.clone(), cost)),
                Err(panic) => {
                    self.report(host, &*panic);
                    None
                }
            }
        };
        hosts.iter().map(cost).collect()
    }

    fn report(&self, host: &Host, panic: &(dyn Any + Send)) {
        if std::mem::replace(&mut self.known().has_panicked, true) {
            return;
        }
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        error!(
            preference = self.preference.name,
            %host,
            panic = text.unwrap_or("no text"),
            "the server preference panicked and is not called again; the order of the servers stays"
        );
    }
}
