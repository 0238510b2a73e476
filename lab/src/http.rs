//! A small server of HTTP/1.0: one request a connection, within limits of size, number and time. No client keeps another
//! one waiting, however slow it is.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// The longest head of a request in bytes: that of a browser has the cookies of all other programs on this host.
const LONGEST_HEAD: usize = 64 * 1024;

/// The longest body in bytes.
const LONGEST_BODY: usize = 64 * 1024;

/// The time in which a request must arrive, and the longest wait for a reader of the response.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The time in which a client ends its connection after the response.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The most connections at once. Further ones are closed.
const MOST_CONNECTIONS: usize = 128;

/// A request.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// The value of a header; the first one, if there are more.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A response: its status, further lines of its head, and its body.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: String,
}

/// A reason for which a request has no response but this one.
type Refusal = (u16, &'static str);

/// Answers requests until the process ends.
pub(crate) fn serve(
    listener: &TcpListener,
    respond: impl Fn(Result<Request, Refusal>) -> Response + Send + Sync + 'static,
) {
    let respond = Arc::new(respond);
    for stream in listener.incoming().flatten() {
        if Arc::strong_count(&respond) > MOST_CONNECTIONS {
            continue;
        }
        let respond = Arc::clone(&respond);
        // Without a thread the connection is closed.
        let _ = thread::Builder::new().spawn(move || converse(stream, &*respond));
    }
}

fn converse(
    mut stream: TcpStream,
    respond: &impl Fn(Result<Request, Refusal>) -> Response,
) -> io::Result<()> {
    let request = match read(&mut stream, Instant::now() + LONGEST_WAIT)? {
        Ok(Some(request)) => Ok(request),
        // A browser opens connections that it may need.
        Ok(None) => return Ok(()),
        Err(refusal) => Err(refusal),
    };
    let Response { status, headers, body } = respond(request);
    let mut head = format!("HTTP/1.0 {status} -\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("Connection: close\r\n\r\n");
    stream.set_write_timeout(Some(LONGEST_WAIT))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // A connection that is closed with unread bytes may lose the response.
    let (end, mut rest) = (Instant::now() + LONGEST_END, [0; 4096]);
    while receive(&mut stream, end, &mut rest)? > 0 {}
    Ok(())
}

/// Reads bytes; 0 at their end, and when it is too late.
fn receive(stream: &mut TcpStream, until: Instant, buffer: &mut [u8]) -> io::Result<usize> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(0);
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(buffer)
}

/// Reads a request; `None` if there is none.
fn read(stream: &mut TcpStream, until: Instant) -> io::Result<Result<Option<Request>, Refusal>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let mut request = None;
    loop {
        if request.is_none() {
            let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
            if end.unwrap_or(bytes.len()) > LONGEST_HEAD {
                return Ok(Err((431, "the head of the request is too long")));
            }
            if let Some(end) = end {
                match parse(&bytes[..end]) {
                    Ok(parsed) => request = Some(parsed),
                    Err(refusal) => return Ok(Err(refusal)),
                }
                bytes.drain(..end + 4);
            }
        }
        if let Some((_, length)) = &request
            && bytes.len() >= *length
        {
            bytes.truncate(*length);
            return Ok(Ok(request.map(|(request, _)| Request { body: bytes, ..request })));
        }
        match receive(stream, until, &mut buffer)? {
            0 if bytes.is_empty() && request.is_none() => return Ok(Ok(None)),
            0 => return Ok(Err((408, "the request is not complete"))),
            length => bytes.extend_from_slice(&buffer[..length]),
        }
    }
}

/// Parses a head. Returns the length of the body, too.
fn parse(head: &[u8]) -> Result<(Request, usize), Refusal> {
    let wrong = (400, "this is no request of HTTP");
    let head = str::from_utf8(head).map_err(|_| wrong)?;
    let mut lines = head.split("\r\n");
    let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Err(wrong) };
    if !target.starts_with('/') || !version.starts_with("HTTP/1.") {
        return Err(wrong);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    let headers = lines.map(header).collect::<Option<Vec<_>>>().ok_or(wrong)?;
    let [method, path, query] = [method, path, query].map(str::to_owned);
    let request = Request { method, path, query, headers, body: Vec::new() };
    if request.header("Transfer-Encoding").is_some() {
        return Err((411, "the request has no length"));
    }
    let length = request.header("Content-Length").map_or(Ok(0), str::parse).map_err(|_| wrong)?;
    if length > LONGEST_BODY {
        return Err((413, "the request is too long"));
    }
    Ok((request, length))
}
