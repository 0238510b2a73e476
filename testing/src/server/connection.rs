//! A connection: decodes bytes into frames, and encodes frames into bytes.
//!
//! `handshake.rs` and `requests.rs` interpret the frames.

use std::{collections::VecDeque, net::IpAddr, sync::Arc};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use docent_protocol::{
    Encode, ErrorCode, EventType, KeeperState, OpCode, Text, WatcherEvent, frame,
    reply::ReplyHeader, xid,
};

use super::{acl::Ident, messages::Waiting};

/// The word that is followed by an eight-byte mask.
pub(crate) const SET_TRACE_MASK: [u8; 4] = *b"stmk";

/// The default trace mask, which `gtmk` shows until `stmk` sets another.
///
/// Source: `ZooTrace.traceMask`: client requests, session and warning traces, and server packets.
pub(crate) const TRACE_MASK: u64 = 306;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No complete frame or word has been received yet.
    Greeting,
    /// The handshake waits for the leader. The client's requests wait, too.
    Joining,
    /// The connection has a session.
    Open { session_id: i64 },
    /// The session was refused; the connection stays open but receives no more replies. (Read-only servers since
    /// 3.7.)
    Ignored,
    /// Ends once the pending output has been sent.
    Closing,
}

/// An input at the front of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The payload of a frame.
    Frame(Bytes),
    /// A four-letter word, with the mask that follows `stmk`.
    Word([u8; 4], u64),
    /// An incomplete input.
    Partial,
    /// An invalid frame length.
    Broken,
}

/// Statistics of a connection, for four-letter words. Instants are milliseconds since the creation of the machine.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// When the connection was accepted.
    pub(crate) since: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) last_op: Option<OpCode>,
    pub(crate) last_xid: i32,
    pub(crate) last_zxid: i64,
    /// When the last frame was received.
    pub(crate) last_at: u64,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) member: usize,
    pub(crate) peer: IpAddr,
    pub(crate) counts: Counts,
    /// Frames queued since the member last counted them.
    pub(crate) unsent: u64,
    pub(crate) state: State,
    /// The negotiated session timeout, in milliseconds.
    pub(crate) timeout: u64,
    /// The requests without a reply, in order. Empty unless one of them waits for the leader.
    pub(super) waiting: VecDeque<Waiting>,
    /// Whether the client has closed the connection and the server has not noticed yet.
    pub(crate) is_abandoned: bool,
    /// The authenticated ids; the address comes first.
    pub(crate) ids: Arc<[Ident]>,
    /// The state of the SASL exchange.
    #[cfg(feature = "sasl")]
    pub(crate) sasl: super::sasl::Exchange,
    pub(crate) output: BytesMut,
    input: BytesMut,
    /// Whether the input has used more than [`KEPT`] since it was last empty.
    is_input_large: bool,
    /// Whether requests wait until the client has read, or until others have replies.
    pub(super) is_held_back: bool,
    /// The session that it had when it was closed.
    pub(super) left: Option<i64>,
    max_buffer: usize,
    /// The longest frame that can be sent, in bytes.
    max_frame: usize,
}

/// The most memory that an idle connection keeps in each direction, in bytes.
pub(super) const KEPT: usize = 64 * 1024;

/// The pending output at which a connection is cut because its client does not read, in bytes.
pub(super) const OUTPUT_LIMIT: usize = 256 << 20;

/// The pending output above which the server handles no further request of the client, in bytes.
const OUTPUT_HIGH: usize = 8 << 20;

/// The number of waiting requests above which the server handles no further one of the client.
///
/// Source: `zookeeper.globalOutstandingLimit`.
const WAITING_HIGH: usize = 1000;

impl Connection {
    pub(crate) fn new(member: usize, peer: IpAddr, max_buffer: usize) -> Self {
        Self {
            member,
            peer,
            counts: Counts::default(),
            unsent: 0,
            state: State::Greeting,
            timeout: 0,
            waiting: VecDeque::new(),
            is_abandoned: false,
            ids: Arc::from([Ident::new("ip", &peer.to_string())]),
            #[cfg(feature = "sasl")]
            sasl: super::sasl::Exchange::default(),
            output: BytesMut::new(),
            input: BytesMut::new(),
            is_input_large: false,
            is_held_back: false,
            left: None,
            max_buffer,
            max_frame: i32::MAX as usize,
        }
    }

    pub(crate) const fn session_id(&self) -> Option<i64> {
        match self.state {
            State::Open { session_id, .. } => Some(session_id),
            _ => None,
        }
    }

    pub(crate) fn take_input(&mut self, bytes: &[u8]) {
        if !matches!(self.state, State::Closing | State::Ignored) {
            self.input.extend_from_slice(bytes);
            self.is_input_large |= self.input.len() > KEPT;
        }
    }

    /// Takes the next input from the received bytes. Only bytes that were received are buffered, whatever length a
    /// frame announces.
    pub(crate) fn next_input(&mut self) -> Input {
        if matches!(self.state, State::Closing | State::Ignored) {
            self.input.clear();
            return Input::Partial;
        }
        let Some(&start) = self.input.first_chunk::<{ frame::LENGTH_SIZE }>() else {
            if std::mem::take(&mut self.is_input_large) {
                // The rest moves to a buffer of its own size, and the large one is freed.
                self.is_input_large = self.input.len() > KEPT;
                self.input = BytesMut::from(&self.input[..]);
            }
            return Input::Partial;
        };
        if self.state == State::Greeting && start.iter().all(u8::is_ascii_lowercase) {
            if start != SET_TRACE_MASK {
                return Input::Word(start, 0);
            }
            let mask = self.input.get(start.len()..).and_then(<[u8]>::first_chunk);
            return mask
                .map_or(Input::Partial, |mask| Input::Word(start, u64::from_be_bytes(*mask)));
        }
        let Some(len) = usize::try_from(i32::from_be_bytes(start)).ok() else {
            return Input::Broken;
        };
        if len > self.max_buffer {
            return Input::Broken;
        }
        if self.input.len() < frame::LENGTH_SIZE + len {
            return Input::Partial;
        }
        self.input.advance(frame::LENGTH_SIZE);
        Input::Frame(self.input.split_to(len).freeze())
    }

    /// Whether its output is short enough for another reply.
    pub(super) fn has_room(&self) -> bool {
        self.output.len() < OUTPUT_HIGH
    }

    /// Whether further requests are handled.
    pub(super) fn is_read(&self) -> bool {
        self.has_room() && self.waiting.len() < WAITING_HIGH
    }

    /// Closes the connection without a reply.
    pub(crate) fn close(&mut self) {
        self.left = self.session_id().or(self.left);
        self.state = State::Closing;
        self.waiting.clear();
    }

    const fn count_sent(&mut self) {
        self.counts.sent += 1;
        self.unsent += 1;
    }

    /// Resets the statistics.
    pub(crate) fn reset_counts(&mut self) {
        self.counts = Counts { since: self.counts.since, ..Counts::default() };
    }

    /// Adds an authenticated id.
    pub(crate) fn add_identity(&mut self, id: Ident) {
        if !self.ids.contains(&id) {
            self.ids = self.ids.iter().cloned().chain([id]).collect();
        }
    }

    /// Queues a frame with a single record, such as those of the handshake.
    pub(crate) fn send(&mut self, record: &impl Encode) {
        self.put(|out| record.encode(out));
    }

    /// Queues a reply.
    pub(crate) fn reply(&mut self, xid: i32, zxid: i64, err: ErrorCode, body: &impl Encode) {
        if xid >= 0 {
            (self.counts.last_xid, self.counts.last_zxid) = (xid, zxid);
        }
        self.put(|out| {
            ReplyHeader { xid, zxid, err }.encode(out);
            body.encode(out);
        });
    }

    /// Queues a frame. A server does not limit its length, but it has to fit into the length field. If it does not, the
    /// connection is closed: a client that waited for it would wait for ever.
    fn put(&mut self, fill: impl FnOnce(&mut BytesMut)) {
        if self.state == State::Closing {
            return;
        }
        self.count_sent();
        if frame::put(&mut self.output, self.max_frame, fill).is_err() {
            self.close();
        }
    }

    /// Takes the queued output.
    pub(super) fn take_output(&mut self, out: &mut BytesMut) {
        if out.is_empty() {
            std::mem::swap(out, &mut self.output);
        } else {
            out.extend_from_slice(&self.output);
        }
        // A large buffer is not kept for later frames.
        let is_large = out.len() > KEPT || self.output.capacity() > KEPT;
        self.output.clear();
        if is_large {
            self.output = BytesMut::new();
        }
    }

    /// Queues a watch event.
    pub(crate) fn notify(&mut self, zxid: i64, event_type: EventType, path: &str) {
        let event =
            WatcherEvent { event_type, state: KeeperState::SyncConnected, path: Text::new(path) };
        self.reply(xid::NOTIFICATION, zxid, ErrorCode::Ok, &event);
    }

    /// Queues text, and ends the connection.
    pub(crate) fn say(&mut self, text: &str) {
        self.output.put_slice(text.as_bytes());
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        Connection::new(0, IpAddr::from([127, 0, 0, 1]), 16)
    }

    #[test]
    fn frames_come_whole_and_lengths_are_looked_at_first() {
        let mut c = connection();
        c.take_input(&[0, 0, 0, 2, 7]);
        assert_eq!(c.next_input(), Input::Partial);
        c.take_input(&[8, 0, 0, 0, 17]);
        assert_eq!(c.next_input(), Input::Frame(Bytes::from_static(&[7, 8])));
        assert_eq!(c.next_input(), Input::Broken);
        let mut c = connection();
        c.take_input(&[0xFF; 4]);
        assert_eq!(c.next_input(), Input::Broken);
    }

    /// Once a frame of 1 MB has been taken, the connection keeps none of its memory, even if another frame has begun.
    // Case (Found in docent itself): the embedded server: a connection kept the memory of its
    // largest frame, in each direction.
    #[test]
    fn an_input_that_was_large_gives_its_memory_back() {
        for rest in [&[][..], &[0, 0]] {
            let mut c = Connection::new(0, IpAddr::from([127, 0, 0, 1]), 1 << 20);
            c.take_input(&(1_000_000_u32).to_be_bytes());
            c.take_input(&vec![7; 1_000_000]);
            c.take_input(rest);
            let Input::Frame(frame) = c.next_input() else { panic!("no frame") };
            assert_eq!(c.next_input(), Input::Partial);
            assert!(frame.is_unique());
            assert!(c.input.capacity() <= KEPT, "{}", c.input.capacity());
        }
    }

    #[test]
    fn an_output_that_was_large_gives_its_memory_back() {
        for before in [&b""[..], b"before"] {
            let mut c = connection();
            let mut out = BytesMut::from(before);
            c.output.put_slice(&vec![7; 1_000_000]);
            c.take_output(&mut out);
            assert_eq!(out.len(), before.len() + 1_000_000);
            assert!(c.output.capacity() <= KEPT, "{}", c.output.capacity());
            // The caller's large buffer, which `take_output` swaps in, is not kept either.
            out.clear();
            c.output.put_slice(b"small");
            c.take_output(&mut out);
            assert!(c.output.capacity() <= KEPT, "{}", c.output.capacity());
        }
    }

    /// The client would wait for that reply for ever.
    // Case (Found in docent itself): the embedded server: a reply over 2 GiB was dropped, and its
    // client waited for ever; the watches of a connection that was cut for its unread events
    // stayed.
    #[test]
    fn a_reply_that_cannot_be_sent_closes_the_connection() {
        let mut c = connection();
        c.state = State::Open { session_id: 1 };
        c.max_frame = 100;
        c.reply(1, 1, ErrorCode::Ok, &docent_protocol::reply::EmptyReply {});
        let sent = c.output.len();
        let long = "x".repeat(100);
        let data = docent_protocol::reply::PathReply { path: Text::new(&long) };
        c.reply(2, 1, ErrorCode::Ok, &data);
        assert_eq!((c.state, c.left), (State::Closing, Some(1)));
        c.reply(3, 1, ErrorCode::Ok, &docent_protocol::reply::EmptyReply {});
        assert_eq!(c.output.len(), sent, "nothing follows");
    }

    /// Before the handshake these bytes are a word, after it a length.
    #[test]
    fn words_are_words_only_at_the_beginning() {
        let mut c = connection();
        c.take_input(b"ruok");
        assert_eq!(c.next_input(), Input::Word(*b"ruok", 0));
        let mut c = connection();
        c.take_input(b"stmk\0\0\0\0\0\0\x01");
        assert_eq!(c.next_input(), Input::Partial);
        c.take_input(b"\x32");
        assert_eq!(c.next_input(), Input::Word(*b"stmk", 306));
        let mut c = connection();
        c.state = State::Open { session_id: 1 };
        c.take_input(b"ruok");
        assert_eq!(c.next_input(), Input::Broken);
    }
}
