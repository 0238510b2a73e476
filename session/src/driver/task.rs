//! The task that moves bytes between the session machine and the socket.
//!
//! Callers lock the machine, encode their request into its buffer and unlock it; the task writes all gathered requests
//! at once. Nothing but plain computation happens under the lock: callers are woken and events dispatched after it is
//! released. The task is the only writer of the socket.
//!
//! One [`Turn`] locks the machine once: the bytes read go in, the bytes to write come out, and the task's waker is
//! stored under the same lock, with the conditions it waits for, so that no wake-up can be lost.
//!
//! Callers are woken by the thread that produced their replies. Events are dispatched by the task alone, so that each
//! listener gets them in order.
//!
//! One poll of the task is bounded, whatever its stream does; `Runtime::yield_task` lets other tasks run.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tracing::{Instrument, debug, warn};

use super::{
    dns_srv::{self, SrvServers},
    failures::{CLOSED_BY_SERVER, broken, lost},
    last_connection::{LastConnection, at_once},
    outputs::Outputs,
    probe,
    runtime::{Runtime, Timer},
    shared::{Machine, Shared},
    transport::{ByteStream, Transport},
};
use crate::{
    Error, ErrorKind, Outcome,
    config::Host,
    machine::{Connect, answers::MAX_SHARED_INPUT},
    planted,
    time::Instant,
};

/// The largest read, in bytes. A flood of events cannot starve pings: they are sent between two reads.
const READ_SIZE: usize = MAX_SHARED_INPUT;

/// The input in bytes, and the number of turns, after which the task yields. Otherwise a stream that is always ready
/// would keep other tasks from running: only tokio's own resources are pending from time to time.
const MAX_INPUT: usize = READ_SIZE;
const MAX_TURNS: usize = 32;

/// The size of the reads and buffers of an idle session, in bytes.
const SMALL_READ_SIZE: usize = 2048;

/// The longest sleep.
const MAX_ALARM: Duration = Duration::from_secs(24 * 3600);

/// The state of the machine after one [`Driver::turn`].
struct Turn {
    alarm: Option<Instant>,
    connects_at: Option<Instant>,
    /// Whether there is more to write behind the bytes taken.
    has_more: bool,
    stop: Option<Error>,
}

/// Runs a session until it ends. If it is dropped with its runtime, even before the first poll, it fails all pending
/// requests.
pub(crate) fn run(
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    runtime: Arc<dyn Runtime>,
) -> impl Future<Output = ()> + Send {
    let mut driver = Driver {
        shared,
        transport,
        alarm: runtime.timer(Duration::ZERO),
        runtime,
        outputs: Outputs::default(),
        stream: None,
        input: BytesMut::new(),
        output: Vec::new(),
        written: 0,
        flushed: true,
        read_size: SMALL_READ_SIZE,
        alarm_at: None,
        warned_after: None,
        #[cfg(feature = "metrics")]
        recorder: super::metrics::Recorder::default(),
    };
    let span = tracing::debug_span!("docent");
    async move { driver.run().await }.instrument(span)
}

struct Driver {
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    runtime: Arc<dyn Runtime>,
    outputs: Outputs,
    /// The connection; `None` while it is polled.
    stream: Option<Box<dyn ByteStream>>,
    input: BytesMut,
    output: Vec<u8>,
    written: usize,
    /// Whether the stream has flushed all written bytes.
    flushed: bool,
    /// The capacity for the next read, in bytes: small until a read has filled it, then larger each time.
    read_size: usize,
    alarm: Pin<Box<dyn Timer>>,
    /// The instant `alarm` is set to. It may be earlier than needed, because deadlines move with every request, and
    /// setting the alarm costs more than an early wake-up.
    alarm_at: Option<Instant>,
    /// The number of connections at the last warning about TLS.
    warned_after: Option<u64>,
    #[cfg(feature = "metrics")]
    recorder: super::metrics::Recorder,
}

impl Driver {
    async fn run(&mut self) {
        // The lookups end with this.
        let _servers = self.follow_servers();
        loop {
            let now = self.shared.clock.now();
            match self.locked(|machine| machine.poll_connect(now)) {
                Connect::To(host, _) if host.is_dns_srv() => self.look_up(&host).await,
                Connect::To(host, deadline) => {
                    debug!(%host, "connecting");
                    let transport = Arc::clone(&self.transport);
                    let attempt = transport.connect(&host, deadline.duration_since(now));
                    let failure = match self.unless_stopped(attempt).await {
                        Ok(Ok(stream)) => {
                            let began_at = now;
                            let now = self.shared.clock.now();
                            self.shared.note_connect_time(&host, now - began_at);
                            self.locked(|machine| machine.handle_connected(now));
                            self.stream = Some(stream);
                            self.pump().await
                        }
                        Ok(Err(error)) => broken(error),
                        Err(stopped) => stopped,
                    };
                    self.disconnected(&host, &failure);
                }
                Connect::At(_) => self.pause().await,
                Connect::Ended => return,
                // Unreachable: only this loop creates connections.
                Connect::No => return,
            }
        }
    }

    fn disconnected(&mut self, host: &Host, failure: &Error) {
        debug!(%host, %failure, "disconnected");
        if failure.is_tls_mismatch() {
            self.warn_of_tls(host, failure);
        }
        let now = self.shared.clock.now();
        let has_tls_mismatch = self.locked(|machine| {
            machine.handle_disconnected(now, host, failure);
            machine.has_tls_mismatch()
        });
        if has_tls_mismatch {
            self.shared.tls_mismatch.notify_waiters();
        }
    }

    /// Warns once between two connections: each attempt fails until somebody changes a certificate or a setting.
    fn warn_of_tls(&mut self, host: &Host, failure: &Error) {
        let connections = self.locked(|machine| machine.metrics().connections);
        if self.warned_after != Some(connections) {
            self.warned_after = Some(connections);
            let reason = failure.detail().unwrap_or_default();
            warn!(%host, reason, "the connection is refused until a certificate or a setting changes");
        }
    }

    /// Looks up the servers again and again, if the client was started with a name of servers.
    fn follow_servers(&self) -> Option<SrvServers> {
        let name = self.shared.name.clone()?;
        let (transport, runtime) = (Arc::clone(&self.transport), &*self.runtime);
        Some(SrvServers::follow(name.name, Arc::clone(&self.shared), transport, runtime))
    }

    /// Looks up the servers of a name. A failure is one of an attempt to connect.
    async fn look_up(&mut self, host: &Host) {
        debug!(%host, "looking up the servers");
        let transport = Arc::clone(&self.transport);
        let failure = match self.unless_stopped(dns_srv::lookup(&*transport, &host.name)).await {
            Ok(Ok(servers)) if self.shared.use_servers_of_name(&servers) => return,
            Ok(Ok(_)) => lost("the program has set a list of servers"),
            Ok(Err(error)) => broken(error),
            Err(stopped) => stopped,
        };
        self.disconnected(host, &failure);
    }

    /// Waits for `future` while it handles the deadlines of the machine.
    async fn unless_stopped<F: Future>(&mut self, future: F) -> Result<F::Output, Error> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            loop {
                let turn = self.turn(cx);
                if let Some(stop) = turn.stop {
                    return Poll::Ready(Err(stop));
                }
                if let Poll::Ready(output) = future.as_mut().poll(cx) {
                    return Poll::Ready(Ok(output));
                }
                if self.poll_alarm(cx, turn.alarm).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Waits until the next server may be tried, while it handles the deadlines of the machine.
    async fn pause(&mut self) {
        poll_fn(|cx| {
            loop {
                let turn = self.turn(cx);
                let Some(at) = turn.connects_at.filter(|at| *at > self.shared.clock.now()) else {
                    return Poll::Ready(());
                };
                let alarm = turn.alarm.map_or(at, |alarm| alarm.min(at));
                if self.poll_alarm(cx, Some(alarm)).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    /// Moves bytes until the connection ends, and returns the reason.
    async fn pump(&mut self) -> Error {
        let why = poll_fn(|cx| {
            let Some(mut stream) = self.stream.take() else {
                return Poll::Ready(lost("there is no connection"));
            };
            let poll = self.poll_pump(cx, &mut stream);
            self.stream = Some(stream);
            poll
        })
        .await;
        self.stream = None;
        // These bytes belong to the ended connection.
        self.input.clear();
        self.output.clear();
        self.written = 0;
        why
    }

    fn poll_pump(&mut self, cx: &mut Context<'_>, stream: &mut Box<dyn ByteStream>) -> Poll<Error> {
        // The deadline of the last turn; `None` when another turn is needed.
        let mut turned = None;
        let mut received = 0;
        for _ in 0..MAX_TURNS {
            if received >= MAX_INPUT {
                break;
            }
            // Read before the clock is: a task that was starved then finds the bytes received in the meantime, rather
            // than silence.
            let reserved = self.reserve_input();
            let came = match pin!(stream.read_buf(&mut self.input)).poll(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(lost(CLOSED_BY_SERVER)),
                Poll::Ready(Ok(count)) => {
                    received += count;
                    if count == reserved {
                        self.read_size = (self.read_size * 4).min(READ_SIZE);
                    }
                    true
                }
                Poll::Ready(Err(error)) => return Poll::Ready(broken(error)),
                Poll::Pending => false,
            };
            if came || turned.is_none() {
                let rest = self.is_writing();
                let turn = self.turn(cx);
                if let Some(stop) = turn.stop {
                    return Poll::Ready(stop);
                }
                if let Err(error) = self.write(cx, stream) {
                    return Poll::Ready(error);
                }
                // An old batch was written completely: this turn did not take the requests that were queued after it.
                let again = (rest || turn.has_more) && !self.is_writing();
                turned = (!again).then_some(turn.alarm);
                if came || again {
                    continue;
                }
            }
            // Input and requests since the turn are not missed: the turn has stored the waker.
            if self.poll_alarm(cx, turned.take().flatten()).is_pending() {
                return Poll::Pending;
            }
        }
        self.runtime.yield_task(cx);
        Poll::Pending
    }

    /// Reserves space in the input buffer for the next read, and returns its size in bytes. Existing capacity is filled
    /// first: replies that were not taken yet share the same memory, so that growing allocates new memory.
    fn reserve_input(&mut self) -> usize {
        let len = self.input.len();
        if self.input.capacity() - len < self.read_size.max(len) / 2 {
            // Twice the received bytes of a long frame. The frame is moved a few times at most, and its length field,
            // which only the server vouches for, does not decide the size. The machine relies on this bound of the
            // memory.
            let size = self.read_size.max(len * 2);
            if !self.input.try_reclaim(size - len) {
                let mut input = BytesMut::with_capacity(size);
                input.extend_from_slice(&self.input);
                self.input = input;
            }
        }
        self.input.capacity() - len
    }

    /// Whether bytes that the machine has transmitted are not written yet.
    fn is_writing(&self) -> bool {
        self.written < self.output.len()
    }

    /// Writes the remaining bytes, as far as the stream accepts them.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Box<dyn ByteStream>,
    ) -> Result<(), Error> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut *stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(lost("the connection accepts no more bytes")),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(broken(error)),
                Poll::Pending => return Ok(()),
            }
            self.flushed = false;
        }
        // A TCP stream has nothing to flush; a TLS stream buffers the end of a write.
        if !self.flushed {
            match Pin::new(&mut *stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(error)) => return Err(broken(error)),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    /// Locks the machine once: the bytes read go in, the bytes to write come out.
    fn turn(&mut self, cx: &Context<'_>) -> Turn {
        let now = self.shared.clock.now();
        let drained = !self.is_writing();
        #[cfg(feature = "metrics")]
        let mut metrics = None;
        // Dropped without the lock: the drop of a waker may run code of the executor.
        let mut replaced = None;
        let turn = {
            let mut guard = self.shared.lock();
            let locked = &mut *guard;
            let machine = &mut locked.machine;
            machine.handle_input(now, &mut self.input);
            let mut alarm = machine.poll_timeout();
            if alarm.is_some_and(|at| at <= now) {
                machine.handle_timeout(now);
            }
            if drained {
                machine.poll_transmit(now, &mut self.output);
                self.written = 0;
            }
            self.outputs.collect(machine);
            #[cfg(feature = "metrics")]
            if self.recorder.is_due(now) {
                metrics = Some(machine.metrics());
            }
            let stop = if machine.is_ended() {
                Some(Error::new(ErrorKind::Closed, Outcome::Unknown))
            } else {
                machine.wants_disconnect()
            };
            if alarm.is_some_and(|at| at <= now) {
                alarm = machine.poll_timeout();
            }
            let connects_at = machine.connects_at();
            let has_more = machine.wants_write();
            if planted::is("wake-up-lost") {
                locked.waker = None;
                drop(guard);
                guard = self.shared.lock();
            }
            let locked = &mut *guard;
            locked.alarm = alarm;
            locked.connects_at = connects_at;
            locked.writing = !drained;
            if !locked.waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                replaced = locked.waker.replace(cx.waker().clone());
            }
            Turn { alarm, connects_at, has_more, stop }
        };
        drop(replaced);
        self.outputs.dispatch(&self.shared);
        #[cfg(feature = "metrics")]
        if let Some(metrics) = metrics {
            self.recorder.record(metrics);
        }
        self.spawn_tasks();
        turn
    }

    /// Starts what the machine has asked for and what takes long.
    fn spawn_tasks(&mut self) {
        #[cfg(feature = "sasl")]
        if let Some(step) = self.outputs.sasl_step.take() {
            super::sasl_step::spawn(&self.shared, &*self.runtime, step);
        }
        for host in self.outputs.probes.drain(..) {
            probe::spawn_read_write(&self.shared, &self.transport, &*self.runtime, host);
        }
        for (host, connection) in self.outputs.status_probes.drain(..) {
            probe::spawn_status(&self.shared, &self.transport, &*self.runtime, host, connection);
        }
    }

    /// Ready when a deadline at `at` is due, or may be.
    fn poll_alarm(&mut self, cx: &mut Context<'_>, at: Option<Instant>) -> Poll<()> {
        let Some(at) = at else { return Poll::Pending };

        if self.alarm_at.is_none_or(|set| set > at) {
            self.set_alarm(at);
        }
        if self.alarm.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.give_back_memory();
        // The alarm has fired; the next deadline may be later.
        self.set_alarm(at);
        if self.shared.clock.now() >= at { Poll::Ready(()) } else { self.alarm.as_mut().poll(cx) }
    }

    fn set_alarm(&mut self, at: Instant) {
        // The alarm is set again when it fires, so a limit of a day changes nothing, and no clock overflows.
        let wait = at.duration_since(self.shared.clock.now()).min(MAX_ALARM);
        self.alarm.as_mut().reset(wait);
        self.alarm_at = Some(at);
    }

    /// Frees the memory that a burst has allocated and an idle session does not need.
    fn give_back_memory(&mut self) {
        self.read_size = SMALL_READ_SIZE;
        if self.input.is_empty() && self.input.capacity() > SMALL_READ_SIZE {
            self.input = BytesMut::new();
        }
        if self.output.is_empty() {
            self.output.shrink_to(SMALL_READ_SIZE);
        }
        self.outputs.give_back_memory(&self.shared);
    }

    /// As [`Shared::with`], for the task itself, which is not woken.
    fn locked<R>(&mut self, f: impl FnOnce(&mut Machine) -> R) -> R {
        let result = {
            let mut locked = self.shared.lock();
            let result = f(&mut locked.machine);
            self.outputs.collect(&mut locked.machine);
            result
        };
        self.outputs.dispatch(&self.shared);
        result
    }
}

impl Drop for Driver {
    /// Ends the session, so that its callers do not wait for ever. The task is dropped with its runtime, most often
    /// when `main` returns. The requests queued by then (such as the deletes of guards that were just dropped, and
    /// closeSession) are written as far as the socket accepts them at once.
    fn drop(&mut self) {
        let last = self.stream.take().and_then(|stream| self.end_with(stream));
        self.locked(|machine| machine.abandon_because(why_dropped()));
        #[cfg(feature = "metrics")]
        {
            let metrics = self.locked(|machine| machine.metrics());
            self.recorder.end(metrics);
        }
        mem::take(&mut self.outputs).dispatch(&self.shared);
        // Behind everything else: this may wait for the server.
        drop(last);
    }
}

impl Driver {
    /// Writes the queued requests without waiting, and leaves closeSession to the last drop of the client. Returns the
    /// connection if closeSession was among these requests.
    fn end_with(&mut self, mut stream: Box<dyn ByteStream>) -> Option<LastConnection> {
        {
            let machine = &mut self.shared.lock().machine;
            machine.cancel_migration();
            machine.lift_limit_in_flight();
        }
        loop {
            let written = at_once(|cx| self.write(cx, &mut stream));
            let written = matches!(written, Some(Ok(()))) && !self.is_writing() && self.flushed;
            let mut locked = self.shared.lock();
            let mut last = None;
            if written {
                let now = self.shared.clock.now();
                locked.machine.poll_transmit(now, &mut self.output);
                self.written = 0;
                if !self.output.is_empty() {
                    continue;
                }
                // All requests are written; later ones are refused.
                let mut close = Vec::new();
                locked.machine.put_close(&mut close);
                let is_closed = close.is_empty();
                let expects_replies = locked.machine.metrics().in_flight > usize::from(is_closed);
                let connection = LastConnection { stream, close, expects_replies };
                if is_closed {
                    last = Some(connection);
                } else {
                    locked.last_connection = Some(connection);
                }
            }
            locked.machine.abandon_because(why_dropped());
            self.outputs.collect(&mut locked.machine);
            return last;
        }
    }
}

/// Why the task was dropped before the end of its session.
fn why_dropped() -> &'static str {
    if std::thread::panicking() {
        "its task has panicked, or its runtime has ended in a panic"
    } else {
        "the runtime that it was started in has ended"
    }
}
