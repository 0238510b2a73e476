//! The server of the page. It keeps nothing: each request for a run has the whole script.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    thread,
};

use bytes::Bytes;
use hyper::{Request, Response};

use crate::{http, lessons, run::run, script::Script, traffic::Traffic};

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

/// A server that answers until the process ends.
pub struct Lab {
    address: SocketAddr,
    thread: thread::JoinHandle<io::Result<()>>,
}

impl Lab {
    /// Starts a server at an address. Beyond loopback, every run needs the token.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or is beyond loopback and there is no token.
    pub fn start(
        address: SocketAddr,
        token: Option<String>,
        traffic: Option<Traffic>,
    ) -> io::Result<Self> {
        if !address.ip().is_loopback() && token.is_none() {
            let text = "an address beyond loopback needs --token";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let thread = thread::spawn(move || {
            http::serve(listener, move |request| {
                let given = (token.as_deref(), traffic.as_ref());
                let text = "text/plain; charset=utf-8";
                let content = request.map_err(|(status, reason)| (status, reason.to_owned()));
                let (status, kind, body) =
                    match content.and_then(|request| content_of(&request, address, given)) {
                        Ok((kind, body)) => (200, kind, body),
                        Err((status, reason)) => (status, text, reason),
                    };
                let mut answer = Response::builder().status(status);
                for (name, value) in HEADERS.into_iter().chain([("Content-Type", kind)]) {
                    answer = answer.header(name, value);
                }
                answer.body(body.into()).ok()
            })
        });
        Ok(Self { address, thread })
    }

    /// The address that was bound.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    ///
    /// If no connection can be accepted any more.
    pub fn wait(self) -> io::Result<()> {
        self.thread.join().unwrap_or(Ok(()))
    }
}

/// What the server was started with.
type Given<'a> = (Option<&'a str>, Option<&'a Traffic>);

type Refusal = (u16, String);

/// The type and the content of what is asked for.
fn content_of(
    request: &Request<Bytes>,
    address: SocketAddr,
    (token, traffic): Given<'_>,
) -> Result<(&'static str, String), Refusal> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let host = header("Host").unwrap_or_default();
    // Another page, whose name leads to this address, has another host.
    if !is_ours(host, address, token.is_some()) {
        return Err((421, "this host is not the lab's".to_owned()));
    }
    let origin = request.headers().get("Origin").map(|origin| origin.to_str().unwrap_or_default());
    if origin.is_some_and(|origin| origin.split_once("://").is_none_or(|(_, of)| of != host)) {
        return Err((403, "this is another page".to_owned()));
    }
    let (method, path) = (request.method().as_str(), request.uri().path());
    if method == "GET"
        && let Some((_, kind, file)) = FILES.iter().find(|(known, ..)| *known == path)
    {
        return Ok((kind, (*file).to_owned()));
    }
    if let Some(token) = token
        && !header("Authorization").is_some_and(|given| is_token(given, token))
    {
        return Err((401, "the address of the page lacks the token".to_owned()));
    }
    if header(OURS).is_none() {
        return Err((403, format!("only the lab's page is answered: {OURS} is missing")));
    }
    match (method, path) {
        ("GET", "/lessons") => json(&lessons::all().map_err(|error| (500, error))?),
        ("POST", "/run") => {
            let text = str::from_utf8(request.body());
            let text = text.map_err(|_| (400, "the script is no text".to_owned()))?;
            let script = text.parse::<Script>().map_err(|error| (400, error))?;
            json(&run(&script).map_err(|error| (400, error))?)
        }
        ("GET", "/traffic") => {
            let missing = || (404, "the lab was started without --tap or --capture".to_owned());
            let traffic = traffic.ok_or_else(missing)?;
            let query = request.uri().query().unwrap_or_default();
            let known = query.strip_prefix("known=").and_then(|known| known.parse().ok());
            json(&traffic.timeline(known.unwrap_or(0)))
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
