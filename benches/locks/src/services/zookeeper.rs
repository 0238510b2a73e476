//! ZooKeeper, by docent and by zookeeper-client.

use std::mem;

use docent::{
    Client, Config, CreateMode, ErrorKind, InterProcessMutex, LockGuard, LockOptions, StrictMutex,
};
use zookeeper_client as peer;

use super::{Service, Target};
use crate::Result;

const ROOT: &str = "/locks";

/// docent's mutex with its default options.
pub(crate) struct Docent(Client);

/// docent's mutex with a pipelined listing. The option takes effect once a mutex has seen its parent node, so one
/// mutex is kept, as a program would keep it.
pub(crate) struct DocentPipelined {
    client: Client,
    mutexes: std::cell::RefCell<std::collections::HashMap<String, InterProcessMutex>>,
}

async fn connect(target: &Target) -> Result<Client> {
    let config = Config::new(target.address())?
        .with_session_timeout(target.lease)
        .with_connection_timeout(target.lease);
    Ok(config.connect().await?)
}

async fn make_parents(client: &Client, lock: &str) -> Result<()> {
    for path in [ROOT.to_owned(), format!("{ROOT}/{lock}")] {
        client.create(&path, b"", CreateMode::Persistent).allow(ErrorKind::NodeExists).await?;
    }
    Ok(())
}

impl Service for Docent {
    type Guard = LockGuard;

    async fn connect(target: &Target) -> Result<Self> {
        Ok(Self(connect(target).await?))
    }

    async fn prepare(&self, lock: &str) -> Result<()> {
        make_parents(&self.0, lock).await
    }

    async fn acquire(&self, lock: &str) -> Result<LockGuard> {
        let mutex = InterProcessMutex::new(&self.0, &format!("{ROOT}/{lock}"))?;
        Ok(mutex.acquire().await?)
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

impl Service for DocentPipelined {
    type Guard = LockGuard;

    async fn connect(target: &Target) -> Result<Self> {
        Ok(Self { client: connect(target).await?, mutexes: Default::default() })
    }

    async fn prepare(&self, lock: &str) -> Result<()> {
        make_parents(&self.client, lock).await
    }

    async fn acquire(&self, lock: &str) -> Result<LockGuard> {
        let known = self.mutexes.borrow().get(lock).cloned();
        let mutex = match known {
            Some(mutex) => mutex,
            None => {
                let options = LockOptions::default().with_pipelined_listing();
                let path = format!("{ROOT}/{lock}");
                let mutex = InterProcessMutex::with_options(&self.client, &path, options)?;
                self.mutexes.borrow_mut().insert(lock.to_owned(), mutex.clone());
                mutex
            }
        };
        Ok(mutex.acquire().await?)
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

/// docent's strict mutex. It makes its node itself, for the record of the last holder.
pub(crate) struct DocentStrict(Client);

impl Service for DocentStrict {
    type Guard = LockGuard;

    async fn connect(target: &Target) -> Result<Self> {
        Ok(Self(connect(target).await?))
    }

    async fn prepare(&self, _lock: &str) -> Result<()> {
        self.0.create(ROOT, b"", CreateMode::Persistent).allow(ErrorKind::NodeExists).await?;
        Ok(())
    }

    async fn acquire(&self, lock: &str) -> Result<LockGuard> {
        Ok(StrictMutex::new(&self.0, &format!("{ROOT}/{lock}"))?.acquire().await?)
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
        // Its drop would delete the node once more, in the background.
        mem::forget(guard);
        Ok(())
    }
}
