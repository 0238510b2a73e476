//! Kept nodes and members of groups.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use docent::{
    CreateMode, Error, GroupMember, NodeEvent, NodeEvents, NodeOptions, PersistentNode,
    PersistentTtlNode, Ttl,
};
use tokio::time::timeout;

use super::{Answer, Failure, Object, Peer, Reply, done, has, millis, say, text, token};

fn not_started(name: &str) -> Failure {
    Failure("IllegalState".to_owned(), format!("{name} is not started"))
}

/// A mode of the command line.
pub(super) fn mode(word: &str) -> Result<CreateMode, Failure> {
    let ttl = |text| {
        let ttl = Ttl::from_duration(millis(text)?);
        ttl.ok_or_else(|| Failure::command(format!("{word}: a server takes no such time")))
    };
    Ok(match word {
        "persistent" => CreateMode::Persistent,
        "ephemeral" => CreateMode::Ephemeral,
        "persistent-seq" => CreateMode::PersistentSequential,
        "ephemeral-seq" => CreateMode::EphemeralSequential,
        "container" => CreateMode::Container,
        _ => match word.split_once('=') {
            Some(("ttl", text)) => CreateMode::PersistentWithTtl(ttl(text)?),
            Some(("ttl-seq", text)) => CreateMode::PersistentSequentialWithTtl(ttl(text)?),
            _ => return Err(Failure::command(format!("{word} is no mode"))),
        },
    })
}

/// Answers when a node is there, or its time is up.
async fn wait(created: impl Future<Output = Result<(), Error>>, within: Duration) -> Answer {
    match timeout(within, created).await {
        Ok(created) => {
            created?;
            done()
        }
        Err(_) => Ok(None),
    }
}

async fn report_events(name: String, mut events: NodeEvents) {
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

pub(super) struct PersistentNodeObject {
    peer: Arc<Peer>,
    name: String,
    node: Option<PersistentNode>,
}

impl PersistentNodeObject {
    pub(super) const fn new(peer: Arc<Peer>, name: String) -> Self {
        Self { peer, name, node: None }
    }

    async fn run(&mut self, verb: &str, args: &[String]) -> Result<Reply, Failure> {
        let Peer { client, lock_options, .. } = &*self.peer;
        if let ("start", [path, word, data, words @ ..]) = (verb, args) {
            let mut options = NodeOptions::default().with_lock_options(lock_options.clone());
            if has(words, "protected") {
                options = options.with_protection();
            }
            if has(words, "noparents") {
                options = options.without_parents();
            }
            let mode = mode(word)?;
            let node = PersistentNode::start_with(client, path, mode, text(data), options)?;
            tokio::spawn(report_events(self.name.clone(), node.events()));
            self.node = Some(node);
            return Ok(Reply::Now(done()));
        }
        let node = self.node.as_ref().ok_or_else(|| not_started(&self.name))?;
        let result = match (verb, args) {
            ("wait", [within]) => {
                let (node, within) = (node.clone(), millis(within)?);
                let created = async move { node.created().await.map(drop) };
                return Ok(Reply::Later(Box::pin(wait(created, within))));
            }
            ("set", [data]) => {
                node.set_data(text(data));
                String::new()
            }
            ("data", []) => token(&node.data()),
            ("path", []) => node.path().unwrap_or_else(|| "null".to_owned()),
            ("close", []) => {
                node.close().await?;
                String::new()
            }
            _ => return Err(Failure::command(format!("pnode {verb} with {args:?}"))),
        };
        Ok(Reply::Now(Ok(Some(result))))
    }
}

pub(super) struct TtlNodeObject {
    peer: Arc<Peer>,
    name: String,
    node: Option<PersistentTtlNode>,
}

impl TtlNodeObject {
    pub(super) const fn new(peer: Arc<Peer>, name: String) -> Self {
        Self { peer, name, node: None }
    }

    async fn run(&mut self, verb: &str, args: &[String]) -> Result<Reply, Failure> {
        let Peer { client, lock_options, .. } = &*self.peer;
        if let ("start", [path, ttl, data]) = (verb, args) {
            let options = NodeOptions::default().with_lock_options(lock_options.clone());
            let ttl = millis(ttl)?;
            let node = PersistentTtlNode::start_with(client, path, ttl, text(data), options)?;
            tokio::spawn(report_events(self.name.clone(), node.events()));
            self.node = Some(node);
            return Ok(Reply::Now(done()));
        }
        let node = self.node.as_ref().ok_or_else(|| not_started(&self.name))?;
        let result = match (verb, args) {
            ("wait", [within]) => {
                let (node, within) = (node.clone(), millis(within)?);
                let created = async move { node.created().await.map(drop) };
                return Ok(Reply::Later(Box::pin(wait(created, within))));
            }
            ("set", [data]) => {
                node.set_data(text(data));
                String::new()
            }
            ("data", []) => token(&node.data()),
            ("close", []) => {
                node.close().await?;
                String::new()
            }
            _ => return Err(Failure::command(format!("ttlnode {verb} with {args:?}"))),
        };
        Ok(Reply::Now(Ok(Some(result))))
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

    async fn run(&mut self, verb: &str, args: &[String]) -> Answer {
        let Peer { client, lock_options, .. } = &*self.peer;
        if let ("join", [path, id, data @ ..]) = (verb, args) {
            let options = lock_options.clone();
            let data = data.first().map_or_else(|| "10.0.0.1".to_owned(), |data| text(data));
            let member = GroupMember::join_with(client, path, &text(id), data, options)?;
            tokio::spawn(report_losses(self.name.clone(), member.events()));
            self.member = Some(member);
            return done();
        }
        let member = self.member.as_ref().ok_or_else(|| not_started(&self.name))?;
        match (verb, args) {
            ("members", []) => {
                let members = member.current_members().await?;
                let mut words = vec![members.len().to_string()];
                words.extend(members.iter().map(|(id, data)| format!("{id}={}", token(data))));
                Ok(Some(words.join(" ")))
            }
            ("set", [data]) => {
                member.set_this_data(text(data));
                done()
            }
            ("leave", []) => {
                member.leave().await?;
                done()
            }
            _ => Err(Failure::command(format!("group {verb} with {args:?}"))),
        }
    }
}

async fn report_losses(name: String, mut events: NodeEvents) {
    while let Some(event) = events.next().await {
        if let NodeEvent::Lost = event {
            say(&format!("! lost {name}"));
        }
    }
}

impl Object for PersistentNodeObject {
    fn command<'a>(
        &'a mut self,
        verb: &'a str,
        args: &'a [String],
    ) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(async move {
            self.run(verb, args).await.unwrap_or_else(|failure| Reply::Now(Err(failure)))
        })
    }
}

impl Object for TtlNodeObject {
    fn command<'a>(
        &'a mut self,
        verb: &'a str,
        args: &'a [String],
    ) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(async move {
            self.run(verb, args).await.unwrap_or_else(|failure| Reply::Now(Err(failure)))
        })
    }
}

impl Object for GroupObject {
    fn command<'a>(
        &'a mut self,
        verb: &'a str,
        args: &'a [String],
    ) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        Box::pin(async move { Reply::Now(self.run(verb, args).await) })
    }
}
