//! The reads that a cache has to send, and those in flight: at most one of each kind for each path.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use super::tree::descendants;

/// The part of a node that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// getData (4).
    Data,
    /// getChildren2 (12).
    Children,
    /// exists (3), of a missing root without a persistent watch.
    Exists,
    /// multi (14) of a check of the root that fails.
    Settle,
}

/// A read to be sent.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) kind: Kind,
    pub(super) path: Arc<str>,
    /// Distinguishes it from earlier and later reads of the path.
    pub(super) ticket: u64,
}

/// Why a node is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cause {
    /// The current round is not complete without it.
    pub(super) round: bool,
    /// An event caused it, with this zxid; `i64::MAX` if the event had none.
    pub(super) zxid: Option<i64>,
    /// The read of the root must show a change, or the paths of events are wrong.
    pub(super) suspect: bool,
    /// An earlier read or listing of the node was refused.
    pub(super) retry: bool,
}

/// A read without a reply.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Its ticket, once it was sent.
    ticket: Option<u64>,
    pub(super) round: bool,
    pub(super) suspect: bool,
    pub(super) retry: bool,
    /// An event came while it was in flight, with this zxid: the reply may be older.
    pub(super) again: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Reads {
    data: BTreeMap<Arc<str>, Job>,
    children: BTreeMap<Arc<str>, Job>,
    exists: BTreeMap<Arc<str>, Job>,
    settle: BTreeMap<Arc<str>, Job>,
    queue: VecDeque<(Kind, Arc<str>)>,
    /// Reads that failed and are sent again later.
    waiting: Vec<(Kind, Arc<str>)>,
    /// The number of jobs that the round is waiting for.
    round_left: usize,
    next_ticket: u64,
    put_off_count: u64,
}

impl Reads {
    fn jobs(&mut self, kind: Kind) -> &mut BTreeMap<Arc<str>, Job> {
        match kind {
            Kind::Data => &mut self.data,
            Kind::Children => &mut self.children,
            Kind::Exists => &mut self.exists,
            Kind::Settle => &mut self.settle,
        }
    }

    /// Adds a read; returns false if the path is being read already.
    pub(super) fn add(&mut self, kind: Kind, path: &Arc<str>, cause: Cause) -> bool {
        let mut joins_round = cause.round;
        let is_new = match self.jobs(kind).get_mut(path) {
            Some(job) => {
                joins_round &= !job.round;
                job.round |= cause.round;
                if let (Some(_), Some(zxid)) = (job.ticket, cause.zxid) {
                    job.again = job.again.max(Some(zxid));
                }
                false
            }
            None => {
                let Cause { round, suspect, retry, .. } = cause;
                let job = Job { round, suspect, retry, ..Job::default() };
                self.jobs(kind).insert(Arc::clone(path), job);
                self.queue.push_back((kind, Arc::clone(path)));
                true
            }
        };
        self.round_left += usize::from(joins_round);
        is_new
    }

    /// The next read to send.
    pub(super) fn take(&mut self) -> Option<Read> {
        while let Some((kind, path)) = self.queue.pop_front() {
            let ticket = self.next_ticket;
            // Cancelled reads stay in the queue.
            if let Some(job) = self.jobs(kind).get_mut(&path)
                && job.ticket.is_none()
            {
                job.ticket = Some(ticket);
                self.next_ticket += 1;
                return Some(Read { kind, path, ticket });
            }
        }
        None
    }

    /// Ends a read; `None` if it was cancelled. The caller ends its part in the round, by [`leave`](Self::leave).
    pub(super) fn finish(&mut self, read: &Read) -> Option<Job> {
        let jobs = self.jobs(read.kind);
        if jobs.get(&read.path)?.ticket != Some(read.ticket) {
            return None;
        }
        jobs.remove(&read.path)
    }

    /// Repeats a read in flight when it is answered.
    pub(super) fn repeat(&mut self, read: &Read) {
        if let Some(job) = self.jobs(read.kind).get_mut(&read.path)
            && job.ticket == Some(read.ticket)
        {
            job.again = Some(i64::MAX);
        }
    }

    /// The end of a job's part in the round.
    pub(super) const fn leave(&mut self, job: &Job) {
        if job.round {
            self.round_left = self.round_left.saturating_sub(1);
        }
    }

    /// Puts a failed read off; its job stays in the round.
    pub(super) fn put_off(&mut self, read: &Read, job: Job) {
        self.jobs(read.kind)
            .insert(Arc::clone(&read.path), Job { ticket: None, again: None, ..job });
        self.waiting.push((read.kind, Arc::clone(&read.path)));
        self.put_off_count += 1;
    }

    pub(super) const fn put_off_count(&self) -> u64 {
        self.put_off_count
    }

    /// Queues the reads that were put off. All of them are part of a round that has begun.
    pub(super) fn resume(&mut self) {
        for (kind, path) in std::mem::take(&mut self.waiting) {
            if self.jobs(kind).get(&path).is_some_and(|job| job.ticket.is_none()) {
                self.queue.push_back((kind, path));
            }
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_round_complete(&self) -> bool {
        self.round_left == 0
    }

    /// Whether the path is read as a part of the round.
    pub(super) fn is_in_round(&self, path: &str) -> bool {
        self.data.get(path).is_some_and(|job| job.round)
    }

    /// Adds the reads of the descendants of a node to the round.
    pub(super) fn join_round(&mut self, path: &str) {
        let (first, end) = descendants(path);
        let range = (Bound::Included(&*first), Bound::Excluded(&*end));
        for jobs in [&mut self.data, &mut self.children] {
            for (_, job) in jobs.range_mut::<str, _>(range) {
                self.round_left += usize::from(!std::mem::replace(&mut job.round, true));
            }
        }
    }

    /// Adds all reads to the round.
    pub(super) fn join_all(&mut self) {
        for jobs in [&mut self.data, &mut self.children, &mut self.exists] {
            for job in jobs.values_mut() {
                self.round_left += usize::from(!std::mem::replace(&mut job.round, true));
            }
        }
    }

    /// Cancels the reads of a node and its descendants.
    pub(super) fn cancel(&mut self, path: &str) {
        let (first, end) = descendants(path);
        for kind in [Kind::Data, Kind::Children] {
            let jobs = self.jobs(kind);
            let range = (Bound::Included(&*first), Bound::Excluded(&*end));
            let below: Vec<_> =
                jobs.range::<str, _>(range).map(|(path, _)| Arc::clone(path)).collect();
            let mut cancelled: Vec<_> = below.iter().filter_map(|path| jobs.remove(path)).collect();
            cancelled.extend(jobs.remove(path));
            for job in &cancelled {
                self.leave(job);
            }
        }
    }

    /// Cancels all reads; returns the paths whose data was to be read.
    pub(super) fn cancel_all(&mut self) -> Vec<Arc<str>> {
        let (next_ticket, put_off_count) = (self.next_ticket, self.put_off_count);
        let all = Self { next_ticket, put_off_count, ..Self::default() };
        std::mem::replace(self, all).data.into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_to_a_cancelled_read_does_not_end_the_one_that_replaced_it() {
        let (mut reads, path) = (Reads::default(), Arc::from("/a"));
        let mut read = || {
            reads.cancel("/a");
            reads.add(Kind::Data, &path, Cause::default());
            reads.take().unwrap()
        };
        let (cancelled, read) = (read(), read());
        assert!(reads.finish(&cancelled).is_none());
        assert!(reads.finish(&read).is_some());
    }
}
