//! Shared parts of the tests of this crate: a raw client, and the address of the server.

pub(crate) mod machine;

use docent_protocol::{
    Decode as _, acl::OPEN_ACL_UNSAFE, connect::ConnectResponse, jute::Encode, operation::Operation,
};
use std::io::Write as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// The longest wait of a test for a frame that must arrive.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The real server to test against; `None`, which reports the skip, if there is none.
pub(crate) fn real_server() -> Option<String> {
    let server = std::env::var("DOCENT_TEST_CONNECT").ok();
    if server.is_none() {
        skip("DOCENT_TEST_CONNECT is not set (host:port of a real ZooKeeper)");
    }
    server
}

/// Reports that the current test is skipped, and notes it in the file that `DOCENT_TEST_SKIPS` names.
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not eprintln!, which is captured and dropped when a test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(file) = std::env::var_os("DOCENT_TEST_SKIPS") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
        // One write, so that the lines of test programs that run at once stay whole.
        file.write_all(format!("{test}: {reason}\n").as_bytes()).unwrap();
    }
}

/// A path that no other test and no other run uses.
pub(crate) fn unique(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("/{name}-{}-{}-{number}", std::process::id(), since.as_micros())
}

/// The number in an environment variable.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// SplitMix64: the same numbers on every platform.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A connection that only sends and reads frames.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) session_id: i64,
    pub(crate) passwd: Vec<u8>,
    pub(crate) time_out: i32,
    next_xid: i32,
}

/// A frame from the server: its header and its body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) header: ReplyHeader,
    pub(crate) body: Vec<u8>,
}

const LIMIT: usize = 1 << 26;

impl Raw {
    /// A new session.
    pub(crate) async fn connect(server: &str) -> Self {
        Self::attach(server, 0, &[0; 16], 10_000).await.expect("a session")
    }

    /// `None` when the server closes the connection silently.
    pub(crate) async fn attach(
        server: &str,
        id: i64,
        passwd: &[u8],
        time_out: i32,
    ) -> Option<Self> {
        let mut stream = TcpStream::connect(server).await.expect("a server");
        stream.set_nodelay(true).unwrap();
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            time_out,
            session_id: id,
            passwd: Some(passwd),
            read_only: Some(false),
        };
        let mut out = Vec::new();
        frame::put_record(&mut out, LIMIT, &request).unwrap();
        stream.write_all(&out).await.unwrap();
        let mut raw = Self { stream, session_id: 0, passwd: Vec::new(), time_out: 0, next_xid: 1 };
        let payload = raw.frame().await?;
        let response = ConnectResponse::decode(&mut Reader::new(&payload)).unwrap();
        raw.session_id = response.session_id;
        raw.passwd = response.passwd.unwrap_or_default().to_vec();
        raw.time_out = response.time_out;
        Some(raw)
    }

    /// The next frame's payload; `None` when the server has closed.
    pub(crate) async fn frame(&mut self) -> Option<Vec<u8>> {
        let read = async {
            let len = usize::try_from(self.stream.read_i32().await.ok()?).unwrap();
            let mut payload = vec![0; len];
            self.stream.read_exact(&mut payload).await.ok()?;
            Some(payload)
        };
        timeout(DEADLINE, read).await.expect("a frame, or the end, in time")
    }

    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let payload = self.frame().await?;
        let mut reader = Reader::new(&payload);
        let header = ReplyHeader::decode(&mut reader).unwrap();
        Some(Answer { header, body: reader.rest().to_vec() })
    }

    pub(crate) async fn send(&mut self, call: &impl Operation) -> i32 {
        self.send_op(call.op_code(), call).await
    }

    pub(crate) async fn send_op(&mut self, op: OpCode, body: &impl Encode) -> i32 {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.send_with(xid, op, body).await;
        xid
    }

    pub(crate) async fn send_with(&mut self, xid: i32, op: OpCode, body: &impl Encode) {
        let mut out = Vec::new();
        put_request_parts(&mut out, LIMIT, xid, op, body).unwrap();
        // The server may have closed already; the next read shows it.
        let _ = self.stream.write_all(&out).await;
    }

    /// Sends and reads until the reply; events are dropped.
    pub(crate) async fn call(&mut self, call: &impl Operation) -> Option<Answer> {
        let xid = self.send(call).await;
        self.reply_to(xid).await
    }

    pub(crate) async fn reply_to(&mut self, xid: i32) -> Option<Answer> {
        loop {
            let answer = self.answer().await?;
            if answer.header.xid == xid {
                return Some(answer);
            }
        }
    }

    /// Whether the server ends the connection, whatever it still sends.
    pub(crate) async fn ends(&mut self) -> bool {
        while self.frame().await.is_some() {}
        true
    }
}

/// A create2 record, open to all.
pub(crate) fn create<'a>(path: &'a str, data: &'a [u8], flags: i32) -> CreateRequest<'a> {
    CreateRequest { path: Text::new(path), data: Some(data), acl: OPEN_ACL_UNSAFE.into(), flags }
}
