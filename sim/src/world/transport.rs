//! The transport of the clients of a process: a stream for each connection of the network.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use docent::{
    config::Host,
    runtime::{ByteStream, Connecting, Transport},
};
use docent_protocol::dissect::Dissector;
use docent_session::planted;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    World,
    connections::{Connection, Direction, Ending, Segment, State, WINDOW},
    process::ProcessState,
    time::Pid,
};

/// The transport of the clients of a process. A server's name is `s` and its number.
#[derive(Debug, Clone)]
pub(crate) struct SimTransport {
    pub(crate) world: World,
    pub(crate) pid: Pid,
}

impl Transport for SimTransport {
    fn connect<'a>(&'a self, host: &'a Host, _within: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let member = host.name.strip_prefix('s').and_then(|number| number.parse().ok());
            let unknown = || io::Error::new(io::ErrorKind::NotFound, "an unknown host");
            let member: usize = member.ok_or_else(unknown)?;
            let mut stream = self.open(member)?;
            std::future::poll_fn(|cx| stream.poll_connected(cx)).await?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }
}

impl SimTransport {
    fn open(&self, member: usize) -> io::Result<SimStream> {
        let (world, pid) = (&self.world, self.pid);
        let mut core = world.core();
        if member >= core.servers.count {
            return Err(io::Error::new(io::ErrorKind::NotFound, "an unknown host"));
        }
        let id = core.network.connections.len();
        core.network.attempts.entry(pid).or_insert((0, world.now())).0 += 1;
        let member = match core.network.names.get(&member) {
            Some(leads_to) => leads_to
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "an unknown host"))?,
            None => member,
        };
        // A load balancer gives each connection to the next server.
        let is_balanced = planted::is("servers-behind-one-address");
        let member = if is_balanced { (member + id) % core.servers.count } else { member };
        let dissector = core.shows_frames.then(Dissector::new);
        let connection = Connection { pid, member, dissector, ..Connection::default() };
        core.network.connections.push(connection);
        core.send(world.now(), id, Direction::ToServer, Segment::Connect);
        drop(core);
        Ok(SimStream { world: world.clone(), id, is_shut: false })
    }
}

/// The client's end of a connection.
struct SimStream {
    world: World,
    id: usize,
    is_shut: bool,
}

impl SimStream {
    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut core = self.world.core();
        let c = &mut core.network.connections[self.id];
        match c.state {
            State::Open => Poll::Ready(Ok(())),
            State::Refused => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            State::Connecting => {
                c.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            let now = self.world.now();
            let mut core = self.world.core();
            let pid = core.network.connections[self.id].pid;
            if !core.process(pid).is_powered_off {
                core.send(now, self.id, Direction::ToServer, Segment::End(Ending::Orderly));
            }
        }
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.end();
        let mut core = self.world.core();
        let c = &mut core.network.connections[self.id];
        c.is_dropped = true;
        c.inbox.clear();
        let wakers = (c.reader.take(), c.writer.take());
        drop(core);
        drop(wakers);
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut core = self.world.core();
        let most = core.short(buf.remaining());
        let c = &mut core.network.connections[self.id];
        let Some(first) = c.inbox.front_mut() else {
            return match c.inbox_end {
                Some(Ending::Orderly) => Poll::Ready(Ok(())),
                Some(Ending::Reset) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => {
                    c.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        };
        let count = most.min(first.len());
        buf.put_slice(&first.split_to(count));
        if !first.has_remaining() {
            c.inbox.pop_front();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let now = self.world.now();
        let mut core = self.world.core();
        let most = core.short(buf.len());
        let c = &mut core.network.connections[self.id];
        if c.inbox_end.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = most.min(WINDOW.saturating_sub(c.to_server.in_flight));
        if count == 0 && !buf.is_empty() {
            c.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let pid = c.pid;
        if core.process(pid).state == ProcessState::Dead {
            // A killed process writes nothing, whatever its destructors try.
            return Poll::Ready(Ok(count));
        }
        core.network.connections[self.id].to_server.in_flight += count;
        let data = Bytes::copy_from_slice(&buf[..count]);
        core.send(now, self.id, Direction::ToServer, Segment::Data(data));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}
