//! The example of a user's program, and a program that breaks its rule.

#[path = "../examples/own_program.rs"]
mod example;

use std::time::Duration;

use docent::{Client, CreateMode, Error};
use docent_sim::{Checks, Process, plan::Plan, run_program};

#[test]
fn no_job_is_counted_twice() {
    example::main();
}

/// Without a lock, two processes read one number.
async fn count_unlocked(client: &Client) -> Result<(), Error> {
    let node = client.get_data("/jobs/count").await?;
    let next = String::from_utf8_lossy(&node.data).parse().unwrap_or(0_u32) + 1;
    client.set_data("/jobs/count", next.to_string().as_bytes(), None).await.map(drop)
}

#[test]
fn a_job_counted_twice_is_found() {
    let work = |process: Process| async move {
        let client = process.start_client();
        let _ = client.create("/jobs", b"", CreateMode::Persistent).await;
        let _ = client.create("/jobs/count", b"0", CreateMode::Persistent).await;
        for _ in 0..20 {
            let _ = count_unlocked(&client).await;
            process.sleep(Duration::from_millis(10)).await;
        }
        let _ = client.close().await;
    };
    let checks = || Checks::default().with(example::EachJobOnce);
    let is_found = |seed| {
        let outcome = run_program(&Plan::draw(seed, 3), checks(), work);
        outcome.history.violations().any(|text| text.ends_with(" writes"))
    };
    assert!((1..=10).any(is_found));
}
