//! Connections without sockets, so that time can be paused.

#![allow(dead_code, reason = "not every test program uses all of it")]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use docent_session::{
    Config,
    config::Host,
    runtime::{Clock, Connecting, Transport},
};
use docent_testing::TestingServer;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::{Instant, sleep_until},
};

/// Connections to a server in this process.
#[derive(Debug, Clone)]
pub(crate) struct InProcess {
    server: Arc<TestingServer>,
    latency: Arc<Mutex<Duration>>,
}

impl InProcess {
    pub(crate) fn new(server: &Arc<TestingServer>) -> Self {
        Self { server: Arc::clone(server), latency: Arc::default() }
    }

    /// From now on, each reply takes this long.
    pub(crate) fn set_latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }

    /// The settings of a client with these connections.
    pub(crate) fn config(self) -> Config {
        Config::new("in-process:2181").unwrap().with_clock(Clock::tokio()).with_transport(self)
    }

    pub(crate) fn with_latency(self, latency: Duration) -> Self {
        self.set_latency(latency);
        self
    }
}

impl Transport for InProcess {
    fn connect<'a>(&'a self, _: &'a Host, _: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let stream = self.server.connect().ok_or(io::ErrorKind::ConnectionRefused)?;
            let (client, link) = tokio::io::duplex(1 << 16);
            let (from_server, to_server) = tokio::io::split(stream);
            let (from_client, to_client) = tokio::io::split(link);
            tokio::spawn(forward(from_server, to_client, Arc::clone(&self.latency)));
            tokio::spawn(forward(from_client, to_server, Arc::default()));
            Ok(Box::new(client) as _)
        })
    }
}

/// Writes each part after the latency, without delaying those behind it further.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
    latency: Arc<Mutex<Duration>>,
) {
    let (parts, mut delayed) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, part)) = delayed.recv().await {
            if at > Instant::now() {
                sleep_until(at).await;
            }
            if to.write_all(&part).await.is_err() {
                return;
            }
        }
        // A failure means that the other side has gone, too.
        let _ = to.shutdown().await;
    });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let at = Instant::now() + *latency.lock().unwrap();
        if parts.send((at, bytes[..count].to_vec())).is_err() {
            return;
        }
    }
}
