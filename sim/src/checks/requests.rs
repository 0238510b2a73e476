//! Requests without a cause.

use std::time::Duration;

use docent::{Client, client::WeakClient};

use crate::world::{
    World,
    check::{Check, Findings, View},
    history::What,
    time::{Pid, SECOND},
};

/// The period in which requests are counted, in seconds. A single retry of a create, with its parents, takes more than
/// ten requests.
const PERIOD_S: u64 = 5;

/// How often a client may try to connect while no server answers: three servers in each round, after a pause of at
/// least a sixteenth of the shortest session timeout, 4 s. The pauses are shorter in the first rounds, and before the
/// session ends.
const ATTEMPTS_EACH_SECOND: u64 = 13;
const ATTEMPTS: u64 = 50;

/// The requests of a client so far, and their possible causes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count {
    requests: u64,
    causes: u64,
    connections: u64,
}

impl Count {
    pub(crate) fn now(world: &World, pid: Pid, client: &Client) -> Self {
        let metrics = client.metrics();
        let steps = world.core().process(pid).steps;
        let (requests, connections) = (metrics.requests, metrics.connections);
        Self { requests, connections, causes: metrics.events + connections + steps }
    }

    /// Whether there were more requests than their causes explain, in this number of seconds. A new connection is a cause for
    /// each of the caches.
    pub(crate) fn too_many_since(
        self,
        before: Self,
        seconds: u64,
        caches: usize,
    ) -> Option<String> {
        let requests = self.requests - before.requests;
        let further = (self.connections - before.connections) * caches.saturating_sub(1) as u64;
        let causes = self.causes - before.causes + further;
        (requests > 10 * seconds + 20 * causes)
            .then(|| format!("{requests} requests in {seconds} s, for {causes} causes"))
    }
}

/// Attempts to connect: no more than the pauses between them allow.
pub(crate) struct Attempts;

impl Check for Attempts {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        let core = view.core();
        for (pid, (attempts, since)) in &core.network.attempts {
            let clients = core.process(*pid).clients;
            let allowed = clients * (ATTEMPTS + (view.now - since) * ATTEMPTS_EACH_SECOND / SECOND);
            if *attempts > allowed && core.process(*pid).is_running() {
                let text = format!("p{pid}: {attempts} attempts to connect, and no answer");
                found.violation(text);
            }
        }
    }
}

/// Checks that a process with only participants and kept nodes sends no request without a cause, once there is peace.
pub(crate) async fn follow(world: World, pid: Pid, client: WeakClient) {
    let mut before: Option<Count> = None;
    loop {
        let Some(client) = client.upgrade() else { return };
        if client.ended().is_some() {
            return;
        }
        let now = Count::now(&world, pid, &client);
        drop(client);
        let is_settled = world.now() > world.core().disturbances.peace_at + 2 * PERIOD_S * SECOND;
        if let Some(before) = before.filter(|_| is_settled) {
            let bad = |text: String| world.record(What::Violation(format!("p{pid}: {text}")));
            now.too_many_since(before, PERIOD_S, 0).into_iter().for_each(bad);
        }
        before = Some(now);
        world.sleep(pid, Duration::from_secs(PERIOD_S)).await;
    }
}
