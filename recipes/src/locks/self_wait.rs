//! Warns about a task that waits for a lock that it holds itself.
//!
//! An acquire without an owner is a contender of its own, also in the task that holds the lock: that task then waits for
//! its own release. No API names a task across runtimes. Its waker does: every poll of one task has a waker with the same
//! data. Futures that are polled by one task, such as the branches of a `join!`, share it, so this is a warning and no
//! error.
//!
//! Curator has no equivalent: there a lock is re-entrant by its thread.

use std::{
    collections::BTreeMap,
    future::{Future, pending, poll_fn},
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use docent_session::Client;
use tracing::warn;

use crate::{
    select::{Either, select},
    timer,
};

/// The wait after which a task is warned.
pub(crate) const WARN_AFTER: Duration = Duration::from_secs(5);

/// The lock nodes that are held, by the task that acquired them. Their names have a GUID, so they are distinct across
/// clients and servers.
static HELD: Mutex<BTreeMap<Task, Vec<String>>> = Mutex::new(BTreeMap::new());

fn held() -> MutexGuard<'static, BTreeMap<Task, Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of the data of a task's waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Task(usize);

impl Task {
    /// The task that polls this future; `None` for a waker without data, which does not name one.
    pub(crate) async fn current() -> Option<Self> {
        let address = poll_fn(|cx| Poll::Ready(cx.waker().data().addr())).await;
        (address != 0).then_some(Self(address))
    }

    /// The first of these lock nodes that this task has acquired and not released.
    pub(crate) fn first_held(self, paths: impl Iterator<Item = String>) -> Option<String> {
        let held = held();
        let of_task = held.get(&self)?;
        paths.into_iter().find(|path| of_task.contains(path))
    }
}

/// An entry for a held lock node, which ends with the hold.
#[derive(Debug, Default)]
pub(crate) struct HeldBy(Mutex<Option<(Task, String)>>);

impl HeldBy {
    pub(crate) fn begin(&self, task: Task, path: &str) {
        held().entry(task).or_default().push(path.to_owned());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((task, path.to_owned()));
    }

    pub(crate) fn end(&self) {
        let entry = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((task, path)) = entry else { return };
        let mut held = held();
        if let Some(of_task) = held.get_mut(&task) {
            of_task.retain(|of_task| *of_task != path);
            if of_task.is_empty() {
                held.remove(&task);
            }
        }
    }
}

impl Drop for HeldBy {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for a future; after [`WARN_AFTER`], warns that it waits for `own`, a lock node of the task itself.
pub(crate) async fn warn_while<F: Future>(
    client: &Client,
    path: &str,
    own: Option<String>,
    wait: F,
) -> F::Output {
    let mut wait = pin!(wait);
    let Some(own) = own else { return wait.await };
    let time = async {
        if !timer::sleep(client, WARN_AFTER).await {
            pending::<()>().await;
        }
    };
    if let Either::Left(output) = select(wait.as_mut(), time).await {
        return output;
    }
    warn!(
        path,
        own,
        "waiting for a lock that this task has acquired itself; release the guard first, or use acquire_as with one \
         Owner to re-enter the lock"
    );
    wait.await
}
