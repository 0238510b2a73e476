//! The errors of Kerberos: their kind, and the remedy.

use std::{error::Error as _, fmt};

use docent_session::{Error, sasl::SaslError};

/// Why Kerberos authentication failed. `Display` has the remedy, and the text of the Kerberos library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GssapiError {
    kind: GssapiErrorKind,
    text: String,
}

/// The kind of a [`GssapiError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GssapiErrorKind {
    /// The client has no ticket, and no key to request one.
    NoTicket,
    /// The client's ticket has expired, and there is no keytab, or the request for another ticket has failed.
    TicketExpired,
    /// The KDC does not accept the key in the keytab.
    WrongKey,
    /// The KDC does not know the client's principal, or the principal is disabled.
    UnknownPrincipal,
    /// The KDC does not know the server's principal.
    UnknownServer,
    /// The clocks of the client and the KDC or the server differ too much.
    ClockSkew,
    /// No KDC of the realm can be reached, or the realm has none.
    KdcUnreachable,
    /// The server sent an invalid token, or could not prove that it has the key of its principal.
    InvalidToken,
    /// The server requires a security layer, which ZooKeeper does not have.
    SecurityLayer,
    /// Another error of the Kerberos library.
    Other,
}

impl GssapiErrorKind {
    /// Whether the client's credential is the cause.
    const fn is_about_credential(self) -> bool {
        matches!(
            self,
            Self::NoTicket | Self::TicketExpired | Self::WrongKey | Self::UnknownPrincipal
        )
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::NoTicket => {
                "no Kerberos ticket: run kinit, or set KRB5_CLIENT_KTNAME to a keytab of the principal"
            }
            Self::TicketExpired => {
                "the Kerberos ticket has expired and was not renewed: run kinit, or check the keytab of \
                 KRB5_CLIENT_KTNAME"
            }
            Self::WrongKey => {
                "the KDC does not accept the key of the keytab: export the keytab again (its key may be older \
                 than the principal's)"
            }
            Self::UnknownPrincipal => {
                "the KDC does not accept the client's principal: check its name and realm, and whether it is \
                 enabled"
            }
            Self::UnknownServer => {
                "the KDC does not know the server's principal: check the host name, or set \
                 with_service_name, with_server_principal or with_canonicalize_hostname"
            }
            Self::ClockSkew => {
                "the clocks of the client and the KDC or the server differ too much: synchronize them"
            }
            Self::KdcUnreachable => {
                "no KDC of the realm can be reached: check krb5.conf (KRB5_CONFIG) and the network"
            }
            Self::InvalidToken => "the server has sent an invalid Kerberos token",
            Self::SecurityLayer => "the server requires a security layer, which is not supported",
            Self::Other => "Kerberos failed",
        }
    }
}

impl GssapiError {
    /// The error of Kerberos that caused an error of a client, if one did.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(found) = cause.downcast_ref() {
                return Some(found);
            }
            source = cause.source();
        }
        None
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> GssapiErrorKind {
        self.kind
    }

    pub(crate) fn new(kind: GssapiErrorKind, detail: impl fmt::Display) -> Self {
        Self { kind, text: format!("{} ({detail})", kind.remedy()) }
    }

    /// The error of a call of the library, for the principal of `subject`. It must be made on the thread of the call,
    /// which has the text.
    pub(crate) fn of_library(error: libgssapi::error::Error, subject: &str) -> Self {
        let text = error.to_string();
        let kind = kind(error.major.bits(), error.minor);
        Self::new(kind, format_args!("{subject}: {}", text.trim()))
    }

    /// As [`of_library`](Self::of_library), for a request to the KDC: its reply is encrypted with the client's key.
    pub(crate) fn of_request(error: libgssapi::error::Error, subject: &str) -> Self {
        let this = Self::of_library(error, subject);
        if this.kind == GssapiErrorKind::InvalidToken {
            return Self::new(
                GssapiErrorKind::WrongKey,
                format_args!("{subject}: {}", error.to_string().trim()),
            );
        }
        this
    }

    /// The error for the session: `accepted` is whether a server has accepted a ticket before. A credential that worked
    /// may be renewed late; one that never did is a mistake, which the application should know at once.
    pub(crate) fn into_sasl(self, accepted: bool) -> SaslError {
        let error = if self.kind.is_about_credential() && !accepted {
            SaslError::fatal(&self)
        } else {
            SaslError::retryable(&self)
        };
        error.caused_by(self)
    }
}

impl fmt::Display for GssapiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for GssapiError {}

// The routine errors of RFC 2744, 3.9.1, shifted right by 16 bits.
const BAD_MIC: u32 = 6;
const NO_CRED: u32 = 7;
const DEFECTIVE_TOKEN: u32 = 9;
const DEFECTIVE_CREDENTIAL: u32 = 10;
const CREDENTIALS_EXPIRED: u32 = 11;

/// The kind of an error by its status codes. MIT krb5 and Heimdal number the errors of the protocol alike, and most of
/// the others.
const fn kind(major: u32, minor: u32) -> GssapiErrorKind {
    use GssapiErrorKind as Kind;
    // The error table of Kerberos begins at -1765328384.
    match minor.cast_signed().wrapping_add(1_765_328_384) {
        // KDC_ERR_NAME_EXP, C_PRINCIPAL_UNKNOWN, NEVER_VALID, CLIENT_REVOKED
        1 | 6 | 11 | 18 => Kind::UnknownPrincipal,
        // KDC_ERR_SERVICE_EXP, S_PRINCIPAL_UNKNOWN, SERVICE_REVOKED; KRB5_ERR_BAD_HOSTNAME, HOST_REALM_UNKNOWN
        2 | 7 | 19 | 216 | 217 => Kind::UnknownServer,
        // KDC_ERR_KEY_EXP, PREAUTH_FAILED; KRB5_PREAUTH_FAILED, KT_KVNONOTFOUND
        23 | 24 | 210 | 230 => Kind::WrongKey,
        // KRB_AP_ERR_TKT_EXPIRED
        32 => Kind::TicketExpired,
        // KRB_AP_ERR_TKT_NYV, SKEW; KRB5_KDCREP_SKEW
        33 | 37 | 148 => Kind::ClockSkew,
        // KRB5_REALM_UNKNOWN, KDC_UNREACH, REALM_CANT_RESOLVE; CONFIG_CANTOPEN, CONFIG_NODEFREALM
        154 | 156 | 220 | 135 | 224 => Kind::KdcUnreachable,
        // KRB5_CC_NOTFOUND, KT_NOTFOUND, KT_IOERR, FCC_PERM, FCC_NOFILE
        141 | 181 | 184 | 194 | 195 => Kind::NoTicket,
        // KRB_AP_ERR_BAD_INTEGRITY, BADVERSION, MSG_TYPE, MODIFIED
        31 | 39 | 40 | 41 => Kind::InvalidToken,
        _ => match (major >> 16) & 0xFF {
            NO_CRED | DEFECTIVE_CREDENTIAL => Kind::NoTicket,
            CREDENTIALS_EXPIRED => Kind::TicketExpired,
            DEFECTIVE_TOKEN | BAD_MIC => Kind::InvalidToken,
            _ => Kind::Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docent_session::{ErrorKind, Outcome};

    /// The codes are those of krb5.h; major 13 is a failure without a name.
    #[test]
    fn the_codes_of_the_library_have_kinds() {
        use GssapiErrorKind as Kind;
        for (minor, expected) in [
            (-1_765_328_378, Kind::UnknownPrincipal),
            (-1_765_328_377, Kind::UnknownServer),
            (-1_765_328_360, Kind::WrongKey),
            (-1_765_328_352, Kind::TicketExpired),
            (-1_765_328_347, Kind::ClockSkew),
            (-1_765_328_236, Kind::ClockSkew),
            (-1_765_328_228, Kind::KdcUnreachable),
            (-1_765_328_230, Kind::KdcUnreachable),
            (-1_765_328_189, Kind::NoTicket),
            (-1_765_328_353, Kind::InvalidToken),
            (0, Kind::Other),
        ] {
            assert_eq!(kind(13 << 16, i32::cast_unsigned(minor)), expected, "{minor}");
        }
        assert_eq!(kind(NO_CRED << 16, 0), Kind::NoTicket);
        assert_eq!(kind(CREDENTIALS_EXPIRED << 16, 0), Kind::TicketExpired);
        assert_eq!(kind(DEFECTIVE_TOKEN << 16, 100_001), Kind::InvalidToken);
    }

    #[test]
    fn only_a_credential_that_never_worked_is_final() {
        let wrong = || GssapiError::new(GssapiErrorKind::WrongKey, "why");
        assert!(wrong().into_sasl(false).is_fatal());
        assert!(!wrong().into_sasl(true).is_fatal());
        let unreachable = GssapiError::new(GssapiErrorKind::KdcUnreachable, "why");
        assert!(!unreachable.into_sasl(false).is_fatal());
    }

    #[test]
    fn the_error_is_found_among_the_sources() {
        let cause = GssapiError::new(GssapiErrorKind::ClockSkew, "why").into_sasl(false);
        let error = Error::new(ErrorKind::ConnectionLoss, Outcome::Unknown).with_source(cause);
        let found = GssapiError::of(&error).unwrap();
        assert_eq!(found.kind(), GssapiErrorKind::ClockSkew);
        assert!(found.to_string().contains("synchronize") && found.to_string().contains("(why)"));
        assert_eq!(GssapiError::of(&Error::new(ErrorKind::Closed, Outcome::Unknown)), None);
    }
}
