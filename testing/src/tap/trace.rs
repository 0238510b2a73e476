//! A copy of the record, to look at.

use std::sync::Arc;

use super::{
    json::json,
    record::Record,
    text::{TextOptions, lines},
};

/// What a tap had recorded when it was asked.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    records: Vec<Arc<Record>>,
}

impl Trace {
    pub(crate) const fn new(records: Vec<Arc<Record>>) -> Self {
        Self { records }
    }

    /// The records, in the order in which the tap saw them.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().map(AsRef::as_ref)
    }

    /// Only those of one client.
    #[must_use]
    pub fn of(&self, client: &str) -> Self {
        self.filter(|record| &*record.client == client)
    }

    /// Only those that `keep` accepts.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&Record) -> bool) -> Self {
        Self { records: self.records.iter().filter(|record| keep(record)).cloned().collect() }
    }

    /// Only those from `seq` on.
    #[must_use]
    pub fn since(&self, seq: u64) -> Self {
        self.filter(|record| record.seq >= seq)
    }

    /// As text, a line each, in the form of the reference traces: GUIDs and session ids masked, pings
    /// and closes left out.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_with(TextOptions::default())
    }

    /// As text, a line each.
    #[must_use]
    pub fn text_with(&self, options: TextOptions) -> String {
        let mut text = lines(self.iter(), options).join("\n");
        text.push('\n');
        text
    }

    /// As JSON, an object a line; nothing masked, nothing left out.
    #[must_use]
    pub fn json(&self) -> String {
        self.iter().map(|record| json(record) + "\n").collect()
    }
}
