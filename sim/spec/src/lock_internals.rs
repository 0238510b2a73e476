//! `LockInternals`: the ten steps of docs/guide/src/lock-internals.md, as states and actions.
//!
//! An **attempt** is an acquire with one GUID, until its node is deleted, which may happen in the background. Time is not
//! counted: what may happen later may happen now. Step 4, the watch of a revocable node, is left out: it decides nothing.
//! `zookeeper.rs` has what servers and sessions do.

use std::collections::BTreeMap;

use stateright::{Model, Property};
pub use self::{Action::*, Reply::*, Step::*};
pub use crate::zookeeper::{Change, Client, Guid, Node, Session, ZooKeeper};

/// What an attempt sends next, or waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Step {
    #[default]
    Create,        // 1. create the lock node
    CreateParents, // 2. create the parents, if they are missing
    Search,        // 3. search for the node, if a reply was lost
    List,          // 5. list the queue; its reply decides (6)
    Held,          // 6. decide: the lock is held
    Watch(Node),   // 7. watch the node ahead
    Wait(Node),    // until 8. woken
    Leave,         // 9. leave the queue
    Release,       // 10. release
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reply { Created((Node, Session)), First, Behind(Node), NoNode, Done }

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Attempt {
    pub step: Step,
    pub owner: Option<Session>, // of the own node, once known
    pub claim: Option<Session>, // the session claimed before the last listing
    pub reply: Option<Reply>,
    pub is_created: bool,       // its create was applied
    pub is_given_up: bool,      // its node, if there is one, is only to be deleted
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub zookeeper: ZooKeeper,
    pub attempts: BTreeMap<Guid, Attempt>,
    pub left: Vec<u8>, // the attempts that each client may still begin
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Acquire(usize),       // a client begins an attempt
    Serve(Guid, Step),    // the servers apply the request of a step
    Hear(Guid),           // an attempt hears the reply, and goes on
    Woken(Guid),          // 8. woken, by an event, a change of the connection, or the deadline
    GiveUp(Guid),         // the deadline passes, an error ends the acquire, or its future is dropped
    LetGo(Guid),          // the holder releases, or drops its guard
    Happens(Change),      // to a connection, a clock or a session
}

/// The bounds of what may happen, and the mistake that the invariants must show.
#[derive(Debug, Clone, Default)]
pub struct LockInternals {
    pub clients: usize,
    pub attempts: u8, pub cuts: u8, pub renewals: u8,
    pub is_cut: bool, // the ensemble is cut, or somebody ends sessions by hand
    pub mistake: &'static str,
}

impl Model for LockInternals {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let zookeeper = ZooKeeper::new(self.clients, self.cuts, self.renewals);
        vec![State { zookeeper, left: vec![self.attempts; self.clients], ..State::default() }]
    }
    fn actions(&self, s: &State, all: &mut Vec<Action>) {
        let of_attempt = |g, step| [Serve(g, step), Serve(g, Create), Hear(g), Woken(g), GiveUp(g), LetGo(g)];
        all.extend((0..self.clients).map(Acquire));
        all.extend(s.attempts.iter().flat_map(|(guid, a)| of_attempt(*guid, a.step)));
        all.extend(s.zookeeper.changes().into_iter().map(Happens));
    }
    /// `None`: the action is not possible now.
    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Acquire(c) => {
                if s.attempts.iter().any(|(guid, a)| guid.0 == c && !a.is_given_up) { return None }
                s.left[c] = s.left[c].checked_sub(1)?;
                s.attempts.insert((c, s.left[c]), Attempt::default());
            }
            Serve(guid, step) => self.serve(&mut s, guid, step)?,
            Hear(guid) => if !self.hear(&mut s, guid)? { s.attempts.remove(&guid); },
            Woken(guid) => {
                let a = s.attempts.get_mut(&guid).filter(|a| matches!(a.step, Wait(_)))?;
                a.step = if self.mistake == "holds when woken" { Held } else { List };
                s.zookeeper.events.remove(&guid);
            }
            GiveUp(guid) => {
                let a = s.attempts.get_mut(&guid).filter(|a| !a.is_given_up && a.step != Held)?;
                a.step = if matches!(a.step, Create | Search) { Search } else { Leave };
                (a.is_given_up, a.reply) = (true, None);
                if a.step == Search && self.mistake == "gives up without a search" { s.attempts.remove(&guid); }
            }
            LetGo(guid) => {
                let a = s.attempts.get_mut(&guid).filter(|a| a.step == Held)?;
                (a.is_given_up, a.step) = (true, Release);
            }
            Happens(change) => {
                s.zookeeper.change(change, self.is_cut)?;
                if let Change::Disconnect(c) | Change::NewSession(c) = change {
                    for (_, a) in s.attempts.iter_mut().filter(|(guid, _)| guid.0 == c) {
                        a.reply = a.reply.filter(|_| change == Change::NewSession(c)); // heard late
                        a.step = match a.step { Create if a.reply.is_none() => Search, Wait(_) => List, step => step };
                    }
                    if self.mistake == "deletes only once" { s.attempts.retain(|_, a| a.step != Release) }
                }
            }
        }
        Some(s)
    }
    fn properties(&self) -> Vec<Property<Self>> {
        let is_over = |_: &Self, s: &State| s.attempts.is_empty() && s.left.iter().all(|left| *left == 0);
        let always = INVARIANTS.iter().map(|(words, formula)| Property::always(words, *formula));
        always.chain([Property::sometimes("all attempts are over", is_over)]).collect()
    }
}
impl LockInternals {
    fn serve(&self, State { attempts, zookeeper, .. }: &mut State, guid: Guid, step: Step) -> Option<()> {
        let a = attempts.get_mut(&guid)?;
        // A create may arrive after its caller has given up, or its connection has broken.
        let is_late = a.step == Search && step == Create && !a.is_created;
        if a.reply.is_some() || !(a.step == step || is_late) || !zookeeper.serves(guid.0) { return None }
        let place = zookeeper.place(guid);
        let reply = match step {
            Create if !zookeeper.has_parents => NoNode,
            Create => { a.is_created = true; Created(zookeeper.create(guid)) }
            CreateParents => { zookeeper.has_parents = true; Done }
            Search => place.map_or(NoNode, |at| Created((zookeeper.queue[at].0, zookeeper.queue[at].2))),
            List if a.owner != Some(zookeeper.clients[guid.0].session) => return None,
            List => {
                a.claim = a.owner;
                match place { None => NoNode, Some(0) => First, Some(at) => Behind(zookeeper.queue[at - 1].0) }
            }
            Watch(ahead) if zookeeper.has_node(ahead) => { zookeeper.watches.insert((guid, ahead)); Done }
            Watch(_) => NoNode,
            Leave | Release => { zookeeper.delete(|node| node.1 == guid); Done }
            Wait(_) | Held => return None,
        };
        a.reply = Some(reply).filter(|_| !is_late);
        Some(())
    }
    /// Returns whether the attempt goes on.
    fn hear(&self, State { attempts, zookeeper, .. }: &mut State, guid: Guid) -> Option<bool> {
        let (a, Client { session, is_live, .. }) = (attempts.get_mut(&guid)?, zookeeper.clients[guid.0]);
        if self.mistake == "claims after the listing" { a.claim = Some(session) }
        a.step = match (a.step, a.reply.take()?) {
            (Create | Search, Created((_, owner))) => {
                (a.owner, a.is_given_up) = (Some(owner), a.is_given_up || owner != session);
                if a.is_given_up { Leave } else { List }
            }
            (Create, _) => CreateParents,
            (Search, _) if a.is_given_up => return Some(false),
            (CreateParents | Search, _) => Create,
            (List, First) if is_live && a.claim == Some(session) => Held,
            (List, Behind(ahead)) => Watch(ahead),
            // The own node is missing, or belongs to a session that is over.
            (List, NoNode) | (Watch(_), _) if a.owner != Some(session) || a.step == List => { a.is_given_up = true; Leave }
            (List, _) => List,
            (Watch(_), NoNode) if self.mistake == "holds when the node ahead is missing" => Held,
            (Watch(_), NoNode) if self.mistake != "waits for a missing node" => List,
            (Watch(ahead), _) => Wait(ahead),
            (Leave | Release, _) => return Some(false),
            (Wait(_) | Held, _) => return None,
        };
        Some(true)
    }
}
impl State {
    /// The attempts that hold the lock, as their clients believe: within the proven bound, or within the lease.
    pub fn holders(&self, proven: bool) -> impl Iterator<Item = &Guid> {
        let believes = move |client: Client| if proven { client.is_proven } else { client.is_live };
        let claims = move |c: usize| Some(self.zookeeper.clients[c].session).filter(|_| believes(self.zookeeper.clients[c]));
        self.attempts.iter().filter(move |(guid, a)| a.step == Held && a.claim == claims(guid.0)).map(|(guid, _)| guid)
    }
}
/// What holds in every state, in words and as a formula.
pub const INVARIANTS: [crate::Invariant<LockInternals, State>; 6] = [
    ("at most one client holds within its proven bound", |_, s| s.holders(true).count() <= 1),
    ("at most one client holds, unless the ensemble is cut", |model, s| model.is_cut || s.holders(false).count() <= 1),
    ("a proven holder has the first node of the queue", |_, s| s.holders(true).all(|of| s.zookeeper.place(*of) == Some(0))),
    ("the queue is in the order of the numbers", |_, s| s.zookeeper.queue.is_sorted()),
    // So each node that is released, or whose acquire has failed, is deleted at last.
    ("each node has an attempt that will delete it, or its session is over", |_, s| {
        let lives = |owner: Session| Some(&s.zookeeper.clients[owner.0]).is_some_and(|of| of.session == owner && of.is_live);
        s.zookeeper.queue.iter().all(|(_, guid, owner)| s.attempts.contains_key(guid) || !lives(*owner))
    }),
    ("nobody waits for a node that is gone, unless an event is on its way or the session is over", |_, s| {
        let is_woken = |guid: &Guid| s.zookeeper.events.contains(guid) || !s.zookeeper.serves(guid.0);
        s.attempts.iter().all(|(guid, a)| !matches!(a.step, Wait(node) if !s.zookeeper.has_node(node)) || is_woken(guid))
    }),
];
