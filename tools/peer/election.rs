//! Latches and selectors.

use std::{
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use docent::{
    ErrorKind, Events, LeaderLatch, LeaderSelector, Leadership,
    leader::{CloseMode, LeadershipChange, Participant},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{
    Answer, Failure, Object, Peer, Reply, done, has, list, lock, millis, say, text, token,
};

/// `N id...`; the leader's ID begins with `*`.
fn ids(participants: &[Participant]) -> String {
    list(participants.iter().map(|participant| {
        let id = token(participant.id.as_bytes());
        if participant.is_leader { format!("*{id}") } else { id }
    }))
}

fn who(leader: Option<Participant>) -> String {
    leader.map_or_else(|| "none".to_owned(), |leader| token(leader.id.as_bytes()))
}

pub(super) struct LatchObject {
    peer: Arc<Peer>,
    name: String,
    latch: Option<LeaderLatch>,
    closing: Arc<AtomicBool>,
    has_waited_to_join: bool,
}

/// How long a question about a latch waits until it has joined the queue: a driver asks right after the start.
const JOIN_LIMIT: Duration = Duration::from_secs(2);

impl LatchObject {
    pub(super) fn new(peer: Arc<Peer>, name: String) -> Self {
        Self { peer, name, latch: None, closing: Arc::default(), has_waited_to_join: false }
    }

    fn start(&mut self, path: &str, id: &str, options: &[&str]) -> Answer {
        let slow = options.iter().find_map(|option| option.strip_prefix("slow="));
        let slow = slow.map(millis).transpose()?.unwrap_or_default();
        let mode = if has(options, "notify") { CloseMode::NotifyLeader } else { CloseMode::Silent };
        let leader_options = self.peer.leader_options().with_close_mode(mode);
        let latch = LeaderLatch::start_with(&self.peer.client, path, &text(id), leader_options)?;
        self.closing = Arc::default();
        let closing = Arc::clone(&self.closing);
        tokio::spawn(report_changes(self.name.clone(), latch.changes(), slow, closing));
        (self.latch, self.has_waited_to_join) = (Some(latch), false);
        done()
    }

    /// Waits, once and for a limited time, until the latch leads, waits behind another participant, or has failed.
    async fn wait_to_join(&mut self) {
        let Some(latch) = self.latch.as_ref().filter(|_| !self.has_waited_to_join) else { return };
        let joined = async {
            while latch.node_ahead().is_none() {
                if timeout(Duration::from_millis(5), latch.leadership()).await.is_ok() {
                    return;
                }
            }
        };
        let _ = timeout(JOIN_LIMIT, joined).await;
        self.has_waited_to_join = true;
    }
}

impl Object for LatchObject {
    async fn run(&mut self, verb: &str, args: &[&str]) -> Result<Reply, Failure> {
        let is_closing = self.closing.load(Ordering::Acquire);
        if !is_closing && !["start", "await", "close"].contains(&verb) {
            self.wait_to_join().await;
        }
        let name = &self.name;
        if let ("start", [path, id, options @ ..]) = (verb, args) {
            return self.start(path, id, options).map(Reply::Now);
        }
        let latch = self.latch.as_ref().ok_or_else(|| Failure::not_started(name))?;
        let result = match (verb, args) {
            ("await", wait) => {
                let wait = wait.first().map(|wait| millis(wait)).transpose()?;
                let latch = latch.clone();
                return Ok(Reply::Later(Box::pin(wait_for_leadership(latch, wait))));
            }
            ("leader?", []) => latch.current_leadership().is_some().to_string(),
            ("token", []) => match latch.current_leadership() {
                Some(leadership) => leadership.fencing_token().await?.to_string(),
                None => return Err(Failure("Lost".to_owned(), format!("{name} does not lead"))),
            },
            ("participants", []) => ids(&latch.participants().await?),
            ("who", []) => who(latch.leader().await?),
            ("path", []) => latch.our_path().unwrap_or_else(|| "null".to_owned()),
            ("close", mode) => {
                self.closing.store(true, Ordering::Release);
                let closed = match mode.first().copied() {
                    None => Box::pin(latch.close()) as Pin<Box<dyn Future<Output = _> + Send>>,
                    Some("notify") => Box::pin(latch.close_with(CloseMode::NotifyLeader)),
                    Some(other) => {
                        return Err(Failure::command(format!("{other} is no close mode")));
                    }
                };
                let name = name.clone();
                return Ok(Reply::Later(Box::pin(async move {
                    // The participation is over even after an error: a background task retries the delete.
                    if let Err(error) = closed.await {
                        eprintln!("recipe_peer: {name}: {error}");
                    }
                    done()
                })));
            }
            _ => return Err(Failure::unknown(verb, args)),
        };
        Ok(Reply::Now(Some(result)))
    }
}

async fn wait_for_leadership(latch: LeaderLatch, wait: Option<Duration>) -> Answer {
    let Some(wait) = wait else {
        latch.leadership().await?;
        return done();
    };
    match timeout(wait, latch.leadership()).await {
        Ok(Ok(_)) => done(),
        // A close during a wait with a time limit is no error, as in Curator.
        Ok(Err(error)) if error.kind() == ErrorKind::Closed => Ok(None),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

async fn report_changes(
    name: String,
    mut changes: Events<LeadershipChange>,
    slow: Duration,
    closing: Arc<AtomicBool>,
) {
    while let Some(change) = changes.next().await {
        match change {
            LeadershipChange::Leader(_) => {
                say(&format!("! leader {name}"));
                tokio::time::sleep(slow).await;
            }
            LeadershipChange::NotLeader => {
                if !closing.load(Ordering::Acquire) {
                    say(&format!("! lost {name}"));
                }
                say(&format!("! notleader {name}"));
            }
            _ => {}
        }
    }
}

/// How a command ends the running term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Return,
    Interrupt,
}

/// The state that the task of a selector and the commands share.
struct Terms {
    name: String,
    /// Ends the running term.
    end: watch::Sender<Option<oneshot::Sender<End>>>,
    count: AtomicU64,
    requeue: bool,
    /// Whether the participant is in the queue, or leads.
    queued: AtomicBool,
}

pub(super) struct SelectorObject {
    peer: Arc<Peer>,
    name: String,
    running: Option<Running>,
}

struct Running {
    selector: LeaderSelector,
    terms: Arc<Terms>,
    /// Each message queues the participant once.
    places: mpsc::UnboundedSender<()>,
    task: Mutex<Option<JoinHandle<()>>>,
    stop: watch::Sender<bool>,
}

impl SelectorObject {
    pub(super) const fn new(peer: Arc<Peer>, name: String) -> Self {
        Self { peer, name, running: None }
    }

    fn start(&mut self, path: &str, id: &str, options: &[&str]) -> Answer {
        let leader_options = self.peer.leader_options();
        let client = &self.peer.client;
        let selector = LeaderSelector::with_options(client, path, &text(id), leader_options)?;
        let terms = Arc::new(Terms {
            name: self.name.clone(),
            end: watch::Sender::new(None),
            count: AtomicU64::new(0),
            requeue: has(options, "requeue"),
            queued: AtomicBool::new(true),
        });
        let (places, queue) = mpsc::unbounded_channel();
        let _ = places.send(());
        let stop = watch::Sender::new(false);
        let task = run_terms(selector.clone(), Arc::clone(&terms), queue, stop.subscribe());
        let task = Mutex::new(Some(tokio::spawn(task)));
        self.running = Some(Running { selector, terms, places, task, stop });
        done()
    }
}

impl Object for SelectorObject {
    async fn answer(&mut self, verb: &str, args: &[&str]) -> Answer {
        if let ("start", [path, id, options @ ..]) = (verb, args) {
            return self.start(path, id, options);
        }
        let running = self.running.as_ref().ok_or_else(|| Failure::not_started(&self.name))?;
        let Running { selector, terms, places, .. } = running;
        let result = match (verb, args) {
            ("yield", []) => return Ok(end_term(terms, End::Return).await),
            ("interrupt", []) => {
                let end = terms.end.send_replace(None);
                if let Some(end) = end {
                    let _ = end.send(End::Interrupt);
                }
                String::new()
            }
            ("requeue", []) => {
                let is_new = !terms.queued.swap(true, Ordering::AcqRel);
                if is_new {
                    let _ = places.send(());
                }
                is_new.to_string()
            }
            ("leader?", []) => selector.current_leadership().is_some().to_string(),
            ("participants", []) => ids(&selector.participants().await?),
            ("who", []) => who(selector.leader().await?),
            ("close", []) => {
                running.stop.send_replace(true);
                let task = lock(&running.task).take();
                if let Some(task) = task {
                    let _ = task.await;
                }
                String::new()
            }
            _ => return Err(Failure::unknown(verb, args)),
        };
        Ok(Some(result))
    }
}

/// Ends the running term. Returns `None` if none is running within two seconds.
async fn end_term(terms: &Terms, how: End) -> Option<String> {
    let mut running = terms.end.subscribe();
    let running = running.wait_for(Option::is_some);
    timeout(Duration::from_secs(2), running).await.ok()?.ok()?;
    terms.end.send_replace(None)?.send(how).ok()?;
    Some(String::new())
}

/// Runs the terms of a selector until it is stopped.
async fn run_terms(
    selector: LeaderSelector,
    terms: Arc<Terms>,
    mut places: mpsc::UnboundedReceiver<()>,
    mut stop: watch::Receiver<bool>,
) {
    let run = async {
        while places.recv().await.is_some() {
            let term = |leadership| {
                let terms = Arc::clone(&terms);
                async move {
                    lead(&terms, leadership).await;
                    if terms.requeue { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                }
            };
            let result = if terms.requeue {
                selector.run_requeued(term).await
            } else {
                selector.run(term).await.map(drop)
            };
            if let Err(error) = result {
                say(&format!("! unhandled {:?}", error.kind()));
            }
            terms.queued.store(false, Ordering::Release);
        }
    };
    tokio::select! {
        () = run => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Runs one term. It ends by a command, or is dropped when the leadership ends.
async fn lead(terms: &Terms, leadership: Leadership) {
    let number = terms.count.fetch_add(1, Ordering::AcqRel) + 1;
    let (end, ended) = oneshot::channel();
    let mut report = ReportEnd { terms, number, leadership, how: None };
    terms.end.send_replace(Some(end));
    say(&format!("! lead {} {number}", terms.name));
    report.how = Some(ended.await.unwrap_or(End::Interrupt));
    // The participant may be queued again as soon as its term ends.
    terms.queued.store(terms.requeue, Ordering::Release);
}

/// Reports the end of a term, however it ends.
struct ReportEnd<'a> {
    terms: &'a Terms,
    number: u64,
    leadership: Leadership,
    how: Option<End>,
}

impl Drop for ReportEnd<'_> {
    fn drop(&mut self) {
        self.terms.end.send_replace(None);
        let (name, number) = (&self.terms.name, self.number);
        let how = match self.how {
            Some(End::Return) => "returned",
            Some(End::Interrupt) | None => "interrupted",
        };
        if self.how.is_none() && !self.leadership.is_held() {
            say(&format!("! lost {name}"));
        }
        say(&format!("! lead-end {name} {number} {how}"));
    }
}
