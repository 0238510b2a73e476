//! What the clients of a script believe, asked whenever time goes on.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use docent::{Client, LockGuard, leader::Leadership, runtime::Instant};
use docent_sim::{
    Check, Findings, View,
    world::{
        check::Leftovers,
        history::Bounds,
        process::Death,
        time::{Nanos, Pid},
    },
};

/// A hold, as its holder sees it.
pub(crate) enum Hold {
    /// The holder of a lock of few lines: it believes in the hold until it releases it.
    Simple {
        path: String,
        token: Option<i64>,
    },
    Guard(LockGuard),
    Leader(Leadership),
}

impl Hold {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Simple { path, .. } => path,
            Self::Guard(guard) => guard.path(),
            Self::Leader(leadership) => leadership.path(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Simple { .. } => true,
            Self::Guard(guard) => guard.is_held(),
            Self::Leader(leadership) => leadership.is_held(),
        }
    }

    pub(crate) async fn token(&self) -> Option<i64> {
        match self {
            Self::Simple { token, .. } => *token,
            Self::Guard(guard) => guard.fencing_token().await.ok(),
            Self::Leader(leadership) => leadership.fencing_token().await.ok(),
        }
    }

    /// The bounds by the clock of the process: the end of the belief, and of the proof. `None`: it is held no longer.
    fn bounds(&self, client: &Client) -> Option<(Instant, Instant)> {
        let (proven, session) = match self {
            Self::Simple { .. } => return Some((Instant::MAX, Instant::ZERO)),
            Self::Guard(guard) => (guard.proven_until(), guard.session_id()),
            Self::Leader(leadership) => (leadership.proven_until(), leadership.session_id()),
        };
        let lease = client.session().filter(|lease| lease.session_id() == session)?;
        self.is_held().then(|| (lease.deadline(), proven))
    }
}

/// The holds of all clients of a run.
#[derive(Clone, Default)]
pub(crate) struct Beliefs(Arc<Mutex<Vec<Entry>>>);

struct Entry {
    pid: Pid,
    path: String,
    /// `None`: the holder has given it up.
    hold: Option<(Arc<Hold>, Client)>,
    shown: Option<(Instant, Instant)>,
}

impl Beliefs {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process begins to believe in a hold.
    pub(crate) fn begin(&self, pid: Pid, client: &Client, hold: Hold) -> Arc<Hold> {
        let (path, hold) = (hold.path().to_owned(), Arc::new(hold));
        let of_entry = Some((Arc::clone(&hold), client.clone()));
        self.entries().push(Entry { pid, path, hold: of_entry, shown: None });
        hold
    }

    /// A process gives a hold up. Returns it, to be released; `None` if the process has ended.
    pub(crate) fn end(&self, hold: Arc<Hold>) -> Option<Hold> {
        let is_it =
            |entry: &Entry| entry.hold.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &hold));
        let known = {
            let mut entries = self.entries();
            entries.iter_mut().find(|entry| is_it(entry)).and_then(|entry| entry.hold.take())
        };
        drop(known);
        Arc::into_inner(hold)
    }
}

impl Check for Beliefs {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        let mut entries = self.entries();
        for entry in entries.iter_mut() {
            // A stopped process believes what it believed.
            if entry.hold.is_some() && !view.is_running(entry.pid) {
                continue;
            }
            let held = entry.hold.as_ref().and_then(|(hold, client)| {
                let bounds = hold.bounds(client)?;
                Some((bounds, client))
            });
            let shown = held.map(|(bounds, _)| bounds);
            if shown == entry.shown {
                continue;
            }
            let true_time = |client: &Client, at: Instant| match at {
                Instant::MAX => Nanos::MAX,
                at => view.true_time(client, at),
            };
            let bounds = held.map(|((believed, proven), client)| Bounds {
                believed: true_time(client, believed),
                proven: true_time(client, proven),
            });
            found.belief(entry.pid, &*entry.path, bounds);
            entry.shown = shown;
        }
        entries.retain(|entry| entry.hold.is_some());
    }

    fn process_ends(&mut self, pid: Pid, _death: Death) -> Leftovers {
        let mut entries = self.entries();
        let of_process = entries.iter_mut().filter(|entry| entry.pid == pid);
        Box::new(of_process.map(|entry| mem::take(&mut entry.hold)).collect::<Vec<_>>())
    }
}
