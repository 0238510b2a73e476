//! The task between the session machine and the socket, and what clients share with it.
//!
//! Callers lock the machine, encode their request into its buffer and leave; the task takes what has
//! gathered and writes it at once. Nothing but plain computation happens under the lock: answers and
//! events are handed out behind it. The task is the only writer of the socket.
//!
//! One [`Turn`] is one locking: what was read goes in, what is to be written comes out, and the task's
//! waker is left behind under the same lock, with what it is waiting for, so that no wake-up can be lost.
//!
//! Answers are handed out by whoever caused them. Events are handed out by the task alone, so that each
//! listener gets them in their order.

use std::{
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::BytesMut;
use docent_protocol::{AddWatchMode, WatcherType, call::Call};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{broadcast, watch},
    time::Sleep,
};
use tracing::{Instrument, debug, info, warn};

use crate::{
    Clock, ConnectionState, Error, ErrorKind, Host, Metrics, Outcome, SessionLease, SessionToken,
    answer::{Answer, Delivered, Delivery, Token},
    config::Credential,
    state::{Answers as _, Connect, Event, Registration, Session},
    time::Instant,
    transport::{Stream, Transport},
    watcher::Notifier,
};

type Machine = Session<Token, Notifier, Delivery>;

/// How much is read at once, at most. A flood of events cannot starve pings: they go out between two reads.
const READ_SIZE: usize = 256 * 1024;

/// How much an idle session reads at once, and how large its buffers are.
const SMALL_READ_SIZE: usize = 2048;

/// How many entries of its queues an idle session keeps.
const KEPT_ENTRIES: usize = 16;

/// The longest sleep.
const MAX_ALARM: Duration = Duration::from_secs(24 * 3600);

/// How many states a slow listener may be behind before it misses the oldest.
///
/// Source: Curator's `ConnectionStateManager` keeps 25.
const STATES_KEPT: usize = 32;

/// What the clients and the task share.
#[derive(Debug)]
pub(crate) struct Shared {
    locked: Mutex<Locked>,
    clock: Clock,
    /// How many events a watcher may leave untaken.
    max_watch_events: usize,
    state: watch::Sender<Option<ConnectionState>>,
    /// Locked while a state is told, and while a listener begins: it hears each once.
    states: Mutex<broadcast::Sender<ConnectionState>>,
}

#[derive(Debug)]
struct Locked {
    machine: Machine,
    /// The task's, until somebody has used it.
    waker: Option<Waker>,
    /// Whether the socket did not take all that was written, so that the task looks for more by itself.
    writing: bool,
    /// When the task wakes up by itself.
    alarm: Option<Instant>,
}

impl Locked {
    /// Whom to wake: the task, if the machine has something for it that it does not wait for already, and nobody
    /// has woken it yet.
    fn due(&mut self) -> Option<Waker> {
        self.waker.as_ref()?;
        let due = (!self.writing && self.machine.wants_write())
            || self.machine.is_broken()
            || self.machine.has_events()
            || match (self.machine.poll_timeout(), self.alarm) {
                (Some(new), Some(old)) => new < old,
                (Some(_), None) => true,
                (None, _) => false,
            };
        if due { self.waker.take() } else { None }
    }
}

/// What comes out of the machine and is handed out behind the lock.
#[derive(Default)]
struct Outbox {
    delivered: Delivered,
    events: Vec<Event<Notifier>>,
    /// Servers to be asked whether they are read-write.
    probes: Vec<Host>,
}

impl Shared {
    pub(crate) fn new(machine: Machine, clock: Clock, max_watch_events: usize) -> Self {
        Self {
            locked: Mutex::new(Locked { machine, waker: None, writing: false, alarm: None }),
            clock,
            max_watch_events,
            state: watch::Sender::new(None),
            states: Mutex::new(broadcast::Sender::new(STATES_KEPT)),
        }
    }

    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Runs `f` on the locked machine, then wakes the task if there is something for it, then hands out the
    /// answers that came of it.
    fn with<R>(&self, f: impl FnOnce(&mut Machine) -> R) -> R {
        self.with_locked(|locked| f(&mut locked.machine))
    }

    fn with_locked<R>(&self, f: impl FnOnce(&mut Locked) -> R) -> R {
        let mut locked = self.lock();
        let result = f(&mut locked);
        self.unlock(locked);
        result
    }

    /// Wakes the task if there is something for it, and hands out the answers that are there.
    #[inline(always)]
    fn unlock(&self, mut locked: MutexGuard<'_, Locked>) {
        let waker = if locked.waker.is_some() { locked.due() } else { None };
        if locked.machine.has_answers() {
            self.hand_out_now(locked);
        } else {
            drop(locked);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Answers that did not need the server: refusals, mostly.
    #[cold]
    fn hand_out_now(&self, mut locked: MutexGuard<'_, Locked>) {
        let mut delivered = Delivered::default();
        delivered.collect(locked.machine.answers_mut());
        drop(locked);
        delivered.wake();
        delivered.release();
    }

    /// As [`with`](Self::with), for what has an answer; `path` is the caller's, for the answer's errors.
    fn ask(&self, path: &str, f: impl FnOnce(&mut Machine, Token)) -> Answer {
        self.with_locked(|locked| {
            let (token, answer) = locked.machine.answers_to_come().take_slot(path);
            f(&mut locked.machine, token);
            answer
        })
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        // The machine's methods leave it whole at every return, and panic at none.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(always)]
    pub(crate) fn call(
        &self,
        path: &str,
        call: &impl Call,
        watch: Option<Registration<Notifier>>,
    ) -> Answer {
        // As `ask`, without closures: each costs a copy of what it takes along.
        let mut locked = self.lock();
        let (token, answer) = locked.machine.answers_to_come().take_slot(path);
        locked.machine.submit(call, token, watch, || self.clock.now());
        // If it was refused, nobody waits yet whom to wake.
        let waker = if locked.waker.is_some() { locked.due() } else { None };
        drop(locked);
        if let Some(waker) = waker {
            waker.wake();
        }
        answer
    }

    pub(crate) fn add_auth(&self, credential: Credential) -> Answer {
        self.ask("", |machine, token| machine.add_auth(credential, token))
    }

    /// As [`call`](Self::call), for a read that leaves a watch; `make` makes it with or without its flag.
    pub(crate) fn call_watching<C: Call>(
        &self,
        path: &str,
        make: impl FnOnce(bool) -> C,
        watch: Registration<Notifier>,
    ) -> Answer {
        self.ask(path, |machine, token| {
            machine.submit_watching(make, token, watch, || self.clock.now());
        })
    }

    pub(crate) fn add_watch(
        &self,
        path: &str,
        mode: AddWatchMode,
        server_path: Arc<str>,
        watcher: Notifier,
    ) -> Answer {
        self.ask(path, |machine, token| {
            machine.add_watch(mode, token, server_path, watcher, || self.clock.now());
        })
    }

    pub(crate) fn remove_watches(
        &self,
        path: &str,
        server_path: Arc<str>,
        watcher_type: WatcherType,
    ) -> Answer {
        self.ask(path, |machine, token| {
            machine.remove_watches(server_path, watcher_type, token, || self.clock.now());
        })
    }

    pub(crate) fn forget_watch(&self, path: &str, watcher: &Notifier) {
        self.with(|machine| machine.forget_watch(path, watcher));
    }

    pub(crate) fn cancel_watch(&self, path: &str, watcher: &Notifier) {
        self.with(|machine| machine.cancel_watch(path, watcher, || self.clock.now()));
    }

    pub(crate) fn remove_watch(&self, path: &str, server_path: &str, watcher: &Notifier) -> Answer {
        self.ask(path, |machine, token| {
            machine.remove_watch(server_path, watcher, Some(token), || self.clock.now());
        })
    }

    pub(crate) fn close(&self, within: Duration) -> Answer {
        let until = self.clock.now() + within;
        self.ask("", |machine, token| machine.close(Some(token), until))
    }

    pub(crate) fn ready(&self) -> Answer {
        self.ask("", Session::wait_for_room)
    }

    pub(crate) fn update_server_list(&self, hosts: &[Host]) {
        self.with(|machine| machine.update_server_list(hosts));
    }

    pub(crate) fn server(&self) -> Option<Host> {
        self.lock().machine.server().cloned()
    }

    pub(crate) fn session_token(&self) -> Option<SessionToken> {
        self.lock().machine.session_token()
    }

    pub(crate) fn detach(&self) -> Option<SessionToken> {
        self.with(|machine| {
            let token = machine.session_token();
            machine.abandon();
            token
        })
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.lock().machine.metrics()
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        self.lock().machine.timeouts().session
    }

    pub(crate) fn lease(&self) -> Option<Arc<SessionLease>> {
        self.lock().machine.lease().cloned()
    }

    pub(crate) fn ended(&self) -> Option<ErrorKind> {
        self.lock().machine.ended()
    }

    /// What each call is told, once nothing more can happen.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let locked = self.lock();
        locked.machine.is_ended().then(|| locked.machine.refusal())
    }

    pub(crate) fn last_failure(&self) -> Option<String> {
        self.lock().machine.last_failure().map(str::to_owned)
    }

    pub(crate) fn ahead_of_servers(&self) -> Option<i64> {
        self.lock().machine.ahead_of_servers()
    }

    pub(crate) fn pending(&self) -> usize {
        self.lock().machine.pending()
    }

    pub(crate) fn watches(&self) -> usize {
        self.lock().machine.watches()
    }

    pub(crate) fn state(&self) -> watch::Receiver<Option<ConnectionState>> {
        self.state.subscribe()
    }

    /// The current state, and the later ones.
    pub(crate) fn states(&self) -> (Option<ConnectionState>, broadcast::Receiver<ConnectionState>) {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        (*self.state.borrow(), states.subscribe())
    }

    fn tell(&self, state: ConnectionState) {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.send_replace(Some(state));
        // Nobody may listen.
        let _ = states.send(state);
    }
}

impl Outbox {
    fn collect(&mut self, machine: &mut Machine) {
        self.delivered.collect(machine.answers_mut());
        self.events.extend(std::iter::from_fn(|| machine.poll_event()));
    }

    fn hand_out(&mut self, shared: &Shared) {
        self.delivered.wake();
        for event in self.events.drain(..) {
            match event {
                Event::State(state) => {
                    if state == ConnectionState::Lost {
                        warn!("session lost");
                    } else {
                        info!(%state, "connection");
                    }
                    shared.tell(state);
                }
                Event::Session(lease) => {
                    info!(session = format_args!("{:#x}", lease.session_id()), "new session");
                }
                Event::Watch { watcher, event } => watcher.notify(event, shared.max_watch_events),
                Event::Probe(host) => self.probes.push(host),
                Event::Ended(kind) => {
                    debug!(?kind, "ended");
                    // The same state, but who waits for another is to look again.
                    shared.state.send_modify(|_| ());
                }
            }
        }
        self.delivered.release();
    }
}

/// What one locking of the machine by the task tells it.
struct Turn {
    alarm: Option<Instant>,
    stop: Option<Error>,
}

/// Runs a session until it ends. Dropped with its runtime, even before it was polled, it answers all who
/// wait.
pub(crate) fn run(
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
) -> impl Future<Output = ()> + Send {
    let mut driver = Driver {
        shared,
        transport,
        outbox: Outbox::default(),
        input: BytesMut::new(),
        output: Vec::new(),
        written: 0,
        flushed: true,
        read_size: SMALL_READ_SIZE,
        alarm: Box::pin(tokio::time::sleep(Duration::ZERO)),
        alarm_at: None,
    };
    let span = tracing::debug_span!("docent");
    async move { driver.run().await }.instrument(span)
}

struct Driver {
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    outbox: Outbox,
    input: BytesMut,
    output: Vec<u8>,
    written: usize,
    /// Whether the stream holds nothing back of what was written.
    flushed: bool,
    /// How much room there is for the next read: little until a read has filled it, then more each time.
    read_size: usize,
    alarm: Pin<Box<Sleep>>,
    /// What `alarm` is set to; earlier than needed at times, since deadlines move away with every
    /// request, and setting it costs more than looking again.
    alarm_at: Option<Instant>,
}

impl Driver {
    async fn run(&mut self) {
        loop {
            let now = self.shared.clock.now();
            match self.locked(|machine| machine.poll_connect(now)) {
                Connect::To(host, deadline) => {
                    debug!(%host, "connecting");
                    let transport = Arc::clone(&self.transport);
                    let attempt = transport.connect(&host, deadline.since(now));
                    let failure = match self.unless_stopped(attempt).await {
                        Ok(Ok(stream)) => {
                            let now = self.shared.clock.now();
                            self.locked(|machine| machine.handle_connected(now));
                            self.pump(stream).await
                        }
                        Ok(Err(error)) => Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown)
                            .with_detail(error),
                        Err(stopped) => stopped,
                    };
                    debug!(%host, %failure, "disconnected");
                    let now = self.shared.clock.now();
                    self.locked(|machine| machine.handle_disconnected(now, &host, &failure));
                }
                Connect::At(at) => {
                    let pause = tokio::time::sleep(at.since(now));
                    let _ = self.unless_stopped(pause).await;
                }
                Connect::Ended => return,
                // Cannot be: this loop makes the connections.
                Connect::No => return,
            }
        }
    }

    /// Waits for something else than the socket, with the machine's alarms going off all the while.
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

    /// Moves bytes until the connection is over, and says why it is.
    async fn pump(&mut self, mut stream: Box<dyn Stream>) -> Error {
        let why = poll_fn(|cx| self.poll_pump(cx, &mut stream)).await;
        // Neither the next connection's.
        self.input.clear();
        self.output.clear();
        self.written = 0;
        why
    }

    fn poll_pump(&mut self, cx: &mut Context<'_>, stream: &mut Box<dyn Stream>) -> Poll<Error> {
        // What the last turn waits for; `None` when another one is needed.
        let mut turned = None;
        loop {
            // Before the look at the clock: a task that was starved finds what came meanwhile, not silence.
            let room = self.make_room();
            let came = match pin!(stream.read_buf(&mut self.input)).poll(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(lost("the server closed the connection")),
                Poll::Ready(Ok(count)) => {
                    if count == room {
                        self.read_size = (self.read_size * 4).min(READ_SIZE);
                    }
                    true
                }
                Poll::Ready(Err(error)) => return Poll::Ready(lost(error)),
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
                // The end of an old batch: this turn did not take what has gathered behind it.
                let again = rest && !self.is_writing();
                turned = (!again).then_some(turn.alarm);
                if came || again {
                    continue;
                }
            }
            // Nothing that came since the turn went unnoticed: it left the waker behind.
            if self.poll_alarm(cx, turned.take().flatten()).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Room for the next read, and how much. What is there is used up first: answers that were not taken yet still
    /// lie in the same memory, so more room means other memory.
    fn make_room(&mut self) -> usize {
        let wanted = self.read_size.max(self.input.len());
        if self.input.capacity() - self.input.len() < wanted / 2 {
            // As much again as there is of a long frame: it is moved a few times at most, and its length, which
            // only the server vouches for, decides nothing.
            self.input.reserve(wanted);
        }
        self.input.capacity() - self.input.len()
    }

    /// Whether there is something left of what the machine gave out.
    fn is_writing(&self) -> bool {
        self.written < self.output.len()
    }

    /// Writes what is left to write, as far as the stream takes it.
    fn write(&mut self, cx: &mut Context<'_>, stream: &mut Box<dyn Stream>) -> Result<(), Error> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut *stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Err(lost("the connection takes no more bytes")),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(lost(error)),
                Poll::Pending => return Ok(()),
            }
            self.flushed = false;
        }
        // A TCP stream has nothing to flush; a TLS stream holds the end of a write back.
        if !self.flushed {
            match Pin::new(&mut *stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(error)) => return Err(lost(error)),
                Poll::Pending => {}
            }
        }
        Ok(())
    }

    /// One locking: what was read goes in, what is to be written comes out.
    fn turn(&mut self, cx: &Context<'_>) -> Turn {
        let now = self.shared.clock.now();
        let drained = !self.is_writing();
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
            self.outbox.collect(machine);
            let stop = if machine.is_ended() {
                Some(Error::new(ErrorKind::Closed, Outcome::Unknown))
            } else {
                machine.wants_disconnect()
            };
            if alarm.is_some_and(|at| at <= now) {
                alarm = machine.poll_timeout();
            }
            locked.alarm = alarm;
            locked.writing = !drained;
            if !locked.waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                locked.waker = Some(cx.waker().clone());
            }
            Turn { alarm, stop }
        };
        self.outbox.hand_out(&self.shared);
        for host in self.outbox.probes.drain(..) {
            // On its own: it holds up nothing, and ends in a second.
            let (shared, transport) = (Arc::clone(&self.shared), Arc::clone(&self.transport));
            drop(tokio::spawn(probe(shared, transport, host)));
        }
        turn
    }

    /// Ready when something is due at `at`, or may be.
    fn poll_alarm(&mut self, cx: &mut Context<'_>, at: Option<Instant>) -> Poll<()> {
        let Some(at) = at else { return Poll::Pending };

        if self.alarm_at.is_none_or(|set| set > at) {
            self.set_alarm(at);
        }
        if self.alarm.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.give_back_memory();
        // Gone off: set for what is due next, which may be later.
        self.set_alarm(at);
        if self.shared.clock.now() >= at { Poll::Ready(()) } else { self.alarm.as_mut().poll(cx) }
    }

    #[expect(clippy::disallowed_methods, reason = "tokio's timers are set on tokio's clock")]
    fn set_alarm(&mut self, at: Instant) {
        // It looks again when it goes off, so a day is as good as a year, and no clock ends at it.
        let wait = at.since(self.shared.clock.now()).min(MAX_ALARM);
        self.alarm.as_mut().reset(tokio::time::Instant::now() + wait);
        self.alarm_at = Some(at);
    }

    /// What a burst has made large and an idle session does not need.
    fn give_back_memory(&mut self) {
        self.read_size = SMALL_READ_SIZE;
        if self.input.is_empty() && self.input.capacity() > SMALL_READ_SIZE {
            self.input = BytesMut::new();
        }
        if self.output.is_empty() {
            self.output.shrink_to(SMALL_READ_SIZE);
        }
        self.outbox.delivered.shrink_to(KEPT_ENTRIES);
        self.outbox.events.shrink_to(KEPT_ENTRIES);
        self.shared.lock().machine.answers_mut().shrink_to(KEPT_ENTRIES);
    }

    /// As [`Shared::with`], for the task itself: nobody is woken.
    fn locked<R>(&mut self, f: impl FnOnce(&mut Machine) -> R) -> R {
        let result = {
            let mut locked = self.shared.lock();
            let result = f(&mut locked.machine);
            self.outbox.collect(&mut locked.machine);
            result
        };
        self.outbox.hand_out(&self.shared);
        result
    }
}

impl Drop for Driver {
    /// Without its task the session ends: its callers must not wait for ever.
    fn drop(&mut self) {
        self.locked(|machine| machine.abandon());
        mem::take(&mut self.outbox).hand_out(&self.shared);
    }
}

/// Asks a server whether it is read-write.
///
/// Source: `ClientCnxn.SendThread.pingRwServer`.
async fn probe(shared: Arc<Shared>, transport: Arc<dyn Transport>, host: Host) {
    let ask = async {
        let mut stream = transport.connect(&host, PROBE_TIMEOUT).await?;
        stream.write_all(b"isro").await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(answer == *b"rw")
    };
    let read_write = matches!(tokio::time::timeout(PROBE_TIMEOUT, ask).await, Ok(Ok(true)));
    debug!(%host, read_write, "asked for a read-write server");
    shared.with(|machine| machine.handle_probe(&host, read_write));
}

/// How long a server may take to say whether it is read-write.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

fn lost(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_detail(why)
}
