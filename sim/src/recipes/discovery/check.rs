//! Registered instances of services: there with their last data while they are registered, and gone afterwards.
//!
//! The address of an instance names its registration and the number of its change, so the servers' changes show whose
//! node is where, and which of its changes has been written.

use std::collections::{BTreeMap, BTreeSet};

use docent::Client;

use crate::{
    checks::owners::{Closed, Closing, OWNED_WITHIN, Owned, WrongSince},
    world::{
        Using, World,
        check::{Check, Findings, Leftovers, View},
        process::Death,
        time::{Nanos, Pid, SECOND},
    },
};

/// The base path of all services.
pub(super) const SERVICES: &str = "/services";

/// The interval at which open registrations are checked.
const LOOKS_EVERY: Nanos = SECOND;

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

/// A registration that begins.
pub(super) struct NewServing<'a> {
    pub(super) pid: Pid,
    pub(super) worker: usize,
    pub(super) client: &'a Client,
    /// Its name, which no other registration has.
    pub(super) registration: &'a str,
    /// The path of the service.
    pub(super) service: &'a str,
    pub(super) id: &'a str,
    /// Whether the server chooses the end of its node's name.
    pub(super) is_sequential: bool,
}

/// A registration that has not ended.
struct Open {
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
    wrong_since: WrongSince,
    is_reported: bool,
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
    open: BTreeMap<String, Open>,
    closed: Closed,
    /// By path.
    nodes: BTreeMap<String, Node>,
    /// Every instance that was there, by the path of its service.
    ever: BTreeMap<String, BTreeSet<Shown>>,
    /// The last change below each service.
    changed: BTreeMap<String, Nanos>,
    seen: usize,
    next_look: Nanos,
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

    /// When an instance of this service has changed last.
    pub(super) fn changed_at(&self, service: &str) -> Nanos {
        self.changed.get(service).copied().unwrap_or(0)
    }
}

/// A registration, compared with the servers' data until this is dropped.
pub(super) struct Serving {
    world: World,
    pid: Pid,
    registration: String,
    _using: Using,
}

impl Serving {
    /// The next data, with their number: another address, or with `toggles` the same one enabled or disabled.
    pub(super) fn next(&self, toggles: bool) -> (usize, Shown) {
        let now = self.world.now();
        let mut services = self.world.check::<Services>();
        let none = || Shown { id: String::new(), address: String::new(), is_enabled: true };
        let Some(open) = services.open.get_mut(&self.registration) else {
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
    pub(super) fn acknowledged(&self, number: usize) {
        let mut found = Findings::default();
        let mut services = self.world.check::<Services>();
        services.follow(&self.world.view(), &mut found);
        if let Some(open) = services.open.get_mut(&self.registration) {
            if open.applied.is_none_or(|applied| applied < number) {
                let (registration, applied) = (&self.registration, open.applied);
                found.violation(format!(
                    "change {number} of {registration} is acknowledged, but {applied:?} is the last one written"
                ));
            }
            open.acknowledged = open.acknowledged.max(Some(number));
        }
        drop(services);
        self.world.record_all(found);
    }

    /// Its end begins.
    pub(super) fn close(&self, leaves: bool) {
        let at = self.world.now();
        let mut services = self.world.check::<Services>();
        let gone = services.open.remove(&self.registration);
        if let Some(open) = &gone {
            let sessions = Some(open.sessions.clone());
            let closing = Closing { pid: self.pid, at, leaves, sessions };
            services.closed.begin(&self.registration, closing);
        }
        drop(services);
        drop(gone);
    }

    /// Its end was acknowledged.
    pub(super) fn is_closed(&self, session: Option<i64>) {
        self.world.check::<Services>().closed.returned(&self.registration, session);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.close(true);
    }
}

/// Begins to compare a registration with the servers' data.
pub(super) fn serve(world: &World, new: NewServing<'_>) -> Serving {
    let NewServing { pid, worker, client, registration, service, id, is_sequential } = new;
    let using = world.use_path(pid, service);
    let open = Open {
        pid,
        worker,
        client: client.clone(),
        path: (!is_sequential).then(|| format!("{service}/{id}")),
        id: id.to_owned(),
        updates: 0,
        versions: Vec::new(),
        wanted_at: world.now(),
        applied: None,
        acknowledged: None,
        sessions: BTreeSet::new(),
        wrong_since: WrongSince::default(),
        is_reported: false,
    };
    world.check::<Services>().open.insert(registration.to_owned(), open);
    Serving { world: world.clone(), pid, registration: registration.to_owned(), _using: using }
}

impl Check for Services {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        self.follow(view, found);
        for open in self.open.values_mut().filter(|open| view.is_running(open.pid)) {
            open.sessions.extend(open.client.session_token().map(|token| token.session_id()));
        }
        let now = view.now;
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOKS_EVERY;
        let core = view.core();
        let grace = core.disturbances.longest_timeout + OWNED_WITHIN;
        for (registration, open) in self.open.iter_mut().filter(|(_, open)| !open.is_reported) {
            let of_it = |node: &&Node| node.shown.registration() == registration;
            let mut ours = self.nodes.values().filter(of_it);
            let is_taken = open.path.as_ref().is_some_and(|path| self.nodes.contains_key(path));
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
            let of = (open.pid, &open.client);
            let is_overdue =
                open.wrong_since.is_overdue(&core, now, of, open.wanted_at, wrong.is_some());
            if let Some(wrong) = wrong.filter(|_| is_overdue) {
                let (id, pid, worker) = (&open.id, open.pid, open.worker);
                let text = format!("instance {id} of p{pid}.{worker} ({registration}) {wrong}");
                found.violation(text);
                open.is_reported = true;
            }
        }
    }

    fn process_ends(&mut self, pid: Pid, _death: Death) -> Leftovers {
        Box::new(self.open.extract_if(.., |_, open| open.pid == pid).collect::<Vec<_>>())
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
                self.closed.judge_create(&core, now, shown.registration(), path, found);
            }
            let text = self.note_written(path, &shown);
            text.into_iter().for_each(|text| found.violation(text));
            let registration = shown.registration().to_owned();
            let before = self.nodes.remove(path).filter(|_| stat.version > 0);
            let (creator, created_at) =
                before.map_or((registration, applied.at), |node| (node.creator, node.created_at));
            let owner = stat.ephemeral_owner;
            let node = Node { shown, owner, creator, created_at, changed_at: applied.at };
            self.nodes.insert(path.clone(), node);
        }
        self.seen = changes.len();
        for (path, node) in &self.nodes {
            let registration = node.shown.registration();
            let is_creator = node.creator == registration;
            let owned = Owned { path, owner: node.owner, is_creator };
            self.closed.judge_node(&core, now, registration, &owned, found);
        }
    }

    /// Notes a write of a node. Returns an error text if it is wrong.
    fn note_written(&mut self, path: &str, shown: &Shown) -> Option<String> {
        let registration = shown.registration();
        if self.closed.contains(registration) {
            return None;
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
