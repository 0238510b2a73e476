//! Registered instances of services: there with their last data while they are registered, and gone afterwards.
//!
//! The address of an instance names its registration and the number of its change, so the servers' changes show whose
//! node is where, and which of its changes has been written.

use std::collections::{BTreeMap, BTreeSet};

use docent::{Client, Stat};

use crate::{
    belief::Beliefs,
    history::What,
    leaders::REQUEST_ARRIVES_WITHIN,
    nodes::{ORPHAN_AFTER, Using},
    process::{Pid, ProcessState},
    world::{Nanos, SECOND, World},
};

/// The base path of all services.
pub(crate) const SERVICES: &str = "/services";

/// How long after the peace, or after the last change, an instance may be missing or not be written, beyond the session
/// timeout: the pauses of retries are up to 10 s.
const REGISTERED_WITHIN: Nanos = 20 * SECOND;

/// How often instances are looked for.
const LOOKS_EVERY: Nanos = SECOND;

/// What the servers have of an instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shown {
    pub(crate) id: String,
    /// The registration, and the number of its update.
    pub(crate) address: String,
    pub(crate) is_enabled: bool,
}

impl Shown {
    /// The instance in a node, read without docent.
    fn from_json(data: &[u8]) -> Option<Self> {
        let json: serde_json::Value = serde_json::from_slice(data).ok()?;
        let text = |name: &str| json.get(name)?.as_str().map(str::to_owned);
        let is_enabled = json.get("enabled").and_then(serde_json::Value::as_bool).unwrap_or(true);
        Some(Self { id: text("id")?, address: text("address")?, is_enabled })
    }

    fn registration(&self) -> &str {
        self.address.split_once('=').map_or("", |(registration, _)| registration)
    }
}

/// A registration that begins.
pub(crate) struct NewServing<'a> {
    pub(crate) pid: Pid,
    pub(crate) worker: usize,
    pub(crate) client: &'a Client,
    /// Its name, which no other registration has.
    pub(crate) registration: &'a str,
    /// The path of the service.
    pub(crate) service: &'a str,
    pub(crate) id: &'a str,
    /// Whether the server chooses the end of its node's name.
    pub(crate) is_sequential: bool,
}

/// A registration that has not ended.
pub(crate) struct Open {
    pid: Pid,
    worker: usize,
    client: Client,
    /// `None`: the server chooses it.
    path: Option<String>,
    id: String,
    updates: u64,
    /// Its data, oldest first.
    versions: Vec<Shown>,
    wanted_at: Nanos,
    /// The last version that was written, and the last one whose write was acknowledged.
    applied: Option<usize>,
    acknowledged: Option<usize>,
    sessions: BTreeSet<i64>,
    wrong_since: Option<Nanos>,
    is_reported: bool,
}

/// A registration that has ended.
struct Closed {
    pid: Pid,
    at: Nanos,
    sessions: BTreeSet<i64>,
    /// The session in which its end was acknowledged.
    session: Option<i64>,
    /// Whether it leaves its node.
    leaves: bool,
}

/// A node below a service.
struct Node {
    shown: Shown,
    owner: i64,
    /// The registration that has created it.
    creator: String,
    created_at: Nanos,
    changed_at: Nanos,
}

/// All registrations.
#[derive(Default)]
pub(crate) struct Services {
    next: u64,
    open: BTreeMap<String, Open>,
    closed: BTreeMap<String, Closed>,
    /// By path.
    nodes: BTreeMap<String, Node>,
    /// Every instance that was there, by the path of its service.
    ever: BTreeMap<String, BTreeSet<Shown>>,
    /// The last change below each service.
    changed: BTreeMap<String, Nanos>,
    seen: usize,
    next_look: Nanos,
    reported: BTreeSet<String>,
}

impl Services {
    /// Takes all registrations of a process that ends. They must be dropped without a lock.
    pub(crate) fn take_all(&mut self, pid: Pid) -> Vec<Open> {
        let of_process = self.open.iter().filter(|(_, open)| open.pid == pid);
        let names: Vec<_> = of_process.map(|(name, _)| name.clone()).collect();
        names.iter().filter_map(|name| self.open.remove(name)).collect()
    }

    /// Whether this instance was ever there.
    pub(crate) fn was_there(&self, service: &str, shown: &Shown) -> bool {
        self.ever.get(service).is_some_and(|ever| ever.contains(shown))
    }

    /// The instances that are there, in the order of the names of their nodes.
    pub(crate) fn instances(&self, service: &str) -> Vec<Shown> {
        let below = format!("{service}/");
        let nodes = self.nodes.iter().filter(|(path, _)| path.starts_with(&below));
        nodes.map(|(_, node)| node.shown.clone()).collect()
    }

    /// When an instance of this service has changed last.
    pub(crate) fn changed_at(&self, service: &str) -> Nanos {
        self.changed.get(service).copied().unwrap_or(0)
    }
}

/// A registration, compared with the servers' data until this is dropped.
pub(crate) struct Serving {
    world: World,
    pid: Pid,
    registration: String,
    _using: Using,
}

impl Serving {
    /// The next data, with their number: another address, or with `toggles` the same one enabled or disabled.
    pub(crate) fn next(&self, toggles: bool) -> (usize, Shown) {
        let now = self.world.now();
        let mut beliefs = self.world.beliefs();
        let none = || Shown { id: String::new(), address: String::new(), is_enabled: true };
        let Some(open) = beliefs.services.open.get_mut(&self.registration) else {
            return (0, none());
        };
        let mut shown = open.versions.last().cloned().unwrap_or_else(none);
        shown.id.clone_from(&open.id);
        if toggles {
            shown.is_enabled = !shown.is_enabled;
        } else {
            open.updates += 1;
            shown.address = format!("{}={}", self.registration, open.updates);
        }
        open.versions.push(shown.clone());
        open.wanted_at = now;
        (open.versions.len() - 1, shown)
    }

    /// docent says that these data, or later ones, are written.
    pub(crate) fn acknowledged(&self, number: usize) {
        let mut records = Vec::new();
        let mut beliefs = self.world.beliefs();
        let services = &mut beliefs.services;
        self.world.follow_instances(services, &mut records);
        if let Some(open) = services.open.get_mut(&self.registration) {
            if open.applied.is_none_or(|applied| applied < number) {
                let (registration, applied) = (&self.registration, open.applied);
                let text = format!(
                    "change {number} of {registration} is acknowledged, but {applied:?} is the last one written"
                );
                records.push(What::Violation(text));
            }
            open.acknowledged = open.acknowledged.max(Some(number));
        }
        drop(beliefs);
        records.into_iter().for_each(|record| self.world.record(record));
    }

    /// Its end begins.
    pub(crate) fn close(&self, leaves: bool) {
        let gone = {
            let mut beliefs = self.world.beliefs();
            let gone = beliefs.services.open.remove(&self.registration);
            if let Some(open) = &gone {
                let (at, sessions) = (self.world.now(), open.sessions.clone());
                let closed = Closed { pid: self.pid, at, sessions, session: None, leaves };
                beliefs.services.closed.insert(self.registration.clone(), closed);
            }
            gone
        };
        drop(gone);
    }

    /// Its end was acknowledged.
    pub(crate) fn is_closed(&self, session: Option<i64>) {
        if let Some(closed) = self.world.beliefs().services.closed.get_mut(&self.registration) {
            closed.session = session;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.close(true);
    }
}

impl World {
    /// A name that no other registration has.
    pub(crate) fn next_registration(&self) -> String {
        let services = &mut self.beliefs().services;
        services.next += 1;
        format!("server-{}", services.next)
    }

    /// Begins to compare a registration with the servers' data.
    pub(crate) fn serve(&self, new: NewServing<'_>) -> Serving {
        let NewServing { pid, worker, client, registration, service, id, is_sequential } = new;
        let using = self.use_path(pid, service);
        let open = Open {
            pid,
            worker,
            client: client.clone(),
            path: (!is_sequential).then(|| format!("{service}/{id}")),
            id: id.to_owned(),
            updates: 0,
            versions: Vec::new(),
            wanted_at: self.now(),
            applied: None,
            acknowledged: None,
            sessions: BTreeSet::new(),
            wrong_since: None,
            is_reported: false,
        };
        self.beliefs().services.open.insert(registration.to_owned(), open);
        Serving { world: self.clone(), pid, registration: registration.to_owned(), _using: using }
    }

    /// Compares all registrations with the servers' data.
    pub(crate) fn check_services(&self, beliefs: &mut Beliefs, records: &mut Vec<What>) {
        let services = &mut beliefs.services;
        if services.next == 0 {
            return;
        }
        self.follow_instances(services, records);
        for open in services.open.values_mut().filter(|open| self.is_running(open.pid)) {
            open.sessions.extend(open.client.session_token().map(|token| token.session_id()));
        }
        let now = self.now();
        if now < services.next_look {
            return;
        }
        services.next_look = now + LOOKS_EVERY;
        let core = self.core();
        let grace = core.longest_timeout + REGISTERED_WITHIN;
        for (registration, open) in &mut services.open {
            let lives = core.process(open.pid).state == ProcessState::Running;
            if now < core.peace_at || !lives || open.is_reported || open.client.ended().is_some() {
                open.wrong_since = None;
                continue;
            }
            let of_it = |node: &&Node| node.shown.registration() == registration;
            let mut ours = services.nodes.values().filter(of_it);
            let is_taken = open.path.as_ref().is_some_and(|path| services.nodes.contains_key(path));
            let wrong = match (ours.next(), ours.next()) {
                (None, _) if is_taken => None,
                (None, _) => Some("is not there"),
                (_, Some(_)) => Some("is there twice"),
                (Some(node), None) if open.versions.last() == Some(&node.shown) => None,
                // A write of the former session was on its way when this one created the node. As Curator's, it has no
                // version.
                (Some(node), None)
                    if open.sessions.len() > 1
                        && open.versions.contains(&node.shown)
                        && node.changed_at > node.created_at
                        && node.changed_at < node.created_at + grace =>
                {
                    None
                }
                _ => Some("has older data"),
            };
            let Some(wrong) = wrong else {
                open.wrong_since = None;
                continue;
            };
            let since = *open.wrong_since.get_or_insert(now);
            let from = since.max(open.wanted_at).max(core.disturbed_until(open.pid));
            if now > from + grace {
                let (id, pid, worker) = (&open.id, open.pid, open.worker);
                let text = format!("instance {id} of p{pid}.{worker} ({registration}) {wrong}");
                records.push(What::Violation(text));
                open.is_reported = true;
            }
        }
    }

    /// Looks at the changes of all nodes.
    fn follow_instances(&self, services: &mut Services, records: &mut Vec<What>) {
        let now = self.now();
        let core = self.core();
        let changes = &core.servers.truth.changes;
        let below = format!("{SERVICES}/");
        for applied in changes.get(services.seen..).unwrap_or_default() {
            let path = &applied.change.path;
            let Some((service, _)) =
                path.strip_prefix(&below).and_then(|rest| rest.split_once('/'))
            else {
                continue;
            };
            let service = format!("{below}{service}");
            services.changed.insert(service.clone(), now);
            let Some((data, stat)) = &applied.change.node else {
                services.nodes.remove(path);
                continue;
            };
            let Some(shown) = Shown::from_json(data) else {
                records.push(What::Violation(format!("{path} has data that are no instance")));
                continue;
            };
            services.ever.entry(service).or_default().insert(shown.clone());
            let text = services.note_written(&core, now, path, &shown, stat);
            records.extend(text.map(What::Violation));
            let registration = shown.registration().to_owned();
            let before = services.nodes.remove(path).filter(|_| stat.version > 0);
            let (creator, created_at) =
                before.map_or((registration, applied.at), |node| (node.creator, node.created_at));
            let owner = stat.ephemeral_owner;
            let node = Node { shown, owner, creator, created_at, changed_at: applied.at };
            services.nodes.insert(path.clone(), node);
        }
        services.seen = changes.len();
        for (path, node) in &services.nodes {
            let registration = node.shown.registration();
            let closed = services.closed.get(registration).filter(|closed| !closed.leaves);
            let Some(closed) = closed else { continue };
            let process = core.process(closed.pid);
            let lives = process.state == ProcessState::Running && !process.is_finished;
            let is_left = lives
                && closed.sessions.contains(&node.owner)
                && now > closed.at.max(core.disturbed_until(closed.pid)) + ORPHAN_AFTER;
            // A persistent node belongs to no session.
            let is_refuted = closed.session.is_some_and(|session| {
                session == node.owner || node.owner == 0 && node.creator == registration
            });
            if (is_left || is_refuted) && services.reported.insert(path.clone()) {
                records.push(What::Violation(format!("{registration} is over, not {path}")));
            }
        }
    }
}

impl Services {
    /// A node was written; returns what is wrong with that.
    fn note_written(
        &mut self,
        core: &crate::world::Core,
        now: Nanos,
        path: &str,
        shown: &Shown,
        stat: &Stat,
    ) -> Option<String> {
        let registration = shown.registration();
        if let Some(closed) = self.closed.get(registration) {
            let from = closed.at.max(core.undisturbed_since(closed.pid));
            return (stat.version == 0 && now > from + REQUEST_ARRIVES_WITHIN)
                .then(|| format!("{registration} creates {path} after its end"));
        }
        let open = self.open.get_mut(registration)?;
        let Some(number) = open.versions.iter().rposition(|version| version == shown) else {
            return Some(format!("{path} has {shown:?}, which {registration} never had"));
        };
        open.applied = open.applied.max(Some(number));
        (Some(number) < open.acknowledged).then(|| {
            let acknowledged = open.acknowledged.unwrap_or_default();
            format!("{path} has change {number} of {registration} after change {acknowledged}")
        })
    }
}
