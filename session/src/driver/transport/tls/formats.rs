//! Why options are refused; files of certificates and keys that are not PEM, or whose key is encrypted: how to convert them.

use std::fmt;

use tokio_rustls::rustls::pki_types::pem;

use crate::{Error, ErrorKind};

/// The error of a text without what is expected in it. `file` is its path, or a placeholder.
pub(super) fn unreadable(
    pem: &[u8],
    what: impl fmt::Display,
    expected: &str,
    file: &str,
    error: Option<pem::Error>,
) -> Error {
    if let Some(remedy) = remedy(pem, file) {
        return refused(format_args!("{what}: {remedy}"));
    }
    match error {
        None | Some(pem::Error::NoItemsFound) => {
            refused(format_args!("{what}: there is no {expected} in the PEM text"))
        }
        Some(error) => refused(format_args!("{what}: {error}")),
    }
}

/// The command that converts the file, if its format is known.
fn remedy(bytes: &[u8], file: &str) -> Option<String> {
    /// Inside the outer sequence of DER, whose length has up to two bytes, or is unknown (BER).
    fn inside_sequence(bytes: &[u8]) -> Option<&[u8]> {
        match bytes {
            [0x30, 0x82, _, _, inside @ ..]
            | [0x30, 0x81, _, inside @ ..]
            | [0x30, 0..=0x80, inside @ ..] => Some(inside),
            _ => None,
        }
    }
    let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    if contains(b"BEGIN ENCRYPTED PRIVATE KEY") || contains(b"Proc-Type: 4,ENCRYPTED") {
        return Some(format!(
            "the private key is encrypted; write it without a password, by `openssl pkcs8 -topk8 -nocrypt -in {file} -out NEW`"
        ));
    }
    if bytes.starts_with(&[0xFE, 0xED, 0xFE, 0xED]) {
        return Some(format!(
            "it is a key store of Java (JKS); convert it to PKCS#12, by `keytool -importkeystore -srckeystore {file} -destkeystore NEW.p12 -deststoretype PKCS12`, and that to PEM, by `openssl pkcs12 -in NEW.p12 -nodes -out NEW`"
        ));
    }
    match inside_sequence(bytes)? {
        // The version of PKCS#12.
        [2, 1, 3, ..] => Some(format!(
            "it is PKCS#12; convert it to PEM, by `openssl pkcs12 -in {file} -nodes -out NEW`"
        )),
        // The version of a private key.
        [2, 1, 0 | 1, ..] => Some(format!(
            "it is a private key in DER; convert it to PEM, by `openssl pkey -inform DER -in {file} -out NEW`"
        )),
        // A certificate or a list.
        [0x30, ..] => Some(format!(
            "it is DER; convert it to PEM, by `openssl x509 -inform DER -in {file} -out NEW` (a list of revoked certificates: `openssl crl`)"
        )),
        _ => None,
    }
}

pub(super) fn refused(why: impl fmt::Display) -> Error {
    Error::refused(ErrorKind::InvalidConfig, format_args!("TLS: {why}"))
}
