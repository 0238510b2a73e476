//! The step of a recipe that each frame belongs to.

use std::collections::BTreeMap;

use docent_steps::{Frame as Seen, Recognizer, STEPS, Step, of_reply};
use serde_json::{Value, json};

use crate::frames::Frame;

/// All steps, as the page shows them.
pub(crate) fn all() -> Vec<Value> {
    let step = |step: &&Step| {
        json!({
            "id": step.id,
            "number": step.number,
            "title": step.title,
            "text": step.text,
            "belief": step.belief,
            "curator": step.curator,
            "source": format!("{}:{}", step.file, step.line().unwrap_or(1)),
            "chapter": step.chapter,
        })
    };
    STEPS.iter().map(step).collect()
}

/// The steps of frames that were seen so far.
#[derive(Default)]
pub(crate) struct Steps {
    recognizer: Recognizer<usize>,
    /// The steps of requests without a reply, by connection and xid.
    asked: BTreeMap<(usize, i64), &'static Step>,
}

impl Steps {
    /// The step of a frame. Frames are given in the order in which they were sent.
    pub(crate) fn of(&mut self, frame: &Frame) -> Option<&'static str> {
        let key = (frame.connection, frame.xid().unwrap_or_default());
        let parts = parts(frame);
        let seen = match frame.kind() {
            "connect" => Seen::Connect,
            "request" => {
                let watches = frame.fields["body"]["watch"] == true;
                Seen::Request { op: frame.op(), path: frame.path(), watches, parts: &parts }
            }
            "reply" => Seen::Reply { op: frame.op(), is_no_node: frame.error() == Some("NONODE") },
            "event" => Seen::Event { path: frame.path() },
            _ => return None,
        };
        let mut step = self.recognizer.step(&frame.client, seen);
        match seen {
            Seen::Request { .. } => {
                if let Some(step) = step {
                    self.asked.insert(key, step);
                }
            }
            Seen::Reply { .. } => {
                let decides = frame.error().is_none();
                let asked = self.asked.remove(&key);
                step = asked.map(|step| if decides { of_reply(step) } else { step });
            }
            Seen::Connect | Seen::Event { .. } => {}
        }
        step.map(|step| step.id)
    }

    /// The client that has created a node, if its name says so.
    pub(crate) fn owner(&self, path: &str) -> Option<usize> {
        self.recognizer.owner(path).copied()
    }

    /// Notes that a client believes in a node.
    pub(crate) fn hold(&mut self, path: &str) {
        self.recognizer.hold(path);
    }
}

/// The operations and paths of a multi.
fn parts(frame: &Frame) -> Vec<(&str, &str)> {
    let parts = frame.fields["body"].as_array().into_iter().flatten();
    parts
        .map(|part| (part["op"].as_str(), part["body"]["path"].as_str()))
        .map(|(op, path)| (op.unwrap_or_default(), path.unwrap_or_default()))
        .collect()
}
