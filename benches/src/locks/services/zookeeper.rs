//! ZooKeeper, with docent and with zookeeper-client.

use std::{cell::RefCell, collections::HashMap, mem};

use docent::{
    Client, Config, CreateMode, ErrorKind, InterProcessMutex, LockGuard, LockOptions, StrictMutex,
};
use xtask::Result;
use zookeeper_client as peer;

use super::{Service, Target};

const ROOT: &str = "/locks";

/// docent's locks.
pub(crate) struct Docent<K> {
    client: Client,
    kind: K,
}

/// A kind of docent's locks.
#[allow(async_fn_in_trait)]
pub(crate) trait Kind: Default + 'static {
    /// Whether acquiring a lock creates its node. A strict lock does so itself, to record the last holder.
    const MAKES_ITS_NODE: bool = false;

    async fn acquire(&self, client: &Client, path: &str) -> Result<LockGuard>;
}

/// A mutex with its default options.
#[derive(Default)]
pub(crate) struct Plain;

impl Kind for Plain {
    async fn acquire(&self, client: &Client, path: &str) -> Result<LockGuard> {
        Ok(InterProcessMutex::new(client, path)?.acquire().await?)
    }
}

/// A mutex with a pipelined listing. The option takes effect only once a mutex has seen its parent node, so the mutex
/// is kept, as a program would do.
#[derive(Default)]
pub(crate) struct Pipelined(RefCell<HashMap<String, InterProcessMutex>>);

impl Kind for Pipelined {
    async fn acquire(&self, client: &Client, path: &str) -> Result<LockGuard> {
        let known = self.0.borrow().get(path).cloned();
        let mutex = match known {
            Some(mutex) => mutex,
            None => {
                let options = LockOptions::default().with_pipelined_listing();
                let mutex = InterProcessMutex::with_options(client, path, options)?;
                self.0.borrow_mut().insert(path.to_owned(), mutex.clone());
                mutex
            }
        };
        Ok(mutex.acquire().await?)
    }
}

/// A strict mutex.
#[derive(Default)]
pub(crate) struct Strict;

impl Kind for Strict {
    const MAKES_ITS_NODE: bool = true;

    async fn acquire(&self, client: &Client, path: &str) -> Result<LockGuard> {
        Ok(StrictMutex::new(client, path)?.acquire().await?)
    }
}

impl<K: Kind> Service for Docent<K> {
    type Guard = LockGuard;

    async fn connect(target: &Target) -> Result<Self> {
        let config = Config::new(target.address())?
            .with_session_timeout(target.lease)
            .with_connection_timeout(target.lease);
        Ok(Self { client: config.connect().await?, kind: K::default() })
    }

    async fn prepare(&self, lock: &str) -> Result<()> {
        let node = (!K::MAKES_ITS_NODE).then(|| format!("{ROOT}/{lock}"));
        for path in [ROOT.to_owned()].into_iter().chain(node) {
            let created = self.client.create(&path, b"", CreateMode::Persistent);
            created.allow(ErrorKind::NodeExists).await?;
        }
        Ok(())
    }

    async fn acquire(&self, lock: &str) -> Result<LockGuard> {
        self.kind.acquire(&self.client, &format!("{ROOT}/{lock}")).await
    }

    async fn is_held(&self, guard: &LockGuard) -> bool {
        guard.is_held()
    }

    async fn token(&self, guard: &LockGuard) -> Option<i64> {
        guard.fencing_token().await.ok()
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }
}

/// zookeeper-client's lock.
pub(crate) struct Kezhuw(peer::Client);

impl Kezhuw {
    async fn make(&self, path: &str) -> Result<()> {
        let options = peer::CreateMode::Persistent.with_acls(peer::Acls::anyone_all());
        match self.0.create(path, b"", &options).await {
            Ok(_) | Err(peer::Error::NodeExists) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Service for Kezhuw {
    type Guard = peer::OwnedLockClient;

    async fn connect(target: &Target) -> Result<Self> {
        let connector = peer::Client::connector().with_session_timeout(target.lease);
        Ok(Self(connector.connect(target.address()).await?))
    }

    async fn prepare(&self, lock: &str) -> Result<()> {
        self.make(ROOT).await?;
        self.make(&format!("{ROOT}/{lock}")).await
    }

    async fn acquire(&self, lock: &str) -> Result<Self::Guard> {
        let path = format!("{ROOT}/{lock}");
        let prefix = peer::LockPrefix::new_curator(&path, "lock-")?;
        Ok(self.0.lock(prefix, b"", peer::Acls::anyone_all()).await?.into_owned())
    }

    async fn is_held(&self, _guard: &Self::Guard) -> bool {
        self.0.state() == peer::SessionState::SyncConnected
    }

    async fn token(&self, guard: &Self::Guard) -> Option<i64> {
        Some(self.0.check_stat(guard.lock_path()).await.ok()??.czxid)
    }

    async fn release(&self, guard: Self::Guard) -> Result<()> {
        self.0.delete(guard.lock_path(), None).await?;
        // Dropping it would delete the node once more, in the background.
        mem::forget(guard);
        Ok(())
    }
}
