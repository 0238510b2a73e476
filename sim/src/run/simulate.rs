//! Runs a program in a new world, and judges the run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use docent_session::planted;
use docent_testing::server::Config;
use tokio::runtime::{Builder, RngSeed};

use crate::{
    checks::{guarded::GuardedWrites, leftovers::Leftovers, requests::Attempts},
    faults::planted::plant_by_name,
    plan::{Plan, PlanStep, ProcessPlan},
    world::{
        End, PossibleFault, World,
        check::Checks,
        director::Director,
        disturbances::Apart,
        history::{History, What},
        panics,
        process::{Process, ProcessState},
        servers::Servers,
        time::{MILLISECOND, Nanos, Pid, SECOND},
    },
};

/// The main task of a process.
pub(super) type Main = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes the main task of a process of a plan.
pub(super) type MainOf<S> = Arc<dyn Fn(World, Pid, ProcessPlan<S>) -> Main + Send + Sync>;

/// The program of all processes of a plan, and the checks of the run.
pub(super) struct Program<S> {
    pub(super) main: MainOf<S>,
    pub(super) checks: Checks,
    /// Takes the choices that the seed draws otherwise.
    pub(super) director: Option<Box<Director>>,
    /// Those that the director may choose.
    pub(super) faults: Vec<PossibleFault>,
    pub(super) until: Until,
}

impl<S> Program<S> {
    pub(super) fn new(main: MainOf<S>, checks: Checks, until: Until) -> Self {
        Self { main, checks, director: None, faults: Vec::new(), until }
    }
}

/// How a run ends.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// When all work is done and everything has settled. Then it is judged.
    Settled,
    /// When all work is done or the peace begins, and after this number of polls and events at the latest.
    Peace { steps: u64 },
}

/// The result of a run.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Outcome {
    /// Everything that happened.
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
    shows_wire: bool,
}

impl Watch {
    /// Looks at a run whose history has the bytes of all connections, the changes of the servers, and beliefs in locks.
    #[must_use]
    pub fn with_wire() -> Self {
        Self { shows_wire: true, ..Self::default() }
    }

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

    /// The history so far; `None` before and after the run, or if the world is busy.
    #[must_use]
    pub fn history(&self) -> Option<History> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.try_history()
    }
}

/// Runs a program with a plan. Another thread can watch the run. Returns the director with the choices that it has taken.
///
/// # Panics
///
/// If no tokio runtime can be made (the world uses only its random numbers), or if the plan names a version that the
/// embedded server does not imitate.
pub(super) fn simulate<S>(
    plan: &Plan<S>,
    watch: &Watch,
    program: Program<S>,
) -> (Outcome, Option<Box<Director>>)
where
    S: PlanStep + Clone + Send + 'static,
{
    // A watch channel of tokio wakes its receivers in an order that the runtime draws.
    let runtime = Builder::new_current_thread()
        .rng_seed(RngSeed::from_bytes(&plan.seed.to_le_bytes()))
        .build()
        .expect("a runtime without drivers");
    panics::set_running(true);
    plant_by_name(plan.plant.as_deref());
    let outcome = runtime.block_on(async { run_in_context(plan, watch, program) });
    plant_by_name(None);
    panics::set_running(false);
    outcome
}

fn run_in_context<S>(
    plan: &Plan<S>,
    watch: &Watch,
    program: Program<S>,
) -> (Outcome, Option<Box<Director>>)
where
    S: PlanStep + Clone + Send + 'static,
{
    let leftovers = Leftovers { removes_containers: removes_containers(plan) };
    let checks = match program.until {
        Until::Settled => {
            program.checks.with(GuardedWrites::default()).with(Attempts).with(leftovers)
        }
        Until::Peace { .. } => program.checks,
    };
    let servers = Servers::new(Config {
        version: plan.servers.version().expect("a version that is imitated"),
        servers: plan.servers.count,
        tick_time: Duration::from_millis(plan.servers.tick_ms),
        sync_limit: plan.servers.sync_limit,
        container_check_interval: Duration::from_millis(plan.servers.container_check_ms),
        election_time: Duration::from_millis(plan.servers.election_ms),
        min_session_timeout: plan.servers.min_session_timeout_ms.map(Duration::from_millis),
        max_session_timeout: Duration::from_millis(
            plan.servers.max_session_timeout_ms.unwrap_or(60_000),
        ),
        local_sessions_enabled: plan.servers.local_sessions,
        local_sessions_upgrading_enabled: plan.servers.local_sessions,
        reconfig_enabled: plan.servers.reconfig,
        super_digest: plan.servers.reconfig.then(|| SUPER_DIGEST.to_owned()),
        enforce_quota: true,
        seed: plan.seed,
        ..Config::default()
    });
    let world = World::new(plan.seed, servers, checks, program.faults);
    watch.set(Some(world.clone()));
    {
        let mut core = world.core();
        for member in (0..plan.servers.count).filter(|_| plan.servers.reconfig) {
            let name = format!("s{member}");
            core.servers.ensemble.set_client_address(member, &name, 2181);
        }
        core.shows_frames = watch.shows_frames;
        core.shows_wire = watch.shows_wire;
        core.director = program.director;
        core.network.delay = plan.network.delay_us * 1_000;
        core.network.spikes_one_in = plan.network.spikes_one_in;
        core.network.short_one_in = plan.network.short_one_in;
        core.puts_off_one_in = plan.puts_off_one_in;
        let disturbances = &mut core.disturbances;
        disturbances.peace_at = plan.peace_at_ms * MILLISECOND;
        disturbances.longest_timeout = plan.longest_timeout_ms() * MILLISECOND;
        disturbances.tick = plan.servers.tick_ms * MILLISECOND;
        disturbances.sync_limit_ms = plan.servers.tick_ms * u64::from(plan.servers.sync_limit + 2);
        let least_timeout_ms = plan.servers.min_session_timeout_ms.unwrap_or(u64::MAX);
        if plan.servers.count > 1 && least_timeout_ms < plan.servers.tick_ms {
            // The leader may end a session at any time, although its member renews it.
            disturbances.apart.push(Apart { member: None, from: 0, until: Nanos::MAX });
        }
    }
    start_processes(&world, plan, program.main);
    if planted::is("commit-without-majority") {
        world.core().servers.ensemble.commit_alone();
    }
    world.plan_faults(&plan.happening_faults(), plan.peace_at_ms);
    // Catches panics outside of tasks, in a server for example.
    catch(&world, || match program.until {
        Until::Settled => judge(&world, plan),
        Until::Peace { steps } => show(&world, plan.peace_at_ms * MILLISECOND, steps),
    });
    let virtual_time = world.elapsed();
    // Destructors run here.
    catch(&world, || world.end());
    watch.set(None);
    let mut core = world.core();
    let history = std::mem::take(&mut core.history);
    (Outcome { history, faults: plan.faults.len(), virtual_time }, core.director.take())
}

/// Starts each process of a plan at its time.
fn start_processes<S>(world: &World, plan: &Plan<S>, main: MainOf<S>)
where
    S: Clone + Send + 'static,
{
    for (pid, process) in plan.processes.iter().enumerate() {
        let seed = plan.seed ^ (pid as u64 + 1).rotate_left(48);
        assert_eq!(world.start_process(process.drift_ppm, seed), pid);
        let (process, main) = (process.clone(), Arc::clone(&main));
        world.at(process.starts_at_ms * MILLISECOND, move |world| {
            if !world.is_dead(pid) {
                // Everything that a process does happens in its tasks, even its first poll.
                world.spawn(pid, main(world.clone(), pid, process));
            }
        });
    }
}

/// Whether the servers remove empty containers before the end of the run.
fn removes_containers<S>(plan: &Plan<S>) -> bool {
    plan.servers.container_check_ms <= 1_000
}

fn is_done(process: &Process) -> bool {
    process.is_finished || process.state == ProcessState::Dead
}

fn catch(world: &World, run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        world.record(What::Violation(panics::text(&*panic)));
    }
}

/// How long a run that is only shown goes on after the end of all work.
const LAST_MESSAGES: Nanos = SECOND;

fn show(world: &World, peace_at: Nanos, steps: u64) {
    world.core().most_steps = steps;
    let before_peace = peace_at.saturating_sub(1);
    let mut end = world.run_until(before_peace, |world| world.core().processes.iter().all(is_done));
    if end == End::Reached {
        end = world.run_until(before_peace.min(world.now() + LAST_MESSAGES), |_| false);
    }
    match end {
        End::Reached | End::Known => {}
        End::Livelock => world.record(What::Violation(LIVELOCK.to_owned())),
        End::Panic(text) => world.record(What::Violation(text)),
    }
}

fn judge<S: PlanStep>(world: &World, plan: &Plan<S>) {
    let peace_at = plan.peace_at_ms * MILLISECOND;
    let is_over =
        |world: &World| world.now() >= peace_at && world.core().processes.iter().all(is_done);
    // Time in which the sessions of dead processes expire, and in which each round of the servers removes the empty
    // containers of one level.
    let settle_ms = plan.longest_timeout_ms() + 4 * plan.servers.tick_ms + 1_000;
    let rounds_ms = if removes_containers(plan) { 5 * plan.servers.container_check_ms } else { 0 };
    let limit = PROGRESS_LIMIT + plan.holds_ms() * MILLISECOND;
    let mut end = world.run_until(peace_at + limit, is_over);
    let mut when = "";
    if end == End::Reached && is_over(world) {
        when = ", after the end of all work";
        let until = world.now() + (settle_ms + rounds_ms) * MILLISECOND;
        end = world.run_until(until, |_| false);
    }
    let text = match end {
        End::Reached if !when.is_empty() => return world.finish(),
        End::Reached => {
            let core = world.core();
            let all = core.processes.iter().enumerate();
            let waiting = all.filter(|(_, process)| !is_done(process));
            let waiting: Vec<_> = waiting.map(|(pid, _)| format!("p{pid}")).collect();
            format!("no progress after the peace: {}", waiting.join(", "))
        }
        End::Livelock => LIVELOCK.to_owned(),
        End::Panic(text) => text,
        End::Known => return,
    };
    world.record(What::Violation(text + when));
}
