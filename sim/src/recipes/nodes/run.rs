//! Kept nodes and groups.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use docent::{
    CreateMode, Error, GroupMember, NodeOptions, PersistentNode, PersistentTtlNode, Ttl,
    nodes::NodeEvent,
};
use docent_testing::server::Version;

use super::{
    check::{AllKept, Keeper, Keeping, Kept, data},
    steps::{KeepMode, KeepStep},
};
use crate::{
    recipes::{
        common::{CACHE_SETTLES, CloseKind, poll_once},
        worker::Worker,
    },
    world::time::{Nanos, SECOND},
};

/// A view of a group is judged only if the group has not changed for this time.
const UNCHANGED: u64 = 2 * SECOND;

pub(super) const GROUP: &str = "/group";

/// Does one step.
pub(crate) async fn run(worker: &Worker, step: &KeepStep) {
    let id = format!("keeper-{}", worker.world.next_number());
    let is_sequential =
        matches!(step.mode, KeepMode::PersistentSequential | KeepMode::EphemeralSequential);
    let is_plain = matches!(step.mode, KeepMode::Member);
    let is_renamed = (step.protected || is_sequential) && !is_plain;
    let parent = match (step.mode, step.without_parents) {
        (KeepMode::Member, _) => GROUP,
        (_, true) => "/absent",
        (_, false) if is_renamed => "/renamed",
        (_, false) => "/kept",
    };
    let path = format!("{parent}/{}", step.node);
    worker.say(format!("keeps {path} as {id}"));
    let first = data(&id, 1);
    let made = match node_mode(step.mode) {
        Some(mode) => PersistentNode::start_with(&worker.client, &path, mode, first, options(step))
            .map(Keeper::Node),
        None => match step.mode {
            KeepMode::Touched(ms) => {
                let (ttl, options) = (Duration::from_millis(ms), options(step));
                PersistentTtlNode::start_with(&worker.client, &path, ttl, first, options)
                    .map(Keeper::Ttl)
            }
            _ => {
                worker.world.check::<AllKept>().changed.entry(GROUP.to_owned()).or_default();
                let (member, options) = (step.node.to_string(), step.retry.lock_options());
                GroupMember::join_with(&worker.client, GROUP, &member, first, options)
                    .map(|member| Keeper::Member(Box::new(member)))
            }
        },
    };
    let Some(keeper) = worker.accepted(&path, made) else { return };
    let has_ttl = matches!(step.mode, KeepMode::Ttl(_) | KeepMode::Touched(_));
    let lacks_ttl = has_ttl && worker.world.core().servers.version == Version::V3_4;
    // The names of sequential and protected nodes differ; the parent has only kept nodes below it.
    let used = if is_renamed { parent } else { &path };
    let leaves = matches!(step.mode, KeepMode::Touched(_));
    let judged = (leaves, !step.without_parents && !lacks_ttl);
    let kept = Kept::new(&path, keeper.clone(), is_renamed);
    let keeping = Keeping::begin(&worker.world, worker.of(), (&id, used), judged, kept);
    let mut events = keeper.events();
    let heard = async {
        let mut is_lost = false;
        while let Some(event) = events.next().await {
            worker.say(format!("{id}: {}", name(&event)));
            let is_wrong = match event {
                NodeEvent::Lost => std::mem::replace(&mut is_lost, true),
                NodeEvent::Restored => !std::mem::replace(&mut is_lost, false),
                _ => false,
            };
            if is_wrong {
                worker.violation(&format!("{id}: {} out of turn", name(&event)));
            }
        }
        std::future::pending::<()>().await;
    };
    let view = View { from: worker.world.now(), last: Mutex::new(Ok(Arc::default())) };
    let viewed = async {
        if let Keeper::Member(member) = &keeper {
            follow_view(worker, member, &view).await;
        }
        std::future::pending::<()>().await;
    };
    let used = async {
        let pause = step.for_ms / (u64::from(step.sets) + 1);
        let created = worker.within(pause, keeper.created()).await;
        if let Some(Err(error)) = created {
            worker.fails(format_args!("{id} is not there"), &error);
        }
        for number in 0..step.sets {
            // Every second one comes while the write before it is in flight.
            worker.sleep(if number % 2 == 0 { pause } else { 1 }).await;
            keeper.set_data(keeping.next_data(worker.world.now()));
        }
        worker.sleep(pause).await;
        if let Keeper::Member(member) = &keeper {
            judge_group(worker, member, &view).await;
        }
    };
    tokio::select! {
        biased;
        () = used => {}
        () = heard => {}
        () = viewed => {}
    }
    if step.end == CloseKind::Keep {
        worker.say(format!("{id} stays"));
        return worker.keep((keeper, keeping));
    }
    keeping.close(leaves);
    close(worker, step.end, &id, keeper, &keeping).await;
}

async fn close(worker: &Worker, end: CloseKind, id: &str, keeper: Keeper, keeping: &Keeping) {
    let session = worker.session_id();
    if end == CloseKind::Drop {
        drop(keeper);
        return worker.say(format!("{id} is dropped"));
    }
    let close = || async {
        match &keeper {
            Keeper::Node(node) => node.close().await,
            Keeper::Ttl(node) => node.close().await,
            Keeper::Member(member) => member.leave().await,
        }
    };
    if end == CloseKind::CancelledClose {
        poll_once(close()).await;
        return worker.say(format!("{id} begins to close"));
    }
    let closed =
        if end == CloseKind::CloseTwice { tokio::join!(close(), close()).0 } else { close().await };
    worker.say(format!("{id} is closed: {:?}", closed.as_ref().err().map(docent::Error::kind)));
    let is_same = worker.session_id() == session;
    if closed.is_ok() && worker.client.ended().is_none() && is_same {
        keeping.is_closed(session);
    }
}

/// The view of a member.
struct View {
    from: Nanos,
    /// The members that it has returned last; its first error, if it had one.
    last: Mutex<Result<Arc<BTreeMap<String, Bytes>>, Error>>,
}

/// Follows the view of a member, and checks that it returns only changes.
async fn follow_view(worker: &Worker, member: &GroupMember, view: &View) {
    let mut shown = member.view();
    while let Some(next) = shown.next().await {
        let mut last = view.last.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!((&*last, &next), (Ok(last), Ok(next)) if last == next) {
            worker.violation(&format!("{} is shown the same members again", member.id()));
        }
        if last.is_ok() {
            *last = next;
        }
    }
}

/// Checks that in peace a member sees the members that the servers have.
async fn judge_group(worker: &Worker, member: &GroupMember, view: &View) {
    let members = match worker.within(10_000, member.current_members()).await {
        Some(Ok(members)) => members,
        Some(Err(error)) => return worker.fails("sees no members", &error),
        None => return worker.say("sees no members in time"),
    };
    let now = worker.world.now();
    let peace_at = worker.world.core().disturbances.peace_at;
    let kept = worker.world.check::<AllKept>();
    let changed = kept.changed.get(GROUP).copied().unwrap_or_default();
    let mut servers = kept.children(GROUP);
    drop(kept);
    worker.say(format!("sees the members {:?}", members.keys().collect::<Vec<_>>()));
    if now < changed.max(peace_at) + 10 * SECOND + UNCHANGED || worker.client.ended().is_some() {
        return;
    }
    // A member always sees itself, with the data that it wants.
    servers.insert(member.id().to_owned(), members[member.id()].clone());
    if members != servers {
        worker.violation(&format!("the group is {servers:?}, not {members:?}"));
    }
    let last = view.last.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(shown) = &*last
        && now > view.from.max(peace_at) + CACHE_SETTLES
        && **shown != servers
    {
        worker.violation(&format!("the group is {servers:?}, but shown as {shown:?}"));
    }
}

fn node_mode(mode: KeepMode) -> Option<CreateMode> {
    Some(match mode {
        KeepMode::Persistent => CreateMode::Persistent,
        KeepMode::PersistentSequential => CreateMode::PersistentSequential,
        KeepMode::Ephemeral => CreateMode::Ephemeral,
        KeepMode::EphemeralSequential => CreateMode::EphemeralSequential,
        KeepMode::Container => CreateMode::Container,
        KeepMode::Ttl(ms) => {
            CreateMode::PersistentWithTtl(Ttl::from_duration(Duration::from_millis(ms))?)
        }
        KeepMode::Touched(_) | KeepMode::Member => return None,
    })
}

fn options(step: &KeepStep) -> NodeOptions {
    let mut options = NodeOptions::default().with_lock_options(step.retry.lock_options());
    if step.protected {
        options = options.with_protection();
    }
    if step.adopts {
        options = options.with_adoption();
    }
    if step.without_parents {
        options = options.without_parents();
    }
    options
}

fn name(event: &NodeEvent) -> String {
    match event {
        NodeEvent::Created { path, .. } => format!("{path} is created"),
        NodeEvent::Lost => "lost".to_owned(),
        NodeEvent::Restored => "restored".to_owned(),
        NodeEvent::Conflict { owner } => format!("the node of {owner:#x} is there"),
        NodeEvent::Failed(error) => format!("failed: {error}"),
        _ => "another event".to_owned(),
    }
}
