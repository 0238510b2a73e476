//! What the server sends: frames, replies and their requests, events.

use std::{ops::Range, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use docent_protocol::{
    Decode, ErrorCode, OpCode, WatcherEvent, frame, jute::Reader, reply::ReplyHeader, xid,
};

use super::{Body, Event, Phase, Session, WatchedEvent};
use crate::{Error, ErrorKind, Outcome, time::Instant};

/// How many bytes a [`ReplyHeader`] has.
const HEADER_SIZE: usize = 16;

impl<T, W: Clone + PartialEq> Session<T, W> {
    /// Takes all whole frames off the front of what was read.
    ///
    /// When the bytes cannot be what a server sends, [`wants_disconnect`](Self::wants_disconnect) says so.
    pub fn handle_input(&mut self, now: Instant, input: &mut BytesMut) {
        if matches!(self.phase, Phase::Disconnected | Phase::Connecting { .. } | Phase::Ended) {
            // Of a connection that is no more; the next one begins with a frame of its own.
            return input.clear();
        }
        if input.is_empty() {
            return;
        }
        self.last_heard = now;
        while self.broken.is_none() && !self.is_ended() {
            let skipped = self.skip.min(input.len());
            input.advance(skipped);
            self.skip -= skipped;
            if self.skip > 0 {
                break;
            }
            let whole = self.whole_frames(input);
            if whole > 0 {
                self.metrics.bytes_received += whole as u64;
                self.receive_frames(now, &input.split_to(whole).freeze());
            } else if !self.receive_part(now, input) {
                break;
            }
        }
        self.note_answers(now);
    }

    /// How many bytes at the front are whole frames that are not over the limit.
    fn whole_frames(&self, input: &[u8]) -> usize {
        let mut rest = input;
        while let Ok(Some((_, tail))) = frame::split(rest, self.config.max_reply_bytes) {
            rest = tail;
        }
        input.len() - rest.len()
    }

    fn receive_frames(&mut self, now: Instant, frames: &Bytes) {
        let mut at = 0;
        while self.broken.is_none() && !self.is_ended() {
            let Some(Ok(Some(len))) = frames.get(at..).map(frame::length) else { return };
            let start = at + frame::LENGTH_SIZE;
            at = start + len;
            self.receive_frame(now, frames, start..at);
        }
    }

    /// Bytes that do not begin with a whole frame under the limit. Whether they were of use.
    fn receive_part(&mut self, now: Instant, input: &mut BytesMut) -> bool {
        let len = match frame::length(input) {
            Ok(Some(len)) if len > self.config.max_reply_bytes => len,
            Ok(_) => return false,
            Err(error) => {
                self.broken_stream(error);
                return false;
            }
        };
        if matches!(self.phase, Phase::Handshaking { .. }) {
            let front = input.get(..input.len().min(16)).unwrap_or_default();
            self.give_up(format_args!(
                "no ZooKeeper handshake: it begins with \"{}\"",
                front.escape_ascii()
            ));
            return false;
        }
        if input.len() < frame::LENGTH_SIZE + HEADER_SIZE {
            return false;
        }
        let Some(rest) = len.checked_sub(HEADER_SIZE) else {
            self.give_up(format_args!("a frame of {len} bytes"));
            return false;
        };
        input.advance(frame::LENGTH_SIZE);
        let header = input.split_to(HEADER_SIZE);
        self.skip = rest;
        self.metrics.bytes_received += (frame::LENGTH_SIZE + len) as u64;
        self.receive_too_large(now, &header, len);
        true
    }

    /// `place` is the payload's in `frames`.
    fn receive_frame(&mut self, now: Instant, frames: &Bytes, place: Range<usize>) {
        let payload = frames.get(place.clone()).unwrap_or_default();
        if matches!(self.phase, Phase::Handshaking { .. }) {
            return self.receive_handshake(now, payload);
        }
        let mut reader = Reader::new(payload);
        let header = match ReplyHeader::decode(&mut reader) {
            Ok(header) => header,
            Err(error) => return self.broken_stream(error),
        };
        #[cfg(feature = "sasl")]
        if self.is_authenticating() && header.xid != xid::NOTIFICATION {
            return self.receive_sasl(now, header, reader.rest());
        }
        match header.xid {
            xid::NOTIFICATION => self.receive_event(header, reader.rest()),
            xid::PING | xid::AUTH | xid::SET_WATCHES => self.receive_control(now, header),
            _ => {
                let body = frames.slice(place.start + HEADER_SIZE..place.end);
                self.receive_reply(now, header, ReplyBody::Whole(body));
            }
        }
    }

    /// Replies to what the machine itself sent, in an order of their own.
    fn receive_control(&mut self, now: Instant, header: ReplyHeader) {
        if header.err == ErrorCode::SessionClosedRequireSaslAuth {
            // A server that enforces authentication may say so to a ping.
            return self.refuse_authentication("the server requires SASL authentication");
        }
        match header.xid {
            xid::PING => {
                if let Some(sent_at) = self.ping_sent_at.take() {
                    self.renew(now, sent_at);
                }
            }
            xid::AUTH if header.err.is_ok() => {
                let token = self.auth_pending.pop_front().flatten();
                self.complete(token, Ok(Body { zxid: header.zxid, bytes: Bytes::new() }));
            }
            xid::AUTH => self.refuse_authentication("the server refused the credentials"),
            _ => self.watches_replayed(header.err),
        }
    }

    pub(super) fn refuse_authentication(&mut self, why: &str) {
        let error = Error::new(ErrorKind::AuthFailed, Outcome::NotApplied).with_detail(why);
        if let Some(token) = self.auth_pending.pop_front() {
            self.complete(token, Err(error.clone()));
        }
        self.end(ErrorKind::AuthFailed, &error);
    }

    fn receive_event(&mut self, header: ReplyHeader, body: &[u8]) {
        let event = match WatcherEvent::decode(&mut Reader::new(body)) {
            Ok(event) => event,
            Err(error) => return self.broken_stream(error),
        };
        self.metrics.events += 1;
        let path = event.path.to_str();
        // Never the last zxid: an event may come before the replies of older requests.
        let zxid = Some(header.zxid).filter(|&zxid| zxid > 0);
        let events = &mut self.events;
        self.watches.dispatch(event.event_type, &path, |watcher, event_type, path| {
            let path = Arc::clone(path);
            let event = WatchedEvent { event_type, state: event.state, path, zxid };
            events.push_back(Event::Watch { watcher, event });
        });
    }

    fn receive_reply(&mut self, now: Instant, header: ReplyHeader, body: ReplyBody) {
        let Some(index) = self.position_of(header) else {
            return self
                .give_up(format_args!("a reply with xid {} that nobody waits for", header.xid));
        };
        // The front nearly always, which is taken off for much less.
        let request =
            if index == 0 { self.pending.pop_front() } else { self.pending.remove(index) };
        let Some(request) = request else { return };
        self.sent -= 1;
        self.timed_out -= usize::from(index < self.timed_out);
        self.metrics.replies += 1;
        self.metrics.error_replies += u64::from(!header.err.is_ok());
        self.answered(now, index == 0);
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        self.settle(&request.effect, request.size);
        if request.op == OpCode::CloseSession {
            return self.end_closed();
        }
        // The server has the watch now, whoever can read the answer.
        let internal = request.is_internal();
        self.apply(request.effect, header.err);
        let error = if header.err.is_ok() { None } else { ErrorKind::from_code(header.err) };
        let result = match (error, body) {
            // A watch that was gone before it was removed: an event was faster.
            (Some(_), _) if internal => Ok(Body { zxid: header.zxid, bytes: Bytes::new() }),
            (Some(kind), _) => Err(Error::new(kind, outcome(kind))),
            (None, ReplyBody::Whole(bytes)) => Ok(Body { zxid: header.zxid, bytes }),
            (None, ReplyBody::TooLarge(len)) => {
                Err(Error::new(ErrorKind::ReplyTooLarge, Outcome::Unknown).with_detail(
                    format_args!("{len} bytes, and the limit is {}", self.config.max_reply_bytes),
                ))
            }
        };
        self.complete(request.token, result);
        self.leave_if_answered();
        if header.err == ErrorCode::SessionClosedRequireSaslAuth {
            self.refuse_authentication("the server requires SASL authentication");
        }
    }

    /// Whose reply it is: the front's. Only the refusal of an operation that the server does not know may
    /// overtake others, and the connection ends with it.
    fn position_of(&self, header: ReplyHeader) -> Option<usize> {
        let front = self.pending.front().filter(|_| self.sent > 0)?;
        if front.xid == header.xid {
            return Some(0);
        }
        let overtakes = matches!(
            header.err,
            ErrorCode::Unimplemented | ErrorCode::SessionClosedRequireSaslAuth
        );
        self.pending
            .iter()
            .take(self.sent)
            .position(|request| overtakes && request.xid == header.xid)
    }

    /// Takes note that a request was answered, for [`note_answers`](Self::note_answers).
    fn answered(&mut self, now: Instant, in_turn: bool) {
        if !in_turn {
            // The connection is about to end.
            return;
        }
        let Some(batch) = self.batches.front_mut() else { return };
        batch.unanswered = batch.unanswered.saturating_sub(1);
        batch.answered += 1;
        if batch.unanswered == 0 {
            self.note_answers(now);
            self.batches.pop_front();
        }
    }

    /// Moves the naive bound on to when the requests were sent that were answered; once for all of a batch that
    /// were read together.
    fn note_answers(&mut self, now: Instant) {
        let Some(batch) = self.batches.front_mut().filter(|batch| batch.answered > 0) else {
            return;
        };
        let sent_at = batch.sent_at;
        self.metrics.latency.record(now.since(sent_at), std::mem::take(&mut batch.answered));
        self.renew(now, sent_at);
    }

    fn renew(&self, now: Instant, sent_at: Instant) {
        if let Some(identity) = &self.identity {
            let lasts = self.timeouts.session.saturating_sub(self.timeouts.margin);
            identity.lease.renew(now, sent_at, lasts);
        }
    }

    /// The head of a reply over the limit: its request fails, the rest is thrown away, others go on.
    fn receive_too_large(&mut self, now: Instant, header: &[u8], len: usize) {
        match ReplyHeader::decode(&mut Reader::new(header)) {
            Ok(header) if header.xid > 0 => {
                self.receive_reply(now, header, ReplyBody::TooLarge(len));
            }
            Ok(_) => self.give_up(format_args!("an event of {len} bytes")),
            Err(error) => self.broken_stream(error),
        }
    }
}

/// What follows the header of a reply.
enum ReplyBody {
    Whole(Bytes),
    /// Not kept; the length of the frame.
    TooLarge(usize),
}

/// What a server's error says about the request. Those that have a name were all refused.
const fn outcome(kind: ErrorKind) -> Outcome {
    match kind {
        ErrorKind::Server(_) | ErrorKind::ConnectionLoss | ErrorKind::OperationTimeout => {
            Outcome::Unknown
        }
        _ => Outcome::NotApplied,
    }
}
