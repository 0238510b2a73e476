//! One connection: bytes in, frames out of them; frames in, bytes out of them.
//!
//! What the frames mean is decided elsewhere (`handshake.rs`, `requests.rs`).

use std::{net::IpAddr, sync::Arc};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use docent_protocol::{
    Encode, ErrorCode, EventType, KeeperState, Text, WatcherEvent, frame, reply::ReplyHeader, xid,
};

use super::acl::Ident;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing whole has come yet.
    Greeting,
    /// It has a session.
    Open { session_id: i64, local: bool },
    /// Was refused a session and is left open, and answered no more. (Read-only servers since 3.7.)
    Ignored,
    /// Ends when what is to be sent was sent.
    Closing,
}

/// What the first bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A frame's payload.
    Frame(Bytes),
    /// A four-letter word.
    Word([u8; 4]),
    /// Not all there yet.
    Partial,
    /// A length that no frame has.
    Broken,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) member: usize,
    pub(crate) state: State,
    /// Who it has proved to be; its address first.
    pub(crate) ids: Arc<[Ident]>,
    /// How far it has proved itself by SASL.
    #[cfg(feature = "sasl")]
    pub(crate) sasl: super::sasl::Exchange,
    pub(crate) output: BytesMut,
    input: BytesMut,
    max_buffer: usize,
}

impl Connection {
    pub(crate) fn new(member: usize, peer: IpAddr, max_buffer: usize) -> Self {
        Self {
            member,
            state: State::Greeting,
            ids: Arc::from([Ident::new("ip", &peer.to_string())]),
            #[cfg(feature = "sasl")]
            sasl: super::sasl::Exchange::default(),
            output: BytesMut::new(),
            input: BytesMut::new(),
            max_buffer,
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
        }
    }

    /// The next frame. At most the length and what came of it are kept.
    pub(crate) fn next_input(&mut self) -> Input {
        if matches!(self.state, State::Closing | State::Ignored) {
            self.input.clear();
            return Input::Partial;
        }
        let Some(&start) = self.input.first_chunk::<{ frame::LENGTH_SIZE }>() else {
            return Input::Partial;
        };
        if self.state == State::Greeting && start.iter().all(u8::is_ascii_lowercase) {
            return Input::Word(start);
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

    /// Ends it without a word.
    pub(crate) fn close(&mut self) {
        self.state = State::Closing;
    }

    /// Adds an id it has proved.
    pub(crate) fn prove(&mut self, id: Ident) {
        if !self.ids.contains(&id) {
            self.ids = self.ids.iter().cloned().chain([id]).collect();
        }
    }

    /// Queues a frame of one record, as the handshake's are.
    pub(crate) fn send(&mut self, record: &impl Encode) {
        put(&mut self.output, |out| record.encode(out));
    }

    /// Queues a reply.
    pub(crate) fn reply(&mut self, xid: i32, zxid: i64, err: ErrorCode, body: &impl Encode) {
        put(&mut self.output, |out| {
            ReplyHeader { xid, zxid, err }.encode(out);
            body.encode(out);
        });
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

/// A server does not limit what it sends; a frame over 2 GiB cannot be, for requests are limited.
fn put(out: &mut BytesMut, fill: impl FnOnce(&mut BytesMut)) {
    let _ = frame::put(out, i32::MAX as usize, fill);
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

    /// In front of a handshake it is a word, behind it a length.
    #[test]
    fn words_are_words_only_at_the_beginning() {
        let mut c = connection();
        c.take_input(b"ruok");
        assert_eq!(c.next_input(), Input::Word(*b"ruok"));
        let mut c = connection();
        c.state = State::Open { session_id: 1, local: false };
        c.take_input(b"ruok");
        assert_eq!(c.next_input(), Input::Broken);
    }
}
