//! What the servers' data must look like: registers never go back, and no lock node is left behind.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    belief::{Beliefs, Mode, Part},
    history::What,
    process::{Pid, ProcessState},
    world::{Nanos, SECOND, World},
};

/// How long an unused lock node of a live session may exist, if nothing disturbs its client meanwhile. The
/// background repeats a delete after a pause of up to 10 s, and then needs a connection and a reply.
pub(crate) const ORPHAN_AFTER: Nanos = 20 * SECOND;

/// How often orphans are looked for.
const ORPHANS_EVERY: Nanos = SECOND;

/// What is known of the servers' data.
#[derive(Default)]
pub(crate) struct Nodes {
    /// The registers that were written to.
    registers: BTreeMap<String, Register>,
    /// The lock nodes of guarded writes, and whether each existed when last looked at.
    guards: BTreeMap<String, bool>,
    counts: BTreeMap<String, Vec<Count>>,
    next_use: u64,
    /// The locks that workers are acquiring or releasing.
    used: BTreeMap<u64, (Pid, Vec<Part>)>,
    next_search: Nanos,
    /// The unused lock nodes, with the time since.
    unused: BTreeMap<String, Nanos>,
    reported: BTreeSet<String>,
}

#[derive(Default)]
struct Register {
    is_ordered: bool,
    mzxid: i64,
    token: i64,
}

/// A value of a count.
struct Count {
    mzxid: i64,
    version: i32,
    value: usize,
}

/// A lock is being acquired or released, until this is dropped.
pub(crate) struct Using {
    world: World,
    id: u64,
}

impl Drop for Using {
    fn drop(&mut self) {
        self.world.beliefs().nodes.used.remove(&self.id);
    }
}

impl World {
    /// A process acquires or releases these locks.
    pub(crate) fn use_locks(&self, pid: Pid, parts: Vec<Part>) -> Using {
        let nodes = &mut self.beliefs().nodes;
        let id = nodes.next_use;
        nodes.next_use += 1;
        nodes.used.insert(id, (pid, parts));
        Using { world: self.clone(), id }
    }

    /// A process has something at or below this path.
    pub(crate) fn use_path(&self, pid: Pid, path: &str) -> Using {
        self.use_locks(pid, vec![Part { lock: path.to_owned(), mode: Mode::Exclusive }])
    }

    /// A node of a process is used until its session ends.
    pub(crate) fn keep_path(&self, pid: Pid, path: &str) {
        let nodes = &mut self.beliefs().nodes;
        let part = Part { lock: path.to_owned(), mode: Mode::Exclusive };
        nodes.used.insert(nodes.next_use, (pid, vec![part]));
        nodes.next_use += 1;
    }

    /// A guarded write to a register begins.
    pub(crate) fn watch_register(&self, register: &str, guard: &str, is_ordered: bool) {
        let nodes = &mut self.beliefs().nodes;
        nodes.registers.entry(register.to_owned()).or_default().is_ordered = is_ordered;
        nodes.guards.entry(guard.to_owned()).or_insert(true);
    }

    /// A count may be created.
    pub(crate) fn watch_count(&self, path: &str) {
        self.beliefs().nodes.counts.entry(path.to_owned()).or_default();
    }

    /// The largest value of a count since a change of it.
    pub(crate) fn largest_count(&self, path: &str, since: i64) -> usize {
        let beliefs = self.beliefs();
        let values = beliefs.nodes.counts.get(path).into_iter().flatten();
        let later = values.filter(|count| count.mzxid >= since).map(|count| count.value);
        later.max().unwrap_or(usize::MAX)
    }

    /// Looks at the servers' data.
    pub(crate) fn check_nodes(&self, beliefs: &mut Beliefs, records: &mut Vec<What>) {
        let core = self.core();
        let ensemble = &core.servers.ensemble;
        let nodes = &mut beliefs.nodes;
        for (path, values) in &mut nodes.counts {
            let Some((data, stat)) = ensemble.node(path) else { continue };
            let last = values.last().map_or((0, -1), |last| (last.mzxid, last.version));
            if stat.mzxid > last.0 {
                if stat.version > last.1 + 1 {
                    // A value in between was not seen: it may have been any.
                    let unseen = Count { mzxid: last.0 + 1, version: last.1, value: usize::MAX };
                    values.push(unseen);
                }
                let value = data.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes));
                let value = usize::try_from(value).unwrap_or(0);
                values.push(Count { mzxid: stat.mzxid, version: stat.version, value });
            }
        }
        for (path, register) in &mut nodes.registers {
            let Some((data, stat)) = ensemble.node(path) else { continue };
            if stat.mzxid <= register.mzxid {
                continue;
            }
            register.mzxid = stat.mzxid;
            let text = String::from_utf8_lossy(&data).into_owned();
            let Some((token, guard)) = text.split_once(' ') else { continue };
            let token = token.parse().unwrap_or(0);
            if register.is_ordered && token < register.token {
                let before = register.token;
                records.push(What::Violation(format!("{path}: {token} after {before}")));
            }
            register.token = token;
            if nodes.guards.get(guard) == Some(&false) {
                records.push(What::Violation(format!("{path}: written without {guard}")));
            }
        }
        for (path, existed) in &mut nodes.guards {
            *existed = *existed && ensemble.node(path).is_some();
        }
        let now = self.now();
        if now < beliefs.nodes.next_search {
            return;
        }
        beliefs.nodes.next_search = now + ORPHANS_EVERY;
        let mut unused = BTreeMap::new();
        for (pid, process) in core.processes.iter().enumerate() {
            let Some(session) = process.session else { continue };
            let is_running = process.state == ProcessState::Running && !process.is_finished;
            // The nodes of a session that it resumed are the former process's: they stay as long as the session.
            let is_resumed = process.resumed == Some(session);
            if !is_running || is_resumed || core.disturbed_until(pid) > now {
                continue;
            }
            for path in ensemble.ephemerals(session) {
                let nodes = &beliefs.nodes;
                let uses = nodes.used.values().filter(|(of, _)| *of == pid);
                let mut parts = uses.flat_map(|(_, parts)| parts);
                let is_below = |part: &Part| path.starts_with(&part.lock);
                // The nodes that caches hold are no lock nodes.
                let is_of_tree = path == "/tree" || path.starts_with("/tree/");
                if is_of_tree
                    || parts.any(is_below)
                    || beliefs.held_paths(pid).any(|held| held == path)
                {
                    continue;
                }
                let since = *nodes.unused.get(&path).unwrap_or(&now);
                unused.insert(path, since.max(core.disturbed_until(pid)));
            }
        }
        for (path, since) in &unused {
            if now > since + ORPHAN_AFTER && beliefs.nodes.reported.insert(path.clone()) {
                records.push(What::Violation(format!("{path} is an orphan")));
            }
        }
        beliefs.nodes.unused = unused;
    }
}
