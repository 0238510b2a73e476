//! A recording as the rows of a sequence diagram.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use docent_protocol::{OpCode, dissect::Direction};
use docent_steps::{Recognizer, is_lock_node, parent};
use docent_testing::tap::{Printer, Record, TextOptions, What};

use super::steps::{self, Traced};

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Row {
    /// The action of a client.
    Note(String),
    /// Time passes.
    Pause(String),
    /// What a client believes from here on. Nothing is sent.
    Belief(Belief),
    Frame(Frame),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Belief {
    pub(super) client: String,
    pub(super) bar: Bar,
    /// The step of `LockInternals`: the decision.
    pub(super) step: Option<u64>,
    /// None if the frame that follows says it.
    pub(super) text: Option<String>,
}

/// The bar on the lifeline of a client. The stronger belief counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Bar {
    #[default]
    None,
    Waits,
    Holds,
}

/// A message between a client and the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) client: String,
    pub(super) kind: Kind,
    /// The tap dropped it and cut the connection.
    pub(super) lost: bool,
    /// The step of `LockInternals` that sent the frame, or that the event wakes.
    pub(super) step: Option<u64>,
    pub(super) text: String,
    pub(super) remark: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Reply,
    Event,
}

/// A diagram of some clients and a server.
#[derive(Debug)]
pub(crate) struct Diagram {
    pub(crate) name: &'static str,
    pub(super) title: &'static str,
    pub(super) clients: Vec<String>,
    pub(super) rows: Vec<Row>,
    printer: Printer,
    steps: Recognizer<String>,
    /// What the clients believe of their nodes, by client and path.
    beliefs: BTreeMap<(String, String), Bar>,
    /// When the last two replies to each client were recorded.
    replies: BTreeMap<String, [Duration; 2]>,
    /// Before the recording.
    start: Instant,
    pub(super) session_timeout: Duration,
    /// Remarks on the events of a client, each for the next event whose text contains the words.
    remarks: Vec<(String, String, String)>,
}

impl Diagram {
    pub(crate) fn new(name: &'static str, title: &'static str) -> Self {
        let printer = Printer::new(TextOptions::default());
        Self {
            name,
            title,
            clients: Vec::new(),
            rows: Vec::new(),
            printer,
            steps: Recognizer::default(),
            beliefs: BTreeMap::new(),
            replies: BTreeMap::new(),
            start: Instant::now(),
            session_timeout: Duration::ZERO,
            remarks: Vec::new(),
        }
    }

    pub(crate) fn client(&mut self, label: &str) {
        self.clients.push(label.to_owned());
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.rows.push(Row::Note(text.to_owned()));
    }

    pub(crate) fn pause(&mut self, text: &str) {
        self.rows.push(Row::Pause(text.to_owned()));
    }

    /// Removes what a client believes: its process has ended.
    pub(crate) fn forget(&mut self, client: &str) {
        self.beliefs.retain(|(of, _), _| of != client);
        self.push_belief(client, None, None);
    }

    /// Explains the next event of a client whose text contains these words.
    pub(crate) fn remark(&mut self, client: &str, event: &str, remark: &str) {
        self.remarks.push((client.to_owned(), event.to_owned(), remark.to_owned()));
    }

    /// Adds rows for these frames, and for the events in `traced`, which the locks reported meanwhile.
    ///
    /// # Panics
    ///
    /// If the steps of the frames are not those in `traced`.
    pub(crate) fn frames<'a>(
        &mut self,
        first: &str,
        records: impl Iterator<Item = &'a Record>,
        traced: &[Traced],
    ) {
        let ordered = ordered(first, records.collect());
        // Only after all of these frames is it known which client has created a node.
        let mut after = self.steps.clone();
        for record in &ordered {
            steps::step(&mut after, record);
        }
        let mut items: Vec<_> = ordered.into_iter().map(Item::Frame).collect();
        for event in traced {
            let client = after.owner(&event.path).unwrap_or(&event.client).clone();
            // What ends with a delete ends in front of it: a request that is sent earlier may be recorded later.
            let ends = |item: &Item<'_>| matches!(item, Item::Frame(record) if is_delete(record, &client, &event.path));
            if event.belief == "over" && items.iter().any(ends) {
                continue;
            }
            let is_own = |item: &Item<'_>| item.client() == client;
            let is_before = |item: &Item<'_>| is_own(item) && item.seq() < event.seq;
            let at = match items.iter().rposition(is_before) {
                Some(before) => before + 1,
                None if client == first => 0,
                None => items.iter().position(is_own).unwrap_or(items.len()),
            };
            items.insert(at, Item::Event(client, event));
        }
        let mut shown = BTreeSet::new();
        for item in items {
            match item {
                Item::Frame(record) => shown.extend(self.frame(record)),
                Item::Event(client, event) => self.event(&client, event),
            }
            self.drop_repeated();
        }
        steps::verify(&shown, traced, |path| is_lock_node(path) || after.is_lock(path));
    }

    /// Adds the row of a frame. Returns its step.
    fn frame(&mut self, record: &Record) -> Option<u64> {
        let direction = record.direction()?;
        let line = self.printer.line(record)?;
        let kind = match (direction, &record.what) {
            (Direction::ToServer, _) => Kind::Request,
            (_, What::Event { .. }) => Kind::Event,
            _ => Kind::Reply,
        };
        let client = record.client.to_string();
        // No event traces that a dropped acquire deletes its node in the background.
        if record.is_request(OpCode::Delete) {
            self.end_belief(&client, record.path().unwrap_or_default());
        }
        let (text, step) = (words(&line), steps::step(&mut self.steps, record));
        assert_eq!(text.matches('[').count(), text.matches(']').count(), "{text}: {line}");
        let remark = self.remarks.iter().position(|(of, event, _)| {
            kind == Kind::Event && *of == client && text.contains(event)
        });
        let remark = remark.map(|at| self.remarks.remove(at).2);
        let lost = record.injected.is_some_and(|fault| {
            fault.contains("dropped") || (kind == Kind::Request && fault == "DROP_BEFORE")
        });
        if kind == Kind::Reply && !lost {
            let [_, last] = self.replies.get(&client).copied().unwrap_or_default();
            self.replies.insert(client.clone(), [last, record.at]);
        }
        self.rows.push(Row::Frame(Frame { client, kind, lost, step, text, remark }));
        step
    }

    /// Adds what a client believes from an event on, if that is new.
    fn event(&mut self, client: &str, event: &Traced) {
        let place = (client.to_owned(), event.path.clone());
        let text = match event.belief.as_str() {
            "unknown" => "does not know whether its node exists".to_owned(),
            "waits" => {
                self.beliefs.insert(place, Bar::Waits);
                match self.steps.owner(&event.ahead) {
                    Some(owner) => format!("waits for {owner}'s node"),
                    None if event.ahead.is_empty() => "waits for a lease".to_owned(),
                    None => format!("waits for {}", event.ahead),
                }
            }
            "holds" => {
                if is_lock_node(&event.path) {
                    self.steps.hold(&event.path);
                }
                self.beliefs.insert(place, Bar::Holds);
                format!("{}{}", held(&event.path), self.until(client, event))
            }
            "over" => return self.end_belief(client, &event.path),
            _ => return,
        };
        self.push_belief(client, event.step.filter(|step| *step == 6), Some(text));
    }

    fn end_belief(&mut self, client: &str, path: &str) {
        let text = match self.beliefs.remove(&(client.to_owned(), path.to_owned())) {
            Some(Bar::Holds) => format!("{} no longer", held(path)),
            Some(_) => "waits no longer".to_owned(),
            None => return,
        };
        self.push_belief(client, None, Some(text));
    }

    /// The end of a hold: one session timeout after the sending of the last request that was answered.
    ///
    /// # Panics
    ///
    /// If the lock counts from an earlier moment.
    fn until(&self, client: &str, event: &Traced) -> String {
        let Some(left) = &event.left else { return ", and asks no clock".to_owned() };
        let left = Duration::from_secs_f64(left.parse().unwrap());
        let lasts = self.session_timeout - self.session_timeout / 20;
        let [before, last] = self.replies.get(client).copied().unwrap_or_default();
        let sent = (event.at - self.start + left).checked_sub(lasts).unwrap();
        assert!(sent >= before, "counted from {sent:?}; answers at {before:?} and {last:?}");
        let is_reply = |row: &Row| matches!(row, Row::Frame(frame) if frame.client == client && frame.kind == Kind::Reply);
        let replied = self.rows.iter().rposition(is_reply).expect("an answer");
        let asked = self.rows[..replied].iter().rev().find_map(|row| match row {
            Row::Frame(frame) if frame.client == client && frame.kind == Kind::Request => {
                Some(frame)
            }
            _ => None,
        });
        let asked = asked.expect("its request");
        let name = asked.text.split(' ').next().unwrap_or_default();
        let name = asked.step.map_or_else(|| name.to_owned(), |step| format!("({step})"));
        format!(" until T after {name}")
    }

    /// Adds the bar of a client, and the words of its new belief.
    fn push_belief(&mut self, client: &str, step: Option<u64>, text: Option<String>) {
        let beliefs = self.beliefs.iter().filter(|((of, _), _)| of == client);
        // The mutex of a semaphore is the way to a lease.
        let is_inner = |path: &str| parent(path).ends_with("/locks");
        let bars = beliefs.map(|((_, path), bar)| if is_inner(path) { Bar::Waits } else { *bar });
        let bar = bars.max().unwrap_or_default();
        self.rows.push(Row::Belief(Belief { client: client.to_owned(), bar, step, text }));
    }

    /// A waiter that times out may list, decide and read once more: rows that repeat the five rows before them are
    /// dropped.
    fn drop_repeated(&mut self) {
        const LOOK: usize = 5;
        let Some(start) = self.rows.len().checked_sub(2 * LOOK) else { return };
        let (before, again) = self.rows[start..].split_at(LOOK);
        if before == again && before.iter().all(|row| matches!(row, Row::Frame(_) | Row::Belief(_)))
        {
            self.rows.truncate(start + LOOK);
        }
    }

    /// Inserts a pause before the last request of a client, which it sent when that time had passed.
    pub(crate) fn pause_before_last_request(&mut self, of: &str, text: &str) {
        self.pause_before(of, "", text);
    }

    /// Inserts a pause before a client's last delete below a path.
    pub(crate) fn pause_before_delete_of(&mut self, of: &str, path: &str, text: &str) {
        self.pause_before(of, &format!("delete {path}/"), text);
    }

    fn pause_before(&mut self, of: &str, request: &str, text: &str) {
        let is_request = |row: &Row| {
            matches!(row, Row::Frame(frame) if frame.client == of
                && frame.kind == Kind::Request
                && frame.text.starts_with(request))
        };
        let mut at = self.rows.iter().rposition(is_request).unwrap();
        // What the client believed until then.
        while matches!(self.rows[at - 1], Row::Belief(_)) {
            at -= 1;
        }
        self.rows.insert(at, Row::Pause(text.to_owned()));
    }

    /// Inserts a pause before the first frame of a client after the last note.
    pub(crate) fn pause_before_first_frame(&mut self, of: &str, text: &str) {
        let note = self.rows.iter().rposition(|row| matches!(row, Row::Note(_))).unwrap();
        let is_frame = |row: &Row| matches!(row, Row::Frame(frame) if frame.client == of);
        let at = note + self.rows[note..].iter().position(is_frame).unwrap();
        self.rows.insert(at, Row::Pause(text.to_owned()));
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Removes all rows from `start` on, except for the bars.
    pub(crate) fn hide_frames_from(&mut self, start: usize) {
        let hidden = self.rows.split_off(start);
        self.rows.extend(hidden.into_iter().filter_map(|row| match row {
            Row::Belief(belief) => Some(Row::Belief(Belief { step: None, text: None, ..belief })),
            _ => None,
        }));
    }

    /// Whether every remark has found its event.
    pub(crate) fn is_explained(&self) -> bool {
        self.remarks.is_empty()
    }

    /// The operations of all requests.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| match row {
            Row::Frame(frame) if frame.kind == Kind::Request => frame.text.split(' ').next(),
            _ => None,
        })
    }
}

/// A frame, or an event of a lock between the frames of its client.
enum Item<'a> {
    Frame(&'a Record),
    Event(String, &'a Traced),
}

impl Item<'_> {
    fn client(&self) -> &str {
        match self {
            Self::Frame(record) => &record.client,
            Self::Event(client, _) => client,
        }
    }

    /// An event has the number of the record after it.
    const fn seq(&self) -> u64 {
        match self {
            Self::Frame(record) => record.seq,
            Self::Event(_, event) => event.seq.saturating_sub(1),
        }
    }
}

/// Whether a client deletes its node.
fn is_delete(record: &Record, client: &str, path: &str) -> bool {
    record.is_request(OpCode::Delete) && *record.client == *client && record.path() == Some(path)
}

/// Frames in an order that is the same in each run. Those of `first` come first, then those of the other clients by
/// name: frames of two connections may arrive in any order. Each reply follows its own request directly: the next
/// request may be sent before or after that reply arrives.
fn ordered<'a>(first: &str, mut records: Vec<&'a Record>) -> Vec<&'a Record> {
    records.sort_by_key(|record| (&*record.client != first, record.client.clone()));
    let mut ordered: Vec<&Record> = Vec::new();
    for record in records {
        let at = match record.what {
            What::Reply { xid: answered, .. } => ordered.iter().rposition(|other| {
                let asked = matches!(other.what, What::Request { xid, .. } if xid == answered);
                asked && other.connection == record.connection
            }),
            _ => None,
        };
        ordered.insert(at.map_or(ordered.len(), |at| at + 1), record);
    }
    ordered
}

/// What the owner of a node says that it holds.
fn held(path: &str) -> String {
    let lock = if path.contains("/_c_") { parent(path) } else { path };
    match path {
        _ if path.contains("-latch-") => "leads".to_owned(),
        _ if path.contains("-lease-") => "holds a lease".to_owned(),
        _ if path.contains("__READ__") => format!("reads {lock}"),
        _ if path.contains("__WRIT__") => format!("writes {lock}"),
        _ => format!("holds {lock}"),
    }
}

/// Parts of a trace, and the words that replace them.
const SAID: [(&str, &str); 10] = [
    ("[[inject DROP_REPLY]]", ""),
    ("[[inject DELAY_BEFORE]]", ""),
    ("[[reply dropped + connection cut]]", "- lost: the connection breaks"),
    ("[[inject DROP_BEFORE]]", "- lost: the connection breaks"),
    ("multi OK [error", "multi [error"),
    ("error NONODE", "no such node"),
    ("error RUNTIMEINCONSISTENCY", "not done"),
    // Between the operations of a multi.
    (";", ","),
    ("mode=0", "persistent"),
    ("mode=1", "persistent, recursive"),
];

/// A line of the trace without the parts that every line of its kind has.
fn words(line: &str) -> String {
    let text = line.split_once("-> ").or_else(|| line.split_once("<- ")).map_or(line, |it| it.1);
    let text = SAID.iter().fold(text.to_owned(), |text, (dry, plain)| text.replace(dry, plain));
    let text = text.as_str();
    // A server lists children in no order.
    let (text, list) =
        match text.split_once("children=[").map(|(text, list)| (text, list.split_once(']'))) {
            Some((text, Some((list, _)))) => {
                let mut names: Vec<_> = list.split(", ").collect();
                names.sort_unstable_by_key(|name| (name.rsplit('-').next(), *name));
                (text, Some(format!("[{}]", names.join(", "))))
            }
            _ => (text, None),
        };
    let mut kept: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        // The end of a list or of one of its items stays, even if the word before it is removed.
        let bare = word.trim_end_matches([']', ',']);
        let end = &word[bare.len()..];
        let word = match bare {
            "acl=31:world:anyone"
            | "watch=false"
            | "+stat"
            | "v=-1"
            | "type=3"
            | "flags=0"
            | "flags=4" => "",
            "flags=1" => "ephemeral",
            "flags=3" => "ephemeral sequential",
            "watch=true" => "and watch",
            "NONODE" => "no such node",
            "NODEEXISTS" => "exists already",
            "EVENT" => "event",
            "sid=0" => "new session",
            "sid=prev" => "same session",
            _ if bare.ends_with("=[") => "",
            _ if ["data=", "stat=", "timeout=", "zxid="].iter().any(|it| bare.starts_with(it)) => {
                ""
            }
            _ => bare,
        };
        // `create2(15)`: the number of the operation is left out.
        let word = match word.split_once('(') {
            Some((name, rest)) if rest.trim_end_matches(')').parse::<i32>().is_ok() => name,
            _ => word.strip_prefix("path=").unwrap_or(word),
        };
        let end = if bare.ends_with("=[") { end.strip_prefix(']').unwrap_or(end) } else { end };
        match kept.last_mut() {
            Some(last) if word.is_empty() && !last.ends_with(',') => last.push_str(end),
            _ if word.is_empty() => {}
            _ => kept.push(format!("{word}{end}")),
        }
    }
    kept.into_iter().chain(list).collect::<Vec<_>>().join(" ")
}
