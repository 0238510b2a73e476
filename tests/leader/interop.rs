//! Elections and groups that docent and Curator share. Source of the other side:
//! `tests/java/CuratorElections.java`.

use super::*;
use crate::support::{
    peer::{Options, Outcome, Peer},
    real::unique_path,
};

/// The number of terms of each side.
const TERMS: usize = 200;

/// A docent peer and a Curator peer on the real server; `None` if a requirement is missing.
async fn peers() -> Option<(Peer, Peer)> {
    let options = Options { session: Duration::from_secs(10), retries: 5 };
    let (fixture, theirs) = Peer::beside_curator(options).await?;
    Some((Peer::docent(&fixture.server, options).await, theirs))
}

async fn two_in_the_queue(peer: &Peer, path: &str) {
    until("two in the queue", async || peer.children(path).await.len() == 2).await;
}

/// Each latch waits while the other leads, and leads with a greater token once that one has closed.
#[tokio::test]
async fn latches_of_both_lead_in_turn() {
    let Some((ours, theirs)) = peers().await else { return };
    let path = unique_path("latch");
    let mut last_token = 0;
    ours.ask(format!("latch start L0 {path} id0")).await.ok();
    ours.ask("latch await L0").await.ok();
    for term in 1..=2 * TERMS {
        let (next, leads) = if term % 2 == 1 { (&theirs, &ours) } else { (&ours, &theirs) };
        let (new, old) = (format!("L{term}"), format!("L{}", term - 1));
        next.ask(format!("latch start {new} {path} id{term}")).await.ok();
        two_in_the_queue(&ours, &path).await;
        assert_eq!(next.ask(format!("latch leader? {new}")).await.ok(), "false");
        assert_eq!(leads.ask(format!("latch leader? {old}")).await.ok(), "true");
        let token: i64 = leads.ask(format!("latch token {old}")).await.ok().parse().unwrap();
        assert!(token > last_token, "{token} after {last_token}");
        last_token = token;
        if term == 1 {
            for (peer, name) in [(next, &new), (leads, &old)] {
                let queue = peer.ask(format!("latch participants {name}")).await;
                assert_eq!(queue.ok(), "2 *id0 id1");
            }
        }
        leads.ask(format!("latch close {old}")).await.ok();
        next.ask(format!("latch await {new}")).await.ok();
    }
    ours.close().await;
    theirs.close().await;
}

/// Two selectors that enter the queue again after each term take turns.
#[tokio::test]
async fn selectors_of_both_take_turns() {
    let Some((ours, theirs)) = peers().await else { return };
    let path = unique_path("selector");
    let (mut our_terms, mut their_terms) = (ours.events_from_now(), theirs.events_from_now());
    ours.ask(format!("selector start S {path} ours requeue")).await.ok();
    our_terms.next("lead S 1").await;
    theirs.ask(format!("selector start S {path} theirs requeue")).await.ok();
    for term in 1..=TERMS {
        two_in_the_queue(&ours, &path).await;
        assert_eq!(theirs.ask("selector leader? S").await.ok(), "false");
        assert_eq!(ours.ask("selector yield S").await.outcome, Outcome::Ok(String::new()));
        their_terms.next(&format!("lead S {term}")).await;
        two_in_the_queue(&ours, &path).await;
        assert_eq!(ours.ask("selector leader? S").await.ok(), "false");
        assert_eq!(theirs.ask("selector yield S").await.outcome, Outcome::Ok(String::new()));
        our_terms.next(&format!("lead S {}", term + 1)).await;
    }
    ours.close().await;
    theirs.close().await;
}

#[tokio::test]
async fn members_of_both_see_each_other() {
    let Some((ours, theirs)) = peers().await else { return };
    let path = unique_path("group");
    ours.ask(format!("group join G {path} ours a")).await.ok();
    theirs.ask(format!("group join G {path} theirs b")).await.ok();
    let sees = async |peer: &Peer, wanted: &str| {
        until(wanted, async || peer.ask("group members G").await.ok() == wanted).await;
    };
    sees(&ours, "2 ours=a theirs=b").await;
    sees(&theirs, "2 ours=a theirs=b").await;
    ours.ask("group leave G").await.ok();
    sees(&theirs, "1 theirs=b").await;
    ours.close().await;
    theirs.close().await;
}
