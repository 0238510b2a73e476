//! A worker of which only one works at a time: the leader. Start several, then kill, stop or disconnect the one that
//! works. `leader [NAME [REPORTS]]`: it leaves after this number of reports.
//!
//! On the ZooKeeper in `DOCENT_CONNECT` (host:port,…), or else on an embedded server in this process.

use std::time::Duration;

use docent::TransactionResult::DataSet;
use docent::{Client, Config, CreateMode, Error, ErrorKind, LeaderLatch, Leadership};
use docent_testing::TestingServer;
use tokio::time::sleep;

/// The result of the work. The server accepts it from the leader only.
const REPORT: &str = "/leader-report";

/// Works until all reports are written. Dropped at its next `await` when the leadership ends.
async fn work(leadership: &Leadership, name: &str, reports: &mut u32) -> Result<(), Error> {
    let token = leadership.fencing_token().await?;
    while *reports > 0 {
        let report = format!("token {token} by {name}");
        let mut transaction = leadership.guarded()?;
        transaction.set_data(REPORT, report.as_bytes(), None);
        if let Some(DataSet(stat)) = transaction.commit().await?.last() {
            println!("report {} with {report}", stat.version);
        }
        *reports -= 1;
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let embedded = TestingServer::start().await?;
    let connect_string =
        std::env::var("DOCENT_CONNECT").unwrap_or_else(|_| embedded.connect_string());
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "worker".to_owned());
    let mut reports = arguments.next().map_or(Ok(5), |count| count.parse())?;

    // When the leader dies, the others wait for this time.
    let config = Config::new(&connect_string)?.with_session_timeout(Duration::from_secs(4));
    let client: Client = config.connect().await?;
    client.create(REPORT, b"", CreateMode::Persistent).allow(ErrorKind::NodeExists).await?;
    let latch = LeaderLatch::start(&client, "/examples/leader", &name)?;
    while reports > 0 {
        let leadership = latch.leadership().await?;
        println!("{name} leads, for the {}. time", leadership.epoch());
        let stop = leadership.cancellation_token();
        let worked = stop.run_until_cancelled(work(&leadership, &name, &mut reports)).await;
        if let Some(Err(error)) = &worked {
            eprintln!("{name}: {error}");
            sleep(Duration::from_millis(100)).await;
        }
        println!("{name} has stopped; still leading: {}", leadership.is_held());
    }
    latch.close().await?;
    Ok(client.close().await?)
}
