//! A number shared between processes.

use bytes::Bytes;
use docent_session::{Client, Latest};

use super::{SharedValue, VersionedValue};
use crate::{Error, options::LockOptions};

/// A number that many processes read, write and subscribe to: a [`SharedValue`] of four bytes, big-endian.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::{InterProcessSemaphoreV2, SharedCount};
///
/// // The number of leases follows the count.
/// let leases = SharedCount::start(&client, "/printers/count", 3).await?;
/// let semaphore = InterProcessSemaphoreV2::with_count(&client, "/printers/lock", &leases)?;
/// leases.set_count(4).await?;
/// # drop(semaphore);
/// # Ok(())
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = docent_testing::TestingServer::start().await?;
/// # let client = docent::Client::connect(&server.connect_string()).await?;
/// # Ok(example(client).await?)
/// # }
/// ```
///
/// Source: Curator's `SharedCount`.
#[derive(Debug, Clone)]
pub struct SharedCount(SharedValue);

impl SharedCount {
    /// Creates the node with `seed_value` if it is missing, and starts to watch it, as [`SharedValue::start`].
    ///
    /// # Errors
    ///
    /// As [`SharedValue::start`].
    pub async fn start(client: &Client, path: &str, seed_value: i32) -> Result<Self, Error> {
        Self::start_with(client, path, seed_value, &LockOptions::default()).await
    }

    /// As [`start`](Self::start), with the options that [`SharedValue::start_with`] uses.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::start`].
    ///
    /// Source: `SharedCount.start`.
    pub async fn start_with(
        client: &Client,
        path: &str,
        seed_value: i32,
        options: &LockOptions,
    ) -> Result<Self, Error> {
        SharedValue::start_with(client, path, to_bytes(seed_value), options).await.map(Self)
    }

    /// The last known number.
    ///
    /// Source: `SharedCount.getCount`.
    #[must_use]
    pub fn count(&self) -> i32 {
        count_of(&self.0.versioned_value())
    }

    /// The last known number with its version, for [`try_set_count`](Self::try_set_count); [`count_of`] decodes it.
    ///
    /// Source: `SharedCount.getVersionedValue`.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue {
        self.0.versioned_value()
    }

    /// The number and its changes, as [`SharedValue::subscribe`]; [`count_of`] decodes them.
    ///
    /// Source: `SharedCount.addListener`.
    #[must_use]
    pub fn subscribe(&self) -> Latest<VersionedValue> {
        self.0.subscribe()
    }

    /// Writes the number unconditionally.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::set_value`].
    ///
    /// Source: `SharedCount.setCount`.
    pub async fn set_count(&self, count: i32) -> Result<(), Error> {
        self.0.set_value(to_bytes(count)).await
    }

    /// Writes the number if `previous` is still the current version; returns false if not.
    ///
    /// # Errors
    ///
    /// As [`SharedValue::try_set_value`].
    ///
    /// Source: `SharedCount.trySetCount`.
    pub async fn try_set_count(
        &self,
        previous: &VersionedValue,
        count: i32,
    ) -> Result<bool, Error> {
        self.0.try_set_value(previous, to_bytes(count)).await
    }
}

fn to_bytes(count: i32) -> Bytes {
    Bytes::copy_from_slice(&count.to_be_bytes())
}

/// Decodes the number in a value; 0 for a value of fewer than four bytes.
///
/// Source: `SharedCount.fromBytes`, which fails on fewer.
#[must_use]
pub fn count_of(value: &VersionedValue) -> i32 {
    value.value.first_chunk().map_or(0, |bytes| i32::from_be_bytes(*bytes))
}
