//! Why a connection by TLS failed, with the remedy.

use std::{error, fmt, io};

use tokio_rustls::rustls;

/// An error of rustls, with what was trusted.
#[derive(Debug)]
pub(super) struct Refused {
    error: rustls::Error,
    trusted: String,
}

impl Refused {
    /// Wraps an error of rustls. Others stay as they are.
    pub(super) fn from(error: io::Error, trusted: String) -> io::Error {
        let kind = error.kind();
        match error.downcast::<rustls::Error>() {
            Ok(error) => io::Error::new(kind, Self { error, trusted }),
            Err(error) => error,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&reason(&self.error))
    }
}

impl error::Error for Refused {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}

/// The error and its remedy, if a connection failed because client and server do not agree on TLS. The error of a transport
/// of the program's own is one of rustls.
pub(in crate::driver) fn mismatch(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?;
    let (error, trusted) = match error.downcast_ref::<Refused>() {
        Some(Refused { error, trusted }) => (error, Some(trusted)),
        None => (error.downcast_ref::<rustls::Error>()?, None),
    };
    let (reason, remedy) = (reason(error), remedy(error)?);
    Some(match trusted.filter(|_| matches!(error, rustls::Error::InvalidCertificate(_))) {
        Some(trusted) => format!("{reason}: {remedy} (the trusted roots: {trusted})"),
        None => format!("{reason}: {remedy}"),
    })
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

fn remedy(error: &rustls::Error) -> Option<&'static str> {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};

    Some(match error {
        Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "the server's certificate is signed by none of the trusted roots"
        }
        Error::InvalidCertificate(
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. },
        ) => "set the name that the server's certificate is for",
        Error::InvalidCertificate(
            Certificate::Expired
            | Certificate::ExpiredContext { .. }
            | Certificate::NotValidYet
            | Certificate::NotValidYetContext { .. },
        ) => "renew the server's certificate, or set the clock",
        // The error of webpki has no variant of its own here.
        Error::InvalidCertificate(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the server uses a CA's certificate; give it one with basicConstraints CA:FALSE"
        }
        Error::InvalidCertificate(Certificate::Revoked) => "the server's certificate is revoked",
        Error::InvalidCertificate(Certificate::UnknownRevocationStatus) => {
            "no list of revoked certificates is by the issuer of the server's certificate"
        }
        Error::InvalidCertificate(_) => "the server's certificate is not accepted",
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError,
        ) => "the server requires a client certificate that it trusts",
        // A server without a key store sends it, and so does OpenSSL with TLS 1.2 if it gets no client certificate.
        Error::AlertReceived(Alert::HandshakeFailure) => {
            "client and server have no cipher suite, key exchange or kind of certificate in common, such as with a server that has no key; or it requires a client certificate"
        }
        Error::InvalidCertRevocationList(_) => {
            "a list of revoked certificates is not signed by the key of its issuer, or not accepted; replace it"
        }
        Error::AlertReceived(Alert::ProtocolVersion | Alert::InsufficientSecurity)
        | Error::PeerIncompatible(_) => {
            "client and server have no version or cipher suite of TLS in common"
        }
        Error::InvalidMessage(_) => "the port does not speak TLS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, CertRevocationListError, Error};

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
            let shown = mismatch(&io::Error::other(error)).unwrap();
            assert!(shown.contains(text), "{shown}");
        }
    }
}
