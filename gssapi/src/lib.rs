//! Kerberos for docent: SASL's mechanism GSSAPI with the rules of ZooKeeper.
//!
//! ```no_run
//! use docent::{Acl, Config, CreateMode, CreateOptions, Perms};
//! use docent_gssapi::Gssapi;
//!
//! # async fn run() -> Result<(), docent::Error> {
//! let kerberos = Gssapi::new().with_principal("app@EXAMPLE.COM")?;
//! let config = Config::new("zk1.example.com:2181,zk2.example.com:2181")?;
//! let client = config.with_sasl_mechanism(kerberos).connect().await?;
//!
//! // The id of the scheme `sasl` is the principal, by the server's rules.
//! let ours = [Acl::new(Perms::ALL, "sasl", "app@EXAMPLE.COM")];
//! client.create("/ours", b"", CreateOptions::new(CreateMode::Persistent).with_acl(&ours)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The client's credential
//!
//! The Kerberos library of the system finds it, by its own settings, as for other Kerberos programs:
//!
//! | source | setting | renewal |
//! |---|---|---|
//! | a keytab | the environment variable `KRB5_CLIENT_KTNAME=FILE:/etc/app.keytab`, or `default_client_keytab_name` in `krb5.conf` | by the library: it requests a ticket when there is none, or when half of its lifetime is over |
//! | a credential cache | `KRB5CCNAME=FILE:/run/app/ccache`, or `default_ccache_name` | by the program that fills it: `kinit`, k5start, SSSD |
//!
//! A keytab is for services: nothing else has to run. The library keeps the ticket of a keytab in the credential cache;
//! set `KRB5CCNAME=MEMORY:app` to keep it out of files that other programs share. With a cache in which there are other
//! principals, [`with_principal`](Gssapi::with_principal) names the one to use. `KRB5_CONFIG` names another `krb5.conf`.
//!
//! ZooKeeper authenticates a connection, not a session: a ticket that expires later ends nothing. Each new connection
//! takes the ticket that is valid then.
//!
//! # The server's principal
//!
//! `zookeeper/HOST@REALM`, and the server must prove that it has the key of this principal. The parts, with the
//! properties of ZooKeeper's Java client:
//!
//! | part | default | setting | Java |
//! |---|---|---|---|
//! | `zookeeper` | | [`with_service_name`](Gssapi::with_service_name) | `zookeeper.sasl.client.username` |
//! | `HOST` | the canonical name of the server's address | [`with_canonicalize_hostname`](Gssapi::with_canonicalize_hostname) | `zookeeper.sasl.client.canonicalize.hostname` |
//! | `REALM` | by the library: `domain_realm` in `krb5.conf`, or the realm of the client | [`with_server_realm`](Gssapi::with_server_realm) | `zookeeper.server.realm` |
//! | all | | [`with_server_principal`](Gssapi::with_server_principal) | `zookeeper.server.principal` |
//!
//! # Errors
//!
//! The errors of the client have a [`GssapiError`] among their sources ([`GssapiError::of`]), whose text ends with that
//! of the Kerberos library:
//!
//! | error | effect |
//! |---|---|
//! | no ticket, an expired one, a wrong key, an unknown principal of the client | the client ends with `AuthFailed`; but once a ticket was accepted, it tries again, with the usual pauses: a keytab or a cache may be renewed later than it should |
//! | an unknown principal of the server, clocks that differ, a KDC that is not reachable, an invalid token | the next server is tried; `connect` fails with `ConnectionLoss` and this text at the end of its time |
//! | the server refuses the ticket | the client ends with `AuthFailed` |
//!
//! A request to a KDC blocks, so the steps of an exchange run on their own thread: a slow KDC delays no other
//! client, and no task of the runtime. It delays the connection, for which the time of an attempt (the connection timeout
//! divided by the number of servers) is the limit. A ticket that arrives later is in the cache for the next attempt.
//!
//! # Limits
//!
//! * The library does not report why it could not renew a ticket: the error is then that the ticket has expired.
//! * No security layer: ZooKeeper's servers offer none. Use TLS to encrypt the connection.
//! * A server with `allowSaslFailedClients` lets a client continue that it could not authorize in the last step, and
//!   its reply is the same. `Client::who_am_i` has the ids of the connection.
//! * The library takes the paths of its files from its own settings only: one process has one keytab and one cache.
//! * A process that exits while a step waits for the KDC may end by `SIGABRT` instead: the library destroys its locks at
//!   the exit, and the step, on its own thread, may still take one.
//! * On Windows, the library is SSPI, which this crate does not support.
//!
//! Source: `ZooKeeperSaslClient`, `SaslServerPrincipal`, `SecurityUtils.createSaslClient`; RFC 4752.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
mod exchange;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use docent_session::{
    Error, ErrorKind,
    sasl::{SaslContext, SaslError, SaslExchange, SaslMechanism},
};

pub use error::{GssapiError, GssapiErrorKind};
use exchange::Exchange;

/// Kerberos authentication, a [`SaslMechanism`] for
/// [`Config::with_sasl_mechanism`](docent_session::Config::with_sasl_mechanism). The [documentation of the crate](crate) has an example.
///
/// It has no secrets: the Kerberos library reads the keytab or the credential cache on each connection. Clones share
/// whether a ticket was accepted before, which decides the effect of some [errors](crate#errors).
#[derive(Debug, Clone)]
pub struct Gssapi {
    names: Names,
    accepted: Accepted,
}

/// The principals of an exchange.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The client's principal; `None`: the default one of the credential cache or the keytab.
    pub(crate) client: Option<String>,
    pub(crate) service: String,
    pub(crate) server: Option<String>,
    pub(crate) server_realm: Option<String>,
    pub(crate) canonicalize: bool,
}

/// Whether a server has accepted a ticket before.
#[derive(Clone, Default)]
pub(crate) struct Accepted(Arc<AtomicBool>);

impl Accepted {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

impl Default for Gssapi {
    fn default() -> Self {
        Self::new()
    }
}

impl Gssapi {
    /// The default principal of the credential cache or the client keytab, and servers with the service name
    /// `zookeeper`.
    #[must_use]
    pub fn new() -> Self {
        let names = Names {
            client: None,
            service: "zookeeper".to_owned(),
            server: None,
            server_realm: None,
            canonicalize: true,
        };
        Self { names, accepted: Accepted::default() }
    }

    /// Sets the principal of the client, such as `app@EXAMPLE.COM` or `app/host.example.com`. Without a realm, it is of
    /// the default realm. There must be a key in the keytab or a ticket in the cache for it.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: the principal is empty or has a control character or a space.
    pub fn with_principal(mut self, principal: &str) -> Result<Self, Error> {
        self.names.client = Some(checked("principal", principal, "")?);
        Ok(self)
    }

    /// Sets the first part of the servers' principals. Default `zookeeper`. It is the property
    /// `zookeeper.sasl.client.username` of the Java client.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: the name is empty or has a control character, a space, `/` or `@`.
    pub fn with_service_name(mut self, name: &str) -> Result<Self, Error> {
        self.names.service = checked("service name", name, "/@")?;
        Ok(self)
    }

    /// Sets the principal of all servers, such as `zookeeper/ensemble.example.com@EXAMPLE.COM`. Default: a principal for
    /// each server, with its name. It is the property `zookeeper.server.principal` of the Java client.
    ///
    /// # Errors
    ///
    /// As [`with_principal`](Self::with_principal).
    pub fn with_server_principal(mut self, principal: &str) -> Result<Self, Error> {
        self.names.server = Some(checked("server principal", principal, "")?);
        Ok(self)
    }

    /// Sets the realm of the servers' principals. Default: as `krb5.conf` maps their names, or the realm of the client. It
    /// is the property `zookeeper.server.realm` of the Java client.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: the realm is empty or has a control character, a space, `/` or `@`.
    pub fn with_server_realm(mut self, realm: &str) -> Result<Self, Error> {
        self.names.server_realm = Some(checked("server realm", realm, "/@")?);
        Ok(self)
    }

    /// Sets whether the name of a server in the connect string is replaced by the canonical name of its address. Default
    /// yes; by the resolver of the system, as `dns_canonicalize_hostname` and `rdns` in `krb5.conf` say. It is the
    /// property `zookeeper.sasl.client.canonicalize.hostname` of the Java client.
    #[must_use]
    pub const fn with_canonicalize_hostname(mut self, canonicalize: bool) -> Self {
        self.names.canonicalize = canonicalize;
        self
    }
}

/// Checks a name that the Kerberos library parses.
fn checked(setting: &str, name: &str, separators: &str) -> Result<String, Error> {
    let is_bad = |c: char| c.is_control() || c == ' ' || separators.contains(c);
    if name.is_empty() || name.contains(is_bad) {
        let rule = format_args!("the Kerberos {setting} {name:?} is not valid");
        return Err(Error::refused(ErrorKind::InvalidConfig, rule));
    }
    Ok(name.to_owned())
}

impl SaslMechanism for Gssapi {
    fn name(&self) -> &str {
        "GSSAPI"
    }

    fn credential_name(&self) -> &str {
        "Kerberos ticket"
    }

    /// The library asks the KDC and the resolver, and waits for them.
    fn is_blocking(&self) -> bool {
        true
    }

    fn exchange(&self, context: &SaslContext<'_>) -> Result<Box<dyn SaslExchange>, SaslError> {
        let host = context.host().name.clone();
        Ok(Box::new(Exchange::new(self.names.clone(), host, self.accepted.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused_with_the_setting() {
        let new = Gssapi::new;
        for (result, setting) in [
            (new().with_principal(""), "principal"),
            (new().with_principal("a b"), "principal"),
            (new().with_service_name("zookeeper/host"), "service name"),
            (new().with_service_name("zookeeper@host"), "service name"),
            (new().with_server_principal("a\0b"), "server principal"),
            (new().with_server_realm("R@R"), "server realm"),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(setting), "{error}");
        }
        let valid = new().with_principal("app/host@R").unwrap().with_server_realm("R").unwrap();
        assert_eq!(valid.names.client.as_deref(), Some("app/host@R"));
    }

    #[test]
    fn clones_share_whether_a_ticket_was_accepted() {
        let first = Gssapi::new();
        let second = first.clone();
        first.accepted.set();
        assert!(second.accepted.get() && !Gssapi::new().accepted.get());
    }
}
