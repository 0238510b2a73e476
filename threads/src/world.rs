//! The surroundings of the clients: tasks that are shuttle's, time that only goes on for short timers, and one server.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, ready},
    io, mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use docent::{
    Client, Config, Watcher, blocking,
    config::Host,
    runtime::{Clock, Connecting, Instant, Runtime, Task, Timer, Transport},
};
use shuttle::future::{JoinHandle, block_on, spawn};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::search::race;

/// Time goes on at once for shorter timers: the pauses before a reconnect. Longer ones never fire.
const SHORT: Duration = Duration::from_millis(200);

/// The locks and atomics in here are the standard library's, so they are no points of the schedule. Nothing waits while it
/// holds one.
#[derive(Clone, Default)]
pub(crate) struct World(Arc<State>);

#[derive(Default)]
struct State {
    tasks: Mutex<Vec<JoinHandle<()>>>,
    has_ended: AtomicBool,
    /// In nanoseconds.
    now: AtomicU64,
    server: Mutex<Server>,
}

impl World {
    pub(crate) fn config(&self) -> Config {
        Config::new("server:2181").expect("a valid name").with_runtime(self.clone())
    }

    fn connected() -> (Self, Client) {
        let world = Self::default();
        let client = block_on(world.config().connect()).expect("the server accepts");
        (world, client)
    }

    /// A client with a session, as the race begins.
    pub(crate) fn begin() -> (Self, Client) {
        let connected = Self::connected();
        race();
        connected
    }

    /// As [`begin`](Self::begin), for a thread without a task.
    pub(crate) fn blocking() -> (Self, blocking::Client) {
        let world = Self::default();
        let client = blocking::Client::connect_with(world.config()).expect("the server accepts");
        race();
        (world, client)
    }

    /// As [`begin`](Self::begin), with a watcher of `/watched`.
    pub(crate) fn watching() -> (Self, Client, Watcher) {
        let (world, client) = Self::connected();
        let watched = block_on(client.get_data_and_watch("/watched"));
        race();
        (world, client, watched.expect("a reply").1)
    }

    /// Ends the runtime: its tasks are dropped, each in its own thread.
    pub(crate) fn end(&self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        let tasks = mem::take(&mut *lock(&self.0.tasks));
        tasks.iter().for_each(JoinHandle::abort);
        lock(&self.0.tasks).extend(tasks);
    }

    /// Waits until all tasks have ended, which they do once the clients have. The server must have received closeSession once.
    pub(crate) fn finish(self) {
        loop {
            let Some(task) = lock(&self.0.tasks).pop() else { break };
            // An error: the task was dropped with its runtime.
            let _ = block_on(task);
        }
        assert!(self.has_closed(), "closeSession was received {} times", self.server().closes);
    }

    /// Whether the server has received closeSession, once.
    pub(crate) fn has_closed(&self) -> bool {
        self.server().closes == 1
    }

    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        lock(&self.0.server)
    }

    fn now(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is locked")
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl Runtime for World {
    fn clock(&self) -> Clock {
        let world = self.clone();
        Clock::from_fn(move || Instant::from_nanos(world.now() + 1))
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.clone())
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        let mut timer = Box::pin(WorldTimer { world: self.clone(), due: 0 });
        timer.as_mut().reset(after);
        timer
    }

    fn spawn(&self, task: Task) {
        if !self.0.has_ended.load(Ordering::Relaxed) {
            let task = spawn(task);
            lock(&self.0.tasks).push(task);
        }
    }

    fn fill_random(&self, bytes: &mut [u8]) -> bool {
        bytes.fill(0);
        true
    }
}

struct WorldTimer {
    world: World,
    due: u64,
}

impl Future for WorldTimer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let left = Duration::from_nanos(self.due.saturating_sub(self.world.now()));
        if left > SHORT {
            return Poll::Pending;
        }
        self.world.0.now.fetch_max(self.due, Ordering::Relaxed);
        Poll::Ready(())
    }
}

impl Timer for WorldTimer {
    fn reset(mut self: Pin<&mut Self>, after: Duration) {
        let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX / 2);
        self.due = self.world.now().saturating_add(after);
    }
}

impl Transport for World {
    fn connect<'a>(&'a self, _: &'a Host, _: Duration) -> Connecting<'a> {
        let mut server = self.server();
        let number = server.number + 1;
        *server = Server { number, is_open: true, closes: server.closes, ..Server::default() };
        Box::pin(ready(Ok(Box::new(Connection { world: self.clone(), number }) as _)))
    }
}

/// A server with one session and one connection, which answers as soon as it has read. The data of each node is its path.
#[derive(Default)]
pub(crate) struct Server {
    number: u32,
    is_open: bool,
    is_connected: bool,
    zxid: i64,
    input: Vec<u8>,
    output: VecDeque<u8>,
    reader: Option<Waker>,
    closes: u32,
}

/// `OpCode` and `xid` of ZooKeeper's protocol.
const GET_DATA: i32 = 4;
const CLOSE: i32 = -11;
const EVENT: i32 = -1;

impl Server {
    /// Ends the connection.
    pub(crate) fn cut(&mut self) {
        self.is_open = false;
        self.wake();
    }

    /// Sends the event that the data of a node has changed.
    pub(crate) fn change(&mut self, path: &str) {
        let (node_data_changed, sync_connected) = (3_i32, 3_i32);
        let event = [node_data_changed.to_be_bytes(), sync_connected.to_be_bytes()].concat();
        self.reply(EVENT, -1, &[event, string(path.as_bytes())].concat());
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn send(&mut self, record: &[u8]) {
        self.output.extend(string(record));
        self.wake();
    }

    fn reply(&mut self, xid: i32, zxid: i64, record: &[u8]) {
        self.send(&[&xid.to_be_bytes()[..], &zxid.to_be_bytes(), &[0; 4], record].concat());
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        while let Some((length, rest)) = self.input.split_first_chunk() {
            let Some(request) = rest.get(..u32::from_be_bytes(*length) as usize) else { return };
            let request = request.to_vec();
            self.input.drain(..4 + request.len());
            self.answer(&request);
        }
    }

    fn answer(&mut self, request: &[u8]) {
        if !mem::replace(&mut self.is_connected, true) {
            // The version of the protocol, the timeout in ms, the session's id and password, and not read-only.
            let (timeout, session) = (30_000_i32.to_be_bytes(), 1_i64.to_be_bytes());
            let accepted = [&[0; 4], &timeout[..], &session, &string(&[0; 16]), &[0]].concat();
            return self.send(&accepted);
        }
        let number = |at: usize| {
            i32::from_be_bytes(*request[at..].first_chunk().expect("a request has a header"))
        };
        let (xid, op) = (number(0), number(4));
        self.closes += u32::from(op == CLOSE);
        self.zxid += 1;
        let record = match op {
            GET_DATA => [&request[8..request.len() - 1], &[0; 68]].concat(),
            _ => Vec::new(),
        };
        self.reply(xid, self.zxid, &record);
    }
}

/// Bytes with their length in front: a string, or a frame.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat()
}

/// The client's end of a connection.
struct Connection {
    world: World,
    number: u32,
}

impl Connection {
    /// The server, unless this connection has ended.
    fn server(&self) -> Option<MutexGuard<'_, Server>> {
        Some(self.world.server()).filter(|server| server.is_open && server.number == self.number)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(mut server) = self.server() else { return Poll::Ready(Ok(())) };
        if server.output.is_empty() {
            server.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buf.remaining().min(server.output.len());
        buf.put_slice(&server.output.drain(..count).collect::<Vec<_>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(mut server) = self.server() else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        server.receive(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
