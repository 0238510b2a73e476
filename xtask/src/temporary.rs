//! A temporary directory that is removed on drop.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A new directory, removed on drop.
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    /// Creates `docent-NAME-PROCESS-RANDOM` in the system's temporary directory.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::new_in(&std::env::temp_dir(), name)
    }

    /// Creates it in another directory.
    pub fn new_in(parent: &Path, name: &str) -> io::Result<Self> {
        loop {
            let random = RandomState::new().build_hasher().finish();
            let name = format!("docent-{name}-{}-{random:016x}", std::process::id());
            let path = parent.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file in the directory, and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content).map(|()| path)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // An error is ignored: the directory is then left behind.
        let _ = fs::remove_dir_all(&self.path);
    }
}
