//! The return to a better server, and the reconnect on request.

use super::*;
use crate::machine::ServerStatus;

const WITHIN: Duration = ms(10_000);

const NAMES: [&str; 3] = ["one", "two", "three"];

fn three() -> Config {
    let servers = NAMES.map(|name| format!("{name}:1")).join(",");
    config().with_connect_string(servers.parse().unwrap()).with_failback(WITHIN)
}

fn status(connections: u32, zxid: i64, mode: &str) -> Option<ServerStatus> {
    let reply = format!(
        "Zookeeper version: 3.9.5-0\nConnections: {connections}\nZxid: {zxid:#x}\nMode: {mode}\n"
    );
    ServerStatus::parse(reply.as_bytes())
}

fn serves(connections: u32) -> Option<ServerStatus> {
    status(connections, i64::MAX, "follower")
}

impl Scenario {
    fn server_name(&self) -> String {
        self.machine.server().expect("a connection").name.clone()
    }

    fn ask_to_move(&mut self, token: u32) {
        let now = self.now;
        self.machine.reconnect(token, now);
    }

    /// The number of the connection, and the servers that are asked for their status.
    fn asked(&mut self) -> (u64, Vec<String>) {
        let mut number = 0;
        let mut hosts = self.events(|event| match event {
            Event::ProbeStatus(host, connection) => {
                number = connection;
                Some(host.name)
            }
            _ => None,
        });
        hosts.sort();
        (number, hosts)
    }

    /// Waits until the servers are asked for their status, while pings are answered; `None` if they are not asked within
    /// the interval.
    fn wait_for_survey(&mut self) -> Option<u64> {
        let end = self.now + WITHIN;
        while self.now < end {
            self.wait_and_flush(ms(100));
            if self.machine.connection.has_pings() {
                self.reply(xid::PING, 5, ErrorCode::Ok, b"");
            }
            let (number, asked) = self.asked();
            if !asked.is_empty() {
                assert_eq!(asked, ["one", "three", "two"]);
                return Some(number);
            }
        }
        None
    }

    /// Like [`wait_for_survey`](Self::wait_for_survey), for as many intervals as it takes.
    fn wait_for_next_survey(&mut self) -> u64 {
        std::iter::from_fn(|| Some(self.wait_for_survey())).take(20).flatten().next().unwrap()
    }

    fn status(&mut self, number: u64, name: &str, status: Option<ServerStatus>) {
        self.machine.handle_status(self.now, number, &host(name), status);
    }

    fn statuses(&mut self, number: u64, statuses: [Option<ServerStatus>; 3]) {
        for (name, status) in NAMES.into_iter().zip(statuses) {
            self.status(number, name, status);
        }
    }

    /// All servers answer that they serve.
    fn all_serve(&mut self) {
        let (number, _) = self.asked();
        self.statuses(number, [serves(1); 3]);
    }

    /// Waits for a survey, to which all servers answer that they serve.
    fn find_all_serving(&mut self) {
        let number = self.wait_for_survey().unwrap();
        self.statuses(number, [serves(1); 3]);
    }

    /// A machine that prefers the first server, has lost its connection to it, and is connected to another one.
    fn away() -> Self {
        let mut scenario = Self::new(three());
        scenario.machine.set_costs(NAMES.map(|name| (host(name), u64::from(name != "one"))));
        scenario.resume();
        assert_eq!(scenario.server_name(), "one");
        scenario.cut_and_resume();
        assert_ne!(scenario.server_name(), "one");
        assert_eq!(scenario.states().len(), 3);
        scenario
    }
}

// Case (The right server, 1): after a failover, a client stays at its second choice for ever.
#[test]
fn a_client_returns_to_a_better_server_and_loses_nothing() {
    let mut scenario = Scenario::away();
    let number = scenario.wait_for_survey().expect("a survey in time");
    scenario.send_get("/a", 1);
    let last = scenario.xids().len();
    scenario.statuses(number, [serves(1); 3]);
    scenario.send_get("/b", 2);
    assert!(!scenario.is_broken(), "a request is in flight");
    assert_eq!(scenario.xids().len(), last, "nothing more is sent");
    scenario.reply_to_last(5, ErrorCode::Ok);
    assert!(scenario.is_broken());
    scenario.cut_and_resume();
    assert_eq!(scenario.server_name(), "one");
    let (_, handshake) = &scenario.wire[last];
    assert!(handshake.contains("session_id: 0x7"), "{handshake}");
    scenario.reply_to_last(6, ErrorCode::Ok);
    assert_eq!(scenario.completions(), [(1, Ok(5)), (2, Ok(6))]);
    assert_eq!(scenario.states(), []);
    let metrics = scenario.machine.metrics();
    assert_eq!((metrics.moves, metrics.failed_moves, metrics.sessions), (1, 0, 1));
    assert_eq!(metrics.server, Some(host("one")));
}

#[test]
fn a_server_that_is_not_reached_is_left_for_the_one_before_without_a_state() {
    let mut scenario = Scenario::away();
    let before = scenario.server_name();
    scenario.find_all_serving();
    scenario.cut();
    for name in ["one", &before] {
        let (next, deadline) = scenario.attempt_at_once();
        assert_eq!(next.name, name);
        assert_eq!(deadline, scenario.now + scenario.machine.timeouts().reattach);
        if name == "one" {
            scenario.cut();
        }
    }
    assert_eq!(scenario.states(), []);
    // The return fails too.
    scenario.cut();
    assert_eq!(scenario.states(), [ConnectionState::Suspended]);
    let metrics = scenario.machine.metrics();
    assert_eq!((metrics.moves, metrics.failed_moves), (0, 1));
}

/// The other server is not reached, or knows nothing of a session that is local to the one that was left.
// Case (Found in docent itself): each move of a client whose session was local (ZOOKEEPER-1147) lost the session.
#[test]
fn a_return_that_succeeds_is_no_move_and_no_loss() {
    for is_reached in [false, true] {
        let mut scenario = Scenario::away();
        let before = scenario.server_name();
        scenario.find_all_serving();
        scenario.cut();
        if is_reached {
            scenario.connect();
            scenario.refuse();
            assert!(scenario.is_broken());
        } else {
            scenario.machine.poll_connect(scenario.now);
        }
        scenario.cut_and_resume();
        has_returned(scenario, &before);
    }
}

/// A session that no server knows has ended; this is found out by the server that was left.
#[test]
fn a_session_that_has_ended_before_its_move_is_lost() {
    let mut scenario = Scenario::away();
    scenario.find_all_serving();
    for expected in [&[][..], &[ConnectionState::Lost]] {
        scenario.cut_and_connect();
        scenario.refuse();
        assert_eq!(scenario.states(), expected);
    }
}

fn has_returned(mut scenario: Scenario, before: &str) {
    assert_eq!(scenario.server_name(), before);
    assert_eq!(scenario.states(), []);
    let metrics = scenario.machine.metrics();
    assert_eq!((metrics.moves, metrics.failed_moves), (0, 1));
    scenario.wait_for_next_survey();
}

#[test]
fn a_move_whose_requests_have_no_reply_is_given_up() {
    let mut scenario = Scenario::away();
    let number = scenario.wait_for_survey().unwrap();
    scenario.send_get("/slow", 1);
    scenario.statuses(number, [serves(1); 3]);
    scenario.wait(scenario.machine.timeouts().reattach);
    assert!(!scenario.is_broken());
    scenario.read("/a", 2, 5);
    assert_eq!(scenario.machine.metrics().failed_moves, 1);
}

#[test]
fn no_client_moves_to_a_server_that_does_not_serve_or_without_all_answers() {
    let mut scenario = Scenario::away();
    let number = scenario.wait_for_survey().unwrap();
    scenario.status(number, "one", None);
    scenario.status(number, "two", serves(1));
    scenario.status(number - 1, "one", serves(1));
    assert!(!scenario.is_broken());
    scenario.status(number, "three", serves(1));
    assert!(!scenario.is_broken(), "the best server does not serve");

    // An answer that the driver does not pass on only delays the decision.
    let number = scenario.wait_for_survey().unwrap();
    scenario.status(number, "one", serves(1));
    assert!(!scenario.is_broken());
    scenario.wait(ms(2_000));
    assert!(scenario.is_broken());
}

// Case (The right server, 3): a move to another server loses the session of a Keeper.
#[test]
fn no_client_moves_between_keepers() {
    let keeper = b"ClickHouse Keeper version: v24.8\nConnections: 1\nMode: leader\n";
    let keeper = ServerStatus::parse(keeper);
    let mut scenario = Scenario::away();
    let number = scenario.wait_for_survey().unwrap();
    scenario.statuses(number, [keeper; 3]);
    assert!(!scenario.is_broken());
    assert_eq!(scenario.wait_for_survey(), None, "asks once");
    scenario.ask_to_move(1);
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::Unimplemented))]);

    let mut scenario = Scenario::away();
    scenario.ask_to_move(1);
    let (number, _) = scenario.asked();
    scenario.statuses(number, [keeper; 3]);
    assert!(!scenario.is_broken());
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::Unimplemented))]);
}

#[test]
fn no_client_moves_while_holds_renew_their_bound() {
    let mut scenario = Scenario::away();
    let now = scenario.now;
    scenario.machine.reattach(now);
    assert!(!scenario.is_broken(), "the connection is young");
    let asked_from = scenario.now + scenario.machine.timeouts().session;
    while scenario.wait_for_survey().is_none() {}
    assert!(scenario.now > asked_from);

    let number = scenario.machine.metrics().connections;
    let now = scenario.now;
    scenario.machine.reattach(now);
    scenario.machine.cancel_migration();
    scenario.statuses(number, [serves(1); 3]);
    assert!(!scenario.is_broken(), "begun while the servers were asked");
}

#[test]
fn without_the_setting_no_server_is_asked() {
    let mut scenario = Scenario::new(three().with_failback(None));
    scenario.machine.set_costs(NAMES.map(|name| (host(name), u64::from(name == "one"))));
    scenario.resume();
    assert_eq!(scenario.wait_for_survey(), None);
    let mut scenario = Scenario::connected_with(config().with_failback(WITHIN));
    assert_eq!(scenario.wait_for_survey(), None, "the only server");
}

/// Whether a client of the first server moves, for each of these seeds, and where to.
fn moved(connections: [u32; 3]) -> Vec<Option<String>> {
    let clients = (0..240).filter_map(|seed| {
        let mut scenario = Scenario::new(three());
        scenario.machine = Session::new(three(), seed);
        scenario.resume();
        if scenario.server_name() != "one" {
            return None;
        }
        let number = scenario.wait_for_survey().unwrap();
        scenario.statuses(number, connections.map(serves).map(|status| status));
        if !scenario.is_broken() {
            return Some(None);
        }
        scenario.cut_and_resume();
        Some(Some(scenario.server_name()))
    });
    clients.collect()
}

#[test]
fn clients_leave_a_server_with_too_many_connections_and_no_other() {
    for stays in [[100, 100, 100], [106, 97, 97], [90, 200, 10], [2, 1, 0], [0, 0, 0]] {
        assert!(moved(stays).iter().all(Option::is_none), "{stays:?}");
    }
    // 30 % of the clients of this server are too many: twice as many may go, to those that lack clients.
    let moved = moved([150, 120, 45]);
    let went = |name: &str| moved.iter().filter(|to| to.as_deref() == Some(name)).count();
    let (all, gone) = (moved.len(), went("three"));
    assert_eq!(went("two"), 0, "it has more than the mean");
    let share = 100 * gone / all;
    assert!((50..=70).contains(&share), "{gone} of {all}");
}

#[test]
fn of_better_servers_the_one_with_the_fewest_connections_is_chosen() {
    let mut scenario = Scenario::new(three());
    scenario.machine.set_costs(NAMES.map(|name| (host(name), 0)));
    scenario.resume();
    let worst = scenario.server_name();
    scenario.machine.set_costs(NAMES.map(|name| (host(name), u64::from(name == worst))));
    let number = scenario.wait_for_survey().unwrap();
    let others: Vec<_> = NAMES.into_iter().filter(|name| *name != worst).collect();
    scenario.status(number, &worst, serves(1));
    scenario.status(number, others[0], serves(70));
    scenario.status(number, others[1], serves(60));
    scenario.cut_and_resume();
    assert_eq!(scenario.server_name(), others[1]);
}

#[test]
fn a_reconnect_on_request_goes_to_the_best_server_or_the_same_one() {
    let mut scenario = Scenario::new(three().with_failback(None));
    scenario.resume();
    scenario.states();
    let first = scenario.server_name();
    scenario.ask_to_move(1);
    scenario.ask_to_move(2);
    let (number, asked) = scenario.asked();
    assert_eq!(asked.len(), 3, "one survey for both");
    scenario.statuses(number, [serves(1); 3]);
    assert!(scenario.is_broken());
    assert_eq!(scenario.completions(), []);
    scenario.cut_and_resume();
    assert_eq!(scenario.server_name(), first);
    assert_eq!(scenario.completions(), [(1, Ok(0)), (2, Ok(0))]);
    assert_eq!(scenario.machine.metrics().moves, 0, "not to another server");

    let costs = NAMES.map(|name| (host(name), u64::from(name == first)));
    scenario.machine.set_costs(costs);
    scenario.ask_to_move(3);
    scenario.all_serve();
    scenario.cut_and_resume();
    assert_ne!(scenario.server_name(), first);
    assert_eq!(scenario.completions(), [(3, Ok(0))]);
    assert_eq!(scenario.machine.metrics().moves, 1);
    assert_eq!(scenario.states(), []);
}

#[test]
fn every_call_of_reconnect_ends() {
    let mut scenario = Scenario::new(three());
    scenario.ask_to_move(1);
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::ConnectionLoss))]);
    scenario.resume();

    // Requests in flight have no reply.
    scenario.send_get("/slow", 2);
    scenario.ask_to_move(3);
    scenario.all_serve();
    scenario.ask_to_move(4);
    scenario.wait(scenario.machine.timeouts().reattach);
    let kept = refused(ErrorKind::OperationTimeout);
    assert_eq!(scenario.completions(), [(3, kept), (4, kept)]);

    // The connection is lost meanwhile: the next connection completes the call.
    scenario.ask_to_move(5);
    scenario.cut_and_resume();
    assert_eq!(scenario.completions(), [(2, Err(LOST)), (5, Ok(0))]);

    // The session ends.
    scenario.ask_to_move(6);
    scenario.cut_and_connect();
    scenario.refuse();
    assert_eq!(scenario.completions(), [(6, refused(ErrorKind::SessionExpired))]);
    scenario.cut_and_resume();

    scenario.ask_to_move(7);
    scenario.close(8);
    assert_eq!(scenario.completions(), [(7, refused(ErrorKind::Closed))]);
    scenario.ask_to_move(9);
    assert_eq!(scenario.completions(), [(9, refused(ErrorKind::Closed))]);

    let mut scenario = Scenario::connected();
    scenario.ask_to_move(1);
    scenario.machine.abandon();
    assert_eq!(scenario.completions(), [(1, refused(ErrorKind::Closed))]);
}

#[test]
fn the_reconnect_of_a_renewal_answers_a_request_too() {
    let mut scenario = Scenario::connected();
    scenario.now += ms(2000);
    let now = scenario.now;
    scenario.machine.reattach(now);
    scenario.ask_to_move(1);
    assert_eq!(scenario.asked().1.len(), 0);
    scenario.cut_and_resume();
    assert_eq!(scenario.completions(), [(1, Ok(0))]);
}

// Case (Found in docent itself): a client moved while its lease was too short for a move that fails.
#[test]
fn no_client_moves_while_its_lease_is_short() {
    // A sixth of this timeout is less than the least time of an attempt.
    for (time_out, moves) in [(300, false), (6000, true)] {
        let mut scenario = Scenario::connected_for(three(), time_out);
        assert_eq!(scenario.wait_for_survey().is_some(), moves, "{time_out}");
    }
}

// Case (Found in docent itself): a server without a reply to `srvr` counted as a follower for ever.
#[test]
fn a_role_is_taken_from_a_reply_only() {
    let mut scenario = Scenario::new(three().with_direct_servers(true));
    scenario.resume();
    let own = scenario.server_name();
    for (reply, leads) in [(None, false), (status(1, 5, "leader"), true)] {
        let number = scenario.wait_for_survey().unwrap();
        scenario.status(number, &own, reply);
        assert_eq!(scenario.machine.is_at_leader(), leads);
        scenario.wait(ms(2_000));
    }
}

// Case (Found in docent itself): a client left its server for one that was behind the last zxid it had seen, and that closed
// the handshake.
#[test]
fn no_client_moves_to_a_server_that_lags_behind() {
    let mut scenario = Scenario::away();
    scenario.read("/a", 1, 0x50);
    for (zxid, moves) in [(0x4f, false), (0x50, true)] {
        let number = scenario.wait_for_survey().unwrap();
        // Later replies prove nothing about the answers.
        scenario.read("/a", 2, 0x60);
        scenario.machine.last_zxid = 0x60;
        scenario.statuses(number, [status(1, zxid, "follower"), serves(1), serves(1)]);
        assert_eq!(scenario.is_broken(), moves, "{zxid:#x}");
        scenario.machine.last_zxid = 0x50;
    }
}

// Case (Found in docent itself): a client tried a move that failed again in each interval.
// Case (Found in docent itself): after a move that succeeded, the next look at the servers was still as late as failed
// moves before it had made it, up to 16 intervals.
#[test]
fn surveys_are_rarer_after_each_failed_move() {
    for is_ended_by_move in [false, true] {
        let mut scenario = Scenario::away();
        let mut longest = Duration::ZERO;
        for failed in 1..=8 {
            let before = scenario.now;
            let number = scenario.wait_for_next_survey();
            longest = scenario.now - before;
            let most = WITHIN * (1 << (failed - 1_u32).min(4));
            assert!(longest >= most / 2 && longest <= most + ms(100), "{failed}: {longest:?}");
            scenario.statuses(number, [serves(1); 3]);
            scenario.cut();
            scenario.machine.poll_connect(scenario.now);
            scenario.cut_and_resume();
            assert_eq!(scenario.machine.metrics().failed_moves, failed.into());
        }
        assert!(longest >= WITHIN * 8);

        // A new connection ends the longer intervals, be it that of a move.
        if is_ended_by_move {
            let number = scenario.wait_for_next_survey();
            scenario.statuses(number, [serves(1); 3]);
        }
        scenario.cut_and_resume();
        assert_eq!(scenario.machine.metrics().moves, is_ended_by_move.into());
        assert!(scenario.wait_for_survey().is_some(), "{is_ended_by_move}");
    }
}

// Case (Found in docent itself): a reconnect on request that joined a migration waited without a limit.
#[test]
fn a_reconnect_that_joins_a_migration_ends_in_time() {
    let migrated = |scenario: &mut Scenario| {
        scenario.machine.update_server_list(&[host("four")]);
    };
    let kept = refused(ErrorKind::OperationTimeout);
    for migrates_first in [true, false] {
        let mut scenario = Scenario::new(three());
        scenario.resume();
        scenario.send_get("/slow", 1);
        if migrates_first {
            migrated(&mut scenario);
            scenario.ask_to_move(2);
        } else {
            scenario.ask_to_move(2);
            let (number, _) = scenario.asked();
            migrated(&mut scenario);
            scenario.statuses(number, [serves(1); 3]);
        }
        scenario.ask_to_move(3);
        let reattach = scenario.machine.timeouts().reattach;
        scenario.wait(reattach - ms(1));
        assert_eq!(scenario.completions(), []);
        scenario.wait(ms(1));
        assert_eq!(scenario.completions(), [(2, kept), (3, kept)]);
        // The migration goes on.
        scenario.reply_to_last(5, ErrorCode::Ok);
        assert!(scenario.is_broken());
    }
    // The new list lacks the server that the client is about to leave.
    let mut scenario = Scenario::new(three());
    scenario.resume();
    scenario.send_get("/slow", 1);
    scenario.ask_to_move(2);
    scenario.all_serve();
    migrated(&mut scenario);
    scenario.wait(scenario.machine.timeouts().reattach);
    assert_eq!(scenario.completions(), [(2, kept)]);
    scenario.reply_to_last(5, ErrorCode::Ok);
    assert!(scenario.is_broken());
}

// Case (Found in docent itself): a server of a planned move that refused SASL ended the client, which the server before had
// accepted.
#[cfg(feature = "sasl")]
#[test]
fn a_server_of_a_move_that_refuses_the_user_is_left() {
    let mut scenario = Scenario::new(three().with_sasl("bob", "pw"));
    scenario.machine.set_costs(NAMES.map(|name| (host(name), u64::from(name == "one"))));
    scenario.resume();
    scenario.authenticate();
    let before = scenario.server_name();
    scenario.machine.set_costs(NAMES.map(|name| (host(name), u64::from(name == before))));
    scenario.states();
    scenario.find_all_serving();
    scenario.cut_and_resume();
    scenario.refuse_sasl();
    assert!(!scenario.machine.is_ended());
    assert!(scenario.is_broken());
    scenario.cut_and_resume();
    scenario.authenticate();
    assert_eq!(scenario.server_name(), before);
    assert_eq!(scenario.states(), []);
    assert_eq!(scenario.machine.metrics().failed_moves, 1);
}

// Case (Found in docent itself): a server that was listed twice was asked twice, and its answer counted as one of two: a
// reconnect took two seconds.
#[test]
fn a_server_that_is_listed_twice_is_asked_once() {
    let servers = "one:1,two:1,one:1".parse().unwrap();
    let mut scenario = Scenario::new(config().with_connect_string(servers));
    scenario.resume();
    scenario.ask_to_move(1);
    let (number, asked) = scenario.asked();
    assert_eq!(asked, ["one", "two"]);
    scenario.status(number, "one", serves(1));
    assert!(!scenario.is_broken());
    scenario.status(number, "two", serves(1));
    assert!(scenario.is_broken(), "all have answered");
}
