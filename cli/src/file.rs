//! Files that options name: certificates, keys, passwords.

use std::{fs, path::Path};

use crate::exit::{self, Failure};

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| {
        Failure::new(exit::IO, format_args!("cannot read {}: {error}", path.display()))
    })
}

/// Reads the users and passwords in a file, one `USER:PASSWORD` a line. Blank lines are skipped. No error contains a
/// password.
pub(crate) fn read_users(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text = String::from_utf8(read(path)?)
        .map_err(|_| Failure::usage(format_args!("{}: is not UTF-8", path.display())))?;
    let mut users = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let user = user(line).ok_or_else(|| {
            let line = index + 1;
            Failure::usage(format_args!("{}:{line}: is not USER:PASSWORD", path.display()))
        })?;
        users.push(user);
    }
    if users.is_empty() {
        return Err(Failure::usage(format_args!("{}: there is no USER:PASSWORD", path.display())));
    }
    Ok(users)
}

/// Splits `USER:PASSWORD`; the password may contain colons.
pub(crate) fn user(text: &str) -> Option<(String, String)> {
    let (user, password) = text.split_once(':')?;
    let is_complete = !user.is_empty() && !password.is_empty();
    is_complete.then(|| (user.to_owned(), password.to_owned()))
}
