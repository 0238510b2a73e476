//! The lease of a session: how long the client assumes that the session exists.
//!
//! A [`SessionLease`] stands for one session. Everything held in the session shares it. The state machine keeps two
//! bounds in it:
//!
//! * The **naive** bound is the send time of the last answered request, plus the negotiated timeout, minus a margin. It
//!   is best effort. On an ensemble it is wrong when a follower answers for a leader that no longer hears it: nodes
//!   have been seen to disappear up to 5.7 s before the bound.
//! * The **proven** bound is the send time of a connect request or a write that renewed the session for certain, plus
//!   the shortest timeout granted to the session, minus 1 % for clocks that run at different rates. No server can delete
//!   an ephemeral node of this session by expiry before that, whatever happens to servers and network. The first base is
//!   the connect request that created the session; `proof` has the others.
//!
//! A bound that has expired stays expired for existing claims: a late reply proves nothing about the time in between,
//! so a [`SessionClaim`] made before it stays void. A claim that ends by the clock wakes its waiters in the call that
//! finds it void: timers stand still in a suspension.

use std::{
    future::poll_fn,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use docent_protocol::OpCode;

mod waiters;

pub use self::waiters::LeaseTimer;
use self::waiters::{Sleep, Waiters};
use super::operations::Operations;
use crate::{
    planted,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

/// The longest sleep until the end of a claim.
const MAX_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// One session, from its creation to its end, as seen by this client.
#[derive(Debug)]
pub struct SessionLease {
    session_id: i64,
    /// Nanoseconds; see [`Instant`].
    deadline: AtomicU64,
    proven_until: AtomicU64,
    /// The number of times the proven bound had expired before it was renewed.
    proof_lapses: AtomicU64,
    /// The number of times the deadline had expired before it was renewed.
    lapses: AtomicU64,
    lost: AtomicBool,
    /// Tasks waiting for the end of a claim.
    waiters: Waiters,
    /// The timer of these tasks; set by the driver of the session.
    timer: OnceLock<Box<dyn LeaseTimer>>,
    operations: Arc<Operations>,
}

impl SessionLease {
    pub(crate) fn new(
        session_id: i64,
        deadline: Instant,
        proven_until: Instant,
        operations: &Arc<Operations>,
    ) -> Arc<Self> {
        Arc::new(Self {
            session_id,
            deadline: AtomicU64::new(deadline.as_nanos()),
            proven_until: AtomicU64::new(proven_until.as_nanos()),
            proof_lapses: AtomicU64::new(0),
            lapses: AtomicU64::new(0),
            lost: AtomicBool::new(false),

            waiters: Waiters::default(),
            timer: OnceLock::new(),
            operations: Arc::clone(operations),
        })
    }

    /// The session id, which ephemeral nodes carry as their owner. Usually printed in hexadecimal.
    #[must_use]
    pub const fn session_id(&self) -> i64 {
        self.session_id
    }

    /// Whether the session is known to have ended, or is being closed. `false` proves nothing; use a [`SessionClaim`].
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// When the naive bound expires, on the clock of the session's driver: for a client, its `Clock`.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// When the proven bound expires, on the clock of the session's driver: for a client, its `Clock`. A renewal can
    /// move it after it has expired; [`SessionClaim::proven_until`] does not move then.
    #[must_use]
    pub fn proven_until(&self) -> Instant {
        Instant::from_nanos(self.proven_until.load(Ordering::Acquire))
    }

    /// Makes a claim on the session. Call this *before* the request is sent whose reply shows that something is held.
    #[must_use]
    pub fn claim(self: &Arc<Self>) -> SessionClaim {
        SessionClaim {
            lease: Arc::clone(self),
            lapses: self.lapses.load(Ordering::Acquire),
            proof_lapses: self.proof_lapses.load(Ordering::Acquire),
        }
    }

    /// Records that a request sent at `sent_at` was answered at `now`. Returns whether the deadline had passed, which
    /// voids all claims.
    #[must_use]
    pub(crate) fn renew(&self, now: Instant, sent_at: Instant, lasts: Duration) -> bool {
        let old = self.deadline();
        if now > old {
            // Before the store of the new deadline: a thread that sees the deadline must see the lapse too.
            self.lapses.fetch_add(1, Ordering::AcqRel);
        }
        let new = sent_at + lasts;
        if planted::is("proof-renewed") {
            self.proven_until.store(new.as_nanos(), Ordering::Release);
        }
        if new > old {
            self.deadline.store(new.as_nanos(), Ordering::Release);
        }
        now > old
    }

    /// Records that a server of the quorum accepted the session at `now`. No contact is later than this one, so its
    /// deadline applies, even if an earlier contact was granted more time. Returns whether claims may end before the
    /// deadline that their waiters know: it is earlier now, or it had passed.
    pub(crate) fn reattach(&self, now: Instant, deadline: Instant) -> bool {
        let old = self.deadline();
        if now > old {
            self.lapses.fetch_add(1, Ordering::AcqRel);
        }
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
        deadline < old || now > old
    }

    /// Records that a claim has expired, which voids all claims made with it. A reply that is being received may carry
    /// a time before the deadline, so it does not count as a lapse by itself. Timers may be late, after a suspension of
    /// the machine: their tasks are woken here.
    fn lapse(&self, lapses: u64) {
        let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.lapses.compare_exchange(lapses, lapses + 1, acquire, relaxed).is_ok() {
            self.wake_waiters();
        }
    }

    /// Records at `now` that the session is proven to exist until `until`. Returns whether that moves the bound. A bound
    /// that has expired moves for later claims only.
    pub(crate) fn prove(&self, now: Instant, until: Instant) -> bool {
        let old = self.proven_until();
        if self.is_lost() || until <= now || until <= old {
            return false;
        }
        if now > old {
            // Before the store of the new bound: a thread that sees the bound must see the lapse too.
            self.proof_lapses.fetch_add(1, Ordering::AcqRel);
        }
        self.proven_until.store(until.as_nanos(), Ordering::Release);
        true
    }

    /// Records that the server granted a smaller timeout.
    pub(crate) fn shorten_proof(&self, proven_until: Instant) {
        self.proven_until.fetch_min(proven_until.as_nanos(), Ordering::AcqRel);
    }

    /// Records that the session has ended, or that this client is ending it. Both bounds have passed.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.proven_until.store(0, Ordering::Release);
    }

    /// Sets the timer of [`SessionClaim::lost`], once: later calls change nothing.
    pub fn set_timer(&self, timer: impl FnOnce() -> Box<dyn LeaseTimer>) {
        self.timer.get_or_init(timer);
    }

    /// Wakes the tasks in [`SessionClaim::lost`]. To be called for each
    /// [`Event::Lease`](super::session::Event::Lease).
    pub fn wake_waiters(&self) {
        self.waiters.wake();
    }

    /// Whether the servers of this session do not support an operation, according to their replies, to two connections that
    /// they closed behind it while they had never replied to it, or to [`note_unusable`](Self::note_unusable). `false` for an
    /// operation that all servers support.
    ///
    /// The findings of a session are those of its client: they stay when the session is lost. The answer may change from
    /// `true` to `false` after a reconnect: the next server may be a newer one.
    #[must_use]
    pub fn lacks(&self, op: OpCode) -> bool {
        self.operations.lacks(op)
    }

    /// Records that an operation is of no use on these servers, although they reply to it: [`lacks`](Self::lacks) is true
    /// from now on. Requests of it are still sent.
    // Public for the cache of docent-recipes.
    #[doc(hidden)]
    pub fn note_unusable(&self, op: OpCode) {
        self.operations.note_unusable(op);
    }
}

/// A claim that the session has existed without interruption since the claim was made.
///
/// Once [`is_valid`](Self::is_valid) could have returned `false`, it returns `false` forever. [`lost`](Self::lost)
/// waits for that.
#[derive(Debug, Clone)]
pub struct SessionClaim {
    lease: Arc<SessionLease>,
    lapses: u64,
    proof_lapses: u64,
}

impl SessionClaim {
    /// The session.
    #[must_use]
    pub const fn lease(&self) -> &Arc<SessionLease> {
        &self.lease
    }

    /// Whether the session is not known to be lost and its naive bound has not expired since the claim was made. Best
    /// effort, see the [module](crate::session::SessionLease). `now` is the time of the client's clock: `false` for a later time
    /// is final too. The first `false` of a deadline that has passed wakes the tasks in [`lost`](Self::lost).
    #[must_use]
    pub fn is_valid(&self, now: Instant) -> bool {
        if now > self.lease.deadline() {
            self.lease.lapse(self.lapses);
            return false;
        }
        self.lease.lapses.load(Ordering::Acquire) == self.lapses && !self.lease.is_lost()
    }

    /// When the proven bound of the session expires for this claim. `now` is the time of the client's clock.
    ///
    /// A renewal moves it, unless it had expired: then it lies in the past for ever, and only a later claim is proven
    /// again. [`Instant::ZERO`] if it had expired before the last renewal, or the session is lost.
    #[must_use]
    pub fn proven_until(&self, now: Instant) -> Instant {
        let until = self.lease.proven_until();
        if now > until {
            let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
            // What is reported as expired stays so, even if a renewal was dated before this moment.
            let _ = self.lease.proof_lapses.compare_exchange(
                self.proof_lapses,
                self.proof_lapses + 1,
                acquire,
                relaxed,
            );
            return until;
        }
        let is_unbroken = self.lease.proof_lapses.load(Ordering::Acquire) == self.proof_lapses;
        if is_unbroken || planted::is("proof-revived") { until } else { Instant::ZERO }
    }

    /// Waits until [`is_valid`](Self::is_valid) is false for the client's clock: the session is lost or closed, or the
    /// naive bound has run out. Completes at once if it is false already.
    ///
    /// Completes within a millisecond of the deadline, the precision of the client's timers. These timers stand still
    /// while the machine is suspended, and the clock does not: after a suspension, this completes when `is_valid` is
    /// called, when a server replies, or when a timer of the client is due, which is the earliest of them.
    ///
    /// Can be polled anywhere, also outside a runtime.
    ///
    /// The lease of a [`Session`](super::session::Session) without a client has a timer if
    /// [`SessionLease::set_timer`] was called. Without one, this completes only when the session is known to be lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Example
    ///
    /// ```
    /// # extern crate docent_session as docent;
    /// use docent::session::SessionClaim;
    ///
    /// async fn stop_when_lost(claim: SessionClaim, stop: impl FnOnce()) {
    ///     claim.lost().await;
    ///     stop();
    /// }
    /// ```
    pub async fn lost(&self) {
        let lease = self.lease();
        let waiter = lease.waiters.enter();
        // With the instant that it ends at.
        let mut sleep: Option<(Instant, Sleep)> = None;
        let mut has_timers = true;
        poll_fn(|cx| {
            loop {
                // Before the check, so that no wake-up is lost.
                waiter.register(cx.waker());
                let Some(timer) = lease.timer.get() else {
                    return if lease.is_lost() { Poll::Ready(()) } else { Poll::Pending };
                };
                let now = timer.now();
                if !self.is_valid(now) {
                    return Poll::Ready(());
                }
                if !has_timers {
                    return Poll::Pending;
                }
                // Each reply moves the deadline on, and wakes no waiter.
                let deadline = lease.deadline();
                if sleep.as_ref().is_none_or(|(at, _)| *at > deadline) {
                    let left = deadline.duration_since(now).min(MAX_SLEEP);
                    // The claim is still valid at the deadline itself.
                    sleep = Some((now + left, timer.sleep(left + Duration::from_nanos(1))));
                }
                let Some((_, timeout)) = &mut sleep else { return Poll::Pending };
                let Poll::Ready(fired) = timeout.as_mut().poll(cx) else { return Poll::Pending };
                (sleep, has_timers) = (None, fired);
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn lease() -> Arc<SessionLease> {
        SessionLease::new(1, at(1000), at(990), &Arc::default())
    }

    const T: Duration = Duration::from_secs(1);

    #[test]
    fn a_claim_lives_as_long_as_answers_come_in_time() {
        let lease = lease();
        let claim = lease.claim();
        assert!(!lease.renew(at(900), at(800), T));
        assert!(claim.is_valid(at(1800)));
        assert!(!claim.is_valid(at(1801)));
    }

    #[test]
    fn a_late_answer_revives_the_session_but_no_claim() {
        let lease = lease();
        let before = lease.claim();
        assert!(lease.renew(at(1500), at(900), T), "a lapse");
        assert!(!before.is_valid(at(1501)), "it was not checked while it had run out, but it had");
        assert!(lease.claim().is_valid(at(1501)));
    }

    /// The machine has read the clock and waits for its lock while a holder reads the clock too.
    // Case (Found in docent itself): a claim that had said no said yes again when the answer that
    // renewed its lease had been dated before the deadline.
    #[test]
    fn an_answer_dated_before_the_deadline_revives_no_claim_that_was_void() {
        let lease = lease();
        let (claim, other) = (lease.claim(), lease.claim());
        assert!(!claim.is_valid(at(1001)));
        assert!(!lease.renew(at(999), at(900), T));
        assert!(!claim.is_valid(at(1002)), "no, and then yes");
        assert!(!other.is_valid(at(1002)), "it could have said no");
        assert!(lease.claim().is_valid(at(1002)));
    }

    #[test]
    fn answers_out_of_order_never_shorten_it() {
        let lease = lease();
        assert!(!lease.renew(at(500), at(400), T));
        assert!(!lease.renew(at(600), at(300), T));
        assert_eq!(lease.deadline(), at(1400));
    }

    #[test]
    fn a_renewed_proof_moves_the_bound_of_its_claims() {
        let lease = lease();
        let claim = lease.claim();
        assert!(lease.prove(at(990), at(1700)));
        assert_eq!(claim.proven_until(at(1699)), at(1700));
        assert!(!lease.prove(at(1000), at(1600)), "an older proof");
        assert!(!lease.prove(at(1800), at(1750)), "a proof that has expired");
        assert_eq!(lease.proven_until(), at(1700));
    }

    #[test]
    fn a_late_proof_is_one_for_later_claims_only() {
        let lease = lease();
        let before = lease.claim();
        assert!(lease.prove(at(991), at(1700)));
        assert_eq!(
            before.proven_until(at(1000)),
            Instant::ZERO,
            "it was not asked while it had expired"
        );
        assert_eq!(lease.claim().proven_until(at(1000)), at(1700));
    }

    #[test]
    fn a_lost_session_ends_every_claim_and_is_never_proven() {
        let lease = lease();
        let claim = lease.claim();
        assert_eq!(lease.proven_until(), at(990));
        lease.lose();
        assert!(!claim.is_valid(at(1)));
        assert!(!lease.prove(at(500), at(1400)));
        assert_eq!(claim.proven_until(at(500)), Instant::ZERO);
        assert_eq!(lease.proven_until(), Instant::ZERO);
    }

    /// All orders of three calls with times at their boundaries, 373,248 of them. No claim that was void, or should have
    /// been if it had been asked, is valid again, and no proven bound that had passed lies ahead again.
    #[test]
    fn no_order_of_calls_revives_a_claim() {
        const TIMES: [Instant; 4] = [Instant::ZERO, at(990), at(1000), Instant::MAX];
        let pairs = || TIMES.iter().flat_map(|now| TIMES.map(|other| (*now, other)));
        let renewals = pairs().flat_map(|(now, sent_at)| {
            [Duration::ZERO, Duration::MAX].map(|lasts| Call::Renew(now, sent_at, lasts))
        });
        let calls: Vec<_> = renewals
            .chain(pairs().map(|(now, until)| Call::Reattach(now, until)))
            .chain(pairs().map(|(now, until)| Call::Prove(now, until)))
            .chain(TIMES.into_iter().flat_map(|now| [Call::Ask(now), Call::AskProof(now)]))
            .collect();
        assert_eq!(calls.len().pow(3), 373_248);
        for number in 0..calls.len().pow(3) {
            let (lease, mut is_void, mut has_passed) = (lease(), false, false);
            let (claim, unasked) = (lease.claim(), lease.claim());
            let order = [number, number / calls.len(), number / calls.len().pow(2)];
            let order = order.map(|number| calls[number % calls.len()]);
            for call in order {
                let (deadline, proven) = (lease.deadline(), lease.proven_until());
                match call {
                    Call::Renew(now, sent_at, lasts) => {
                        is_void |= lease.renew(now, sent_at, lasts);
                        assert!(lease.deadline() >= deadline);
                    }
                    Call::Reattach(now, until) => {
                        lease.reattach(now, until);
                        is_void |= now > deadline;
                    }
                    Call::Prove(now, until) => {
                        has_passed |= lease.prove(now, until) && now > proven
                    }
                    Call::Ask(now) => is_void |= !claim.is_valid(now),
                    Call::AskProof(now) => has_passed |= claim.proven_until(now) < now,
                }
            }
            for (now, claim) in TIMES.iter().flat_map(|now| [(*now, &claim), (*now, &unasked)]) {
                assert!(!is_void || !claim.is_valid(now), "{order:?}");
                let proven = claim.proven_until(now);
                assert!(!has_passed || proven < now || proven == Instant::ZERO, "{order:?}");
            }
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Call {
        Renew(Instant, Instant, Duration),
        Reattach(Instant, Instant),
        Prove(Instant, Instant),
        Ask(Instant),
        AskProof(Instant),
    }
}
