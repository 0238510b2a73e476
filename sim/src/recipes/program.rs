//! The program of a process: one client, and workers that go through the steps of a plan.

use std::sync::Arc;

use docent::SessionToken;
use tokio::sync::oneshot;

use super::{
    common::poll_once,
    dispatch,
    step::{Step, VisitEnd, VisitStep},
    worker::{ClientNumber, Memory, Worker},
};
use crate::{
    checks::{requests, servers, sessions},
    faults::planted,
    plan::{PlanStep, ProcessPlan},
    world::{World, history::What, time::Pid},
};

/// The main task of a process.
pub(crate) async fn main(world: World, pid: Pid, mut plan: ProcessPlan<Step>) {
    let token = plan.resumes.and_then(|of| world.core().processes.get(of)?.token.clone());
    world.core().process_mut(pid).resumed = token.as_ref().map(SessionToken::session_id);
    let client =
        plan.client.config(&world, pid).with_session(token).start().expect("valid settings");
    sessions::follow(&world, pid, &client);
    let steps = || plan.workers.iter().flatten();
    let is_quiet = steps().all(PlanStep::is_quiet);
    // Not for a process that only sleeps: the task would find nothing, and would change the history.
    let is_quiet = is_quiet && steps().any(|step| !matches!(step, Step::Sleep { .. }));
    let mut renewals = plan.workers.iter_mut().flatten().filter_map(PlanStep::renew_ms);
    let reconnects =
        renewals.any(|renew_ms| renew_ms.is_some()) || plan.client.failback_ms.is_some();
    {
        let mut core = world.core();
        let process = core.process_mut(pid);
        (process.reconnects, process.relies_on_few) = (reconnects, plan.client.read_only);
    }
    if is_quiet {
        world.spawn(pid, requests::follow(world.clone(), pid, client.downgrade()));
    }
    // A client cannot return to a server that does not know its session.
    let may_return = !world.core().servers.has_local_sessions;
    if plan.client.failback_ms.is_some() && may_return {
        let followed = servers::follow(world.clone(), pid, client.downgrade(), plan.client.clone());
        world.spawn(pid, followed);
    }
    let client_number = ClientNumber::next(&world, plan.client.waits_when_full);
    world.spawn(pid, sessions::note_states(world.clone(), pid, &client));
    let (shared, kept) = (Memory::default(), Arc::default());
    let mut workers = Vec::new();
    for (number, steps) in plan.workers.into_iter().enumerate() {
        let (world, client) = (world.clone(), client.clone());
        let (memory, shared, kept) = (Memory::default(), shared.clone(), Arc::clone(&kept));
        let worker = Worker { world, pid, number, client, client_number, memory, shared, kept };
        let (done, is_done) = oneshot::channel();
        workers.push(is_done);
        worker.world.clone().spawn(pid, async move {
            run(&worker, steps).await;
            finish(&worker).await;
            let _ = done.send(());
        });
    }
    for worker in workers {
        let _ = worker.await;
    }
    // Lock objects keep the client alive.
    shared.clear();
    if plan.client.is_dropped {
        drop(client);
    } else {
        sessions::close(&world, pid, &client).await;
    }
    drop(kept);
    world.core().process_mut(pid).is_finished = true;
    world.record(What::Finished(pid));
}

/// Does the steps of a worker.
async fn run(worker: &Worker, steps: Vec<Step>) {
    for step in steps {
        // A client whose session is over for good can do nothing more.
        if worker.client.ended().is_some() {
            return worker.say("the client has ended");
        }
        planted::misbehave().await;
        match step {
            Step::Sleep { ms } => worker.sleep(ms).await,
            // Boxed, because a visitor may have steps of any kind.
            Step::Visit(step) => Box::pin(visit(worker, &step)).await,
            step => dispatch::run(worker, step).await,
        }
    }
}

/// Judges the final state of the recipes, and drops it.
async fn finish(worker: &Worker) {
    dispatch::finish(worker).await;
    worker.memory.clear();
}

/// Starts another client, and ends it.
async fn visit(worker: &Worker, step: &VisitStep) {
    let client = step.client.config(&worker.world, worker.pid).start().expect("valid settings");
    sessions::follow(&worker.world, worker.pid, &client);
    let visitor = worker.with_client(client, step.client.waits_when_full);
    run(&visitor, step.steps.clone()).await;
    finish(&visitor).await;
    let client = visitor.client;
    let (world, pid) = (&worker.world, worker.pid);
    match step.end {
        VisitEnd::Close => sessions::close(world, pid, &client).await,
        VisitEnd::CloseTwice => {
            let other = client.clone();
            tokio::join!(sessions::close(world, pid, &client), sessions::close(world, pid, &other));
        }
        VisitEnd::CancelledClose => poll_once(client.close()).await,
        VisitEnd::Drop => drop(client),
        VisitEnd::Resume => {
            let Some(token) = client.detach() else {
                return sessions::close(world, pid, &client).await;
            };
            {
                let mut core = world.core();
                // Another member does not know a local session.
                let is_local = core.servers.has_local_sessions;
                core.process_mut(pid).reconnects |= is_local;
            }
            let again =
                step.client.config(world, pid).with_session(token).start().expect("valid settings");
            sessions::follow(world, pid, &again);
            let again = worker.with_client(again, step.client.waits_when_full);
            run(&again, step.steps.clone()).await;
            finish(&again).await;
            sessions::close(world, pid, &again.client).await;
        }
    }
}
