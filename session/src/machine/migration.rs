//! Migration to another server by the client's choice: the server list has changed, or a read-write server was found
//! while the client is connected to a read-only one.
//!
//! A migration loses no request: nothing more is sent on the old connection, the replies to sent requests are awaited,
//! and queued requests are sent on the next connection.
//!
//! A planned reconnect changes no state, unless its attempt fails: a state would end leaderships. It has a limit, after
//! which the connection is kept.

use super::{
    answers::Answers,
    connect_string::Host,
    session::{Event, Session},
};
use crate::time::Instant;

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Replaces the server list. A client whose server is not in the new list migrates; of the others, as many migrate,
    /// chosen at random, as give each server its share of all clients.
    ///
    /// Source: `ZooKeeper.updateServerList`.
    pub fn update_server_list(&mut self, hosts: &[Host]) {
        if hosts.is_empty() || self.is_ended() {
            return;
        }
        let connected = self.is_connected();
        let current = self.server().cloned();
        self.note_new_servers(hosts);
        let migrates = self.hosts.update(hosts, current.as_ref(), true);
        let attempted = self.connection.host().filter(|_| !self.connection.is_disconnected());
        if connected && migrates {
            if !self.is_closing() {
                self.connection.migrate();
            }
        } else if !connected && attempted.is_some_and(|host| !hosts.contains(host)) {
            self.connection.give_up("the server is no longer listed");
        }
    }

    /// Uses the servers that a name of `dns-srv://` has by now: for the next attempt to connect, and for a return to a better
    /// server. The connection stays, also that to a server without a record.
    pub(crate) fn follow_servers(&mut self, hosts: &[Host]) {
        if hosts.is_empty() || self.is_ended() {
            return;
        }
        let current = self.server().cloned();
        self.note_new_servers(hosts);
        self.hosts.update(hosts, current.as_ref(), false);
    }

    /// Adapts what depends on the server list, which is to be replaced.
    fn note_new_servers(&mut self, hosts: &[Host]) {
        if !hosts.iter().any(|host| self.hosts.list().contains(host)) {
            self.operations.forget();
        }
        self.timeouts.share_among(hosts.len());
    }

    /// Uses the servers that a name of `dns-srv://` has, in place of an attempt to connect to it. The next attempt is at once.
    pub fn handle_servers(&mut self, hosts: &[Host]) {
        if self.is_ended() {
            return;
        }
        self.connection.disconnect();
        self.update_server_list(hosts);
        self.hosts.hasten();
    }

    /// The answer of a server to the question whether it is read-write (`isro`).
    pub fn handle_probe(&mut self, host: &Host, read_write: bool) {
        let wanted = self.is_connected() && self.is_read_only() && !self.is_closing();
        if read_write && wanted && self.hosts.prefer(host) {
            self.connection.migrate();
        }
    }

    /// Probes the next server.
    pub(super) fn search_read_write(&mut self, now: Instant) {
        let Some(round) = self.connection.search_mut().and_then(|search| search.next_round(now))
        else {
            return;
        };
        if let Some(host) = self.hosts.peek(round, self.connection.host()) {
            self.events.push_back(Event::Probe(host));
        }
    }

    /// Cancels a migration that waits for replies: the connection is kept.
    pub(crate) const fn cancel_migration(&mut self) {
        self.connection.cancel_migration();
    }

    /// Whether the connection can be closed for the migration: no request is in flight.
    pub(super) const fn is_ready_to_migrate(&self) -> bool {
        self.connection.is_migrating() && self.requests.in_flight() == 0 && self.is_connected()
    }
}
