//! The connect string: the servers and the chroot.
//!
//! Source: `ConnectStringParser`.

use std::{fmt, str::FromStr};

use docent_protocol::path;

/// The port of a server that names none.
pub(super) const DEFAULT_PORT: u16 = 2181;

/// The scheme of a name whose SRV records are the servers (ZOOKEEPER-4956).
const DNS_SRV: &str = "dns-srv";

/// A server: a name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// A DNS name, an IPv4 address, or an IPv6 address without brackets. Looked up at every attempt.
    pub name: String,
    /// The client port. 0 for a name whose SRV records are the servers.
    pub port: u16,
}

impl Host {
    /// Whether the SRV records of the name are the servers.
    pub(crate) const fn is_dns_srv(&self) -> bool {
        self.port == 0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_dns_srv() {
            write!(f, "{DNS_SRV}://{}", self.name)
        } else if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// `host[:port],host[:port]/chroot`, or `dns-srv://name/chroot`, taken apart.
///
/// Ports default to 2181; IPv6 addresses stand in brackets; blanks around names and empty items are
/// dropped. What follows the first slash is the chroot: a path in front of every path.
///
/// With `dns-srv://` (feature `dns-srv`, or a transport that looks up servers) they are the targets and ports of the SRV records of the name, such as
/// `_zookeeper._tcp.example.com`. Their priorities and weights do not matter, as in ZooKeeper. The client looks them up
/// before its first attempt to connect, and then every minute; the next attempt to connect uses changed ones. No server is
/// left because its record is gone. An answer without records, or none at all, is logged at WARN, and the servers stay.
///
/// ```
/// # extern crate docent_session as docent;
/// use docent::config::ConnectString;
///
/// let parsed: ConnectString = "zk1, zk2:2182, [::1]:2183/app/a".parse()?;
/// assert_eq!(parsed.to_string(), "zk1:2181,zk2:2182,[::1]:2183/app/a");
/// # Ok::<(), docent::config::InvalidConnectString>(())
/// ```
///
/// Source: `ConnectStringParser`; `DnsSrvHostProvider` of ZooKeeper 3.10 (ZOOKEEPER-4956).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConnectString {
    hosts: Vec<Host>,
    chroot: Option<String>,
}

impl ConnectString {
    /// The servers, in the order given, at least one; or the one name of `dns-srv://`, with the port 0.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The chroot: a valid path, never `/`.
    #[must_use]
    pub fn chroot(&self) -> Option<&str> {
        self.chroot.as_deref()
    }
}

impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, host) in self.hosts.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{host}")?;
        }
        f.write_str(self.chroot().unwrap_or_default())
    }
}

/// An invalid connect string: names the part and the rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidConnectString(String);

impl fmt::Display for InvalidConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidConnectString {}

impl FromStr for ConnectString {
    type Err = InvalidConnectString;

    fn from_str(text: &str) -> Result<Self, InvalidConnectString> {
        let (is_dns_srv, rest) = match text.split_once("://") {
            None => (false, text),
            Some((scheme, rest)) if scheme.trim_start() == DNS_SRV => (true, rest),
            Some((scheme, rest)) => {
                return Err(InvalidConnectString(format!(
                    "the connect string \"{text}\" is a URL: write \"{rest}\", without {scheme}://"
                )));
            }
        };
        let (servers, chroot) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let mut hosts = Vec::new();
        if is_dns_srv {
            hosts.push(parse_dns_srv(servers.trim())?);
        } else {
            for item in servers.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                hosts.push(parse_host(item)?);
            }
        }
        if hosts.is_empty() {
            return Err(InvalidConnectString(format!(
                "the connect string \"{text}\" names no server: expected host:port,host:port/chroot"
            )));
        }
        let chroot = match chroot.trim_end() {
            "" | "/" => None,
            chroot => {
                path::validate(chroot).map_err(|error| {
                    InvalidConnectString(format!("the chroot \"{chroot}\" is not a path: {error}"))
                })?;
                Some(chroot.to_owned())
            }
        };
        Ok(Self { hosts, chroot })
    }
}

fn parse_dns_srv(name: &str) -> Result<Host, InvalidConnectString> {
    let wrong = |rule: &str| {
        Err(InvalidConnectString(format!("the name \"{name}\" behind {DNS_SRV}:// {rule}")))
    };
    if name.is_empty() {
        return wrong("is empty");
    }
    if name.contains(',') {
        return wrong("is a list: write one name, whose SRV records are the servers");
    }
    if name.contains(':') {
        return wrong("has a port: the ports are those of the SRV records");
    }
    if let Some(bad) = forbidden_in_names(name) {
        return wrong(&format!("has {bad} in it"));
    }
    Ok(Host { name: name.to_owned(), port: 0 })
}

/// The first character that no name of a server has, as an error shows it.
fn forbidden_in_names(name: &str) -> Option<String> {
    let bad =
        name.chars().find(|c| c.is_whitespace() || c.is_control() || "@?#[]\"\\".contains(*c))?;
    let is_shown = bad == ' ' || bad.is_ascii_graphic();
    Some(if is_shown { format!("'{bad}'") } else { format!("U+{:04X}", u32::from(bad)) })
}

fn parse_host(item: &str) -> Result<Host, InvalidConnectString> {
    let wrong = |rule: &str| Err(InvalidConnectString(format!("the server \"{item}\" {rule}")));
    let (name, port) = if let Some(bracketed) = item.strip_prefix('[') {
        let Some((name, rest)) = bracketed.split_once(']') else {
            return wrong("has no closing bracket");
        };
        if name.parse::<std::net::Ipv6Addr>().is_err() {
            return wrong("has no IPv6 address in its brackets");
        }
        match rest.strip_prefix(':') {
            Some(port) => (name, Some(port)),
            None if rest.is_empty() => (name, None),
            None => return wrong("has no port behind its bracket"),
        }
    } else {
        match item.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return wrong("has several colons: write an IPv6 address as [address]:port");
            }
            Some((name, port)) => (name.trim_end(), Some(port.trim_start())),
            None => (item, None),
        }
    };
    if name.is_empty() {
        return wrong("has no name");
    }
    if let Some(bad) = forbidden_in_names(name) {
        return wrong(&format!("has {bad} in its name"));
    }
    let port = match port {
        None => DEFAULT_PORT,
        // `parse` would take a plus sign.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse() {
            Ok(0) | Err(_) => return wrong("has a port outside 1 to 65535"),
            Ok(port) => port,
        },
        Some(_) => return wrong("has a port that is not a number"),
    };
    Ok(Host { name: name.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        text.parse::<ConnectString>()
            .map(|parsed| parsed.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn connect_strings_are_normalised() {
        for (text, expected) in [
            ("localhost", "localhost:2181"),
            (" a : 1 , ,b:2, ", "a:1,b:2"),
            ("[::1]:2182,[fe80::1]", "[::1]:2182,[fe80::1]:2181"),
            ("a/", "a:2181"),
            ("a:1/x/y", "a:1/x/y"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn bad_connect_strings_name_the_part_and_the_rule() {
        for (text, part, rule) in [
            ("", "\"\"", "names no server"),
            (" , ,", "\" , ,\"", "names no server"),
            ("/app", "\"/app\"", "names no server"),
            ("a:b", "\"a:b\"", "not a number"),
            ("a:", "\"a:\"", "outside 1 to 65535"),
            ("a:0", "\"a:0\"", "outside 1 to 65535"),
            ("a:65536", "\"a:65536\"", "outside 1 to 65535"),
            ("a:+1", "\"a:+1\"", "not a number"),
            (":2181", "\":2181\"", "has no name"),
            ("::1", "\"::1\"", "[address]:port"),
            ("[::1", "\"[::1\"", "no closing bracket"),
            ("[x]:1", "\"[x]:1\"", "IPv6"),
            ("[::1]2181", "\"[::1]2181\"", "behind its bracket"),
            ("http://a:2181", "write \"a:2181\"", "without http://"),
            ("a b:1", "\"a b:1\"", "' ' in its name"),
            ("a/x/", "\"/x/\"", "must not end with a slash"),
            ("a//x", "\"//x\"", "empty node name"),
            ("a/x/../y", "\"/x/../y\"", "relative node name"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part) && error.contains(rule), "{text}: {error}");
        }
    }

    // Case (Ensembles that change): the servers are SRV records (ZOOKEEPER-4956).
    #[test]
    fn the_name_of_srv_records_is_one_without_a_port() {
        for (text, expected) in [
            ("dns-srv://_zookeeper._tcp.example.com.", "dns-srv://_zookeeper._tcp.example.com."),
            (" dns-srv://zk.example/a/b ", "dns-srv://zk.example/a/b"),
            ("dns-srv://zk.example/", "dns-srv://zk.example"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, part, rule) in [
            ("dns-srv://", "\"\"", "is empty"),
            ("dns-srv:///app", "\"\"", "is empty"),
            ("dns-srv://a,b", "\"a,b\"", "write one name"),
            ("dns-srv://a:2181", "\"a:2181\"", "has a port"),
            ("dns-srv://a b", "\"a b\"", "' ' in it"),
            ("dns-srv://a/x/", "\"/x/\"", "must not end with a slash"),
            ("DNS-SRV://a", "write \"a\"", "without DNS-SRV://"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part) && error.contains(rule), "{text}: {error}");
        }
    }

    #[test]
    fn each_character_that_a_name_may_not_have_is_named() {
        let shown = "@?#[]\"\\ ".chars().map(|bad| (bad, format!("'{bad}'")));
        let hidden = "\t\n\u{a0}\0\u{7f}\u{85}".chars();
        let hidden = hidden.map(|bad| (bad, format!("U+{:04X}", u32::from(bad))));
        for (bad, name) in shown.chain(hidden) {
            let text = format!("a{bad}b:1");
            let error = text.parse::<ConnectString>().unwrap_err().to_string();
            assert!(error.contains(&format!("has {name} in its name")), "{text:?}: {error}");
        }
        for good in "abz019.-_~é:".chars().filter(|good| *good != ':') {
            assert!(format!("a{good}b:1").parse::<ConnectString>().is_ok(), "{good:?}");
        }
    }
}
