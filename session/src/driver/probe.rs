//! Questions to servers by four-letter words, each on a connection that is made for it.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::debug;

use super::{Timer, Transport, shared::Shared};
use crate::Host;

/// Probes whether a server is read-write.
///
/// Source: `ClientCnxn.SendThread.pingRwServer`.
pub(super) async fn probe(
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    host: Host,
    mut timer: Pin<Box<dyn Timer>>,
) {
    let ask = async {
        let mut stream = transport.connect(&host, PROBE_TIMEOUT).await?;
        stream.write_all(b"isro").await?;
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).await?;
        Ok::<_, std::io::Error>(answer == *b"rw")
    };
    let mut ask = pin!(ask);
    let read_write = poll_fn(|cx| match ask.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(matches!(result, Ok(true))),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| false),
    });
    let read_write = read_write.await;
    debug!(%host, read_write, "asked for a read-write server");
    shared.with(|machine| machine.handle_probe(&host, read_write));
}

/// Probes whether a server leads the ensemble, or stands alone.
pub(super) async fn probe_role(
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    host: Host,
    connection: u64,
    mut timer: Pin<Box<dyn Timer>>,
) {
    let ask = async {
        let mut stream = transport.connect(&host, PROBE_TIMEOUT).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = Vec::new();
        stream.take(MAX_SRVR).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(leads(&answer))
    };
    let mut ask = pin!(ask);
    let leads = poll_fn(|cx| match ask.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(matches!(result, Ok(true))),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| false),
    });
    let leads = leads.await;
    debug!(%host, leads, "asked for the server's role");
    shared.with(|machine| machine.handle_role(connection, leads));
}

/// Whether a reply to `srvr` comes from a leader, or from a server that stands alone.
fn leads(answer: &[u8]) -> bool {
    answer
        .split(|byte| *byte == b'\n')
        .any(|line| matches!(line.trim_ascii_end(), b"Mode: leader" | b"Mode: standalone"))
}

/// The largest reply to `srvr` that is read, in bytes; a server sends about 200.
const MAX_SRVR: u64 = 4096;

/// The time limit of a probe.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::leads;

    #[test]
    fn a_leader_and_a_server_that_stands_alone_lead() {
        assert!(leads(b"Zookeeper version: 3.8.0\nOutstanding: 0\nZxid: 0x1\nMode: leader\n"));
        assert!(leads(b"Mode: standalone\r\nNode count: 5\n"));
        for other in [&b"Mode: follower\n"[..], b"Mode: observer\n", b"Mode: leader?\n", b""] {
            assert!(!leads(other), "{}", other.escape_ascii());
        }
        assert!(!leads(b"srvr is not executed because it is not in the whitelist.\n"));
    }
}
