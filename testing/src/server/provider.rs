//! The cryptography of TLS.

use std::{io, sync::Arc};

use tokio_rustls::rustls::crypto::CryptoProvider;

/// The provider that the program has installed, or that of the features.
pub(super) fn provider() -> io::Result<Arc<CryptoProvider>> {
    let installed = CryptoProvider::get_default().cloned();
    installed.or_else(|| of_features().map(Arc::new)).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "TLS: there is no crypto provider: enable the feature tls or tls-aws-lc-rs, or call \
             rustls::crypto::CryptoProvider::install_default first",
        )
    })
}

#[cfg(feature = "tls-aws-lc-rs")]
fn of_features() -> Option<CryptoProvider> {
    Some(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(all(feature = "tls", not(feature = "tls-aws-lc-rs")))]
fn of_features() -> Option<CryptoProvider> {
    Some(tokio_rustls::rustls::crypto::ring::default_provider())
}

#[cfg(not(any(feature = "tls", feature = "tls-aws-lc-rs")))]
const fn of_features() -> Option<CryptoProvider> {
    None
}
