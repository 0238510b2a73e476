//! Steps with the client of a process.

use super::steps::ClientStep;
use crate::{checks::sessions, recipes::worker::Worker};

/// Does something with the client of the process.
pub(super) async fn run(worker: &Worker, step: &ClientStep) {
    match step {
        ClientStep::UpdateServerList(members) => {
            let members: Vec<_> = members.iter().map(|at| format!("s{at}:2181")).collect();
            let list = members.join(",");
            let updated = worker.client.update_server_list(&list);
            worker.say(format!("updates its servers to {list}: {updated:?}"));
        }
        ClientStep::Close => sessions::close(&worker.world, worker.pid, &worker.client).await,
        ClientStep::Detach => {
            let token = worker.client.detach();
            worker.say(format!("detaches: {}", token.is_some()));
        }
    }
}
