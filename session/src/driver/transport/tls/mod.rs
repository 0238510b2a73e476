//! TLS by rustls. The ZooKeeper protocol runs inside TLS from the first byte; there is no STARTTLS.
//!
//! ZooKeeper serves TLS on `secureClientPort`, with the Netty connection factory. A 3.8 server offers TLS 1.2 only and
//! requires a client certificate unless it is configured otherwise.
//!
//! Source: `X509Util`, `ClientX509Util`.

use std::{fmt, io, sync::Arc, time::Duration};

use tokio_rustls::rustls::pki_types::ServerName;

mod formats;
mod options;
mod provider;
mod reasons;
mod renewal;

pub(in crate::driver) use self::reasons::tls_failure;
use self::{
    formats::refused, options::NameRule, provider::provider, reasons::Refused, renewal::Current,
};
use super::{ByteStream, Connecting, Tcp, Transport};
use crate::{Error, config::Host};

pub use self::options::TlsOptions;

impl TlsOptions {
    /// Reads the files, parses the PEM texts, and creates the transport.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when a file cannot be read, a PEM text or the name is invalid, there are no roots, or the key does
    /// not belong to the certificate.
    pub fn build(self) -> Result<Tls, Error> {
        let provider = provider()?;
        let texts = self.texts()?;
        let connector = self.connector(&texts, &provider)?;
        let name = match &self.name {
            NameRule::Name(name) => {
                let parsed = ServerName::try_from(name.clone()).map_err(|error| {
                    refused(format_args!("the server name \"{name}\": {error}"))
                })?;
                Some(parsed)
            }
            NameRule::Host | NameRule::Any => None,
        };
        let current = Current::new(texts, connector, provider);
        Ok(Tls { options: Arc::new(self), current, name })
    }
}

/// TLS over TCP, or over another [transport](TlsOptions::with_transport). Created by [`TlsOptions::build`].
#[derive(Clone)]
pub struct Tls {
    options: Arc<TlsOptions>,
    current: Arc<Current>,
    name: Option<ServerName<'static>>,
}

impl Tls {
    /// Whether the cryptography is the one that is validated for FIPS 140-3: that of aws-lc-rs with the feature `fips` of
    /// `rustls`, and no other provider that the program has installed.
    #[must_use]
    pub fn is_fips(&self) -> bool {
        self.current.is_fips()
    }
}

impl Transport for Tls {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let name = match &self.name {
                Some(name) => name.clone(),
                None => ServerName::try_from(host.name.clone())
                    .map_err(|_| io::Error::other(Refused::Host(host.name.clone())))?,
            };
            let connector = renewal::connector(&self.options, &self.current, within / 3).await;
            let stream = match &self.options.transport {
                None => Tcp.connect(host, within).await?,
                Some(transport) => transport.connect(host, within).await?,
            };
            // The driver drops this future when the whole attempt takes too long.
            let stream = connector.tls.connect(name, stream).await;
            let stream = stream.map_err(|error| Refused::from(error, &connector.sources))?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    fn lookup_servers<'a>(&'a self, name: &'a str) -> super::ServerLookup<'a> {
        self.options.transport.as_deref().unwrap_or(&Tcp).lookup_servers(name)
    }

    fn validate(&self) -> Result<(), Error> {
        self.options.transport.as_deref().map_or(Ok(()), Transport::validate)
    }

    fn is_tls(&self) -> Option<bool> {
        Some(true)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
        pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    };

    use super::*;

    /// Made by `openssl x509 -req -in csr.pem -signkey key.pem`, without extensions.
    const VERSION_1_PEM: &[u8] = b"\
-----BEGIN CERTIFICATE-----\n\
MIIBFTCBvQIUKwWjpAcenAbiNiLkMVneFrzOiXEwCgYIKoZIzj0EAwIwDTELMAkG\n\
A1UEAwwCdjEwIBcNMjYxMTIzMjEwNTQ1WhgPMjEyNjEwMzAyMTA1NDVaMA0xCzAJ\n\
BgNVBAMMAnYxMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEXZkS3nebZly+mMVq\n\
jKKS4aHTcA/vPce97pPxUfHh4sNL8BxMq1Qrw5OG8e9gSttB0VZNyp7MDtm2Ls31\n\
ZXWDpTAKBggqhkjOPQQDAgNHADBEAiAf4GNz4jV12bCBp1fiBKzVQhdSrnVn7Xnp\n\
mLwxUrOBkwIgXGoAZr4W18sQWYlOJSeAKlOXUBNzgsrYEu+/9TgoUaQ=\n\
-----END CERTIFICATE-----\n";

    // Case (Found in docent itself): a certificate of X.509 version 1 was
    // `Other(OtherError(UnsupportedCertVersion))`.
    #[test]
    fn a_certificate_of_version_1_is_named_with_a_remedy() {
        let provider = provider::provider().unwrap();
        let certificate = CertificateDer::from_pem_slice(VERSION_1_PEM).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let name = ServerName::try_from("zk").unwrap();
        let verified = verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now());
        let (error, _) = tls_failure(&io::Error::other(verified.unwrap_err())).unwrap();
        assert!(error.starts_with("the certificate is X.509 version 1, "), "{error}");
        assert!(error.contains("-extfile FILE"), "{error}");
    }
    // Case (Found in docent itself): errors named neither the file of the trusted roots nor another one that has no
    // certificate in it, of which one among others was no error.
    #[test]
    fn errors_name_the_files() {
        let no_pem = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let options = || TlsOptions::new().with_roots(VERSION_1_PEM);
        for (options, what) in [
            (options().with_roots_file(no_pem), "the trusted roots"),
            (options().with_client_certificate_files(no_pem, no_pem), "the client certificate"),
            (options().with_crl_file(no_pem), "the revoked certificates"),
        ] {
            let error = options.build().unwrap_err().to_string();
            assert!(error.contains(&format!("TLS: {what} in {no_pem}: there is no ")), "{error}");
        }
        let options = options().with_roots(b"").with_roots_file("/a.pem").with_roots_file("/b.pem");
        let provider = provider::provider().unwrap();
        assert_eq!(
            options.trusted(&provider),
            "those in PEM and those in /a.pem and those in /b.pem"
        );
    }
}
