//! Why a connection by TLS failed: the text, the remedy, and whether a later attempt may succeed.

use std::{error, fmt, io, sync::Arc};

use tokio_rustls::rustls;

use crate::error::TlsFailure;

/// Where the roots and the lists of revoked certificates come from, for errors.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) trusted: String,
    pub(super) revoked: String,
}

/// Why the transport of TLS made no connection.
#[derive(Debug)]
pub(super) enum Refused {
    /// No certificate can be for this host of the connect string.
    Host(String),
    /// The server closed the connection before the handshake was complete.
    Closed,
    Handshake(rustls::Error, Arc<Sources>),
}

impl Refused {
    /// Wraps the error of a handshake. An error of the system stays as it is.
    pub(super) fn from(error: io::Error, sources: &Arc<Sources>) -> io::Error {
        let kind = error.kind();
        if matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
            return io::Error::new(kind, Self::Closed);
        }
        match error.downcast::<rustls::Error>() {
            Ok(error) => io::Error::new(kind, Self::Handshake(error, Arc::clone(sources))),
            Err(error) => error,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(f, "the host name \"{name}\" is invalid in a certificate"),
            Self::Closed => {
                f.write_str("the server closed the connection during the TLS handshake")
            }
            Self::Handshake(error, _) => f.write_str(&reason(error)),
        }
    }
}

impl error::Error for Refused {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Handshake(error, _) => Some(error),
            Self::Host(_) | Self::Closed => None,
        }
    }
}

/// The text of an error about TLS, with its remedy, and whether it passes. `None`: it is not about TLS. The error of a
/// transport of the program's own is one of rustls.
pub(in crate::driver) fn tls_failure(error: &io::Error) -> Option<(String, TlsFailure)> {
    let error = error.get_ref()?;
    let refused = error.downcast_ref::<Refused>();
    let (remedy, failure) = match refused {
        Some(Refused::Host(_)) => {
            ("set the name that the server's certificate is for", TlsFailure::Mismatch)
        }
        // A server that stops does so too.
        Some(Refused::Closed) => ("is it a port without TLS?", TlsFailure::Passing),
        Some(Refused::Handshake(error, _)) => verdict(error),
        None => verdict(error.downcast_ref::<rustls::Error>()?),
    };
    let mut text = match refused {
        Some(refused) => refused.to_string(),
        None => reason(error.downcast_ref::<rustls::Error>()?),
    };
    if !remedy.is_empty() {
        text = format!("{text}: {remedy}");
    }
    if let Some(Refused::Handshake(error, sources)) = refused {
        text.push_str(&source_of(error, sources));
    }
    Some((text, failure))
}

/// What the error is measured by, in brackets.
fn source_of(error: &rustls::Error, sources: &Sources) -> String {
    use rustls::{
        CertificateError::{ExpiredRevocationList, Revoked, UnknownRevocationStatus},
        Error,
    };
    match error {
        Error::InvalidCertRevocationList(_)
        | Error::InvalidCertificate(Revoked | UnknownRevocationStatus | ExpiredRevocationList) => {
            format!(" (the lists of revoked certificates: {})", sources.revoked)
        }
        Error::InvalidCertificate(_) => format!(" (the trusted roots: {})", sources.trusted),
        _ => String::new(),
    }
}

/// The text of an error. Some reasons of webpki have no variant in rustls, which then shows its debug format.
pub(super) fn reason(error: &rustls::Error) -> String {
    let text = error.to_string();
    let other = text.split_once("Other(OtherError(").and_then(|(_, rest)| rest.strip_suffix("))"));
    match other {
        Some("UnsupportedCertVersion") => VERSION_1.to_owned(),
        Some(other) => format!("invalid certificate: {other}"),
        None => text,
    }
}

/// `openssl x509 -req` without a file of extensions makes such certificates.
const VERSION_1: &str = "the certificate is X.509 version 1, which TLS does not accept; issue it again as version 3, by `openssl x509 -req ... -extfile FILE` with the line subjectAltName=DNS:HOST in FILE";

/// The remedy, empty if it is unknown, and whether a later attempt may succeed without it.
fn verdict(error: &rustls::Error) -> (&'static str, TlsFailure) {
    use rustls::Error;

    let remedy = match error {
        Error::AlertReceived(alert) => return verdict_of_alert(*alert),
        Error::InvalidCertificate(reason) => remedy_of_certificate(reason),
        Error::InvalidCertRevocationList(_) => {
            "a list of revoked certificates is not signed by the key of its issuer, or not accepted; replace it"
        }
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON,
        Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => "the port does not speak TLS",
        Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => {
            "the server, or a proxy in front of it, breaks a rule of TLS; replace it"
        }
        Error::NoCertificatesPresented => "the server has no certificate; give it one",
        Error::UnsupportedNameType => "set the name that the server's certificate is for",
        // Invalid at a certain moment: bytes that were changed on the way, a clock or randomness that failed.
        _ => return ("", TlsFailure::Passing),
    };
    (remedy, TlsFailure::Mismatch)
}

const NOTHING_IN_COMMON: &str =
    "client and server have no version or cipher suite of TLS in common";

fn verdict_of_alert(alert: rustls::AlertDescription) -> (&'static str, TlsFailure) {
    use rustls::AlertDescription as Alert;

    let remedy = match alert {
        Alert::CertificateRequired
        | Alert::NoCertificate
        | Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::DecryptError => "the server requires a client certificate that it trusts",
        // A server without a key store sends it, and so does OpenSSL with TLS 1.2 if it gets no client certificate.
        Alert::HandshakeFailure => {
            "client and server have no cipher suite, key exchange or kind of certificate in common, such as with a server that has no key; or it requires a client certificate"
        }
        Alert::ProtocolVersion
        | Alert::InsufficientSecurity
        | Alert::InappropriateFallback
        | Alert::ExportRestriction => NOTHING_IN_COMMON,
        Alert::UnrecognisedName => {
            "the server has no certificate for this name; set one that it knows"
        }
        Alert::UnexpectedMessage
        | Alert::RecordOverflow
        | Alert::DecompressionFailure
        | Alert::IllegalParameter
        | Alert::DecodeError
        | Alert::NoRenegotiation
        | Alert::MissingExtension
        | Alert::UnsupportedExtension
        | Alert::NoApplicationProtocol
        | Alert::EncryptedClientHelloRequired => {
            "the server, or a proxy in front of it, does not accept the client's handshake; check that the port is ZooKeeper's"
        }
        // Java's answer to a trust store or key store that it cannot use.
        Alert::InternalError => {
            return ("the log of the server has the reason", TlsFailure::Passing);
        }
        _ => return ("", TlsFailure::Passing),
    };
    (remedy, TlsFailure::Mismatch)
}

fn remedy_of_certificate(reason: &rustls::CertificateError) -> &'static str {
    use rustls::CertificateError as Certificate;

    match reason {
        Certificate::UnknownIssuer => {
            "the server's certificate is signed by none of the trusted roots"
        }
        Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
            "set the name that the server's certificate is for"
        }
        Certificate::Expired
        | Certificate::ExpiredContext { .. }
        | Certificate::NotValidYet
        | Certificate::NotValidYetContext { .. } => {
            "renew the server's certificate, or set the clock"
        }
        // The error of webpki has no variant of its own here.
        other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the server uses a CA's certificate; give it one with basicConstraints CA:FALSE"
        }
        Certificate::Revoked => "the server's certificate is revoked",
        Certificate::UnknownRevocationStatus => {
            "no list of revoked certificates is by the issuer of the server's certificate"
        }
        _ => "the server's certificate is not accepted",
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertRevocationListError, Error, PeerMisbehaved};

    use super::*;

    // Case (Found in docent itself): the failed handshake of a server without a key store was blamed on the client's
    // certificate alone, and a list of revoked certificates by another key was a time-out.
    #[test]
    fn a_handshake_that_fails_names_each_cause() {
        for (error, text) in [
            (Error::AlertReceived(AlertDescription::HandshakeFailure), "a server that has no key"),
            (Error::AlertReceived(AlertDescription::HandshakeFailure), "a client certificate"),
            (Error::InvalidCertRevocationList(CertRevocationListError::BadSignature), "replace it"),
        ] {
            let shown = tls_failure(&io::Error::other(error)).unwrap().0;
            assert!(shown.contains(text), "{shown}");
        }
    }

    // Case (Found in docent itself): most alerts and errors of TLS had neither "TLS" nor a remedy in their text, and connect
    // tried again until its time was up.
    #[test]
    fn each_error_of_tls_is_one_with_a_verdict() {
        use TlsFailure::{Mismatch, Passing};
        let alert = Error::AlertReceived;
        for (error, text, failure) in [
            (
                alert(AlertDescription::UnrecognisedName),
                "UnrecognisedName: the server has",
                Mismatch,
            ),
            (
                alert(AlertDescription::IllegalParameter),
                "IllegalParameter: the server, or",
                Mismatch,
            ),
            (alert(AlertDescription::InternalError), "InternalError: the log of the", Passing),
            (alert(AlertDescription::BadRecordMac), "BadRecordMac", Passing),
            (alert(AlertDescription::Unknown(200)), "AlertDescription(0xc8)", Passing),
            (
                Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived),
                "replace it",
                Mismatch,
            ),
            (Error::NoCertificatesPresented, "give it one", Mismatch),
            (Error::DecryptError, "cannot decrypt peer's message", Passing),
            (Error::General("broken".to_owned()), "broken", Passing),
        ] {
            let (shown, verdict) = tls_failure(&io::Error::other(error)).unwrap();
            assert!(shown.contains(text), "{shown}");
            assert!(verdict == failure, "{shown}");
        }
        assert!(tls_failure(&io::ErrorKind::ConnectionRefused.into()).is_none());
    }
}
