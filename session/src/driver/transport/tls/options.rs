//! The options of TLS: what is trusted, and the client's certificate.

use std::{
    borrow::Cow,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::CryptoProvider,
        pki_types::{
            CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
            pem::{self, PemObject},
        },
    },
};

use super::{
    formats::{refused, unreadable},
    reasons::{Sources, reason},
};
use crate::{Error, driver::transport::Transport};

/// The options of TLS connections: the trusted roots and the client certificate.
///
/// Nothing is trusted by default, because ensembles usually have private certificates. A certificate must be for the name or
/// address in the connect string, or in the SRV record; no address is looked up in reverse (ZOOKEEPER-4986).
///
/// The cryptography is that of the provider that the program has installed
/// (`rustls::crypto::CryptoProvider::install_default`) before [`build`](Self::build), or else of the features: aws-lc-rs by `tls-aws-lc-rs`, or ring by
/// `tls`. The feature `fips` of `rustls` makes the former its build that is validated for FIPS 140-3
/// ([`Tls::is_fips`](super::Tls::is_fips)); that takes cmake, Go and a C compiler. Both need the version of `rustls` that
/// docent uses, 0.23.
///
/// ```no_run
/// # extern crate docent_session as docent;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use docent::{Config, tls::TlsOptions};
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
///
/// # Certificates that are renewed
///
/// The methods with `file` in their names take paths. Each attempt to connect reads the files again: after a change, new
/// connections use the new contents, and existing connections are kept. While a file is missing or invalid, the last
/// valid contents are used, with a warning in the log. Replace a certificate and its key before the old one expires.
///
/// A thread of its own reads the files, one at a time. If a file system does not respond, the attempt to connect fails at
/// its deadline, and later attempts use the last valid contents until the read has ended.
///
/// ```no_run
/// # extern crate docent_session as docent;
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use docent::{Config, tls::TlsOptions};
///
/// let tls = TlsOptions::new()
///     .with_roots_file("/etc/zookeeper/ca.pem")
///     .with_client_certificate_files("/etc/app/client.pem", "/etc/app/client.key")
///     .with_crl_file("/etc/zookeeper/revoked.pem")
///     .build()?;
/// let config = Config::new("zk1:2281,zk2:2281")?.with_transport(tls);
/// # drop(config);
/// # Ok(())
/// # }
/// ```
///
/// # Another configuration of TLS
///
/// No type of rustls is part of this crate's API, so its next version does not need one of docent. A program that needs
/// more than these options, such as a verifier of its own, a key in hardware, or another implementation of TLS, makes the
/// connections itself:
///
/// ```
/// # extern crate docent_session as docent;
/// use std::{fmt, io, time::Duration};
///
/// use docent::{runtime::{ByteStream, Connecting, Tcp, Transport}, config::Host};
/// use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
///
/// /// Made of an `Arc<rustls::ClientConfig>`.
/// struct OwnTls(TlsConnector);
///
/// impl Transport for OwnTls {
///     fn connect<'a>(&'a self, host: &'a Host, within: Duration) -> Connecting<'a> {
///         Box::pin(async move {
///             let name = ServerName::try_from(host.name.clone()).map_err(io::Error::other)?;
///             let stream = Tcp.connect(host, within).await?;
///             Ok(Box::new(self.0.connect(name, stream).await?) as Box<dyn ByteStream>)
///         })
///     }
///
///     fn is_tls(&self) -> Option<bool> {
///         Some(true)
///     }
/// }
///
/// impl fmt::Debug for OwnTls {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("OwnTls")
///     }
/// }
///
/// # fn example(config: docent::Config, tls: TlsConnector) -> docent::Config {
/// config.with_transport(OwnTls(tls))
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TlsOptions {
    roots: Vec<Pem>,
    #[cfg(feature = "tls-platform-roots")]
    platform_roots: bool,
    client: Option<(Pem, Pem)>,
    crls: Vec<Pem>,
    pub(super) name: NameRule,
    pub(super) transport: Option<Arc<dyn Transport>>,
}

/// A PEM text, or the file that contains it.
#[derive(Clone)]
enum Pem {
    Text(Vec<u8>),
    File(PathBuf),
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => fs::read(path).map_err(|error| {
                refused(format_args!("cannot read {}: {error}", path.display())).caused_by(error)
            }),
        }
    }

    /// Names what is in it, with the file, for an error.
    fn named(&self, what: &str) -> String {
        match self {
            Self::Text(_) => what.to_owned(),
            Self::File(path) => format!("{what} in {}", path.display()),
        }
    }

    /// The path, or a placeholder for it, in a command.
    fn path(&self) -> Cow<'_, str> {
        match self {
            Self::Text(_) => Cow::Borrowed("FILE"),
            Self::File(path) => path.to_string_lossy(),
        }
    }

    /// Names those that are in all of them.
    fn origins(all: &[Self]) -> String {
        let mut names = Vec::new();
        for pem in all {
            let name = match pem {
                Self::Text(_) => "those in PEM".to_owned(),
                Self::File(_) => pem.named("those"),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" and ")
    }

    fn read_all(all: &[Self]) -> Result<Vec<Vec<u8>>, Error> {
        all.iter().map(Self::read).collect()
    }
}

/// What connections are made by.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsConnector,
    pub(super) sources: Arc<Sources>,
}

/// The PEM texts at one moment.
#[derive(PartialEq, Eq)]
pub(super) struct Texts {
    roots: Vec<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
    crls: Vec<Vec<u8>>,
}

/// The name that the certificate of a server must be valid for.
#[derive(Debug, Clone, Default)]
pub(super) enum NameRule {
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
        self.roots.push(Pem::Text(pem.to_vec()));
        self
    }

    /// As [`with_roots`](Self::with_roots), for a file, which is read for each connection.
    #[must_use]
    pub fn with_roots_file(mut self, path: impl AsRef<Path>) -> Self {
        self.roots.push(Pem::File(path.as_ref().to_owned()));
        self
    }

    /// Trusts the certificates that the platform trusts, beside those of [`with_roots`](Self::with_roots): on Linux those of
    /// the directories of OpenSSL, which `SSL_CERT_FILE` and `SSL_CERT_DIR` replace; elsewhere the platform's own
    /// verifier decides. On Linux they are read by [`build`](Self::build), and again only when a file of these options has
    /// changed: after an update of the platform's roots, build the options again. Elsewhere an update applies at once.
    ///
    /// Not together with lists of revoked certificates, which the platform has of its own, nor
    /// [without names](Self::without_name_verification), since anybody can have a certificate of a public authority:
    /// [`build`](Self::build) refuses both.
    #[cfg(feature = "tls-platform-roots")]
    #[must_use]
    pub const fn with_platform_roots(mut self) -> Self {
        self.platform_roots = true;
        self
    }

    /// Sends this certificate (with its chain) to servers that request one, both in PEM. With the authentication
    /// provider `x509`, a server authenticates the connection by the subject of the certificate, `x509:CN=name,O=…`.
    #[must_use]
    pub fn with_client_certificate(mut self, chain_pem: &[u8], key_pem: &[u8]) -> Self {
        self.client = Some((Pem::Text(chain_pem.to_vec()), Pem::Text(key_pem.to_vec())));
        self
    }

    /// As [`with_client_certificate`](Self::with_client_certificate), for files, which are read for each connection.
    /// Both may be the same file.
    #[must_use]
    pub fn with_client_certificate_files(
        mut self,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Self {
        let file = |path: &Path| Pem::File(path.to_owned());
        self.client = Some((file(chain.as_ref()), file(key.as_ref())));
        self
    }

    /// Refuses the certificates that this list revokes, in PEM. With any list, each certificate of a server's chain must
    /// be covered by a list of its issuer. A list counts after its next update is due, too.
    #[must_use]
    pub fn with_crl(mut self, pem: &[u8]) -> Self {
        self.crls.push(Pem::Text(pem.to_vec()));
        self
    }

    /// As [`with_crl`](Self::with_crl), for a file, which is read for each connection.
    #[must_use]
    pub fn with_crl_file(mut self, path: impl AsRef<Path>) -> Self {
        self.crls.push(Pem::File(path.as_ref().to_owned()));
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

    /// Sets how the connections below TLS are made: with [`TcpOptions`](crate::runtime::TcpOptions), or through a proxy.
    /// Default: [`Tcp`](crate::runtime::Tcp).
    #[must_use]
    pub fn with_transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Whether any text is in a file.
    pub(super) fn has_files(&self) -> bool {
        let client = self.client.iter().flat_map(|(chain, key)| [chain, key]);
        let mut texts = self.roots.iter().chain(&self.crls).chain(client);
        texts.any(|text| matches!(text, Pem::File(_)))
    }

    pub(super) fn texts(&self) -> Result<Texts, Error> {
        let client = match &self.client {
            None => None,
            Some((chain, key)) => Some((chain.read()?, key.read()?)),
        };
        Ok(Texts { roots: Pem::read_all(&self.roots)?, client, crls: Pem::read_all(&self.crls)? })
    }

    pub(super) fn connector(
        &self,
        texts: &Texts,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Connector, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_safe_default_protocol_versions()
            .map_err(refused)?;
        let verifier = self.verifier(texts, provider)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match self.client.as_ref().zip(texts.client.as_ref()) {
            None => builder.with_no_client_auth(),
            Some(((chain_pem, key_pem), (chain, key))) => {
                let chain = certificates(chain, "the client certificate", chain_pem)?;
                let what = key_pem.named("the client's private key");
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
                    unreadable(key, &what, "private key", &key_pem.path(), Some(error))
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    let chain = chain_pem.named("the client certificate");
                    refused(match error {
                        rustls::Error::InconsistentKeys(_) => {
                            format!("{what} does not belong to {chain}")
                        }
                        error => format!("{chain}, with {what}: {}", reason(&error)),
                    })
                })?
            }
        };
        let trusted = self.trusted(provider);
        let sources = Arc::new(Sources { trusted, revoked: Pem::origins(&self.crls) });
        Ok(Connector { tls: TlsConnector::from(Arc::new(config)), sources })
    }

    /// The verifier of the roots, lists and names.
    fn verifier(
        &self,
        texts: &Texts,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, Error> {
        #[cfg(feature = "tls-platform-roots")]
        if self.platform_roots {
            return self.platform_verifier(texts, provider);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.root_certificates(texts)?);
        let roots = Arc::new(roots);
        let verifier = |lists| {
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider))
                .with_crls(lists)
                .build()
        };
        let mut lists = Vec::new();
        for (pem, text) in self.crls.iter().zip(&texts.crls) {
            let of_text = revoked(text, pem)?;
            verifier(of_text.clone()).map_err(|error| {
                refused(format_args!("{}: {error}", pem.named("the revoked certificates")))
            })?;
            lists.extend(of_text);
        }
        let inner = verifier(lists).map_err(refused)?;
        Ok(match self.name {
            NameRule::Any => Arc::new(AnyName { inner }),
            NameRule::Host | NameRule::Name(_) => inner,
        })
    }

    #[cfg(feature = "tls-platform-roots")]
    fn platform_verifier(
        &self,
        texts: &Texts,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, Error> {
        if !self.crls.is_empty() {
            return Err(refused(
                "lists of revoked certificates need roots other than the platform's",
            ));
        }
        if matches!(self.name, NameRule::Any) {
            return Err(refused("the name must be verified with the roots of the platform"));
        }
        let own = match texts.roots.as_slice() {
            [] => Vec::new(),
            _ => self.root_certificates(texts)?,
        };
        let provider = Arc::clone(provider);
        let verifier = rustls_platform_verifier::Verifier::new_with_extra_roots(own, provider);
        Ok(Arc::new(verifier.map_err(|error| {
            refused(format_args!("the roots of the platform: {}", reason(&error)))
        })?))
    }

    /// The trusted roots; at least one in each text.
    fn root_certificates(&self, texts: &Texts) -> Result<Vec<CertificateDer<'static>>, Error> {
        let what = "the trusted roots";
        if texts.roots.is_empty() {
            return Err(refused(format_args!("{what}: there is no certificate")));
        }
        let mut roots = Vec::new();
        for (pem, text) in self.roots.iter().zip(&texts.roots) {
            let of_text = certificates(text, what, pem)?;
            for certificate in &of_text {
                RootCertStore::empty().add(certificate.clone()).map_err(|error| {
                    refused(format_args!("{}: {}", pem.named(what), reason(&error)))
                })?;
            }
            roots.extend(of_text);
        }
        Ok(roots)
    }

    /// The roots, for the error of a certificate that they do not accept.
    pub(super) fn trusted(&self, provider: &Arc<CryptoProvider>) -> String {
        let own = Pem::origins(&self.roots);
        #[cfg(feature = "tls-platform-roots")]
        if self.platform_roots {
            if own.is_empty() {
                return "those of the platform".to_owned();
            }
            // Beside roots of the program's own, the verifier does without.
            let platform = rustls_platform_verifier::Verifier::new(Arc::clone(provider));
            return match platform {
                Ok(_) => format!("{own} and those of the platform"),
                Err(_) => format!("{own}; the platform has none"),
            };
        }
        #[cfg(not(feature = "tls-platform-roots"))]
        let _ = provider;
        own
    }
}

fn certificates(
    pem: &[u8],
    what: &str,
    origin: &Pem,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    items(CertificateDer::pem_slice_iter(pem).collect(), pem, what, "certificate", origin)
}

fn revoked(pem: &[u8], origin: &Pem) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
    let lists = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    items(lists, pem, "the revoked certificates", "list", origin)
}

/// The items of a PEM text; at least one.
fn items<T>(
    items: Result<Vec<T>, pem::Error>,
    pem: &[u8],
    what: &str,
    expected: &str,
    origin: &Pem,
) -> Result<Vec<T>, Error> {
    let error = match items {
        Ok(items) if !items.is_empty() => return Ok(items),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    Err(unreadable(pem, origin.named(what), expected, &origin.path(), error))
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
