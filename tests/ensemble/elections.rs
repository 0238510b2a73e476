//! An election of five processes, docent's and Curator's, on an ensemble whose leader is killed repeatedly.

use std::env;

use super::*;
use crate::support::peer::{Events, Options, Outcome, Peer, Side};

/// Once the ensemble has a leader again, the election has one within this time: the reconnects take several seconds on a busy
/// machine. If the leader's session expires meanwhile, its timeout is added.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

/// By how much the events of two processes may arrive late or out of order.
const EVENTS_DIFFER_BY: Duration = Duration::from_secs(1);

const LATCH: &str = "/election";

/// The number of kills: `DOCENT_LEADER_KILLS`.
fn kills() -> usize {
    env::var("DOCENT_LEADER_KILLS").map_or(3, |text| text.parse().expect("a number of kills"))
}

/// Three processes of docent and two of Curator, which share one election.
async fn participants(connect: &str) -> (Vec<Peer>, Said) {
    let options = Options { session: Duration::from_secs(6), retries: 20 };
    let (mut peers, mut said) = (Vec::new(), Said::default());
    for (number, is_ours) in [true, false, true, false, true].into_iter().enumerate() {
        let (side, name) =
            if is_ours { (Side::Docent, "docent") } else { (Side::Curator, "curator") };
        let peer = Peer::start(side, name, connect, options).await;
        said.subscriptions.push(peer.events_from_now());
        peer.ask(format!("latch start L {LATCH} id{number}")).await.ok();
        peers.push(peer);
    }
    (peers, said)
}

/// The only process that reports a leadership, and its token; or what is there instead: none, more than one, no token, or a
/// leadership that ends during the check.
async fn leader(peers: &[Peer]) -> Result<(usize, i64), String> {
    let asked: Vec<_> = peers.iter().map(|peer| peer.send("latch leader? L")).collect();
    let mut leaders = Vec::new();
    for (number, asked) in asked.into_iter().enumerate() {
        if asked.reply().await.ok() == "true" {
            leaders.push(number);
        }
    }
    let [leader] = leaders[..] else { return Err(format!("leaders {leaders:?}")) };
    // Curator reads the token from the servers, so this can fail.
    let token = peers[leader].ask("latch token L").await.outcome;
    let leads = peers[leader].ask("latch leader? L").await.ok() == "true";
    match token {
        Outcome::Ok(token) if leads => Ok((leader, token.parse().unwrap())),
        token => Err(format!("leader {leader}, now {leads}, with the token {token:?}")),
    }
}

/// What the processes have said of their leaderships: when, who, and whether one begins.
#[derive(Default)]
struct Said {
    subscriptions: Vec<Events>,
    events: Vec<(Instant, usize, bool)>,
}

impl Said {
    fn read(&mut self) {
        for (who, subscription) in self.subscriptions.iter_mut().enumerate() {
            let said = subscription.drain().into_iter();
            self.events.extend(said.filter_map(|event| match event.text.as_str() {
                "leader L" => Some((event.at, who, true)),
                "notleader L" => Some((event.at, who, false)),
                _ => None,
            }));
        }
    }

    /// Whether a process has last said that it leads.
    fn leads(&mut self, of: usize) -> bool {
        self.read();
        self.events.iter().rfind(|(_, who, _)| *who == of).is_some_and(|(.., begins)| *begins)
    }
}

/// The leader, when its event has arrived too: it may come behind the answers.
async fn next_leader(peers: &[Peer], said: &mut Said, since: Instant) -> (usize, i64) {
    loop {
        let found = leader(peers).await;
        match found {
            Ok((who, token)) if said.leads(who) => return (who, token),
            _ if since.elapsed() < LEADER_WITHIN => tokio::time::sleep(TICK / 50).await,
            _ => {
                let participants = peers[0].ask("latch participants L").await.outcome;
                panic!("no leader for {LEADER_WITHIN:?}: {found:?}; participants {participants:?}")
            }
        }
    }
}

/// The longest time in which two processes believed to lead, computed from their events in the order of arrival.
fn longest_overlap(events: &[(Instant, usize, bool)]) -> Duration {
    let (mut leading, mut longest) = (BTreeMap::new(), Duration::ZERO);
    for (at, who, begins) in events {
        if *begins {
            leading.insert(*who, *at);
        } else if let Some(began) = leading.remove(who) {
            for since in leading.values() {
                longest = longest.max(*at - began.max(*since));
            }
        }
    }
    longest
}

/// Each leader has a greater token than the ones before it, and the election is never long without a leader.
// Case (Leader election and kept nodes): the leader of the ensemble is killed, under an election of
// five processes, docent's and Curator's.
#[tokio::test(flavor = "multi_thread")]
async fn an_election_outlives_the_leaders_of_its_ensemble() {
    if !Side::Curator.is_available() {
        return;
    }
    let Some(mut ensemble) = RealEnsemble::start().await else { return };
    let (peers, mut said) = participants(&ensemble.connect()).await;
    let mut last = next_leader(&peers, &mut said, Instant::now()).await;
    let (mut terms, mut times) = (1, Vec::new());
    let mut check = |(who, token): (usize, i64)| {
        // An equal token means the same node: it was kept.
        assert!(token > last.1 || (who, token) == last, "{who} leads with {token}, after {last:?}");
        terms += usize::from(token > last.1);
        last = (who, token);
    };
    for kill in 0..kills() {
        let (who, token) = next_leader(&peers, &mut said, Instant::now()).await;
        check((who, token));
        let member = ensemble.leader().await;
        let mut events = peers[who].events_from_now();
        let killed = Instant::now();
        ensemble.kill(member).await;
        // Without a leader, the other members disconnect their clients.
        events.next("notleader L").await;
        // Their own election comes first.
        ensemble.leader().await;
        check(next_leader(&peers, &mut said, Instant::now()).await);
        times.push(killed.elapsed());
        ensemble.start_again(member).await;
        if kill % 2 == 1 {
            // The next kill happens while another process leads.
            let (who, token) = next_leader(&peers, &mut said, Instant::now()).await;
            check((who, token));
            // A latch that is closed reports no end of its leadership.
            said.events.push((Instant::now(), who, false));
            peers[who].ask("latch close L").await.ok();
            peers[who].ask(format!("latch start L {LATCH} again{kill}")).await.ok();
        }
    }
    check(next_leader(&peers, &mut said, Instant::now()).await);
    said.read();
    said.events.sort();
    let overlap = longest_overlap(&said.events);
    times.sort();
    let (longest, median) = (times[times.len() - 1], times[times.len() / 2]);
    let kills = kills();
    eprintln!(
        "{kills} kills, {terms} terms; to a leader: median {median:?}, longest {longest:?}; overlap {overlap:?}"
    );
    assert!(overlap < EVENTS_DIFFER_BY, "two leaders for {overlap:?}");
    for peer in peers {
        peer.close().await;
    }
}
