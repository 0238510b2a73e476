//! What the processes do: one client each, and workers that go through their steps.

mod atomic;
mod barrier;
mod cache;
mod discovery;
mod double;
mod ensemble;
mod kept;
mod leader;
mod lock;
mod objects;
mod protected;
mod register;
mod session;
mod shared;
mod tree;
mod watch;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use docent::{Client, Config, WhenFull};
use tokio::sync::oneshot;

use crate::{
    calls::ClientNumber,
    history::What,
    plan::{ClientPlan, ProcessPlan, Step},
    plants,
    process::Pid,
    world::{MILLISECOND, World},
};

/// What a worker works with.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) world: World,
    pub(crate) pid: Pid,
    pub(crate) number: usize,
    pub(crate) client: Client,
    pub(crate) client_number: ClientNumber,
    stash: Arc<Mutex<Stash>>,
    /// What it shares with the other workers of its process.
    pub(crate) shared: Arc<objects::Shared>,
}

/// What a worker remembers from step to step.
#[derive(Default)]
pub(crate) struct Stash {
    /// Whether `/r` exists.
    has_parent: bool,
    /// The versions of registers that were seen last.
    versions: BTreeMap<u8, i32>,
    /// The watches that stay until the end.
    kept: Vec<watch::Watch>,
    shared: BTreeMap<u8, shared::Shared>,
    /// The caches that stay until the end.
    caches: Vec<cache::Cache>,
    /// The caches of services that stay until the end.
    finders: Vec<discovery::Finder>,
    /// The protected creates.
    protected: Vec<protected::Protected>,
    /// The tracker of the ensemble that stays until the end.
    tracking: Option<ensemble::Tracking>,
}

impl Worker {
    /// Adds to the history.
    pub(crate) fn say(&self, text: impl Into<String>) {
        let (pid, worker) = (self.pid, self.number);
        self.world.core().process_mut(pid).steps += 1;
        self.world.record(What::Worker { pid, worker, text: text.into() });
    }

    /// A rule was broken.
    #[allow(dead_code, reason = "comes with the workloads that have rules of their own")]
    pub(crate) fn violation(&self, text: &str) {
        let text = format!("p{}.{}: {text}", self.pid, self.number);
        self.world.record(What::Violation(text));
    }

    /// Waits, by the clock of the process.
    pub(crate) async fn sleep(&self, ms: u64) {
        self.world.sleep(self.pid, Duration::from_millis(ms)).await;
    }

    /// A future's output, or `None` if it took longer: it is dropped then.
    pub(crate) async fn within<F: Future>(&self, ms: u64, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep(ms) => None,
        }
    }

    /// What the worker remembers. No await while it is held.
    pub(crate) fn stash(&self) -> MutexGuard<'_, Stash> {
        self.stash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same worker with another client, and nothing to remember.
    pub(crate) fn with_client(&self, client: Client, waits_when_full: bool) -> Self {
        let client_number = self.world.calls().next_client(waits_when_full);
        Self { client, client_number, stash: Arc::default(), ..self.clone() }
    }

    async fn run(self, steps: Vec<Step>) {
        self.steps(steps).await;
        self.finish().await;
    }

    /// Judges the final state of the workloads, and drops it.
    async fn finish(&self) {
        watch::judge_kept(self).await;
        shared::judge(self).await;
        cache::judge_kept(self).await;
        discovery::judge_kept(self).await;
        protected::judge(self).await;
        ensemble::judge(self).await;
        let stash = std::mem::take(&mut *self.stash());
        drop(stash);
    }

    async fn steps(&self, steps: Vec<Step>) {
        for step in steps {
            // The session may be over for good: then nothing more can be done with this client.
            if self.client.ended().is_some() {
                return self.say("the client has ended");
            }
            plants::misbehave().await;
            match step {
                Step::Sleep { ms } => self.sleep(ms).await,
                Step::Lock(step) => lock::run(self, step).await,
                Step::Register(step) => register::run(self, &step).await,
                Step::Burst(steps) => register::burst(self, &steps).await,
                Step::Watch(step) => watch::run(self, &step).await,
                Step::Shared(step) => shared::run(self, &step).await,
                Step::Client(step) => session::run(self, &step).await,
                Step::Visit(step) => session::visit(self, &step).await,
                Step::Lead(step) => leader::run(self, &step).await,
                Step::Keep(step) => kept::run(self, &step).await,
                Step::Cache(step) => cache::run(self, &step).await,
                Step::Tree(steps) => tree::run(self, &steps).await,
                Step::Atomic(step) => atomic::run(self, &step).await,
                Step::Barrier(step) => barrier::run(self, &step).await,
                Step::Double(step) => double::run(self, &step).await,
                Step::Protected(step) => protected::run(self, &step).await,
                Step::Track { for_ms, stays } => ensemble::track(self, for_ms, stays).await,
                Step::Reconfigure { member, change } => {
                    ensemble::reconfigure(self, member, change).await;
                }
                Step::Serve(step) => discovery::serve(self, &step).await,
                Step::Find(step) => discovery::find(self, &step).await,
                Step::DeleteLeader { election } => leader::delete_leader(self, election).await,
                Step::DeleteKept { node } => kept::delete(self, node).await,
                Step::Revoke { lock } => lock::revoke(self, &lock).await,
                Step::DeleteNode { lock } => lock::delete_node(self, &lock).await,
                Step::SetCount { number, count } => lock::set_count(self, number, count).await,
            }
        }
    }
}

impl World {
    /// Starts each process of a plan at its time.
    pub(crate) fn plan_processes(&self, seed: u64, processes: &[ProcessPlan]) {
        for (pid, plan) in processes.iter().enumerate() {
            let started =
                self.start_process(plan.drift_ppm, seed ^ (pid as u64 + 1).rotate_left(48));
            assert_eq!(started, pid);
            let plan = plan.clone();
            self.at(plan.starts_at_ms * MILLISECOND, move |world| {
                if world.is_dead(pid) {
                    return;
                }
                // Everything of a process happens in its tasks, its first poll too.
                world.spawn(pid, main(world.clone(), pid, plan));
            });
        }
    }
}

/// The main task of a process.
async fn main(world: World, pid: Pid, plan: ProcessPlan) {
    let token = plan.resumes.and_then(|of| world.core().processes.get(of)?.token.clone());
    world.core().process_mut(pid).resumed =
        token.as_ref().map(docent::session::SessionToken::session_id);
    let client = config(&world, pid, &plan.client).with_session(token).start();
    session::follow(&world, pid, &client);
    let is_quiet = |step: &Step| matches!(step, Step::Lead(_) | Step::Keep(_) | Step::Sleep { .. });
    let plays = |step: &Step| matches!(step, Step::Lead(_) | Step::Keep(_));
    let steps = || plan.workers.iter().flatten();
    // No task more for other plans: it would change their histories.
    if steps().all(is_quiet) && steps().any(plays) {
        let renews =
            |step: &Step| matches!(step, Step::Lead(step) if step.options.renew_ms.is_some());
        let reconnects = steps().any(renews);
        let follow = leader::follow_requests(world.clone(), pid, client.downgrade(), reconnects);
        world.spawn(pid, follow);
    }
    let client_number = world.calls().next_client(plan.client.waits_when_full);
    let mut states = client.state();
    let watching = world.clone();
    world.spawn(pid, {
        let client = client.downgrade();
        async move {
            while states.changed().await.is_ok() {
                let state = *states.borrow_and_update();
                let text = state.map_or("ended".to_owned(), |state| format!("{state:?}"));
                watching.record(What::State(pid, text));
                let now = watching.now();
                watching.core().process_mut(pid).state_changed_at = now;
                let session = client.upgrade().and_then(|client| client.session_token());
                if let Some(session) = session {
                    let mut core = watching.core();
                    core.process_mut(pid).session = Some(session.session_id());
                    core.process_mut(pid).token = Some(session);
                }
            }
        }
    });
    let shared = Arc::new(objects::Shared::default());
    let mut workers = Vec::new();
    for (number, steps) in plan.workers.into_iter().enumerate() {
        let (world, client) = (world.clone(), client.clone());
        let (stash, shared) = (Arc::default(), Arc::clone(&shared));
        let worker = Worker { world, pid, number, client, client_number, stash, shared };
        let (done, is_done) = oneshot::channel();
        workers.push(is_done);
        worker.world.clone().spawn(pid, async move {
            worker.run(steps).await;
            let _ = done.send(());
        });
    }
    for worker in workers {
        let _ = worker.await;
    }
    let kept = shared.take_kept();
    shared.clear();
    if plan.client.is_dropped {
        drop(client);
    } else {
        session::close(&world, pid, &client).await;
    }
    drop(kept);
    world.core().process_mut(pid).is_finished = true;
    world.record(What::Finished(pid));
}

fn config(world: &World, pid: Pid, plan: &ClientPlan) -> Config {
    let servers: Vec<_> = (0..world.core().servers.count).map(|at| format!("s{at}:2181")).collect();
    let config = Config::new(&servers.join(",")).expect("a valid connect string");
    let mut config = config
        .with_runtime(world.runtime(pid))
        .with_session_timeout(Duration::from_millis(plan.session_timeout_ms))
        .with_request_timeout(plan.request_timeout_ms.map(Duration::from_millis))
        .expect("a valid timeout")
        .with_read_only(plan.read_only)
        .with_direct_servers(plan.direct_servers);
    if let Some(limit) = plan.max_requests {
        config = config.with_max_requests(limit).expect("a valid limit");
    }
    if let Some(bytes) = plan.max_pending_bytes {
        config = config.with_max_pending_bytes(bytes).expect("a valid limit");
    }
    if let Some(bytes) = plan.max_request_bytes {
        config = config.with_max_request_bytes(bytes).expect("a valid limit");
    }
    if let Some(events) = plan.max_watch_events {
        config = config.with_max_watch_events(events);
    }
    if let Some(ms) = plan.connection_timeout_ms {
        config = config.with_connection_timeout(Duration::from_millis(ms));
    }
    if plan.waits_when_full {
        config = config.with_when_full(WhenFull::Wait);
    }
    config
}
