//! Connecting: from a configuration to a client.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use super::{
    chroot::Chroot,
    client::{Client, Handle},
};
use crate::{
    Config, ConnectionState, Error, ErrorKind,
    driver::{self, ReplySlots, Shared, timer},
    machine::Session,
};

/// # Connecting
impl Client {
    /// Connects with the defaults of [`Config`], and waits until there is a session. [`connect_with`](Self::connect_with)
    /// connects with other settings.
    ///
    /// # Errors
    ///
    /// As [`Config::connect`]; `InvalidConfig` when the connect string is invalid.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with IO and time enabled.
    pub async fn connect(connect_string: &str) -> Result<Self, Error> {
        Self::connect_with(Config::new(connect_string)?).await
    }

    /// Connects with these settings, and waits until there is a session: [`Config::connect`] by another name, and the
    /// one that `docent::blocking::Client` has too.
    ///
    /// # Errors
    ///
    /// As [`Config::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`Config::connect`].
    ///
    /// # Panics
    ///
    /// As [`Config::start`].
    pub async fn connect_with(config: Config) -> Result<Self, Error> {
        config.connect().await
    }

    /// Waits until there is a connection with an accepted session. Zero does not wait.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` when there is no session within that time; `AuthFailed` or `Closed` when the client has ended.
    ///
    /// Source: `CuratorFramework.blockUntilConnected`.
    pub async fn wait_until_connected(&self, within: Duration) -> Result<(), Error> {
        self.wait_for_session(within, false).await
    }

    /// Waits for a session. With `fails_early`, a [mismatch of TLS](Error::is_tls_mismatch) with every server ends the
    /// wait.
    async fn wait_for_session(&self, within: Duration, fails_early: bool) -> Result<(), Error> {
        let mut state = self.handle.shared.state();
        let shared = &self.handle.shared;
        let connected = async {
            loop {
                let mut mismatch = pin!(shared.tls_mismatch.notified());
                mismatch.as_mut().enable();
                let connected =
                    state.borrow_and_update().is_some_and(ConnectionState::is_connected);
                if let Some(error) =
                    shared.with(|machine| machine.is_ended().then(|| machine.refusal()))
                {
                    return Err(error);
                }
                if connected {
                    return Ok(());
                }
                if fails_early && shared.with(|machine| machine.has_tls_mismatch()) {
                    return Err(self.no_session(""));
                }
                // An error means that the client has ended; the next iteration returns its reason.
                let mut changed = pin!(state.changed());
                poll_fn(|cx| match changed.as_mut().poll(cx) {
                    Poll::Ready(_) => Poll::Ready(()),
                    Poll::Pending => mismatch.as_mut().poll(cx),
                })
                .await;
            }
        };
        let (mut connected, mut time) =
            (pin!(connected), pin!(timer(&*self.handle.runtime, within)));
        let connected = poll_fn(|cx| match connected.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            // A timer takes a moment in any case.
            Poll::Pending if within.is_zero() => Poll::Ready(None),
            Poll::Pending => time.as_mut().poll(cx).map(|_| None),
        });
        match connected.await {
            Some(result) => result,
            None if within.is_zero() => Err(self.no_session("")),
            None => Err(self.no_session(&format!(" within {within:?}"))),
        }
    }

    fn no_session(&self, within: &str) -> Error {
        let (last_failure, failures) = self
            .handle
            .shared
            .with(|machine| (machine.last_failure().cloned(), machine.failures()));
        let servers = self.handle.config.connect_string();
        let error = Error::refused(
            ErrorKind::ConnectionLoss,
            format_args!("no session with {servers}{within}; {failures}"),
        );
        error.with_source_of(last_failure.as_ref())
    }
}

/// # Connecting
///
/// With the feature `tokio`.
impl Config {
    /// Connects, and waits until there is a session.
    ///
    /// # Errors
    ///
    /// * `InvalidConfig`: a setting has a value that is not allowed; the text names both. Nothing is sent.
    /// * `ConnectionLoss`: no server accepted the session within the
    ///   [connection timeout](Self::with_connection_timeout), 15 s by default; the text contains the failure of the last
    ///   attempt. At once, if client and server [do not agree on TLS](Error::is_tls_mismatch), for every server.
    /// * `AuthFailed`: a server refused the SASL credential; the text names it. [Other credentials](Self::with_auth) are
    ///   answered behind the session: a client whose credentials are refused ends, and its calls fail with this error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the client, which closes the session in the background.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn connect(self) -> Result<Client, Error> {
        let within = self.connection_timeout();
        let client = self.start()?;
        client.wait_for_session(within, true).await?;
        Ok(client)
    }

    /// Starts a client that connects in the background, and returns at once. Its operations wait for the session, for at
    /// most the [connection timeout](Self::with_connection_timeout). Later settings do not apply to it.
    ///
    /// # Errors
    ///
    /// `InvalidConfig`: a setting has a value that is not allowed ([`validate`](Self::validate)); the text names both.
    /// What a connection may find out later, such as refused credentials, ends the client instead.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, unless one is [set](Self::with_runtime); or when the runtime has no IO or time enabled.
    pub fn start(self) -> Result<Client, Error> {
        self.validate()?;
        let driver = &self.driver;
        let runtime = driver.runtime.clone();
        let runtime = runtime.unwrap_or_else(|| Arc::new(tokio::runtime::Handle::current()));
        let transport = driver.transport.clone().unwrap_or_else(|| runtime.transport());
        let clock = driver.clock.clone().unwrap_or_else(|| runtime.clock());
        let seed = driver.seed.unwrap_or_else(|| {
            let mut seed = [0; 8];
            // Without randomness, the seed is the time, which differs between clients.
            if runtime.fill_random(&mut seed) {
                u64::from_ne_bytes(seed)
            } else {
                clock.now().as_nanos()
            }
        });
        let chroot = Chroot::new(self.connect_string().chroot());
        let session = Session::with_answers(self.clone(), seed, ReplySlots::default())
            .with_tls(transport.is_tls());
        #[cfg(feature = "sasl")]
        let session = {
            let mut secret = [0; 16];
            if runtime.fill_random(&mut secret) {
                session.with_nonce_secret(secret)
            } else {
                session
            }
        };
        let shared = Shared::new(session, clock, driver);
        shared.rank_servers();
        runtime.spawn(Box::pin(driver::run(Arc::clone(&shared), transport, Arc::clone(&runtime))));
        Ok(Client { handle: Arc::new(Handle { shared, runtime, config: self }), chroot })
    }
}
