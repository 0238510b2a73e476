//! The protected create.

use super::{
    Client,
    wait::{check, wait},
};
use crate::{CreateMode, Error, LockOptions};

/// Creates a node once, although a reply is lost.
///
/// Blocking [`create_protected`](fn@crate::create_protected).
pub fn create_protected(
    client: &Client,
    path: &str,
    data: &[u8],
    mode: CreateMode,
) -> Result<String, Error> {
    check()?;
    wait(crate::create_protected(&client.inner, path, data, mode))
}

/// As [`create_protected`], with options.
///
/// Blocking [`create_protected_with`](crate::create_protected_with).
pub fn create_protected_with(
    client: &Client,
    path: &str,
    data: &[u8],
    mode: CreateMode,
    options: &LockOptions,
) -> Result<String, Error> {
    check()?;
    wait(crate::create_protected_with(&client.inner, path, data, mode, options))
}
