//! A lock of the operating system on a file: the lower bound of every comparison.

use std::{fs::File, path::PathBuf};

use xtask::Result;

use super::{Service, Target};

pub(crate) struct FileLock(PathBuf);

impl Service for FileLock {
    type Guard = File;

    async fn connect(target: &Target) -> Result<Self> {
        Ok(Self(PathBuf::from(target.address())))
    }

    async fn acquire(&self, lock: &str) -> Result<File> {
        let file = File::create(self.0.join(lock))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => {}
            Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
        }
        let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
        Ok(locked.await??)
    }

    async fn is_held(&self, _guard: &File) -> bool {
        true
    }

    async fn release(&self, guard: File) -> Result<()> {
        Ok(guard.unlock()?)
    }
}
