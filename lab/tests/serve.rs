//! What the server answers, and what it refuses.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    time::Instant,
};

use docent_lab::serve::Lab;

const OURS: &str = "X-Docent-Lab: 1\r\n";

fn lab(token: Option<&str>) -> Lab {
    Lab::start((Ipv4Addr::LOCALHOST, 0).into(), token.map(str::to_owned), None).unwrap()
}

/// Sends a request with this Host, and returns the answer.
fn ask(lab: &Lab, host: &str, start: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(lab.address()).unwrap();
    let length = body.len();
    let request = format!(
        "{start} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_only_it_starts_runs() {
    let lab = lab(None);
    let host = lab.address().to_string();
    let port = lab.address().port();
    let page = ask(&lab, &host, "GET /", "", "");
    assert_eq!(status(&page), "200");
    for header in ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff"]
    {
        assert!(page.contains(header), "{page}");
    }
    assert!(
        !page.contains("://") && !page.contains("style=") && !page.contains("onclick"),
        "{page}"
    );
    let run = |host: &str, headers: &str, body: &str| ask(&lab, host, "POST /run", headers, body);
    let script = "run 5s; A: mutex 1s";
    assert_eq!(status(&run(&host, OURS, script)), "200");
    assert_eq!(status(&run(&format!("localhost:{port}"), OURS, script)), "200");
    // Another page: by a form, or by a name that leads here.
    assert_eq!(status(&run(&host, "", script)), "403");
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1:1", "", "127.0.0.1"] {
        assert_eq!(status(&run(host, OURS, script)), "421", "{host}");
    }
    for (origin, expected) in [
        (format!("http://{host}"), "200"),
        ("http://evil.example".to_owned(), "403"),
        (format!("http://127.0.0.1:{}", port ^ 1), "403"),
        ("null".to_owned(), "403"),
    ] {
        let headers = format!("{OURS}Origin: {origin}\r\n");
        assert_eq!(status(&run(&host, &headers, script)), expected, "{origin}");
    }
    // A browser asks for leave first: it has none.
    let preflight = ask(&lab, &host, "OPTIONS /run", "Origin: http://evil.example\r\n", "");
    assert!(status(&preflight) == "403" && !preflight.contains("Access-Control"), "{preflight}");
    let refused = run(&host, OURS, "A: dance 1s");
    assert!(status(&refused) == "400" && refused.contains("no step of a client"), "{refused}");
    let huge = run(&host, OURS, &"A".repeat(9_000));
    assert!(status(&huge) == "400" && huge.contains("longer than 8192 bytes"), "{huge}");
    assert_eq!(status(&ask(&lab, &host, "GET /../src/main.rs", OURS, "")), "404");
    assert_eq!(status(&ask(&lab, &host, "GET /traffic", OURS, "")), "404");
    assert_eq!(status(&ask(&lab, &host, "DELETE /run", OURS, "")), "404");
}

// Case (Found in docent itself): four clients that did not send the rest of their scripts kept all others waiting.
#[test]
fn slow_clients_keep_nobody_waiting() {
    let lab = lab(None);
    let host = lab.address().to_string();
    let start = format!("POST /run HTTP/1.1\r\nHost: {host}\r\n{OURS}");
    let whole_head = format!("{start}Content-Length: 4000\r\n\r\nA: mut");
    let slow: Vec<_> = (0..40)
        .map(|number| {
            let mut stream = TcpStream::connect(lab.address()).unwrap();
            let sent = if number % 2 == 0 { &start } else { &whole_head };
            stream.write_all(sent.as_bytes()).unwrap();
            stream
        })
        .collect();
    let began = Instant::now();
    let answer = ask(&lab, &host, "POST /run", OURS, "run 5s; A: mutex 1s");
    assert_eq!(status(&answer), "200");
    assert!(began.elapsed().as_secs() < 8, "{:?}", began.elapsed());
    drop(slow);
}

/// Requests that are none, or without end. The lab answers the next one.
#[test]
fn broken_requests_are_refused() {
    let lab = lab(None);
    let host = lab.address().to_string();
    let long = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {}", "x".repeat(100_000));
    let body = format!("POST /run HTTP/1.1\r\nHost: {host}\r\n{OURS}Content-Length: ");
    for (sent, expected) in [
        (b"\x16\x03\x01\x02\x00\r\n\r\n".to_vec(), "400"),
        (b"GET /\xff HTTP/1.1\r\n\r\n".to_vec(), "400"),
        (b"GET /\r\n\r\n".to_vec(), "400"),
        (b"GET http://evil.example/ HTTP/1.1\r\n\r\n".to_vec(), "421"),
        (long.into_bytes(), "431"),
        (format!("{body}x\r\n\r\n").into_bytes(), "400"),
        (format!("{body}-1\r\n\r\n").into_bytes(), "400"),
        (format!("{body}99999999999\r\n\r\n").into_bytes(), "413"),
        ([format!("{body}2\r\n\r\n").as_bytes(), b"\xff\xfe"].concat(), "400"),
    ] {
        let mut stream = TcpStream::connect(lab.address()).unwrap();
        let _ = stream.write_all(&sent);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let shown = String::from_utf8_lossy(&sent[..sent.len().min(80)]).into_owned();
        assert_eq!(status(&answer), expected, "{shown:?}: {answer}");
    }
    for path in ["/..", "/%2e%2e/Cargo.toml", "//etc/passwd", "/lab.js/../x", "/lab.js%00"] {
        assert_eq!(status(&ask(&lab, &host, &format!("GET {path}"), OURS, "")), "404", "{path}");
    }
    assert_eq!(status(&ask(&lab, &host, "GET /", "", "")), "200");
}

#[test]
fn with_a_token_a_run_needs_it() {
    let lab = lab(Some("0123456789abcdef"));
    let host = lab.address().to_string();
    let run = |token: &str| {
        let headers = format!("{OURS}Authorization: Bearer {token}\r\n");
        ask(&lab, &host, "POST /run", &headers, "run 5s; A: mutex 1s")
    };
    assert_eq!(status(&run("0123456789abcdef")), "200");
    for wrong in ["", "0123456789abcdeX", "0123456789abcde", "0123456789abcdef0"] {
        assert_eq!(status(&run(wrong)), "401", "{wrong}");
    }
    assert_eq!(status(&ask(&lab, &host, "GET /lessons", OURS, "")), "401");
}

#[test]
fn wrong_usage_is_one_line_and_a_code() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = taken.local_addr().unwrap();
    let relay = format!("{taken}=127.0.0.1:1");
    // Files of another kind: a program, and a text.
    let program = env!("CARGO_BIN_EXE_docent-lab");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (arguments, code, expected) in [
        (vec!["--listen", &taken.to_string()], 71, "in use"),
        (vec!["--tap", &relay], 71, "in use"),
        (vec!["--tap", "127.0.0.1:0"], 64, "LISTEN=UPSTREAM"),
        (vec!["--tap", "here=127.0.0.1:1"], 64, "no address"),
        (vec!["--tap", "127.0.0.1:0=x"], 64, "HOST:PORT"),
        (vec!["--token", "short"], 64, "at least 16"),
        (vec!["--listen", "0.0.0.0:0"], 64, "--token"),
        (vec!["--listen", "nonsense"], 64, "--listen"),
        (vec!["--seed", "x"], 64, "--seed"),
        (vec!["--lesson", "x"], 64, "there are naive-late-release, "),
        (vec!["--seed", "1", "--capture", "x"], 64, "cannot be used with"),
        (vec!["--port", "2181"], 64, "--capture"),
        (vec!["--capture", "/no/such/file"], 74, "/no/such/file: No such file"),
        (vec!["--capture", "/"], 74, "directory"),
        (vec!["--capture", program], 65, "line 1: expected"),
        (vec!["--schedule", "/no/such/file"], 74, "No such file"),
        (vec!["--schedule", program], 65, "UTF-8"),
        (vec!["--schedule", manifest], 65, "Cargo.toml: 1:2: Expected"),
        (vec!["--frob"], 64, "--frob"),
    ] {
        let output = Command::new(program).args(&arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.starts_with("docent lab: ") && error.lines().count() == 1, "{error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn the_other_loopback_is_one_too() {
    let Ok(lab) = Lab::start(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)), None, None) else {
        // A machine without IPv6 has no such address.
        return;
    };
    let host = lab.address().to_string();
    assert_eq!(status(&ask(&lab, &host, "GET /lessons", OURS, "")), "200");
}

#[test]
fn the_document_has_all_options_and_lessons() {
    let document = include_str!("../../docs/LAB.md");
    let mut command = Command::new(env!("CARGO_BIN_EXE_docent-lab"));
    let help = String::from_utf8(command.arg("--help").output().unwrap().stdout).unwrap();
    let options = |text: &str| {
        let words = text.split(|c: char| c.is_whitespace() || "`,".contains(c));
        let options = words.filter(|word| word.starts_with("--") && word.len() > 2);
        options.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let of_cargo = ["--locked", "--path", "--help"].map(str::to_owned).into();
    let (known, named) = (&options(&help) - &of_cargo, &options(document) - &of_cargo);
    assert_eq!(named, known);
    assert_eq!(docent_lab::lessons::all().unwrap().len(), 18);
}
