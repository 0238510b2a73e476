//! Operations that a server does not know: found out once, not sent again, and asked for anew after a reconnect.

use docent_protocol::{AddWatchMode, OpCode, operation::WhoAmI};

use super::*;
use crate::config::WhenFull;

const UNSUPPORTED: Completed = refused(ErrorKind::Unimplemented);

impl Scenario {
    /// Submits a whoAmI; returns the number of requests that are sent.
    fn who_am_i(&mut self, token: u32) -> usize {
        let (now, before) = (self.now, self.wire.len());
        self.machine.submit(&WhoAmI, token, None, || now);
        self.flush();
        self.wire.len() - before
    }

    /// The reply of a server that does not know the operation of the last request, and the end of the connection.
    fn refuse_last(&mut self) {
        self.reply_to_last(-1, ErrorCode::Unimplemented);
        self.cut();
    }

    /// Submits an addWatch; returns the number of requests that are sent.
    fn add_watch_at_a(&mut self, token: u32) -> usize {
        let before = self.wire.len();
        self.add_watch(AddWatchMode::Persistent, "/a", token);
        self.flush();
        self.wire.len() - before
    }

    /// Another session, instead of the one asked for (a Keeper), or after its expiry.
    fn next_session(&mut self, id: i64, is_replaced: bool) {
        self.connect();
        if is_replaced {
            self.accept(id, 6000);
        } else {
            self.refuse();
        }
        self.cut_and_accept(id, 6000);
    }

    fn missing_operations(&mut self) -> Vec<String> {
        self.events(|event| match event {
            Event::MissingOperation(lease, op) => Some(format!("{op} {:#x}", lease.session_id())),
            _ => None,
        })
    }
}

#[test]
fn a_refused_operation_is_sent_once_in_a_session() {
    let mut scenario = Scenario::connected();
    assert_eq!(scenario.who_am_i(1), 1);
    scenario.refuse_last();
    assert_eq!(scenario.missing_operations(), ["whoAmI 0x7"]);
    scenario.resume();
    for token in 2..5 {
        assert_eq!(scenario.who_am_i(token), 0);
    }
    let refused = |token| (token, UNSUPPORTED);
    assert_eq!(scenario.completions(), [1, 2, 3, 4].map(refused));
    assert_eq!(scenario.missing_operations(), [""; 0]);
}

/// The operation is sent again only to another server.
// Case (Found in docent itself): each new session of a client lost one connection to find again
// what the same server was known to lack.
#[test]
fn a_refused_operation_is_not_sent_in_the_next_session() {
    let mut scenario = Scenario::connected();
    assert_eq!(scenario.who_am_i(1), 1);
    scenario.refuse_last();
    scenario.next_session(8, false);
    assert_eq!(scenario.who_am_i(2), 0);
    scenario.machine.update_server_list(&[host("one"), host("two")]);
    assert_eq!(scenario.who_am_i(3), 0);
    scenario.machine.update_server_list(&[host("three")]);
    scenario.cut();
    scenario.next_session(9, false);
    scenario.missing_operations();
    assert_eq!(scenario.who_am_i(4), 1);
    scenario.refuse_last();
    assert_eq!(scenario.missing_operations(), ["whoAmI 0x9"]);
}

/// A Keeper closes the connection without a reply, and the session ends with it. After the second time, the operation is
/// refused. If the session is resumed instead, the network may be the cause.
// Case (Found in docent itself): a ClickHouse Keeper without addWatch ended the session at each
// call of an application, and the client never learned why.
#[test]
fn an_operation_that_a_keeper_closes_connections_for_is_refused() {
    for is_keeper in [false, true] {
        let mut scenario = Scenario::connected();
        for (token, id) in [(1, 8), (2, 9)] {
            assert_eq!(scenario.add_watch_at_a(token), 1);
            assert_eq!(scenario.missing_operations(), [""; 0]);
            scenario.cut();
            if is_keeper {
                scenario.next_session(id, true);
            } else {
                scenario.resume();
            }
        }
        let found = if is_keeper { "addWatch 0x8" } else { "addWatch 0x7" };
        assert_eq!(scenario.missing_operations(), [found]);
        assert_eq!(scenario.completions(), [1, 2].map(|token| (token, Err(LOST))));
        assert_eq!(scenario.add_watch_at_a(3), usize::from(!is_keeper));
        let refused = [(3, UNSUPPORTED)];
        assert_eq!(scenario.completions(), refused[..usize::from(is_keeper)]);
        assert!(scenario.machine.lease().unwrap().lacks(OpCode::AddWatch));
        if !is_keeper {
            scenario.cut();
            scenario.next_session(8, false);
            assert!(!scenario.machine.lease().unwrap().lacks(OpCode::AddWatch));
        }
    }
}

/// The end of a connection shows nothing of a request that was not sent.
#[test]
fn an_operation_that_was_not_sent_is_not_missing() {
    let config = config().with_when_full(WhenFull::Wait).with_max_requests(1);
    let mut scenario = Scenario::connected_with(config);
    scenario.send_get("/b", 1);
    assert_eq!(scenario.add_watch_at_a(2), 0);
    scenario.cut();
    scenario.resume();
    scenario.cut();
    assert_eq!(scenario.missing_operations(), [""; 0]);
}

/// The first reply of a long pipeline is the refusal; the connection ends behind it.
// Case (Found in docent itself): of more than 64 requests in flight, a refusal of the first was not
// found: a server that lacked the operation was asked again after each reconnect.
#[test]
fn the_first_refusal_of_many_requests_is_found() {
    let mut scenario = Scenario::connected();
    for token in 0..200 {
        assert_eq!(scenario.who_am_i(token), 1);
    }
    let first = scenario.wire[scenario.wire.len() - 200].0;
    scenario.reply(first, -1, ErrorCode::Unimplemented, b"");
    scenario.cut();
    assert_eq!(scenario.missing_operations(), ["whoAmI 0x7"]);
    scenario.resume();
    assert_eq!(scenario.who_am_i(200), 0);
}

/// Only requests without a reply are remembered.
#[test]
fn a_refusal_behind_many_replies_is_found() {
    let mut scenario = Scenario::connected();
    for token in 0..200 {
        assert_eq!(scenario.who_am_i(token), 1);
        scenario.reply_to_last(1, ErrorCode::NoNode);
    }
    assert_eq!(scenario.who_am_i(200), 1);
    scenario.refuse_last();
    assert_eq!(scenario.missing_operations(), ["whoAmI 0x7"]);
}

/// In a rolling upgrade, the next server of the session may know the operation.
#[test]
fn a_refused_operation_is_sent_again_after_a_later_reconnect() {
    let mut scenario = Scenario::connected();
    assert_eq!(scenario.who_am_i(1), 1);
    scenario.refuse_last();
    scenario.resume();
    for _ in 0..70 {
        scenario.wait_and_flush(ms(1000));
        if scenario.last_xid() == xid::PING {
            scenario.reply_to_last(60, ErrorCode::Ok);
        }
    }
    assert_eq!(scenario.who_am_i(2), 0, "without another reconnect, it is the same server");
    scenario.cut();
    scenario.resume();
    assert_eq!(scenario.who_am_i(3), 1);
}

/// The event of a watch that stays on the server finds no watcher, which costs less than a connection.
// Case (Found in docent itself): each watcher that was dropped or removed cost a connection on
// ZooKeeper 3.4, which has no removeWatches.
#[test]
fn no_watch_is_removed_from_a_server_that_cannot() {
    let mut scenario = Scenario::connected();
    for token in [1, 2] {
        let path = format!("/{token}");
        scenario.send_watch(WatchKind::Data, &path, token);
        scenario.reply_to_last(50, ErrorCode::Ok);
    }
    scenario.completions();
    for (token, sent) in [(1, 1), (2, 0)] {
        let (now, before) = (scenario.now, scenario.wire.len());
        scenario.machine.remove_watch(&format!("/{token}"), &token, Some(token), || now);
        scenario.flush();
        assert_eq!(scenario.wire.len() - before, sent);
        if sent == 1 {
            scenario.reply_to_last(-1, ErrorCode::Unimplemented);
        }
    }
    let done: Vec<_> =
        scenario.completions().into_iter().map(|(token, done)| (token, done.is_ok())).collect();
    assert_eq!(done, [(1, true), (2, true)]);
    assert_eq!(scenario.machine.watches(), 0);
}
