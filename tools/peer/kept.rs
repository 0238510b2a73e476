//! Kept nodes and members of groups.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use docent::{
    CreateMode, Error, Events, GroupMember, NodeOptions, PersistentNode, PersistentTtlNode,
    nodes::NodeEvent,
};
use tokio::time::timeout;

use super::{Answer, Failure, Object, Peer, Reply, done, has, list, millis, say, text, token};

/// A create mode by its name on the command line, or by its Java name.
pub(super) fn mode(word: &str) -> Result<CreateMode, Failure> {
    Ok(match word {
        "persistent" | "PERSISTENT" => CreateMode::Persistent,
        "ephemeral" | "EPHEMERAL" => CreateMode::Ephemeral,
        "persistent-seq" | "PERSISTENT_SEQUENTIAL" => CreateMode::PersistentSequential,
        "ephemeral-seq" | "EPHEMERAL_SEQUENTIAL" => CreateMode::EphemeralSequential,
        "container" | "CONTAINER" => CreateMode::Container,
        _ => return Err(Failure::command(format!("{word} is no mode"))),
    })
}

/// Replies once a node exists, or its time limit has passed.
async fn wait(created: impl Future<Output = Result<(), Error>>, within: Duration) -> Answer {
    match timeout(within, created).await {
        Ok(created) => {
            created?;
            done()
        }
        Err(_) => Ok(None),
    }
}

async fn report_events(name: String, mut events: Events<NodeEvent>) {
    while let Some(event) = events.next().await {
        match event {
            NodeEvent::Created { path, .. } => say(&format!("! created {name} {path}")),
            NodeEvent::Lost => say(&format!("! lost {name}")),
            NodeEvent::Restored => say(&format!("! restored {name}")),
            NodeEvent::Conflict { owner } => say(&format!("! conflict {name} {owner:x}")),
            NodeEvent::Failed(error) => say(&format!("! failed {name} {:?}", error.kind())),
            _ => {}
        }
    }
}

/// A close that has begun.
type Closed = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A kept node of either kind.
#[derive(Clone)]
pub(super) enum Kept {
    Node(PersistentNode),
    Ttl(PersistentTtlNode),
}

/// Calls a method that both kinds of kept nodes have.
macro_rules! either {
    ($kept:expr, $node:ident => $call:expr) => {
        match $kept {
            Kept::Node($node) => $call,
            Kept::Ttl($node) => $call,
        }
    };
}

impl Kept {
    pub(super) fn start_node(peer: &Peer, args: &[&str]) -> Result<Self, Failure> {
        let [path, word, data, words @ ..] = args else {
            return Err(Failure::unknown("start", args));
        };
        let mut options = NodeOptions::default().with_lock_options(peer.leader_options.clone());
        if has(words, "protected") {
            options = options.with_protection();
        }
        if has(words, "noparents") {
            options = options.without_parents();
        }
        let node =
            PersistentNode::start_with(&peer.client, path, mode(word)?, text(data), options)?;
        Ok(Self::Node(node))
    }

    pub(super) fn start_ttl(peer: &Peer, args: &[&str]) -> Result<Self, Failure> {
        let [path, ttl, data] = args else {
            return Err(Failure::unknown("start", args));
        };
        let options = NodeOptions::default().with_lock_options(peer.leader_options.clone());
        let (ttl, data) = (millis(ttl)?, text(data));
        Ok(Self::Ttl(PersistentTtlNode::start_with(&peer.client, path, ttl, data, options)?))
    }

    async fn created(self) -> Result<(), Error> {
        either!(self, node => node.created().await).map(drop)
    }
}

pub(super) struct NodeObject {
    peer: Arc<Peer>,
    name: String,
    /// Starts a node of the object's kind.
    start: fn(&Peer, &[&str]) -> Result<Kept, Failure>,
    node: Option<Kept>,
}

impl NodeObject {
    pub(super) const fn new(
        peer: Arc<Peer>,
        name: String,
        start: fn(&Peer, &[&str]) -> Result<Kept, Failure>,
    ) -> Self {
        Self { peer, name, start, node: None }
    }
}

impl Object for NodeObject {
    async fn run(&mut self, verb: &str, args: &[&str]) -> Result<Reply, Failure> {
        if verb == "start" {
            let kept = (self.start)(&self.peer, args)?;
            let events = either!(&kept, node => node.events());
            tokio::spawn(report_events(self.name.clone(), events));
            self.node = Some(kept);
            return done().map(Reply::Now);
        }
        let kept = self.node.as_ref().ok_or_else(|| Failure::not_started(&self.name))?;
        let result = match (verb, args) {
            ("wait", [within]) => {
                let within = millis(within)?;
                return Ok(Reply::Later(Box::pin(wait(kept.clone().created(), within))));
            }
            ("set", [data]) => {
                either!(kept, node => node.set_data(text(data)));
                String::new()
            }
            ("data", []) => token(&either!(kept, node => node.data())),
            ("close", []) => {
                let closed = either!(kept, node => Box::pin(node.close()) as Closed);
                return Ok(Reply::Later(Box::pin(async move {
                    closed.await?;
                    done()
                })));
            }
            _ => return Err(Failure::unknown(verb, args)),
        };
        Ok(Reply::Now(Some(result)))
    }
}

pub(super) struct GroupObject {
    peer: Arc<Peer>,
    name: String,
    member: Option<GroupMember>,
}

impl GroupObject {
    pub(super) const fn new(peer: Arc<Peer>, name: String) -> Self {
        Self { peer, name, member: None }
    }
}

impl Object for GroupObject {
    async fn answer(&mut self, verb: &str, args: &[&str]) -> Answer {
        let Peer { client, leader_options, .. } = &*self.peer;
        if let ("join", [path, id, data @ ..]) = (verb, args) {
            let options = leader_options.clone();
            let data = data.first().map_or_else(|| "10.0.0.1".to_owned(), |data| text(data));
            let member = GroupMember::join_with(client, path, &text(id), data, options)?;
            tokio::spawn(report_losses(self.name.clone(), member.events()));
            self.member = Some(member);
            return done();
        }
        let member = self.member.as_ref().ok_or_else(|| Failure::not_started(&self.name))?;
        match (verb, args) {
            ("members", []) => {
                let members = member.current_members().await?;
                let members = members.iter().map(|(id, data)| format!("{id}={}", token(data)));
                Ok(Some(list(members)))
            }
            ("set", [data]) => {
                member.set_this_data(text(data));
                done()
            }
            ("leave", []) => {
                member.leave().await?;
                done()
            }
            _ => Err(Failure::unknown(verb, args)),
        }
    }
}

async fn report_losses(name: String, mut events: Events<NodeEvent>) {
    while let Some(event) = events.next().await {
        if let NodeEvent::Lost = event {
            say(&format!("! lost {name}"));
        }
    }
}
