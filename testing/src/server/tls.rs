//! TLS of the listening servers, by rustls. The protocol runs inside TLS from the first byte, as on the
//! `secureClientPort` of a real server.

use std::{
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{error::Elapsed, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::WebPkiClientVerifier,
    },
    server::TlsStream,
};

use super::{provider::provider, x509};

/// The time limit of a handshake. ZooKeeper: `handshakeDetectionTimeoutMillis`, 5 s.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The certificates of a server with TLS, for [`Config::tls`](super::Config::tls).
///
/// The cryptography is that of the provider that the program has installed
/// (`rustls::crypto::CryptoProvider::install_default`), or else of the features: aws-lc-rs by `tls-aws-lc-rs`, or ring by
/// `tls`.
///
/// Clones share the certificates: [`replace`](Self::replace) also changes those of a running server.
///
/// A client certificate authenticates its connection as `x509:<subject>`, as `X509AuthenticationProvider` of a real
/// server does. The subject is written as `X500Principal.getName` of Java does, in the reverse order of the
/// certificate: `CN=alice,O=Example\, Inc.,C=DE`. A subject that is not valid DER ends the connection. 3.4 and
/// ClickHouse Keeper do not know the scheme.
#[derive(Clone)]
pub struct Tls {
    current: Arc<RwLock<Current>>,
}

#[derive(Clone)]
struct Current {
    config: Arc<ServerConfig>,
    requires_client_certificates: bool,
}

impl Tls {
    /// A server with this certificate chain and private key, both in PEM.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when a PEM text is invalid, the key does not belong to the certificate, or there is no crypto
    /// provider.
    pub fn new(chain_pem: &[u8], key_pem: &[u8]) -> io::Result<Self> {
        Self::build(chain_pem, key_pem, None)
    }

    /// Like [`new`](Self::new), for clients with a certificate signed by one of these roots, in PEM. Others are
    /// refused, as with `ssl.clientAuth=need`, the default of a real server. The subject of the certificate is the
    /// identity of the connection.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and when the PEM text of the roots is invalid.
    pub fn with_client_roots(
        chain_pem: &[u8],
        key_pem: &[u8],
        roots_pem: &[u8],
    ) -> io::Result<Self> {
        Self::build(chain_pem, key_pem, Some(roots_pem))
    }

    fn build(chain_pem: &[u8], key_pem: &[u8], roots_pem: Option<&[u8]>) -> io::Result<Self> {
        let provider = provider()?;
        let chain = certificates(chain_pem, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key_pem)
            .map_err(|error| invalid(format_args!("the private key: {error}")))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(invalid)?;
        let builder = match roots_pem {
            None => builder.with_no_client_auth(),
            Some(pem) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pem)?), provider)
                    .build()
                    .map_err(invalid)?,
            ),
        };
        let config = builder
            .with_single_cert(chain, key)
            .map_err(|error| invalid(format_args!("the certificate: {}", text(&error))))?;
        let requires_client_certificates = roots_pem.is_some();
        let current = Current { config: Arc::new(config), requires_client_certificates };
        Ok(Self { current: Arc::new(RwLock::new(current)) })
    }

    /// Replaces the certificates and the roots: new connections use those of `other`. Existing connections are kept.
    pub fn replace(&self, other: &Self) {
        let new = other.current();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn requires_client_certificates(&self) -> bool {
        self.current().requires_client_certificates
    }

    /// Performs the handshake on a new connection. Returns the subject of the client certificate, if there is one.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<String>)> {
        let handshake = TlsAcceptor::from(self.current().config).accept(stream);
        let stream = timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .unwrap_or_else(|_: Elapsed| Err(io::ErrorKind::TimedOut.into()))?;
        // The first certificate is the client's; the others are its authorities.
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let subject = certificate.map(x509::subject).transpose()?;
        Ok((stream, subject))
    }
}

/// Omits the secrets.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn roots(pem: &[u8]) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "the roots of client certificates")? {
        roots.add(certificate).map_err(invalid)?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(format_args!("{what}: {error}")))?;
    if certificates.is_empty() {
        return Err(invalid(format_args!("{what}: there is no certificate in the PEM text")));
    }
    Ok(certificates)
}

/// The text of a rustls error. rustls shows a certificate of X.509 version 1 only in its debug format.
fn text(error: &rustls::Error) -> String {
    let text = error.to_string();
    if text.contains("UnsupportedCertVersion") {
        return "it is X.509 version 1, which TLS does not accept; issue it again as version 3, by `openssl x509 -req ... \
                -extfile FILE` with the line subjectAltName=DNS:HOST in FILE"
            .to_owned();
    }
    text
}

fn invalid(why: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {why}"))
}
