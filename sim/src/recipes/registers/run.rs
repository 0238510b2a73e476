//! Registers: nodes below `/r` that are read, written, created and deleted. `check.rs` judges the results.

use std::{collections::BTreeMap, pin::Pin};

use docent::{CreateMode, Error, ErrorKind, Stat};

use super::{
    check::{Asked, Calls, Got, Write, WriteKind},
    steps::{RegisterOp, RegisterStep},
};
use crate::recipes::{common::poll_once, worker::Worker};

/// The memory of a worker.
#[derive(Default)]
struct Known {
    /// Whether `/r` exists.
    has_parent: bool,
    /// The versions of registers that were seen last.
    versions: BTreeMap<u8, i32>,
}

/// A request that has been queued, and then its result.
type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The path of a register.
pub(crate) fn path(node: u8) -> String {
    format!("/r/{node}")
}

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: &RegisterStep) {
    burst(worker, std::slice::from_ref(step)).await;
}

/// Queues several requests, and then awaits each.
pub(crate) async fn burst(worker: &Worker, steps: &[RegisterStep]) {
    make_parent(worker).await;
    let requests: Vec<_> = steps.iter().map(|step| (begin(worker, step), step.cancel_ms)).collect();
    for (request, cancel_ms) in requests {
        match cancel_ms {
            None => request.await,
            // Polled once: it may hold its reply already.
            Some(0) => poll_once(request).await,
            Some(ms) => drop(worker.within(ms, request).await),
        }
    }
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

/// Queues one request. Its call is recorded first, so that calls have the order of the queue.
fn begin(worker: &Worker, step: &RegisterStep) -> Request {
    let path = path(step.node);
    let (client, node) = (&worker.client, step.node);
    let seen = worker.memory.with(|known: &mut Known| known.versions.get(&node).copied());
    let seen = seen.unwrap_or(0);
    match step.op {
        RegisterOp::Read => {
            let call = worker.ask(Asked::Read { path: path.clone() });
            let read = client.get_data(&path);
            let worker = worker.clone();
            Box::pin(async move {
                let read = read.await.map(|node| Some((Some(node.data), node.stat)));
                worker.read(node, call, read, None);
            })
        }
        RegisterOp::SyncRead => {
            let since = worker.world.now();
            let sync = client.sync(&path);
            let call = worker.ask(Asked::Read { path: path.clone() });
            let read = client.get_data(&path);
            let worker = worker.clone();
            Box::pin(async move {
                let since = sync.await.is_ok().then_some(since);
                let read = read.await.map(|node| Some((Some(node.data), node.stat)));
                worker.read(node, call, read, since);
            })
        }
        RegisterOp::Exists => {
            let call = worker.ask(Asked::Read { path: path.clone() });
            let read = client.exists(&path);
            let worker = worker.clone();
            Box::pin(async move {
                let read = read.await.map(|stat| stat.map(|stat| (None, stat)));
                worker.read(node, call, read, None);
            })
        }
        RegisterOp::Set | RegisterOp::CompareAndSet => {
            let version = (step.op == RegisterOp::CompareAndSet).then_some(seen);
            let write = worker.write(&path, WriteKind::Set, version, step.size);
            let value = write.value.clone();
            let call = worker.ask(Asked::Write(vec![write]));
            let set = client.set_data(&path, &value, version);
            let worker = worker.clone();
            Box::pin(async move {
                let set = set.await.map(|stat| vec![(node, Some(stat))]);
                worker.written(call, set);
            })
        }
        RegisterOp::Create => {
            let write = worker.write(&path, WriteKind::Create, None, step.size);
            let value = write.value.clone();
            let call = worker.ask(Asked::Write(vec![write]));
            let create = client.create_with_stat(&path, &value, CreateMode::Persistent);
            let worker = worker.clone();
            Box::pin(async move {
                let create = create.await.map(|(_, stat)| vec![(node, Some(stat))]);
                worker.written(call, create);
            })
        }
        RegisterOp::Delete | RegisterOp::CompareAndDelete => {
            let version = (step.op == RegisterOp::CompareAndDelete).then_some(seen);
            let write = worker.write(&path, WriteKind::Delete, version, 0);
            let call = worker.ask(Asked::Write(vec![write]));
            let delete = client.delete(&path, version);
            let worker = worker.clone();
            Box::pin(async move {
                let delete = delete.await.map(|()| vec![(node, None)]);
                worker.written(call, delete);
            })
        }
        RegisterOp::Multi(other) => {
            let other = if other == node { other + 1 } else { other };
            let other_path = self::path(other);
            let check = worker.write(&path, WriteKind::Check, Some(seen), 0);
            let set = worker.write(&path, WriteKind::Set, None, step.size);
            let set_other = worker.write(&other_path, WriteKind::Set, None, 0);
            let (value, other_value) = (set.value.clone(), set_other.value.clone());
            let call = worker.ask(Asked::Write(vec![check, set, set_other]));
            let commit = client
                .transaction()
                .check(&path, Some(seen))
                .set_data(&path, &value, None)
                .set_data(&other_path, &other_value, None)
                .commit();
            let worker = worker.clone();
            Box::pin(async move {
                let commit = commit.await.map(|results| {
                    let stat = |at: usize| match results.get(at) {
                        Some(docent::TransactionResult::DataSet(stat)) => Some(*stat),
                        _ => None,
                    };
                    vec![(node, None), (node, stat(1)), (other, stat(2))]
                });
                worker.written(call, commit);
            })
        }
    }
}

impl Worker {
    fn write(&self, path: &str, kind: WriteKind, version: Option<i32>, size: usize) -> Write {
        let value = self.world.next_value(path, size);
        Write { path: path.to_owned(), kind, version, value }
    }

    fn saw(&self, node: u8, stat: &Stat) {
        self.memory.with(|known: &mut Known| known.versions.insert(node, stat.version));
    }

    /// Records a call that is made now.
    fn ask(&self, asked: Asked) -> usize {
        let (session, now) = (self.session_id(), self.world.now());
        self.world.check::<Calls>().begin(self.name(), self.client_number, session, now, asked)
    }

    fn answer(&self, call: usize, got: Got) {
        let (session, now) = (self.session_id(), self.world.now());
        self.say(format!("call {call}: {}", brief(&got)));
        self.world.check::<Calls>().end(call, now, session, got);
    }

    fn read(
        &self,
        node: u8,
        call: usize,
        read: Result<Option<(Option<bytes::Bytes>, Stat)>, Error>,
        synced_since: Option<u64>,
    ) {
        let got = match read {
            Ok(read) => {
                if let Some((_, stat)) = &read {
                    self.saw(node, stat);
                }
                Got::Node { node: read, synced_since }
            }
            Err(error) if error.kind() == ErrorKind::NoNode => {
                Got::Node { node: None, synced_since }
            }
            Err(error) => Got::failed(&error),
        };
        self.answer(call, got);
    }

    fn written(&self, call: usize, written: Result<Vec<(u8, Option<Stat>)>, Error>) {
        let got = match written {
            Ok(written) => {
                for (node, stat) in &written {
                    if let Some(stat) = stat {
                        self.saw(*node, stat);
                    }
                }
                Got::Written(written.into_iter().map(|(_, stat)| stat).collect())
            }
            Err(error) => Got::failed(&error),
        };
        self.answer(call, got);
    }
}

fn brief(got: &Got) -> String {
    match got {
        Got::Node { node: None, .. } => "no node".to_owned(),
        Got::Node { node: Some((_, stat)), .. } => {
            format!("mzxid {:#x}, version {}", stat.mzxid, stat.version)
        }
        Got::Written(_) => "written".to_owned(),
        Got::Failed { kind, outcome, .. } => format!("{kind:?}, {outcome:?}"),
    }
}
