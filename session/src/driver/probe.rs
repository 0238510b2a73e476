//! Questions to a server on a separate connection: whether it is read-write, and whether it leads. Each is a task,
//! which delays nothing else, and ends within a second.

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
use crate::config::Host;

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

/// Asks a server whether it leads the ensemble, or stands alone.
pub(super) fn spawn_role(
    shared: &Arc<Shared>,
    transport: &Arc<dyn Transport>,
    runtime: &dyn Runtime,
    host: Host,
    connection: u64,
) {
    spawn(shared, transport, runtime, host, b"srvr", MAX_SRVR, move |shared, host, answer| {
        let leads = leads(answer);
        debug!(%host, leads, "asked for the server's role");
        shared.with(|machine| machine.handle_role(connection, leads));
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
                let mut stream = transport.connect(&host, PROBE_TIMEOUT).await?;
                stream.write_all(word).await?;
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

/// Whether a reply to `srvr` comes from a leader, or from a server that stands alone.
fn leads(answer: &[u8]) -> bool {
    answer
        .split(|byte| *byte == b'\n')
        .any(|line| matches!(line.trim_ascii_end(), b"Mode: leader" | b"Mode: standalone"))
}
