//! A worker of a process, as its steps see it.

use std::{
    any::{Any, TypeId},
    fmt::Display,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use docent::{Client, CreateMode, Error, ErrorKind, Outcome, Transaction};

use super::step::NeighbourStep;
use crate::{
    checks::{
        guarded::GuardedWrites,
        sessions::{MOVED, limited},
    },
    world::{
        World,
        history::What,
        time::{MILLISECOND, Nanos, Pid, SECOND},
    },
};

/// The beginnings of the paths that a neighbour touches. Other nodes are compared with what their recipe has written.
const TOUCHED: &[&str] = &[
    "/count-",
    "/mutex-",
    "/space-",
    "/semaphore-",
    "/counted-",
    "/read-write-",
    "/strict-",
    "/latch-",
    "/selector-",
    "/barriers/",
    "/double-",
    "/shared/",
    "/counters/",
];

/// The number of a client in the check of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientNumber {
    pub(super) number: u64,
    /// Whether requests may wait before they are queued, so that their order is not that of their calls.
    pub(super) waits_when_full: bool,
}

impl ClientNumber {
    pub(super) fn next(world: &World, waits_when_full: bool) -> Self {
        Self { number: world.next_number(), waits_when_full }
    }
}

/// A worker of a process.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(super) world: World,
    pub(super) pid: Pid,
    pub(super) number: usize,
    pub(super) client: Client,
    pub(super) client_number: ClientNumber,
    /// The memory of one worker, from step to step.
    pub(super) memory: Memory,
    /// The memory that the workers of a process share, until they are done.
    pub(super) shared: Memory,
    /// Objects that live until its process ends.
    pub(super) kept: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
}

impl Worker {
    /// Adds to the history.
    pub(super) fn say(&self, text: impl Into<String>) {
        let (pid, worker) = (self.pid, self.number);
        self.world.core().process_mut(pid).steps += 1;
        self.world.record(What::Worker { pid, worker, text: text.into() });
    }

    /// Adds a call that has failed to the history. A fault must explain it.
    pub(super) fn fails(&self, what: impl Display, error: &Error) {
        self.say(format!("{what}: {error}"));
        self.explain(error.kind());
    }

    /// Reports a call that has ended with an error which nothing explains.
    pub(super) fn explain_end<T>(&self, ended: Option<&Result<T, Error>>) {
        if let Some(Err(error)) = ended {
            self.explain(error.kind());
        }
    }

    /// Reports an error that nothing explains. In a scope, what it is about has not happened then.
    pub(super) fn explain(&self, kind: ErrorKind) {
        let has_ended = self.client.ended().is_some();
        let (now, session) = (self.world.now(), self.session_id().unwrap_or(0));
        let core = self.world.core();
        if core.explains(self.pid, has_ended, kind, now) {
            return;
        }
        let is_moved = core.director.is_none()
            && matches!(kind, ErrorKind::ConnectionLoss | ErrorKind::SessionMoved)
            && core.disturbances.has_moved(session, now);
        let longest = u128::from(core.longest_round_trip());
        let limit = self.client.config().request_timeout();
        let is_slow = kind == ErrorKind::OperationTimeout
            && limit.is_some_and(|limit| limit.as_nanos() < longest);
        drop(core);
        let name = self.name();
        let text = format!("{name}: a call has failed, and no fault explains it: {kind:?}");
        self.world.record(match (is_moved, is_slow) {
            (true, _) => What::Counted { excuse: MOVED, text },
            (_, true) => What::Counted { excuse: "a limit below a slow round trip", text },
            _ => What::Violation(text),
        });
    }

    /// Its process, its number and its client.
    pub(super) const fn of(&self) -> (Pid, usize, &Client) {
        (self.pid, self.number, &self.client)
    }

    /// Reports a broken rule.
    pub(super) fn violation(&self, text: &str) {
        let text = format!("{}: {text}", self.name());
        self.world.record(What::Violation(text));
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        format!("p{}.{}", self.pid, self.number)
    }

    /// Waits, by the clock of the process.
    pub(super) async fn sleep(&self, ms: u64) {
        self.world.sleep(self.pid, Duration::from_millis(ms)).await;
    }

    /// Waits until this long after the peace, and a second longer by the clock of the process.
    pub(super) async fn settle(&self, after_peace: Nanos) {
        let settled_at = self.world.core().disturbances.peace_at + after_peace;
        let left = settled_at.saturating_sub(self.world.now());
        self.sleep(left / MILLISECOND + 1_000).await;
    }

    /// A future's output; `None` if it took longer and was dropped.
    pub(super) async fn within<F: Future>(&self, ms: u64, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep(ms) => None,
        }
    }

    /// The session of its client.
    pub(super) fn session_id(&self) -> Option<i64> {
        self.client.session_token().map(|token| token.session_id())
    }

    /// A recipe's object; `None`, and a violation, if docent refuses to make it.
    pub(super) fn accepted<T>(&self, path: &str, made: Result<T, impl Display>) -> Option<T> {
        made.map_err(|error| self.violation(&format!("{path} is refused: {error}"))).ok()
    }

    /// Writes a fencing token to a register, while the node that guards the write exists; creates the register if it is
    /// missing. `guard` has the paths of the nodes, and `guarded` begins a transaction with their checks.
    pub(super) async fn write_guarded<'a>(
        &self,
        (register, guard, token): (&str, &str, i64),
        is_ordered: bool,
        guarded: impl Fn() -> Result<Transaction<'a>, Error>,
    ) {
        self.world.check::<GuardedWrites>().begin(register, guard, is_ordered);
        let data = format!("{token} {guard}");
        for _ in 0..2 {
            let mut transaction = match guarded() {
                Ok(transaction) => transaction,
                Err(error) => return self.fails("writes nothing", &error),
            };
            match transaction.set_data(register, data.as_bytes(), None).commit().await {
                Ok(_) => return self.say(format!("has written {register}: {token}")),
                // The register is missing, or a node that guards the write: then the next attempt fails too.
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    let created = self.client.create(register, b"", CreateMode::Persistent).await;
                    if let Err(error) = created {
                        self.fails(format_args!("creates {register}"), &error);
                    }
                }
                Err(error) => return self.fails(format_args!("writes {register}"), &error),
            }
        }
    }

    /// Closes a recipe's object, and checks that this takes no longer than the connection timeout. Returns when the
    /// call began.
    pub(super) async fn close_in_time(&self, what: &str, close: impl Future<Output = ()>) -> Nanos {
        let from = self.world.now();
        let limit = self.client.config().connection_timeout();
        self.limited(&format!("the close of {what}"), Some(limit), close).await;
        self.say(format!("{what} is closed"));
        from
    }

    /// Awaits a call, and reports one that takes longer than its limit.
    pub(super) async fn limited<F: Future>(
        &self,
        what: &str,
        limit: Option<Duration>,
        call: F,
    ) -> F::Output {
        let what = format!("{}: {what}", self.name());
        limited(&self.world, (self.pid, &self.client), &what, limit, call).await
    }

    /// The first node in the queue of a recipe.
    pub(super) async fn first_in_queue(&self, queue: &str) -> Option<String> {
        let children = self.client.get_children(queue).await.ok()?;
        let nodes = children.iter().filter(|name| name.starts_with("_c_"));
        Some(format!("{queue}/{}", nodes.min_by_key(|name| number_of(name))?))
    }

    /// The nodes of a queue in their order, if a read that began at `from` must show them: nothing has changed or
    /// disturbed it since.
    pub(super) fn settled_queue(&self, queue: &str, from: Nanos) -> Option<Vec<String>> {
        let core = self.world.core();
        let below = format!("{queue}/");
        let mut recent = core.servers.truth.changes.iter().rev();
        let changed = recent.find(|of| of.change.path.starts_with(&below)).map_or(0, |of| of.at);
        if changed + SECOND >= from || !core.is_calm(self.pid, from, self.world.now()) {
            return None;
        }
        let mut nodes = core.ensemble().child_paths(queue);
        nodes.sort_by_key(|path| number_of(path));
        Some(nodes)
    }

    /// Deletes the first node in the queue of a recipe, as an operator does.
    pub(super) async fn delete_first(&self, queue: &str) {
        if let Some(first) = self.first_in_queue(queue).await {
            self.delete_as_operator(&first).await;
        }
    }

    /// Deletes the node of another client's recipe.
    pub(super) async fn delete_as_operator(&self, path: &str) {
        self.say(format!("deletes {path}"));
        if let Err(error) = self.invalidate(path, self.client.delete(path, None)).await {
            self.fails(format_args!("deletes {path}"), &error);
        }
    }

    /// Awaits a change of a node on which other clients rely.
    async fn invalidate<T>(
        &self,
        path: &str,
        change: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.world.core().disturbances.invalidate(path);
        let changed = change.await;
        let now = self.world.now();
        let disturbances = &mut self.world.core().disturbances;
        match &changed {
            Ok(_) => disturbances.end_invalidation(path, Some(now)),
            Err(error) if error.outcome() == Outcome::NotApplied => {
                disturbances.end_invalidation(path, None);
            }
            // It may still be made.
            Err(_) => {}
        }
        changed
    }

    /// Writes the data of some node again, and perhaps deletes it then, as somebody who means no harm: a watch has to be set
    /// again between the two.
    pub(super) async fn meddle(&self, step: &NeighbourStep) {
        let mut nodes = self.world.core().paths();
        nodes.retain(|path| TOUCHED.iter().any(|of| path.starts_with(of)));
        let Some(path) = nodes.get(usize::from(step.node) % nodes.len().max(1)) else { return };
        // The writes of a number are additions, and one of `ready` opens its barrier.
        let is_touched = !path.starts_with("/counters/") && !path.ends_with("/ready");
        if is_touched {
            self.touch(path).await;
        }
        if (step.deletes || !is_touched) && !path.starts_with("/count-") {
            self.delete_as_operator(path).await;
        }
    }

    async fn touch(&self, path: &str) {
        self.say(format!("touches {path}"));
        let Ok(node) = self.client.get_data(path).await else { return };
        // No two writes of a shared value are equal.
        let is_value = path.starts_with("/shared/");
        let data = if is_value { self.world.next_value(path, 0) } else { node.data };
        let write = self.client.set_data(path, &data, Some(node.stat.version));
        // A strict mutex relies on the version of its record, so its holder notices the write.
        let written = if path.starts_with("/strict-") {
            self.invalidate(path, write).await
        } else {
            write.await
        };
        if let Err(error) = written {
            self.fails(format_args!("touches {path}"), &error);
        }
    }

    /// Keeps something for `Recipe::finish`, which takes all of its type as a `Vec`.
    pub(super) fn judge_later<T: Send + 'static>(&self, kept: T) {
        self.memory.with(|all: &mut Vec<T>| all.push(kept));
    }

    /// Keeps something until the process ends.
    pub(super) fn keep(&self, kept: impl Any + Send) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(kept));
    }

    /// The same worker with another client, and an empty memory.
    pub(super) fn with_client(&self, client: Client, waits_when_full: bool) -> Self {
        let client_number = ClientNumber::next(&self.world, waits_when_full);
        Self { client, client_number, memory: Memory::default(), ..self.clone() }
    }
}

/// The number at the end of a sequential node's name.
fn number_of(path: &str) -> String {
    path.rsplit(['-', '_']).next().unwrap_or_default().to_owned()
}

/// One value of each type. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Vec<(TypeId, Remembered)>>>);

type Remembered = Arc<dyn Any + Send + Sync>;

impl Memory {
    /// The value of a type.
    pub(super) fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = values.iter().find(|(of, _)| *of == TypeId::of::<T>());
        if let Some(value) = known.and_then(|(_, value)| Arc::clone(value).downcast().ok()) {
            return value;
        }
        let value = Arc::new(T::default());
        values.push((TypeId::of::<T>(), Arc::clone(&value) as _));
        value
    }

    /// Uses the value of a type.
    pub(super) fn with<T: Default + Send + 'static, R>(
        &self,
        using: impl FnOnce(&mut T) -> R,
    ) -> R {
        let value = self.get::<Mutex<T>>();
        let mut value = value.lock().unwrap_or_else(PoisonError::into_inner);
        using(&mut value)
    }

    /// Takes the value of a type.
    pub(super) fn take<T: Default + Send + 'static>(&self) -> T {
        self.with(std::mem::take)
    }

    /// Drops all values.
    pub(super) fn clear(&self) {
        let values = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(values);
    }
}
