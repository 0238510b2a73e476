//! `StrictMutex`: its holder names itself in a record, and renews its claim; a rival waits for the claim of a holder whose
//! node is gone. The head of recipes/src/locks/strict/mod.rs has the rules, `strict/take.rs` the steps.
//!
//! Time is counted here, in units of true time. A claim lasts at most `claim` of them, on the slowest clock; a rival waits
//! at least as long, on the fastest. Nothing else is assumed: nodes may be deleted at any time, messages take any time. Of
//! the queue of `lock_internals.rs` only this is left: a contender acts once no older node is there.

use std::collections::BTreeSet;

use stateright::{Model, Property};

pub use self::{Action::*, Step::*};

pub type Node = u8; // by the zxid of its creation, which is the fencing token

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Step {
    #[default]
    Idle,
    ReadRecord,         // 1. read the record
    WaitForNode(Node),  // 2. it names a holder: wait until its node is gone
    WaitForClaim(u8),   // 3. then wait for its claim: the time left
    NameItself,         // 4. or 5. name the own node in the record, or renew the claim if it is named already
    Held,               // the claim is renewed by a write that checks the node and the record
}

/// A write in flight, which checks that the own node is there and that the record has a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Write {
    pub left: u8,                // of the claim, which counts from the send
    pub version: u8,
    pub is_applied: Option<bool>, // by the reply
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Client {
    pub step: Step,
    pub node: Option<Node>,
    pub read: u8,                    // that of the record, when it was read or named this client
    pub waited_out: Option<u8>     , // the record whose holder was waited for
    pub write: Option<Write>,
    pub claim: u8,                   // the time left until the end of the hold
    pub has_ended: bool,             // it was 0 once, and its holder has stopped
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub clients: Vec<Client>,
    pub nodes: BTreeSet<Node>,
    pub zxid: Node,
    pub version: u8,
    pub holder: Option<Node>, // in the record, until it releases
    pub tokens: Vec<Node>,    // of all holders, in their order
    pub time: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Acquire(usize),     // creates a lock node
    Read(usize),        // 1. while no older node is there
    NodeGone(usize),    // 2. sees that the holder's node is gone
    WaitedOut(usize),   // 3. the wait is over
    Send(usize),        // 4. or 5., or a renewal
    Apply(usize),       // the servers apply the write, or refuse it
    Hear(usize),        // the reply
    Lose(usize),        // the write or its reply is lost
    Release(usize),     // deletes the node and frees the record, in one transaction
    DeleteNode(usize),  // the session ends, or somebody deletes the node
    TimePasses,
}

/// The bounds, and the mistake that the invariants must show.
#[derive(Debug, Clone, Default)]
pub struct StrictMutex {
    pub clients: usize,
    pub acquires: u8,
    pub time: u16,
    pub claim: u8, // the duration of a claim, and of the wait for it
    pub mistake: &'static str,
}

impl Model for StrictMutex {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { clients: vec![Client::default(); self.clients], ..State::default() }]
    }
    fn actions(&self, _: &State, all: &mut Vec<Action>) {
        let of = [Acquire, Read, NodeGone, WaitedOut, Send, Apply, Hear, Lose, Release, DeleteNode];
        all.extend((0..self.clients).flat_map(|c| of.map(|action| action(c))).chain([TimePasses]));
    }

    /// `None`: the action is not possible now.
    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        let State { clients, nodes, zxid, version, holder, tokens, time } = &mut s;
        match action {
            Acquire(c) => {
                // Also once the own node is gone before the lock was acquired.
                let has_node = clients[c].node.is_some_and(|node| nodes.contains(&node));
                if has_node || clients[c].step == Held || *zxid >= self.acquires { return None }
                *zxid += 1;
                nodes.insert(*zxid);
                clients[c] = Client { step: ReadRecord, node: Some(*zxid), ..Client::default() };
            }
            Read(c) => {
                let client = &mut clients[c];
                if client.step != ReadRecord { return None }
                let is_behind = nodes.first().is_some_and(|first| Some(*first) < client.node);
                if is_behind && self.mistake != "acts out of turn" { return None }
                client.read = *version;
                client.step = match *holder {
                    Some(node) if client.node != Some(node) && client.waited_out != Some(*version) => WaitForNode(node),
                    _ => NameItself,
                };
            }
            NodeGone(c) => {
                let WaitForNode(node) = clients[c].step else { return None };
                if nodes.contains(&node) { return None }
                clients[c].step = WaitForClaim(if self.mistake == "waits for half of the claim" { self.claim / 2 } else { self.claim });
            }
            WaitedOut(c) => {
                if clients[c].step != WaitForClaim(0) { return None }
                (clients[c].waited_out, clients[c].step) = (Some(clients[c].read), NameItself);
            }
            Send(c) => {
                let client = &mut clients[c];
                if !matches!(client.step, NameItself | Held) || client.write.is_some() { return None }
                client.write = Some(Write { left: self.claim, version: client.read, is_applied: None });
            }
            Apply(c) => {
                let client = &mut clients[c];
                let write = client.write.as_mut().filter(|write| write.is_applied.is_none())?;
                let has_node = client.node.is_some_and(|node| nodes.contains(&node)) || self.mistake == "renews without its node";
                let is_applied = has_node && write.version == *version;
                write.is_applied = Some(is_applied);
                if is_applied && *holder != client.node {
                    (*version, *holder) = (*version + 1, client.node);
                    write.version = *version;
                    tokens.extend(client.node);
                }
            }
            Hear(c) => {
                let client = &mut clients[c];
                let Write { left, version, is_applied } = client.write.take()?;
                let left = if self.mistake == "counts the claim from the reply" { self.claim } else { left };
                let is_valid = is_applied? && left > 0;
                client.step = match client.step {
                    NameItself if is_valid => {
                        (client.claim, client.read) = (left, version);
                        Held
                    }
                    NameItself => ReadRecord,
                    step => {
                        let is_kept = client.has_ended && self.mistake != "renews a claim that has ended" || self.mistake == "renews nothing";
                        if is_valid && !is_kept { client.claim = client.claim.max(left); }
                        step
                    }
                };
            }
            Lose(c) => {
                clients[c].write.take()?;
                if clients[c].step == NameItself { clients[c].step = ReadRecord; }
            }
            Release(c) => {
                if clients[c].step != Held { return None }
                let client = std::mem::take(&mut clients[c]);
                let is_applied = nodes.remove(&client.node?) && *version == client.read;
                if is_applied { (*version, *holder) = (*version + 1, None); }
            }
            DeleteNode(c) => if !nodes.remove(&clients[c].node?) { return None },
            TimePasses => {
                *time = Some(*time + 1).filter(|time| *time <= self.time)?;
                for client in clients {
                    client.claim = client.claim.saturating_sub(1);
                    client.has_ended = client.step == Held && client.claim == 0;
                    if let Some(write) = &mut client.write { write.left = write.left.saturating_sub(1); }
                    if let WaitForClaim(left) = &mut client.step { *left = left.saturating_sub(1); }
                }
            }
        }
        Some(s)
    }
    fn properties(&self) -> Vec<Property<Self>> {
        let rules = INVARIANTS.iter().map(|(words, formula)| Property::always(words, *formula));
        rules.chain([Property::sometimes("a lost holder is waited out", |_, s: &State| {
            s.clients.iter().any(|client| client.step == Held && client.waited_out.is_some())
        })]).collect()
    }
}

/// What holds in every state, in words and as a formula.
pub const INVARIANTS: [crate::Invariant<StrictMutex, State>; 4] = [
    // Whatever becomes of sessions, nodes and messages.
    ("at most one client holds within its claim", |_, s| s.clients.iter().filter(|of| of.step == Held && of.claim > 0).count() <= 1),
    ("a claim that has ended does not begin again", |_, s| s.clients.iter().all(|of| !of.has_ended || of.claim == 0)),
    ("fencing tokens rise from holder to holder", |_, s| s.tokens.is_sorted_by(|one, next| one < next)),
    ("the record names the last holder, or nobody", |_, s| s.holder.is_none() || s.holder.as_ref() == s.tokens.last()),
];
