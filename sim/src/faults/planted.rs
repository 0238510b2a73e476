//! The planted faults: defects that are put into docent on purpose, to prove that the checks find such defects.
//!
//! A plan names the fault that is planted ([`Plan::plant`](crate::Plan::plant)). The code of each is where a programmer
//! could make the mistake: in the sources of docent-session and docent-recipes, behind `planted::is("name")`, which is
//! a constant outside of the simulator. An assumption is taken away in the simulator itself, or by a switch of the
//! embedded ensemble that only the simulator has.

use std::{thread, time::Duration};

use docent_session::planted;

/// A defect, and how many seeds may pass until it is found.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    pub name: &'static str,
    /// One of the seeds from 1 to this one must find it: about three times the first seed that did, and at least 50.
    pub within: u64,
    pub defect: &'static str,
    /// A part of the text of the rule that must be broken; empty: any rule.
    pub rule: &'static str,
}

impl Plant {
    /// The same fault, which must break a rule whose text contains this.
    const fn breaking(self, rule: &'static str) -> Self {
        Self { rule, ..self }
    }

    /// Whether a broken rule is one that this fault must break.
    #[must_use]
    pub fn breaks(&self, violation: &str) -> bool {
        violation.contains(self.rule)
    }
}

const fn plant(name: &'static str, within: u64, defect: &'static str) -> Plant {
    Plant { name, within, defect, rule: "" }
}

/// A planted fault that takes away an assumption of the proven bound.
const fn assumption(name: &'static str, within: u64, defect: &'static str) -> Plant {
    plant(name, within, defect).breaking("within the proven bound")
}

/// All planted faults.
pub const PLANTS: &[Plant] = &[
    plant("lease-from-receipt", 1_000, "a reply renews the lease from its receipt on"),
    plant("read-only-renews", 1_500, "a read-only server renews the lease"),
    plant("proof-renewed", 1_000, "any reply renews the proven bound"),
    plant("proof-from-receipt", 3_300, "a proven bound counts from the receipt of a reply"),
    plant("proof-by-any-write", 500, "a write through a follower renews the proven bound"),
    plant("proof-revived", 1_000, "a proven bound that has passed is moved"),
    assumption("clock-beyond-margin", 1_000, "clocks are slower than the bound allows for"),
    assumption("clock-without-suspend", 2_200, "clocks stand still while the machine is suspended"),
    assumption("log-lost", 150, "a member that stops starts again without its log"),
    assumption("commit-without-majority", 350, "a leader commits what it alone has accepted"),
    assumption("session-taken-over", 600, "another client takes a session over, and closes it"),
    assumption("session-ended-by-hand", 600, "an administrator ends a session"),
    assumption("node-deleted-by-hand", 400, "another client deletes the node of a hold"),
    assumption("work-beyond-bound", 1_500, "work goes on for 3 s after the proven bound"),
    assumption("servers-behind-one-address", 2_500, "an address leads to several servers"),
    plant("clock-drift", 300, "clocks are slower by 25 %, which no bound allows for"),
    plant("watches-not-replayed", 300, "one in 8 reconnects does not set the watches again"),
    plant("watch-lost-on-error", 100, "a one-shot watch is lost when its read fails"),
    plant("event-lost", 50, "one in 16 watch events is lost"),
    plant("reply-lost", 50, "one in 500 replies is lost"),
    plant("reply-is-loss", 50, "one in 20 replies counts as a lost connection")
        .breaking("no fault explains it"),
    plant("unknown-create-forgotten", 50, "a create of unknown outcome counts as refused"),
    plant("search-without-write", 2_000, "a search for a lost create has no write before it"),
    plant("delete-gives-up", 100, "a guaranteed delete gives up after one error in the background"),
    plant("waiter-leaves-node", 50, "a cancelled waiter does not delete its node"),
    plant("claim-of-any-session", 150, "a claim is not compared with the node's session"),
    plant("stale-listing", 250, "a waiter takes a missing node ahead for the lock"),
    plant("one-guid", 50, "all lock nodes have the same GUID"),
    plant("token-from-sequence", 50, "the fencing token is the sequence number of the lock node"),
    plant("reader-skips-writer", 400, "a reader ignores the oldest writer ahead of it"),
    plant("one-lease-too-many", 50, "a semaphore grants one lease too many"),
    plant("leader-outlives-connection", 50, "a standard latch leads without a connection"),
    plant("latch-node-left", 50, "a latch does not delete its node when it is closed"),
    plant("own-node-unwatched", 2_000, "a latch does not notice that its node was deleted"),
    plant("token-of-old-term", 150, "the token of a second leadership is too small"),
    plant("kept-node-gone", 150, "a kept node that was lost is not created again"),
    plant("kept-node-rewritten", 50, "a kept node is written after each reconnect"),
    plant("group-misses-a-member", 1_600, "a member of a group does not see the first other one"),
    plant("view-keeps-gone", 100, "the view of a group keeps members that are gone")
        .breaking("but shown as"),
    plant("guarded-without-check", 1_600, "a guarded transaction checks another node"),
    plant("swap-without-version", 50, "a write by version replaces any version"),
    plant("repeated-by-version", 50, "a write by version is repeated whatever its node shows"),
    plant("value-goes-back", 2_000, "a SharedValue takes an older value for a newer one"),
    plant("value-not-read-again", 650, "a SharedValue does not repeat a failed read"),
    plant("never-returns", 50, "a client stays at a server that it does not prefer"),
    plant("move-loses-session", 50, "a move to another server asks for a new session"),
    plant("zxid-not-sent", 1_000, "a reconnect does not send the last zxid seen"),
    plant("watches-since-later", 1_000, "watches are set again as of one zxid too late"),
    plant("resync-lost", 100, "a persistent watch that is set again has no resync"),
    plant("loss-not-applied", 50, "a lost connection counts as: not applied"),
    plant("cache-resync-ignored", 100, "a cache does not read its nodes again after a resync"),
    plant("cache-initialized-early", 50, "a cache is initialized once its root is read"),
    plant("cache-reader-skips", 50, "a slow reader of a cache gets no snapshot"),
    plant("cache-watch-left", 50, "a closed cache does not remove its watch"),
    plant("cache-stale-reply", 3_000, "a cache takes a reply that is older than its node"),
    plant("missing-node-read-again", 850, "a cache reads a missing node again and again"),
    plant("kept-write-unchecked", 150, "a failed write of a kept node counts as written"),
    plant("provider-remembers", 50, "a strategy picks the first instance that it has seen"),
    plant("instance-misread", 50, "an instance is read with the address of another one"),
    plant("increment-repeated", 300, "a write of an atomic value is repeated after a lost reply"),
    plant("promotion-keeps-lock", 1_000, "the lock of a promotion is not released"),
    plant("barrier-opened-by-loss", 2_000, "a waiter takes the loss of its session for an opening"),
    plant("old-ready-opens", 500, "the ready node of a former round opens a double barrier"),
    plant("double-node-left", 150, "a member of a double barrier that gives up leaves its node"),
    plant("strict-waits-half", 2_000, "a strict mutex is taken over after half of the wait"),
    plant("strict-revived", 500, "a strict claim that has ended is renewed"),
    plant("strict-clean-early", 2_000, "a strict mutex counts as released while it is held"),
    plant("strict-from-receipt", 450, "a strict claim counts from the receipt of a reply"),
    plant("strict-without-drift", 2_000, "a strict claim allows for no drift of the clocks"),
    plant("strict-grant-from-reply", 2_000, "a strict claim counts from the reply to its grant"),
    plant("lease-too-short", 100, "the lease of a session ends after half of its time"),
    plant("pings-late", 100, "a client pings after three fifths of the session timeout"),
    plant("silence-unnoticed", 2_000, "a client stays at a silent server as long as its session"),
    plant("connection-given-up", 100, "one in 20 replies to a ping ends the connection"),
    plant("no-backoff", 100, "there is no pause between two rounds of attempts to connect"),
    plant("wait-beyond-limit", 100, "a wait for a lock lasts half a minute longer"),
    plant("request-timeout-ignored", 500, "requests wait for their replies without a limit")
        .breaking("a burst of requests"),
    plant("granted-late", 300, "a waiter looks at its lock 19 s after it was woken"),
    plant("multi-granted-late", 2_000, "a multi lock waits half a minute behind each of its locks"),
    plant("leases-granted-late", 2_000, "an acquire of several leases waits 19 s behind each")
        .breaking("but not granted"),
    plant("multi-part-lost", 2_000, "a multi lock is granted although one of its locks is lost")
        .breaking("is granted and lost at once"),
    plant("strict-waits-long", 2_000, "a strict mutex is taken over after five times the wait"),
    plant("participant-missed", 500, "the first participant of a lock is not reported"),
    plant("leads-late", 300, "a participant looks at its election 19 s after it was woken"),
    plant("raised-count-unseen", 2_000, "a waiter does not see that a semaphore has more leases"),
    plant("barrier-passed-late", 2_000, "a waiter passes a barrier 9 s late")
        .breaking("was open, but the wait ended"),
    plant("double-passed-late", 2_000, "a member enters a double barrier 9 s late")
        .breaking("does not see that the barrier is open"),
    plant("double-left-late", 2_000, "a member leaves a double barrier 9 s late")
        .breaking("leaves late"),
    plant("first-exit-releases", 100, "the first exit of an owner releases its lock"),
    plant("written-is-deleted", 500, "a written lock node counts as deleted"),
    plant("leader-leaves-when-written", 500, "a leader leaves when its node is written"),
    plant("guarded-by-the-first", 2_000, "a guarded transaction checks the first of several locks"),
    plant("path-of-node-ahead", 100, "a latch reports the node ahead as its own"),
    plant("last-participant-leads", 100, "participants that do not lead are reported as leaders"),
    plant("failed-create-left", 500, "a protected create that fails leaves its persistent node"),
    plant("members-not-read-again", 500, "a tracker does not read the members after a change"),
    plant("panic", 10, "a worker panics"),
    plant("livelock", 10, "a worker wakes itself for ever"),
    plant(ENDLESS_LOOP, 10, "a poll does not end"),
];

/// The only fault that ends the process: nothing stops a poll from outside.
pub const ENDLESS_LOOP: &str = "endless-loop";

/// The planted fault of this name.
#[must_use]
pub fn plant_named(name: &str) -> Option<&'static Plant> {
    PLANTS.iter().find(|plant| plant.name == name)
}

/// Plants a fault into all clients of this thread.
pub(crate) fn plant_by_name(name: Option<&str>) {
    planted::plant(name.and_then(plant_named).map(|plant| plant.name));
}

/// Fails as a worker: by a panic, by waking itself for ever, or in an endless poll.
pub(crate) async fn misbehave() {
    if planted::is("panic") {
        panic!("as planted");
    }
    while planted::is("livelock") {
        let mut is_woken = false;
        std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut is_woken, true) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
    while planted::is(ENDLESS_LOOP) {
        thread::sleep(Duration::from_secs(1));
    }
}
