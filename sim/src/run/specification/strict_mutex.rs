//! The steps of `StrictMutex`: a contender of the specification is a lock node.

use docent::EventType;
use docent_spec::{
    Trace,
    strict_mutex::{Action, State, Step, StrictMutex, Write},
};

use super::steps::{Steps, digest, shown};
use crate::{
    plan::Plan,
    recipes::step,
    world::{
        history::{Record, What},
        time::{MILLISECOND, Nanos, Pid},
    },
};

/// The path of the lock in the plans that are compared.
const LOCK: &str = "/strict-0";

/// The lock nodes that a history may have.
const CONTENDERS: usize = 8;

/// A claim in units of time. A real one on the slowest clock of a plan is shorter by one unit at least, and the wait on the
/// fastest is longer by one: 1/200 each. So the units may begin at any time.
const CLAIM: u8 = 200;

pub(super) struct StrictSteps {
    trace: Trace<StrictMutex>,
    /// The duration of a unit.
    unit: Nanos,
    /// The units that have passed.
    units: u64,
    /// The process and the path of each lock node, in the order of their creation.
    contenders: Vec<(Pid, String)>,
    /// The process that has sent the last request.
    sender: Pid,
    /// The contender whose node was deleted, and whose record changes in the same transaction.
    releasing: Option<usize>,
}

impl StrictSteps {
    /// `None`: the claims of the processes differ.
    pub(super) fn new(plan: &Plan<step::Step>, mistake: &'static str) -> Option<Self> {
        let mut timeouts = plan.processes.iter().map(|of| of.client.session_timeout_ms);
        let timeout = timeouts.next().filter(|first| timeouts.all(|other| other == *first))?;
        let model = StrictMutex {
            clients: CONTENDERS,
            acquires: u8::MAX,
            time: u16::MAX,
            claim: CLAIM,
            mistake,
        };
        Some(Self {
            trace: Trace::new(
                model,
                |state, action| matches!(action, Action::WaitedOut(c) if state.clients[*c].step == Step::WaitForClaim(0)),
            ),
            unit: timeout * MILLISECOND / Nanos::from(CLAIM),
            units: 0,
            contenders: Vec::new(),
            sender: 0,
            releasing: None,
        })
    }
}

impl Steps for StrictSteps {
    fn take(&mut self, record: &Record, next: &[Record]) -> bool {
        while self.units < record.at / self.unit {
            self.units += 1;
            if !self.does(Action::TimePasses) {
                return false;
            }
        }
        match &record.what {
            What::Frame { pid, to_server: true, text, .. } => self.request(*pid, text, next),
            What::Frame { pid, .. } => {
                self.may(*pid, Action::Hear);
                true
            }
            What::Applied { path, event, data, .. } => {
                self.applied(path, *event, &String::from_utf8_lossy(data), next)
            }
            // By now its holder has heard that it holds.
            What::HeldUntil { path, until, .. } => {
                let Some(c) = self.contender(path) else { return !path.starts_with(LOCK) };
                let units = until.div_ceil(self.unit) - self.units.min(until / self.unit);
                self.trace.see(|state| {
                    let client = &state.clients[c];
                    client.step == Step::Held && u64::from(client.claim) >= units
                })
            }
            _ => true,
        }
    }

    fn digest(&self) -> u64 {
        digest(&self.trace.states, (&self.contenders, self.units))
    }

    fn shown(&self) -> String {
        shown(&self.trace.states)
    }
}

impl StrictSteps {
    fn request(&mut self, pid: Pid, text: &str, next: &[Record]) -> bool {
        self.sender = pid;
        let rest = text.split_once(' ').map_or("", |(_, rest)| rest);
        match rest.split_once(' ').unwrap_or_default() {
            ("getData", LOCK) => self.may(pid, Action::Read),
            // It finds out that the node is missing.
            ("getData", _) => self.may(pid, Action::NodeGone),
            // A grant or a renewal. The last one may have been lost, or is on its way still.
            ("multi", writes) if writes.starts_with("[check ") => {
                let node = writes.split(' ').nth(1).unwrap_or_default();
                let Some(c) = self.contender(node) else { return true };
                self.may(pid, Action::Lose);
                self.may(pid, Action::Send);
                let mut changes = next.iter().map(|record| &record.what).take_while(is_change);
                if changes.any(is_of_record) {
                    // A grant: the change is its step.
                    return true;
                }
                let is_grant = writes.contains("; setData ");
                let is_refused = |write: &Write| write.is_applied == Some(false);
                return self.does(Action::Apply(c))
                    && self.trace.see(|state| {
                        !is_grant || state.clients[c].write.as_ref().is_some_and(is_refused)
                    });
            }
            _ if text.starts_with("connect ") => self.may(pid, Action::Lose),
            _ => {}
        }
        true
    }

    fn applied(&mut self, path: &str, event: EventType, data: &str, next: &[Record]) -> bool {
        if path == LOCK && event == EventType::NodeDataChanged {
            let holder = data.rsplit_once(" node=").and_then(|(_, node)| self.contender(node));
            let step = match holder {
                Some(c) => Action::Apply(c),
                None => match self.releasing.take() {
                    Some(c) => Action::Release(c),
                    None => return false,
                },
            };
            return self.does(step) && self.trace.see(|state| state.holder == holder.map(node));
        }
        if !path.starts_with(LOCK) || path == LOCK {
            return true;
        }
        if event == EventType::NodeCreated {
            self.contenders.push((self.sender, path.to_owned()));
            let c = self.contenders.len() - 1;
            return c < CONTENDERS && self.does(Action::Acquire(c));
        }
        let Some(c) = self.contender(path) else { return false };
        let is_release = next.first().is_some_and(|next| is_of_record(&next.what));
        if is_release {
            self.releasing = Some(c);
        }
        is_release || self.does(Action::DeleteNode(c))
    }

    /// The contender with this node, by its name or its path.
    fn contender(&self, node: &str) -> Option<usize> {
        self.contenders.iter().position(|(_, path)| path.ends_with(node))
    }

    fn does(&mut self, step: Action) -> bool {
        self.trace.step(|_, action| *action == step, |_: &State| false)
    }

    /// A contender of a process may have done this, or does it now.
    fn may(&mut self, pid: Pid, step: fn(usize) -> Action) {
        let contenders = &self.contenders;
        self.trace.may_begin(|action| {
            contenders.iter().enumerate().any(|(c, (of, _))| *of == pid && *action == step(c))
        });
    }
}

const fn is_change(what: &&What) -> bool {
    matches!(what, What::Applied { .. })
}

fn is_of_record(what: &What) -> bool {
    matches!(what, What::Applied { path, .. } if path == LOCK)
}

/// The node of a contender in the specification: the first one is 1.
fn node(contender: usize) -> u8 {
    u8::try_from(contender + 1).unwrap_or(u8::MAX)
}
