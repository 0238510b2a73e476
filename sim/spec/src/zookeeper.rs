//! What `LockInternals` relies on: ephemeral nodes in the order of their creation, one-shot watches, and sessions, whose end
//! the servers and the client see at different times. The servers are one: a read sees all that was applied before it.

use std::collections::BTreeSet;

use self::Change::*;

pub type Node = u32; // the number at the end of a lock node's name
pub type Guid = (usize, u8); // a client, and the number of its attempt
pub type Session = (usize, u8); // a client, and the number of its session

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Client {
    pub session: Session,
    pub is_live: bool,   // by its clock, the lease of the session lies ahead
    pub is_proven: bool, // by its clock, the proven bound lies ahead
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ZooKeeper {
    pub clients: Vec<Client>,
    pub sessions: BTreeSet<Session>,       // those that have not ended at the servers
    pub has_parents: bool,
    pub next_node: Node,
    pub queue: Vec<(Node, Guid, Session)>, // the lock nodes, each with the GUID in its name and its owner
    pub watches: BTreeSet<(Guid, Node)>,
    pub events: BTreeSet<Guid>,            // on their way to waiters
    pub cuts: u8,                          // connections that may still break
    pub renewals: u8,                      // sessions that may still begin
}

/// What happens to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    Disconnect(usize),    // a connection breaks: what is in flight is lost, and watches
    ProofEnds(usize),     // the proven bound passes
    LeaseEnds(usize),     // the client hears LOST, by its clock or from the servers
    NewSession(usize),
    SessionEnds(Session), // the servers end a session, and delete its nodes
    Close(usize),         // a client that has left nothing ends its session
}

impl ZooKeeper {
    pub fn new(clients: usize, cuts: u8, renewals: u8) -> Self {
        let client = |c| Client { session: (c, 0), is_live: true, is_proven: true };
        let sessions = (0..clients).map(|c| (c, 0)).collect();
        Self { clients: (0..clients).map(client).collect(), sessions, cuts, renewals, ..Self::default() }
    }

    pub fn changes(&self) -> Vec<Change> {
        let of_client = |c| [Disconnect(c), ProofEnds(c), LeaseEnds(c), NewSession(c), Close(c)];
        let ends = self.sessions.iter().map(|session| SessionEnds(*session));
        let all = (0..self.clients.len()).flat_map(of_client).chain(ends);
        // A client that gets no other session is explored without a look at clocks, and at the ends of sessions.
        all.filter(|change| self.renewals > 0 || self.has_renewed() || matches!(change, Disconnect(_))).collect()
    }

    fn has_renewed(&self) -> bool { self.clients.iter().any(|client| client.session.1 > 0) }

    /// `None`: the change is not possible now. `is_cut`: the ensemble is cut, or somebody ends sessions by hand.
    pub fn change(&mut self, change: Change, is_cut: bool) -> Option<()> {
        match change {
            Disconnect(c) => {
                self.cuts = self.cuts.checked_sub(1)?;
                self.forget_watches(c);
            }
            ProofEnds(c) => self.clients[c].is_proven = false,
            LeaseEnds(c) => (self.clients[c].is_live, self.clients[c].is_proven) = (false, false),
            NewSession(c) => {
                self.renewals = self.renewals.checked_sub(1).filter(|_| !self.clients[c].is_live)?;
                let session = (c, self.clients[c].session.1 + 1);
                self.clients[c] = Client { session, is_live: true, is_proven: true };
                self.forget_watches(c);
                self.sessions.insert(session);
            }
            // The two assumptions on time: not within the proven bound, and not within the lease unless the ensemble is cut.
            SessionEnds(session) => {
                let client = self.clients[session.0];
                let is_current = client.session == session;
                if is_current && (client.is_proven || client.is_live && !is_cut) { return None }
                if is_current { self.forget_watches(session.0) }
                self.end(session);
            }
            Close(c) => {
                let session = self.clients[c].session;
                if self.queue.iter().any(|node| node.2 == session) { return None }
                (self.clients[c].is_live, self.clients[c].is_proven) = (false, false);
                self.end(session);
            }
        }
        Some(())
    }

    pub fn create(&mut self, guid: Guid) -> (Node, Session) {
        let (node, owner) = (self.next_node, self.clients[guid.0].session);
        self.queue.push((node, guid, owner));
        self.next_node += 1;
        (node, owner)
    }

    pub fn has_node(&self, node: Node) -> bool { self.queue.iter().any(|of| of.0 == node) }

    /// The place in the queue of the node with a GUID.
    pub fn place(&self, guid: Guid) -> Option<usize> { self.queue.iter().position(|of| of.1 == guid) }

    /// Whether the session of a client lives at the servers.
    pub fn serves(&self, client: usize) -> bool { self.sessions.contains(&self.clients[client].session) }

    /// Deletes nodes, which fires their watches.
    pub fn delete(&mut self, is_gone: impl Fn(&(Node, Guid, Session)) -> bool) {
        let gone: Vec<_> = self.queue.extract_if(.., |node| is_gone(node)).map(|node| node.0).collect();
        self.events.extend(self.watches.extract_if(.., |(_, node)| gone.contains(node)).map(|(guid, _)| guid));
    }

    fn end(&mut self, session: Session) {
        self.sessions.remove(&session);
        self.delete(|node| node.2 == session);
    }

    fn forget_watches(&mut self, client: usize) {
        self.watches.retain(|(guid, _)| guid.0 != client);
        self.events.retain(|guid| guid.0 != client);
    }
}
