//! Four-letter words: administrative commands in place of a handshake.
//!
//! All words that the version knows are answered, as by a real server with `4lw.commands.whitelist=*`; since 3.5.3 a
//! real server answers only `srvr` by default. The text has the lines and names that programs parse. Values that this
//! server does not have or count (latency, queues, files, a JVM) are 0 or left out.
//!
//! Source: `org.apache.zookeeper.server.command`, `FourLetterCommands`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use docent_protocol::OpCode;

use super::{
    config::millis,
    connection::{Connection, State},
    ensemble::Ensemble,
    member::Role,
    messages::ConnectionId,
    sessions::Sessions,
    version::Version,
};

/// Whether a version knows a word. Other letters are read as a frame length, which is above every limit.
fn knows(version: Version, word: [u8; 4]) -> bool {
    match &word {
        b"conf" | b"cons" | b"crst" | b"dump" | b"envi" | b"gtmk" | b"isro" | b"mntr" | b"ruok"
        | b"srst" | b"srvr" | b"stat" | b"stmk" | b"wchc" | b"wchp" | b"wchs" => true,
        b"dirs" => version > Version::V3_4,
        b"hash" => version > Version::V3_5,
        _ => false,
    }
}

impl Ensemble {
    /// Answers a word, with the mask that follows `stmk`, and ends the connection.
    pub(crate) fn answer_word(&mut self, id: ConnectionId, word: [u8; 4], mask: u64) {
        let at = self.connections.get(&id).map(|connection| connection.member);
        if let Some(at) = at.filter(|_| knows(self.config.version, word)) {
            let text = self.word(at, word, mask);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.say(&text);
            }
        }
        self.close(id);
    }

    fn word(&mut self, at: usize, word: [u8; 4], mask: u64) -> String {
        let serves = self.serves(at);
        let Some(member) = self.members.get_mut(at) else { return String::new() };
        match &word {
            b"ruok" => "imok".to_owned(),
            b"isro" => match member.role {
                Role::ReadOnly => "ro".to_owned(),
                Role::Looking | Role::Down => "null".to_owned(),
                _ => "rw".to_owned(),
            },
            b"envi" => envi(self.config.version),
            b"gtmk" => member.trace_mask.to_string(),
            b"stmk" => {
                member.trace_mask = mask;
                mask.to_string()
            }
            _ if !serves => {
                "This ZooKeeper instance is not currently serving requests\n".to_owned()
            }
            b"srst" => {
                (member.received, member.sent) = (0, 0);
                "Server stats reset.\n".to_owned()
            }
            b"crst" => {
                let connections = self.connections.values_mut();
                for connection in connections.filter(|connection| connection.member == at) {
                    connection.reset_counts();
                }
                "Connection stats reset.\n".to_owned()
            }
            b"conf" => self.conf(at),
            b"cons" => self.connection_lines(at, true) + "\n",
            b"dirs" => "datadir_size: 0\nlogdir_size: 0\n".to_owned(),
            b"dump" => self.dump(at),
            // A real server lists a digest of the tree for every 128th zxid; this one computes none.
            b"hash" => String::new(),
            b"mntr" => self.mntr(at),
            b"srvr" => self.version_line() + &self.srvr(at),
            b"stat" => {
                let clients = self.connection_lines(at, false);
                format!("{}Clients:\n{clients}\n{}", self.version_line(), self.srvr(at))
            }
            b"wchc" => {
                let watches = self.watches(at).into_iter().flat_map(|(path, sessions)| {
                    sessions.into_iter().map(move |session| (session, path.clone()))
                });
                let mut by_session = BTreeMap::<_, BTreeSet<_>>::new();
                for (session, path) in watches {
                    by_session.entry(session).or_default().insert(path);
                }
                lists(&by_session)
            }
            b"wchp" => lists(&self.watches(at)),
            b"wchs" => {
                let watches = self.watches(at);
                let sessions: BTreeSet<_> = watches.values().flatten().collect();
                format!(
                    "{} connections watching {} paths\nTotal watches:{}\n",
                    sessions.len(),
                    watches.len(),
                    watches.values().map(BTreeSet::len).sum::<usize>()
                )
            }
            _ => String::new(),
        }
    }

    const fn mode(role: Role) -> &'static str {
        match role {
            Role::Standalone => "standalone",
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::ReadOnly => "read-only",
            Role::Looking | Role::Down => "looking",
        }
    }

    fn version_line(&self) -> String {
        if self.config.version.is_keeper() {
            let number = self.config.version.number().trim_start_matches("keeper-");
            return format!("ClickHouse Keeper version: v{number}-docent-testing, a test double\n");
        }
        format!(
            "Zookeeper version: {}-docent-testing, a test double: nothing on disk, nothing replicated\n",
            self.config.version
        )
    }

    /// The number of requests of a member's connections that have no reply yet.
    fn outstanding(&self, at: usize) -> usize {
        self.connections_of(at).map(|connection| connection.waiting.len()).sum()
    }

    fn srvr(&self, at: usize) -> String {
        let Some(member) = self.members.get(at) else { return String::new() };
        format!(
            "Latency min/avg/max: 0/0.0/0\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: {}\n\
             Zxid: {:#x}\nMode: {}\nNode count: {}\n",
            member.received,
            member.sent,
            self.connections_of(at).count(),
            self.outstanding(at),
            member.tree.last_zxid,
            Self::mode(member.role),
            member.tree.len(),
        )
    }

    fn mntr(&self, at: usize) -> String {
        let Some(member) = self.members.get(at) else { return String::new() };
        let (watched_paths, watches) = member.watches.counts();
        let mut text = format!("zk_version\t{}-docent-testing\n", self.config.version);
        for (name, value) in [
            ("avg_latency", 0),
            ("max_latency", 0),
            ("min_latency", 0),
            ("packets_received", member.received as usize),
            ("packets_sent", member.sent as usize),
            ("num_alive_connections", self.connections_of(at).count()),
            ("outstanding_requests", self.outstanding(at)),
            ("znode_count", member.tree.len()),
            ("watch_count", watches),
            ("watched_path_count", watched_paths),
            ("ephemerals_count", member.tree.ephemeral_count()),
            ("approximate_data_size", member.tree.approximate_size()),
            ("global_sessions", member.tree.sessions.len()),
            ("local_sessions", member.local_sessions.len()),
            ("uptime", usize::try_from(self.now).unwrap_or(usize::MAX)),
        ] {
            let _ = writeln!(text, "zk_{name}\t{value}");
        }
        let _ = writeln!(text, "zk_server_state\t{}", Self::mode(member.role));
        text
    }

    fn conf(&self, at: usize) -> String {
        let Some(member) = self.members.get(at) else { return String::new() };
        let config = &self.config;
        let tick = millis(config.tick_time);
        let min = config.min_session_timeout.map_or(tick * 2, millis);
        let mut text = format!(
            "clientPort={}\ntickTime={tick}\nmaxClientCnxns=0\nminSessionTimeout={min}\n\
             maxSessionTimeout={}\nserverId={}\n",
            member.client_port,
            millis(config.max_session_timeout),
            if member.role == Role::Standalone { 0 } else { at + 1 },
        );
        if self.members.len() > 1 {
            let _ = writeln!(text, "syncLimit={}", config.sync_limit);
        }
        text
    }

    fn dump(&self, at: usize) -> String {
        let Some(member) = self.members.get(at) else { return String::new() };
        let sessions = self.tracked_sessions();
        let mut text = format!(
            "SessionTracker dump:\nSession Sets ({})/({}):\n",
            sessions.map_or(0, |sessions| sessions.expiries().len()),
            sessions.map_or(0, Sessions::len)
        );
        for (at, sessions) in sessions.into_iter().flat_map(Sessions::expiries) {
            let _ = writeln!(text, "{} expire at {}:", sessions.len(), self.wall(at));
            for id in sessions {
                let _ = writeln!(text, "\t{id:#x}");
            }
        }
        let owners: Vec<_> = member.tree.owners().collect();
        let _ =
            writeln!(text, "ephemeral nodes dump:\nSessions with Ephemerals ({}):", owners.len());
        for owner in owners {
            let _ = writeln!(text, "{owner:#x}:");
            let paths = member.tree.ephemerals(owner);
            for path in paths {
                let _ = writeln!(text, "\t{path}");
            }
        }
        let count = self.connections_of(at).count();
        let _ = writeln!(text, "Connections dump:\nConnections Sets ({count})/({count}):");
        for connection in self.connections_of(at) {
            let session = connection.session_id().unwrap_or(0);
            let _ = writeln!(
                text,
                "1 expire at {}:\n\tip: {} sessionId: {session:#x}",
                self.wall(self.now),
                address(connection),
            );
        }
        text
    }

    /// Lines of the form ` /ADDRESS[1](queued=0,...)`; the number is 0 before the connection has a session.
    fn connection_lines(&self, at: usize, details: bool) -> String {
        let mut text = String::new();
        for connection in self.connections_of(at) {
            let counts = &connection.counts;
            let _ = write!(
                text,
                " {}[{}](queued=0,recved={},sent={}",
                address(connection),
                u8::from(matches!(connection.state, State::Open { .. })),
                counts.received,
                counts.sent
            );
            if let Some(session) = connection.session_id().filter(|_| details) {
                let timeout = connection.timeout;
                let _ = write!(
                    text,
                    ",sid={session:#x},lop={},est={},to={timeout},lcxid={:#x},lzxid={:#x},lresp={},\
                     llat=0,minlat=0,avglat=0,maxlat=0",
                    counts.last_op.map_or_else(|| "NA".to_owned(), abbreviation),
                    self.wall(counts.since),
                    counts.last_xid,
                    counts.last_zxid,
                    counts.last_at,
                );
            }
            text.push_str(")\n");
        }
        text
    }

    /// The watchers of data and of existence, by path. A real server omits the other watches too.
    ///
    /// Source: `DataTree.dumpWatches`.
    fn watches(&self, at: usize) -> BTreeMap<String, BTreeSet<String>> {
        let Some(member) = self.members.get(at) else { return BTreeMap::new() };
        let session = |id| self.connections.get(id)?.session_id();
        let paths = member.watches.of_data().map(|(path, watchers)| {
            let sessions = watchers.filter_map(session).map(|id| format!("{id:#x}"));
            (path.to_owned(), sessions.collect())
        });
        paths.collect()
    }

    /// The wall clock at an instant, in milliseconds since 1970.
    fn wall(&self, at: u64) -> i64 {
        self.config.epoch().saturating_add_unsigned(at)
    }

    fn connections_of(&self, at: usize) -> impl Iterator<Item = &Connection> {
        let there = move |connection: &&Connection| {
            connection.member == at && connection.state != State::Closing
        };
        self.connections.values().filter(there)
    }
}

/// The lines of `envi`. Programs may look for names whose values only a JVM has; these names show Java's text for a
/// missing property. ClickHouse Keeper does not have them.
///
/// Source: `Environment.list`.
fn envi(version: Version) -> String {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let java = if version.is_keeper() {
        ""
    } else {
        "java.version=<NA>\njava.vendor=<NA>\njava.home=<NA>\njava.class.path=<NA>\njava.library.path=<NA>\n\
         java.io.tmpdir=<NA>\njava.compiler=<NA>\n"
    };
    let mut text = format!(
        "Environment:\nzookeeper.version={version}-docent-testing, built on no day\nhost.name=localhost\n{java}\
         os.name={os}\nos.arch={arch}\nos.version=<NA>\nuser.name=<NA>\nuser.home=<NA>\nuser.dir=<NA>\n"
    );
    // Since 3.5.
    if !version.is_keeper() && version > Version::V3_4 {
        text += "os.memory.free=<NA>\nos.memory.max=<NA>\nos.memory.total=<NA>\n";
    }
    text
}

/// The first four letters of an operation, which is a real server's abbreviation for nearly all of them.
fn abbreviation(op: OpCode) -> String {
    op.to_string().chars().take(4).collect::<String>().to_uppercase()
}

/// The address of a client, with port 0: the machine does not know the port.
fn address(connection: &Connection) -> String {
    format!("/{}:0", connection.peer)
}

/// Each key with its values, indented, and an empty line at the end.
fn lists(lists: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut text = String::new();
    for (key, values) in lists {
        let _ = writeln!(text, "{key}");
        for value in values {
            let _ = writeln!(text, "\t{value}");
        }
    }
    text + "\n"
}
