//! smol as the runtime of a client.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use docent::{
    config::Host,
    runtime::{ByteStream, Connecting, Runtime, Task, Timer, Transport},
};
use smol::net::TcpStream;
use tokio_util::compat::FuturesAsyncReadCompatExt as _;

/// Where the client runs.
#[derive(Debug)]
pub(crate) struct Smol;

impl Runtime for Smol {
    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(SmolTcp)
    }

    fn timer(&self, after: Duration) -> Pin<Box<dyn Timer>> {
        Box::pin(SmolTimer(smol::Timer::after(after)))
    }

    fn spawn(&self, task: Task) {
        smol::spawn(task).detach();
    }
}

struct SmolTimer(smol::Timer);

impl Future for SmolTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(|_| ())
    }
}

impl Timer for SmolTimer {
    fn reset(mut self: Pin<&mut Self>, after: Duration) {
        self.0.set_after(after);
    }
}

#[derive(Debug)]
struct SmolTcp;

impl Transport for SmolTcp {
    fn connect<'a>(&'a self, host: &'a Host, _within: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect((host.name.as_str(), host.port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream.compat()) as Box<dyn ByteStream>)
        })
    }
}
