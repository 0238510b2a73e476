//! Registered instances of services: there with their last data while they are registered, and gone afterwards.
//!
//! The address of an instance names its registration and the number of its change, so the servers' changes show whose
//! node is where, and which of its changes has been written.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    checks::owners::{
        NodeOwners, OWNED_WITHIN, Open, OwnerCheck, ServerNode, TrackedObject, Wrong,
    },
    world::{
        World,
        check::{Check, Findings, Leftovers, View},
        process::Death,
        time::{Nanos, Pid},
    },
};

/// The excuse for what a member executes for a local session, after another one has said that there is none.
const LATE: &str = "a late write of a local session";

/// The base path of all services.
pub(super) const SERVICES: &str = "/services";

/// An instance, as the servers have it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shown {
    pub(super) id: String,
    /// The registration, and the number of its update.
    pub(super) address: String,
    pub(super) is_enabled: bool,
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

/// A registration.
#[derive(Default)]
pub(super) struct Registered {
    /// The path of its node; that of the service, if the server chooses the name of the node.
    path: String,
    id: String,
    updates: u64,
    /// Its data, oldest first.
    versions: Vec<Shown>,
    /// The last version that was written, and the last one whose write was acknowledged.
    applied: Option<usize>,
    acknowledged: Option<usize>,
    sessions: BTreeSet<i64>,
}

impl Registered {
    pub(super) fn new(path: String, id: &str) -> Self {
        Self { path, id: id.to_owned(), ..Self::default() }
    }
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
pub(super) struct Services {
    owners: NodeOwners<Registered>,
    /// By path.
    nodes: BTreeMap<String, Node>,
    /// Every instance that was there, by the path of its service.
    ever: BTreeMap<String, BTreeSet<Shown>>,
    /// The time of the last change below each service.
    changed: BTreeMap<String, Nanos>,
    seen: usize,
}

impl Services {
    /// Whether this instance was ever there.
    pub(super) fn was_there(&self, service: &str, shown: &Shown) -> bool {
        self.ever.get(service).is_some_and(|ever| ever.contains(shown))
    }

    /// The instances that are there, in the order of the names of their nodes.
    pub(super) fn instances(&self, service: &str) -> Vec<Shown> {
        let below = format!("{service}/");
        let nodes = self.nodes.iter().filter(|(path, _)| path.starts_with(&below));
        nodes.map(|(_, node)| node.shown.clone()).collect()
    }

    /// When an instance of this service last changed.
    pub(super) fn changed_at(&self, service: &str) -> Nanos {
        self.changed.get(service).copied().unwrap_or(0)
    }
}

/// A registration, compared with the servers' data until this is dropped.
pub(super) type Serving = TrackedObject<Services>;

impl Serving {
    /// The next data of the registration, with their number: a new address, or with `toggles` the same one enabled or
    /// disabled.
    pub(super) fn next(&self, now: Nanos, toggles: bool) -> (usize, Shown) {
        let none = || Shown { id: String::new(), address: String::new(), is_enabled: true };
        let next = self.with(|open| {
            let of = &mut open.of;
            let mut shown = of.versions.last().cloned().unwrap_or_else(none);
            shown.id.clone_from(&of.id);
            if toggles {
                shown.is_enabled = !shown.is_enabled;
            } else {
                of.updates += 1;
                shown.address = format!("{}={}", self.id, of.updates);
            }
            of.versions.push(shown.clone());
            open.wanted_at = now;
            (of.versions.len() - 1, shown)
        });
        next.unwrap_or_else(|| (0, none()))
    }

    /// docent has reported that these data, or later ones, are written.
    pub(super) fn acknowledged(&self, world: &World, number: usize) {
        let mut found = Findings::default();
        world.check::<Services>().follow(&world.view(), &mut found);
        self.with(|open| {
            let (id, applied) = (&self.id, open.of.applied);
            if applied.is_none_or(|applied| applied < number) {
                found.violation(format!(
                    "change {number} of {id} is acknowledged, but {applied:?} is the last one written"
                ));
            }
            open.of.acknowledged = open.of.acknowledged.max(Some(number));
        });
        world.record_all(found);
    }
}

impl OwnerCheck for Services {
    type Object = Registered;

    fn owners(&mut self) -> &mut NodeOwners<Registered> {
        &mut self.owners
    }

    fn closes(&mut self, _id: &str, open: &Open<Registered>) -> Option<BTreeSet<i64>> {
        Some(open.of.sessions.clone())
    }
}

impl Check for Services {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        self.follow(view, found);
        for open in self.owners.open.values_mut().filter(|open| view.is_running(open.pid)) {
            open.of.sessions.extend(open.client.session_token().map(|token| token.session_id()));
        }
        let grace = view.core().disturbances.longest_timeout + OWNED_WITHIN;
        let nodes = &self.nodes;
        self.owners.judge(view, found, |registration, of| {
            let mut ours =
                nodes.iter().filter(|(_, node)| node.shown.registration() == registration);
            let (first, second) = (ours.next(), ours.next());
            let what = match (first, second) {
                (None, _) if nodes.contains_key(&of.path) => return None,
                (None, _) => "is not there",
                (_, Some(_)) => "is there twice",
                (Some((_, node)), None) if of.versions.last() == Some(&node.shown) => return None,
                // A write of the former session was in flight when this session created the node. Like Curator's, it
                // checks no version.
                (Some((_, node)), None)
                    if of.sessions.len() > 1
                        && of.versions.contains(&node.shown)
                        && node.changed_at > node.created_at
                        && node.changed_at < node.created_at + grace =>
                {
                    return None;
                }
                _ => "has older data",
            };
            let own = first.map(|(path, _)| path.clone());
            let paths = own.into_iter().chain([of.path.clone()]).collect();
            Some(Wrong { name: format!("instance {}", of.id), what, paths })
        });
    }

    fn process_ends(&mut self, pid: Pid, _death: Death) -> Leftovers {
        self.owners.process_ends(pid)
    }
}

impl Services {
    /// Looks at the changes of all nodes.
    fn follow(&mut self, view: &View<'_>, found: &mut Findings) {
        let (now, core) = (view.now, view.core());
        let changes = &core.servers.truth.changes;
        let below = format!("{SERVICES}/");
        for applied in changes.get(self.seen..).unwrap_or_default() {
            let path = &applied.change.path;
            let Some((service, _)) =
                path.strip_prefix(&below).and_then(|rest| rest.split_once('/'))
            else {
                continue;
            };
            let service = format!("{below}{service}");
            self.changed.insert(service.clone(), now);
            let Some((data, stat)) = &applied.change.node else {
                self.nodes.remove(path);
                continue;
            };
            let Some(shown) = Shown::from_json(data) else {
                found.violation(format!("{path} has data that are no instance"));
                continue;
            };
            self.ever.entry(service).or_default().insert(shown.clone());
            if stat.version == 0 {
                let created = &applied.change;
                self.owners.closed.judge_create(&core, now, shown.registration(), created, found);
            }
            let text = self.note_written(path, &shown);
            let session = applied.change.session_id;
            let is_late = core.servers.has_local_sessions
                && core.processes.iter().all(|process| process.session != Some(session));
            match text {
                Some(text) if is_late => found.counted(LATE, text),
                Some(text) => found.violation(text),
                None => {}
            }
            let registration = shown.registration().to_owned();
            let before = self.nodes.remove(path).filter(|_| stat.version > 0);
            let (creator, created_at) = match before {
                Some(node) => (node.creator, node.created_at),
                // Its object cannot know of it, and does not delete it.
                None if is_late && self.owners.closed.contains(&registration) => {
                    found.counted(LATE, format!("{path} is created"));
                    (String::new(), applied.at)
                }
                None => (registration, applied.at),
            };
            let owner = stat.ephemeral_owner;
            let node = Node { shown, owner, creator, created_at, changed_at: applied.at };
            self.nodes.insert(path.clone(), node);
        }
        self.seen = changes.len();
        for (path, node) in &self.nodes {
            let registration = node.shown.registration();
            let is_creator = node.creator == registration;
            let server_node = ServerNode { path, owner: node.owner, is_creator };
            self.owners.closed.judge_node(&core, now, registration, &server_node, found);
        }
    }

    /// Notes a write of a node. Returns an error text if it is wrong.
    fn note_written(&mut self, path: &str, shown: &Shown) -> Option<String> {
        let registration = shown.registration();
        if self.owners.closed.contains(registration) {
            return None;
        }
        let open = &mut self.owners.open.get_mut(registration)?.of;
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
