//! The servers of clients that return to a better one, once there is peace.

use std::time::Duration;

use docent::client::WeakClient;

use crate::{
    plan::ClientPlan,
    world::{
        World,
        history::What,
        time::{MILLISECOND, Nanos, Pid, SECOND},
    },
};

/// The time from the peace until all members serve, all clients are connected, and sessions from before the peace have
/// ended.
const SETTLED: Nanos = 30 * SECOND;

/// The time within which a client is at the member that it prefers: it asks once in each interval, for a second, and
/// moves within a third of the session timeout. A delayed answer or reply costs an interval.
pub(crate) fn bound(plan: &ClientPlan) -> Nanos {
    let failback_ms = plan.failback_ms.unwrap_or_default();
    (3 * failback_ms + plan.session_timeout_ms / 3 + 3_000) * MILLISECOND
}

/// How long after the peace [`follow`] needs to judge a client.
pub(crate) fn judged_after(plan: &ClientPlan) -> Nanos {
    SETTLED + bound(plan) + 3 * SECOND
}

/// Checks that a client is at the member that it prefers.
pub(crate) async fn follow(world: World, pid: Pid, client: WeakClient, plan: ClientPlan) {
    // Since when it is at another member, and whether its session was another process's too.
    let mut away = None;
    loop {
        let Some(client) = client.upgrade() else { return };
        if client.ended().is_some() {
            return;
        }
        let (metrics, now) = (client.metrics(), world.now());
        // A step may replace the list.
        let servers = client.servers();
        drop(client);
        if now > world.core().disturbances.peace_at + SETTLED && metrics.sessions > 0 {
            let preferred = plan.prefers.map(|member| format!("s{member}"));
            let is_listed = servers.iter().any(|host| Some(&host.name) == preferred.as_ref());
            let server = metrics.server.map(|host| host.name);
            if !is_listed || server == preferred {
                away = None;
            } else {
                let (since, is_moved) = away.get_or_insert((now, false));
                *is_moved |= world.core().shares_session(pid);
                if now - *since > bound(&plan) {
                    let text = format!("p{pid}: is at {server:?}, and prefers {preferred:?}");
                    world.record(if *is_moved {
                        What::Counted { excuse: "a session that another process moves", text }
                    } else {
                        What::Violation(text)
                    });
                    away = None;
                }
            }
        }
        world.sleep(pid, Duration::from_secs(1)).await;
    }
}
