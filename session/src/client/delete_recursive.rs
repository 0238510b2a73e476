//! Deletes a node with its descendants.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

use docent_protocol::OpCode;

use super::{
    arguments::check,
    children::Children,
    client::Client,
    response::{Call, Response},
};
use crate::{Error, ErrorKind};

/// The largest number of requests in flight.
const WINDOW: usize = 256;

/// How often the children of one node are listed again because others were created meanwhile.
const MAX_LISTINGS: u32 = 10;

impl Client {
    /// Deletes a node with all its descendants, whatever their versions. A node that does not exist is no error: neither
    /// the node itself nor a descendant that another client deletes meanwhile.
    ///
    /// Sends a delete (2) for the node. Where a delete fails with `NotEmpty`, sends getChildren (8), then deletes the
    /// children in the same way, then the node again. Up to 256 requests are in flight, or
    /// [`max_requests`](crate::Config::max_requests) if that is less. So a leaf takes one request, another node three.
    /// The memory needed grows with the number of nodes listed and not yet deleted: their names, not their paths.
    ///
    /// This is not atomic: other clients see a part of the tree meanwhile, and an error leaves a part of it. Children
    /// that other clients create meanwhile are deleted too. If a node gets new children each time that its children
    /// were deleted, ten times in a row, the call fails with `NotEmpty`.
    ///
    /// # Errors
    ///
    /// Those of [`delete`](Self::delete) and [`get_children`](Self::get_children), of any node of the tree: the error
    /// names the path. The first error ends the call; requests in flight take effect.
    ///
    /// * `BadArguments`: `/` and the server's own node `/zookeeper`, as paths of the server; nothing was sent. Servers
    ///   refuse their other nodes. Under a chroot, `/` is the node of the chroot, which is deleted.
    /// * `NoAuth`: a node with children may not be read, or its children may not be deleted.
    /// * `NotEmpty`: other clients create children again and again.
    /// * `ConnectionLoss` with [`Outcome::Unknown`](crate::Outcome::Unknown): the node of that path may have been
    ///   deleted. No request is repeated after it.
    /// * `TooManyRequests`: other calls have filled the queue.
    ///
    /// The call can be repeated after any error.
    ///
    /// # Cancel safety
    ///
    /// The requests are sent as the future is polled. If it is dropped, a part of the tree may have been deleted.
    ///
    /// # Example
    ///
    /// ```
    /// # extern crate docent_session as docent;
    /// use docent::CreateOptions;
    /// # use docent_protocol::CreateMode;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = docent_testing::TestingServer::start().await?;
    /// # let client = docent_session::Client::connect(&server.connect_string()).await?;
    /// let options = CreateOptions::new(CreateMode::Ephemeral).with_parents();
    /// client.create("/app/workers/one", b"", options).await?;
    /// client.delete_recursive("/app").await?;
    /// assert!(client.exists("/app").await?.is_none());
    /// # client.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Source: Curator's `deletingChildrenIfNeeded`, `ZKPaths.deleteChildren`; `ZKUtil.deleteRecursive`, which lists the
    /// whole tree first.
    pub fn delete_recursive<'a>(&'a self, path: &'a str) -> Call<'a, ()> {
        Call::new(self.runtime(), OpCode::Delete, path, self.delete_tree(path))
    }

    async fn delete_tree(&self, path: &str) -> Result<(), Error> {
        check(path).map_err(|error| error.with_operation(OpCode::Delete, path))?;
        let server_path = self.chroot.prefix(path);
        if matches!(&*server_path, "/" | "/zookeeper") {
            let text = format_args!("{server_path} belongs to the server and cannot be deleted");
            let error = Error::refused(ErrorKind::BadArguments, text);
            return Err(error.with_operation(OpCode::Delete, path));
        }
        let window = WINDOW.min(self.handle.config.max_requests());
        let mut tree = Tree::new(path);
        // The replies come in the order of the requests.
        let mut in_flight = VecDeque::new();
        loop {
            while in_flight.len() < window
                && let Some((node, step)) = tree.unsent.pop()
            {
                let path = tree.path(node);
                in_flight.push_back((
                    node,
                    match step {
                        Step::Delete => Reply::Delete(self.delete(&path, None)),
                        Step::List => Reply::List(self.get_children(&path)),
                    },
                ));
            }
            let Some((node, mut reply)) = in_flight.pop_front() else { return Ok(()) };
            match poll_fn(|cx| reply.poll(cx)).await {
                Ok(None) => tree.deleted(node),
                Ok(Some(children)) => tree.listed(node, &children),
                Err(error) => match error.kind() {
                    ErrorKind::NoNode => tree.deleted(node),
                    ErrorKind::NotEmpty => tree.not_empty(node, error)?,
                    _ => return Err(error),
                },
            }
        }
    }
}

/// A reply in flight: nothing for a delete, the children for a listing.
enum Reply {
    Delete(Response<()>),
    List(Response<Children>),
}

impl Reply {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Children>, Error>> {
        match self {
            Self::Delete(response) => Pin::new(response).poll(cx).map_ok(|()| None),
            Self::List(response) => Pin::new(response).poll(cx).map_ok(Some),
        }
    }
}

/// The nodes that were found and not deleted, and the requests to send for them.
#[derive(Debug)]
struct Tree {
    root: String,
    /// By index; the free ones are for reuse. The root is the first.
    nodes: Vec<Node>,
    free: Vec<usize>,
    /// A stack: the nodes found last come first, so that few are open at a time.
    unsent: Vec<(usize, Step)>,
}

#[derive(Debug, Default)]
struct Node {
    /// The index of the parent; that of the root is unused.
    parent: usize,
    /// The name below the parent; empty for the root.
    name: Box<str>,
    /// The number of its children that are not deleted.
    children: usize,
    listings: u32,
}

/// The next request for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Delete,
    List,
}

const ROOT: usize = 0;

impl Tree {
    fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            nodes: vec![Node::default()],
            free: Vec::new(),
            unsent: vec![(ROOT, Step::Delete)],
        }
    }

    /// The client's path of a node. It is assembled for each request, because the paths of a deep tree are long.
    fn path(&self, node: usize) -> String {
        let mut names = Vec::new();
        let mut at = node;
        while at != ROOT
            && let Some(node) = self.nodes.get(at)
        {
            names.push(&*node.name);
            at = node.parent;
        }
        let mut path = if self.root == "/" { String::new() } else { self.root.clone() };
        for name in names.into_iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        if path.is_empty() { self.root.clone() } else { path }
    }

    /// The node is gone; its parent is deleted after its last child.
    fn deleted(&mut self, index: usize) {
        let Some(node) = self.nodes.get_mut(index).map(std::mem::take) else { return };
        if index == ROOT {
            return;
        }
        self.free.push(index);
        let Some(parent) = self.nodes.get_mut(node.parent) else { return };
        parent.children = parent.children.saturating_sub(1);
        if parent.children == 0 {
            self.unsent.push((node.parent, Step::Delete));
        }
    }

    /// The node has children that are not known.
    fn not_empty(&mut self, index: usize, error: Error) -> Result<(), Error> {
        let Some(node) = self.nodes.get_mut(index) else { return Ok(()) };
        if node.listings == MAX_LISTINGS {
            return Err(error);
        }
        node.listings += 1;
        self.unsent.push((index, Step::List));
        Ok(())
    }

    fn listed(&mut self, parent: usize, children: &Children) {
        for name in children.iter() {
            let node = Node { parent, name: name.into(), ..Node::default() };
            let index = match self.free.pop() {
                Some(index) => index,
                None => {
                    self.nodes.push(Node::default());
                    self.nodes.len() - 1
                }
            };
            if let Some(place) = self.nodes.get_mut(index) {
                *place = node;
            }
            self.unsent.push((index, Step::Delete));
        }
        match self.nodes.get_mut(parent) {
            // Other clients have deleted the children meanwhile.
            Some(_) if children.is_empty() => self.unsent.push((parent, Step::Delete)),
            Some(node) => node.children = children.len(),
            None => {}
        }
    }
}
