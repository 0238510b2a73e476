//! An election of five processes, docent's and Curator's, on an ensemble whose leader is killed repeatedly.

use std::env;

use super::*;
use crate::support::peer::{Options, Outcome, Peer, Side};

/// After a kill, the election has a leader again within this time: the election of the ensemble and the reconnects take
/// several seconds on a busy machine. If the leader's session expires meanwhile, its timeout is added.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

/// By how much the events of two processes may arrive late or out of order.
const EVENTS_DIFFER_BY: Duration = Duration::from_secs(1);

const LATCH: &str = "/election";

/// The number of kills: `DOCENT_LEADER_KILLS`.
fn kills() -> usize {
    env::var("DOCENT_LEADER_KILLS").map_or(3, |text| text.parse().expect("a number of kills"))
}

/// Three processes of docent and two of Curator, which share one election.
async fn participants(connect: &str) -> Vec<Peer> {
    let options = Options { session: Duration::from_secs(6), retries: 20 };
    let mut peers = Vec::new();
    for (number, is_ours) in [true, false, true, false, true].into_iter().enumerate() {
        let (side, name) =
            if is_ours { (Side::Docent, "docent") } else { (Side::Curator, "curator") };
        let peer = Peer::start(side, name, connect, options).await;
        peer.ask(format!("latch start L {LATCH} id{number}")).await.ok();
        peers.push(peer);
    }
    peers
}

/// The only process that reports a leadership, and its token; `None` if there is none, or more than one, or the
/// leadership ends during the check.
async fn leader(peers: &[Peer]) -> Option<(usize, i64)> {
    let asked: Vec<_> = peers.iter().map(|peer| peer.send("latch leader? L")).collect();
    let mut leaders = Vec::new();
    for (number, asked) in asked.into_iter().enumerate() {
        if asked.reply().await.ok() == "true" {
            leaders.push(number);
        }
    }
    let [leader] = leaders[..] else { return None };
    // Curator reads the token from the servers, so this can fail.
    let Outcome::Ok(token) = peers[leader].ask("latch token L").await.outcome else { return None };
    (peers[leader].ask("latch leader? L").await.ok() == "true")
        .then(|| (leader, token.parse().unwrap()))
}

async fn next_leader(peers: &[Peer], since: Instant) -> (usize, i64) {
    let leader = eventually("a leader", async || leader(peers).await).await;
    assert!(since.elapsed() < LEADER_WITHIN, "no leader for {:?}", since.elapsed());
    leader
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
    let peers = participants(&ensemble.connect()).await;
    let mut subscriptions: Vec<_> = peers.iter().map(Peer::events_from_now).collect();
    let mut last = next_leader(&peers, Instant::now()).await;
    let (mut terms, mut times, mut events_of_all) = (1, Vec::new(), Vec::new());
    let mut check = |(who, token): (usize, i64)| {
        // An equal token means the same node: it was kept.
        assert!(token > last.1 || (who, token) == last, "{who} leads with {token}, after {last:?}");
        terms += usize::from(token > last.1);
        last = (who, token);
    };
    for kill in 0..kills() {
        let (who, token) = next_leader(&peers, Instant::now()).await;
        check((who, token));
        let member = ensemble.leader().await;
        let mut events = peers[who].events_from_now();
        let killed = Instant::now();
        ensemble.kill(member).await;
        // Without a leader, the other members disconnect their clients.
        events.next("notleader L").await;
        check(next_leader(&peers, killed).await);
        times.push(killed.elapsed());
        ensemble.start_again(member).await;
        if kill % 2 == 1 {
            // The next kill happens while another process leads.
            let (who, token) = next_leader(&peers, Instant::now()).await;
            check((who, token));
            // A latch that is closed reports no end of its leadership.
            events_of_all.push((Instant::now(), who, false));
            peers[who].ask("latch close L").await.ok();
            peers[who].ask(format!("latch start L {LATCH} again{kill}")).await.ok();
        }
    }
    check(next_leader(&peers, Instant::now()).await);
    for (who, subscription) in subscriptions.iter_mut().enumerate() {
        let said = subscription.drain().into_iter();
        events_of_all.extend(said.filter_map(|event| match event.text.as_str() {
            "leader L" => Some((event.at, who, true)),
            "notleader L" => Some((event.at, who, false)),
            _ => None,
        }));
    }
    events_of_all.sort();
    let overlap = longest_overlap(&events_of_all);
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
