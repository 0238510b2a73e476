//! A recording as a sequence diagram: its rows, and their Mermaid source for editors.

use std::fmt::Write as _;

use docent_protocol::dissect::Direction;
use docent_testing::tap::{Printer, Record, TextOptions, What};

use super::steps::{Frames, NewHold, Traced};

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Row {
    /// The action of a client.
    Note(String),
    /// Time passes.
    Pause(String),
    /// Whether a client holds the lock from here on.
    Holds {
        client: String,
        held: bool,
    },
    Frame(Frame),
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
    frames: Frames,
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
            frames: Frames::default(),
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

    /// Marks a client as the holder of a lock that is not one of `LockInternals`.
    pub(crate) fn holds(&mut self, client: &str, held: bool) {
        self.rows.push(Row::Holds { client: client.to_owned(), held });
    }

    /// Explains the next event of a client whose text contains these words.
    pub(crate) fn remark(&mut self, client: &str, event: &str, remark: &str) {
        self.remarks.push((client.to_owned(), event.to_owned(), remark.to_owned()));
    }

    /// Adds rows for these frames in an order that is the same in each run. The frames of `first` come first, then
    /// those of the other clients by name: frames of two connections may arrive in any order. Each reply follows its
    /// own request directly: the next request may be sent before or after that reply arrives.
    ///
    /// # Panics
    ///
    /// If the steps of the frames are not those in `traced`, which the locks reported meanwhile.
    pub(crate) fn frames<'a>(
        &mut self,
        first: &str,
        records: impl Iterator<Item = &'a Record>,
        traced: &[Traced],
    ) {
        let mut records: Vec<_> = records.collect();
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
        let new_holds = self.frames.verify_steps(ordered.iter().copied(), traced);
        let start = self.rows.len();
        for record in ordered {
            let Some(direction) = record.direction() else { continue };
            let Some(line) = self.printer.line(record) else { continue };
            let kind = match (direction, &record.what) {
                (Direction::ToServer, _) => Kind::Request,
                (_, What::Event { .. }) => Kind::Event,
                _ => Kind::Reply,
            };
            let client = record.client.to_string();
            if self.frames.ends_hold(record) {
                self.rows.push(Row::Holds { client: client.clone(), held: false });
            }
            let (text, step) = (words(&line), self.frames.step(record));
            assert_eq!(text.matches('[').count(), text.matches(']').count(), "{text}: {line}");
            let remark = self.remarks.iter().position(|(of, event, _)| {
                kind == Kind::Event && *of == client && text.contains(event)
            });
            let remark = remark.map(|at| self.remarks.remove(at).2);
            let lost = record.injected.is_some_and(|fault| {
                fault.contains("dropped") || (kind == Kind::Request && fault == "DROP_BEFORE")
            });
            self.rows.push(Row::Frame(Frame { client, kind, lost, step, text, remark }));
            self.drop_repeated();
        }
        for NewHold { client, lock } in new_holds {
            let listing = format!("getChildren2 {lock}");
            let is_of = |row: &Row, kind: Kind, text: &str| {
                matches!(row, Row::Frame(frame)
                    if frame.client == client && frame.kind == kind && frame.text.starts_with(text))
            };
            let rows = &self.rows[start..];
            let asked = rows.iter().rposition(|row| is_of(row, Kind::Request, &listing));
            let asked = asked.expect("the listing that decided");
            let reply =
                rows[asked..].iter().position(|row| is_of(row, Kind::Reply, "getChildren2"));
            let at = start + asked + reply.expect("its reply") + 1;
            self.rows.insert(at, Row::Holds { client, held: true });
        }
    }

    /// A waiter that times out may list and read once more: rows that repeat the four rows before them are dropped.
    fn drop_repeated(&mut self) {
        const LOOK: usize = 4;
        let Some(start) = self.rows.len().checked_sub(2 * LOOK) else { return };
        let (before, again) = self.rows[start..].split_at(LOOK);
        if before == again && before.iter().all(|row| matches!(row, Row::Frame { .. })) {
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
        let at = self.rows.iter().rposition(is_request).unwrap();
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

    /// Removes all rows from `start` on, except for the holds.
    pub(crate) fn hide_frames_from(&mut self, start: usize) {
        let hidden = self.rows.split_off(start);
        self.rows.extend(hidden.into_iter().filter(|row| matches!(row, Row::Holds { .. })));
    }

    /// Whether every remark has found its event.
    pub(crate) fn is_explained(&self) -> bool {
        self.remarks.is_empty()
    }

    pub(crate) fn mermaid(&self) -> String {
        let mut out = String::from("sequenceDiagram\n");
        for client in &self.clients {
            let _ = writeln!(out, "    participant {client}");
        }
        out.push_str("    participant Z as ZooKeeper\n");
        let last = self.clients.last().map_or("Z", String::as_str);
        let first = self.clients.first().map_or("Z", String::as_str);
        let all = if first == last { format!("{first},Z") } else { format!("{first},{last}") };
        // A semicolon ends a row.
        let plain = |text: &str| text.replace(';', ",");
        for row in &self.rows {
            let _ = match row {
                Row::Note(text) => writeln!(out, "    Note over {all}: {}", plain(text)),
                Row::Pause(text) => writeln!(out, "    Note over {all}: ... {} ...", plain(text)),
                Row::Holds { client, held: true } => writeln!(out, "    activate {client}"),
                Row::Holds { client, .. } => writeln!(out, "    deactivate {client}"),
                Row::Frame(Frame { client, kind, lost, step, text, remark }) => {
                    let step = step.map(|step| format!("({step}) ")).unwrap_or_default();
                    let _ = match (kind, lost) {
                        (Kind::Request, false) => writeln!(out, "    {client}->>Z: {step}{text}"),
                        (Kind::Request, true) => writeln!(out, "    {client}-xZ: {step}{text}"),
                        (Kind::Reply, false) => writeln!(out, "    Z-->>{client}: {text}"),
                        (_, true) => writeln!(out, "    Z--x{client}: {text}"),
                        (Kind::Event, false) => writeln!(out, "    Z-){client}: {step}{text}"),
                    };
                    match remark {
                        Some(remark) => writeln!(out, "    Note over {client}: {}", plain(remark)),
                        None => Ok(()),
                    }
                }
            };
        }
        out
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
    // As in Mermaid's rows, which a semicolon ends.
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
