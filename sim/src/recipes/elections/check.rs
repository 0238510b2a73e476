//! Leaderships, as the leaders believe in them: compared with each other and with the servers' data.
//!
//! As with locks, only running processes count: a stopped one does nothing with its leadership.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use docent::{ErrorKind, LeaderLatch, LeaderSelector, Leadership};

use super::queues::Queues;
use crate::{
    checks::{
        END_NOTICED_WITHIN, EVENT_SEEN_WITHIN,
        causes::{self, GRANTED_WITHIN, RestsOn},
        excuses::{Believed, Conflicts},
        owners::{NodeOwners, Open, OwnerCheck, TrackedObject},
        proof::Proof,
    },
    recipes::worker::Worker,
    world::{
        World,
        check::{Check, Findings, Leftovers, View},
        process::Death,
        time::{Nanos, Pid},
    },
};

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

    /// Whether it takes part no longer, because a fault has let the servers refuse its node.
    fn is_denied(&self) -> bool {
        let Self::Latch(latch) = self else { return false };
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Err(error)) = pin!(latch.leadership()).poll(&mut context) else {
            return false;
        };
        matches!(error.kind(), ErrorKind::NoAuth | ErrorKind::QuotaExceeded)
    }
}

/// A participant.
pub(super) struct Participant {
    number: u64,
    /// The path of the election, with its namespace.
    election: String,
    object: Object,
    /// Whether a lost connection ends its leadership.
    ends_with_connection: bool,
    /// The session of its last leadership, and the path of its node.
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
    /// Since when there have been participants, no leader, and nothing in the participants' way.
    free_since: Option<Nanos>,
}

/// All elections.
#[derive(Default)]
pub(super) struct Leaders {
    owners: NodeOwners<Participant>,
    elections: BTreeMap<String, Election>,
    queues: Queues,
    conflicts: Conflicts,
}

/// A participant, compared with the others until this is dropped.
pub(super) type Participating = TrackedObject<Leaders>;

impl Participating {
    /// A task waits for the end of a leadership until the result is dropped.
    pub(super) fn watch(&self, world: &World, leadership: &Leadership) -> Watching<'_> {
        let watching = Some((leadership.epoch(), world.now()));
        self.with(|open| open.of.watching = watching);
        Watching(self)
    }
}

/// A task that waits for the end of a leadership.
pub(super) struct Watching<'a>(&'a Participating);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.with(|open| open.of.watching = None);
    }
}

/// Begins a participation in the election with this path, which includes its namespace.
pub(super) fn take_part(
    worker: &Worker,
    (election, id): (&str, &str),
    object: Object,
    ends_with_connection: bool,
) -> Participating {
    let world = &worker.world;
    let participant = Participant {
        number: world.next_number(),
        election: election.to_owned(),
        object,
        ends_with_connection,
        session: 0,
        path: String::new(),
        epoch: 0,
        over: (0, 0),
        proof: Proof::None,
        watching: None,
        missing_since: None,
    };
    let mut leaders = world.check::<Leaders>();
    leaders.elections.entry(election.to_owned()).or_default();
    leaders.queues.join(election, id, worker.pid);
    drop(leaders);
    // The check of the queues judges its nodes.
    let judged = (false, false);
    Participating::begin(world, worker.of(), (id, election), judged, participant)
}

impl OwnerCheck for Leaders {
    type Object = Participant;

    fn owners(&mut self) -> &mut NodeOwners<Participant> {
        &mut self.owners
    }

    fn closes(&mut self, _id: &str, _open: &Open<Participant>) -> Option<BTreeSet<i64>> {
        None
    }
}

impl Check for Leaders {
    fn look(&mut self, view: &View<'_>, found: &mut Findings) {
        if self.elections.is_empty() {
            return;
        }
        self.queues.follow(view, &mut self.owners.closed, found);
        let mut conflicts = Vec::new();
        let mut led: BTreeMap<&str, Vec<(Named<'_>, Leadership)>> = BTreeMap::new();
        let mut wanted: BTreeMap<&str, Vec<Pid>> = BTreeMap::new();
        for (id, open) in &mut self.owners.open {
            if !view.is_running(open.pid) {
                // No task of a stopped process could notice an end.
                open.of.over.1 = view.now;
                continue;
            }
            let leadership = open.of.object.leadership();
            if let Some(election) = self.elections.get_mut(&open.of.election) {
                check_leadership(view, id, open, election, leadership.as_ref(), found);
            }
            let named = Named(id, open);
            let (election, number) = (&open.of.election, open.of.number);
            if let Some(leadership) = &leadership {
                let name = || format!("{election}: {named}");
                let hold = named.believed(leadership);
                self.conflicts.judge_bound(view, number, &hold, name, found);
            }
            let is_wanted = leadership.is_some() || !open.of.object.is_denied();
            if open.client.ended().is_none() && is_wanted {
                wanted.entry(election).or_default().push(open.pid);
            }
            if let Some(leadership) = leadership {
                led.entry(election).or_default().push((named, leadership));
            }
        }
        for (path, election) in &mut self.elections {
            let of_election = led.get(path.as_str()).map_or(&[][..], Vec::as_slice);
            let is_wanted = of_election.is_empty() && wanted.contains_key(path.as_str());
            let is_free = |pids: &Vec<Pid>| {
                let core = view.core();
                pids.iter()
                    .all(|pid| core.process(*pid).is_running() && core.is_settled(*pid, view.now))
                    && causes::is_queue_of(&core, path, pids.iter().copied())
            };
            let is_free = is_wanted && wanted.get(path.as_str()).is_some_and(is_free);
            election.free_since = is_free.then(|| election.free_since.unwrap_or(view.now));
            if election.free_since.is_some_and(|since| view.now > since + GRANTED_WITHIN) {
                found.violation(format!("{path} is free, but no participant leads"));
                election.free_since = Some(view.now + 1_000 * GRANTED_WITHIN);
            }
            for (at, one @ (named, _)) in of_election.iter().enumerate() {
                let number = named.1.of.number;
                for other in of_election.iter().skip(at + 1) {
                    let text = format!("{path}: {named} and {} lead", other.0);
                    let key = (number, other.0.1.of.number);
                    conflicts.push((key, vec![one, other], 1, text));
                }
                if named.1.of.missing_since.is_some() {
                    let text = format!("{path}: {named} leads, but its node is gone");
                    conflicts.push(((number, number), vec![one], 0, text));
                }
            }
        }
        for (key, concerned, limit, text) in conflicts {
            // Looking at one leadership may have ended another.
            if !concerned.iter().all(|(_, leadership)| leadership.is_held()) {
                continue;
            }
            let holds: Vec<_> =
                concerned.iter().map(|(named, leadership)| named.believed(leadership)).collect();
            self.conflicts.judge(view, key, (&holds, limit), &text, found);
        }
    }

    fn process_ends(&mut self, pid: Pid, _death: Death) -> Leftovers {
        self.owners.process_ends(pid)
    }
}

/// Checks one participant by itself.
fn check_leadership(
    view: &View<'_>,
    id: &str,
    owner: &mut Open<Participant>,
    election: &mut Election,
    leadership: Option<&Leadership>,
    found: &mut Findings,
) {
    let now = view.now;
    let mut wrongs = Vec::new();
    let mut wrong = |text: &str| wrongs.push(text.to_owned());
    let core = view.core();
    let (pid, client, open) = (owner.pid, &owner.client, &mut owner.of);
    let disturbed_until = core.disturbed_until(pid);
    let starved_until = core.process(pid).starved_until;
    if let Some(leadership) = leadership {
        let stat = core.ensemble().node(leadership.path()).map(|(_, stat)| stat);
        let stat = stat.filter(|stat| stat.ephemeral_owner == leadership.session_id());
        if leadership.epoch() <= open.over.0 {
            wrong("leads again");
        }
        if leadership.epoch() > open.epoch {
            (open.epoch, open.session) = (leadership.epoch(), leadership.session_id());
            leadership.path().clone_into(&mut open.path);
            open.missing_since = None;
            open.proof = Proof::None;
            if let Some(stat) = &stat {
                if stat.czxid < election.token {
                    wrong(&format!("has the token {}, < {}", stat.czxid, election.token));
                }
                election.token = stat.czxid.max(election.token);
            }
        }
        if open.proof.is_revived(client.now() < leadership.proven_until()) {
            wrong("has a proven bound that had passed");
        }
        if stat.is_some() {
            open.missing_since = None;
        } else {
            open.missing_since.get_or_insert(now);
        }
        let is_connected = client.state().get().is_some_and(|state| state.is_connected());
        if open.ends_with_connection && !is_connected {
            wrong("leads without a connection");
            open.ends_with_connection = false;
        }
        if let Some(since) = open.missing_since
            && let Some((epoch, watching)) = open.watching
            && epoch == leadership.epoch()
            && now > since.max(watching).max(disturbed_until) + EVENT_SEEN_WITHIN
        {
            wrong("does not notice that its node is gone");
            open.watching = None;
        }
    } else if open.epoch > open.over.0 {
        open.over = (open.epoch, now);
        open.missing_since = None;
        // A selector gives its leadership up after its term. A lost connection is a cause by itself.
        let is_connected = client.state().get().is_some_and(|state| state.is_connected());
        let costs = open.ends_with_connection && !is_connected;
        let is_in_term = || open.watching.is_some_and(|(epoch, _)| epoch == open.epoch);
        let is_wanted = !costs && (matches!(open.object, Object::Latch(_)) || is_in_term());
        let rests_on =
            if open.ends_with_connection { RestsOn::Connection } else { RestsOn::Session };
        let (of, session, paths) =
            ((pid, client), (open.session, rests_on), [(open.path.as_str(), 0)]);
        if is_wanted && causes::cause_of_end(&core, now, of, session, paths).is_none() {
            wrong("has lost its leadership without a cause");
        }
    }
    if let Some((epoch, since)) = open.watching
        && epoch <= open.over.0
        && now > since.max(open.over.1).max(starved_until) + END_NOTICED_WITHIN
    {
        wrong("does not notice the end");
        open.watching = None;
    }
    drop(core);
    for text in wrongs {
        found.violation(format!("{}: {} {text}", owner.of.election, Named(id, owner)));
    }
}

/// A participant with its id.
#[derive(Clone, Copy)]
struct Named<'a>(&'a str, &'a Open<Participant>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}.{} ({})", self.1.pid, self.1.worker, self.0)
    }
}

impl<'a> Named<'a> {
    fn believed(&self, leadership: &'a Leadership) -> Believed<'a> {
        Believed {
            pid: self.1.pid,
            client: &self.1.client,
            proven_until: leadership.proven_until(),
            session: leadership.session_id(),
            paths: vec![leadership.path()],
            gone_at: self.1.of.missing_since,
            only_excuse: None,
        }
    }
}
