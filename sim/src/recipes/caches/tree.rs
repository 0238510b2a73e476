//! Changes of the tree that caches hold: nodes below `/tree`.

use std::{future::poll_fn, pin::Pin, task::Poll};

use docent::{CreateMode, Error};

use super::steps::{TreeOp, TreeStep};
use crate::recipes::worker::Worker;

/// The path of a node of the tree.
pub(crate) fn path(names: &[u8]) -> String {
    names.iter().fold("/tree".to_owned(), |path, name| format!("{path}/{name}"))
}

type Request = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Sends the changes at once, and waits for their replies.
pub(crate) async fn run(worker: &Worker, steps: &[TreeStep]) {
    // Ephemeral nodes of the tree stay after the step.
    worker.keep(worker.world.use_path(worker.pid, &path(&[])));
    let client = &worker.client;
    let mut requests: Vec<Request> = Vec::new();
    for step in steps {
        let path = path(&step.path);
        let value = worker.world.next_value(&path, 0);
        match step.op {
            TreeOp::Create | TreeOp::CreateEphemeral => {
                let mode = match step.op {
                    TreeOp::Create => CreateMode::Persistent,
                    _ => CreateMode::Ephemeral,
                };
                let created = client.create(&path, &value, mode);
                requests.push(Box::pin(async { created.await.map(drop) }));
            }
            TreeOp::Set => {
                let set = client.set_data(&path, &value, None);
                requests.push(Box::pin(async { set.await.map(drop) }));
            }
            TreeOp::Delete => {
                let deleted = client.delete(&path, None);
                requests.push(Box::pin(async { deleted.await.map(drop) }));
            }
            TreeOp::Replace => {
                let mut both = client.transaction();
                both.delete(&path, None).create(&path, &value, CreateMode::Persistent);
                let replaced = both.commit();
                requests.push(Box::pin(async { replaced.await.map(drop) }));
            }
        }
    }
    // All requests are queued before the worker waits for the first one.
    for request in &mut requests {
        let mut done = None;
        poll_fn(|cx| {
            if let Poll::Ready(output) = request.as_mut().poll(cx) {
                done = Some(output);
            }
            Poll::Ready(())
        })
        .await;
        if let Some(done) = done {
            *request = Box::pin(std::future::ready(done));
        }
    }
    let mut done = 0;
    for request in requests {
        let changed = request.await;
        worker.explain_end(Some(&changed));
        done += usize::from(changed.is_ok());
    }
    worker.say(format!("changes the tree: {done} of {}", steps.len()));
}
