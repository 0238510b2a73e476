//! A real ZooKeeper ensemble on the loopback interface.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::{Java, KeptPort, Result, Server, Settings, four_letter_word};

/// The servers of an ensemble. They are killed, and their files removed, on drop.
#[derive(Debug)]
pub struct Ensemble {
    members: Vec<Server>,
    _ports: Vec<KeptPort>,
}

impl Ensemble {
    /// Starts `size` servers and waits until all of them serve clients.
    pub fn start(java: &Java, size: usize) -> Result<Self> {
        Self::start_with(java, size, &Settings::default())
    }

    /// Like [`start`](Self::start), with the further configuration and properties of `more` for each member.
    pub fn start_with(java: &Java, size: usize, more: &Settings) -> Result<Self> {
        // A member has three ports: for followers, for elections, for clients.
        let ports: io::Result<Vec<_>> = (0..3 * size).map(|_| KeptPort::free()).collect();
        let ports = ports?;
        let addresses: Vec<_> = ports.iter().map(KeptPort::address).collect();
        let (mut config, mut client_ports) = (Vec::new(), Vec::new());
        for (id, ports) in (1..).zip(addresses.chunks_exact(3)) {
            let [followers, elections, clients] = ports else { continue };
            let line = format!("{followers}:{}", elections.port());
            config.push((format!("server.{id}"), line));
            client_ports.push(clients.port());
        }
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        config.extend(LIMITS.map(owned));
        config.extend(more.config.iter().cloned());
        let mut properties = ELECTIONS.map(owned).to_vec();
        properties.extend(more.properties.iter().cloned());

        let _turn = java.turn()?;
        let mut members = Vec::new();
        for (id, port) in (1..).zip(client_ports) {
            let settings = Settings {
                port,
                tick_time: TICK_TIME,
                id: Some(id),
                config: config.clone(),
                properties: properties.clone(),
            };
            let mut member = Server::new(java, settings)?;
            member.spawn()?;
            members.push(member);
        }
        // Only after all were started, because no member serves clients before there is a majority.
        for member in &mut members {
            if !member.wait_until_ready()? {
                return Err(format!("the ensemble did not start: {}", member.end_of_log()).into());
            }
        }
        Ok(Self { members, _ports: ports })
    }

    /// Returns the connect string of all members.
    pub fn connect(&self) -> String {
        let addresses: Vec<_> = self.members.iter().map(|m| m.address().to_string()).collect();
        addresses.join(",")
    }

    /// Returns the number of members, running or not.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Returns a member; the index of the first is 0.
    #[expect(clippy::indexing_slicing, reason = "for tests, which know the size")]
    pub fn member(&self, index: usize) -> &Server {
        &self.members[index]
    }

    /// Returns a member, to stop, kill or start it.
    #[expect(clippy::indexing_slicing, reason = "for tests, which know the size")]
    pub fn member_mut(&mut self, index: usize) -> &mut Server {
        &mut self.members[index]
    }
}

/// The role of a serving member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Orders the writes.
    Leader,
    /// Replicates the leader.
    Follower,
    /// Is not a member of an ensemble.
    Standalone,
}

impl Role {
    /// Returns the role that a server reports, or `None` while it does not serve.
    pub fn of(address: SocketAddr) -> Option<Self> {
        let answer = four_letter_word(address, "srvr").ok()?;
        match answer.lines().find_map(|line| line.strip_prefix("Mode: "))? {
            "leader" => Some(Self::Leader),
            "follower" => Some(Self::Follower),
            "standalone" => Some(Self::Standalone),
            _ => None,
        }
    }
}

/// The servers' unit of time. It is short, so that sessions are.
const TICK_TIME: Duration = Duration::from_millis(200);

/// A member that looks for a leader waits at most this long for one that does not answer, and repeats its vote at least this
/// often: otherwise it doubles the pause each time, up to a minute. In milliseconds.
const ELECTIONS: [(&str, &str); 2] =
    [("zookeeper.cnxTimeout", "1000"), ("zookeeper.fastleader.maxNotificationInterval", "1000")];

/// The limits for a follower's initial synchronization and for its later lag, in ticks: short, so that the loss of a member
/// is detected soon, and longer than a busy machine keeps a member from running.
const LIMITS: [(&str, &str); 2] = [("initLimit", "150"), ("syncLimit", "20")];
