//! What renews the lease of a session, and to when.

use super::*;

#[test]
fn an_answer_moves_the_deadline_to_when_its_request_was_sent() {
    let mut scenario = Scenario::connected();
    let lease = scenario.machine.lease().unwrap().clone();
    let margin = scenario.machine.timeouts().margin;
    let sent_at = scenario.now;
    scenario.send_get("/a", 1);
    scenario.now += ms(1500);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(lease.deadline(), sent_at + ms(6000) - margin);
}

#[test]
fn each_answer_counts_from_its_own_batch() {
    let mut scenario = Scenario::connected();
    let lease = scenario.machine.lease().unwrap().clone();
    scenario.get("/a", 1);
    scenario.send_get("/b", 2);
    let first = scenario.now;
    scenario.now += ms(500);
    scenario.send_get("/c", 3);
    let second = scenario.now;
    scenario.now += ms(500);
    let lasts = ms(6000) - scenario.machine.timeouts().margin;
    for (xid, sent_at) in [(1, first), (2, first), (3, second)] {
        scenario.reply(xid, 5, ErrorCode::Ok, b"");
        assert_eq!(lease.deadline(), sent_at + lasts, "xid {xid}");
    }
}

#[test]
fn a_ping_renews_from_when_it_was_made() {
    let mut scenario = Scenario::connected();
    let lease = scenario.machine.lease().unwrap().clone();
    scenario.wait(ms(2000));
    let made = scenario.now;
    scenario.flush();
    scenario.now += ms(700);
    scenario.reply(xid::PING, 5, ErrorCode::Ok, b"");
    assert_eq!(lease.deadline(), made + ms(6000) - scenario.machine.timeouts().margin);
}

/// The proof counts from the connect that created the session, with the smallest timeout granted; nothing renews it.
#[test]
fn the_proof_only_ever_gets_shorter() {
    let mut scenario = Scenario::connected();
    let lease = scenario.machine.lease().unwrap().clone();
    let created = Instant::ZERO + ms(1000);
    assert_eq!(lease.proven_until(), created + ms(5940));
    scenario.send_get("/a", 1);
    scenario.now += ms(1000);
    scenario.reply(1, 5, ErrorCode::Ok, b"");
    assert_eq!(lease.proven_until(), created + ms(5940));
    scenario.cut_and_connect();
    scenario.accept(7, 3000);
    assert_eq!(lease.proven_until(), created + ms(2970));
    scenario.cut_and_connect();
    scenario.accept(7, 60_000);
    assert_eq!(lease.proven_until(), created + ms(2970));
}
