//! Questions to a server on a separate connection: whether it is read-write, and its status. Each is a task, which delays
//! nothing else, and ends within a second.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::debug;

use super::{runtime::Runtime, shared::Shared, transport::Transport};
use crate::{config::Host, machine::ServerStatus};

/// The time limit of a question.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest reply to `srvr` that is read, in bytes; a server sends about 200.
const MAX_SRVR: u64 = 4096;

/// Asks a server whether it is read-write.
///
/// Source: `ClientCnxn.SendThread.pingRwServer`.
pub(super) fn spawn_read_write(
    shared: &Arc<Shared>,
    transport: &Arc<dyn Transport>,
    runtime: &dyn Runtime,
    host: Host,
) {
    spawn(shared, transport, runtime, host, b"isro", 2, |shared, host, answer| {
        let read_write = answer == b"rw";
        debug!(%host, read_write, "asked for a read-write server");
        shared.with(|machine| machine.handle_probe(host, read_write));
    });
}

/// Asks a server for its status.
pub(super) fn spawn_status(
    shared: &Arc<Shared>,
    transport: &Arc<dyn Transport>,
    runtime: &dyn Runtime,
    host: Host,
    connection: u64,
) {
    spawn(shared, transport, runtime, host, b"srvr", MAX_SRVR, move |shared, host, answer| {
        let (status, now) = (ServerStatus::parse(answer), shared.clock().now());
        debug!(%host, ?status, "asked for the server's status");
        shared.with(|machine| machine.handle_status(now, connection, host, status));
    });
}

/// Sends a four-letter word, and passes on the reply: up to `limit` bytes, and none if there is an error.
fn spawn(
    shared: &Arc<Shared>,
    transport: &Arc<dyn Transport>,
    runtime: &dyn Runtime,
    host: Host,
    word: &'static [u8; 4],
    limit: u64,
    pass_on: impl FnOnce(&Shared, &Host, &[u8]) + Send + 'static,
) {
    let (shared, transport) = (Arc::clone(shared), Arc::clone(transport));
    let mut timer = runtime.timer(PROBE_TIMEOUT);
    runtime.spawn(Box::pin(async move {
        let answer = {
            let ask = async {
                let began_at = shared.clock().now();
                let mut stream = transport.connect(&host, PROBE_TIMEOUT).await?;
                shared.note_connect_time(&host, shared.clock().now() - began_at);
                stream.write_all(word).await?;
                stream.flush().await?;
                let mut answer = Vec::new();
                stream.take(limit).read_to_end(&mut answer).await?;
                Ok::<_, io::Error>(answer)
            };
            let mut ask = pin!(ask);
            poll_fn(|cx| match ask.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(answer.unwrap_or_default()),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| Vec::new()),
            })
            .await
        };
        pass_on(&shared, &host, &answer);
    }));
}
