//! The steps: one table, which the lab shows and the guide's tests read.

use std::ptr;

/// A step of a recipe, with its documentation.
#[derive(Debug)]
pub struct Step {
    /// Its name in claims and on the lab's page.
    pub id: &'static str,
    /// Its number among the ten steps of `LockInternals`.
    pub number: Option<u8>,
    /// What it does, in a few words: those of the guide's heading, and of the library's trace event.
    pub title: &'static str,
    /// What it does, and why.
    pub text: &'static str,
    /// Whether the client believes after it that it holds.
    pub belief: &'static str,
    /// The class and method of Curator that do the same.
    pub curator: &'static str,
    /// The chapter of the guide, by the name of its file.
    pub chapter: &'static str,
    /// The file that sends it, by its path in the repository.
    pub file: &'static str,
    source: &'static str,
    mark: &'static str,
}

impl Step {
    /// The number of the line that sends it; `None` if the file has no such line any more, which a test excludes.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.source.lines().position(|line| line.contains(self.mark)).map(|at| at + 1)
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Step {}

macro_rules! steps {
    (@number) => { None };
    (@number $number:literal) => { Some($number) };
    (@curator) => { "none" };
    (@curator $curator:literal) => { $curator };
    ($($name:ident: $id:literal $file:literal $mark:literal {
        $(number: $number:literal,)?
        title: $title:literal,
        text: $text:literal,
        belief: $belief:literal,
        $(curator: $curator:literal,)?
        chapter: $chapter:literal,
    })*) => {
        $(pub(crate) static $name: Step = Step {
            id: $id,
            number: steps!(@number $($number)?),
            title: $title,
            text: $text,
            belief: $belief,
            curator: steps!(@curator $($curator)?),
            chapter: $chapter,
            file: $file,
            source: include_str!(concat!("../../../", $file)),
            mark: $mark,
        };)*

        /// All steps.
        pub static STEPS: &[&Step] = &[$(&$name),*];
    };
}

steps! {
    CREATE_LOCK_NODE: "lock-1" "recipes/src/locks/lock_internals.rs" "step = 1" {
        number: 1,
        title: "Create the lock node",
        text: "The name has a GUID, chosen by the client, and ten digits, appended by the server: the place in the queue.",
        belief: "No. It has asked for a place.",
        curator: "LockInternals.attemptLock, StandardLockInternalsDriver.createsTheLock",
        chapter: "lock-internals",
    }

    CREATE_PARENTS: "lock-2" "recipes/src/protection/mod.rs" "step = 2" {
        number: 2,
        title: "Create the parents",
        text: "Only after a create has failed, because the lock's directory is missing. They are containers, which the server removes some time after their last child.",
        belief: "No.",
        curator: "ZKPaths.mkdirs",
        chapter: "lock-internals",
    }

    SEARCH: "lock-3" "recipes/src/protection/mod.rs" "step = 3" {
        number: 3,
        title: "Search for the node",
        text: "The reply to a create was lost. The client lists the directory and looks for its GUID, so that it does not queue behind a node of its own.",
        belief: "No. It does not know whether it has a place.",
        curator: "CreateBuilderImpl.findProtectedNodeInForeground",
        chapter: "protected-creates",
    }

    WATCH_OWN_NODE: "lock-4" "recipes/src/locks/lock_internals.rs" "step = 4" {
        number: 4,
        title: "Watch the own node",
        text: "Only if the lock is revocable: a holder that can be asked to release.",
        belief: "Unchanged.",
        curator: "LockInternals.internalLockLoop",
        chapter: "revocation",
    }

    LIST_QUEUE: "lock-5" "recipes/src/locks/lock_internals.rs" "step = 5" {
        number: 5,
        title: "List the queue",
        text: "The time until which the session is taken to live is read before this is sent: the claim of a hold counts from there.",
        belief: "When the reply arrives it decides (step 6): first in the queue, it believes from then on, for as long as its session surely lives.",
        curator: "LockInternals.getSortedChildren",
        chapter: "lock-internals",
    }

    DECIDE: "lock-6" "recipes/src/locks/lock_internals.rs" "step = 6" {
        number: 6,
        title: "Decide",
        text: "The reply to the listing decides, and no frame is sent: the first in the queue holds the lock, and any other client watches the node ahead.",
        belief: "First in the queue: yes, for as long as its session surely lives. Otherwise no.",
        curator: "StandardLockInternalsDriver.getsTheLock",
        chapter: "lock-internals",
    }

    WATCH_AHEAD: "lock-7" "recipes/src/locks/lock_internals.rs" "step = 7" {
        number: 7,
        title: "Watch the node ahead",
        text: "A read that leaves a watch on the predecessor, and on no other node: a release wakes one waiter.",
        belief: "No. It waits for its predecessor.",
        curator: "LockInternals.internalLockLoop",
        chapter: "lock-internals",
    }

    WOKEN: "lock-8" "recipes/src/locks/lock_internals.rs" "step = 8" {
        number: 8,
        title: "Woken",
        text: "The node ahead is gone. This is not the lock: the waiter lists again, and only step 6 decides.",
        belief: "No. It has a reason to look.",
        curator: "LockInternals.internalLockLoop",
        chapter: "lock-internals",
    }

    LEAVE_QUEUE: "lock-9" "recipes/src/locks/lock_internals.rs" "step = 9" {
        number: 9,
        title: "Leave the queue",
        text: "The acquire has failed or was given up: its node is deleted, or it would become a holder that does not know of its lock.",
        belief: "No.",
        curator: "LockInternals.deleteOurPath",
        chapter: "lock-internals",
    }

    RELEASE: "lock-10" "recipes/src/locks/hold.rs" "step = 10" {
        number: 10,
        title: "Release",
        text: "The delete is repeated until the node is gone, or its session.",
        belief: "No: it stops believing before it sends this.",
        curator: "LockInternals.releaseLock",
        chapter: "guaranteed-deletes",
    }

    NAIVE_CREATE: "naive-create" "lab/src/program.rs" "async fn naive" {
        title: "Create the one node",
        text: "The create is the decision: the server executes one after the other, and the second fails.",
        belief: "When the reply is OK it believes, until it releases. Nothing tells it that its session has ended.",
        chapter: "naive-lock",
    }

    NAIVE_WATCH: "naive-watch" "lab/src/program.rs" "exists_and_watch" {
        title: "Look and watch",
        text: "One request reads the node and leaves a watch on it.",
        belief: "No. It waits for the holder, as all others do.",
        chapter: "naive-lock",
    }

    NAIVE_WOKEN: "naive-woken" "lab/src/program.rs" "watcher.next()" {
        title: "Woken, with all others",
        text: "Every waiter receives this event, and all of them create: the herd effect.",
        belief: "No.",
        chapter: "naive-lock",
    }

    NAIVE_DELETE: "naive-delete" "lab/src/program.rs" "Some(Hold::Simple" {
        title: "Delete the one node",
        text: "Whosever it is: the path is the same for all holders.",
        belief: "No.",
        chapter: "naive-lock",
    }

    SEQUENTIAL_CREATE: "sequential-create" "lab/src/program.rs" "EphemeralSequential" {
        title: "Create a node of the queue",
        text: "The server appends ten digits. A lost reply leaves a node that its client does not know.",
        belief: "No.",
        chapter: "sequential-lock",
    }

    SEQUENTIAL_LIST: "sequential-list" "lab/src/program.rs" "get_children(LOCK)" {
        title: "List the queue",
        text: "The lowest number holds the lock.",
        belief: "If it is the first, from the reply on, until it releases.",
        chapter: "sequential-lock",
    }

    SEQUENTIAL_WATCH: "sequential-watch" "lab/src/program.rs" "get_data_and_watch" {
        title: "Watch the node ahead",
        text: "A release wakes one waiter.",
        belief: "No.",
        chapter: "sequential-lock",
    }

    SEQUENTIAL_WOKEN: "sequential-woken" "lab/src/program.rs" "Ok((_, mut watcher))" {
        title: "Woken",
        text: "The node ahead is gone. The waiter lists again.",
        belief: "No. It has a reason to look.",
        chapter: "sequential-lock",
    }

    SEQUENTIAL_DELETE: "sequential-delete" "lab/src/program.rs" "Some(Hold::Simple" {
        title: "Delete the own node",
        text: "It has a name of its own, so a late release deletes nothing of others.",
        belief: "No.",
        chapter: "sequential-lock",
    }

    STRICT_RECORD: "strict-record" "recipes/src/locks/strict/take.rs" "Record::read" {
        title: "Read the record of the last holder",
        text: "The data of the lock's own node name the last holder and its time T.",
        belief: "No.",
        curator: "none: Curator has no such lock",
        chapter: "promises",
    }

    STRICT_CLAIM: "strict-claim" "recipes/src/locks/strict/claim.rs" "fn grant" {
        title: "Write the record, if the own node exists",
        text: "One transaction. From the send time of this write the hold is proven for T: a rival waits for that long once the holder's node is gone.",
        belief: "From the reply on, until the proven bound, which counts from when this was sent.",
        curator: "none: Curator has no such lock",
        chapter: "promises",
    }

    LATCH_CREATE: "latch-create" "recipes/src/leader/participation.rs" "async fn create" {
        title: "Join the election",
        text: "An ephemeral sequential node with the name of the participant.",
        belief: "No.",
        curator: "LeaderLatch.reset",
        chapter: "leader-election",
    }

    LATCH_LIST: "latch-list" "recipes/src/leader/place.rs" "async fn list" {
        title: "List the participants",
        text: "The lowest number leads.",
        belief: "If it is the first, from the reply on, while its session surely lives.",
        curator: "LeaderLatch.getChildren, LeaderLatch.checkLeadership",
        chapter: "leader-election",
    }

    LATCH_WATCH: "latch-watch" "recipes/src/leader/place.rs" "async fn wait_behind" {
        title: "Watch the node ahead",
        text: "A read that leaves a watch on the predecessor.",
        belief: "No.",
        curator: "LeaderLatch.checkLeadership",
        chapter: "leader-election",
    }

    LATCH_WOKEN: "latch-woken" "recipes/src/leader/place.rs" "select(watcher.next()" {
        title: "Woken",
        text: "The node ahead is gone. The participant lists again.",
        belief: "No. It has a reason to look.",
        curator: "LeaderLatch.checkLeadership",
        chapter: "leader-election",
    }

    LATCH_DELETE: "latch-delete" "recipes/src/leader/participation.rs" "async fn leave" {
        title: "Leave the election",
        text: "The node is deleted in the background until it is gone.",
        belief: "No: it stops believing first.",
        curator: "LeaderLatch.close",
        chapter: "leader-election",
    }

    LEASE_CREATE: "lease-create" "recipes/src/locks/lease.rs" "create the lease node" {
        title: "Create the lease node",
        text: "One client at a time does this, under a mutex.",
        belief: "No.",
        curator: "InterProcessSemaphoreV2.internalAcquire1Lease",
        chapter: "other-locks",
    }

    LEASE_LIST: "lease-list" "recipes/src/locks/lease.rs" "count the leases" {
        title: "Count the leases",
        text: "With no more nodes than leases, the lease is acquired.",
        belief: "If the count allows it, from the reply on.",
        curator: "InterProcessSemaphoreV2.internalAcquire1Lease",
        chapter: "other-locks",
    }

    LEASE_DELETE: "lease-delete" "recipes/src/locks/lease.rs" "delete the lease node" {
        title: "Return the lease",
        text: "Its node is deleted, and a waiter counts again.",
        belief: "No.",
        curator: "InterProcessSemaphoreV2.closeLease",
        chapter: "other-locks",
    }

    SESSION_OPEN: "session-open" "session/src/machine/handshake.rs" "let request = ConnectRequest {" {
        title: "Begin or resume a session",
        text: "The first frame of a connection. With an id and a password it resumes a session.",
        belief: "A resumed session: what it believed before, if the time is not up.",
        curator: "ClientCnxn.SendThread.primeConnection",
        chapter: "sessions-and-watches",
    }

    SESSION_PING: "session-ping" "session/src/machine/timers.rs" "fn ping" {
        title: "Keep the session",
        text: "The send time of a request that was answered moves the end of the belief.",
        belief: "Renewed, to the send time of this plus the session timeout, less a margin.",
        curator: "ClientCnxn.SendThread.sendPing",
        chapter: "sessions-and-watches",
    }

    SESSION_CLOSE: "session-close" "session/src/machine/close.rs" "pub fn close" {
        title: "Close the session",
        text: "The server deletes all ephemeral nodes of the session.",
        belief: "No.",
        curator: "ClientCnxn.close",
        chapter: "sessions-and-watches",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_step_has_its_line_and_its_own_name() {
        for step in STEPS {
            assert!(
                step.line().is_some(),
                "{}: {} has no line {:?}",
                step.id,
                step.file,
                step.mark
            );
        }
        let ids: BTreeSet<_> = STEPS.iter().map(|step| step.id).collect();
        assert_eq!(ids.len(), STEPS.len());
    }

    /// A trace event of the library is on the line, with the words of the title.
    #[test]
    fn the_steps_of_lock_internals_are_those_that_the_library_traces() {
        let numbered: Vec<_> = STEPS.iter().filter_map(|step| Some((step.number?, step))).collect();
        assert_eq!(numbered.len(), 10);
        for (index, (number, step)) in numbered.into_iter().enumerate() {
            let line = step.source.lines().find(|line| line.contains(step.mark)).unwrap();
            let traced = format!("\"{}\");", step.title.to_lowercase());
            assert!(
                usize::from(number) == index + 1 && line.ends_with(&traced),
                "{number}: {line}"
            );
        }
    }
}
