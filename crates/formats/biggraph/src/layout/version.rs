//! Versions and iterations: the pass over the edges that made a version.

/// Iteration count of a training run: an iteration is one pass over one chunk of one edge path.
///
/// Versions count iterations, not epochs: the iteration of index i makes version i + 1. So another
/// number of paths or chunks changes the meaning of the versions of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Total number of epochs.
    pub epochs: u64,
    /// Number of edge paths.
    pub paths: u64,
    /// Number of chunks of each bucket.
    pub chunks: u64,
}

/// Position of an iteration within the run. All are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EpochPosition {
    /// Epoch.
    pub epoch: u64,
    /// Edge path.
    pub path: u64,
    /// Chunk.
    pub chunk: u64,
}

impl Schedule {
    /// Total number of iterations, which is also the last version; `None` past 2^64.
    pub(crate) fn iterations(&self) -> Option<u64> {
        self.epochs.checked_mul(self.paths)?.checked_mul(self.chunks)
    }

    /// Iteration of this index; `None` if the schedule has no paths or no chunks. Indexes past
    /// the last epoch are accepted.
    pub(crate) fn place(&self, index: u64) -> Option<EpochPosition> {
        let paths = index.checked_div(self.chunks)?;
        Some(EpochPosition {
            epoch: paths.checked_div(self.paths)?,
            path: paths % self.paths,
            chunk: index % self.chunks,
        })
    }

    /// Iteration that made a version; `None` for version 0, the state before training.
    pub(crate) fn made_by(&self, version: u64) -> Option<EpochPosition> {
        self.place(version.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_map_one_to_one_to_iterations() {
        let schedule = Schedule { epochs: 3, paths: 2, chunks: 5 };
        assert_eq!(schedule.iterations(), Some(30));
        for index in 0..40 {
            let place = schedule.place(index).unwrap();
            assert_eq!((place.epoch * 2 + place.path) * 5 + place.chunk, index);
            assert_eq!(schedule.made_by(index + 1), Some(place));
        }
        assert_eq!(schedule.made_by(0), None);
        assert_eq!(schedule.place(29), Some(EpochPosition { epoch: 2, path: 1, chunk: 4 }));
        assert_eq!(Schedule { epochs: 1, paths: 0, chunks: 1 }.place(3), None);
        assert_eq!(Schedule { epochs: u64::MAX, paths: 2, chunks: 1 }.iterations(), None);
    }
}
