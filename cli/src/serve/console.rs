//! The commands of `docent serve` on standard input, which cause faults of the servers.

use std::time::Duration;

use docent_testing::{TestingCluster, server::Role};
use tokio::net::TcpStream;

pub(super) const HELP: &str = "\
Commands on standard input; the reply to each is one line, and an
error is one on standard error. A and B are numbers of servers, from 1:
  status                  the role of each server; the reply to all commands without one of their own
  stop A, start A         end the process of a server; start it again with its data
  pause A, resume A       as SIGSTOP and SIGCONT do
  lag A, catch-up A       apply no changes of other servers' clients, so that reads are stale; apply them
  cut A [B]               cut the network between two servers, or between one and all others
  heal                    end all cuts
  disconnect [A]          close the connections of the clients of a server, or of all
  sessions                the IDs of the sessions
  expire SESSION          expire a session
  throttle N              reject the next N requests with ThrottledOp
  help, quit";

/// How often a port is checked until it is closed, and the pause between two checks.
const STOP_TRIES: u32 = 1000;
const STOP_PAUSE: Duration = Duration::from_millis(1);

/// The reply to a command.
pub(super) enum Reply {
    Nothing,
    Text(String),
    /// The command ends, and the servers with it.
    Quit,
}

/// Executes commands, and remembers the faults that the servers do not report.
pub(super) struct Console<'a> {
    cluster: &'a TestingCluster,
    members: Vec<Member>,
}

/// The faults of a member.
#[derive(Default)]
struct Member {
    lags: bool,
    is_paused: bool,
    /// The members, by index, that this one cannot send to.
    cut_from: Vec<usize>,
}

impl<'a> Console<'a> {
    pub(super) fn new(cluster: &'a TestingCluster) -> Self {
        let mut members = Vec::new();
        while cluster.addr(members.len()).is_some() {
            members.push(Member::default());
        }
        Self { cluster, members }
    }

    /// Executes a line.
    pub(super) async fn execute(&mut self, line: &str) -> Result<Reply, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            [] => return Ok(Reply::Nothing),
            ["status"] => {}
            ["help"] => return Ok(Reply::Text(HELP.to_owned())),
            ["quit"] => return Ok(Reply::Quit),
            ["stop", member] => {
                let index = self.index(member)?;
                self.stop(index).await;
                self.set(index, |member| member.is_paused = false);
            }
            ["start", member] => {
                let index = self.index(member)?;
                if self.cluster.role(index) != Role::Down {
                    return Err(format!("server {member} is running; stop it first"));
                }
                self.cluster.restart(index).await.map_err(|error| error.to_string())?;
            }
            ["pause", member] => {
                let index = self.index(member)?;
                if self.cluster.role(index) == Role::Down {
                    return Err(format!("server {member} is stopped"));
                }
                self.cluster.machine(|machine, now| machine.pause_member(now, index));
                self.set(index, |member| member.is_paused = true);
            }
            ["resume", member] => {
                let index = self.index(member)?;
                self.cluster.machine(|machine, now| machine.resume_member(now, index, false));
                self.set(index, |member| member.is_paused = false);
            }
            ["lag", member] => self.set_lag(member, true)?,
            ["catch-up", member] => self.set_lag(member, false)?,
            ["cut", member] => {
                let index = self.index(member)?;
                for other in (0..self.members.len()).filter(|other| *other != index) {
                    self.cut(index, other);
                }
            }
            ["cut", one, other] => {
                let (one, other) = (self.index(one)?, self.index(other)?);
                if one == other {
                    return Err("a server has no network to itself".to_owned());
                }
                self.cut(one, other);
            }
            ["heal"] => {
                self.cluster.heal_all();
                self.members.iter_mut().for_each(|member| member.cut_from.clear());
            }
            ["disconnect"] => {
                for index in 0..self.members.len() {
                    self.cluster.cut_connections(index);
                }
            }
            ["disconnect", member] => {
                self.cluster.cut_connections(self.index(member)?);
            }
            ["sessions"] => {
                let ids = self.cluster.machine(|machine, _| machine.session_ids());
                let ids: String = ids.iter().map(|id| format!(" {id:#x}")).collect();
                return Ok(Reply::Text(format!("sessions:{ids}")));
            }
            ["expire", session] => {
                let id = session_id(session)?;
                if !self.cluster.expire_session(id) {
                    return Err("there is no such session".to_owned());
                }
            }
            ["throttle", count] => {
                let count =
                    count.parse().map_err(|_| format!("{count} is not a number of requests"))?;
                self.cluster.machine(|machine, _| machine.throttle(count));
            }
            _ => return Err("unknown command; `help` lists the commands".to_owned()),
        }
        Ok(Reply::Text(self.status()))
    }

    /// Stops a member, and waits until its port is closed: its task does that later.
    async fn stop(&self, index: usize) {
        self.cluster.stop(index);
        let Some(addr) = self.cluster.addr(index) else { return };
        for _ in 0..STOP_TRIES {
            if TcpStream::connect(addr).await.is_err() {
                return;
            }
            tokio::time::sleep(STOP_PAUSE).await;
        }
    }

    fn index(&self, number: &str) -> Result<usize, String> {
        let index = number.parse().ok().and_then(|number: usize| number.checked_sub(1));
        index.filter(|index| *index < self.members.len()).ok_or_else(|| {
            format!("{number} is not the number of a server, from 1 to {}", self.members.len())
        })
    }

    fn set(&mut self, index: usize, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.get_mut(index) {
            change(member);
        }
    }

    fn set_lag(&mut self, member: &str, lags: bool) -> Result<(), String> {
        let index = self.index(member)?;
        self.cluster.set_lag(index, lags);
        self.set(index, |member| member.lags = lags);
        Ok(())
    }

    /// Cuts the network between two members in both directions.
    fn cut(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.cluster.cut(from, to);
            self.set(from, |member| {
                if !member.cut_from.contains(&to) {
                    member.cut_from.push(to);
                    member.cut_from.sort_unstable();
                }
            });
        }
    }

    /// The roles and faults of all members as one line.
    fn status(&self) -> String {
        let members = self.members.iter().enumerate().map(|(index, member)| {
            let mut text = format!("{} {}", index + 1, role(self.cluster.role(index)));
            if member.is_paused {
                text += " (paused)";
            }
            if member.lags {
                text += " (lags)";
            }
            if !member.cut_from.is_empty() {
                let others = member.cut_from.iter().map(|other| (other + 1).to_string());
                text += &format!(" (cut from {})", others.collect::<Vec<_>>().join(" and "));
            }
            text
        });
        members.collect::<Vec<_>>().join(", ")
    }
}

fn session_id(text: &str) -> Result<i64, String> {
    let hex = text.strip_prefix("0x").unwrap_or(text);
    let id = u64::from_str_radix(hex, 16);
    id.map(u64::cast_signed).map_err(|_| format!("{text} is not the ID of a session"))
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Standalone => "standalone",
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::ReadOnly => "read-only",
        Role::Looking => "looking",
        Role::Down => "stopped",
    }
}
