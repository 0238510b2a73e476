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
    time::{sleep, timeout},
};

/// Maximum size of a reply, in bytes; both replies are far smaller.
const LIMIT: usize = 4096;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

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

/// A client that reconnects between the two requests takes the session back: the server then ends this connection.
async fn kill(server: &str, session_id: i64, passwd: &[u8]) -> io::Result<()> {
    let mut close_was_sent = false;
    loop {
        match try_kill(server, session_id, passwd, &mut close_was_sent).await {
            Err(error) if is_end_of_connection(&error) => sleep(PAUSE).await,
            Err(error) if error.kind() == io::ErrorKind::NotFound && close_was_sent => {
                return Ok(());
            }
            result => return result,
        }
    }
}

fn is_end_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

async fn try_kill(
    server: &str,
    session_id: i64,
    passwd: &[u8],
    close_was_sent: &mut bool,
) -> io::Result<()> {
    let mut stream = attach(server, session_id, passwd).await?;
    let mut out = Vec::new();
    frame::put_operation(&mut out, LIMIT, 1, &operation::CloseSession).map_err(invalid)?;
    *close_was_sent = true;
    stream.write_all(&out).await?;
    read_frame(&mut stream).await?;
    Ok(())
}

async fn attach(server: &str, session_id: i64, passwd: &[u8]) -> io::Result<TcpStream> {
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
    Ok(stream)
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use docent_protocol::{ErrorCode, reply::ReplyHeader};
    use tokio::net::TcpListener;

    use super::*;
    use crate::tap::Tap;

    async fn accept(listener: &TcpListener, session_id: i64) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_frame(&mut stream).await.unwrap();
        let response = ConnectResponse {
            protocol_version: 0,
            time_out: if session_id == 0 { 0 } else { 10_000 },
            session_id,
            passwd: Some(&[0; 16]),
            read_only: Some(false),
        };
        let mut out = Vec::new();
        frame::put_record(&mut out, LIMIT, &response).unwrap();
        stream.write_all(&out).await.unwrap();
        stream
    }

    async fn killed(sessions: &[i64]) -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let serve = async {
            for session_id in sessions {
                let mut stream = accept(&listener, *session_id).await;
                if *session_id != 0 {
                    // The close is read, and never answered.
                    read_frame(&mut stream).await.unwrap();
                }
            }
        };
        tokio::join!(kill_session(&server, 5, &[0; 16], Duration::from_secs(60)), serve).0
    }

    // Case (Found in docent itself): `kill_session` of the testing crate failed when the session's
    // client reconnected between its two requests.
    #[tokio::test]
    async fn a_session_that_its_client_takes_back_is_killed_again() {
        killed(&[5, 5, 0]).await.unwrap();
    }

    // Case (Found in docent itself): a client came back between the two requests of `kill_session`, and
    // a recorded trace had one connection more.
    #[tokio::test]
    async fn a_client_behind_a_tap_hears_of_the_end_when_its_session_has_ended() {
        const LONG_ENOUGH_TO_COME_BACK: Duration = Duration::from_millis(100);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tap = Tap::start(&listener.local_addr().unwrap().to_string()).await.unwrap();
        let port = tap.client("A").await.unwrap();
        let server = async {
            let session = accept(&listener, 5).await;
            let mut killer = accept(&listener, 5).await;
            drop(session);
            let back = timeout(LONG_ENOUGH_TO_COME_BACK, listener.accept()).await;
            assert!(back.is_err(), "the client came back before its session had ended");
            read_frame(&mut killer).await.unwrap();
            let mut reply = Vec::new();
            let header = ReplyHeader { xid: 1, zxid: 0, err: ErrorCode::Ok };
            frame::put_record(&mut reply, LIMIT, &header).unwrap();
            killer.write_all(&reply).await.unwrap();
            accept(&listener, 0).await;
        };
        let client = async {
            let address = port.connect_string();
            let mut stream = attach(&address, 0, &[0; 16]).await.unwrap();
            let killing = port.kill_session(Duration::from_secs(60));
            let comes_back = async {
                read_frame(&mut stream).await.unwrap_err();
                attach(&address, 5, &[0; 16]).await.unwrap_err()
            };
            let (killed, end) = tokio::join!(killing, comes_back);
            killed.unwrap();
            assert_eq!(end.kind(), io::ErrorKind::NotFound);
        };
        tokio::join!(client, server);
    }

    #[tokio::test]
    async fn an_unknown_session_is_an_error() {
        assert_eq!(killed(&[0]).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
