//! Elections: latches and selectors that take part, lead, write as leaders, and leave in every way.

use std::{
    future::pending,
    ops::ControlFlow,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use docent::{
    Error, ErrorKind, LeaderLatch, LeaderOptions, LeaderSelector, Leadership,
    leader::{CloseMode, ConnectionStateErrorPolicy, LeadershipChange, Participant, Term},
};

use super::{
    check::{self, Object, Participating},
    steps::{LeadBy, LeadSettings, LeadStep},
};
use crate::{
    checks::REQUEST_ARRIVES_WITHIN,
    recipes::{
        common::{CloseKind, HoldWatch, poll_once},
        worker::Worker,
    },
    world::history::What,
};

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: &LeadStep) {
    let id = format!("participant-{}", worker.world.next_number());
    match step.by {
        LeadBy::Latch => latch(worker, step, &id).await,
        LeadBy::Selector | LeadBy::Requeued(_) => selector(worker, step, &id).await,
    }
}

/// The path that a recipe is made with, and the one on the servers.
fn paths(step: &LeadStep) -> (String, String) {
    let LeadStep { election, options, .. } = step;
    let path = match step.by {
        LeadBy::Latch => format!("/latch-{election}"),
        LeadBy::Selector | LeadBy::Requeued(_) => format!("/selector-{election}"),
    };
    let full = if options.namespaced { format!("/space-e{path}") } else { path.clone() };
    (path, full)
}

fn options(settings: LeadSettings) -> LeaderOptions {
    let mut lock = settings.retry.lock_options();
    if settings.namespaced {
        lock = lock.with_namespace("space-e");
    }
    if let Some(ms) = settings.renew_ms {
        lock = lock.with_proven_renewal(Duration::from_millis(ms));
    }
    let mut options = LeaderOptions::from(lock);
    if settings.keeps_over_cuts {
        options = options.with_error_policy(ConnectionStateErrorPolicy::Session);
    }
    if settings.notifies {
        options = options.with_close_mode(CloseMode::NotifyLeader);
    }
    options
}

fn take_part(worker: &Worker, step: &LeadStep, id: &str, object: Object) -> Participating {
    check::take_part(worker, (&paths(step).1, id), object, !step.options.keeps_over_cuts)
}

async fn latch(worker: &Worker, step: &LeadStep, id: &str) {
    let (path, full) = paths(step);
    worker.say(format!("joins {full} as {id}"));
    let made = LeaderLatch::start_with(&worker.client, &path, id, options(step.options));
    let Some(latch) = worker.accepted(&path, made) else { return };
    let part = take_part(worker, step, id, Object::Latch(latch.clone()));
    let mut changes = latch.changes();
    let followed = async {
        let mut leading = None;
        if step.watch == HoldWatch::Nothing {
            // One task follows and writes: it notices the end of a leadership only after its writes.
            while let Some(change) = changes.next().await {
                let was_leading = leading.take();
                match change {
                    LeadershipChange::Leader(leadership) => {
                        if was_leading.is_some() {
                            worker.violation(&format!("{id} becomes the leader twice"));
                        }
                        leads(worker, step, id, &leadership).await;
                        leading = Some(part.watch(&worker.world, &leadership));
                    }
                    LeadershipChange::NotLeader => {
                        if was_leading.is_none() {
                            worker.violation(&format!("{id} leads no more, and never did"));
                        }
                        worker.say(format!("{id} leads no more"));
                    }
                    LeadershipChange::Failed(error) => return failed(worker, id, &error),
                    _ => {}
                }
            }
            return worker.say(format!("{id} hears no more"));
        }
        loop {
            let waiting = latch.leadership();
            let leadership = match step.cancel_ms {
                None => waiting.await,
                Some(ms) => match worker.within(ms, waiting).await {
                    Some(leadership) => leadership,
                    None => continue,
                },
            };
            let leadership = match leadership {
                Ok(leadership) => leadership,
                Err(error) => return failed(worker, id, &error),
            };
            leads(worker, step, id, &leadership).await;
            let watching = part.watch(&worker.world, &leadership);
            if step.watch == HoldWatch::Token {
                leadership.cancellation_token().cancelled().await;
            } else {
                leadership.lost().await;
            }
            drop(watching);
            if leadership.is_held() {
                worker.violation(&format!("{id} has lost what it holds"));
            }
            worker.say(format!("{id} leads no more"));
        }
    };
    // The future is dropped here, with its borrows.
    worker.within(step.for_ms, followed).await;
    judge_node(worker, &latch, id);
    judge_report(worker, (id, &full), latch.participants(), latch.leader()).await;
    if step.end == CloseKind::Keep {
        worker.say(format!("{id} stays"));
        return worker.keep((latch, part));
    }
    close_latch(worker, step.end, id, latch, &part).await;
}

/// Checks that the node that a latch reports is its own.
fn judge_node(worker: &Worker, latch: &LeaderLatch, id: &str) {
    let Some(path) = latch.our_path() else { return };
    let core = worker.world.core();
    let created = core.servers.truth.of(&path).next().and_then(|of| of.change.node.clone());
    drop(core);
    if created.is_none_or(|(data, _)| data != id) {
        worker.violation(&format!("{id} reports the node {path}"));
    }
}

/// Checks that the participants and the leader that are reported are those of the servers.
async fn judge_report(
    worker: &Worker,
    (id, election): (&str, &str),
    participants: impl Future<Output = Result<Vec<Participant>, Error>>,
    leader: impl Future<Output = Result<Option<Participant>, Error>>,
) {
    let from = worker.world.now();
    let (Ok(found), Ok(leader)) = (participants.await, leader.await) else { return };
    let Some(queue) = worker.settled_queue(election, from) else { return };
    let core = worker.world.core();
    let id_of = |path: &String| core.ensemble().node(path).map(|(data, _)| data);
    let is_same = |(at, (path, of)): (usize, (&String, &Participant))| {
        (at == 0) == of.is_leader && *path == of.path && id_of(path).is_some_and(|id| id == of.id)
    };
    let is_true = queue.len() == found.len() && queue.iter().zip(&found).enumerate().all(is_same);
    drop(core);
    if !is_true || leader.as_ref() != found.first() {
        worker.violation(&format!("{id} reports {found:?} and {leader:?}, not {queue:?}"));
    }
}

async fn close_latch(
    worker: &Worker,
    end: CloseKind,
    id: &str,
    latch: LeaderLatch,
    part: &Participating,
) {
    let current = latch.current_leadership();
    part.close(false);
    if end == CloseKind::Drop {
        drop(latch);
        worker.say(format!("{id} is dropped"));
        return ended(worker, id, current.as_ref());
    }
    let closing = latch.close();
    ended(worker, id, current.as_ref());
    if end == CloseKind::CancelledClose {
        poll_once(closing).await;
        return worker.say(format!("{id} begins to close"));
    }
    let closed = if end == CloseKind::CloseTwice {
        tokio::join!(closing, latch.close()).0
    } else {
        closing.await
    };
    worker.say(format!("{id} is closed: {:?}", closed.as_ref().err().map(Error::kind)));
    if closed.is_ok() && worker.client.ended().is_none() {
        part.is_closed(worker.session_id());
    }
}

/// Checks that a close has ended the leadership in the call itself.
fn ended(worker: &Worker, id: &str, leadership: Option<&Leadership>) {
    if leadership.is_some_and(Leadership::is_held) {
        worker.violation(&format!("{id} leads after its close"));
    }
}

fn failed(worker: &Worker, id: &str, error: &Error) {
    worker.say(format!("{id} takes part no longer: {error}"));
    let is_denied = matches!(error.kind(), ErrorKind::NoAuth | ErrorKind::QuotaExceeded)
        && error.path().is_some_and(|path| may_be_refused(worker, path));
    if error.kind() == ErrorKind::Closed || worker.client.ended().is_some() {
        return;
    }
    let text = format!("{id} has failed: {error}");
    if is_denied {
        worker.world.record(What::Counted { excuse: "a refused participation", text });
    } else {
        worker.violation(&text);
    }
}

/// Whether a refusal of a write to a path may arrive now.
fn may_be_refused(worker: &Worker, path: &str) -> bool {
    let core = worker.world.core();
    let until = core.disturbances.denied_until(path);
    let arrives_by = until.max(core.undisturbed_since(worker.pid)) + REQUEST_ARRIVES_WITHIN;
    until > 0 && worker.world.now() <= arrives_by
}

async fn selector(worker: &Worker, step: &LeadStep, id: &str) {
    let (path, full) = paths(step);
    worker.say(format!("joins {full} as {id}"));
    let made = LeaderSelector::with_options(&worker.client, &path, id, options(step.options));
    let Some(selector) = worker.accepted(&path, made) else { return };
    let part = take_part(worker, step, id, Object::Selector(selector.clone()));
    let left = &AtomicU8::new(if let LeadBy::Requeued(terms) = step.by { terms } else { 1 });
    let part = &part;
    let term = |leadership: Leadership| async move {
        leads(worker, step, id, &leadership).await;
        // The term is dropped when the leadership ends first.
        let _watching =
            (step.watch != HoldWatch::Nothing).then(|| part.watch(&worker.world, &leadership));
        let lost = async {
            match step.watch {
                HoldWatch::Nothing => pending().await,
                HoldWatch::Lost => leadership.lost().await,
                HoldWatch::Token => leadership.cancellation_token().cancelled().await,
            }
        };
        tokio::select! {
            biased;
            () = lost => worker.say(format!("{id} leads no more")),
            () = worker.sleep(step.term_ms) => {}
        }
        match left.fetch_sub(1, Ordering::Relaxed) {
            0 | 1 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let running = async {
        match step.by {
            LeadBy::Requeued(_) => selector.run_requeued(term).await.map(|()| true),
            _ => selector.run(term).await.map(|term| matches!(term, Term::Completed(_))),
        }
    };
    let ran = worker.within(step.for_ms, running).await;
    part.close(false);
    match ran {
        None => worker.say(format!("{id} is dropped")),
        Some(Ok(completed)) => worker.say(format!("{id} has led: {completed}")),
        Some(Err(error)) => failed(worker, id, &error),
    }
    if selector.current_leadership().is_some() {
        worker.violation(&format!("{id} leads after its end"));
    }
    judge_report(worker, (id, &full), selector.participants(), selector.leader()).await;
}

/// The first acts of a leader: it looks at its token, and writes.
async fn leads(worker: &Worker, step: &LeadStep, id: &str, leadership: &Leadership) {
    worker.say(format!("{id} leads by {}", leadership.path()));
    let token = match leadership.fencing_token().await {
        Ok(token) => token,
        Err(error) => return worker.say(format!("{id} has no token: {error}")),
    };
    let stat = worker.world.core().ensemble().node(leadership.path()).map(|(_, stat)| stat);
    let stat = stat.filter(|stat| stat.ephemeral_owner == leadership.session_id());
    if let Some(stat) = stat
        && stat.czxid != token
    {
        worker.violation(&format!("{id}: the token is {token}, not {}", stat.czxid));
    }
    let register = format!("/register-of{}", paths(step).1.replace('/', "-"));
    for _ in 0..step.writes {
        let written = (&*register, leadership.path(), token);
        worker.write_guarded(written, true, || leadership.guarded()).await;
    }
}
