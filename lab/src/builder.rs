//! Makes a timeline from a history.

use std::collections::{BTreeMap, BTreeSet};

use docent::EventType;
use docent_sim::{
    run::Outcome,
    world::history::{Bounds, Record, What as Happened},
};
use docent_steps::parent;
use serde_json::Value;

use crate::{
    frames::{Frame, Frames, micros},
    program::{ACCEPTS, REFUSES},
    script::{self, Script, Subject, What},
    steps::{self, Steps},
    timeline::{
        Belief, Interval, Node, Note, Overlap, Queues, Session, Span, Timeline, Watch, Write,
    },
};

/// The most records of a run that are shown.
pub(crate) const MOST_RECORDS: usize = 60_000;

/// Who takes part.
pub(crate) struct Stage {
    pub(crate) names: Vec<String>,
    pub(crate) members: usize,
    /// Whether later records are left out.
    pub(crate) is_cut_off: bool,
}

impl Timeline {
    pub(crate) fn new(stage: Stage, script: &Script, outcome: &Outcome) -> Self {
        let records = &outcome.history.records;
        let records = records.get(..records.len().min(MOST_RECORDS)).unwrap_or_default();
        let leases = match &script.subject {
            Subject::Clients(setting) => setting.leases,
            Subject::Plan | Subject::Schedule(..) => usize::MAX,
        };
        let mut builder = Builder::new(leases);
        records.iter().for_each(|record| builder.take(record));
        let last = records.last().map_or(0, |record| micros(record.at));
        let mut timeline = builder.timeline(last);
        timeline.faults = faults(script, outcome, last);
        timeline.date_drops(script);
        timeline.overlaps = overlaps(&timeline, leases);
        timeline.clients = stage.names;
        timeline.members = stage.members;
        timeline.is_cut_off = stage.is_cut_off;
        timeline.takes_faults = !matches!(script.subject, Subject::Schedule(..));
        timeline
    }

    /// A drop is part of a script from its beginning, and is shown where its message was sent.
    fn date_drops(&mut self, script: &Script) {
        let mut taken = BTreeSet::new();
        for (fault, span) in script.faults.iter().zip(&mut self.faults) {
            let What::Drop { client, to_client, .. } = fault.what else { continue };
            let is_it = |(at, frame): &(usize, &Frame)| {
                let is_of_way = frame.client == client && frame.to_server != to_client;
                is_of_way && frame.arrived.is_none() && !taken.contains(at)
            };
            if let Some((at, frame)) = self.frames.iter().enumerate().find(is_it) {
                taken.insert(at);
                (span.from, span.to) = (frame.sent, frame.sent);
            }
        }
    }
}

/// Reads a history.
pub(crate) struct Builder {
    pub(crate) frames: Frames,
    pub(crate) steps: Steps,
    /// The number of frames whose step is known.
    seen: usize,
    pub(crate) nodes: BTreeMap<String, Node>,
    owners: BTreeMap<i64, usize>,
    leases: usize,
    queues: Vec<Queues>,
    watches: Watches,
    beliefs: Vec<Belief>,
    open_beliefs: BTreeMap<(usize, String), Belief>,
    truths: Vec<Interval>,
    open_truths: BTreeMap<(usize, String), u64>,
    notes: Vec<Note>,
    writes: Vec<Write>,
    sessions: Vec<Session>,
    violations: Vec<String>,
}

impl Builder {
    pub(crate) fn new(leases: usize) -> Self {
        Self {
            frames: Frames::default(),
            steps: Steps::default(),
            seen: 0,
            nodes: BTreeMap::new(),
            owners: BTreeMap::new(),
            leases,
            queues: Vec::new(),
            watches: Watches::default(),
            beliefs: Vec::new(),
            open_beliefs: BTreeMap::new(),
            truths: Vec::new(),
            open_truths: BTreeMap::new(),
            notes: Vec::new(),
            writes: Vec::new(),
            sessions: Vec::new(),
            violations: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self, record: &Record) {
        let at = micros(record.at);
        match &record.what {
            Happened::Wire(wire) => {
                self.frames.take(record.at, wire);
                self.see_frames();
            }
            Happened::Applied { path, event, data, owner, zxid } => {
                let data = String::from_utf8_lossy(data).into_owned();
                self.applied(at, path, *event, (data, *owner, *zxid));
            }
            Happened::Belief { pid, path, until } => self.belief(at, (*pid, path), *until),
            Happened::Worker { pid, text, .. } => self.says(at, *pid, text),
            Happened::State(pid, text) => {
                let text = text.trim_start_matches("Some(").trim_end_matches(')').to_owned();
                self.notes.push(Note { at, client: *pid, is_state: true, text });
            }
            Happened::Violation(text) => self.violations.push(text.clone()),
            Happened::Finished(pid) => {
                let text = "is done".to_owned();
                self.notes.push(Note { at, client: *pid, is_state: true, text });
            }
            Happened::Fault(_)
            | Happened::Counted { .. }
            | Happened::HeldUntil { .. }
            | Happened::Frame { .. } => {}
        }
    }

    /// The client of a session.
    pub(crate) fn client_of(&self, session: i64) -> Option<usize> {
        self.owners.get(&session).copied()
    }

    /// The nodes that a client believes in.
    pub(crate) fn believed(&self, client: usize) -> Vec<String> {
        let open = self.open_beliefs.keys().filter(|(of, _)| *of == client);
        open.map(|(_, path)| path.clone()).collect()
    }

    /// Finds the steps of new frames, and what they say of sessions and watches.
    fn see_frames(&mut self) {
        while let Some(frame) = self.frames.all.get_mut(self.seen) {
            frame.step = self.steps.of(frame);
            let frame = &self.frames.all[self.seen];
            self.seen += 1;
            let session = frame.fields["body"]["sessionId"].as_i64().filter(|id| *id != 0);
            let is_reply = !frame.to_server && frame.kind() == "connect";
            if let Some(id) = session.filter(|_| is_reply)
                && self.owners.insert(id, frame.client).is_none()
            {
                let (client, from) = (frame.client, frame.sent);
                self.sessions.push(Session { client, id: format!("{id:#x}"), from });
            }
            self.watches.take(frame);
        }
    }

    fn applied(&mut self, at: u64, path: &str, event: EventType, of: (String, i64, i64)) {
        if path.starts_with("/zookeeper") {
            return;
        }
        let (data, owner, zxid) = of;
        match event {
            EventType::NodeDeleted => drop(self.nodes.remove(path)),
            EventType::NodeCreated => {
                let client = self.owners.get(&owner).copied();
                let node = Node { path: path.to_owned(), client, zxid, data };
                self.nodes.insert(path.to_owned(), node);
            }
            _ => {
                if let Some(node) = self.nodes.get_mut(path) {
                    node.data = data;
                }
            }
        }
        self.note_queues(at);
    }

    /// Notes the nodes after a change.
    pub(crate) fn note_queues(&mut self, at: u64) {
        let mut nodes: Vec<_> = self.nodes.values().cloned().collect();
        nodes.sort_by(|a, b| place(&a.path).cmp(&place(&b.path)));
        self.find_truths(at, &nodes);
        // Changes of one transaction have one time.
        self.queues.retain(|queues| queues.at < at);
        self.queues.push(Queues { at, nodes });
    }

    /// Compares who holds by the nodes with who held before.
    fn find_truths(&mut self, at: u64, nodes: &[Node]) {
        let mut queues = BTreeMap::<&str, Vec<&Node>>::new();
        for node in nodes {
            let is_single = number(&node.path).is_none();
            // The owner of a node of live traffic may be unknown; it has its place in the queue.
            if is_single && node.client.is_none() {
                continue;
            }
            let queue = if is_single { node.path.as_str() } else { parent(&node.path) };
            queues.entry(queue).or_default().push(node);
        }
        let mut holders = BTreeSet::new();
        for (queue, nodes) in queues {
            // The mutex that guards a semaphore is no hold.
            if queue.ends_with("/locks") {
                continue;
            }
            let limit = if queue.ends_with("/leases") { self.leases } else { 1 };
            let readers = nodes.iter().take_while(|node| node.path.contains("__READ__")).count();
            let of_queue = nodes.iter().take(limit.max(readers));
            holders.extend(of_queue.filter_map(|node| Some((node.client?, node.path.clone()))));
        }
        let ended: Vec<_> =
            self.open_truths.keys().filter(|open| !holders.contains(*open)).cloned().collect();
        for (client, path) in ended {
            if let Some(from) = self.open_truths.remove(&(client, path.clone())) {
                self.truths.push(Interval { client, path, from, to: at });
            }
        }
        for holder in holders {
            self.open_truths.entry(holder).or_insert(at);
        }
    }

    pub(crate) fn belief(&mut self, at: u64, (client, path): (usize, &str), until: Option<Bounds>) {
        let key = (client, path.to_owned());
        let Some(Bounds { believed, proven }) = until else {
            if let Some(belief) = self.open_beliefs.remove(&key) {
                self.beliefs.push(Belief { to: at, ..belief });
            }
            return;
        };
        self.steps.hold(path);
        let bound = (believed < u64::MAX).then_some(micros(believed));
        let belief = self.open_beliefs.entry(key).or_insert_with(|| Belief {
            client,
            path: path.to_owned(),
            from: at,
            to: at,
            bounds: Vec::new(),
        });
        belief.bounds.push((at, bound, micros(proven)));
    }

    fn says(&mut self, at: u64, client: usize, text: &str) {
        let accepted = text.strip_prefix(ACCEPTS).map(|token| (token, true));
        let write = accepted.or_else(|| text.strip_prefix(REFUSES).map(|token| (token, false)));
        if let Some((token, accepted)) = write
            && let Ok(token) = token.parse()
        {
            let is_late = self.writes.iter().any(|write| write.token > token);
            self.writes.push(Write { at, client, token, accepted, is_late });
        }
        self.notes.push(Note { at, client, is_state: false, text: text.to_owned() });
    }

    /// The timeline of what was read, up to a time.
    pub(crate) fn timeline(&self, last: u64) -> Timeline {
        let open = self.open_truths.iter().map(|((client, path), from)| Interval {
            client: *client,
            path: path.clone(),
            from: *from,
            to: last,
        });
        let mut truths: Vec<_> = self.truths.iter().cloned().chain(open).collect();
        let open = self.open_beliefs.values().map(|of| Belief { to: last, ..of.clone() });
        let mut beliefs: Vec<_> = self.beliefs.iter().cloned().chain(open).collect();
        truths.sort_by_key(|of| (of.from, of.client));
        beliefs.sort_by_key(|of| (of.from, of.client));
        Timeline {
            end: last,
            clients: Vec::new(),
            members: 1,
            is_cut_off: false,
            is_live: false,
            takes_faults: false,
            frames: self.frames.all.clone(),
            queues: self.queues.clone(),
            watches: self.watches.clone().end(last),
            beliefs,
            truths,
            overlaps: Vec::new(),
            notes: self.notes.clone(),
            writes: self.writes.clone(),
            faults: Vec::new(),
            sessions: self.sessions.clone(),
            violations: self.violations.clone(),
            steps: steps::all(),
        }
    }
}

/// The number at the end of a sequential node's name.
fn number(path: &str) -> Option<&str> {
    let digits = path.get(path.len().checked_sub(10)?..)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(digits)
}

/// The place of a node among all: below its parent, and in a queue by its number.
pub(crate) fn place(path: &str) -> (&str, Option<&str>, &str) {
    number(path).map_or((path, None, ""), |number| (parent(path), Some(number), path))
}

/// The watches at the servers.
#[derive(Clone, Default)]
struct Watches {
    open: Vec<Watch>,
    ended: Vec<Watch>,
    /// The requests that leave watches if they are answered, by connection and xid.
    asked: BTreeMap<(usize, i64), Vec<(String, bool)>>,
}

impl Watches {
    /// Takes a frame, in the order in which frames were sent.
    fn take(&mut self, frame: &Frame) {
        let xid = (frame.connection, frame.xid().unwrap_or_default());
        match (frame.kind(), frame.to_server) {
            // A new connection has none; setWatches sets them again.
            ("connect", false) => self.remove(frame, |_| true, false),
            ("request", _) => {
                let asked = asked(frame);
                if !asked.is_empty() {
                    self.asked.insert(xid, asked);
                }
            }
            ("reply", _) => {
                let exists = frame.op() == "exists" && frame.error() == Some("NONODE");
                let asked = self.asked.remove(&xid).unwrap_or_default();
                if frame.op() == "closeSession" {
                    self.remove(frame, |_| true, false);
                }
                if frame.error().is_some() && !exists {
                    return;
                }
                for (path, of_children) in asked {
                    let (client, from) = (frame.client, frame.sent);
                    let watch = Watch { client, path, of_children, from, to: from, fired: false };
                    let is_known = self.open.iter().any(|of| {
                        (of.client, &of.path, of.of_children) == (client, &watch.path, of_children)
                    });
                    if !is_known {
                        self.open.push(watch);
                    }
                }
            }
            ("event", _) => {
                let path = frame.path();
                let event = frame.fields["event"].as_str().unwrap_or_default();
                let is_fired = |watch: &Watch| {
                    watch.path == path
                        && match event {
                            "NodeChildrenChanged" => watch.of_children,
                            "NodeDeleted" => true,
                            _ => !watch.of_children,
                        }
                };
                self.remove(frame, is_fired, true);
            }
            _ => {}
        }
    }

    fn remove(&mut self, frame: &Frame, is_it: impl Fn(&Watch) -> bool, fired: bool) {
        let of_client = |watch: &mut Watch| watch.client == frame.client && is_it(watch);
        let removed: Vec<_> = self.open.extract_if(.., of_client).collect();
        let ended = removed.into_iter().map(|watch| Watch { to: frame.sent, fired, ..watch });
        self.ended.extend(ended);
    }

    fn end(mut self, last: u64) -> Vec<Watch> {
        self.ended.extend(self.open.into_iter().map(|watch| Watch { to: last, ..watch }));
        self.ended.sort_by_key(|watch| watch.from);
        self.ended
    }
}

/// The watches that a request leaves, each with whether it is one of the children.
fn asked(frame: &Frame) -> Vec<(String, bool)> {
    let body = &frame.fields["body"];
    if body["watch"] == true {
        return vec![(frame.path().to_owned(), frame.op().starts_with("getChildren"))];
    }
    let list = |name: &str, of_children| {
        let paths = body[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        paths.map(move |path| (path.to_owned(), of_children)).collect::<Vec<_>>()
    };
    let lists = ["dataWatches", "existWatches"].map(|name| list(name, false));
    lists.into_iter().flatten().chain(list("childWatches", true)).collect()
}

/// The faults of a script, with the members and clients that they concern.
fn faults(script: &Script, outcome: &Outcome, last: u64) -> Vec<Span> {
    let span = |fault: &script::Fault| {
        let ms = |ms: u64| ms * 1_000;
        let from = ms(fault.at_ms);
        let (kind, client, member, lasts) = match fault.what {
            What::Drop { client, .. } => ("drop", Some(client), None, 0),
            What::Delay { client, for_ms, .. } => ("delay", Some(client), None, for_ms),
            What::Lose { client, for_ms, .. } => ("lose", Some(client), None, for_ms),
            What::Cut { client } => ("cut", Some(client), None, 0),
            What::Stop { client, for_ms } => ("stop", Some(client), None, for_ms),
            What::Kill { client } => ("kill", Some(client), None, u64::MAX),
            What::Expire { client } => ("expire", Some(client), None, 0),
            What::Skew { client, .. } => ("skew", Some(client), None, u64::MAX),
            What::Delete { .. } => ("delete", None, None, 0),
            What::Isolate { member, for_ms } => ("isolate", None, Some(member), for_ms),
            What::StopMember { member, for_ms } => ("stop", None, Some(member), for_ms),
            What::Lag { member, for_ms } => ("lag", None, Some(member), for_ms),
        };
        let to = from.saturating_add(lasts.saturating_mul(1_000)).min(last.max(from));
        Span { from, to, client, member, kind: kind.to_owned(), text: fault.to_string() }
    };
    let of_script = script.faults.iter().map(span);
    let is_drawn = !matches!(script.subject, Subject::Clients(_));
    let drawn = outcome.history.records.iter().filter(|_| is_drawn).take(MOST_RECORDS);
    let drawn = drawn.filter_map(|record| match &record.what {
        Happened::Fault(text) => Some(Span {
            from: micros(record.at),
            to: micros(record.at),
            client: None,
            member: None,
            kind: "plan".to_owned(),
            text: text.clone(),
        }),
        _ => None,
    });
    of_script.chain(drawn).collect()
}

/// The times in which clients that run believe in holds that exclude each other.
pub(crate) fn overlaps(timeline: &Timeline, leases: usize) -> Vec<Overlap> {
    let mut edges: Vec<u64> = timeline.beliefs.iter().flat_map(|of| [of.from, of.to]).collect();
    let stops = timeline.faults.iter().filter(|of| of.kind == "stop" && of.client.is_some());
    edges.extend(stops.clone().flat_map(|of| [of.from, of.to]));
    edges.sort_unstable();
    edges.dedup();
    let mut overlaps = Vec::<Overlap>::new();
    for pair in edges.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let is_stopped = |client| {
            stops.clone().any(|of| of.client == Some(client) && of.from <= from && from < of.to)
        };
        let believed: Vec<_> = timeline
            .beliefs
            .iter()
            .filter(|of| of.from <= from && to <= of.to && !is_stopped(of.client))
            .collect();
        let excluded = believed.iter().filter(|one| {
            let rivals = believed.iter().filter(|other| excludes(one, other)).count();
            let limit = if one.path.contains("/leases/") { leases } else { 1 };
            rivals >= limit
        });
        let clients: BTreeSet<_> = excluded.map(|of| of.client).collect();
        if clients.len() < 2 {
            continue;
        }
        let clients: Vec<_> = clients.into_iter().collect();
        match overlaps.last_mut().filter(|last| last.to == from && last.clients == clients) {
            Some(last) => last.to = to,
            None => overlaps.push(Overlap { clients, from, to }),
        }
    }
    overlaps
}

/// Whether a hold excludes that of another client; for leases, whether it is one of the same semaphore.
fn excludes(one: &Belief, other: &Belief) -> bool {
    let lock = |belief: &Belief| match number(&belief.path) {
        Some(_) => parent(&belief.path).to_owned(),
        None => belief.path.clone(),
    };
    let reads = |belief: &Belief| belief.path.contains("__READ__");
    one.client != other.client && lock(one) == lock(other) && !(reads(one) && reads(other))
}
