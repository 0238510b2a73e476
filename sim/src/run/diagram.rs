//! The history of a plan as a sequence diagram, in Mermaid's language.

use std::fmt::Write as _;

use super::{self as run, Watch};
use crate::{
    recipes::step::Plan,
    world::{
        history::{History, What},
        time::SECOND,
    },
};

/// The maximum number of rows. A longer history loses its first rows.
const MAX_ROWS: usize = 120;

/// Runs a plan, and draws its history until a rule was broken.
#[must_use]
pub fn of(plan: &Plan) -> String {
    let outcome = run::run_watched(plan, &Watch::with_frames());
    draw(&outcome.history, plan.processes.len(), plan.servers.count)
}

/// Draws a history until a rule was broken.
#[must_use]
pub fn draw(history: &History, processes: usize, servers: usize) -> String {
    let mut out = String::from("sequenceDiagram\n");
    let names = (0..processes).map(|pid| format!("p{pid}"));
    for name in names.chain((0..servers.max(1)).map(|member| format!("s{member}"))) {
        let _ = writeln!(out, "    participant {name}");
    }
    let last = format!("s{}", servers.max(1) - 1);
    let mut guids = Guids::default();
    let mut rows = Vec::new();
    for record in &history.records {
        let seconds = record.at as f64 / SECOND as f64;
        let row = match &record.what {
            What::Frame { text, .. } if is_ping(text) => continue,
            What::Applied { .. } | What::HeldUntil { .. } | What::Belief { .. } | What::Wire(_) => {
                continue;
            }
            What::Frame { pid, member, to_server, is_event, text } => {
                let text = guids.shorten(&essence(text));
                match (to_server, is_event) {
                    (true, _) => format!("p{pid}->>s{member}: {text}"),
                    (_, true) => format!("s{member}-)p{pid}: {text}"),
                    (_, false) => format!("s{member}-->>p{pid}: {text}"),
                }
            }
            What::Worker { pid, text, .. } => {
                format!("Note over p{pid}: {seconds:.3} s: {}", guids.shorten(text))
            }
            What::State(pid, text) => format!("Note over p{pid}: {seconds:.3} s: {text}"),
            What::Finished(pid) => format!("Note over p{pid}: {seconds:.3} s: finished"),
            what => {
                format!("Note over p0,{last}: {seconds:.3} s: {}", guids.shorten(&what.to_string()))
            }
        };
        rows.push(row);
        if matches!(record.what, What::Violation(_)) {
            break;
        }
    }
    let skipped = rows.len().saturating_sub(MAX_ROWS);
    if skipped > 0 {
        let _ = writeln!(out, "    Note over p0,{last}: {skipped} earlier rows are left out");
    }
    // A semicolon would end the row.
    let rows = rows.iter().skip(skipped).map(|row| row.replace(';', ","));
    rows.for_each(|row| {
        let _ = writeln!(out, "    {row}");
    });
    out
}

fn is_ping(text: &str) -> bool {
    text.split_whitespace().any(|word| word == "ping")
}

/// A message without stats, ACLs and xids, which a reader of the diagram does not need.
fn essence(text: &str) -> String {
    const LEFT_OUT: &str = "zxid= czxid= mzxid= pzxid= version= cversion= aversion= ephemeralOwner= \
        dataLength= numChildren= acl= world: passwd= lastZxidSeen= relativeZxid= data=[] exist=[] child=[]";
    let is_kept = |word: &&str| !LEFT_OUT.split(' ').any(|start| word.starts_with(start));
    let mut words = text.split(' ').filter(is_kept).peekable();
    // Skips the xid.
    if words.peek().is_some_and(|word| word.parse::<i32>().is_ok()) {
        words.next();
    }
    words.filter(|word| *word != "bytes").collect::<Vec<_>>().join(" ")
}

/// Names for GUIDs in the order in which they appear.
#[derive(Debug, Default)]
struct Guids(Vec<String>);

impl Guids {
    const LENGTH: usize = 36;

    fn shorten(&mut self, text: &str) -> String {
        let mut out = text.replace('\n', " ");
        let mut from = 0;
        while let Some(at) = out.get(from..).and_then(|rest| rest.find("_c_")).map(|at| at + from) {
            let start = at + "_c_".len();
            from = start;
            let Some(guid) = out.get(start..start + Self::LENGTH).map(str::to_owned) else { break };
            if guid.bytes().filter(|byte| *byte == b'-').count() != 4 {
                continue;
            }
            let number = self.0.iter().position(|known| *known == guid).unwrap_or_else(|| {
                self.0.push(guid);
                self.0.len() - 1
            });
            out.replace_range(start..start + Self::LENGTH, &format!("G{}", number + 1));
        }
        out
    }
}
