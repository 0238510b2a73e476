//! The handshake, and the end of a session that a server reports in it.

use super::*;

#[test]
fn the_first_handshake_asks_for_a_new_session() {
    let scenario = Scenario::connecting(config());
    assert_contains(
        scenario.last_sent(),
        &["last_zxid_seen: 0, time_out: 6000, session_id: 0x0, read_only: Some(false)"],
    );
}

#[test]
fn a_second_connection_brings_id_zxid_and_the_timeout_first_asked_for() {
    let mut scenario = Scenario::connecting(config());
    scenario.accept(0x17, 4000);
    scenario.read("/a", 1, 99);
    scenario.cut_and_connect();
    assert_contains(
        scenario.last_sent(),
        &["last_zxid_seen: 99, time_out: 6000, session_id: 0x17"],
    );
}

#[test]
fn requests_wait_for_the_session_and_leave_in_call_order() {
    let mut scenario = Scenario::new(config());
    scenario.get("/a", 1);
    scenario.connect();
    scenario.send_get("/b", 2);
    assert_eq!(scenario.xids(), [0], "nothing but the handshake before it is answered");
    scenario.accept(7, 6000);
    assert_eq!(scenario.xids(), [0, 1, 2]);
}

// Case (Failure cases, 26): another timeout than asked for.
#[test]
fn the_granted_timeout_sets_the_intervals() {
    let scenario = Scenario::connected_for(config(), 3000);
    assert_eq!(scenario.machine.timeouts().ping, ms(1000));
    assert_eq!(scenario.machine.timeouts().read, ms(2000));
}

/// Since 3.7, a read-only server replies to the handshake of a read-write client with a reply header.
// Case (Failure cases, 6): a reply header for a handshake.
// Case (Failure cases, 35): read-only servers.
#[test]
fn a_read_only_server_is_passed_over() {
    for as_header in [true, false] {
        let mut scenario = Scenario::connecting(config());
        if as_header {
            scenario.feed(&ReplyHeader { xid: 0, zxid: 2, err: ErrorCode::NotReadOnly });
        } else {
            scenario.accept_read_only(9);
        }
        assert_contains(scenario.machine.wants_disconnect().unwrap(), &["read-only"]);
        assert_eq!(scenario.machine.state(), None);
        assert!(scenario.machine.lease().is_none());
    }
}

#[test]
fn http_instead_of_a_handshake_is_named() {
    let mut scenario = Scenario::connecting(config());
    scenario.feed_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_contains(scenario.machine.wants_disconnect().unwrap(), &["HTTP/1.1 400 Bad"]);
}

/// Servers before 3.4 send no read-only byte (`ClientCnxnSocket.readConnectResult`).
// Case (Pitfalls of the wire, 7): no readOnly byte.
// Case (Failure cases, 7): a handshake of 36 bytes.
#[test]
fn a_handshake_without_the_read_only_byte_is_accepted() {
    let mut scenario = Scenario::connecting(config());
    scenario.feed(&ConnectResponse { read_only: None, ..granted(7, 6000) });
    assert!(scenario.machine.is_connected());
}

// Case (Pitfalls of the wire, 22): a server that accepts and says nothing.
#[test]
fn a_server_that_takes_the_connection_and_says_nothing_is_given_up() {
    let mut scenario = Scenario::connecting(config());
    let deadline = scenario.machine.poll_timeout().unwrap();
    assert_eq!(deadline.duration_since(scenario.now), ms(3000), "the connection timeout");
    scenario.now = deadline;
    scenario.machine.handle_timeout(deadline);
    assert!(scenario.is_broken());
}

// Expiry.

// Case (Failure cases, 18): expiry while idle.
#[test]
fn a_refused_session_is_lost_and_a_new_one_is_made() {
    let mut scenario = Scenario::connected();
    let (lease, claim) = (scenario.lease(), scenario.lease().claim());
    scenario.set_watch(WatchKind::Data, "/w", 3);
    assert_eq!(scenario.completions(), [(3, Ok(5))]);
    scenario.send_get("/sent", 1);
    scenario.get("/queued", 2);
    scenario.cut_and_connect();
    scenario.refuse();
    assert!(scenario.is_broken());
    scenario.cut();
    assert_eq!(scenario.completions(), [(1, Err(LOST)), (2, refused(ErrorKind::SessionExpired))]);
    assert!(lease.is_lost() && !claim.is_valid(scenario.now));
    scenario.connect();
    let request = scenario.last_sent();
    assert!(request.contains("last_zxid_seen: 0") && request.contains("session_id: 0x0"));
    scenario.accept(8, 6000);
    assert_eq!(scenario.last_xid(), 0, "the watches of the old session are not set in the new one");
    let mut states = Vec::new();
    let ended = scenario.events(|event| match event {
        Event::Watch { watcher, event } => Some((watcher, event.event_type, event.state)),
        Event::State(state) => {
            states.push(state);
            None
        }
        _ => None,
    });
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};
    assert_eq!(states, [Connected, Suspended, Lost, Reconnected]);
    assert_eq!(ended, [(3, EventType::None, KeeperState::Expired)]);
    assert_eq!(scenario.lease().session_id(), 8);
}

/// ClickHouse Keeper grants another session without an error.
// Case (Pitfalls of the wire, 23): another session than asked for.
#[test]
fn another_session_than_the_one_asked_for_is_an_expiry() {
    let mut scenario = Scenario::connected();
    scenario.cut_and_accept(8, 6000);
    assert!(scenario.is_broken());
    assert_eq!(scenario.machine.state(), Some(ConnectionState::Lost));
    assert!(scenario.machine.lease().is_none());
}

/// A connection that is closed without a reply says nothing about the session.
// Case (Pitfalls of the wire, 28): a FIN is not an expiry.
// Case (Failure cases, 23): a server that is behind.
// Case (Failure cases, 24): a session that moved.
#[test]
fn a_server_that_closes_silently_is_not_an_expiry() {
    let mut scenario = Scenario::connected();
    for _ in 0..3 {
        scenario.cut_and_connect();
    }
    assert!(!scenario.machine.lease().unwrap().is_lost());
}
