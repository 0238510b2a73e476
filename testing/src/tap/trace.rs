//! A snapshot of the records of a tap.

use std::sync::Arc;

use super::{
    record::Record,
    text::{TextOptions, lines},
};

/// The records of a tap at one moment.
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

    /// Only the records of one client.
    #[must_use]
    pub fn of(&self, client: &str) -> Self {
        self.filter(|record| &*record.client == client)
    }

    /// Only the records that `keep` accepts.
    #[must_use]
    pub fn filter(&self, mut keep: impl FnMut(&Record) -> bool) -> Self {
        Self { records: self.records.iter().filter(|record| keep(record)).cloned().collect() }
    }

    /// Only the records from `seq` on.
    #[must_use]
    pub fn since(&self, seq: u64) -> Self {
        self.filter(|record| record.seq >= seq)
    }

    /// The trace as text, one record per line, in the form of the reference traces: GUIDs and session ids are masked,
    /// pings and closes are left out.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_with(TextOptions::default())
    }

    /// The trace as text with the given options, one record per line.
    #[must_use]
    pub fn text_with(&self, options: TextOptions) -> String {
        let mut text = lines(self.iter(), options).join("\n");
        text.push('\n');
        text
    }
}
