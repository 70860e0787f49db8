//! The lock of the folder, held for as long as one version is written, or for many.

use super::CheckpointStore;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::error::Result;
use weighbridge_io::engine::{DiskLock, LOCK_NAME};

/// A lock that is held from one version to the next.
#[derive(Debug)]
pub(super) struct Held {
    state: Mutex<State>,
    /// Who holds it: a process that was forked meanwhile has a copy of all this, and not the right to write.
    process: u32,
}

#[derive(Debug)]
struct State {
    /// Nothing once it was released and nobody writes any more.
    lock: Option<DiskLock>,
    /// True while somebody writes: others, of the same holder, wait as those of another process.
    lent: bool,
    /// False once it was released.
    wanted: bool,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to write to the folder, until it is dropped.
#[derive(Debug)]
pub(super) enum Lock {
    /// For this work alone.
    #[expect(dead_code, reason = "held, not used")]
    Own(DiskLock),
    /// Lent by the store, which holds it on.
    Lent(Arc<Held>),
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
    /// The same store, which holds the lock of the folder from now on: also between the end of one version and the
    /// beginning of the next nobody else writes, also no process that is forked from this one. The lock is free when this
    /// and all clones of it are dropped, or after [`release`](Self::release).
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `locked`, where somebody writes to the folder; [`weighbridge_core::Kind::Io`].
    pub fn hold(&self) -> Result<Self> {
        let lock = self.disk.lock(&self.folder.join(LOCK_NAME))?;
        let state = State { lock: Some(lock), lent: false, wanted: true };
        let held = Held { state: Mutex::new(state), process: std::process::id() };
        Ok(Self { held: Some(Arc::new(held)), ..self.clone() })
    }

    /// Frees the lock that [`hold`](Self::hold) took: at once, or when the version that is being written ends. From then on
    /// the store takes the lock for each work by itself.
    pub fn release(&self) {
        if let Some(held) = &self.held {
            let mut state = held.state();
            state.wanted = false;
            if !state.lent {
                state.lock = None;
            }
        }
    }

    /// The lock for one work.
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
