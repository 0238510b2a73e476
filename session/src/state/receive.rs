//! What the server sends: frames, replies and their requests, events.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use docent_protocol::{
    Decode, ErrorCode, WatcherEvent, frame, jute::Reader, reply::ReplyHeader, xid,
};

use super::{Answers, Effect, Event, Pending, Phase, Reply, Session, WatchedEvent, blocks::BLOCK};
use crate::{Error, ErrorKind, Outcome, time::Instant};

/// How many bytes a [`ReplyHeader`] has.
const HEADER_SIZE: usize = 16;

/// Frames from this size on are taken out of the buffer they were read into, so that parts of them can be kept
/// without a copy; below it, a copy costs less.
const LONG: usize = 1024;

/// What is shorter is copied out of a long frame: at most 64 times as much stays in memory for what is not, since not
/// more is read at once than 64 times this.
const COPY_FROM_FRAME: usize = 4096;

/// What is shorter is copied out of a block: at most 64 times as much stays in memory for what is not.
const COPY_FROM_BLOCK: usize = BLOCK / 64;

/// Memory that replies can share, and what is copied out of it all the same because it is shorter.
type Memory<'a> = Option<(&'a Bytes, usize)>;

impl<T, W: Clone + PartialEq, A: Answers<T>> Session<T, W, A> {
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
        while self.receives() {
            let skipped = self.skip.min(input.len());
            input.advance(skipped);
            self.skip -= skipped;
            if self.skip > 0 {
                break;
            }
            let short = self.receive_short_frames(now, input);
            self.metrics.bytes_received += short as u64;
            input.advance(short);
            if !self.receives()
                || !(self.receive_long_frame(now, input) || self.receive_part(input))
            {
                break;
            }
        }
        self.note_answers(now);
    }

    /// Whether what comes is still looked at.
    const fn receives(&self) -> bool {
        self.broken.is_none() && !self.is_ended()
    }

    /// How long a short frame may be.
    fn short_limit(&self) -> usize {
        self.config.max_reply_bytes.min(LONG)
    }

    /// Takes the short frames at the front, as far as they are whole; how many bytes they have.
    fn receive_short_frames(&mut self, now: Instant, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| rest.len() >= BLOCK / 2) {
            let front = rest.get(..BLOCK).unwrap_or(rest);
            if !matches!(frame::split(front, self.short_limit()), Ok(Some(_))) {
                break;
            }
            let block = self.blocks.fill(front);
            taken += self.receive_frames(now, &block, Some((&block, COPY_FROM_BLOCK)));
            if !self.receives() {
                return taken;
            }
        }
        taken + self.receive_frames(now, input.get(taken..).unwrap_or_default(), None)
    }

    /// Takes the short frames at the front, as far as they are whole; how many bytes they have.
    fn receive_frames(&mut self, now: Instant, input: &[u8], memory: Memory<'_>) -> usize {
        let mut rest = input;
        let limit = self.short_limit();
        while let Ok(Some((payload, tail))) = frame::split(rest, limit) {
            self.receive_frame(now, payload, memory);
            rest = tail;
            if !self.receives() {
                break;
            }
        }
        input.len() - rest.len()
    }

    /// Takes one frame that is long, whole and under the limit, if that is what is at the front.
    fn receive_long_frame(&mut self, now: Instant, input: &mut BytesMut) -> bool {
        let Ok(Some((payload, _))) = frame::split(input, self.config.max_reply_bytes) else {
            return false;
        };
        let whole = frame::LENGTH_SIZE + payload.len();
        self.metrics.bytes_received += whole as u64;
        let frame = input.split_to(whole).freeze();
        let payload = frame.get(frame::LENGTH_SIZE..).unwrap_or_default();
        self.receive_frame(now, payload, Some((&frame, COPY_FROM_FRAME)));
        true
    }

    /// Bytes that do not begin with a whole frame under the limit. Whether they were of use.
    fn receive_part(&mut self, input: &mut BytesMut) -> bool {
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
        self.receive_too_large(&header, len);
        true
    }

    /// `payload` is a part of `memory`, if that can be shared.
    #[inline(always)]
    fn receive_frame(&mut self, now: Instant, payload: &[u8], memory: Memory<'_>) {
        if matches!(self.phase, Phase::Handshaking { .. }) {
            return self.receive_handshake(now, payload);
        }
        let Some((header, bytes)) = payload.split_first_chunk::<HEADER_SIZE>() else {
            return self.receive_cut_header(payload);
        };
        let Ok(header) = ReplyHeader::decode(&mut Reader::new(header)) else { return };
        #[cfg(feature = "sasl")]
        if self.is_authenticating() && header.xid != xid::NOTIFICATION {
            return self.receive_sasl(now, header, bytes);
        }
        match header.xid {
            xid::NOTIFICATION => self.receive_event(header, bytes),
            xid::PING | xid::AUTH | xid::SET_WATCHES => self.receive_control(now, header),
            _ => self.receive_whole(header, bytes, memory),
        }
    }

    /// Too short to be a reply; the error names the field.
    #[cold]
    fn receive_cut_header(&mut self, payload: &[u8]) {
        if let Err(error) = ReplyHeader::decode(&mut Reader::new(payload)) {
            self.broken_stream(error);
        }
    }

    /// Replies to what the machine itself sent, in an order of their own.
    #[cold]
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
                self.complete(token, Ok(Reply::empty(header.zxid)));
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

    #[inline(always)]
    fn receive_whole(&mut self, header: ReplyHeader, bytes: &[u8], memory: Memory<'_>) {
        let front = self.pending.front().filter(|_| self.sent > 0 && header.err.is_ok());
        let is_plain = front.is_some_and(|front| {
            front.xid == header.xid && matches!(front.effect, Effect::None) && front.token.is_some()
        });
        if !is_plain {
            return self.receive_other(header, bytes, memory);
        }
        // What follows is what there would be of `receive_reply`, for nearly all replies are plain.
        let Some(Pending { token: Some(token), effect: Effect::None, size, .. }) =
            self.pending.pop_front()
        else {
            return;
        };
        self.answered_in_turn();
        self.sent -= 1;
        self.metrics.replies += 1;
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        self.settle(&Effect::None, size);
        let reply = reply_of(header, bytes, memory);
        self.answers.put(token, Ok(reply), !self.events.is_empty());
        self.leave_if_answered();
    }

    /// Cold, so that the compiler knows which way is the usual one.
    #[cold]
    #[inline(never)]
    fn receive_other(&mut self, header: ReplyHeader, bytes: &[u8], memory: Memory<'_>) {
        self.receive_reply(header, ReplyBody::Whole(reply_of(header, bytes, memory)));
    }

    fn receive_reply(&mut self, header: ReplyHeader, body: ReplyBody<'_>) {
        let front = self.pending.front().filter(|_| self.sent > 0);
        let request = if front.is_some_and(|front| front.xid == header.xid) {
            self.answered_in_turn();
            self.pending.pop_front()
        } else {
            self.take_overtaking(header)
        };
        let Some(request) = request else {
            return self
                .give_up(format_args!("a reply with xid {} that nobody waits for", header.xid));
        };
        self.sent -= 1;
        self.metrics.replies += 1;
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        self.settle(&request.effect, request.size);
        // The server has the watch now, whoever can read the answer.
        let token = match request.effect {
            Effect::None => request.token,
            Effect::Watches(effect) => {
                self.apply(*effect, header.err);
                request.token
            }
            Effect::Close => {
                self.metrics.error_replies += u64::from(!header.err.is_ok());
                return self.end_closed();
            }
            Effect::Internal if header.err.is_ok() => request.token,
            Effect::Internal => {
                // A watch that was gone before it was removed: an event was faster.
                self.metrics.error_replies += 1;
                self.complete(request.token, Ok(Reply::empty(header.zxid)));
                return self.replied(header.err);
            }
        };
        let told = match (ErrorKind::from_code(header.err), body) {
            (None, ReplyBody::Whole(reply)) => Ok(reply),
            (Some(kind), _) => {
                self.metrics.error_replies += 1;
                Err(Error::new(kind, outcome(kind)))
            }
            (None, ReplyBody::TooLarge(len)) => {
                Err(Error::new(ErrorKind::ReplyTooLarge, Outcome::Unknown).with_detail(
                    format_args!("{len} bytes, and the limit is {}", self.config.max_reply_bytes),
                ))
            }
        };
        if let Some(token) = token {
            self.answers.put(token, told, !self.events.is_empty());
        }
        self.replied(header.err);
    }

    /// What a reply means for the connection.
    fn replied(&mut self, err: ErrorCode) {
        self.leave_if_answered();
        if err == ErrorCode::SessionClosedRequireSaslAuth {
            self.refuse_authentication("the server requires SASL authentication");
        }
    }

    /// The request of a reply that is not the front's. Only the refusal of an operation that the server does not
    /// know may overtake others, and the connection ends with it.
    #[cold]
    fn take_overtaking(&mut self, header: ReplyHeader) -> Option<Pending<T, W>> {
        let overtakes = matches!(
            header.err,
            ErrorCode::Unimplemented | ErrorCode::SessionClosedRequireSaslAuth
        );
        let index = self
            .pending
            .iter()
            .take(self.sent)
            .position(|request| overtakes && request.xid == header.xid)?;
        self.timed_out -= usize::from(index < self.timed_out);
        self.pending.remove(index)
    }

    /// Takes note that the front was answered, for [`note_answers`](Self::note_answers).
    #[inline(always)]
    const fn answered_in_turn(&mut self) {
        self.answered += 1;
        if self.timed_out > 0 {
            self.timed_out -= 1;
        }
    }

    /// Moves the naive bound on to when the requests were sent that were answered; once for all that were read
    /// together.
    fn note_answers(&mut self, now: Instant) {
        let mut answered = std::mem::take(&mut self.answered);
        while answered > 0
            && let Some(batch) = self.batches.front_mut()
        {
            let (sent_at, count) = (batch.sent_at, answered.min(batch.unanswered));
            answered -= count;
            batch.unanswered -= count;
            if batch.unanswered == 0 {
                self.batches.pop_front();
            }
            self.metrics
                .latency
                .record(now.since(sent_at), u32::try_from(count).unwrap_or(u32::MAX));
            self.renew(now, sent_at);
        }
    }

    fn renew(&self, now: Instant, sent_at: Instant) {
        if let Some(identity) = &self.identity {
            let lasts = self.timeouts.session.saturating_sub(self.timeouts.margin);
            identity.lease.renew(now, sent_at, lasts);
        }
    }

    /// The head of a reply over the limit: its request fails, the rest is thrown away, others go on.
    fn receive_too_large(&mut self, header: &[u8], len: usize) {
        match ReplyHeader::decode(&mut Reader::new(header)) {
            Ok(header) if header.xid > 0 => {
                self.receive_reply(header, ReplyBody::TooLarge(len));
            }
            Ok(_) => self.give_up(format_args!("an event of {len} bytes")),
            Err(error) => self.broken_stream(error),
        }
    }
}

#[inline]
const fn reply_of<'a>(header: ReplyHeader, bytes: &'a [u8], memory: Memory<'a>) -> Reply<'a> {
    let reply = Reply::new(header.zxid, bytes);
    match memory {
        Some((memory, copy_below)) => reply.within(memory, copy_below),
        None => reply,
    }
}

/// What follows the header of a reply.
enum ReplyBody<'a> {
    Whole(Reply<'a>),
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
