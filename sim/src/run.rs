//! Runs a plan in a world of its own, and judges what came of it.

use std::{
    any::Any,
    cell::RefCell,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use docent::session::planted;
use docent_testing::server::Config;
use tokio::runtime::{Builder, RngSeed};

use crate::{
    history::{History, What},
    plan::Plan,
    plants,
    servers::Servers,
    world::{End, MILLISECOND, Nanos, SECOND, World},
};

/// What came of a plan.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Outcome {
    /// What happened.
    pub history: History,
    /// The number of faults in the plan.
    pub faults: usize,
    /// The virtual time that passed.
    pub virtual_time: Duration,
}

impl Outcome {
    /// Whether no rule was broken.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.history.violations().next().is_none()
    }
}

/// The longest time from the peace to the end of all work, besides the holds of locks, which may follow each other.
const PROGRESS_LIMIT: Nanos = 600 * SECOND;

/// The user `super`, with the password `test`.
const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

const LIVELOCK: &str = "livelock: tasks are polled without progress";

/// Looks at a run from another thread.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    world: Arc<Mutex<Option<World>>>,
    shows_frames: bool,
}

impl Watch {
    /// Looks at a run whose history has requests, replies and events too.
    #[must_use]
    pub fn with_frames() -> Self {
        Self { shows_frames: true, ..Self::default() }
    }

    fn set(&self, world: Option<World>) {
        let mut place = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, world);
        drop(place);
        drop(old);
    }

    /// What has happened so far; `None` before and after the run, or if the world is busy.
    #[must_use]
    pub fn history(&self) -> Option<History> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.try_history()
    }
}

thread_local! {
    /// Where the last panic of this thread was.
    static PANIC_PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of worlds off standard error: they are violations, with their place.
pub fn catch_panics() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_RUNNING.get() {
            return default(info);
        }
        let place = info.location().map(|at| {
            // The end of the path: the rest differs between machines.
            let path: Vec<_> = at.file().rsplit(['/', '\\']).take(4).collect();
            let path: Vec<_> = path.into_iter().rev().collect();
            format!("{}:{}", path.join("/"), at.line())
        });
        PANIC_PLACE.set(place);
    }));
}

thread_local! {
    static IS_RUNNING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The message of a panic, and its place if [`catch_panics`] was called.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("without a message").replace('\n', " ");
    match PANIC_PLACE.take() {
        Some(place) => format!("panic: {text} at {place}"),
        None => format!("panic: {text}"),
    }
}

/// Runs a plan.
///
/// # Panics
///
/// If no runtime of tokio can be made, which lends the world nothing but its random numbers, or if the plan names a version
/// that the embedded server does not imitate.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    run_watched(plan, &Watch::default())
}

/// Runs a plan, which another thread can watch.
///
/// # Panics
///
/// If no runtime of tokio can be made, which lends the world nothing but its random numbers, or if the plan names a version
/// that the embedded server does not imitate.
#[must_use]
pub fn run_watched(plan: &Plan, watch: &Watch) -> Outcome {
    // A watch channel of tokio wakes its receivers in an order drawn by the runtime.
    let runtime = Builder::new_current_thread()
        .rng_seed(RngSeed::from_bytes(&plan.seed.to_le_bytes()))
        .build()
        .expect("a runtime without drivers");
    IS_RUNNING.set(true);
    plants::plant_by_name(plan.plant.as_deref());
    let outcome = runtime.block_on(async { run_in_context(plan, watch) });
    plants::plant_by_name(None);
    IS_RUNNING.set(false);
    outcome
}

fn run_in_context(plan: &Plan, watch: &Watch) -> Outcome {
    let servers = Servers::new(Config {
        version: plan.servers.version().expect("a version that is imitated"),
        servers: plan.servers.count,
        tick_time: Duration::from_millis(plan.servers.tick_ms),
        sync_limit: plan.servers.sync_limit,
        container_check_interval: Duration::from_millis(plan.servers.container_check_ms),
        election_time: Duration::from_millis(plan.servers.election_ms),
        min_session_timeout: plan.servers.min_session_timeout_ms.map(Duration::from_millis),
        reconfig_enabled: plan.servers.reconfig,
        super_digest: plan.servers.reconfig.then(|| SUPER_DIGEST.to_owned()),
        seed: plan.seed,
        ..Config::default()
    });
    let world = World::new(plan.seed, servers);
    watch.set(Some(world.clone()));
    {
        let mut core = world.core();
        for member in (0..plan.servers.count).filter(|_| plan.servers.reconfig) {
            let name = format!("s{member}");
            core.servers.ensemble.set_client_address(member, &name, 2181);
        }
        core.shows_frames = watch.shows_frames;
        core.network.delay = plan.network.delay_us * 1_000;
        core.network.spikes_one_in = plan.network.spikes_one_in;
        core.network.short_one_in = plan.network.short_one_in;
        core.puts_off_one_in = plan.puts_off_one_in;
        let timeouts = plan.processes.iter().map(|process| process.client.session_timeout_ms);
        let sync_limit = plan.servers.tick_ms * u64::from(plan.servers.sync_limit + 2);
        core.peace_at = plan.peace_at_ms * MILLISECOND;
        core.cut_limit_ms = sync_limit;
        core.longest_timeout = timeouts.max().unwrap_or(0) * MILLISECOND;
        core.sync_limit_ms = plan.servers.tick_ms * u64::from(plan.servers.sync_limit + 2);
    }
    let least_timeout_ms = plan.servers.min_session_timeout_ms.unwrap_or(u64::MAX);
    if plan.servers.count > 1 && least_timeout_ms < plan.servers.tick_ms {
        // A session that its member renews may end at any time.
        world.beliefs().excused_until = Nanos::MAX;
    }
    world.plan_processes(plan.seed, &plan.processes);
    if planted::is("commit-without-majority") {
        world.core().servers.ensemble.commit_alone();
    }
    world.plan_faults(&plants::faults(plan), plan.peace_at_ms);
    // A panic outside of a task, in a server for example.
    catch(&world, || judge(&world, plan));
    let virtual_time = world.elapsed();
    // Destructors run here.
    catch(&world, || world.end());
    watch.set(None);
    let history = std::mem::take(&mut world.core().history);
    Outcome { history, faults: plan.faults.len(), virtual_time }
}

fn catch(world: &World, run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        world.record(What::Violation(panic_text(&*panic)));
    }
}

fn judge(world: &World, plan: &Plan) {
    let violation = |text: String| world.record(What::Violation(text));
    let is_over = |world: &World| {
        let core = world.core();
        let peace = world.now() >= plan.peace_at_ms * MILLISECOND;
        peace
            && core.processes.iter().all(|process| {
                process.is_finished || process.state == crate::process::ProcessState::Dead
            })
    };
    let limit = PROGRESS_LIMIT + plan.hold_ms() * MILLISECOND;
    let end = world.run_until(plan.peace_at_ms * MILLISECOND + limit, is_over);
    match end {
        End::Reached if is_over(world) => {}
        End::Reached => {
            let core = world.core();
            let waiting = core.processes.iter().enumerate().filter(|(_, process)| {
                !process.is_finished && process.state != crate::process::ProcessState::Dead
            });
            let waiting: Vec<_> = waiting.map(|(pid, _)| format!("p{pid}")).collect();
            drop(core);
            return violation(format!("no progress after the peace: {}", waiting.join(", ")));
        }
        End::Livelock => return violation(LIVELOCK.to_owned()),
        End::Panic(text) => return violation(text),
    }
    // Sessions of dead processes expire, containers are removed.
    let timeouts = plan.processes.iter().map(|process| process.client.session_timeout_ms);
    let settle = timeouts.max().unwrap_or(0) + 4 * plan.servers.tick_ms + 1_000;
    match world.run_until(world.now() + settle * MILLISECOND, |_| false) {
        End::Reached => {}
        End::Livelock => return violation(format!("{LIVELOCK} after the end of all work")),
        End::Panic(text) => return violation(format!("{text}, after the end of all work")),
    }
    let is_quick = plan.servers.container_check_ms <= 1_000;
    // Each round removes the empty containers of one level.
    let rounds = if is_quick { 5 * plan.servers.container_check_ms } else { 0 };
    if world.run_until(world.now() + rounds * MILLISECOND, |_| false) != End::Reached {
        return violation("livelock or panic while containers are removed".to_owned());
    }
    let core = world.core();
    let ensemble = &core.servers.ensemble;
    let sessions = ensemble.session_ids();
    let mut left: Vec<_> =
        sessions.iter().map(|session| format!("session {session:#x} is left")).collect();
    let mut paths = ensemble.child_paths("/");
    while let Some(path) = paths.pop() {
        let Some((_, stat)) = ensemble.node(&path) else { continue };
        // The owner of a container is the smallest number. One that never had a child stays, as in a real server.
        let is_empty = stat.num_children == 0 && stat.cversion > 0;
        let is_empty_container = stat.ephemeral_owner == i64::MIN && is_empty && is_quick;
        // So are the owners of nodes with a time to live, by their first byte.
        let has_session = (stat.ephemeral_owner as u64) >> 56 != 0xff;
        let is_ephemeral = has_session && ![0, i64::MIN].contains(&stat.ephemeral_owner);
        if is_ephemeral || is_empty_container {
            left.push(format!("{path} is left"));
        }
        paths.extend(ensemble.child_paths(&path));
    }
    if let Some(path) = core.servers.ensemble.diverging_path() {
        left.push(format!("the members differ at {path}"));
    }
    drop(core);
    let dead: Vec<_> = world.processes_with_tasks();
    left.extend(dead.into_iter().map(|pid| format!("p{pid} has a task left after its clients")));
    left.into_iter().for_each(violation);
    world.check_calls();
    world.check_atomics();
}
