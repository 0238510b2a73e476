//! The surroundings of the clients: tasks that are shuttle's, time that only goes on for short timers, and one server.

use std::{
    fmt,
    future::{Future, ready},
    io, mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use docent::{
    Client, Config, Watcher, blocking,
    config::Host,
    runtime::{Clock, Connecting, Instant, Runtime, Task, Timer, Transport},
};
use shuttle::future::{JoinHandle, block_on, spawn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use crate::race::{at_once, race};

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
    /// A task for each connection.
    servers: Mutex<Vec<JoinHandle<()>>>,
    /// How many times closeSession was received.
    closes: AtomicU32,
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
        for tasks in [&self.0.tasks, &self.0.servers] {
            loop {
                let Some(task) = lock(tasks).pop() else { break };
                // An error: the task was dropped with its runtime.
                let _ = block_on(task);
            }
        }
        assert!(self.has_closed(), "closeSession was received {:?} times", self.0.closes);
    }

    /// Whether the server has received closeSession, once.
    pub(crate) fn has_closed(&self) -> bool {
        self.0.closes.load(Ordering::Relaxed) == 1
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
        let (stream, server) = duplex(4096);
        let world = self.clone();
        // An error: the client has ended the connection.
        lock(&self.0.servers).push(spawn(async move { drop(world.serve(server).await) }));
        Box::pin(ready(Ok(Box::new(stream) as _)))
    }
}

/// `OpCode` and `xid` of ZooKeeper's protocol.
const GET_DATA: i32 = 4;
const CLOSE: i32 = -11;
const EVENT: i32 = -1;

/// A server with one session. The data of each node is its path.
impl World {
    /// Answers the requests of a connection, until it ends. To read `/change` changes `/watched`, to read `/cut` ends the
    /// connection.
    async fn serve(&self, mut stream: DuplexStream) -> io::Result<()> {
        at_once();
        read(&mut stream).await?;
        // The version of the protocol, the timeout in ms, the session's id and password, and not read-only.
        let (timeout, session) = (30_000_i32.to_be_bytes(), 1_i64.to_be_bytes());
        let accepted = [&[0; 4], &timeout[..], &session, &string(&[0; 16]), &[0]].concat();
        stream.write_all(&string(&accepted)).await?;
        for zxid in 1.. {
            let request = read(&mut stream).await?;
            let number = |at: usize| {
                i32::from_be_bytes(*request[at..].first_chunk().expect("a request has a header"))
            };
            let (xid, op) = (number(0), number(4));
            self.0.closes.fetch_add(u32::from(op == CLOSE), Ordering::Relaxed);
            let mut record = Vec::new();
            if op == GET_DATA {
                let path = &request[8..request.len() - 1];
                if path.ends_with(b"/cut") {
                    break;
                }
                if path.ends_with(b"/change") {
                    // NodeDataChanged, SyncConnected.
                    let event = [&[0, 0, 0, 3, 0, 0, 0, 3], &string(b"/watched")[..]].concat();
                    let _ = stream.write_all(&reply(EVENT, -1, &event)).await;
                }
                record = [path, &[0; 68]].concat();
            }
            // As Tcp's stream, this client reads replies until the server has read its last request.
            let _ = stream.write_all(&reply(xid, zxid, &record)).await;
        }
        Ok(())
    }
}

async fn read(stream: &mut DuplexStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; stream.read_u32().await? as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

fn reply(xid: i32, zxid: i64, record: &[u8]) -> Vec<u8> {
    string(&[&xid.to_be_bytes()[..], &zxid.to_be_bytes(), &[0; 4], record].concat())
}

/// Bytes with their length in front: a string, or a frame.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat()
}
