//! The connections of the page's server: one request each, within limits of size, number and time. No client keeps
//! another one waiting, however slow it is.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, runtime, sync::Semaphore, task::spawn_blocking, time::timeout};

/// The longest head of a request in bytes: that of a browser has the cookies of all other programs on this host.
const LONGEST_HEAD: usize = 64 * 1024;

/// The longest body in bytes.
const LONGEST_BODY: usize = 64 * 1024;

/// The time in which the head of a request must arrive, and the body.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The time in which a connection must end.
const LONGEST_CONNECTION: Duration = Duration::from_secs(60);

/// The stack of a thread that answers a request: the futures of a simulated client are large in a build for tests.
const RUN_STACK: usize = 16 << 20;

/// The most connections at once. Further ones are closed.
const MOST_CONNECTIONS: usize = 128;

/// A response.
pub(crate) type Answer = Response<Full<Bytes>>;

/// A reason for which a request has no response but this one.
type Refusal = (u16, &'static str);

/// Answers requests until the process ends.
pub(crate) fn serve(
    listener: std::net::TcpListener,
    respond: impl Fn(Result<Request<Bytes>, Refusal>) -> Option<Answer> + Send + Sync + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime =
        runtime::Builder::new_current_thread().enable_all().thread_stack_size(RUN_STACK).build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let (respond, room) = (Arc::new(respond), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
        loop {
            let (stream, _) = listener.accept().await?;
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
            let respond = Arc::clone(&respond);
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(LONGEST_WAIT)
                .max_buf_size(LONGEST_HEAD)
                .keep_alive(false)
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| {
                        let respond = Arc::clone(&respond);
                        async move {
                            let request = whole(request).await;
                            // A run takes seconds.
                            let response = spawn_blocking(move || respond(request)).await;
                            Ok::<_, Infallible>(response.ok().flatten().unwrap_or_else(failed))
                        }
                    }),
                );
            tokio::spawn(async move {
                // The reader may be gone.
                let _ = timeout(LONGEST_CONNECTION, connection).await;
                drop(place);
            });
        }
    })
}

/// Waits for the body of a request.
async fn whole(request: Request<Incoming>) -> Result<Request<Bytes>, Refusal> {
    let (head, body) = request.into_parts();
    let too_long = (413, "the request is too long");
    if body.size_hint().lower() > LONGEST_BODY as u64 {
        return Err(too_long);
    }
    match timeout(LONGEST_WAIT, Limited::new(body, LONGEST_BODY).collect()).await {
        Ok(Ok(body)) => Ok(Request::from_parts(head, body.to_bytes())),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_long),
        _ => Err((408, "the request is not complete")),
    }
}

/// The response of a run that has panicked.
fn failed() -> Answer {
    let mut response = Response::new(Full::from("the lab has failed"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
