//! A handle `latch:PATH`: an acquire takes part in the election until it leads, a release leaves it.

use std::time::Duration;

use docent::{Client, Error, LeaderLatch, LeaderOptions, Leadership, LockOptions};
use tokio::{sync::mpsc, time::timeout};

use super::{Held, answer, ask, say};

/// Runs the commands of one handle, in order.
pub(crate) async fn run(
    client: Client,
    path: String,
    options: LockOptions,
    mut commands: mpsc::UnboundedReceiver<(String, String, Vec<String>)>,
) {
    let mut latch: Option<LeaderLatch> = None;
    let mut leadership: Option<Leadership> = None;
    while let Some((id, verb, args)) = commands.recv().await {
        match verb.as_str() {
            "acquire" if latch.is_some() => {
                say(&format!("{id} err NotOwner it takes part already"))
            }
            "acquire" => {
                let wait =
                    args.first().and_then(|text| text.parse().ok()).map(Duration::from_millis);
                let options = LeaderOptions::default().with_lock_options(options.clone());
                let result = match LeaderLatch::start_with(&client, &path, "peer", options) {
                    Ok(started) => {
                        let result = lead(&started, wait).await;
                        latch = Some(started);
                        result
                    }
                    Err(error) => Err(error),
                };
                match result {
                    Ok(Some(led)) => {
                        leadership = Some(led);
                        answer(&id, Ok(Some(String::new())));
                    }
                    Ok(None) => {
                        close(latch.take()).await;
                        answer(&id, Ok(None));
                    }
                    Err(error) => {
                        close(latch.take()).await;
                        answer(&id, Err(error));
                    }
                }
            }
            "release" | "drop" => {
                leadership = None;
                match latch.take() {
                    Some(latch) => answer(&id, latch.close().await.map(|()| Some(String::new()))),
                    None => say(&format!("{id} err NotOwner it takes no part")),
                }
            }
            verb => {
                let held = leadership.as_ref().map(Held::Leadership);
                ask(&client, &id, verb, &args, held).await;
            }
        }
    }
}

async fn lead(latch: &LeaderLatch, wait: Option<Duration>) -> Result<Option<Leadership>, Error> {
    match wait {
        None => latch.leadership().await.map(Some),
        Some(wait) => timeout(wait, latch.leadership()).await.ok().transpose(),
    }
}

async fn close(latch: Option<LeaderLatch>) {
    if let Some(latch) = latch {
        // The background deletes the node.
        let _ = latch.close().await;
    }
}
