//! Ends the session of another client.

use std::{io, time::Duration};

use docent_protocol::{
    Decode as _,
    connect::{ConnectRequest, ConnectResponse},
    frame,
    jute::Reader,
    operation,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// Maximum size of a reply, in bytes; both replies are far smaller.
const LIMIT: usize = 4096;

/// Attaches to a session by its id and password and closes it, like Curator's `KillSession`. The server ends the
/// session's previous connection. The session's ephemeral nodes are gone when this returns.
///
/// # Errors
///
/// `NotFound` if the server does not know the session (any more), `TimedOut` after `deadline`, or any socket error.
pub async fn kill_session(
    server: &str,
    session_id: i64,
    passwd: &[u8],
    deadline: Duration,
) -> io::Result<()> {
    match timeout(deadline, kill(server, session_id, passwd)).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn kill(server: &str, session_id: i64, passwd: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    let mut out = Vec::new();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        time_out: 10_000,
        session_id,
        passwd: Some(passwd),
        read_only: Some(false),
    };
    frame::put_record(&mut out, LIMIT, &request).map_err(invalid)?;
    stream.write_all(&out).await?;
    let answer = read_frame(&mut stream).await?;
    let response = ConnectResponse::decode(&mut Reader::new(&answer)).map_err(invalid)?;
    if response.is_refused() {
        return Err(io::ErrorKind::NotFound.into());
    }
    out.clear();
    frame::put_operation(&mut out, LIMIT, 1, &operation::CloseSession).map_err(invalid)?;
    stream.write_all(&out).await?;
    read_frame(&mut stream).await?;
    Ok(())
}

async fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let len = usize::try_from(stream.read_i32().await?).unwrap_or(usize::MAX);
    if len > LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; len];
    stream.read_exact(&mut payload).await?;
    Ok(payload)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
