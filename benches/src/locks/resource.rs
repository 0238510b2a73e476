//! The protected resource: it receives the writes of all holders and detects late ones.
//!
//! A holder enters with its grant and its fencing token, writes in steps, and leaves. A write of a grant is *late* if
//! another grant of the same lock has entered since: its holder works at the same time as the next one, or after it.
//! A resource that checks fencing tokens refuses a late write if its token is smaller than the greatest it has seen.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use xtask::Result;

/// The record of one lock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    /// The grants in the order in which they entered, with their times in microseconds.
    pub(crate) entered: Vec<(String, u64)>,
    /// The grants that their clients have reported as lost to their holders.
    pub(crate) lost: Vec<String>,
    greatest_token: Option<i64>,
    /// Late writes.
    pub(crate) late: u64,
    /// Late writes that a check of tokens would have accepted.
    pub(crate) late_despite_token: u64,
    /// Late writes whose holder had asked its client after the other grant entered. The answer was that it still held
    /// the lock.
    pub(crate) wrong_answers: u64,
    /// Whether a grant has entered without a token.
    pub(crate) without_token: bool,
}

impl Record {
    /// Records that a holder enters.
    pub(crate) fn enter(&mut self, grant: &str, token: Option<i64>, now: u64) {
        self.entered.push((grant.to_owned(), now));
        self.greatest_token = self.greatest_token.max(token);
        self.without_token |= token.is_none();
    }

    /// Records a write. Its holder asked the client whether it holds the lock at the time `asked`.
    pub(crate) fn write(&mut self, grant: &str, token: Option<i64>, asked: u64) {
        let Some((latest, since)) = self.entered.last() else { return };
        if latest == grant {
            return;
        }
        self.late += 1;
        self.wrong_answers += u64::from(asked > *since);
        let refused = token.is_some() && token < self.greatest_token;
        self.late_despite_token += u64::from(!refused);
    }
}

/// The records of all locks, and a signal for their changes.
#[derive(Debug, Default)]
struct Shared {
    records: Mutex<HashMap<String, Record>>,
    changed: Condvar,
}

/// The resource as a server for holders in other processes.
#[derive(Debug)]
pub(crate) struct Resource {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Resource {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let resource = Self { address: listener.local_addr()?, shared: Arc::default() };
        let shared = Arc::clone(&resource.shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(&stream, &shared));
            }
        });
        Ok(resource)
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn record(&self, lock: &str) -> Record {
        let records = self.shared.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.get(lock).cloned().unwrap_or_default()
    }

    /// Waits until a grant of this agent has entered each lock. Returns whether that happened in time.
    pub(crate) fn wait_for(&self, agent: &str, locks: &[String], limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut records = self.shared.records.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let has_entered = |lock: &String| {
                let record = records.get(lock);
                record.is_some_and(|record| record.entered.iter().any(|(g, _)| is_of(g, agent)))
            };
            if locks.iter().all(has_entered) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(records, left);
            records = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Whether a grant, named `AGENT.NUMBER`, belongs to an agent.
pub(crate) fn is_of(grant: &str, agent: &str) -> bool {
    grant.split_once('.').is_some_and(|(name, _)| name == agent)
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut replies = stream;
    for line in BufReader::new(stream).lines().map_while(std::result::Result::ok) {
        let words: Vec<_> = line.split(' ').collect();
        let now = super::microseconds();
        let mut records = shared.records.lock().unwrap_or_else(PoisonError::into_inner);
        match words.as_slice() {
            ["enter", lock, grant, token] => {
                records.entry((*lock).to_owned()).or_default().enter(
                    grant,
                    token.parse().ok(),
                    now,
                );
            }
            ["write", lock, grant, token, asked] => {
                let record = records.entry((*lock).to_owned()).or_default();
                record.write(grant, token.parse().ok(), asked.parse().unwrap_or(0));
            }
            ["lost", lock, grant] => {
                records.entry((*lock).to_owned()).or_default().lost.push((*grant).to_owned());
            }
            _ => return,
        }
        drop(records);
        shared.changed.notify_all();
        if replies.write_all(b"ok\n").is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_behind_the_next_holder_is_late_and_its_token_is_too_small() {
        let mut record = Record::default();
        record.enter("a.1", Some(5), 10);
        record.write("a.1", Some(5), 11);
        assert_eq!(record.late, 0);
        record.enter("b.1", Some(9), 20);
        record.write("b.1", Some(9), 21);
        // Asked before the other holder entered, when the answer was right.
        record.write("a.1", Some(5), 15);
        assert_eq!((record.late, record.late_despite_token, record.wrong_answers), (1, 0, 0));
        record.write("a.1", Some(5), 25);
        assert_eq!((record.late, record.late_despite_token, record.wrong_answers), (2, 0, 1));
        // A write without a token cannot be refused.
        record.write("a.1", None, 25);
        assert_eq!((record.late, record.late_despite_token), (3, 1));
    }
}
