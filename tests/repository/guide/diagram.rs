//! A recording as a sequence diagram: Mermaid for editors, SVG for readers.

use std::fmt::Write as _;

use docent_protocol::dissect::Direction;
use docent_testing::tap::{Printer, Record, TextOptions, What};

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Row {
    /// What the program did or saw.
    Note(String),
    /// A frame: its client, its direction, and its text.
    Frame { client: String, to_server: bool, event: bool, text: String },
}

/// A diagram of some clients and a server.
#[derive(Debug)]
pub(crate) struct Diagram {
    pub(crate) name: &'static str,
    title: &'static str,
    clients: Vec<String>,
    rows: Vec<Row>,
    printer: Printer,
}

impl Diagram {
    pub(crate) fn new(name: &'static str, title: &'static str) -> Self {
        let printer = Printer::new(TextOptions::default());
        Self { name, title, clients: Vec::new(), rows: Vec::new(), printer }
    }

    pub(crate) fn client(&mut self, label: &str) {
        self.clients.push(label.to_owned());
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.rows.push(Row::Note(text.to_owned()));
    }

    /// Rows for these frames, as far as they have an order of their own. Those of `first` come first, then the
    /// others' in the order of their names: what two connections do at the same time may come in any. So may a
    /// request and the reply of the one before it: each reply stands behind its request.
    pub(crate) fn frames<'a>(&mut self, first: &str, records: impl Iterator<Item = &'a Record>) {
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
        for record in ordered {
            let Some(direction) = record.direction() else { continue };
            let Some(line) = self.printer.line(record) else { continue };
            let to_server = direction == Direction::ToServer;
            let event = matches!(record.what, What::Event { .. });
            let text = words(&line);
            self.rows.push(Row::Frame {
                client: record.client.to_string(),
                to_server,
                event,
                text,
            });
            self.drop_repeated();
        }
    }

    /// A waiter whose time is over may look once more: the same listing and the same read are shown once.
    fn drop_repeated(&mut self) {
        const LOOK: usize = 4;
        let Some(start) = self.rows.len().checked_sub(2 * LOOK) else { return };
        let (before, again) = self.rows[start..].split_at(LOOK);
        if before == again && before.iter().all(|row| matches!(row, Row::Frame { .. })) {
            self.rows.truncate(start + LOOK);
        }
    }

    pub(crate) fn mermaid(&self) -> String {
        let mut out = String::from("sequenceDiagram\n");
        for client in &self.clients {
            let _ = writeln!(out, "    participant {client}");
        }
        out.push_str("    participant Z as ZooKeeper\n");
        let last = self.clients.last().map_or("Z", String::as_str);
        let first = self.clients.first().map_or("Z", String::as_str);
        for row in &self.rows {
            let _ = match row {
                Row::Note(text) if first == last => {
                    writeln!(out, "    Note over {first},Z: {text}")
                }
                Row::Note(text) => writeln!(out, "    Note over {first},{last}: {text}"),
                Row::Frame { client, to_server: true, text, .. } => {
                    writeln!(out, "    {client}->>Z: {text}")
                }
                Row::Frame { client, event: true, text, .. } => {
                    writeln!(out, "    Z-){client}: {text}")
                }
                Row::Frame { client, text, .. } => writeln!(out, "    Z-->>{client}: {text}"),
            };
        }
        out
    }

    pub(crate) fn svg(&self) -> String {
        let columns = self.clients.len() + 1;
        let longest = self.rows.iter().map(|row| row.text().chars().count()).max().unwrap_or(0);
        // About 6.3 units a letter at this size; an arrow of the last client is the shortest one.
        let span = (longest * 63 / 10 + 40).max(260);
        let (side, step) = (60, 120);
        let x = |column: usize| {
            if column + 1 == columns {
                side + (columns - 2) * step + span
            } else {
                side + column * step
            }
        };
        let (width, height) = (x(columns - 1) + side + 20, 70 + self.rows.len() * 24 + 20);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             role=\"img\" font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"10.5\">\n\
             <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
            escape(self.title)
        );
        let names = self.clients.iter().map(String::as_str).chain(["ZooKeeper"]);
        for (column, name) in names.enumerate() {
            let x = x(column);
            let _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"24\" text-anchor=\"middle\" font-size=\"13\" font-weight=\"bold\">{}</text>\
                 <line x1=\"{x}\" y1=\"34\" x2=\"{x}\" y2=\"{}\" stroke=\"#bbb\"/>",
                escape(name),
                height - 14
            );
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = 62 + number * 24;
            match row {
                Row::Note(text) => {
                    let _ = writeln!(
                        out,
                        "<rect x=\"8\" y=\"{}\" width=\"{}\" height=\"18\" fill=\"#fff6d6\" stroke=\"#e6cf7a\"/>\
                         <text x=\"14\" y=\"{}\">{}</text>",
                        y - 13,
                        width - 16,
                        y,
                        escape(text)
                    );
                }
                Row::Frame { client, to_server, event, text } => {
                    let column = self.clients.iter().position(|name| name == client).unwrap_or(0);
                    let (client, server) = (x(column), x(columns - 1));
                    let (from, to, head) =
                        if *to_server { (client, server, -7) } else { (server, client, 7) };
                    let (color, dash) = match (to_server, event) {
                        (true, _) => ("#14527a", ""),
                        (false, true) => ("#b3261e", ""),
                        (false, false) => ("#557", " stroke-dasharray=\"4 3\""),
                    };
                    // The text stands where only the last client's lifeline crosses it.
                    let at = x(columns - 2).max(client) + 10;
                    let _ = writeln!(
                        out,
                        "<line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"{color}\"{dash}/>\
                         <path d=\"M{to} {y} l{head} -3 v6 z\" fill=\"{color}\"/>\
                         <text x=\"{at}\" y=\"{}\" fill=\"{color}\">{}</text>",
                        y - 6,
                        escape(text)
                    );
                }
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

impl Row {
    fn text(&self) -> &str {
        match self {
            Self::Note(text) | Self::Frame { text, .. } => text,
        }
    }
}

/// What a trace says, in words.
const SAID: [(&str, &str); 9] = [
    (" v=-1", ""),
    (" type=3", ""),
    ("[[inject DROP_REPLY]]", ""),
    ("[[inject DELAY_BEFORE]]", ""),
    ("[[reply dropped + connection cut]]", "- lost: the connection breaks"),
    ("[[inject DROP_BEFORE]]", "- lost: the connection breaks"),
    ("multi OK [error", "multi [error"),
    ("error NONODE", "no such node"),
    ("error RUNTIMEINCONSISTENCY", "not done"),
];

/// A line of the trace without what every line of its kind has.
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
    let mut kept = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let word = match word {
            "acl=31:world:anyone" | "watch=false" | "+stat" | "v=-1" | "flags=0" => continue,
            "flags=1" => "ephemeral",
            "flags=3" => "ephemeral sequential",
            "flags=4" => "container",
            "watch=true" => "and watch",
            "NONODE" => "no such node",
            "NODEEXISTS" => "exists already",
            "sid=0" => "new session",
            "sid=prev" => "same session",
            _ if word.starts_with("data=") || word.starts_with("stat=") => continue,
            _ if word.starts_with("timeout=") => continue,
            _ => word,
        };
        // `create2(15)`: the number is the protocol's business.
        match word.split_once('(') {
            Some((name, rest)) if rest.trim_end_matches(')').parse::<i32>().is_ok() => {
                kept.push(name);
            }
            _ => kept.push(word.strip_prefix("path=").unwrap_or(word)),
        }
    }
    kept.into_iter().chain(list.as_deref()).collect::<Vec<_>>().join(" ")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
