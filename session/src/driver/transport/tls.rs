//! TLS by rustls. The ZooKeeper protocol runs inside TLS from the first byte; there is no STARTTLS.
//!
//! ZooKeeper serves TLS on `secureClientPort`, with the Netty connection factory. A 3.8 server offers TLS 1.2 only and
//! requires a client certificate unless it is configured otherwise.
//!
//! Source: `X509Util`, `ClientX509Util`.

use std::{fmt, io, sync::Arc, time::Duration};

use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    },
};

use super::{ByteStream, Connecting, Tcp, Transport};
use crate::{Error, ErrorKind, Host};

/// The options of TLS connections: the trusted roots and the client certificate.
///
/// Nothing is trusted by default, because ensembles usually have private certificates.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use docent_session::{Config, TlsOptions};
///
/// let tls = TlsOptions::new()
///     .with_roots(&std::fs::read("ca.pem")?)
///     .with_client_certificate(&std::fs::read("client.pem")?, &std::fs::read("client.key")?)
///     .build()?;
/// let client = Config::new("zk1:2281,zk2:2281")?.with_transport(tls).connect().await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TlsOptions {
    roots: Vec<u8>,
    client: Option<(Vec<u8>, Vec<u8>)>,
    name: NameRule,
}

/// The name that the certificate of a server must be valid for.
#[derive(Debug, Clone, Default)]
enum NameRule {
    /// The name or address in the connect string.
    #[default]
    Host,
    /// This name, whichever host the connect string names.
    Name(String),
    /// Any name, if the chain is valid for the trusted roots.
    Any,
}

impl TlsOptions {
    /// Options without trusted roots and without a client certificate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificates in this PEM text, and those signed by them.
    #[must_use]
    pub fn with_roots(mut self, pem: &[u8]) -> Self {
        self.roots.extend_from_slice(pem);
        self.roots.push(b'\n');
        self
    }

    /// Sends this certificate (with its chain) to servers that request one, both in PEM. With the authentication
    /// provider `x509`, a server authenticates the connection by the subject of the certificate, `x509:CN=name,O=…`.
    #[must_use]
    pub fn with_client_certificate(mut self, chain_pem: &[u8], key_pem: &[u8]) -> Self {
        self.client = Some((chain_pem.to_vec(), key_pem.to_vec()));
        self
    }

    /// Expects certificates for this name, instead of the host in the connect string.
    #[must_use]
    pub fn with_server_name(mut self, name: &str) -> Self {
        self.name = NameRule::Name(name.to_owned());
        self
    }

    /// Accepts certificates for any name, if their chain is valid for the trusted roots, as
    /// `zookeeper.ssl.hostnameVerification=false` does in Java. Every holder of a certificate of these roots can then
    /// impersonate a server.
    #[must_use]
    pub fn without_name_verification(mut self) -> Self {
        self.name = NameRule::Any;
        self
    }

    /// Parses the PEM texts and creates the transport.
    ///
    /// # Errors
    ///
    /// `InvalidConfig` when a PEM text or the name is invalid, there are no roots, or the key does not belong to the
    /// certificate.
    pub fn build(self) -> Result<Tls, Error> {
        let roots = Arc::new(self.trusted()?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(refused)?;
        let builder = match &self.name {
            NameRule::Any => {
                let inner = WebPkiServerVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(refused)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName { inner }))
            }
            NameRule::Host | NameRule::Name(_) => builder.with_root_certificates(roots),
        };
        let config = match &self.client {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain, "the client certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| refused(format_args!("the client's private key: {error}")))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| refused(format_args!("the client certificate: {error}")))?
            }
        };
        let name = match self.name {
            NameRule::Name(name) => {
                let parsed = ServerName::try_from(name.clone())
                    .map_err(|error| refused(format_args!("the server name {name:?}: {error}")))?;
                Some(parsed)
            }
            NameRule::Host | NameRule::Any => None,
        };
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), name })
    }

    fn trusted(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.roots, "the trusted roots")? {
            roots
                .add(certificate)
                .map_err(|error| refused(format_args!("a trusted root: {error}")))?;
        }
        Ok(roots)
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| refused(format_args!("{what}: {error}")))?;
    if certificates.is_empty() {
        return Err(refused(format_args!("{what}: there is no certificate in the PEM text")));
    }
    Ok(certificates)
}

fn refused(why: impl fmt::Display) -> Error {
    Error::refused(ErrorKind::InvalidConfig, format_args!("TLS: {why}"))
}

/// Omits the secrets.
impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("client_certificate", &self.client.is_some())
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// TLS over TCP. Created by [`TlsOptions::build`].
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
}

impl Transport for Tls {
    fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
        Box::pin(async move {
            let name = match &self.name {
                Some(name) => name.clone(),
                None => ServerName::try_from(host.name.clone()).map_err(io::Error::other)?,
            };
            let stream = Tcp.connect(host, within).await?;
            // The driver drops this future when the whole attempt takes too long.
            let stream = self.connector.connect(name, stream).await.map_err(explain)?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }
}

/// A server without TLS closes the connection when it reads the first message of TLS.
fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => io::Error::new(
            error.kind(),
            "the server closed the connection during the TLS handshake; is it a port without TLS?",
        ),
        _ => error,
    }
}

/// The remedy for a connection that failed because client and server do not agree on TLS.
pub(in crate::driver) fn remedy(error: &io::Error) -> Option<&'static str> {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};

    let error = error.get_ref()?.downcast_ref::<Error>()?;
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
        Error::InvalidCertificate(_) => "the server's certificate is not accepted",
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::HandshakeFailure
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError,
        ) => "the server requires a client certificate that it trusts",
        Error::AlertReceived(Alert::ProtocolVersion | Alert::InsufficientSecurity)
        | Error::PeerIncompatible(_) => {
            "client and server have no version or cipher suite of TLS in common"
        }
        Error::InvalidMessage(_) => "the port does not speak TLS",
        _ => return None,
    })
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Verifies everything about a certificate except its name.
#[derive(Debug)]
struct AnyName {
    inner: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The name is verified last, after the chain.
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
