//! A place in the queue of an election: steps 3 to 7 of [`participation`](super::participation).

use std::{
    future::{Future, pending},
    pin::pin,
    sync::Arc,
};

use docent_protocol::EventType;
use docent_session::{Children, ErrorKind, Watcher, retry::RetryLoop, session::SessionClaim};
use tokio::sync::watch;
use tracing::trace;

use super::{
    leadership::Leadership,
    options::ConnectionStateErrorPolicy,
    state::{LOCK_NAME, Participation, Status},
};
use crate::{
    error,
    locks::{
        hold::{Acquired, Hold, Releaser, seconds_left},
        node_watch::{NodeIdentity, NodeState},
        renewal,
        standard_lock_internals_driver::{
            PredicateError, PredicateResults, gets_the_lock, sorted_contenders,
        },
    },
    node_task::Stop,
    path::join,
    planted,
    protection::OurNode,
    select::{Either, select},
    state_changes::Connection,
};

/// Our place in the queue, of which the node is the proof. Dropped in this order: the leadership ends before the node is
/// deleted.
pub(super) struct Place<'a> {
    pub(super) leading: Option<Leading<'a>>,
    /// The watch of the node ahead.
    pub(super) ahead: Option<Watcher>,
    pub(super) ours: OurNode<'a>,
    election: &'a Participation,
    connection: Connection,
    has_led: bool,
    /// Whether the event of our node's deletion has arrived.
    pub(super) is_missing: bool,
}

/// Where a listing shows our node.
enum Position {
    /// At the front, with a claim made before the listing.
    First(SessionClaim),
    /// Behind the node of this path.
    Behind(String),
}

impl<'a> Place<'a> {
    pub(super) const fn new(
        election: &'a Participation,
        ours: OurNode<'a>,
        connection: Connection,
    ) -> Self {
        Self {
            leading: None,
            ahead: None,
            ours,
            election,
            connection,
            has_led: false,
            is_missing: false,
        }
    }

    /// Waits for the leadership, and leads, until the place is lost.
    pub(super) async fn keep(&mut self) -> Stop {
        let stop = loop {
            if let Err(stop) = self.turn().await {
                break stop;
            }
        };
        self.leading = None;
        if !matches!(stop, Stop::Ended) {
            self.election
                .status
                .send_modify(|status| (status.path, status.node_ahead) = (None, None));
        }
        stop
    }

    /// Lists the queue, and waits until it has to be listed again.
    async fn turn(&mut self) -> Result<(), Stop> {
        let task = &self.election.task;
        let mut retry = RetryLoop::new(&task.client, &task.policy);
        match self.list(&mut retry).await? {
            Position::First(claim) => self.lead(&claim, retry).await,
            Position::Behind(path) => self.wait_behind(path, retry).await,
        }
    }

    async fn list(&mut self, retry: &mut RetryLoop<'_>) -> Result<Position, Stop> {
        let Participation { task, path, .. } = self.election;
        let (claim, children) = loop {
            step(&mut self.leading, task.connected(&mut self.connection)).await?;
            // Before the listing: later changes of the connection end what is claimed by it.
            let Ok(claim) = self.ours.claim() else {
                self.leading = None;
                self.look_after_session().await;
                return Err(Stop::Lost);
            };
            let list = task.client.get_children_with_stat(path);
            match step(&mut self.leading, list).await {
                Ok((children, _)) => break (claim, children),
                Err(error) if error.kind() == ErrorKind::NoNode => return Err(Stop::Lost),
                // A leadership that ends meanwhile is reported at once.
                Err(error) => step(&mut self.leading, retry.pause(error)).await?,
            }
        };
        let names = self.ours.without_duplicates(&children);
        let contenders = sorted_contenders(names.iter().copied(), LOCK_NAME);
        match gets_the_lock(&contenders, self.ours.name(), 1) {
            Ok(PredicateResults::GetsTheLock) => Ok(Position::First(claim)),
            Ok(PredicateResults::PathToWatch(name)) => Ok(Position::Behind(join(path, name))),
            Err(PredicateError::OurNodeMissing) => Err(Stop::Lost),
            Err(PredicateError::SequenceExhausted) => Err(error::sequence_exhausted(path).into()),
        }
    }

    /// Claims the leadership with a read of our node, and leads until the queue has to be listed again.
    async fn lead(&mut self, claim: &SessionClaim, mut retry: RetryLoop<'_>) -> Result<(), Stop> {
        let read = self.election.task.client.get_data_and_watch(self.ours.path());
        let (node, mut own) = match step(&mut self.leading, read).await {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::NoNode => return Err(Stop::Lost),
            // Unknown is not foreign: the place stays (L6).
            Err(error) => return Ok(step(&mut self.leading, retry.pause(error)).await?),
        };
        let identity = self.ours.identity();
        if !identity.matches(&node.stat) {
            return Err(Stop::Lost);
        }
        let czxid = node.stat.czxid;
        let is_led = |led: &Leading<'_>| led.czxid == czxid && led.leadership.is_held();
        if !self.leading.as_ref().is_some_and(is_led) {
            self.leading = None;
            self.leading = self.begin(NodeIdentity { czxid: Some(czxid), ..identity }, claim);
            if self.leading.is_none() {
                // The session or the connection has changed since the listing.
                unless_resigned(&self.election.status).await;
                return Ok(());
            }
            self.has_led = true;
            self.ahead = None;
        }
        let Some(leading) = &self.leading else { return Ok(()) };
        let deleted = async {
            if planted::is("own-node-unwatched") {
                pending::<()>().await;
            }
            own.next().await
        };
        // The event of the node; `None`: the connection has changed.
        let changed = async {
            match select(deleted, self.connection.next()).await {
                Either::Left(event) => event,
                Either::Right(_) => None,
            }
        };
        match select(changed, leading.leadership.ended()).await {
            Either::Left(Some(event)) if event.event_type == EventType::NodeDeleted => {
                leading.state.note_deletion(self.ours.path());
                self.is_missing = true;
                Err(Stop::Lost)
            }
            Either::Left(Some(_)) if planted::is("leader-leaves-when-written") => Err(Stop::Lost),
            // The node was written, or the connection has changed: look again.
            Either::Left(_) => Ok(()),
            Either::Right(()) => {
                take_back(&mut self.leading).await;
                Ok(())
            }
        }
    }

    /// Watches the node ahead, and waits for its event, or a change of the connection.
    async fn wait_behind(&mut self, path: String, mut retry: RetryLoop<'_>) -> Result<(), Stop> {
        self.leading = None;
        trace!(belief = "waits", ahead = path, path = self.ours.path(), "does not lead");
        let watcher = match self.election.task.client.get_data_and_watch(&path).await {
            Ok((_, watcher)) => watcher,
            // It was deleted after the listing.
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
            Err(error) => return Ok(retry.pause(error).await?),
        };
        // The old watch is dropped after the new one is set: one of the two sees the deletion.
        let watcher = self.ahead.insert(watcher);
        self.election.status.send_if_modified(|status| {
            let is_new = status.node_ahead.as_ref() != Some(&path);
            status.node_ahead = Some(path);
            is_new
        });
        select(watcher.next(), self.connection.next()).await;
        #[cfg(docent_sim)]
        planted::delay("leads-late", &self.election.task.client, 19).await;
        Ok(())
    }

    /// Begins to lead, if the session and, with the standard policy, the connection have not changed since the listing.
    fn begin(&self, node: NodeIdentity, claim: &SessionClaim) -> Option<Leading<'a>> {
        let Participation { task, options, status, .. } = self.election;
        let epoch = status.borrow().epoch + 1;
        let state = Arc::<NodeState>::default();
        let (path, czxid) = (node.path.clone(), node.czxid?);
        let node = if planted::is("token-of-old-term") && epoch > 1 {
            NodeIdentity { czxid: Some(czxid - 1), ..node }
        } else {
            node
        };
        let acquired = Acquired { node, claim: claim.clone(), state: Arc::clone(&state) };
        let releaser = Releaser::new(&task.client, &options.lock);
        let hold = Arc::new(Hold::new(releaser, acquired, Box::new(|_| {})));
        // The claim has set the watch.
        hold.set_watched();
        let ends_with_connection = options.error_policy == ConnectionStateErrorPolicy::Standard;
        if ends_with_connection && !planted::is("leader-outlives-connection") {
            hold.end_with_connection(self.connection.clone());
        }
        if !hold.is_held() {
            return None;
        }
        if let Some(every) = options.lock.proven_renewal {
            renewal::start(&hold, every, None);
        }
        let leadership = Leadership::new(hold, epoch);
        trace!(
            belief = "holds",
            left_s = seconds_left(claim, &task.client),
            path = self.ours.path(),
            "leads"
        );
        let is_published = status.send_if_modified(|status| {
            if status.resigns {
                return false;
            }
            status.leadership = Some(leadership.clone());
            status.epoch = epoch;
            status.node_ahead = None;
            status.last_path_is_leader = Some(path);
            true
        });
        if !is_published {
            leadership.end();
            return None;
        }
        Some(Leading { status, leadership, state, czxid })
    }

    /// Our session has ended, and with it the place. A leader looks at its node first, as Curator's does.
    async fn look_after_session(&self) {
        let Participation { task, path, .. } = self.election;
        if self.has_led
            && let Ok((children, _)) = task.client.get_children_with_stat(path).await
            && is_first(&children, self.ours.name())
        {
            // Only that the frames are Curator's: the node is of another session, whatever the reply is.
            let _ = task.client.get_data(self.ours.path()).await;
        }
    }
}

/// A leadership that the status shows. Dropping it ends it.
pub(super) struct Leading<'a> {
    status: &'a watch::Sender<Status>,
    leadership: Leadership,
    state: Arc<NodeState>,
    czxid: i64,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        // Its holders first, then the listeners; the delete follows.
        self.leadership.end();
        self.status.send_modify(|status| status.leadership = None);
    }
}

/// Waits for a step. A leadership that ends meanwhile is taken back at once.
async fn step<F: Future>(leading: &mut Option<Leading<'_>>, step: F) -> F::Output {
    let mut step = pin!(step);
    if let Some(leader) = leading {
        if let Either::Left(output) = select(step.as_mut(), leader.leadership.ended()).await {
            return output;
        }
        take_back(leading).await;
    }
    step.await
}

/// Takes back a leadership that has ended.
async fn take_back(leading: &mut Option<Leading<'_>>) {
    if let Some(leading) = leading {
        unless_resigned(leading.status).await;
    }
    *leading = None;
}

/// After the begin of a close, waits for the rest of that call, on whose end this future is dropped: nothing may be
/// sent but the delete, and the close says whether listeners are notified.
async fn unless_resigned(status: &watch::Sender<Status>) {
    if status.borrow().resigns {
        pending::<()>().await;
    }
}

fn is_first(children: &Children, name: &str) -> bool {
    sorted_contenders(children.iter(), LOCK_NAME).first().is_some_and(|first| first.name == name)
}
