//! Redis: a key with a time to live, and RedLock as implemented by rslock.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use redis::{Script, aio::MultiplexedConnection};
use rslock::{Lock, LockManager};

use xtask::Result;

use super::{Service, Target};
use crate::locks::random;

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                     return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

/// RedLock subtracts this fraction of the time to live for clock drift, and so does this client: a hundredth.
const DRIFT: u32 = 100;

/// A connection on which locks are keys set with `NX PX`.
pub(crate) struct SetNx {
    connection: MultiplexedConnection,
    lease: Duration,
}

/// A held lock, and the task that renews it every third of its time to live.
pub(crate) struct Renewed<T> {
    lock: T,
    deadline: Rc<Cell<Instant>>,
    renewal: tokio::task::JoinHandle<()>,
}

impl<T> Drop for Renewed<T> {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl<T> Renewed<T> {
    /// Calls `renew` every third of the lease. `renew` returns whether the lock still exists, or an error if that is
    /// unknown.
    fn new(
        lock: T,
        deadline: Instant,
        lease: Duration,
        mut renew: impl AsyncFnMut() -> Result<bool> + 'static,
    ) -> Self {
        let deadline = Rc::new(Cell::new(deadline));
        let kept = Rc::clone(&deadline);
        let renewal = tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(lease / 3).await;
                let begin = Instant::now();
                match renew().await {
                    Ok(true) => kept.set(valid_until(begin, lease)),
                    Ok(false) => {
                        kept.set(begin);
                        return;
                    }
                    Err(_) => {}
                }
            }
        });
        Self { lock, deadline, renewal }
    }

    fn is_held(&self) -> bool {
        Instant::now() < self.deadline.get()
    }
}

/// The end of the validity of a lease that began at `begin`.
fn valid_until(begin: Instant, lease: Duration) -> Instant {
    begin + lease - lease / DRIFT
}

impl Service for SetNx {
    /// The key and its value.
    type Guard = Renewed<(String, String)>;

    async fn connect(target: &Target) -> Result<Self> {
        let client = redis::Client::open(format!("redis://{}", target.address()))?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { connection, lease: target.lease })
    }

    async fn acquire(&self, lock: &str) -> Result<Self::Guard> {
        let mut connection = self.connection.clone();
        let value = format!("{:016x}{:016x}", random(), random());
        let milliseconds = self.lease.as_millis() as u64;
        let mut set = redis::cmd("SET");
        set.arg(lock).arg(&value).arg("NX").arg("PX").arg(milliseconds);
        let begin = loop {
            let begin = Instant::now();
            let reply: Option<String> = set.query_async(&mut connection).await?;
            if reply.is_some() {
                break begin;
            }
            tokio::time::sleep(Duration::from_millis(10 + random() % 20)).await;
        };
        let lock = (lock.to_owned(), value);
        let (script, (key, value)) = (Script::new(RENEW), lock.clone());
        let renew = async move || {
            let mut call = script.key(&key);
            call.arg(&value).arg(milliseconds);
            // If the key has another value or none, the lock is lost.
            Ok(call.invoke_async::<i64>(&mut connection).await? == 1)
        };
        Ok(Renewed::new(lock, valid_until(begin, self.lease), self.lease, renew))
    }

    async fn is_held(&self, guard: &Self::Guard) -> bool {
        guard.is_held()
    }

    async fn release(&self, guard: Self::Guard) -> Result<()> {
        let mut connection = self.connection.clone();
        let (key, value) = &guard.lock;
        let _: i64 = Script::new(RELEASE).key(key).arg(value).invoke_async(&mut connection).await?;
        Ok(())
    }
}

/// rslock's manager, with its default number of retries and delay.
pub(crate) struct RedLock {
    manager: LockManager,
    lease: Duration,
}

impl Service for RedLock {
    type Guard = Renewed<Lock>;

    async fn connect(target: &Target) -> Result<Self> {
        let addresses = target.addresses.iter().map(|address| format!("redis://{address}"));
        Ok(Self { manager: LockManager::new(addresses.collect::<Vec<_>>()), lease: target.lease })
    }

    async fn acquire(&self, lock: &str) -> Result<Self::Guard> {
        // `lock` gives up after three attempts. rslock's `acquire` repeats it in a loop, as here.
        let lock = loop {
            match self.manager.lock(lock.as_bytes(), self.lease).await {
                Ok(lock) => break lock,
                Err(rslock::LockError::Unavailable | rslock::LockError::TtlExceeded) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let validity = Duration::from_millis(lock.validity_time as u64);
        let deadline = Instant::now() + validity;
        let (lease, manager) = (self.lease, self.manager.clone());
        let renewed = Lock {
            resource: lock.resource.clone(),
            val: lock.val.clone(),
            validity_time: lock.validity_time,
            lock_manager: manager.clone(),
        };
        let renew = async move || match manager.extend(&renewed, lease).await {
            Ok(_) => Ok(true),
            Err(rslock::LockError::Unavailable) => Ok(false),
            Err(error) => Err(error.into()),
        };
        Ok(Renewed::new(lock, deadline, lease, renew))
    }

    async fn is_held(&self, guard: &Self::Guard) -> bool {
        guard.is_held()
    }

    async fn release(&self, guard: Self::Guard) -> Result<()> {
        self.manager.unlock(&guard.lock).await;
        Ok(())
    }
}
