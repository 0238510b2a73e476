//! The outputs of the machine: collected with its lock held, dispatched after the lock is released.

use tracing::{debug, info, warn};

use super::{
    missing_operations,
    notifier::Notifier,
    reply_slot::Wakeups,
    shared::{Machine, Shared},
};
use crate::{
    ConnectionState,
    config::Host,
    machine::{Answers as _, Event},
};

/// The capacity of the queues of an idle session, in entries.
const KEPT_ENTRIES: usize = 16;

/// Outputs that are collected and not dispatched yet.
#[derive(Default)]
pub(super) struct Outputs {
    wakeups: Wakeups,
    events: Vec<Event<Notifier>>,
    /// Servers to probe for being read-write.
    pub(super) probes: Vec<Host>,
    /// A computation of SASL that may block.
    #[cfg(feature = "sasl")]
    pub(super) sasl_step: Option<crate::machine::SaslStep>,
    /// Servers to ask for their status, and the number of the connection that this is about.
    pub(super) status_probes: Vec<(Host, u64)>,
}

impl Outputs {
    /// Takes the outputs, with the lock held.
    pub(super) fn collect(&mut self, machine: &mut Machine) {
        self.wakeups.collect(machine.answers_mut());
        self.events.extend(std::iter::from_fn(|| machine.poll_event()));
        #[cfg(feature = "sasl")]
        if self.sasl_step.is_none() {
            self.sasl_step = machine.poll_sasl_step();
        }
    }

    /// Wakes callers and delivers events, without the lock.
    pub(super) fn dispatch(&mut self, shared: &Shared) {
        self.wakeups.wake();
        for event in self.events.drain(..) {
            match event {
                Event::State(state) => {
                    if state == ConnectionState::Lost {
                        warn!("session lost");
                    } else {
                        info!(%state, "connection");
                    }
                    shared.lock_states().publish(state);
                }
                Event::Session(lease) => {
                    info!(session = format_args!("{:#x}", lease.session_id()), "new session");
                }
                Event::Lease(lease) => lease.wake_waiters(),
                Event::MissingOperation(lease, op) => missing_operations::log(&lease, op),
                Event::Watch { watcher, event } => watcher.notify(event, shared.max_watch_events),
                Event::Probe(host) => self.probes.push(host),
                Event::ProbeStatus(host, connection) => {
                    self.status_probes.push((host, connection));
                }
                Event::Ended(kind) => {
                    debug!(?kind, "ended");
                    shared.lock_states().end(kind);
                }
            }
        }
        self.wakeups.release_deferred();
    }

    /// Frees the memory of a burst that an idle session does not need.
    pub(super) fn give_back_memory(&mut self, shared: &Shared) {
        self.wakeups.shrink_to(KEPT_ENTRIES);
        self.events.shrink_to(KEPT_ENTRIES);
        shared.lock().machine.answers_mut().shrink_to(KEPT_ENTRIES);
    }
}
