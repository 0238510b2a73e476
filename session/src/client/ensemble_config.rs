//! The configuration of an ensemble, as `/zookeeper/config` has it.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::config::Host;

/// The configuration of an ensemble: its servers and its version. Parsed from the data of
/// [`Client::get_config`](crate::Client::get_config).
///
/// ```
/// # extern crate docent_session as docent;
/// use docent::ensemble::EnsembleConfig;
///
/// let text = "server.1=zk1:2888:3888:participant;0.0.0.0:2181\n\
///             server.2=zk2:2888:3888:observer;10.0.0.2:2182\n\
///             version=100000004";
/// let config: EnsembleConfig = text.parse()?;
/// assert_eq!(config.version, 0x1_0000_0004);
/// let hosts: Vec<_> = config.client_hosts().iter().map(ToString::to_string).collect();
/// assert_eq!(hosts, ["10.0.0.2:2182", "zk1:2181"]);
/// # Ok::<(), docent::ensemble::InvalidEnsembleConfig>(())
/// ```
///
/// Source: `QuorumVerifier.toString`, `QuorumPeer.QuorumServer`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnsembleConfig {
    /// The version: the zxid of the change that has set it. 0 in an ensemble that cannot be changed while it runs.
    pub version: i64,
    /// The servers, in the order of the text, which means nothing.
    pub servers: Vec<EnsembleServer>,
}

/// A server of an ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnsembleServer {
    /// Its number (`myid`).
    pub id: i64,
    /// The name or address that the other servers use.
    pub host: String,
    /// Whether it is an observer. Observers serve clients, too.
    pub is_observer: bool,
    /// The address for clients. For a server that listens on all its addresses, the name is [`host`](Self::host). `None`
    /// if the configuration has none, or none that a client can connect to.
    pub client: Option<Host>,
    /// The address for clients by TLS, as [`client`](Self::client). Servers before 3.10 do not say it.
    ///
    /// Source: ZOOKEEPER-4276.
    pub secure_client: Option<Host>,
}

impl EnsembleConfig {
    /// The addresses for clients, sorted by their text, each once. Servers without one are left out.
    ///
    /// Source: `EnsembleTracker.configToConnectionString`.
    #[must_use]
    pub fn client_hosts(&self) -> Vec<Host> {
        sorted(self.servers.iter().filter_map(|server| server.client.clone()))
    }

    /// The addresses for clients by TLS, sorted by their text, each once. Servers without one are left out.
    ///
    /// Source: ZOOKEEPER-4276.
    #[must_use]
    pub fn secure_client_hosts(&self) -> Vec<Host> {
        sorted(self.servers.iter().filter_map(|server| server.secure_client.clone()))
    }
}

fn sorted(hosts: impl Iterator<Item = Host>) -> Vec<Host> {
    let mut hosts: Vec<_> = hosts.collect();
    hosts.sort_by_key(ToString::to_string);
    hosts.dedup();
    hosts
}

/// A text that is no configuration of an ensemble: names the line and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidEnsembleConfig(String);

impl fmt::Display for InvalidEnsembleConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidEnsembleConfig {}

impl FromStr for EnsembleConfig {
    type Err = InvalidEnsembleConfig;

    fn from_str(text: &str) -> Result<Self, InvalidEnsembleConfig> {
        let (mut servers, mut version) = (Vec::new(), None);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let wrong = |rule: &str| InvalidEnsembleConfig(format!("the line {line:?} {rule}"));
            let (key, value) = line.split_once('=').ok_or_else(|| wrong("has no ="))?;
            if let Some(id) = key.strip_prefix("server.") {
                let id = id.parse().map_err(|_| wrong("has no number of a server"))?;
                servers.push(server(id, value).map_err(wrong)?);
            } else if key == "version" {
                let number = i64::from_str_radix(value, 16);
                version = Some(number.map_err(|_| wrong("has no hexadecimal number"))?);
            }
            // Groups and weights of servers do not matter to a client.
        }
        let missing = || InvalidEnsembleConfig(format!("no version in {text:?}"));
        Ok(Self { version: version.ok_or_else(missing)?, servers })
    }
}

/// Reads `host:port:port[:role][;[[host:]port][;[host:]port]]`, where the last address is that of TLS; several addresses of
/// a server stand between bars.
fn server(id: i64, text: &str) -> Result<EnsembleServer, &'static str> {
    let mut sections = text.split(';');
    let server = sections.next().unwrap_or_default();
    let (client, secure) = (sections.next(), sections.next());
    if sections.next().is_some() {
        return Err("has more than two addresses for clients");
    }
    // A server for TLS alone.
    let client = client.filter(|text| !text.is_empty() || secure.is_none());
    let (mut host, mut is_observer) = (None, false);
    for address in server.split('|') {
        let parts = parts(address)?;
        let (name, ports, role) = match parts.as_slice() {
            [name, quorum, election] => (name, [quorum, election], None),
            [name, quorum, election, role] => (name, [quorum, election], Some(*role)),
            _ => return Err("is not host:port:port, with a role or without"),
        };
        if name.is_empty() || ports.iter().any(|port| port.parse::<u16>().is_err()) {
            return Err("has no host or no port of a server");
        }
        is_observer |= match role {
            None | Some("participant") => false,
            Some("observer") => true,
            Some(_) => return Err("has an unknown role"),
        };
        host.get_or_insert(*name);
    }
    let host = host.unwrap_or_default().to_owned();
    let client = client.map(|text| client_host(text, &host)).transpose()?.flatten();
    let secure_client = secure.map(|text| client_host(text, &host)).transpose()?.flatten();
    Ok(EnsembleServer { id, host, is_observer, client, secure_client })
}

/// The address for clients; `None` if no client can connect to it.
fn client_host(text: &str, server: &str) -> Result<Option<Host>, &'static str> {
    let parts = parts(text)?;
    let (name, port) = match parts.as_slice() {
        [port] => ("", port),
        [name, port] => (*name, port),
        _ => return Err("has an address for clients that is not host:port"),
    };
    let port = port.parse().ok().filter(|port| *port != 0);
    let port = port.ok_or("has no port for clients")?;
    let name = if is_wildcard(name) { server } else { name };
    Ok((!is_wildcard(name)).then(|| Host { name: name.to_owned(), port }))
}

/// Whether a server listens on all its addresses.
fn is_wildcard(name: &str) -> bool {
    name.is_empty() || name.parse().is_ok_and(|address: IpAddr| address.is_unspecified())
}

/// The parts between the colons; the first may be an address in brackets.
fn parts(text: &str) -> Result<Vec<&str>, &'static str> {
    let Some(bracketed) = text.strip_prefix('[') else { return Ok(text.split(':').collect()) };
    let (name, rest) = bracketed.split_once(']').ok_or("has no closing bracket")?;
    let rest = rest.strip_prefix(':').ok_or("has no port behind its bracket")?;
    Ok(std::iter::once(name).chain(rest.split(':')).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<EnsembleConfig, String> {
        format!("{text}\nversion=1").parse().map_err(|error| format!("{error}"))
    }

    fn text(hosts: &[Host]) -> String {
        hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn hosts(config_text: &str) -> Result<String, String> {
        Ok(text(&config(config_text)?.client_hosts()))
    }

    // Case (Ensembles that change): a configuration with the addresses of TLS (ZOOKEEPER-4276).
    #[test]
    fn addresses_of_tls_stand_behind_those_of_clients() {
        for (line, plain, secure) in [
            ("server.1=a:1:2:participant;a:2181;a:2281", "a:2181", "a:2281"),
            ("server.1=a:1:2:participant;;0.0.0.0:2281", "", "a:2281"),
            ("server.1=a:1:2;2181;2281", "a:2181", "a:2281"),
            ("server.1=a:1:2:observer;;[2001:db8::1]:2281", "", "[2001:db8::1]:2281"),
            ("server.1=b:1:2;;9\nserver.2=a:1:2;8\nserver.3=c:1:2;7;6", "a:8,c:7", "b:9,c:6"),
        ] {
            let config = config(line).unwrap();
            assert_eq!(text(&config.client_hosts()), plain, "{line}");
            assert_eq!(text(&config.secure_client_hosts()), secure, "{line}");
        }
    }

    /// The cases of Curator's `TestReconfiguration` testConfigToConnectionString…, and texts of real servers.
    #[test]
    fn addresses_are_read_as_by_curator() {
        for (text, expected) in [
            ("server.1=10.1.2.3:2888:3888:participant;10.2.3.4:2181", "10.2.3.4:2181"),
            ("server.1=10.1.2.3:2888:3888:participant;0.0.0.0:2181", "10.1.2.3:2181"),
            ("server.1=10.1.2.3:2888:3888:participant;2181", "10.1.2.3:2181"),
            ("server.1=10.1.2.3:2888:3888;2181", "10.1.2.3:2181"),
            ("server.1=10.1.2.3:2888:3888:observer;2181", "10.1.2.3:2181"),
            ("server.1=10.1.2.3:2888:3888:participant", ""),
            ("server.1=zk1:2888:3888;[::]:2181", "zk1:2181"),
            ("server.1=[1010:0001:0002:0003::]:2888:3888;[2001:db8::1]:2181", "[2001:db8::1]:2181"),
            ("server.1=[0:0:0:0:0:0:0:1]:1:2:observer;[0:0:0:0:0:0:0:0]:3", "[0:0:0:0:0:0:0:1]:3"),
            ("server.1=b:1:2:participant|c:3:4:participant;0.0.0.0:5", "b:5"),
            ("server.1=b:1:2:participant|c:3:4:participant;a:5", "a:5"),
            ("server.1=0.0.0.0:1:2:observer;0.0.0.0:3", ""),
            ("server.1=b:1:2;9\nserver.2=a:1:2;9\nserver.3=b:3:4;9", "a:9,b:9"),
            ("group.1=1:2\nweight.1=1\nserver.1=b:1:2;9", "b:9"),
            ("", ""),
        ] {
            assert_eq!(hosts(text).as_deref(), Ok(expected), "{text}");
        }
    }

    /// The version is the last line: a text that is cut has all servers, or is refused.
    #[test]
    fn a_text_that_is_cut_anywhere_is_refused_or_has_all_servers() {
        let text = "server.1=zk1:2888:3888:participant;zk1:2181;zk1:2281\n\
                    server.2=[2001:db8::1]:2888:3888:observer;;0.0.0.0:2281\n\
                    version=100000004";
        let whole: EnsembleConfig = text.parse().unwrap();
        assert_eq!(whole.servers.len(), 2);
        for cut in 0..text.len() {
            match text[..cut].parse::<EnsembleConfig>() {
                Ok(config) => assert_eq!(config.servers, whole.servers, "{:?}", &text[..cut]),
                Err(error) => {
                    let error = error.to_string();
                    let line = text[..cut].lines().last().unwrap_or_default();
                    assert!(error.contains(line), "{cut}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_text_that_is_none_names_the_line_and_the_rule() {
        for (text, rule) in [
            ("bogus", "has no ="),
            ("server.x=a:1:2;3", "no number of a server"),
            ("server.1=a:1;3", "is not host:port:port"),
            ("server.1=a:1:2:3:4;3", "is not host:port:port"),
            ("server.1=a:1:2:king;3", "unknown role"),
            ("server.1=:1:2;3", "no host"),
            ("server.1=a:x:2;3", "no port of a server"),
            ("server.1=a:1:2;", "no port for clients"),
            ("server.1=a:1:2;;", "no port for clients"),
            ("server.1=a:1:2;3;", "no port for clients"),
            ("server.1=a:1:2;3;4;5", "more than two addresses"),
            ("server.1=a:1:2;0", "no port for clients"),
            ("server.1=a:1:2;b:65536", "no port for clients"),
            ("server.1=a:1:2;b:1:2", "not host:port"),
            ("server.1=[::1:1:2;3", "no closing bracket"),
            ("server.1=[::1]1:2;3", "behind its bracket"),
            ("version=xyz", "no hexadecimal number"),
        ] {
            let error = hosts(text).unwrap_err();
            assert!(error.contains(rule) && error.contains(text), "{text}: {error}");
        }
        let error = "server.1=a:1:2;3".parse::<EnsembleConfig>().unwrap_err();
        assert!(error.to_string().starts_with("no version in"), "{error}");
    }
}
