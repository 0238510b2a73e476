//! ACLs in the format of zkCli: `world:anyone:r,digest:user:hash:cdrwa`.

use docent::{Acl, Perms};
use docent_protocol::acl::is_digest_id;

/// An ACL entry that owns its strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    perms: Perms,
    scheme: String,
    id: String,
}

impl Entry {
    pub(super) fn as_acl(&self) -> Acl<'_> {
        Acl::new(self.perms, &self.scheme, &self.id)
    }

    /// Whether the entry has a password where servers expect its hash.
    pub(super) fn has_clear_password(&self) -> bool {
        self.scheme == "digest" && !is_digest_id(&self.id)
    }

    /// Whether the server replaces this entry by the identities of the connection, which must have at least one.
    pub(super) fn is_of_the_connection(&self) -> bool {
        self.scheme == "auth"
    }
}

/// Parses one entry; clap splits the list at commas.
pub(super) fn parse(text: &str) -> Result<Entry, String> {
    let invalid =
        || "is not SCHEME:ID:PERMISSIONS, such as world:anyone:r or auth::cdrwa".to_owned();
    let (rest, letters) = text.rsplit_once(':').ok_or_else(invalid)?;
    let (scheme, id) = rest.split_once(':').ok_or_else(invalid)?;
    let mut perms = Perms::NONE;
    for letter in letters.chars() {
        perms = perms
            | match letter {
                'c' => Perms::CREATE,
                'd' => Perms::DELETE,
                'r' => Perms::READ,
                'w' => Perms::WRITE,
                'a' => Perms::ADMIN,
                _ => return Err(format!("permissions must be letters of cdrwa, not '{letter}'")),
            };
    }
    if scheme.is_empty() || letters.is_empty() {
        return Err(invalid());
    }
    Ok(Entry { perms, scheme: scheme.to_owned(), id: id.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_format_of_zkcli() {
        let entry = parse("digest:user:hash=:cdrwa").unwrap();
        assert_eq!(entry.as_acl(), Acl::new(Perms::ALL, "digest", "user:hash="));
        assert_eq!(parse("auth::r").unwrap().as_acl(), Acl::new(Perms::READ, "auth", ""));
        for text in ["", "world", "world:anyone", "world:anyone:", "world:anyone:rx", ":anyone:r"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
