//! Runs a script: its plan for the simulator, the run, and its timeline. Equal scripts give equal timelines.

use std::sync::{Mutex, PoisonError};

use docent_sim::{
    Checks,
    faults::{self, Direction, FaultKind, Flow, KillKind, Sides, Trap},
    plan::{ClientPlan, NetworkPlan, Plan, PlanStep, ProcessPlan, ServersPlan},
    recipes::draw,
    run::{self, Outcome, Watch},
    run_plan,
};

use crate::{
    belief::Beliefs,
    builder::{MOST_RECORDS, Stage},
    program::{self, Shared, Storage},
    script::{Fault, Script, Setting, Step, Subject, What},
    timeline::Timeline,
};

/// The most polls and events of a run.
const MOST_STEPS: u64 = 3_000_000;

/// The name of the client that deletes nodes by hand.
const OPERATOR: &str = "you";

/// A step of a client, as part of a plan.
#[derive(Debug, Clone)]
struct LabStep(Step);

impl PlanStep for LabStep {}

/// Runs a script.
///
/// # Errors
///
/// A schedule is none of its scope any more.
pub fn run(script: &Script) -> Result<Timeline, String> {
    // A run plants faults into the whole process, if its plan says so.
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut names, members) = script.stage();
    let outcome = match &script.subject {
        Subject::Clients(setting) => {
            let plan = plan(script, setting);
            names.extend((names.len()..plan.processes.len()).map(|_| OPERATOR.to_owned()));
            run_clients(&plan, setting, &names)
        }
        Subject::Plan => {
            let mut plan = draw::plan(script.seed);
            plan.faults.extend(kinds(&script.faults));
            plan.faults.sort_by_key(|fault| fault.at_ms);
            run::run_watched(&plan, &Watch::with_wire())
        }
        Subject::Schedule(schedule, _) => schedule.run_watched(&Watch::with_wire())?.0,
    };
    drop(one);
    let is_cut_off = outcome.history.records.len() >= MOST_RECORDS;
    Ok(Timeline::new(Stage { names, members, is_cut_off }, script, &outcome))
}

/// The plan of the simulator for a script of its own clients.
fn plan(script: &Script, setting: &Setting) -> Plan<LabStep> {
    let client = ClientPlan { session_timeout_ms: setting.session_ms, ..ClientPlan::default() };
    let process = |starts_at_ms, steps: Vec<Step>| ProcessPlan {
        starts_at_ms,
        drift_ppm: 0,
        client: client.clone(),
        resumes: None,
        workers: vec![steps.into_iter().map(LabStep).collect()],
    };
    let clients = setting.clients.iter().map(|client| process(0, client.steps.clone()));
    // A deletion is the work of another process, which begins with it: what was before stays as it was.
    let by_hand = script.faults.iter().filter_map(|fault| match &fault.what {
        What::Delete { path } => Some(process(fault.at_ms, vec![Step::Delete(path.clone())])),
        _ => None,
    });
    Plan {
        seed: script.seed,
        servers: ServersPlan {
            count: setting.servers,
            tick_ms: 1_000,
            sync_limit: 5,
            container_check_ms: 60_000,
            election_ms: 200,
            min_session_timeout_ms: None,
            max_session_timeout_ms: None,
            local_sessions: false,
            reconfig: false,
            version: None,
        },
        network: NetworkPlan {
            delay_us: setting.delay_ms * 1_000,
            spikes_one_in: 0,
            short_one_in: 0,
        },
        puts_off_one_in: 0,
        peace_at_ms: setting.run_ms,
        processes: clients.chain(by_hand).collect(),
        faults: kinds(&script.faults),
        plant: None,
    }
}

fn run_clients(plan: &Plan<LabStep>, setting: &Setting, names: &[String]) -> Outcome {
    let beliefs = Beliefs::default();
    let storage = setting.storage.map(Storage::shared);
    let shared = Shared { beliefs: beliefs.clone(), storage, leases: setting.leases };
    let names = names.to_vec();
    let checks = (Checks::default().with(beliefs), MOST_STEPS);
    run_plan(plan, &Watch::with_wire(), checks, move |process, plan| {
        let name = names.get(process.number()).cloned().unwrap_or_default();
        let steps = plan.workers.into_iter().flatten().map(|LabStep(step)| step).collect();
        program::main(process, name, steps, shared.clone())
    })
}

/// The faults of the simulator for those of a script.
fn kinds(faults: &[Fault]) -> Vec<faults::Fault> {
    let (mut kinds, mut drops) = (Vec::new(), Vec::new());
    for Fault { at_ms, what } in faults {
        let link = |process, direction: Option<bool>, flow, for_ms| {
            let direction = direction.map(way);
            FaultKind::Link { process, member: None, direction, flow, for_ms }
        };
        let kind = match *what {
            What::Drop { client, to_client, delivery } => {
                drops.push((client, to_client, delivery));
                continue;
            }
            // The process of the operator does it.
            What::Delete { .. } => continue,
            What::Delay { client, to_client, for_ms } => {
                link(client, Some(to_client), Flow::Stall, for_ms)
            }
            What::Lose { client, to_client, for_ms } => link(client, to_client, Flow::Lose, for_ms),
            What::Cut { client } => FaultKind::Cut { process: client, sides: Sides::Both },
            What::Stop { client, for_ms } => FaultKind::Stop { process: client, for_ms },
            What::Kill { client } => FaultKind::Kill { process: client, how: KillKind::Killed },
            What::Expire { client } => FaultKind::Expire { process: client },
            What::Skew { client, percent } => {
                FaultKind::Clock { process: client, drift_ppm: i64::from(percent) * 10_000 }
            }
            What::Isolate { member, for_ms } => FaultKind::Isolate { member: Some(member), for_ms },
            What::StopMember { member, for_ms } => {
                FaultKind::StopMember { member: Some(member), for_ms }
            }
            What::Lag { member, for_ms } => FaultKind::Lag { member, for_ms },
        };
        kinds.push(faults::Fault { at_ms: *at_ms, kind });
    }
    // A trap counts the deliveries since the one before it.
    drops.sort_unstable();
    drops.dedup();
    for (at, (process, to_client, delivery)) in drops.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| drops.get(before));
        let before = before.filter(|of| (of.0, of.1) == (*process, *to_client));
        let after = delivery - before.map_or(0, |(_, _, delivery)| delivery + 1);
        let trap = Trap { direction: way(*to_client), after, keep_bytes: 0, sides: Sides::Both };
        let kind = FaultKind::Trap { process: *process, trap };
        kinds.insert(at, faults::Fault { at_ms: 0, kind });
    }
    kinds
}

const fn way(to_client: bool) -> Direction {
    if to_client { Direction::ToClient } else { Direction::ToServer }
}
