//! The server of the page. It keeps nothing: each request for a run has the whole script.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
};

use tiny_http::{HTTPVersion, Header, Method, Request, Response, Server};

use crate::{
    lessons,
    run::run,
    script::{MOST_BYTES, Script},
    tap::Tap,
};

/// The threads that answer requests.
const THREADS: usize = 4;

/// The files of the page: the path, the type, and the content.
const FILES: [(&str, &str, &str); 7] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/lab.css", "text/css; charset=utf-8", include_str!("../page/lab.css")),
    ("/lab.js", "text/javascript; charset=utf-8", include_str!("../page/lab.js")),
    ("/stage.js", "text/javascript; charset=utf-8", include_str!("../page/stage.js")),
    ("/queue.js", "text/javascript; charset=utf-8", include_str!("../page/queue.js")),
    ("/words.js", "text/javascript; charset=utf-8", include_str!("../page/words.js")),
    ("/breaks.js", "text/javascript; charset=utf-8", include_str!("../page/breaks.js")),
];

/// Only the page's own files are loaded and run, and nothing is sent elsewhere.
const HEADERS: [(&str, &str); 7] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
    ("Permissions-Policy", "camera=(), microphone=(), geolocation=()"),
];

/// A header that only scripts of the page can send: a form or an image of another page cannot start a run.
const OURS: &str = "X-Docent-Lab";

/// A server that answers until it is dropped.
pub struct Lab {
    server: Arc<Server>,
    address: SocketAddr,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Lab {
    /// Starts a server at an address. Beyond loopback, every run needs the token.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or is beyond loopback and there is no token.
    pub fn start(address: SocketAddr, token: Option<String>, tap: Option<Tap>) -> io::Result<Self> {
        if !address.ip().is_loopback() && token.is_none() {
            let text = "an address beyond loopback needs --token";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let server = Arc::new(Server::http(address).map_err(io::Error::other)?);
        let address = server.server_addr().to_ip().unwrap_or(address);
        let threads = (0..THREADS).map(|_| {
            let (server, token, tap) = (Arc::clone(&server), token.clone(), tap.clone());
            thread::spawn(move || {
                while let Ok(request) = server.recv() {
                    // The reader may be gone.
                    let _ = answer(request, address, (token.as_deref(), tap.as_ref()));
                }
            })
        });
        let threads = threads.collect();
        Ok(Self { server, address, threads })
    }

    /// The address that was bound.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until the process ends.
    pub fn wait(mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for _ in 0..THREADS {
            self.server.unblock();
        }
    }
}

/// What the server was started with.
type Given<'a> = (Option<&'a str>, Option<&'a Tap>);

fn answer(mut request: Request, address: SocketAddr, given: Given<'_>) -> io::Result<()> {
    let (status, kind, body) = match response(&mut request, address, given) {
        Ok((kind, body)) => (200, kind, body),
        Err((status, text)) => (status, "text/plain; charset=utf-8", text),
    };
    let mut response = Response::from_string(body).with_status_code(status);
    for (name, value) in HEADERS.into_iter().chain([("Content-Type", kind)]) {
        if let Ok(header) = Header::from_bytes(name, value) {
            response = response.with_header(header);
        }
    }
    // As HTTP/1.0, so that the browser ends the connection: beside idle ones, tiny_http may leave one unread.
    let (headers, is_head) = (request.headers().to_vec(), *request.method() == Method::Head);
    let mut writer = request.into_writer();
    response.raw_print(&mut writer, HTTPVersion(1, 0), &headers, is_head, None)?;
    writer.flush()
}

type Refusal = (u16, String);

fn response(
    request: &mut Request,
    address: SocketAddr,
    (token, tap): Given<'_>,
) -> Result<(&'static str, String), Refusal> {
    let header = |name: &'static str| {
        let found = request.headers().iter().find(|header| header.field.equiv(name));
        found.map(|header| header.value.as_str().to_owned())
    };
    // Another page, whose name leads to this address, has another host.
    if !is_ours(&header("Host").unwrap_or_default(), address, token.is_some()) {
        return Err((421, "this host is not the lab's".to_owned()));
    }
    let (is_page, given) = (header(OURS).is_some(), header("Authorization"));
    let path = request.url().split('?').next().unwrap_or_default().to_owned();
    if *request.method() == Method::Get
        && let Some((_, kind, file)) = FILES.iter().find(|(known, ..)| *known == path)
    {
        return Ok((kind, (*file).to_owned()));
    }
    if let Some(token) = token
        && !given.is_some_and(|given| is_token(&given, token))
    {
        return Err((401, "the address of the page lacks the token".to_owned()));
    }
    if !is_page {
        return Err((403, format!("only the lab's page is answered: {OURS} is missing")));
    }
    match (request.method(), path.as_str()) {
        (Method::Get, "/lessons") => json(&lessons::all().map_err(|error| (500, error))?),
        (Method::Post, "/run") => {
            let mut text = String::new();
            let limit = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX) + 1;
            let read = request.as_reader().take(limit).read_to_string(&mut text);
            read.map_err(|_| (400, "the script is no text".to_owned()))?;
            let script = text.parse::<Script>().map_err(|error| (400, error))?;
            json(&run(&script))
        }
        (Method::Get, "/tap") => {
            let tap = tap.ok_or((404, "the lab was started without --tap".to_owned()))?;
            let known =
                request.url().split_once("?known=").and_then(|(_, known)| known.parse().ok());
            json(&tap.timeline(known.unwrap_or(0)))
        }
        _ => Err((404, "there is nothing here".to_owned())),
    }
}

fn json(value: &impl serde::Serialize) -> Result<(&'static str, String), Refusal> {
    let text = serde_json::to_string(value).map_err(|error| (500, error.to_string()))?;
    Ok(("application/json", text))
}

/// Whether a Host header is one of this server. With a token, the address may have any name.
fn is_ours(host: &str, address: SocketAddr, has_token: bool) -> bool {
    let Some((name, port)) = host.rsplit_once(':') else { return false };
    if port.parse() != Ok(address.port()) {
        return false;
    }
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    has_token || name == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Compares without an early end, which would show how much of the token is right.
fn is_token(given: &str, token: &str) -> bool {
    let given = given.strip_prefix("Bearer ").unwrap_or_default();
    let differs = given.bytes().zip(token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && differs == 0
}
