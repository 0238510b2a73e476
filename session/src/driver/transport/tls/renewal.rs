//! Files of certificates that are read again for each connection.
//!
//! A read may block for as long as its file system does, so it runs on its own thread, which delays no end of a
//! runtime or program. There is one at a time for each transport. An attempt to connect waits for it, for a third of its
//! time; from then on, attempts do not wait for this read.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use tokio::sync::watch;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tracing::{info, warn};

use super::options::{Connector, Texts, TlsOptions};
use crate::Error;

/// The certificates in use, which all clones of a transport share.
pub(super) struct Current {
    state: Mutex<State>,
    /// The same for all certificates, also if the program installs another one later.
    provider: Arc<CryptoProvider>,
}

struct State {
    texts: Texts,
    connector: Connector,
    reading: Option<Reading>,
}

/// A read of the files in progress.
struct Reading {
    /// Closed at the end of the read.
    ended: watch::Receiver<()>,
    /// Whether an attempt has waited for it in vain.
    is_late: bool,
}

impl Current {
    pub(super) fn new(
        texts: Texts,
        connector: Connector,
        provider: Arc<CryptoProvider>,
    ) -> Arc<Self> {
        let state = Mutex::new(State { texts, connector, reading: None });
        Arc::new(Self { state, provider })
    }

    pub(super) fn is_fips(&self) -> bool {
        self.lock().connector.tls.config().fips()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connector for the files as they are now, or for the last valid contents.
pub(super) async fn connector(
    options: &Arc<TlsOptions>,
    current: &Arc<Current>,
    within: Duration,
) -> Connector {
    if options.has_files()
        && let Some(ended) = read(options, current, within)
    {
        Wait { current, ended }.wait().await;
    }
    current.lock().connector.clone()
}

/// Starts to read the files, unless a read is in progress. `None` if there is no reason to wait for it.
fn read(
    options: &Arc<TlsOptions>,
    current: &Arc<Current>,
    within: Duration,
) -> Option<watch::Receiver<()>> {
    let mut state = current.lock();
    if let Some(reading) = &state.reading {
        if reading.is_late {
            warn!("a file of TLS cannot be read in time; the last valid certificates are used");
            return None;
        }
        return Some(reading.ended.clone());
    }
    let (ends, ended) = watch::channel(());
    state.reading = Some(Reading { ended: ended.clone(), is_late: false });
    drop(state);
    let (reads, reading) = mpsc::channel();
    let late = ends.clone();
    let (options, current) = (Arc::clone(options), Arc::clone(current));
    let read = Read { options, current, _ends: ends, _reads: reads };
    // Without a thread, the read ends here.
    let _ = thread::Builder::new().name("docent-tls".to_owned()).spawn(move || read.run());
    // A thread too: a transport knows no timers.
    let _ = thread::Builder::new().name("docent-alarm".to_owned()).spawn(move || {
        if reading.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            let _ = late.send(());
        }
    });
    Some(ended)
}

/// The work of the thread.
struct Read {
    options: Arc<TlsOptions>,
    current: Arc<Current>,
    _ends: watch::Sender<()>,
    _reads: mpsc::Sender<()>,
}

impl Read {
    fn run(self) {
        match self.options.texts().and_then(|texts| self.renew(texts)) {
            Ok(false) => {}
            Ok(true) => info!("certificates of TLS read again"),
            Err(error) => warn!(%error, "the last valid certificates of TLS are used"),
        }
    }

    /// Returns whether the texts have changed.
    fn renew(&self, texts: Texts) -> Result<bool, Error> {
        // A new connector knows no sessions of TLS that it could resume.
        if texts == self.current.lock().texts {
            return Ok(false);
        }
        let connector = self.options.connector(&texts, &self.current.provider)?;
        let mut state = self.current.lock();
        state.texts = texts;
        state.connector = connector;
        Ok(true)
    }
}

impl Drop for Read {
    /// Before the waiters are woken: the next attempt reads again.
    fn drop(&mut self) {
        self.current.lock().reading = None;
    }
}

/// An attempt that waits for a read.
struct Wait<'a> {
    current: &'a Current,
    ended: watch::Receiver<()>,
}

impl Wait<'_> {
    async fn wait(mut self) {
        // Returns at the end of the read, or when it is late.
        let _ = self.ended.changed().await;
    }
}

impl Drop for Wait<'_> {
    /// A read that has not ended by now is late.
    fn drop(&mut self) {
        if let Some(reading) = &mut self.current.lock().reading
            && reading.ended.same_channel(&self.ended)
        {
            reading.is_late = true;
        }
    }
}
