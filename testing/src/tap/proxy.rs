//! The sockets of the tap: one accept loop for each listener, one task for each connection.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use docent_protocol::dissect::Direction;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    capture::Segment,
    conversation::{Conversation, Registry, Step},
    record::{Record, Side, What},
};
use crate::kept_port::KeptPort;

/// Size of the read buffer, in bytes.
const READ_SIZE: usize = 64 * 1024;

/// Default maximum number of records.
pub(crate) const DEFAULT_LIMIT: usize = 1_000_000;

/// The state shared by all tasks of one tap.
#[derive(Debug)]
pub(crate) struct Shared {
    upstream: Mutex<String>,
    state: Mutex<State>,
    /// Number of records so far.
    pub(crate) count: watch::Sender<u64>,
    /// Notified when the delays in progress end.
    pub(crate) delays: watch::Sender<()>,
    started: Instant,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) registry: Registry,
    /// The latest records; `forgotten` is the `seq` of the first.
    pub(crate) records: VecDeque<Arc<Record>>,
    pub(crate) forgotten: u64,
    /// Maximum number of records kept.
    pub(crate) limit: usize,
    pub(crate) capture: Option<mpsc::Sender<Segment>>,
    connections: u64,
}

impl Shared {
    pub(crate) fn new(upstream: &str) -> Self {
        Self {
            upstream: Mutex::new(upstream.to_owned()),
            state: Mutex::new(State {
                registry: Registry::default(),
                records: VecDeque::new(),
                forgotten: 0,
                limit: DEFAULT_LIMIT,
                capture: None,
                connections: 0,
            }),
            count: watch::Sender::new(0),
            delays: watch::Sender::new(()),
            started: Instant::now(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn upstream(&self) -> String {
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_upstream(&self, upstream: &str) {
        upstream.clone_into(&mut self.upstream.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Appends a record. The caller holds the lock on the state, so records are in order.
    fn push(
        &self,
        state: &mut State,
        connection: u64,
        client: &Arc<str>,
        what: What,
        injected: Option<&'static str>,
    ) {
        while state.records.len() >= state.limit.max(1) {
            state.records.pop_front();
            state.forgotten += 1;
        }
        let seq = state.forgotten + state.records.len() as u64;
        let at = self.started.elapsed();
        let client = Arc::clone(client);
        state.records.push_back(Arc::new(Record { seq, at, connection, client, what, injected }));
        self.count.send_replace(seq + 1);
    }

    pub(crate) fn note(&self, text: &str) {
        let mut state = self.state();
        self.push(&mut state, 0, &Arc::from(""), What::Note(text.to_owned()), None);
    }

    fn closed(&self, connection: u64, client: &Arc<str>, by: Side) {
        let mut state = self.state();
        self.push(&mut state, connection, client, What::Closed { by }, None);
    }
}

/// Settings that can change while connections are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    /// Stalls both directions.
    pub(crate) stalled: bool,
    /// The number of sessions being ended. Above 0, both directions are stalled too.
    pub(crate) kills: usize,
    /// Sends each byte in a separate write.
    pub(crate) split: bool,
    /// Closes the listener.
    pub(crate) refuse: bool,
    /// Cuts the connections that were accepted when this number was smaller.
    pub(crate) cut: u64,
}

/// One listener and the connections accepted through it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) label: Arc<str>,
    kept: KeptPort,
    pub(crate) settings: watch::Sender<Settings>,
    /// Whether the accept loop is listening, or the error of its bind.
    pub(crate) listening: watch::Sender<Result<bool, io::ErrorKind>>,
    /// Remaining bytes before a cut, by direction.
    budget: Mutex<[Option<usize>; 2]>,
    /// Number of open connections.
    pub(crate) open: watch::Sender<usize>,
}

impl Port {
    fn new(label: Arc<str>, kept: KeptPort) -> Self {
        Self {
            label,
            kept,
            settings: watch::Sender::new(Settings::default()),
            listening: watch::Sender::new(Ok(true)),
            budget: Mutex::default(),
            open: watch::Sender::new(0),
        }
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.kept.addr()
    }

    pub(crate) fn set_budget(&self, direction: Direction, bytes: Option<usize>) {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = budget.get_mut(direction as usize) {
            *slot = bytes;
        }
    }

    /// Returns how many of `len` bytes may pass. If fewer than `len`, the connection is cut after them and the budget
    /// is cleared.
    fn spend(&self, direction: Direction, len: usize) -> usize {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = budget.get_mut(direction as usize) else { return len };
        match *slot {
            Some(left) if left < len => {
                *slot = None;
                left
            }
            Some(left) => {
                *slot = Some(left - len);
                len
            }
            None => len,
        }
    }
}

/// Binds a listener and starts its accept loop in `tasks`.
pub(crate) async fn open_port(
    shared: &Arc<Shared>,
    label: Arc<str>,
    addr: SocketAddr,
    tasks: &mut JoinSet<()>,
) -> io::Result<Arc<Port>> {
    let (kept, listener) = KeptPort::listen(addr).await?;
    let port = Arc::new(Port::new(label, kept));
    tasks.spawn(accept(Arc::clone(shared), Arc::clone(&port), listener));
    Ok(port)
}

async fn accept(shared: Arc<Shared>, port: Arc<Port>, listener: TcpListener) {
    let mut listener = Some(listener);
    let mut settings = port.settings.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let wanted = !settings.borrow_and_update().refuse;
        if wanted && listener.is_none() {
            match port.kept.listen_again().await {
                Ok(bound) => listener = Some(bound),
                Err(error) => {
                    let _ = port.listening.send_replace(Err(error.kind()));
                }
            }
        } else if !wanted {
            listener = None;
        }
        if wanted == listener.is_some() {
            let _ = port.listening.send_replace(Ok(wanted));
        }
        tokio::select! {
            accepted = next_connection(listener.as_ref()) => {
                if let Ok((stream, _)) = accepted {
                    let born = settings.borrow().cut;
                    let (shared, port) = (Arc::clone(&shared), Arc::clone(&port));
                    connections.spawn(converse(shared, port, stream, born));
                }
            }
            changed = settings.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn next_connection(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Counts a connection as open until dropped.
struct Open<'a>(&'a Port);

impl<'a> Open<'a> {
    fn new(port: &'a Port) -> Self {
        port.open.send_modify(|open| *open += 1);
        Self(port)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open = open.saturating_sub(1));
    }
}

/// Runs one client connection, from its acceptance to its end.
async fn converse(shared: Arc<Shared>, port: Arc<Port>, client: TcpStream, born: u64) {
    let _open = Open::new(&port);
    let connection = {
        let mut state = shared.state();
        state.connections += 1;
        state.connections
    };
    let mut settings = port.settings.subscribe();
    let Ok(server) = TcpStream::connect(shared.upstream()).await else {
        return shared.closed(connection, &port.label, Side::Server);
    };
    // Nagle's algorithm would merge the bytes of a split frame.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let talk = Arc::new(Mutex::new(Conversation::new(Arc::clone(&port.label))));
    let pipe = |direction| Pipe {
        shared: &shared,
        port: &port,
        connection,
        direction,
        talk: &talk,
        settings: port.settings.subscribe(),
        delays: shared.delays.subscribe(),
    };
    let (mut up, mut down) = (pipe(Direction::ToServer), pipe(Direction::ToClient));
    let mut upwards = std::pin::pin!(up.run(from_client, to_server));
    let mut downwards = std::pin::pin!(down.run(from_server, to_client));
    let mut client_done = false;
    let by = loop {
        tokio::select! {
            end = &mut upwards, if !client_done => match end {
                End::Eof => client_done = true,
                End::Broken => break Side::Client,
                End::Cut => break Side::Tap,
            },
            end = &mut downwards => match end {
                End::Eof | End::Broken => {
                    break if client_done { Side::Client } else { Side::Server };
                }
                End::Cut => break Side::Tap,
            },
            _ = settings.wait_for(|settings| settings.cut > born) => break Side::Tap,
        }
    };
    let name = Arc::clone(&talk.lock().unwrap_or_else(PoisonError::into_inner).client);
    shared.closed(connection, &name, by);
}

/// How one direction ended.
enum End {
    /// The sender has closed its side, and this was forwarded to the other side.
    Eof,
    /// A socket error.
    Broken,
    /// A fault.
    Cut,
}

/// One direction of one connection.
struct Pipe<'a> {
    shared: &'a Shared,
    port: &'a Port,
    connection: u64,
    direction: Direction,
    talk: &'a Mutex<Conversation>,
    settings: watch::Receiver<Settings>,
    /// Receives from [`Shared::delays`].
    delays: watch::Receiver<()>,
}

impl Pipe<'_> {
    async fn run(&mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> End {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let Ok(len) = from.read(&mut buffer).await else { return End::Broken };
            // Before the bytes are passed on: a reply is behind its request.
            self.capture(buffer.get(..len).unwrap_or_default()).await;
            let mut steps = Vec::new();
            {
                // Lock order: the state before the conversation, everywhere. Both stay locked until the records
                // are kept, so records are in the order of this lock.
                let mut state = self.shared.state();
                let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
                // Before the records are visible: a delay can be ended as soon as its frame is in the trace.
                self.delays.mark_unchanged();
                if len == 0 {
                    talk.finish(self.direction, &mut steps);
                } else {
                    let bytes = buffer.get(..len).unwrap_or_default();
                    talk.feed(self.direction, bytes, &mut state.registry, &mut steps);
                }
                self.keep_records(&mut state, &talk.client, &mut steps);
            }
            for step in steps {
                match step {
                    Step::Send(bytes) => match self.send(bytes, &mut to).await {
                        None => {}
                        Some(end) => return end,
                    },
                    Step::Wait(delay) => {
                        // The sender is in `shared`, so `changed` does not fail.
                        let _ = timeout(delay, self.delays.changed()).await;
                    }
                    Step::Cut => return End::Cut,
                    Step::Record(..) => {}
                }
            }
            if len == 0 {
                self.wait_until_resumed().await;
                let _ = to.shutdown().await;
                return End::Eof;
            }
        }
    }

    async fn capture(&self, bytes: &[u8]) {
        let capture = self.shared.state().capture.clone();
        let Some(capture) = capture.filter(|_| !bytes.is_empty()) else { return };
        let segment = Segment {
            at: Some(self.shared.started.elapsed()),
            connection: Some(self.connection),
            direction: self.direction,
            bytes: Bytes::copy_from_slice(bytes),
        };
        // The subscriber may be gone.
        let _ = capture.send(segment).await;
    }

    fn keep_records(&self, state: &mut State, client: &Arc<str>, steps: &mut Vec<Step>) {
        let mut kept = Vec::with_capacity(steps.len());
        for step in steps.drain(..) {
            match step {
                Step::Record(what, injected) => {
                    self.shared.push(state, self.connection, client, what, injected);
                }
                other => kept.push(other),
            }
        }
        *steps = kept;
    }

    /// Waits while the tap stalls all traffic.
    async fn wait_until_resumed(&mut self) {
        let _ = self.settings.wait_for(|settings| !settings.stalled && settings.kills == 0).await;
    }

    async fn send(&mut self, bytes: Bytes, to: &mut OwnedWriteHalf) -> Option<End> {
        self.wait_until_resumed().await;
        let allowed = self.port.spend(self.direction, bytes.len());
        let now = bytes.get(..allowed).unwrap_or_default();
        let split = self.settings.borrow().split;
        let chunk = if split { 1 } else { now.len().max(1) };
        for piece in now.chunks(chunk) {
            if to.write_all(piece).await.is_err() {
                return Some(End::Broken);
            }
            if split {
                tokio::task::yield_now().await;
            }
        }
        (allowed < bytes.len()).then_some(End::Cut)
    }
}
