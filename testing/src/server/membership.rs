//! The members of an ensemble as `/zookeeper/config` shows them, and the parser of `reconfig` requests.
//!
//! Source: `QuorumMaj`, `QuorumPeer.QuorumServer`, `QuorumPeerConfig.parseDynamicConfig`, `PrepRequestProcessor`.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use docent_protocol::{ErrorCode, request::ReconfigRequest};

use super::Version;

/// The members of an ensemble, and the version of the configuration: the zxid of the change that has set it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) version: i64,
    /// Keyed by server number. Empty for a server without an ensemble.
    pub(crate) servers: BTreeMap<i64, ServerSpec>,
}

/// A server of an ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerSpec {
    host: String,
    quorum_port: u16,
    election_port: u16,
    is_observer: bool,
    /// The address for clients. Real servers show none if it comes from `clientPort`.
    client: Option<(String, u16)>,
    /// The client address for TLS, in versions that show it.
    secure_client: Option<(String, u16)>,
}

/// The number of the member at an index.
pub(crate) fn server_id(member: usize) -> i64 {
    i64::try_from(member).map_or(i64::MAX, |member| member.saturating_add(1))
}

impl Membership {
    /// An ensemble as it is when it is set up: version 0, all are participants.
    pub(crate) fn initial(count: usize) -> Self {
        let servers = (0..count).map(|member| (server_id(member), ServerSpec::of_member(member)));
        Self { version: 0, servers: servers.collect() }
    }

    /// Sets the client address of a member that has none; `secure` sets the one for TLS. Returns whether it is set.
    pub(crate) fn set_client(
        &mut self,
        member: usize,
        host: &str,
        port: u16,
        secure: bool,
    ) -> bool {
        let server = self.servers.get_mut(&server_id(member));
        let Some(server) = server.filter(|server| !server.serves_clients()) else { return false };
        let client = if secure { &mut server.secure_client } else { &mut server.client };
        *client = Some((host.to_owned(), port));
        true
    }

    /// Whether a member votes. A server without an ensemble does.
    pub(crate) fn votes(&self, member: usize) -> bool {
        let server = self.servers.get(&server_id(member));
        self.servers.is_empty() || server.is_some_and(|server| !server.is_observer)
    }

    /// The number of servers that vote, connected or not.
    pub(crate) fn voters(&self) -> usize {
        self.servers.values().filter(|server| !server.is_observer).count().max(1)
    }

    /// Whether members are a majority of the servers that vote.
    pub(crate) fn is_quorum(&self, members: impl IntoIterator<Item = usize>) -> bool {
        members.into_iter().filter(|member| self.votes(*member)).count() * 2 > self.voters()
    }

    /// The members after a `reconfig`, as configuration `version`.
    pub(crate) fn changed(
        &self,
        request: &ReconfigRequest<'_>,
        version: i64,
        standalone_enabled: bool,
        release: Version,
    ) -> Result<Self, ErrorCode> {
        let servers = if request.new_members.is_null() {
            let mut servers = self.servers.clone();
            for id in items(&request.leaving_servers.to_str()) {
                servers.remove(&number(id)?);
            }
            for joining in items(&request.joining_servers.to_str()) {
                let (id, server) = joining_server(joining, release)?;
                servers.insert(id, server);
            }
            servers
        } else {
            whole_list(&request.new_members.to_str(), standalone_enabled, release)?
        };
        let voters = servers.values().filter(|server| !server.is_observer).count();
        if voters < if standalone_enabled { 2 } else { 1 } {
            return Err(ErrorCode::BadArguments);
        }
        Ok(Self { version, servers })
    }
}

/// The text of `/zookeeper/config`. Servers are in the order of their numbers; a real server has them in hash table
/// order.
impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, server) in &self.servers {
            writeln!(f, "server.{id}={server}")?;
        }
        write!(f, "version={:x}", self.version)
    }
}

impl ServerSpec {
    fn of_member(member: usize) -> Self {
        let port = |first: u16| u16::try_from(member).map_or(first, |at| first.saturating_add(at));
        Self {
            host: "127.0.0.1".to_owned(),
            quorum_port: port(2888),
            election_port: port(3888),
            is_observer: false,
            client: None,
            secure_client: None,
        }
    }

    /// Whether it has an address for clients.
    const fn serves_clients(&self) -> bool {
        self.client.is_some() || self.secure_client.is_some()
    }

    /// Parses `host:port:port[:role][;[host:]port]`, followed by the TLS address if the version knows it.
    fn parse(text: &str, release: Version) -> Result<Self, ErrorCode> {
        let mut sections = trim_empty(text.split(';'));
        let server = sections.next().ok_or(ErrorCode::BadArguments)?;
        let (client, secure) = (sections.next(), sections.next());
        if sections.next().is_some() || secure.is_some() && !release.shows_secure_addresses() {
            return Err(ErrorCode::BadArguments);
        }
        let client = client.filter(|client| !client.is_empty() || secure.is_none());
        let client = client.map(client_address).transpose()?;
        let secure_client = secure.map(client_address).transpose()?;
        let parts = host_and_port(server)?;
        let (host, quorum, election, role) = match parts.as_slice() {
            [host, quorum, election] => (host, quorum, election, "participant"),
            [host, quorum, election, role] => (host, quorum, election, role.trim()),
            _ => return Err(ErrorCode::BadArguments),
        };
        let (quorum_port, election_port) = (port(quorum)?, port(election)?);
        if quorum_port == election_port {
            return Err(ErrorCode::BadArguments);
        }
        let is_observer = match role.to_ascii_lowercase().as_str() {
            "observer" => true,
            "participant" => false,
            _ => return Err(ErrorCode::BadArguments),
        };
        let host = host.clone();
        Ok(Self { host, quorum_port, election_port, is_observer, client, secure_client })
    }
}

impl fmt::Display for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, quorum_port, election_port, is_observer, client, secure_client } = self;
        let role = if *is_observer { "observer" } else { "participant" };
        write!(f, "{}:{quorum_port}:{election_port}:{role}", delimited(host))?;
        if let Some((host, port)) = client {
            write!(f, ";{}:{port}", delimited(host))?;
        }
        if let Some((host, port)) = secure_client {
            let separator = if client.is_none() { ";;" } else { ";" };
            write!(f, "{separator}{}:{port}", delimited(host))?;
        }
        Ok(())
    }
}

/// Reads `[host:]port`.
fn client_address(text: &str) -> Result<(String, u16), ErrorCode> {
    match host_and_port(text)?.as_slice() {
        [client_port] => Ok(("0.0.0.0".to_owned(), port(client_port)?)),
        [host, client_port] => Ok((host.clone(), port(client_port)?)),
        _ => Err(ErrorCode::BadArguments),
    }
}

/// A host as written before a colon: an IPv6 address is in brackets, in Java's form.
fn delimited(host: &str) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => {
            let groups: Vec<_> = address.segments().map(|group| format!("{group:x}")).into();
            format!("[{}]", groups.join(":"))
        }
        _ => host.to_owned(),
    }
}

/// The parts without the empty ones at the end, as `String.split` returns them.
fn trim_empty<'a>(parts: impl Iterator<Item = &'a str>) -> std::vec::IntoIter<&'a str> {
    let mut parts: Vec<_> = parts.collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    parts.into_iter()
}

/// The parts between the colons; the first may be an address in brackets.
///
/// Source: `ConfigUtils.getHostAndPort`.
fn host_and_port(text: &str) -> Result<Vec<String>, ErrorCode> {
    let parts = |text: &str| trim_empty(text.split(':')).map(str::to_owned).collect::<Vec<_>>();
    let Some(bracketed) = text.strip_prefix('[') else { return Ok(parts(text)) };
    let (host, rest) = bracketed.split_once(']').ok_or(ErrorCode::BadArguments)?;
    match rest.strip_prefix(':') {
        Some("") => Err(ErrorCode::BadArguments),
        Some(rest) => Ok([vec![host.to_owned()], parts(rest)].concat()),
        None => Ok(vec![host.to_owned()]),
    }
}

/// A text that is not a number is a bad argument. A number that is not a port raises an exception that a real
/// server does not expect.
fn port(text: &str) -> Result<u16, ErrorCode> {
    let port: i32 = text.parse().map_err(|_| ErrorCode::BadArguments)?;
    port.try_into().map_err(|_| ErrorCode::MarshallingError)
}

/// The number of a server.
fn number(text: &str) -> Result<i64, ErrorCode> {
    text.parse().map_err(|_| ErrorCode::MarshallingError)
}

/// The items of a list, trimmed, without empty ones.
///
/// Source: `StringUtils.split`.
fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Reads `server.N=SPEC` of an incremental change. The client's address must be in it.
fn joining_server(text: &str, release: Version) -> Result<(i64, ServerSpec), ErrorCode> {
    let parts: Vec<_> = text.split('=').map(str::trim).filter(|part| !part.is_empty()).collect();
    let [key, spec] = parts.as_slice() else { return Err(ErrorCode::BadArguments) };
    let id = number(key.rsplit('.').next().unwrap_or_default())?;
    let server = ServerSpec::parse(spec, release)?;
    if !server.serves_clients() {
        return Err(ErrorCode::BadArguments);
    }
    Ok((id, server))
}

/// Reads a list of all members: the lines of a configuration file, or the same separated by commas.
fn whole_list(
    text: &str,
    standalone_enabled: bool,
    release: Version,
) -> Result<BTreeMap<i64, ServerSpec>, ErrorCode> {
    let mut servers = BTreeMap::new();
    let mut properties = BTreeMap::new();
    for line in text.split([',', '\n', '\r']).map(str::trim_start) {
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let end = line.find(|c: char| c.is_whitespace() || "=:".contains(c)).unwrap_or(line.len());
        let (key, rest) = line.split_at(end);
        let rest = rest.trim_start();
        properties.insert(key, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start());
    }
    // Groups and weights would be a hierarchical quorum.
    if !properties.keys().all(|key| key.starts_with("server.") || *key == "version") {
        return Err(ErrorCode::BadArguments);
    }
    for (key, value) in properties {
        match key.strip_prefix("server.") {
            Some(id) => {
                servers.insert(number(id)?, ServerSpec::parse(value, release)?);
            }
            None => {
                i64::from_str_radix(value, 16).map_err(|_| ErrorCode::MarshallingError)?;
            }
        }
    }
    // In a real server, an IllegalArgumentException.
    let observers = servers.values().filter(|server| server.is_observer).count();
    match servers.len() - observers {
        0 if !standalone_enabled || observers > 0 => Err(ErrorCode::MarshallingError),
        1 if standalone_enabled && observers > 0 => Err(ErrorCode::MarshallingError),
        _ => Ok(servers),
    }
}

#[cfg(test)]
mod tests {
    use docent_protocol::Text;

    use super::*;

    fn change(
        joining: Option<&str>,
        leaving: Option<&str>,
        members: Option<&str>,
    ) -> Result<String, ErrorCode> {
        change_of(Version::V3_9, joining, leaving, members)
    }

    fn change_of(
        release: Version,
        joining: Option<&str>,
        leaving: Option<&str>,
        members: Option<&str>,
    ) -> Result<String, ErrorCode> {
        let text = |text: Option<&'static str>| text.map_or(Text::NULL, Text::new);
        let leak = |text: Option<&str>| text.map(|text| &*text.to_owned().leak());
        let request = ReconfigRequest {
            joining_servers: text(leak(joining)),
            leaving_servers: text(leak(leaving)),
            new_members: text(leak(members)),
            cur_config_id: -1,
        };
        let changed = Membership::initial(1).changed(&request, 0x1_0000_0002, false, release)?;
        Ok(changed.to_string())
    }

    /// ZOOKEEPER-4276.
    #[test]
    fn addresses_of_tls_are_read_and_shown_from_3_10_on() {
        for (joining, shown) in [
            ("server.2=b:1:2:observer;3;4", "server.2=b:1:2:observer;0.0.0.0:3;0.0.0.0:4"),
            ("server.2=b:1:2:observer;;b:4", "server.2=b:1:2:observer;;b:4"),
        ] {
            let expected = Ok(format!("{ONE}\n{shown}\nversion=100000002"));
            assert_eq!(change_of(Version::V3_10, Some(joining), None, None), expected);
            let refused = change_of(Version::V3_9, Some(joining), None, None);
            assert_eq!(refused, Err(ErrorCode::BadArguments), "{joining}");
        }
        let refused = change_of(Version::V3_10, Some("server.2=b:1:2:observer;3;4;5"), None, None);
        assert_eq!(refused, Err(ErrorCode::BadArguments));
    }

    const ONE: &str = "server.1=127.0.0.1:2888:3888:participant";

    /// The answers of a real 3.8.0 without standaloneEnabled, except for the order of the servers.
    #[test]
    fn changes_are_read_as_a_real_server_reads_them() {
        let ok = |more: &str| Ok(format!("{ONE}\n{more}version=100000002"));
        for (joining, expected) in [
            (
                "server.100=0.0.0.0:4001:4002:observer;0.0.0.0:4003",
                ok("server.100=0.0.0.0:4001:4002:observer;0.0.0.0:4003\n"),
            ),
            (
                "server.101=127.0.0.1:1:2:OBSERVER;5003",
                ok("server.101=127.0.0.1:1:2:observer;0.0.0.0:5003\n"),
            ),
            ("server.102=127.0.0.1:6001:6002:observer", Err(ErrorCode::BadArguments)),
            ("server.105=127.0.0.1:6201:6202:foo;6203", Err(ErrorCode::BadArguments)),
            ("server.106=127.0.0.1:6301:6301:observer;6303", Err(ErrorCode::BadArguments)),
            ("server.x=127.0.0.1:6401:6402:observer;6403", Err(ErrorCode::MarshallingError)),
            ("server.108=127.0.0.1:x:6402:observer;6403", Err(ErrorCode::BadArguments)),
            ("server.108=127.0.0.1:99999:6402:observer;6403", Err(ErrorCode::MarshallingError)),
            (
                "server.109=[::1]:6501:6502:observer;[::1]:6503",
                ok("server.109=[0:0:0:0:0:0:0:1]:6501:6502:observer;[0:0:0:0:0:0:0:1]:6503\n"),
            ),
            (
                "foo.111=localhost:1:2:observer;localhost:6703",
                ok("server.111=localhost:1:2:observer;localhost:6703\n"),
            ),
            ("112=a:1:2:observer;3=", ok("server.112=a:1:2:observer;0.0.0.0:3\n")),
            (
                " server.4 = a:1:2:observer;3 , server.5=b:4:5:observer;6",
                ok("server.4=a:1:2:observer;0.0.0.0:3\nserver.5=b:4:5:observer;0.0.0.0:6\n"),
            ),
            ("some thing", Err(ErrorCode::BadArguments)),
            ("", ok("")),
        ] {
            assert_eq!(change(Some(joining), None, None), expected, "{joining}");
        }
        for (leaving, expected) in [
            ("99", ok("")),
            ("x", Err(ErrorCode::MarshallingError)),
            (" 2 , 3 ,", ok("")),
            ("1", Err(ErrorCode::BadArguments)),
        ] {
            assert_eq!(change(None, Some(leaving), None), expected, "{leaving}");
        }
        for (members, expected) in [
            ("bogus stuff", Err(ErrorCode::BadArguments)),
            ("server.7=a:1:2:observer;3", Err(ErrorCode::MarshallingError)),
            ("server.x=a:1:2;3", Err(ErrorCode::MarshallingError)),
            ("version=77\nserver.1=127.0.0.1:2888:3888", ok("")),
            (
                "server.1=127.0.0.1:2888:3888\nserver.2=b:1:2:observer;3",
                ok("server.2=b:1:2:observer;0.0.0.0:3\n"),
            ),
        ] {
            assert_eq!(change(None, None, Some(members)), expected, "{members}");
        }
    }
}
