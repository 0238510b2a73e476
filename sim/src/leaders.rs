//! Elections: who leads by its own account, and what the servers' data must look like meanwhile.
//!
//! As with locks, only running processes are asked: a stopped one does nothing with its leadership.

use std::collections::{BTreeMap, BTreeSet};

use docent::{Client, LeaderLatch, LeaderSelector, Leadership};

use crate::{
    belief::{BOUND, Beliefs, END_NOTICED_WITHIN, EVENT_SEEN_WITHIN, Lapse, Proof},
    history::What,
    nodes::{ORPHAN_AFTER, Using},
    process::{Pid, ProcessState},
    world::{Nanos, SECOND, World},
};

/// How long after the peace, or after the last change, an election with participants may be without a leader, beyond
/// the session timeout: the pauses of retries are up to 10 s, in the background too.
const LEADER_WITHIN: Nanos = 25 * SECOND;

/// How long a request of an undisturbed process takes at most to be applied.
pub(crate) const REQUEST_ARRIVES_WITHIN: Nanos = 3 * SECOND;

/// A participant, whichever recipe it uses.
#[derive(Clone)]
pub(crate) enum Object {
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
pub(crate) struct NewParticipant<'a> {
    pub(crate) pid: Pid,
    pub(crate) worker: usize,
    pub(crate) client: &'a Client,
    /// The path of the election, with its namespace.
    pub(crate) election: &'a str,
    /// Its id, which no other participant has.
    pub(crate) id: &'a str,
    pub(crate) object: Object,
    /// Whether a lost connection ends its leadership.
    pub(crate) ends_with_connection: bool,
}

/// A participant that has not been closed.
pub(crate) struct Participant {
    pid: Pid,
    worker: usize,
    election: String,
    id: String,
    object: Object,
    ends_with_connection: bool,
    client: Client,
    /// The session of its last leadership.
    session: i64,
    /// The number of its last leadership.
    epoch: u64,
    /// The number of its last leadership that was seen to be over, and when.
    over: (u64, Nanos),
    /// The proven bound of its last leadership.
    proof: Proof,
    /// The leadership whose end a task waits for, and since when.
    watching: Option<(u64, Nanos)>,
    /// Since when the node of its leadership is missing.
    missing_since: Option<Nanos>,
}

#[derive(Default)]
struct Election {
    /// The greatest token that was granted.
    token: i64,
    /// The participants' nodes on the servers, with the id in each and the session that owns it.
    nodes: BTreeMap<String, (String, i64)>,
    /// Since when it has participants and no leader.
    idle_since: Option<Nanos>,
}

/// A participant that was closed.
struct Closed {
    pid: Pid,
    at: Nanos,
    /// The session in which its close returned without an error.
    session: Option<i64>,
}

/// All elections.
#[derive(Default)]
pub(crate) struct Leaders {
    next: u64,
    open: BTreeMap<u64, Participant>,
    elections: BTreeMap<String, Election>,
    closed: BTreeMap<String, Closed>,
    /// The number of the servers' changes that were looked at.
    seen: usize,
    reported: BTreeSet<(u64, u64)>,
    counted: BTreeSet<(u64, u64)>,
    reported_nodes: BTreeSet<String>,
}

impl Leaders {
    /// Takes all participants of a process that ends. They must be dropped without a lock.
    pub(crate) fn take_all(&mut self, pid: Pid) -> Vec<Participant> {
        let ids: Vec<_> =
            self.open.iter().filter(|(_, open)| open.pid == pid).map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| self.open.remove(id)).collect()
    }
}

/// A participant, compared with the others until this is dropped.
pub(crate) struct Participating {
    world: World,
    number: u64,
    pid: Pid,
    id: String,
    _using: Using,
}

impl Participating {
    /// A task waits for the end of a leadership until the result is dropped.
    pub(crate) fn watch(&self, leadership: &Leadership) -> Watching<'_> {
        self.set_watching(Some((leadership.epoch(), self.world.now())));
        Watching(self)
    }

    fn set_watching(&self, watching: Option<(u64, Nanos)>) {
        if let Some(open) = self.world.beliefs().leaders.open.get_mut(&self.number) {
            open.watching = watching;
        }
    }

    /// Its close begins.
    pub(crate) fn close(&self) {
        let gone = {
            let mut beliefs = self.world.beliefs();
            let at = self.world.now();
            let closed = Closed { pid: self.pid, at, session: None };
            let leaders = &mut beliefs.leaders;
            let gone = leaders.open.remove(&self.number);
            // A process that has ended is judged by its session alone.
            if gone.is_some() {
                leaders.closed.insert(self.id.clone(), closed);
            }
            gone
        };
        drop(gone);
    }

    /// Its close has returned without an error: it has no node in this session.
    pub(crate) fn is_closed(&self, session: Option<i64>) {
        if let Some(closed) = self.world.beliefs().leaders.closed.get_mut(&self.id) {
            closed.session = session;
        }
    }
}

/// A task that waits for the end of a leadership.
pub(crate) struct Watching<'a>(&'a Participating);

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

impl World {
    /// An id that no other participant has.
    pub(crate) fn next_participant(&self) -> String {
        let leaders = &mut self.beliefs().leaders;
        leaders.next += 1;
        format!("participant-{}", leaders.next)
    }

    /// Begins a participation.
    pub(crate) fn take_part(&self, new: NewParticipant<'_>) -> Participating {
        let NewParticipant { pid, worker, client, election, id, .. } = new;
        let using = self.use_path(pid, election);
        let mut beliefs = self.beliefs();
        let leaders = &mut beliefs.leaders;
        leaders.next += 1;
        let number = leaders.next;
        leaders.elections.entry(election.to_owned()).or_default();
        let participant = Participant {
            pid,
            worker,
            election: election.to_owned(),
            id: id.to_owned(),
            object: new.object,
            ends_with_connection: new.ends_with_connection,
            client: client.clone(),
            session: 0,
            epoch: 0,
            over: (0, 0),
            proof: Proof::None,
            watching: None,
            missing_since: None,
        };
        leaders.open.insert(number, participant);
        drop(beliefs);
        Participating { world: self.clone(), number, pid, id: id.to_owned(), _using: using }
    }

    /// Compares all leaders with each other and with the servers' data.
    pub(crate) fn check_leaders(&self, beliefs: &mut Beliefs, records: &mut Vec<What>) {
        if beliefs.leaders.elections.is_empty() {
            return;
        }
        let mut leaders = std::mem::take(&mut beliefs.leaders);
        let excused_until = beliefs.excused_until;
        self.follow_queues(&mut leaders, excused_until, records);
        let mut found = Vec::new();
        let mut led: BTreeMap<&str, Vec<(u64, &Participant, Leadership)>> = BTreeMap::new();
        let mut wanted: BTreeSet<&str> = BTreeSet::new();
        for (number, open) in &mut leaders.open {
            if !self.is_running(open.pid) {
                // No task could ask, or notice.
                open.over.1 = self.now();
                continue;
            }
            let leadership = open.object.leadership();
            if let Some(election) = leaders.elections.get_mut(&open.election) {
                self.check_leadership(open, election, leadership.as_ref(), records);
            }
            let open = &*open;
            if let Some(leadership) = &leadership
                && open.missing_since.is_some()
                && self.is_before(open.pid, &open.client, leadership.proven_until())
                && self.has_expired(beliefs, leadership.session_id())
                && leaders.reported.insert((*number, BOUND))
            {
                let name = open.name();
                let text = format!("{name}: its session has ended within the proven bound");
                records.push(What::Violation(format!("{}: {text}", open.election)));
            }
            if open.client.ended().is_none() {
                wanted.insert(&open.election);
            }
            if let Some(leadership) = leadership {
                led.entry(&open.election).or_default().push((*number, open, leadership));
            }
        }
        let now = self.now();
        let peace_at = self.core().peace_at;
        for (path, election) in &mut leaders.elections {
            let of_election = led.get(path.as_str()).map_or(&[][..], Vec::as_slice);
            if !of_election.is_empty() || !wanted.contains(path.as_str()) || now < peace_at {
                election.idle_since = None;
            } else {
                election.idle_since.get_or_insert(now);
            }
            for (at, (number, open, leadership)) in of_election.iter().enumerate() {
                for (other_number, other, others) in of_election.iter().skip(at + 1) {
                    let text = format!("{path}: {} and {} lead", open.name(), other.name());
                    let both = vec![(*open, leadership), (*other, others)];
                    found.push(((*number, *other_number), both, 1, text));
                }
                if open.missing_since.is_some() {
                    let text = format!("{path}: {} leads, but its node is gone", open.name());
                    found.push(((*number, *number), vec![(*open, leadership)], 0, text));
                }
            }
        }
        let timeout = self.core().longest_timeout;
        for (key, concerned, limit, text) in found {
            // Asking the one may have ended the other.
            if !concerned.iter().all(|(_, leadership)| leadership.is_held()) {
                continue;
            }
            let is_proven = |open: &Participant, leadership: &Leadership| {
                self.is_before(open.pid, &open.client, leadership.proven_until())
            };
            let excuse = |(open, leadership): &(&Participant, &Leadership)| {
                let gone_at = open.missing_since?;
                let path = std::iter::once(leadership.path());
                let session = leadership.session_id();
                let is_open = self.core().servers.ensemble.session_ids().contains(&session);
                let ended_at = Some(gone_at).filter(|_| !is_open);
                let lapse = Lapse { gone_at, ended_at, is_proven: is_proven(open, leadership) };
                beliefs.excuse_of(path, session, &lapse, now, timeout)
            };
            let excuses: Vec<_> = concerned.iter().filter_map(excuse).collect();
            let is_excused = concerned.len() - excuses.len() <= limit;
            let is_new =
                if is_excused { leaders.counted.insert(key) } else { leaders.reported.insert(key) };
            if !is_new {
                continue;
            }
            let proven = concerned.iter().any(|(open, leadership)| {
                open.missing_since.is_some() && is_proven(open, leadership)
            });
            records.push(match excuses.first() {
                Some(excuse) if is_excused => {
                    What::Naive { holds: concerned.len(), text: format!("{text} ({excuse})") }
                }
                _ if proven => What::Violation(format!("{text}, within the proven bound")),
                _ => What::Violation(text),
            });
        }
        let disturbed_until = self.core().disturbed_until;
        for (path, election) in &mut leaders.elections {
            if let Some(since) = election.idle_since
                && now > since.max(disturbed_until) + timeout + LEADER_WITHIN
            {
                records.push(What::Violation(format!("{path}: no participant leads")));
                election.idle_since = Some(now + 1_000 * SECOND);
            }
        }
        beliefs.leaders = leaders;
    }

    /// One participant, by itself.
    fn check_leadership(
        &self,
        open: &mut Participant,
        election: &mut Election,
        leadership: Option<&Leadership>,
        records: &mut Vec<What>,
    ) {
        let now = self.now();
        let mut wrong = |open: &Participant, text: &str| {
            let text = format!("{}: {} {text}", open.election, open.name());
            records.push(What::Violation(text));
        };
        let core = self.core();
        let disturbed_until = core.disturbed_until(open.pid);
        if let Some(leadership) = leadership {
            let stat = core.servers.ensemble.node(leadership.path()).map(|(_, stat)| stat);
            let stat = stat.filter(|stat| stat.ephemeral_owner == leadership.session_id());
            if leadership.epoch() <= open.over.0 {
                wrong(open, "leads again");
            }
            if leadership.epoch() > open.epoch {
                (open.epoch, open.session) = (leadership.epoch(), leadership.session_id());
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
            let is_connected =
                open.client.state().borrow().is_some_and(|state| state.is_connected());
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
        }
        if let Some((epoch, since)) = open.watching
            && epoch <= open.over.0
            && !core.process(open.pid).has_jumped()
            && now > since.max(open.over.1) + END_NOTICED_WITHIN
        {
            wrong(open, "does not notice the end");
            open.watching = None;
        }
    }

    /// Looks at the changes of the queues.
    fn follow_queues(&self, leaders: &mut Leaders, excused_until: Nanos, records: &mut Vec<What>) {
        let now = self.now();
        let core = self.core();
        let changes = &core.servers.truth.changes;
        for applied in changes.get(leaders.seen..).unwrap_or_default() {
            let change = &applied.change;
            let Some((parent, _)) = change.path.rsplit_once('/') else { continue };
            let Some(election) = leaders.elections.get_mut(parent) else { continue };
            let Some((data, stat)) = &change.node else {
                election.nodes.remove(&change.path);
                continue;
            };
            let id = String::from_utf8_lossy(data).into_owned();
            election.nodes.insert(change.path.clone(), (id.clone(), stat.ephemeral_owner));
            if stat.version == 0
                && let Some(closed) = leaders.closed.get(&id)
                && now > closed.at.max(core.undisturbed_since(closed.pid)) + REQUEST_ARRIVES_WITHIN
            {
                let text = format!("{parent}: {id} creates {} after its close", change.path);
                records.push(What::Violation(text));
            }
            // A session that the client has given up may last longer at the servers.
            let counts = |owner: i64| now >= excused_until || owner == stat.ephemeral_owner;
            let is_same = |(other, owner): &&(String, i64)| *other == id && counts(*owner);
            let same = election.nodes.values().filter(is_same).count();
            // The delete of a selector's former node may have been refused; it is repeated in the background.
            if same > 1 && !core.refuses(now) {
                records.push(What::Violation(format!("{parent}: {id} has {same} nodes")));
            }
        }
        leaders.seen = changes.len();
        for (path, election) in &leaders.elections {
            for (node, (id, owner)) in &election.nodes {
                let Some(closed) = leaders.closed.get(id) else { continue };
                let process = core.process(closed.pid);
                let lives = process.state == ProcessState::Running && !process.is_finished;
                let is_left =
                    lives && now > closed.at.max(core.disturbed_until(closed.pid)) + ORPHAN_AFTER;
                let is_refuted = closed.session == Some(*owner);
                if (is_left || is_refuted) && leaders.reported_nodes.insert(node.clone()) {
                    records.push(What::Violation(format!("{path}: {id} is closed, not {node}")));
                }
            }
        }
    }
}

impl Participant {
    fn name(&self) -> String {
        format!("p{}.{} ({})", self.pid, self.worker, self.id)
    }
}
