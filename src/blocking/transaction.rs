//! Transactions, and errors that a caller expects.

use std::fmt;

use super::Client;
use crate::{Acl, CreateMode, Error, ErrorKind, TransactionResult};

/// Several operations that are applied together or not at all. Created by [`Client::transaction`], and by the guards of
/// locks.
///
/// ```
/// # use docent::{CreateMode, Error, blocking::Client};
/// # fn example(client: &Client) -> Result<(), Error> {
/// client
///     .transaction()
///     .check("/config", Some(3))
///     .create("/jobs/1", b"", CreateMode::Persistent)
///     .commit()?;
/// # Ok(())
/// # }
/// ```
///
/// As [`Transaction`](crate::Transaction).
pub struct Transaction<'a> {
    pub(super) inner: crate::Transaction<'a>,
}

impl Transaction<'_> {
    /// Adds a create.
    ///
    /// As [`Transaction::create`](crate::Transaction::create).
    pub fn create(&mut self, path: &str, data: &[u8], mode: CreateMode) -> &mut Self {
        self.inner.create(path, data, mode);
        self
    }

    /// Adds a create with an ACL.
    ///
    /// As [`Transaction::create_with_acl`](crate::Transaction::create_with_acl).
    pub fn create_with_acl(
        &mut self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> &mut Self {
        self.inner.create_with_acl(path, data, mode, acl);
        self
    }

    /// Adds a delete.
    ///
    /// As [`Transaction::delete`](crate::Transaction::delete).
    pub fn delete(&mut self, path: &str, version: Option<i32>) -> &mut Self {
        self.inner.delete(path, version);
        self
    }

    /// Adds a write of data.
    ///
    /// As [`Transaction::set_data`](crate::Transaction::set_data).
    pub fn set_data(&mut self, path: &str, data: &[u8], version: Option<i32>) -> &mut Self {
        self.inner.set_data(path, data, version);
        self
    }

    /// Adds a condition: the node exists, and has this version.
    ///
    /// As [`Transaction::check`](crate::Transaction::check).
    pub fn check(&mut self, path: &str, version: Option<i32>) -> &mut Self {
        self.inner.check(path, version);
        self
    }

    /// Adds a condition on a path of another client of the same ensemble.
    ///
    /// As [`Transaction::check_of`](crate::Transaction::check_of).
    pub fn check_of(&mut self, client: &Client, path: &str, version: Option<i32>) -> &mut Self {
        self.inner.check_of(&client.inner, path, version);
        self
    }

    forward! { Transaction;
        /// Sends the transaction, and returns the result of each operation.
        async fn commit(&self) -> Result<Vec<TransactionResult>, Error>;
        /// The number of operations.
        #[must_use]
        fn len(&self) -> usize;
        /// Whether there are no operations.
        #[must_use]
        fn is_empty(&self) -> bool;
        /// The size of the operations, in bytes.
        #[must_use]
        fn encoded_len(&self) -> usize;
        /// Removes all operations.
        fn clear(&mut self);
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Errors that a caller expects: `None` instead of an error.
///
/// ```
/// # use docent::{Error, ErrorKind};
/// # fn example(client: &docent::blocking::Client) -> Result<(), Error> {
/// use docent::blocking::Allow;
///
/// if let Some(node) = client.get_data("/config").allow(ErrorKind::NoNode)? {
///     println!("{:?}", node.data);
/// }
/// # Ok(())
/// # }
/// ```
pub trait Allow: sealed::Sealed {
    /// The result with `None` for an error of the accepted kind.
    type Allowed;

    /// Accepts one kind of error: the result is `None` instead of an error of that kind.
    ///
    /// As [`Response::allow`](crate::Response::allow).
    fn allow(self, kind: ErrorKind) -> Self::Allowed;
}

mod sealed {
    /// Implemented for the results of calls.
    pub trait Sealed {}
    impl<R> Sealed for Result<R, crate::Error> {}
}

impl<R> Allow for Result<R, Error> {
    type Allowed = Result<Option<R>, Error>;

    fn allow(self, kind: ErrorKind) -> Self::Allowed {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == kind => Ok(None),
            Err(error) => Err(error),
        }
    }
}
