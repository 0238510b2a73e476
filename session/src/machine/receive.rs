//! Input from the server: frames, replies and their requests, events.

use std::{fmt, sync::Arc};

use bytes::{Buf, Bytes, BytesMut};
use docent_protocol::{
    Decode, ErrorCode, WatcherEvent, frame, jute::Reader, multi::MultiHeader, reply::ReplyHeader,
    xid,
};

use super::{
    answers::{Answers, MAX_MEMORY_FACTOR, MAX_SHARED_INPUT, Reply},
    buffer_pool::BUFFER_SIZE,
    connection::Phase,
    effect::Effect,
    session::{Event, Session},
    watch_table::WatchedEvent,
};
use crate::{
    Error, ErrorKind, Outcome, planted,
    time::{Instant, NEVER},
};

/// The size of a [`ReplyHeader`], in bytes.
const HEADER_SIZE: usize = 16;

/// The first bytes of an alert of TLS: its content type, and the major version.
const TLS_ALERT: [u8; 2] = [21, 3];

/// Frames of at least this size, in bytes, are not moved into shared buffers.
const LONG: usize = 1024;

/// Frames of at least this size, in bytes, are left in the buffer they were read into, so that parts of them can be
/// kept without a copy. A shorter frame is moved into separate memory: its parts would be copied, and a reply that is
/// never read would keep everything that was read with it.
const COPY_FROM_INPUT: usize = MAX_SHARED_INPUT / MAX_MEMORY_FACTOR;

/// Frames of at least this size, in bytes, do not share their buffer with the bytes that follow: the buffer was
/// allocated for them, and may be up to twice their size.
const HUGE: usize = MAX_SHARED_INPUT / 2;

/// Parts shorter than this, in bytes, are copied out of a shared buffer.
const COPY_FROM_BUFFER: usize = BUFFER_SIZE / MAX_MEMORY_FACTOR;

/// A buffer that replies can share, and the size in bytes below which parts are copied out of it.
type Memory<'a> = Option<(&'a Bytes, usize)>;

impl<T, W: Clone + Ord, A: Answers<T>> Session<T, W, A> {
    /// Takes all complete frames off the front of the input.
    ///
    /// If the bytes cannot come from a server, [`wants_disconnect`](Self::wants_disconnect) returns the error.
    ///
    /// Parts of replies can share the memory of `input`, if they have at least 4 KiB. They must keep at most 64 times
    /// their size. So `input` has to be a part of at most 256 KiB of memory. If an incomplete frame is longer than half
    /// of that, the limit is twice the received size of the frame.
    pub fn handle_input(&mut self, now: Instant, input: &mut BytesMut) {
        let phase = self.connection.phase();
        if matches!(phase, Phase::Disconnected | Phase::Connecting { .. } | Phase::Ended(_)) {
            // Input of a connection that is gone; a new connection begins with a new frame.
            return input.clear();
        }
        if input.is_empty() {
            return;
        }
        let has_grown = self.connection.has_grown(input);
        self.unset.note_time(now);
        while self.receives() {
            if !self.connection.skip(input) {
                break;
            }
            let short = self.receive_short_frames(now, input);
            self.metrics.bytes_received += short as u64;
            input.advance(short);
            if !self.receives()
                || !(self.receive_long_frame(now, input, self.config.max_reply_bytes)
                    || self.receive_part(now, input))
            {
                break;
            }
        }
        self.connection.note_partial(input);
        if let Some(base) = self.proof.take() {
            self.prove(now, base);
        }
        self.note_answers(now);
        if has_grown {
            self.note_part(now, input);
        }
    }

    /// Whether input is still processed.
    const fn receives(&self) -> bool {
        self.connection.failure().is_none() && !self.is_ended()
    }

    /// The maximum length of a short frame.
    fn short_limit(&self) -> usize {
        self.config.max_reply_bytes.min(LONG)
    }

    /// Takes the complete short frames at the front; returns their size in bytes.
    fn receive_short_frames(&mut self, now: Instant, input: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..).filter(|rest| rest.len() >= BUFFER_SIZE / 2) {
            let front = rest.get(..BUFFER_SIZE).unwrap_or(rest);
            if !matches!(frame::split(front, self.short_limit()), Ok(Some(_))) {
                break;
            }
            let buffer = self.buffers.fill(front);
            taken += self.receive_frames(now, &buffer, Some((&buffer, COPY_FROM_BUFFER)));
            if !self.receives() {
                return taken;
            }
        }
        taken + self.receive_frames(now, input.get(taken..).unwrap_or_default(), None)
    }

    /// Takes the complete short frames at the front; returns their size in bytes.
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

    /// Takes the frame at the front if it is long, complete and within the limit. Returns whether it did.
    fn receive_long_frame(&mut self, now: Instant, input: &mut BytesMut, limit: usize) -> bool {
        let Ok(Some((payload, _))) = frame::split(input, limit) else { return false };
        let whole = frame::LENGTH_SIZE + payload.len();
        self.metrics.bytes_received += whole as u64;
        // The buffer may be twice the size of a frame that it was made for. For others this is no more than the minimum.
        let memory = input.capacity().max(whole * 2);
        let (frame, copy_below) = if whole < COPY_FROM_INPUT {
            let frame = Bytes::copy_from_slice(input.get(..whole).unwrap_or_default());
            input.advance(whole);
            (frame, whole.div_ceil(MAX_MEMORY_FACTOR))
        } else {
            let frame = input.split_to(whole).freeze();
            if whole >= HUGE {
                *input = BytesMut::from(&**input);
            }
            (frame, COPY_FROM_INPUT.max(memory.div_ceil(MAX_MEMORY_FACTOR)))
        };
        let payload = frame.get(frame::LENGTH_SIZE..).unwrap_or_default();
        self.receive_frame(now, payload, Some((&frame, copy_below)));
        true
    }

    /// Handles input that does not begin with a complete frame within the limit. Returns whether anything was consumed.
    fn receive_part(&mut self, now: Instant, input: &mut BytesMut) -> bool {
        let len = match frame::length(input) {
            Ok(Some(len)) if len > self.config.max_reply_bytes => len,
            Ok(_) => return false,
            Err(error) => {
                self.broken_stream(error);
                return false;
            }
        };
        if self.connection.is_handshaking() {
            let front = input.get(..input.len().min(16)).unwrap_or_default();
            if front.starts_with(&TLS_ALERT) {
                self.connection.give_up_for_tls(
                    "no ZooKeeper handshake: the server speaks TLS, and this client connects without TLS",
                );
                return false;
            }
            self.connection.give_up(format_args!(
                "no ZooKeeper handshake: it begins with \"{}\"",
                front.escape_ascii()
            ));
            return false;
        }
        if input.len() < frame::LENGTH_SIZE + HEADER_SIZE {
            return false;
        }
        if len <= MAX_UNASKED && (self.connection.is_authenticating() || begins_with_event(input)) {
            return self.receive_long_frame(now, input, MAX_UNASKED);
        }
        let Some(rest) = len.checked_sub(HEADER_SIZE) else {
            self.connection.give_up(format_args!("a frame of {len} bytes is too short"));
            return false;
        };
        input.advance(frame::LENGTH_SIZE);
        let header = input.split_to(HEADER_SIZE);
        self.connection.begin_skip(rest);
        self.metrics.bytes_received += (frame::LENGTH_SIZE + len) as u64;
        self.receive_too_large(&header, len);
        true
    }

    /// Handles one frame. `payload` is a part of `memory`, if that can be shared.
    #[inline(always)] // 83 more instructions a getData without `receive_*`, `deliver`.
    fn receive_frame(&mut self, now: Instant, payload: &[u8], memory: Memory<'_>) {
        if self.connection.is_handshaking() {
            return self.receive_handshake(now, payload);
        }
        let Some((header, bytes)) = payload.split_first_chunk::<HEADER_SIZE>() else {
            return self.receive_cut_header(payload);
        };
        let Ok(header) = ReplyHeader::decode(&mut Reader::new(header)) else { return };
        #[cfg(feature = "sasl")]
        if self.connection.is_authenticating() && header.xid != xid::NOTIFICATION {
            return self.receive_sasl(now, header, bytes);
        }
        match header.xid {
            xid::NOTIFICATION => self.receive_event(header, bytes),
            xid::PING | xid::AUTH | xid::SET_WATCHES => self.receive_control(now, header),
            _ => self.receive_reply(header, ReplyBody::Whole(reply_of(header, bytes, memory))),
        }
    }

    /// The frame is too short for a reply header; the error names the field.
    #[cold]
    fn receive_cut_header(&mut self, payload: &[u8]) {
        if let Err(error) = ReplyHeader::decode(&mut Reader::new(payload)) {
            self.broken_stream(error);
        }
    }

    /// Handles the replies to the machine's own messages; these have fixed xids and are matched in order.
    #[cold]
    fn receive_control(&mut self, now: Instant, header: ReplyHeader) {
        if header.err == ErrorCode::SessionClosedRequireSaslAuth {
            // A server that enforces authentication may reply to a ping with this error.
            return self.refuse_authentication("the server requires SASL authentication");
        }
        match header.xid {
            xid::PING if self.connection.has_pings() => {
                if planted::one_in("connection-given-up", 20) {
                    self.connection.give_up("as planted");
                }
                if let Some(sent_at) = self.connection.answer_ping() {
                    self.renew(now, sent_at);
                }
                self.note_reply(now);
            }
            xid::PING => self.connection.give_up("an unexpected reply to a ping"),
            xid::AUTH if header.err.is_ok() => match self.auth_pending.pop_front() {
                Some(pending) => self.complete(pending.token, Ok(Reply::empty(header.zxid))),
                None => self.connection.give_up("an unexpected reply to credentials"),
            },
            xid::AUTH => {
                let name = self.credentials_in_question();
                self.refuse_authentication(format_args!(
                    "the server refused the credentials{name}"
                ));
            }
            _ => match self.watches_pending.pop_front() {
                Some(batch) => self.watches_set(batch, header.err, false),
                None => self.connection.give_up("an unexpected reply to setWatches"),
            },
        }
        self.connection.note_heard(now);
    }

    /// Records a reply to a request or a ping. The first one makes the connection usable: only then does what counts
    /// the time without a connection begin anew.
    fn note_reply(&mut self, now: Instant) {
        self.connection.note_replied(now);
        if !self.connection.is_usable()
            && self.watches_pending.is_empty()
            && self.connection.failure().is_none()
        {
            self.connection.set_usable();
            self.hosts.usable();
            self.set_expiry(NEVER);
        }
    }

    /// Records a part of a reply: a large one may take a while. Its header shows that the server has received the
    /// request, and nothing behind it can be answered before it is complete. So parts keep a connection until the lease
    /// ends, and where nothing renews a lease they count for nothing.
    fn note_part(&mut self, now: Instant, input: &[u8]) {
        if self.is_read_only() {
            return;
        }
        if self.connection.is_skipping() {
            return self.connection.note_heard(now);
        }
        let xid = input.get(frame::LENGTH_SIZE..).and_then(<[u8]>::first_chunk);
        let xid = xid.map(|xid| i32::from_be_bytes(*xid));
        if let Some(sent_at) = xid.and_then(|xid| self.requests.sent_at_of_next(xid)) {
            self.connection.note_heard(now);
            self.renew(now, sent_at);
        }
    }

    pub(super) fn refuse_authentication(&mut self, why: impl fmt::Display) {
        let error = Error::new(ErrorKind::AuthFailed, Outcome::NotApplied).with_detail(why);
        self.end_unauthenticated(&error);
    }

    /// The server that was left for this one accepts the client: only a refusal without a move ends it.
    pub(super) fn end_unauthenticated(&mut self, error: &Error) {
        if self.relocation.has_left() {
            return self.connection.give_up("the server of a planned move refuses the credential");
        }
        if let Some(pending) = self.auth_pending.pop_front() {
            self.complete(pending.token, Err(error.clone()));
        }
        self.end(ErrorKind::AuthFailed, error);
    }

    fn receive_event(&mut self, header: ReplyHeader, body: &[u8]) {
        let event = match WatcherEvent::decode(&mut Reader::new(body)) {
            Ok(event) => event,
            Err(error) => return self.broken_stream(error),
        };
        if planted::one_in("event-lost", 16) {
            return;
        }
        self.metrics.events += 1;
        let path = event.path.to_str();
        // Never the last zxid: an event may come before the replies to older requests.
        let zxid = Some(header.zxid).filter(|&zxid| zxid > 0);
        let events = &mut self.events;
        self.watches.dispatch(event.event_type, &path, |watcher, event_type, path| {
            let path = Arc::clone(path).into();
            let event = WatchedEvent { event_type, state: event.state, path, zxid };
            events.push_back(Event::Watch { watcher, event });
        });
        if self.watches.has_modes() {
            self.event_dispatched(&path);
        }
    }

    /// Handles a reply: takes its request, applies its effect, and delivers the result.
    #[inline(always)] // 83 more instructions a getData without `receive_*`, `deliver`.
    fn receive_reply(&mut self, header: ReplyHeader, body: ReplyBody<'_>) {
        let request = self.requests.answer(header.xid);
        let Some((token, effect)) = request.or_else(|| self.answer_overtaking(header)) else {
            return self.unexpected_reply(header.xid);
        };
        self.count_reply(header);
        match (effect, body) {
            (Effect::None, ReplyBody::Whole(reply)) if header.err.is_ok() => {
                self.deliver(token, Ok(reply));
            }
            (effect, body) => self.apply_reply(token, effect, header, body),
        }
    }

    /// Handles a reply that is an error, too large, or has an effect. Cold, to mark the others as the usual ones.
    #[cold]
    fn apply_reply(
        &mut self,
        token: Option<T>,
        effect: Effect<W>,
        header: ReplyHeader,
        body: ReplyBody<'_>,
    ) {
        let is_internal = effect.is_internal();
        if let Some(op) = effect.operation() {
            self.note_operation(op, header.err);
        }
        let has_moved = match (&effect, &body) {
            (
                Effect::Transaction | Effect::ReservedTransaction | Effect::Proof,
                ReplyBody::Whole(reply),
            ) if header.err.is_ok() => is_of_moved_session(reply.bytes()),
            _ => header.err == ErrorCode::SessionMoved,
        };
        // The server has set the watch, whether or not the reply can be decoded.
        match effect {
            Effect::None
            | Effect::Reserved
            | Effect::Transaction
            | Effect::ReservedTransaction
            | Effect::Optional(_)
            | Effect::ReservedOptional(_) => {}
            Effect::Proof => {
                if let (true, ReplyBody::Whole(reply)) = (header.err.is_ok(), &body) {
                    self.note_proof(reply.bytes());
                }
            }
            Effect::Watches(effect) => self.apply(*effect, header.err),
            Effect::Close => return self.close_answered(header.err),
        }
        let result = match (ErrorKind::from_code(header.err), body) {
            (None, ReplyBody::Whole(reply)) => Ok(reply),
            (None, ReplyBody::TooLarge(len)) => {
                let limit = self.config.max_reply_bytes;
                Err(Error::new(ErrorKind::ReplyTooLarge, Outcome::Unknown)
                    .with_detail(format_args!("{len} bytes, and the limit is {limit}")))
            }
            // For a caller that removes a watch, the watcher is already gone: the machine retries on the server by
            // itself.
            (Some(_), _) if is_internal => Ok(Reply::empty(header.zxid)),
            (Some(kind), _) => Err(Error::new(kind, outcome(kind))),
        };
        self.deliver(token, result);
        if header.err == ErrorCode::SessionClosedRequireSaslAuth {
            self.refuse_authentication("the server requires SASL authentication");
        }
        if has_moved {
            // No other write would succeed on this connection. Most servers close it; 3.4 does not.
            self.connection.give_up("the session has moved to another server");
        }
    }

    /// Delivers the result of a request to its caller, behind the events that came before it.
    #[inline(always)] // 83 more instructions a getData without `receive_*`, `deliver`.
    fn deliver(&mut self, token: Option<T>, result: Result<Reply<'_>, Error>) {
        let Some(token) = token else { return };
        let result = if planted::one_in("reply-is-loss", 20) {
            Err(Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown))
        } else {
            result
        };
        if !planted::one_in("reply-lost", 500) {
            self.answers.put(token, result, !self.events.is_empty());
        }
    }

    /// The request of a reply that came before those to earlier requests, if that can be.
    #[cold]
    fn answer_overtaking(&mut self, header: ReplyHeader) -> Option<(Option<T>, Effect<W>)> {
        if may_overtake(header.err) { self.requests.answer_overtaking(header.xid) } else { None }
    }

    #[cold]
    fn unexpected_reply(&mut self, xid: i32) {
        self.connection.give_up(format_args!("an unexpected reply with xid {xid}"));
    }

    /// Updates the counters for a reply.
    #[inline]
    const fn count_reply(&mut self, header: ReplyHeader) {
        self.metrics.replies += 1;
        if !header.err.is_ok() {
            self.metrics.error_replies += 1;
        }
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
    }

    /// Moves the naive bound to the send time of the answered requests; once for all replies read together.
    fn note_answers(&mut self, now: Instant) {
        if self.requests.has_answered() {
            self.note_reply(now);
        }
        while let Some((sent_at, count)) = self.requests.take_answered() {
            self.metrics
                .latency
                .record(now.duration_since(sent_at), u32::try_from(count).unwrap_or(u32::MAX));
            self.renew(now, sent_at);
        }
    }

    /// Renews the lease. Only a server of the quorum does: a read-only one answers while the others expire the session.
    fn renew(&mut self, now: Instant, sent_at: Instant) {
        let is_proof = !self.is_read_only() || planted::is("read-only-renews");
        let sent_at = if planted::is("lease-from-receipt") { now } else { sent_at };
        if let Some(identity) = self.identity.as_ref().filter(|_| is_proof) {
            let has_lapsed = identity.lease.renew(now, sent_at, self.lasts());
            if has_lapsed {
                self.events.push_back(Event::Lease(Arc::clone(&identity.lease)));
            }
        }
    }

    /// Handles the header of a reply above the limit: its request fails, the rest of the reply is skipped, other
    /// requests continue.
    fn receive_too_large(&mut self, header: &[u8], len: usize) {
        match ReplyHeader::decode(&mut Reader::new(header)) {
            Ok(header) if header.xid == xid::NOTIFICATION => {
                self.connection.give_up(format_args!("an event of {len} bytes"));
            }
            Ok(header) => self.receive_reply(header, ReplyBody::TooLarge(len)),
            Err(error) => self.broken_stream(error),
        }
    }
}

/// The size of the largest event, and of the largest SASL token, that is received beyond the limit of replies, in bytes.
/// Without an event the state of the watches is unknown, and without the token there is no connection. An event is little
/// more than a path, and no longer path reaches a server.
const MAX_UNASKED: usize = frame::DEFAULT_LIMIT;

/// Whether the frame at the front is an event.
fn begins_with_event(input: &[u8]) -> bool {
    let xid = input.get(frame::LENGTH_SIZE..).and_then(|payload| payload.first_chunk());
    xid.is_some_and(|xid| i32::from_be_bytes(*xid) == xid::NOTIFICATION)
}

/// Whether a reply with this error may come before those to earlier requests. Only the refusal of an operation that the
/// server does not support does, and the connection ends with it.
const fn may_overtake(err: ErrorCode) -> bool {
    matches!(err, ErrorCode::Unimplemented | ErrorCode::SessionClosedRequireSaslAuth)
}

/// Whether these results of a transaction say that its session is attached to another server: the first one does.
fn is_of_moved_session(results: &[u8]) -> bool {
    let first = MultiHeader::decode(&mut Reader::new(results));
    first.is_ok_and(|first| first.err == ErrorCode::SessionMoved)
}

#[inline]
const fn reply_of<'a>(header: ReplyHeader, bytes: &'a [u8], memory: Memory<'a>) -> Reply<'a> {
    let reply = Reply::new(header.zxid, bytes);
    match memory {
        Some((memory, copy_below)) => reply.within(memory, copy_below),
        None => reply,
    }
}

/// The body of a reply, behind its header.
enum ReplyBody<'a> {
    Whole(Reply<'a>),
    /// Skipped; the length of the frame.
    TooLarge(usize),
}

/// The outcome of a request that failed with this error. All errors with a name are refusals.
const fn outcome(kind: ErrorKind) -> Outcome {
    match kind {
        ErrorKind::Server(_) | ErrorKind::ConnectionLoss | ErrorKind::OperationTimeout => {
            Outcome::Unknown
        }
        _ => Outcome::NotApplied,
    }
}
