//! Leaderships, as the leaders believe in them: compared with each other and with the servers' data.
//!
//! As with locks, only running processes count: a stopped one does nothing with its leadership.

use std::collections::BTreeMap;

use docent::{Client, LeaderLatch, LeaderSelector, Leadership};
use docent_testing::server::Version;

use super::queues::Queues;
use crate::{
    checks::{
        END_NOTICED_WITHIN, EVENT_SEEN_WITHIN,
        causes::{self, GRANTED_WITHIN},
        excuses::{Believed, Conflicts},
        proof::Proof,
    },
    world::{
        Using, World,
        check::{Check, Findings, Leftovers, View},
        process::Death,
        time::{Nanos, Pid, SECOND},
    },
};

/// The longest time without a leader after the peace or the last change, beyond the session timeout. Pauses of retries are up
/// to 10 s, in the background too.
const LEADER_WITHIN: Nanos = 25 * SECOND;

/// A participant, whichever recipe it uses.
#[derive(Clone)]
pub(super) enum Object {
    Latch(LeaderLatch),
    Selector(LeaderSelector),
}

impl Object {
    fn leadership(&self) -> Option<Leadership> {
        match self {
            Self::Latch(latch) => latch.current_leadership(),
            Self::Selector(selector) => selector.current_leadership(),
        }
    }
}

/// A participation that begins.
pub(super) struct NewParticipant<'a> {
    pub(super) pid: Pid,
    pub(super) worker: usize,
    pub(super) client: &'a Client,
    /// The path of the election, with its namespace.
    pub(super) election: &'a str,
    /// Its id, which no other participant has.
    pub(super) id: &'a str,
    pub(super) object: Object,
    /// Whether a lost connection ends its leadership.
    pub(super) ends_with_connection: bool,
}

/// A participant that has not been closed.
struct Participant {
    pid: Pid,
    worker: usize,
    election: String,
    id: String,
    object: Object,
    ends_with_connection: bool,
    client: Client,
    /// The session of its last leadership, and its node.
    session: i64,
    path: String,
    /// The number of its last leadership.
    epoch: u64,
    /// The number of its last leadership that was seen to be over, and when.
    over: (u64, Nanos),
    /// The proven bound of its last leadership.
    proof: Proof,
    /// The leadership whose end a task waits for, and the start of that wait.
    watching: Option<(u64, Nanos)>,
    /// When the node of its leadership was first missing.
    missing_since: Option<Nanos>,
}

#[derive(Default)]
struct Election {
    /// The greatest token that was granted.
    token: i64,
    /// The start of the time with participants and without a leader, and the same without anything in their way.
    idle_since: Option<Nanos>,
    free_since: Option<Nanos>,
}

/// All elections.
#[derive(Default)]
pub(super) struct Leaders {
    open: BTreeMap<u64, Participant>,
    elections: BTreeMap<String, Election>,
    queues: Queues,
    conflicts: Conflicts,
}

/// A participant, compared with the others until this is dropped.
pub(super) struct Participating {
    world: World,
    number: u64,
    id: String,
    _using: Using,
}

impl Participating {
    /// A task waits for the end of a leadership until the result is dropped.
    pub(super) fn watch(&self, leadership: &Leadership) -> Watching<'_> {
        self.set_watching(Some((leadership.epoch(), self.world.now())));
        Watching(self)
    }

    fn set_watching(&self, watching: Option<(u64, Nanos)>) {
        if let Some(open) = self.world.check::<Leaders>().open.get_mut(&self.number) {
            open.watching = watching;
        }
    }

    /// Its close begins.
    pub(super) fn close(&self) {
        let at = self.world.now();
        let mut leaders = self.world.check::<Leaders>();
        let gone = leaders.open.remove(&self.number);
        // A process that has ended is judged by its session alone.
        if let Some(participant) = &gone {
            leaders.queues.close(&self.id, participant.pid, at);
        }
        drop(leaders);
        drop(gone);
    }

    /// Its close has returned without an error: it has no node in this session.
    pub(super) fn is_closed(&self, session: Option<i64>) {
        self.world.check::<Leaders>().queues.closed.returned(&self.id, session);
    }
}

/// A task that waits for the end of a leadership.
pub(super) struct Watching<'a>(&'a Participating);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.set_watching(None);
    }
}

impl Drop for Participating {
    fn drop(&mut self) {
        self.close();
    }
}

/// Begins a participation.
pub(super) fn take_part(world: &World, new: NewParticipant<'_>) -> Participating {
    let NewParticipant { pid, worker, client, election, id, .. } = new;
    let using = world.use_path(pid, election);
    let number = world.next_number();
    let mut leaders = world.check::<Leaders>();
    leaders.elections.entry(election.to_owned()).or_default();
    leaders.queues.join(election, id, pid);
    let participant = Participant {
        pid,
        worker,
        election: election.to_owned(),
        id: id.to_owned(),
        object: new.object,
        ends_with_connection: new.ends_with_connection,
        client: client.clone(),
        session: 0,
        path: String::new(),
        epoch: 0,
        over: (0, 0),
        proof: Proof::None,
        watching: None,
        missing_since: None,
    };
    leaders.open.insert(number, participant);
    drop(leaders);
    Participating { world: world.clone(), number, id: id.to_owned(), _using: using }
}

impl Check for Leaders {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        if self.elections.is_empty() {
            return;
        }
        self.queues.follow(view, found);
        let mut conflicts = Vec::new();
        let mut led: BTreeMap<&str, Vec<(u64, &Participant, Leadership)>> = BTreeMap::new();
        let mut wanted: BTreeMap<&str, Vec<Pid>> = BTreeMap::new();
        for (number, open) in &mut self.open {
            if !view.is_running(open.pid) {
                // No task could ask, or notice.
                open.over.1 = view.now;
                continue;
            }
            let leadership = open.object.leadership();
            if let Some(election) = self.elections.get_mut(&open.election) {
                check_leadership(view, open, election, leadership.as_ref(), found);
            }
            let open = &*open;
            if let Some(leadership) = &leadership {
                let name = || format!("{}: {}", open.election, open.name());
                let hold = open.believed(view, leadership);
                self.conflicts.judge_bound(view, *number, &hold, name, found);
            }
            if open.client.ended().is_none() {
                wanted.entry(&open.election).or_default().push(open.pid);
            }
            if let Some(leadership) = leadership {
                led.entry(&open.election).or_default().push((*number, open, leadership));
            }
        }
        for (path, election) in &mut self.elections {
            let of_election = led.get(path.as_str()).map_or(&[][..], Vec::as_slice);
            let is_wanted = of_election.is_empty() && wanted.contains_key(path.as_str());
            let since = |since: &mut Option<Nanos>, is_idle: bool| {
                *since = is_idle.then(|| since.unwrap_or(view.now));
            };
            since(&mut election.idle_since, is_wanted && view.is_peace());
            let is_free = |pids: &Vec<Pid>| {
                let core = view.core();
                pids.iter().all(|pid| core.process(*pid).is_running() && core.is_settled(*pid, view.now))
                    && causes::is_queue_of(&core, path, pids.iter().copied())
            };
            let is_free = is_wanted && wanted.get(path.as_str()).is_some_and(is_free);
            since(&mut election.free_since, is_free);
            if election.free_since.is_some_and(|since| view.now > since + GRANTED_WITHIN) {
                found.violation(format!("{path} is free, but no participant leads"));
                election.free_since = Some(view.now + 1_000 * GRANTED_WITHIN);
            }
            for (at, (number, open, leadership)) in of_election.iter().enumerate() {
                for (other_number, other, others) in of_election.iter().skip(at + 1) {
                    let text = format!("{path}: {} and {} lead", open.name(), other.name());
                    let both = vec![(*open, leadership), (*other, others)];
                    conflicts.push(((*number, *other_number), both, 1, text));
                }
                if open.missing_since.is_some() {
                    let text = format!("{path}: {} leads, but its node is gone", open.name());
                    conflicts.push(((*number, *number), vec![(*open, leadership)], 0, text));
                }
            }
        }
        for (key, concerned, limit, text) in conflicts {
            // Asking the one may have ended the other.
            if !concerned.iter().all(|(_, leadership)| leadership.is_held()) {
                continue;
            }
            let holds: Vec<_> = concerned
                .iter()
                .map(|(open, leadership)| open.believed(view, leadership))
                .collect();
            self.conflicts.judge(view, key, (&holds, limit), &text, found);
        }
        let core = view.core();
        let disturbances = &core.disturbances;
        for (path, election) in &mut self.elections {
            if let Some(since) = election.idle_since
                && view.now > since.max(disturbances.until) + disturbances.longest_timeout + LEADER_WITHIN
            {
                found.violation(format!("{path}: no participant leads"));
                election.idle_since = Some(view.now + 1_000 * SECOND);
            }
        }
    }

    fn process_ends(&mut self, pid: Pid, _death: Death) -> Leftovers {
        Box::new(self.open.extract_if(.., |_, open| open.pid == pid).collect::<Vec<_>>())
    }
}

/// One participant, by itself.
fn check_leadership(
    view: &View<'_>,
    open: &mut Participant,
    election: &mut Election,
    leadership: Option<&Leadership>,
    found: &mut Findings,
) {
    let now = view.now;
    let mut wrong = |open: &Participant, text: &str| {
        let text = format!("{}: {} {text}", open.election, open.name());
        found.violation(text);
    };
    let core = view.core();
    let disturbed_until = core.disturbed_until(open.pid);
    let starved_until = core.process(open.pid).starved_until;
    if let Some(leadership) = leadership {
        let stat = core.ensemble().node(leadership.path()).map(|(_, stat)| stat);
        let stat = stat.filter(|stat| stat.ephemeral_owner == leadership.session_id());
        if leadership.epoch() <= open.over.0 {
            wrong(open, "leads again");
        }
        if leadership.epoch() > open.epoch {
            (open.epoch, open.session) = (leadership.epoch(), leadership.session_id());
            leadership.path().clone_into(&mut open.path);
            open.missing_since = None;
            open.proof = Proof::None;
            if let Some(stat) = &stat {
                if stat.czxid < election.token {
                    wrong(open, &format!("has the token {}, < {}", stat.czxid, election.token));
                }
                election.token = stat.czxid.max(election.token);
            }
        }
        if open.proof.is_revived(open.client.now() < leadership.proven_until()) {
            wrong(open, "has a proven bound that had passed");
        }
        if stat.is_some() {
            open.missing_since = None;
        } else {
            open.missing_since.get_or_insert(now);
        }
        let is_connected = open.client.state().get().is_some_and(|state| state.is_connected());
        if open.ends_with_connection && !is_connected {
            wrong(open, "leads without a connection");
            open.ends_with_connection = false;
        }
        if let Some(since) = open.missing_since
            && let Some((epoch, watching)) = open.watching
            && epoch == leadership.epoch()
            && now > since.max(watching).max(disturbed_until) + EVENT_SEEN_WITHIN
        {
            wrong(open, "does not notice that its node is gone");
            open.watching = None;
        }
    } else if open.epoch > open.over.0 {
        open.over = (open.epoch, now);
        open.missing_since = None;
        // A selector gives its leadership up behind its term.
        // A request that the servers do not know costs the connection.
        let costs = open.ends_with_connection && core.servers.version < Version::V3_6;
        let is_wanted = !costs && matches!(open.object, Object::Latch(_))
            || !costs && open.watching.is_some_and(|(epoch, _)| epoch == open.epoch);
        let (of, paths) = ((open.pid, &open.client), [open.path.as_str()]);
        if is_wanted && causes::of_end(&core, now, of, open.session, paths).is_none() {
            wrong(open, "has lost its leadership without a cause");
        }
    }
    if let Some((epoch, since)) = open.watching
        && epoch <= open.over.0
        && now > since.max(open.over.1).max(starved_until) + END_NOTICED_WITHIN
    {
        wrong(open, "does not notice the end");
        open.watching = None;
    }
}

impl Participant {
    fn believed<'a>(&'a self, view: &View<'_>, leadership: &'a Leadership) -> Believed<'a> {
        let session = leadership.session_id();
        let is_open = view.core().ensemble().session_ids().contains(&session);
        Believed {
            pid: self.pid,
            client: &self.client,
            proven_until: leadership.proven_until(),
            session,
            paths: vec![leadership.path()],
            gone_at: self.missing_since,
            ended_at: self.missing_since.filter(|_| !is_open),
            only_excuse: None,
        }
    }

    fn name(&self) -> String {
        format!("p{}.{} ({})", self.pid, self.worker, self.id)
    }
}
