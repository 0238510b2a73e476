//! Access control: the ids of connections, the ACLs of nodes, and the check of one against the other.
//!
//! The schemes are `world`, `auth`, `digest`, `ip`, and `super`, which passes every check. `sasl` is valid if there
//! are SASL users, `x509` if clients have certificates: a real server requires its provider for them.
//!
//! Source: `PrepRequestProcessor.fixupACL`, `ZooKeeperServer.checkACL`, `IPAuthenticationProvider`,
//! `DigestAuthenticationProvider`, `X509AuthenticationProvider`.

use std::sync::Arc;

use docent_protocol::{Acl, ErrorCode, Id, Perms, Text, acl::AclList};

use super::version::Version;

/// An identity: a scheme and an id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ident {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl Ident {
    pub(crate) fn new(scheme: &str, id: &str) -> Self {
        Self { scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// The user name that whoAmI shows.
    pub(crate) fn user(&self) -> &str {
        if self.scheme == "digest" {
            self.id.split(':').next().unwrap_or_default()
        } else {
            &self.id
        }
    }
}

/// Which of the schemes that need a setting are valid in ACLs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Schemes {
    pub(crate) sasl: bool,
    pub(crate) x509: bool,
}

/// The permissions of one identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AclEntry {
    pub(crate) perms: i32,
    pub(crate) who: Ident,
}

/// The ACL of a node. It is shared, since most nodes have the same ACL.
pub(crate) type NodeAcl = Arc<[AclEntry]>;

/// The ACL that grants everything to everyone.
pub(crate) fn open() -> NodeAcl {
    world(Perms::ALL)
}

/// The ACL that grants these permissions to everyone.
pub(crate) fn world(perms: Perms) -> NodeAcl {
    Arc::from([AclEntry { perms: perms.number(), who: Ident::new("world", "anyone") }])
}

/// Whether one of `ids` has one of `perms`.
pub(crate) fn allows(acl: &[AclEntry], perms: Perms, ids: &[Ident]) -> bool {
    ids.iter().any(|id| id.scheme == "super")
        || acl.iter().any(|entry| entry.perms & perms.number() != 0 && matches(&entry.who, ids))
}

/// Like [`allows`], with the error code for the reply.
pub(crate) fn check(acl: &[AclEntry], perms: Perms, ids: &[Ident]) -> Result<(), ErrorCode> {
    if allows(acl, perms, ids) { Ok(()) } else { Err(ErrorCode::NoAuth) }
}

fn matches(wanted: &Ident, ids: &[Ident]) -> bool {
    match wanted.scheme.as_str() {
        "world" => wanted.id == "anyone",
        "ip" => ids.iter().any(|id| id.scheme == "ip" && ip_matches(&id.id, &wanted.id)),
        "digest" | "sasl" | "x509" => ids.contains(wanted),
        _ => false,
    }
}

/// Converts the ACL of a request to the ACL of the node.
///
/// `InvalidAcl` if it is empty or names an invalid identity, `MarshallingError` where a real server fails on a null.
pub(crate) fn fix_up(
    acl: AclList<'_>,
    ids: &[Ident],
    version: Version,
    schemes: Schemes,
) -> Result<NodeAcl, ErrorCode> {
    if version == Version::V3_4 && (acl.is_null() || acl.iter().any(|a| a.id.scheme.is_null())) {
        return Err(ErrorCode::MarshallingError);
    }
    let mut fixed: Vec<AclEntry> = Vec::new();
    let mut late: Vec<AclEntry> = Vec::new();
    let mut seen: Vec<Acl<'_>> = Vec::new();
    for entry in acl.iter() {
        if !is_known(&entry, &seen)? {
            seen.push(entry);
        }
    }
    for entry in seen {
        if entry.id.scheme.is_null() {
            return Err(ErrorCode::InvalidAcl);
        }
        let scheme = entry.id.scheme.to_str();
        let perms = entry.perms.number();
        if scheme == "auth" {
            let is_proven = |id: &&Ident| matches!(&*id.scheme, "digest" | "sasl" | "x509");
            let mine: Vec<_> = ids.iter().filter(is_proven).collect();
            if mine.is_empty() {
                return Err(ErrorCode::InvalidAcl);
            }
            // 3.4 appends them after all others.
            let to = if version == Version::V3_4 { &mut late } else { &mut fixed };
            to.extend(mine.into_iter().map(|who| AclEntry { perms, who: who.clone() }));
            continue;
        }
        let has_provider = match &*scheme {
            "world" | "digest" | "ip" => true,
            "sasl" => schemes.sasl,
            "x509" => schemes.x509,
            _ => false,
        };
        if !has_provider {
            return Err(ErrorCode::InvalidAcl);
        }
        if entry.id.id.is_null() {
            return Err(ErrorCode::MarshallingError);
        }
        let id = entry.id.id.to_str();
        let valid = match &*scheme {
            "world" => id == "anyone",
            "digest" => is_digest(&id),
            "sasl" => !id.is_empty(),
            #[cfg(feature = "tls-no-provider")]
            "x509" => super::x509::is_name(&id),
            _ => is_ip(&id),
        };
        if !valid {
            return Err(ErrorCode::InvalidAcl);
        }
        fixed.push(AclEntry { perms, who: Ident::new(&scheme, &id) });
    }
    fixed.append(&mut late);
    if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(fixed.into()) }
}

/// Whether the entry repeats an earlier one. A real server fails on a null in the entry when the comparison reaches
/// it.
fn is_known(entry: &Acl<'_>, before: &[Acl<'_>]) -> Result<bool, ErrorCode> {
    for other in before.iter().filter(|other| other.perms == entry.perms) {
        if entry.id.scheme.is_null() {
            return Err(ErrorCode::MarshallingError);
        }
        if entry.id.scheme == other.id.scheme {
            if entry.id.id.is_null() {
                return Err(ErrorCode::MarshallingError);
            }
            if entry.id.id == other.id.id {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether the id has two parts around a colon. As with Java's `split`, empty parts at the end do not count.
fn is_digest(id: &str) -> bool {
    id.trim_end_matches(':').split(':').count() == 2
}

fn is_ip(id: &str) -> bool {
    let (addr, bits) = match id.split_once('/') {
        Some((addr, bits)) => (addr, Some(bits)),
        None => (id, None),
    };
    v4(addr).is_some()
        && bits.is_none_or(|bits| bits.parse::<i32>().is_ok_and(|bits| (0..=32).contains(&bits)))
}

fn v4(addr: &str) -> Option<u32> {
    let parts: Vec<&str> = addr.split('.').collect();
    let [a, b, c, d] = parts.as_slice() else { return None };
    let byte = |part: &str| part.parse::<u8>().ok();
    Some(u32::from_be_bytes([byte(a)?, byte(b)?, byte(c)?, byte(d)?]))
}

fn ip_matches(have: &str, wanted: &str) -> bool {
    let (wanted, bits) = match wanted.split_once('/') {
        Some((addr, bits)) => (addr, bits.parse().unwrap_or(32)),
        None => (wanted, 32_u32),
    };
    let (Some(have), Some(wanted)) = (v4(have), v4(wanted)) else { return false };
    let differ = have ^ wanted;
    bits == 0 || differ.checked_shr(32_u32.saturating_sub(bits)).unwrap_or(0) == 0
}

/// The ACL as shown to a client without ADMIN: digests without their hash.
pub(crate) fn without_digests(acl: &[AclEntry]) -> Vec<AclEntry> {
    let hide = |entry: &AclEntry| match entry.who.scheme.as_str() {
        "digest" => AclEntry {
            perms: entry.perms,
            who: Ident::new("digest", &format!("{}:x", entry.who.user())),
        },
        _ => entry.clone(),
    };
    acl.iter().map(hide).collect()
}

impl AclEntry {
    /// The entry in wire format, with its id as [`java::bytes`](super::java::bytes) encodes it.
    pub(crate) fn to_wire<'a>(&'a self, id: &'a [u8]) -> Acl<'a> {
        Acl {
            perms: Perms::from_number(self.perms),
            id: Id { scheme: Text::new(&self.who.scheme), id: Text::from_bytes(Some(id)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fix(entries: &[Acl<'_>], ids: &[Ident]) -> Result<Vec<AclEntry>, ErrorCode> {
        fix_up(entries.into(), ids, Version::V3_8, Schemes::default()).map(|acl| acl.to_vec())
    }

    #[test]
    fn invalid_ids_are_refused() {
        for (scheme, id) in [
            ("world", "somebody"),
            ("digest", "x"),
            ("digest", "x:"),
            ("ip", "10.0.0"),
            ("ip", "10.0.0.0/33"),
            ("sasl", "bob"),
            ("x509", "CN=bob"),
            ("nosuch", ""),
            ("auth", ""),
        ] {
            let refused = fix(&[Acl::new(Perms::ALL, scheme, id)], &[Ident::new("ip", "::1")]);
            assert_eq!(refused, Err(ErrorCode::InvalidAcl), "{scheme}:{id}");
        }
        assert_eq!(fix(&[], &[]), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn auth_becomes_all_proven_ids_and_duplicates_go() {
        let ids = [Ident::new("ip", "127.0.0.1"), Ident::new("digest", "a:1")];
        let all = Acl::new(Perms::ALL, "auth", "");
        let fixed = fix(&[all, all], &ids).unwrap();
        assert_eq!(fixed, [AclEntry { perms: 31, who: ids[1].clone() }]);
    }

    #[test]
    fn addresses_match_by_prefix() {
        for (have, wanted, expected) in [
            ("10.1.2.3", "10.0.0.0/8", true),
            ("11.1.2.3", "10.0.0.0/8", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4/32", false),
            ("10.1.2.3", "0.0.0.0/0", true),
            ("::1", "10.0.0.0/8", false),
        ] {
            assert_eq!(ip_matches(have, wanted), expected, "{have} {wanted}");
        }
    }
}
