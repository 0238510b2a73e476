//! A user's program under the simulator: processes that count jobs under a lock. Whatever fails, no job is counted
//! twice.

use std::time::Duration;

use docent::{Client, CreateMode, Error, ErrorKind, InterProcessMutex};
use docent_sim::{Check, Checks, Findings, Process, View, plan::Plan, run_program};

const COUNT: &str = "/jobs/count";

/// The service, which knows nothing of the simulator.
pub async fn count_job(client: &Client) -> Result<(), Error> {
    let hold = InterProcessMutex::new(client, "/jobs/lock")?.acquire().await?;
    let counted = match client.get_data(COUNT).await {
        Ok(node) => String::from_utf8_lossy(&node.data).parse().unwrap_or(0) + 1,
        Err(error) if error.kind() == ErrorKind::NoNode => {
            return client.create(COUNT, b"0", CreateMode::Persistent).await.map(drop);
        }
        Err(error) => return Err(error),
    };
    // Written only while the node of the lock exists.
    hold.guarded()?.set_data(COUNT, u32::to_string(&counted).as_bytes(), None).commit().await?;
    hold.release().await
}

/// The rule: each write has counted one more job.
#[derive(Default)]
pub struct EachJobOnce;

impl Check for EachJobOnce {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        let Some((data, stat)) = view.node(COUNT) else { return };
        if data != stat.version.to_string() {
            found.violation(format!("{data:?} after {} writes", stat.version));
        }
    }
}

async fn work(process: Process) {
    let client = process.start_client();
    for _ in 0..20 {
        if let Err(error) = count_job(&client).await {
            process.say(format!("a job is not counted: {error}"));
        }
        process.sleep(Duration::from_millis(500)).await;
    }
    let _ = client.close().await;
}

pub fn main() {
    for seed in 1..=20 {
        let outcome = run_program(&Plan::draw(seed, 3), Checks::default().with(EachJobOnce), work);
        assert!(outcome.is_good(), "{}", outcome.history);
    }
}
