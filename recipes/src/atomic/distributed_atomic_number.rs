//! Numbers that are changed by compare-and-set.

use std::fmt;

use bytes::Bytes;
use docent_session::{Client, Error, ErrorKind, Outcome};

use super::{AtomicOptions, AtomicValue, DistributedAtomicValue};

/// A number of 64 bits: a [`DistributedAtomicNumber`] of eight bytes.
///
/// Source: Curator's `DistributedAtomicLong`.
pub type DistributedAtomicLong = DistributedAtomicNumber<i64>;

/// A number of 32 bits: a [`DistributedAtomicNumber`] of four bytes.
///
/// Source: Curator's `DistributedAtomicInteger`.
pub type DistributedAtomicInteger = DistributedAtomicNumber<i32>;

/// A number that many processes count with: [`DistributedAtomicLong`] or [`DistributedAtomicInteger`].
///
/// The node's data are the number, big-endian, as Curator's. A missing node, and one without data, is 0. Overflow wraps.
/// Clones are the same object.
///
/// # Lost replies
///
/// No change is counted twice. If it cannot be found out whether a change was counted, the operation returns an error
/// with [`Outcome::Unknown`]; [the module](super) has the rules.
///
/// # Example
///
/// ```
/// # async fn example(client: docent::Client) -> Result<(), docent::Error> {
/// use docent::{DistributedAtomicLong, Outcome};
///
/// let counter = DistributedAtomicLong::new(&client, "/counters/jobs")?;
/// match counter.increment().await {
///     Ok(value) if value.succeeded() => println!("{:?} jobs", value.post_value),
///     Ok(_) => println!("too many writers; nothing was counted"),
///     Err(error) if error.outcome() == Outcome::Unknown => println!("maybe counted: {error}"),
///     Err(error) => println!("not counted: {error}"),
/// }
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
/// Source: Curator's `DistributedAtomicNumber`.
#[derive(Clone)]
pub struct DistributedAtomicNumber<N> {
    value: DistributedAtomicValue,
    number: std::marker::PhantomData<fn() -> N>,
}

mod sealed {
    /// A type whose numbers have a fixed number of bytes.
    pub trait Sealed: Sized {
        fn to_bytes(self) -> Vec<u8>;
        fn from_bytes(bytes: &[u8]) -> Option<Self>;
    }
}

/// The numbers of a [`DistributedAtomicNumber`]: `i64` and `i32`.
pub trait AtomicNumber: sealed::Sealed + Copy + Default + fmt::Debug + Send + Sync {
    /// The value 1.
    const ONE: Self;

    /// The sum, modulo 2 to the number of bits.
    #[must_use]
    fn wrapping_add(self, other: Self) -> Self;

    /// The difference, modulo 2 to the number of bits.
    #[must_use]
    fn wrapping_sub(self, other: Self) -> Self;
}

impl sealed::Sealed for i64 {
    fn to_bytes(self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_be_bytes)
    }
}

impl sealed::Sealed for i32 {
    fn to_bytes(self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_be_bytes)
    }
}

impl AtomicNumber for i64 {
    const ONE: Self = 1;

    fn wrapping_add(self, other: Self) -> Self {
        Self::wrapping_add(self, other)
    }

    fn wrapping_sub(self, other: Self) -> Self {
        Self::wrapping_sub(self, other)
    }
}

impl AtomicNumber for i32 {
    const ONE: Self = 1;

    fn wrapping_add(self, other: Self) -> Self {
        Self::wrapping_add(self, other)
    }

    fn wrapping_sub(self, other: Self) -> Self {
        Self::wrapping_sub(self, other)
    }
}

impl<N: AtomicNumber> DistributedAtomicNumber<N> {
    /// A number at this path, with the default [`AtomicOptions`]. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`DistributedAtomicValue::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, Error> {
        Self::with_options(client, path, AtomicOptions::default())
    }

    /// A number at this path. Sends nothing.
    ///
    /// # Errors
    ///
    /// As [`DistributedAtomicValue::with_options`].
    pub fn with_options(
        client: &Client,
        path: &str,
        options: AtomicOptions,
    ) -> Result<Self, Error> {
        let value = DistributedAtomicValue::with_options(client, path, options)?;
        Ok(Self { value, number: std::marker::PhantomData })
    }

    /// Reads the number, as [`DistributedAtomicValue::get`].
    ///
    /// # Errors
    ///
    /// Those of the session, after retries, and `BadReply` if the data are no such number. Not mirrored: Curator reads
    /// the first bytes of longer data, and overwrites the rest with the next change.
    ///
    /// Source: `DistributedAtomicNumber.get`.
    pub async fn get(&self) -> Result<AtomicValue<N>, Error> {
        self.numbers(self.value.get().await?)
    }

    /// Adds 1.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    ///
    /// Source: `DistributedAtomicNumber.increment`.
    pub async fn increment(&self) -> Result<AtomicValue<N>, Error> {
        self.add(N::ONE).await
    }

    /// Subtracts 1.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    ///
    /// Source: `DistributedAtomicNumber.decrement`.
    pub async fn decrement(&self) -> Result<AtomicValue<N>, Error> {
        self.subtract(N::ONE).await
    }

    /// Adds a number. It does not succeed if other writers were faster, more often than the options allow. Sends getData
    /// (4), and setData (5) or create2 (15).
    ///
    /// # Errors
    ///
    /// As [`DistributedAtomicValue::try_set`], and `BadReply` if the data are no such number.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the number may have been changed. The lock of a promotion is released.
    ///
    /// Source: `DistributedAtomicNumber.add`.
    pub async fn add(&self, delta: N) -> Result<AtomicValue<N>, Error> {
        self.update(|number| number.wrapping_add(delta)).await
    }

    /// Subtracts a number.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    ///
    /// Source: `DistributedAtomicNumber.subtract`.
    pub async fn subtract(&self, delta: N) -> Result<AtomicValue<N>, Error> {
        self.update(|number| number.wrapping_sub(delta)).await
    }

    /// Writes a number, as [`DistributedAtomicValue::try_set`].
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    ///
    /// Source: `DistributedAtomicNumber.trySet`.
    pub async fn try_set(&self, number: N) -> Result<AtomicValue<N>, Error> {
        self.update(|_| number).await
    }

    /// Writes a number if the current one is `expected`, as [`DistributedAtomicValue::compare_and_set`]: the number of a
    /// missing node, or of one without data, is not `expected`, not even 0.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the number may have been changed.
    ///
    /// Source: `DistributedAtomicNumber.compareAndSet`.
    pub async fn compare_and_set(&self, expected: N, number: N) -> Result<AtomicValue<N>, Error> {
        let (expected, number) = (expected.to_bytes(), number.to_bytes());
        self.numbers(self.value.compare_and_set(expected, number).await?)
    }

    /// Writes a number unconditionally, as [`DistributedAtomicValue::force_set`].
    ///
    /// # Errors
    ///
    /// As [`DistributedAtomicValue::force_set`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the number may have been changed.
    ///
    /// Source: `DistributedAtomicNumber.forceSet`.
    pub async fn force_set(&self, number: N) -> Result<(), Error> {
        self.value.force_set(number.to_bytes()).await
    }

    /// Creates the node with this number; false if it exists. As [`DistributedAtomicValue::initialize`].
    ///
    /// # Errors
    ///
    /// As [`DistributedAtomicValue::initialize`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the node may have been created.
    ///
    /// Source: `DistributedAtomicNumber.initialize`.
    pub async fn initialize(&self, number: N) -> Result<bool, Error> {
        self.value.initialize(number.to_bytes()).await
    }

    /// The path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.value.path()
    }

    async fn update(&self, change: impl Fn(N) -> N) -> Result<AtomicValue<N>, Error> {
        let make = |data: Option<&Bytes>| Ok(change(self.number(data)?).to_bytes().into());
        self.numbers(self.value.update(make).await?)
    }

    fn numbers(&self, value: AtomicValue<Option<Bytes>>) -> Result<AtomicValue<N>, Error> {
        value.try_map(|data| self.number(data.as_ref()))
    }

    /// Source: `DistributedAtomicLong.bytesToValue`.
    fn number(&self, data: Option<&Bytes>) -> Result<N, Error> {
        let Some(data) = data.filter(|data| !data.is_empty()) else { return Ok(N::default()) };
        N::from_bytes(data).ok_or_else(|| {
            let (length, wanted) = (data.len(), size_of::<N>());
            Error::new(ErrorKind::BadReply, Outcome::NotApplied)
                .with_path(self.path())
                .with_detail(format_args!("corrupted number: {length} bytes instead of {wanted}"))
        })
    }
}

impl<N> fmt::Debug for DistributedAtomicNumber<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedAtomicNumber")
            .field("path", &self.value.path())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::Sealed;

    /// `DistributedAtomicLong.valueToBytes`, `DistributedAtomicInteger.valueToBytes`.
    #[test]
    fn numbers_are_written_as_curator_writes_them() {
        assert_eq!((-58_i64).to_bytes(), [255, 255, 255, 255, 255, 255, 255, 0xc6]);
        assert_eq!(42_i64.to_bytes(), [0, 0, 0, 0, 0, 0, 0, 42]);
        assert_eq!((-2_i32).to_bytes(), [255, 255, 255, 0xfe]);
        for number in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(i64::from_bytes(&number.to_bytes()), Some(number));
        }
        assert_eq!(i32::from_bytes(&[0; 8]), None);
        assert_eq!(i64::from_bytes(&[0; 4]), None);
    }
}
