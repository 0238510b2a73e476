//! Four-letter words: an administrator's questions in place of a handshake.
//!
//! `ruok`, `srvr`, `mntr` and `isro` are answered; every other known word says that it is not in the
//! whitelist, as a real server's default is.

use super::{
    ensemble::{ConnectionId, Ensemble, Role},
    version::Version,
};

/// Words a real server knows and this one does not answer.
const NOT_ANSWERED: &[&[u8; 4]] = &[
    b"stat", b"conf", b"cons", b"dump", b"envi", b"wchs", b"wchc", b"wchp", b"crst", b"srst",
    b"gtmk", b"stmk", b"dirs", b"hash",
];

impl Ensemble {
    pub(crate) fn answer_word(&mut self, id: ConnectionId, word: [u8; 4]) {
        let Some(at) = self.connections.get(&id).map(|connection| connection.member) else {
            return;
        };
        let text = match &word {
            b"ruok" => "imok".to_owned(),
            b"isro" => match self.role(at) {
                Role::ReadOnly => "ro".to_owned(),
                Role::Looking | Role::Down => "null".to_owned(),
                _ => "rw".to_owned(),
            },
            b"srvr" if self.serves(at) => self.srvr(at),
            b"mntr" if self.serves(at) => self.mntr(at),
            b"srvr" | b"mntr" => {
                "This ZooKeeper instance is not currently serving requests\n".to_owned()
            }
            word if NOT_ANSWERED.contains(&word) => format!(
                "{} is not executed because it is not in the whitelist.\n",
                String::from_utf8_lossy(word)
            ),
            // A length over every limit.
            _ if self.config.version == Version::V3_4 => String::new(),
            word => format!(
                "{} is not executed because it is not in the whitelist.\n",
                String::from_utf8_lossy(word)
            ),
        };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.say(&text);
        }
        self.close(id);
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

    fn srvr(&self, at: usize) -> String {
        let Some(member) = self.members.get(at) else { return String::new() };
        format!(
            "Zookeeper version: {}-docent-testing, a test double: nothing on disk, nothing replicated\n\
             Latency min/avg/max: 0/0.0/0\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: 0\n\
             Zxid: {:#x}\nMode: {}\nNode count: {}\n",
            self.config.version,
            member.received,
            member.sent,
            self.connections_of(at),
            member.tree.last_zxid,
            Self::mode(member.role),
            member.tree.len(),
        )
    }

    fn mntr(&self, at: usize) -> String {
        let Some(member) = self.members.get(at) else { return String::new() };
        let (watched_paths, watches) = member.watches.counts();
        format!(
            "zk_version\t{}-docent-testing\nzk_server_state\t{}\nzk_packets_received\t{}\n\
             zk_packets_sent\t{}\nzk_num_alive_connections\t{}\nzk_outstanding_requests\t0\n\
             zk_znode_count\t{}\nzk_watch_count\t{watches}\nzk_watched_path_count\t{watched_paths}\n\
             zk_ephemerals_count\t{}\nzk_global_sessions\t{}\nzk_local_sessions\t{}\n",
            self.config.version,
            Self::mode(member.role),
            member.received,
            member.sent,
            self.connections_of(at),
            member.tree.len(),
            member.tree.ephemeral_count(),
            self.sessions.len(),
            member.local_sessions.len(),
        )
    }

    fn connections_of(&self, at: usize) -> usize {
        self.connections.values().filter(|connection| connection.member == at).count()
    }
}
