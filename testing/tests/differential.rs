//! Sends the same random requests to the embedded server and to a real 3.8.0. Replies, errors, Stats and
//! events must be equal, apart from the origin of zxids, time, and the order of children.
//!
//! `DOCENT_TEST_CONNECT=host:port` names the real server; `DOCENT_TEST_SEQUENCES` how many sequences
//! (default 200), `DOCENT_TEST_SEED` the first seed (default 1). A difference is reported with its seed.
//! A difference must occur three times: a real server removes containers at any time.
//!
//! Accepted differences, which the generator or the comparison leaves out, each with its reason:
//!
//! * The order of children, of getEphemerals, of whoAmI, and of the events of one closeSession: a real
//!   server uses hash table order.
//! * Requests that would harm the real server: createTTL without a TTL mode, check outside a multi,
//!   deleteContainer. (The embedded server ends the connection for the first, and answers the others.)
//! * Requests overtaken by an unknown operation: a race in a real server. Here it is sent on an idle
//!   connection.
//! * addWatch with a null path: a real server then fails to close the connection.
//! * Requests behind closeSession: a race in a real server.

use docent_protocol::{
    Decode as _, Encode as _, Id, List, WatcherType,
    reply::{GetChildrenReply, Reply},
    request::{
        CheckVersionRequest, Request, SetWatches2Request, SetWatchesRequest, WatchesRequest,
    },
};
use docent_testing::tap::{Field, Value, reply_fields};
use std::fmt::Write as _;

use super::*;

const SESSIONS: usize = 3;
const STEPS: usize = 30;

#[tokio::test]
async fn the_same_requests_get_the_same_answers_from_a_real_server() {
    let Some(real) = real_server() else { return };
    let (first, count) = (number("DOCENT_TEST_SEED", 1), number("DOCENT_TEST_SEQUENCES", 200));
    let config = Config {
        version: Version::V3_8,
        container_check_interval: std::time::Duration::from_secs(3600),
        ..Config::default()
    };
    let ours = TestingServer::start_with(config).await.unwrap();
    for seed in first..first + count {
        let mut difference = None;
        for _ in 0..3 {
            let root = unique("d");
            let expected = transcript(&real, seed, &root).await;
            let actual = transcript(&ours.connect_string(), seed, &root).await;
            difference = first_difference(&expected, &actual);
            if difference.is_none() {
                break;
            }
        }
        if let Some(difference) = difference {
            panic!("DOCENT_TEST_SEED={seed} DOCENT_TEST_SEQUENCES=1\n{difference}");
        }
    }
    eprintln!("{count} sequences of {STEPS} requests from seed {first}: no difference");
}

fn first_difference(expected: &[String], actual: &[String]) -> Option<String> {
    let at =
        (0..expected.len().max(actual.len())).find(|at| expected.get(*at) != actual.get(*at))?;
    let mut text = String::new();
    for line in &expected[at.saturating_sub(12)..at.min(expected.len())] {
        let _ = writeln!(text, "    {line}");
    }
    for (mark, lines) in [("real", expected), ("ours", actual)] {
        for line in lines.iter().skip(at).take(4) {
            let _ = writeln!(text, "{mark}: {line}");
        }
    }
    Some(text)
}

/// One server, and its output.
struct World {
    server: String,
    root: String,
    sessions: Vec<Raw>,
    /// Session ids in order of their creation.
    ids: Vec<i64>,
    zxids: Vec<i64>,
    lines: Vec<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.lines.len().saturating_sub(20);
            eprintln!("on {}:\n{}", self.server, self.lines[from..].join("\n"));
        }
    }
}

/// Runs a sequence and returns its transcript. `above` is the node created for it; all other nodes are below.
async fn transcript(server: &str, seed: u64, above: &str) -> Vec<String> {
    let root = &format!("{above}/r");
    let mut random = Random(seed);
    let mut world = World {
        server: server.to_owned(),
        root: root.to_owned(),
        sessions: Vec::new(),
        ids: Vec::new(),
        zxids: Vec::new(),
        lines: Vec::new(),
    };
    for _ in 0..SESSIONS {
        let raw = Raw::connect(server).await;
        world.ids.push(raw.session_id);
        world.sessions.push(raw);
    }
    for path in [above, root] {
        world.call(0, OpCode::Create, &body(&Request::Create(node(path, OPEN, 0)))).await;
    }
    for _ in 0..STEPS {
        world.step(&mut random).await;
    }
    for at in 0..SESSIONS {
        world.call(at, OpCode::CloseSession, &[]).await;
    }
    clean_up(&mut world.sessions[0], above).await;
    for session in &mut world.sessions {
        session.call(&operation::CloseSession).await.unwrap();
    }
    world.ranked()
}

/// Deletes all nodes that may be deleted, so that the real server need not reap it during other sequences.
async fn clean_up(session: &mut Raw, path: &str) {
    let mut paths = vec![path.to_owned()];
    let mut at = 0;
    while let Some(path) = paths.get(at).cloned() {
        at += 1;
        let read = ReadRequest { path: Text::new(&path), watch: false };
        let answer = session.call(&operation::GetChildren(read)).await.unwrap();
        if answer.header.err == ErrorCode::Ok {
            let reply = GetChildrenReply::decode(&mut Reader::new(&answer.body)).unwrap();
            paths.extend(reply.children.iter().map(|name| format!("{path}/{name}")));
        }
    }
    for path in paths.iter().rev() {
        let delete = DeleteRequest { path: Text::new(path), version: -1 };
        session.call(&operation::Delete(delete)).await.unwrap();
    }
}

const OPEN: &[Acl<'static>] = &[Acl::new(Perms::ALL, "world", "anyone")];

const fn node<'a>(path: &'a str, acl: &'a [Acl<'a>], flags: i32) -> CreateRequest<'a> {
    CreateRequest { path: Text::new(path), data: Some(b"x"), acl: List::new(acl), flags }
}

fn body(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(&mut out);
    out
}

impl World {
    async fn step(&mut self, random: &mut Random) {
        let at = random.below(SESSIONS);
        match random.below(40) {
            0 => {
                // The connection ends, the session stays.
                let (id, passwd) = (self.sessions[at].session_id, self.sessions[at].passwd.clone());
                self.lines.push(format!("s{at} reattach"));
                self.attach(at, id, &passwd).await;
            }
            1 => {
                self.call(at, OpCode::CloseSession, &[]).await;
            }
            2 => {
                // Another connection resumes the session: the old connection ends.
                let (id, passwd) = (self.sessions[at].session_id, self.sessions[at].passwd.clone());
                let wrong = random.one_in(2);
                let passwd = if wrong { vec![1; 16] } else { passwd };
                let other = Raw::attach(&self.server, id, &passwd, 10_000).await.unwrap();
                let (same, refused) = (other.session_id == id, other.time_out == 0);
                self.lines.push(format!("s{at} stolen: same {same} refused {refused}"));
                let ended = self.sessions[at].ends().await;
                self.lines.push(format!("s{at} ended {ended}"));
                if wrong {
                    let mut other = other;
                    assert!(other.ends().await);
                    let passwd = self.sessions[at].passwd.clone();
                    self.attach(at, id, &passwd).await;
                } else {
                    self.sessions[at] = other;
                }
            }
            _ => {
                let (op, body) = self.request(random);
                self.call(at, op, &body).await;
            }
        }
    }

    async fn attach(&mut self, at: usize, id: i64, passwd: &[u8]) {
        let raw = Raw::attach(&self.server, id, passwd, 10_000).await.unwrap();
        if id == 0 {
            self.ids.push(raw.session_id);
        } else {
            self.lines.push(format!("s{at} attached {}", raw.session_id == id));
        }
        self.sessions[at] = raw;
    }

    /// Sends a request, and records the frames that all sessions receive because of it.
    async fn call(&mut self, at: usize, op: OpCode, body: &[u8]) {
        let shown = match Request::decode(op, &mut Reader::new(body)) {
            Ok(Request::SetWatches(r)) => {
                let since = r.relative_zxid;
                format!("since ⟨{since}⟩ {:?}", SetWatchesRequest { relative_zxid: 0, ..r })
            }
            Ok(Request::SetWatches2(r)) => {
                let since = r.relative_zxid;
                format!("since ⟨{since}⟩ {:?}", SetWatches2Request { relative_zxid: 0, ..r })
            }
            Ok(request) => format!("{request:?}"),
            Err(error) => error.to_string(),
        };
        let shown = self.masked(&shown);
        self.lines.push(format!("s{at} {op} {shown}"));
        let xid = self.sessions[at].send_op(op, &RawBody(body)).await;
        let replied = if op == OpCode::Ping { -2 } else { xid };
        let (mut frames, mut ended) = (Vec::new(), false);
        while frames.last().is_none_or(|answer: &Answer| answer.header.xid != replied) && !ended {
            match self.sessions[at].answer().await {
                Some(answer) => frames.push(answer),
                None => ended = true,
            }
        }
        if op == OpCode::CloseSession {
            // The nodes of a session go in the order of a hash table.
            frames.sort_by_key(|answer| (answer.header.xid == replied, answer.body.clone()));
        }
        for answer in frames {
            self.note(at, op, &answer);
        }
        if ended {
            self.lines.push(format!("s{at}   closed"));
        }
        let fatal = matches!(op, OpCode::CloseSession | OpCode::Unknown(_))
            || self.lines.last().is_some_and(|line| line.contains("err=-115"));
        if fatal && !ended {
            ended = self.sessions[at].ends().await;
            self.lines.push(format!("s{at}   then closed"));
        }
        if ended {
            let id = if op == OpCode::CloseSession { 0 } else { self.sessions[at].session_id };
            let passwd = self.sessions[at].passwd.clone();
            self.attach(at, id, &passwd).await;
        }
        for other in (0..SESSIONS).filter(|other| *other != at) {
            self.hear(other).await;
        }
    }

    /// Records the frames of a session up to the reply to a ping.
    async fn hear(&mut self, at: usize) {
        self.sessions[at].send_with(-2, OpCode::Ping, &RawBody(&[])).await;
        let mut frames = Vec::new();
        loop {
            let Some(answer) = self.sessions[at].answer().await else {
                panic!("s{at} was closed: {:#?}", self.lines);
            };
            if answer.header.xid == -2 {
                break;
            }
            frames.push(answer);
        }
        // The nodes of a session go in the order of a hash table.
        frames.sort_by(|a, b| a.body.cmp(&b.body));
        for answer in frames {
            self.note(at, OpCode::Ping, &answer);
        }
    }

    fn note(&mut self, at: usize, op: OpCode, answer: &Answer) {
        let header = answer.header;
        let zxid = self.zxid(header.zxid);
        let mut line = format!("s{at}   ");
        let mut reader = Reader::new(&answer.body);
        if header.xid == -1 {
            let event = WatcherEvent::decode(&mut reader).unwrap();
            let path = event.path.to_string();
            let _ = write!(line, "EVENT {} {} {path} {zxid}", event.event_type, event.state);
        } else {
            let _ = write!(line, "xid={} err={} {zxid}", header.xid, header.err.number());
            // A failed multiRead returns the results before the failure.
            let has_body =
                header.err == ErrorCode::Ok || op == OpCode::MultiRead && !answer.body.is_empty();
            if has_body {
                let reply = Reply::decode(op, &mut reader).unwrap();
                let fields = reply_fields(&reply);
                let sorts = matches!(op, OpCode::GetChildren | OpCode::GetChildren2)
                    || matches!(op, OpCode::GetEphemerals | OpCode::WhoAmI);
                for field in fields {
                    line.push(' ');
                    line.push_str(&self.show(field, sorts));
                }
                let _ = write!(line, " rest={:02x?}", reader.rest());
            } else {
                let _ = write!(line, " body={:02x?}", answer.body);
            }
        }
        self.lines.push(self.masked(&line));
    }

    fn show(&mut self, field: Field, sorts: bool) -> String {
        match field.value {
            Value::List(mut items) => {
                if sorts {
                    items.sort();
                }
                format!("{}={items:?}", field.name)
            }
            Value::Stat(stat) => {
                let owner = self.ids.iter().position(|id| *id == stat.ephemeral_owner);
                let (c, m, p) =
                    (self.zxid(stat.czxid), self.zxid(stat.mzxid), self.zxid(stat.pzxid));
                format!(
                    "stat(c={c} m={m} p={p} v={} cv={} av={} owner={owner:?} len={} n={} touched={})",
                    stat.version,
                    stat.cversion,
                    stat.aversion,
                    stat.data_length,
                    stat.num_children,
                    stat.mtime >= stat.ctime,
                )
            }
            Value::Multi(items) => {
                let items: Vec<_> = items
                    .into_iter()
                    .map(|(name, _, fields)| {
                        let sorts = name.starts_with("getChildren");
                        let fields: Vec<_> =
                            fields.into_iter().map(|field| self.show(field, sorts)).collect();
                        format!("{name} {}", fields.join(" "))
                    })
                    .collect();
                format!("{items:?}")
            }
            value => format!("{}={value:?}", field.name),
        }
    }

    fn masked(&self, text: &str) -> String {
        let above = self.root.trim_end_matches("/r");
        text.replace(&self.root, "").replace(above, "/above")
    }

    /// A placeholder for a zxid, to be replaced by its rank.
    fn zxid(&mut self, zxid: i64) -> String {
        if zxid > 0 {
            self.zxids.push(zxid);
        }
        format!("⟨{zxid}⟩")
    }

    fn ranked(mut self) -> Vec<String> {
        self.zxids.sort_unstable();
        self.zxids.dedup();
        let ranks: BTreeMap<String, usize> =
            self.zxids.iter().enumerate().map(|(rank, zxid)| (zxid.to_string(), rank)).collect();
        let rank = |line: String| {
            let mut out = String::new();
            for (at, part) in line.split(['⟨', '⟩']).enumerate() {
                match ranks.get(part).filter(|_| at % 2 == 1) {
                    Some(rank) => {
                        let _ = write!(out, "z{rank}");
                    }
                    None => out.push_str(part),
                }
            }
            out
        };
        std::mem::take(&mut self.lines).into_iter().map(rank).collect()
    }

    /// A zxid from the server, or an arbitrary number.
    fn some_zxid(&self, random: &mut Random) -> i64 {
        // The number of random numbers drawn does not depend on the replies.
        let (at, nonsense) = (random.next(), random.one_in(6));
        let mut distinct = self.zxids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        match distinct.len() {
            0 => 0,
            _ if nonsense => 0,
            len => distinct[(at % len as u64) as usize],
        }
    }

    fn path(&self, random: &mut Random) -> Option<String> {
        let root = &self.root;
        let good = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/c", "/a/x/z", ""];
        if !random.one_in(8) {
            return Some(format!("{root}{}", random.pick(&good)));
        }
        Some(match random.below(15) {
            0 => format!("{root}/"),
            1 => "relative".to_owned(),
            2 => format!("{root}/a/"),
            3 => format!("{root}//a"),
            4 => format!("{root}/../a"),
            5 => format!("{root}/."),
            6 => format!("{root}/a\0b"),
            7 => format!("{root}/\u{F8FF}"),
            8 => format!("{root}/\u{1F600}"),
            9 => format!("{root}/日本é"),
            10 => format!("{root}/a/./x"),
            11 => "/zookeeper/config/x".to_owned(),
            12 => format!("{root}/\u{7F}"),
            13 => format!("{root}/s-0000000001"),
            _ => return None,
        })
    }

    fn flags(random: &mut Random) -> i32 {
        if random.one_in(12) {
            random.pick(&[-1, 7, 99, 4, 5, 6])
        } else {
            random.pick(&[0, 0, 1, 2, 3])
        }
    }

    fn version(random: &mut Random) -> i32 {
        random.pick(&[-1, -1, -1, 0, 1, 2, -2])
    }

    fn request(&self, random: &mut Random) -> (OpCode, Vec<u8>) {
        let path = self.path(random);
        let path = path.as_deref().map_or(Text::NULL, Text::new);
        let other = self.path(random).unwrap_or_else(|| "none".to_owned());
        let data = random.pick(&[None, Some(&b""[..]), Some(b"data"), Some(b"\xff\0")]);
        let acl = acl(random);
        let list = if random.one_in(40) { List::NULL } else { List::new(&acl) };
        let watch = random.one_in(2);
        let create = CreateRequest { path, data, acl: list, flags: Self::flags(random) };
        let ttl = CreateTtlRequest {
            path,
            data,
            acl: list,
            flags: random.pick(&[5, 6]),
            ttl: random.pick(&[1 << 39, (1 << 40) - 1, 1 << 40, 0, -1]),
        };
        let version = Self::version(random);
        let read = ReadRequest { path, watch };
        let delete = DeleteRequest { path, version };
        let set = SetDataRequest { path, data, version };
        let kind: WatcherType = random.pick(&[1, 2, 3, 3, 4, 0, 6]).into();
        let watches = WatchesRequest { path, watcher_type: kind };
        let relative_zxid = self.some_zxid(random);
        let lists: Vec<Vec<String>> = (0..5)
            .map(|_| (0..random.below(3)).filter_map(|_| self.path(random)).collect())
            .collect();
        let texts: Vec<Vec<Text<'_>>> =
            lists.iter().map(|list| list.iter().map(|path| Text::new(path)).collect()).collect();
        let list_of = |at: usize| List::new(&texts[at]);
        let ops = multi_ops(random, create, ttl, delete, set, read, &other);
        let request = match random.below(35) {
            0..=3 => Request::Create(create),
            4..=6 => Request::Create2(create),
            7 => Request::CreateContainer(CreateRequest {
                flags: random.pick(&[0, 1, 2, 3, 4, 5]),
                ..create
            }),
            8 => Request::CreateTtl(ttl),
            9..=11 => Request::Delete(delete),
            12 | 13 => Request::Exists(read),
            14 | 15 => Request::GetData(read),
            16 | 17 => Request::SetData(set),
            18 => Request::GetAcl(PathRequest { path }),
            19 => Request::SetAcl(SetAclRequest { path, acl: list, version }),
            20 => Request::GetChildren(read),
            21 => Request::GetChildren2(read),
            22 => Request::Sync(PathRequest { path }),
            23 | 24 => Request::Multi(MultiRequest::new(&ops)),
            25 => Request::MultiRead(MultiRequest::new(&ops)),
            26 => Request::CheckWatches(watches),
            27 => Request::RemoveWatches(watches),
            // Such a watch keeps a real server from closing the connection.
            28 if path.is_null() => Request::Ping,
            28 => Request::AddWatch(AddWatchRequest {
                path,
                mode: random.pick(&[0, 1, 0, 1, 2, -1]).into(),
            }),
            29 => Request::SetWatches(SetWatchesRequest {
                relative_zxid,
                data_watches: list_of(0),
                exist_watches: list_of(1),
                child_watches: list_of(2),
            }),
            30 => Request::SetWatches2(SetWatches2Request {
                relative_zxid,
                data_watches: list_of(0),
                exist_watches: list_of(1),
                child_watches: list_of(2),
                persistent_watches: list_of(3),
                persistent_recursive_watches: list_of(4),
            }),
            31 => match random.below(5) {
                0 => Request::GetEphemerals(PathRequest { path }),
                1 => Request::GetAllChildrenNumber(PathRequest { path }),
                2 => Request::WhoAmI,
                3 => Request::Ping,
                _ => Request::Reconfig(ReconfigRequest {
                    joining_servers: Text::NULL,
                    leaving_servers: Text::NULL,
                    new_members: Text::NULL,
                    cur_config_id: -1,
                }),
            },
            32 => Request::Auth(AuthRequest {
                auth_type: random.pick(&[0, 7]),
                scheme: random
                    .pick(&["digest", "digest", "digest", "ip", "world", "nosuch"])
                    .into(),
                auth: random.pick(&[
                    Some(&b"alice:pw"[..]),
                    Some(b"bob:pw"),
                    Some(b"x"),
                    Some(b""),
                ]),
            }),
            _ => Request::Other(random.pick(&[9999, 10, 23, 108, -10, -12]).into(), &[]),
        };
        let mut bytes = body(&request);
        let op = request.op_code();
        if random.one_in(25) && !matches!(op, OpCode::Auth | OpCode::CreateTtl) {
            bytes.truncate(random.below(bytes.len() + 1));
        } else if random.one_in(25) {
            bytes.extend_from_slice(&[1, 2, 3]);
        }
        (op, bytes)
    }
}

fn acl(random: &mut Random) -> Vec<Acl<'static>> {
    let one = |random: &mut Random| {
        let perms = Perms::from_number(random.pick(&[31, 31, 31, 1, 2, 4, 8, 16, 17, 0, 255, 15]));
        match random.below(16) {
            0..=7 => Acl::new(perms, "world", "anyone"),
            8 | 9 => Acl::new(perms, "auth", ""),
            10 => Acl::new(perms, "digest", "alice:FSEGGhLKTbGPjqgR+c9Axmoghg4="),
            11 => Acl::new(perms, "ip", random.pick(&["127.0.0.1", "127.0.0.0/8", "10.0.0.1"])),
            12 => Acl::new(perms, "digest", random.pick(&["a", "a:", ":b", "a:b:c"])),
            13 => Acl::new(perms, random.pick(&["nosuch", "sasl", "x509", "super", ""]), "x"),
            14 => Acl::new(perms, "world", random.pick(&["somebody", ""])),
            _ => Acl {
                perms,
                id: Id {
                    scheme: random.pick(&[Text::NULL, Text::new("world"), Text::new("digest")]),
                    id: random.pick(&[Text::NULL, Text::new("anyone")]),
                },
            },
        }
    };
    if random.one_in(2) {
        return OPEN.to_vec();
    }
    (0..random.pick(&[1, 1, 1, 2, 2, 3, 0])).map(|_| one(random)).collect()
}

fn multi_ops<'a>(
    random: &mut Random,
    create: CreateRequest<'a>,
    ttl: CreateTtlRequest<'a>,
    delete: DeleteRequest<'a>,
    set: SetDataRequest<'a>,
    read: ReadRequest<'a>,
    other: &'a str,
) -> Vec<MultiOp<'a>> {
    let reads = random.one_in(3);
    (0..random.below(5))
        .map(|_| {
            let path = if random.one_in(2) { create.path } else { Text::new(other) };
            let version = World::version(random);
            let create = CreateRequest { path, acl: OPEN.into(), ..create };
            if reads && !random.one_in(10) {
                let read = ReadRequest { path, ..read };
                return random.pick(&[MultiOp::GetData(read), MultiOp::GetChildren(read)]);
            }
            match random.below(12) {
                0..=2 => MultiOp::Create(create),
                3 => MultiOp::Create2(create),
                4 => MultiOp::CreateContainer(CreateRequest {
                    flags: random.pick(&[0, 4]),
                    ..create
                }),
                5 => MultiOp::CreateTtl(CreateTtlRequest { path, acl: OPEN.into(), ..ttl }),
                6 | 7 => MultiOp::Delete(DeleteRequest { path, ..delete }),
                8 | 9 => MultiOp::SetData(SetDataRequest { path, version, ..set }),
                10 => MultiOp::Check(CheckVersionRequest { path, version }),
                _ => MultiOp::Create(CreateRequest { flags: 2, ..create }),
            }
        })
        .collect()
}
