//! Durations of timed waits. The tests use tokio's paused clock, which advances only when all tasks are idle, so the
//! speed of the machine does not matter.

use tokio::time::Instant;

use super::{
    barrier,
    double::{member, spawn_enter, spawn_leave},
};
use crate::support::in_process::server_and_client;
use crate::*;

/// Tolerance for replies, and for timers, which are up to a millisecond late.
const TOLERANCE: Duration = ms(50);

/// Without a connection, steps that are in progress at the timeout may take one second longer.
const LAST_STEPS: Duration = ms(1000);

/// Checks that a timed call returns false after `wait`, and at most `late` after that.
async fn times_out(
    wait: Duration,
    late: Duration,
    call: impl Future<Output = Result<bool, Error>>,
) {
    let began = Instant::now();
    assert!(!call.await.unwrap());
    let took = began.elapsed();
    assert!(took >= wait && took < wait + late, "{took:?} of {wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_timed_wait_returns_at_its_timeout() {
    let (server, client) = server_and_client().await;
    let barrier = barrier(&client, "/barrier");
    barrier.set_barrier().await.unwrap();
    for (stops, late) in [(false, TOLERANCE), (true, LAST_STEPS + TOLERANCE)] {
        if stops {
            server.stop();
        }
        for wait in [0, 300, 10_000].map(ms) {
            times_out(wait, late, barrier.wait_on_barrier_timeout(wait)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timed_enter_returns_at_its_timeout() {
    let (server, client) = server_and_client().await;
    let mut fresh = member(&client, "/fresh", 2);
    let first = spawn_enter(member(&client, "/used", 2));
    let second = spawn_enter(member(&client, "/used", 2));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let (first, second) = (spawn_leave(first), spawn_leave(second));
    let (mut used, _other) = (first.await.unwrap(), second.await.unwrap());
    for (stops, late) in [(false, TOLERANCE), (true, LAST_STEPS + TOLERANCE)] {
        if stops {
            server.stop();
        }
        for wait in [0, 300, 10_000].map(ms) {
            for member in [&mut fresh, &mut used] {
                times_out(wait, late, member.enter_timeout(wait)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timed_leave_returns_at_its_timeout() {
    for stops in [false, true] {
        for wait in [0, 300, 10_000].map(ms) {
            let (server, client) = server_and_client().await;
            let [mut first, mut second] = [1, 1].map(|count| member(&client, "/barrier", count));
            first.enter().await.unwrap();
            second.enter().await.unwrap();
            if stops {
                server.stop();
            }
            let late = if stops { LAST_STEPS + TOLERANCE } else { TOLERANCE };
            times_out(wait, late, first.leave_timeout(wait)).await;
        }
    }
}
