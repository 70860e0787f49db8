//! Folder lock, held while one version is written, or for several.

use super::CheckpointStore;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::error::Result;
use weighbridge_io::engine::{DiskLock, LOCK_NAME};

/// Lock held across versions.
#[derive(Debug)]
pub(super) struct SharedLock {
    state: Mutex<State>,
    /// Process that holds it: a forked process has a copy of this, but not the right to write.
    process: u32,
}

#[derive(Debug)]
struct State {
    /// `None` once released and no longer in use.
    lock: Option<DiskLock>,
    /// True while a version is written: other writers of the same holder wait like other processes.
    lent: bool,
    /// False once released.
    wanted: bool,
}

impl SharedLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Right to write to the folder, until dropped.
#[derive(Debug)]
pub(super) enum Lock {
    /// Acquired for a single operation.
    #[expect(dead_code, reason = "held, not used")]
    Own(DiskLock),
    /// Lent by the store, which keeps it.
    Lent(Arc<SharedLock>),
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Self::Lent(held) = self {
            let mut state = held.state();
            state.lent = false;
            if !state.wanted {
                state.lock = None;
            }
        }
    }
}

impl CheckpointStore {
    /// Returns the same store with the folder lock held from now on: between versions no other process can
    /// write, not even one forked from this process. The lock is released when the store
    /// and all its clones are dropped, or by [`release`](Self::release).
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, if the folder is being written; [`weighbridge_core::Kind::Io`].
    pub fn hold(&self) -> Result<Self> {
        let lock = self.disk.lock(&self.folder.join(LOCK_NAME))?;
        let state = State { lock: Some(lock), lent: false, wanted: true };
        let held = SharedLock { state: Mutex::new(state), process: std::process::id() };
        Ok(Self { held: Some(Arc::new(held)), ..self.clone() })
    }

    /// Releases the lock taken by [`hold`](Self::hold): at once, or when the version being written ends. Afterwards
    /// the store takes the lock for each operation.
    pub fn release(&self) {
        if let Some(held) = &self.held {
            let mut state = held.state();
            state.wanted = false;
            if !state.lent {
                state.lock = None;
            }
        }
    }

    /// Lock for one operation.
    pub(super) fn lock(&self) -> Result<Lock> {
        let path = self.folder.join(LOCK_NAME);
        if let Some(held) = &self.held {
            let mut state = held.state();
            if state.wanted {
                if held.process != std::process::id() || std::mem::replace(&mut state.lent, true) {
                    return Err(DiskLock::taken(&path));
                }
                return Ok(Lock::Lent(held.clone()));
            }
        }
        self.disk.lock(&path).map(Lock::Own)
    }
}
