//! A directory of our own that goes away with its owner.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A new directory below the system's temporary one, removed on drop.
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    /// Creates `docent-NAME-PROCESS-RANDOM`.
    pub fn new(name: &str) -> io::Result<Self> {
        loop {
            let random = RandomState::new().build_hasher().finish();
            let name = format!("docent-{name}-{}-{random:016x}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's temporary directory, which is for that.
        let _ = fs::remove_dir_all(&self.path);
    }
}
