//! Registers: nodes below `/r` that are read, written, created and deleted. The check of calls judges the results.

use std::{collections::BTreeMap, pin::Pin};

use bytes::Bytes;
use docent::{CreateMode, Error, ErrorKind, Node, Stat, TransactionResult};

use super::steps::{ClientStep, RegisterOp, RegisterStep};
use crate::{
    checks::sessions,
    recipes::{
        calls::{CallRequest, CallResult, Write, WriteKind},
        common::poll_once,
        worker::Worker,
    },
    world::time::Nanos,
};

/// The memory of a worker.
#[derive(Default)]
struct Known {
    /// Whether `/r` exists.
    has_parent: bool,
    /// The versions of registers that were seen last.
    versions: BTreeMap<u8, i32>,
}

/// A request that has been queued. It ends once its result is recorded.
type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The path of a register.
pub(crate) fn path(node: u8) -> String {
    format!("/r/{node}")
}

/// Queues several requests, and then awaits each.
pub(crate) async fn burst(worker: &Worker, steps: &[RegisterStep]) {
    make_parent(worker).await;
    let requests: Vec<_> = steps.iter().map(|step| (begin(worker, step), step.cancel_ms)).collect();
    let replies = async {
        for (request, cancel_ms) in requests {
            match cancel_ms {
                None => request.await,
                // Polled once: it may hold its reply already.
                Some(0) => poll_once(request).await,
                Some(ms) => drop(worker.within(ms, request).await),
            }
        }
    };
    // The limit counts from when a request is queued.
    let is_queued = !worker.client_number.waits_when_full;
    let limit = worker.client.config().request_timeout().filter(|_| is_queued);
    worker.limited("a burst of requests", limit, replies).await;
}

async fn make_parent(worker: &Worker) {
    while !worker.memory.with(|known: &mut Known| known.has_parent) {
        match worker.client.create("/r", b"", CreateMode::Persistent).await {
            Err(error) if error.kind() != ErrorKind::NodeExists => {
                if worker.client.ended().is_some() {
                    return;
                }
                worker.sleep(100).await;
            }
            _ => worker.memory.with(|known: &mut Known| known.has_parent = true),
        }
    }
}

/// A node as a reply shows it: `None` if it is missing; without data if they were not read.
type Shown = Option<(Option<Bytes>, Stat)>;

fn with_data(node: Node) -> Shown {
    Some((Some(node.data), node.stat))
}

/// Queues one request.
fn begin(worker: &Worker, step: &RegisterStep) -> Request {
    let path = path(step.node);
    let (client, node, size) = (&worker.client, step.node, step.size);
    let seen = worker.memory.with(|known: &mut Known| known.versions.get(&node).copied());
    let seen = seen.unwrap_or(0);
    match step.op {
        RegisterOp::Read => {
            let read = client.get_data(&path);
            worker.read(node, async { (None, read.await.map(with_data)) })
        }
        RegisterOp::SyncRead => {
            let since = worker.world.now();
            let (sync, read) = (client.sync(&path), client.get_data(&path));
            worker.read(node, async move {
                let since = sync.await.is_ok().then_some(since);
                (since, read.await.map(with_data))
            })
        }
        RegisterOp::Exists => {
            let read = client.exists(&path);
            worker.read(node, async { (None, read.await.map(|stat| Some((None, stat?)))) })
        }
        RegisterOp::Set | RegisterOp::CompareAndSet => {
            let version = (step.op == RegisterOp::CompareAndSet).then_some(seen);
            let write = worker.new_write(node, WriteKind::Set, version, size);
            let set = client.set_data(&path, &write.value, version);
            worker.write(vec![write], async move { Ok(vec![(node, Some(set.await?))]) })
        }
        RegisterOp::Create => {
            let write = worker.new_write(node, WriteKind::Create, None, size);
            let create = client.create_with_stat(&path, &write.value, CreateMode::Persistent);
            worker.write(vec![write], async move { Ok(vec![(node, Some(create.await?.1))]) })
        }
        RegisterOp::Delete | RegisterOp::CompareAndDelete => {
            let version = (step.op == RegisterOp::CompareAndDelete).then_some(seen);
            let write = worker.new_write(node, WriteKind::Delete, version, 0);
            let delete = client.delete(&path, version);
            worker.write(vec![write], async move { delete.await.map(|()| vec![(node, None)]) })
        }
        RegisterOp::Multi(other) => {
            let other = if other == node { other + 1 } else { other };
            let check = worker.new_write(node, WriteKind::Check, Some(seen), 0);
            let set = worker.new_write(node, WriteKind::Set, None, size);
            let set_other = worker.new_write(other, WriteKind::Set, None, 0);
            let mut multi = client.transaction();
            multi.check(&path, Some(seen)).set_data(&path, &set.value, None);
            let commit = multi.set_data(&set_other.path, &set_other.value, None).commit();
            worker.write(vec![check, set, set_other], async move {
                let results = commit.await?;
                let stat = |at: usize| match results.get(at) {
                    Some(TransactionResult::DataSet(stat)) => Some(*stat),
                    _ => None,
                };
                Ok(vec![(node, None), (node, stat(1)), (other, stat(2))])
            })
        }
    }
}

impl Worker {
    fn new_write(&self, node: u8, kind: WriteKind, version: Option<i32>, size: usize) -> Write {
        let path = path(node);
        let value = self.world.next_value(&path, size);
        Write { path, kind, version, value }
    }

    fn saw(&self, node: u8, stat: &Stat) {
        self.memory.with(|known: &mut Known| known.versions.insert(node, stat.version));
    }

    fn reply(&self, call: usize, result: CallResult) {
        self.say(format!("call {call}: {}", brief(&result)));
        self.record_result(call, result);
    }

    /// Records a read that has been queued. `reply` returns, with the result, when a successful `sync` in front of the
    /// read was called.
    fn read<F>(&self, node: u8, reply: F) -> Request
    where
        F: Future<Output = (Option<Nanos>, Result<Shown, Error>)> + Send + 'static,
    {
        let call = self.record_request(CallRequest::Read { path: path(node) });
        let worker = self.clone();
        Box::pin(async move {
            let (synced_since, read) = reply.await;
            let result = match read {
                Ok(read) => {
                    read.iter().for_each(|(_, stat)| worker.saw(node, stat));
                    CallResult::Node { node: read, synced_since }
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    CallResult::Node { node: None, synced_since }
                }
                Err(error) => CallResult::failed(&error),
            };
            worker.reply(call, result);
        })
    }

    /// Records writes that have been queued. `reply` returns the Stat of each, with its register.
    fn write<F>(&self, writes: Vec<Write>, reply: F) -> Request
    where
        F: Future<Output = Result<Vec<(u8, Option<Stat>)>, Error>> + Send + 'static,
    {
        let call = self.record_request(CallRequest::Write(writes));
        let worker = self.clone();
        Box::pin(async move {
            let result = match reply.await {
                Ok(written) => {
                    let stats =
                        written.iter().filter_map(|(node, stat)| Some((*node, stat.as_ref()?)));
                    stats.for_each(|(node, stat)| worker.saw(node, stat));
                    CallResult::Written(written.into_iter().map(|(_, stat)| stat).collect())
                }
                Err(error) => CallResult::failed(&error),
            };
            worker.reply(call, result);
        })
    }
}

fn brief(result: &CallResult) -> String {
    match result {
        CallResult::Node { node: None, .. } => "no node".to_owned(),
        CallResult::Node { node: Some((_, stat)), .. } => {
            format!("mzxid {:#x}, version {}", stat.mzxid, stat.version)
        }
        CallResult::Failed { kind, outcome, .. } => format!("{kind:?}, {outcome:?}"),
        _ => "written".to_owned(),
    }
}

/// Does something with the client of the process.
pub(super) async fn use_client(worker: &Worker, step: &ClientStep) {
    match step {
        ClientStep::UpdateServerList(members) => {
            let members: Vec<_> = members.iter().map(|at| format!("s{at}:2181")).collect();
            let list = members.join(",");
            {
                let mut core = worker.world.core();
                let process = core.process_mut(worker.pid);
                (process.reconnects, process.relies_on_few) = (true, true);
            }
            let updated = worker.client.update_server_list(&list);
            worker.say(format!("updates its servers to {list}: {updated:?}"));
        }
        ClientStep::Close => sessions::close(&worker.world, worker.pid, &worker.client).await,
        ClientStep::Detach => {
            worker.world.core().process_mut(worker.pid).is_closing = true;
            let token = worker.client.detach();
            worker.say(format!("detaches: {}", token.is_some()));
        }
        ClientStep::IsAt(member) => {
            let server = worker.client.metrics().server.map(|host| host.name);
            if server != Some(format!("s{member}")) {
                worker.violation(&format!("is at {server:?}, and not at s{member}"));
            }
        }
    }
}
