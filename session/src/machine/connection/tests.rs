//! Random sequences of calls, compared with a model that keeps every ping and counts every byte.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::machine::connect_string::DEFAULT_PORT;

#[derive(Debug, Clone)]
enum Op {
    Wait(u16),
    /// To the next phase of an attempt.
    Proceed,
    /// Handles the timer that is due next, when it is due.
    Timer,
    /// This number of pings, one after the other.
    Ping(u8),
    AnswerPing,
    Heard,
    Write,
    /// A reply above the limit, and the part of it that has arrived.
    Skip(u8, u8),
    Input(u8),
    ReadOnly(bool),
    Migrate,
    GiveUp,
    Disconnect,
    End,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..3000_u16).prop_map(Op::Wait),
        8 => Just(Op::Proceed),
        4 => Just(Op::Timer),
        3 => (1..50_u8).prop_map(Op::Ping),
        8 => Just(Op::AnswerPing),
        3 => Just(Op::Heard),
        2 => Just(Op::Write),
        2 => any::<(u8, u8)>().prop_map(|(len, arrived)| Op::Skip(len, arrived)),
        2 => any::<u8>().prop_map(Op::Input),
        1 => any::<bool>().prop_map(Op::ReadOnly),
        1 => Just(Op::Migrate),
        1 => Just(Op::GiveUp),
        2 => Just(Op::Disconnect),
    ]
}

const MS: Duration = Duration::from_millis(1);

/// The state that the connection has to keep, in the plainest form.
#[derive(Debug, Default)]
struct Model {
    /// The unanswered pings, and whether the answer to each has to be dated: the first ones, up to the limit.
    pings: VecDeque<(Instant, bool)>,
    sent: Instant,
    heard: Instant,
    to_skip: usize,
    failures: usize,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// A timer is due exactly from the instant that was announced for it; the answer to a ping is dated by that ping or
    /// not at all; a connection leaves nothing to the next one.
    #[test]
    fn timers_pings_and_skipped_bytes_are_those_of_this_connection(
        ops in vec(op(), 0..80),
        ends in any::<bool>(),
    ) {
        let timeouts = Timeouts::new(MS * 6000, 1, 100);
        let host = Host { name: "one".into(), port: DEFAULT_PORT };
        let mut connection = Connection::new();
        let mut model = Model::default();
        let mut now = Instant::ZERO + MS;
        let last = ends.then_some(Op::End);
        for op in ops.into_iter().chain(last) {
            let silent_at = connection.silent_at(&timeouts);
            let connected = connection.is_connected();
            match op {
                Op::Wait(millis) => now += MS * u32::from(millis),
                Op::Proceed => match connection.phase() {
                    Phase::Disconnected => connection.connect(host.clone(), now + MS * 2000),
                    Phase::Connecting { .. } => {
                        prop_assert!(connection.begin_handshake(now).is_some_and(|out| out.is_empty()));
                        (model.sent, model.heard) = (now, now);
                    }
                    Phase::Handshaking { .. } => connection.admit(),
                    _ => prop_assert!(connection.begin_handshake(now).is_none()),
                },
                Op::Timer => {
                    let Some(at) = connection.next_timeout(timeouts.ping, silent_at) else { continue };
                    now = now.max(at);
                    match connection.due(now, timeouts.ping, silent_at) {
                        Some(Due::Ping) => {
                            prop_assert!(connected && silent_at > now);
                            connection.ping(now);
                            model.ping(now);
                            // Pings alone never postpone the end of a silent connection.
                            let next = connection.next_timeout(timeouts.ping, silent_at).unwrap();
                            prop_assert!(next > now && next <= silent_at);
                        }
                        Some(_) => {
                            connection.give_up("a timer");
                            model.failures += 1;
                        }
                        None => prop_assert!(false, "nothing is due at the announced instant"),
                    }
                }
                Op::Ping(count) if connected => {
                    for _ in 0..count {
                        now += MS;
                        connection.ping(now);
                        model.ping(now);
                    }
                }
                Op::AnswerPing if connected => {
                    let (sent_at, is_dated) = model.pings.pop_front().unwrap_or_default();
                    prop_assert_eq!(connection.answer_ping(), is_dated.then_some(sent_at));
                }
                Op::Heard if connected => {
                    connection.note_heard(now);
                    model.heard = now;
                }
                Op::Write if connected => {
                    connection.control_mut().clear();
                    connection.note_sent(now);
                    model.sent = now;
                }
                Op::Skip(len, arrived) if connected && model.to_skip == 0 => {
                    connection.begin_skip(len.into());
                    model.to_skip = len.into();
                    model.input(&mut connection, arrived)?;
                }
                Op::Input(len) if connected => model.input(&mut connection, len)?,
                Op::ReadOnly(read_only) if connected => {
                    connection.set_read_only(now, read_only);
                    prop_assert_eq!(connection.is_read_only(), read_only);
                }
                Op::Migrate if connected => connection.migrate(),
                Op::GiveUp => {
                    connection.give_up(format_args!("failure {}", model.failures));
                    model.failures += 1;
                }
                Op::Disconnect => {
                    connection.disconnect();
                    prop_assert!(connection.is_disconnected());
                    model = Model { sent: model.sent, heard: model.heard, ..Model::default() };
                }
                Op::End => {
                    connection.end(ErrorKind::Closed);
                    connection.disconnect();
                    prop_assert_eq!(connection.ended(), Some(ErrorKind::Closed), "the end is final");
                    prop_assert!(connection.begin_handshake(now).is_none());
                    prop_assert_eq!(connection.next_timeout(timeouts.ping, silent_at), None);
                    model = Model { sent: model.sent, heard: model.heard, ..Model::default() };
                }
                _ => {}
            }
            connection.check();
            prop_assert_eq!(connection.failure().is_some(), model.failures > 0);
            prop_assert_eq!((connection.last_sent, connection.last_heard), (model.sent, model.heard));
            let silent_at = connection.silent_at(&timeouts);
            prop_assert_eq!(silent_at, model.heard + timeouts.read);
            match connection.next_timeout(timeouts.ping, silent_at) {
                Some(at) => {
                    prop_assert!(connection.due(at, timeouts.ping, silent_at).is_some());
                    let before = Instant::from_nanos(at.as_nanos() - 1);
                    prop_assert_eq!(connection.due(before, timeouts.ping, silent_at), None);
                }
                None => prop_assert!(connection.is_disconnected() || connection.ended().is_some()),
            }
        }
    }
}

impl Model {
    fn ping(&mut self, now: Instant) {
        self.sent = now;
        let dated = self.pings.iter().filter(|(_, is_dated)| *is_dated).count();
        let is_dated = dated < MAX_PINGS && dated == self.pings.len();
        self.pings.push_back((now, is_dated));
    }

    /// `len` bytes arrive.
    fn input(&mut self, connection: &mut Connection, len: u8) -> Result<(), TestCaseError> {
        let len = usize::from(len);
        let mut input = BytesMut::zeroed(len);
        let all = connection.skip(&mut input);
        let skipped = len.min(self.to_skip);
        self.to_skip -= skipped;
        prop_assert_eq!((input.len(), all), (len - skipped, self.to_skip == 0));
        prop_assert_eq!(connection.is_skipping(), !all);
        connection.note_partial(&input);
        prop_assert!(!connection.has_grown(&input));
        input.extend_from_slice(b"x");
        prop_assert!(connection.has_grown(&input));
        Ok(())
    }
}
