//! Versions and iterations: which pass over which edges made a version, and what becomes of it.

/// How a training run counts: an iteration is one pass over one chunk of one edge path.
///
/// Versions count iterations, not epochs: the iteration of index i makes version i + 1. So another
/// number of paths or chunks gives the versions of a folder another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The number of epochs in all.
    pub epochs: u64,
    /// The number of edge paths.
    pub paths: u64,
    /// The number of chunks that each bucket is cut into.
    pub chunks: u64,
}

/// An iteration, as its place within the run. All are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EpochPosition {
    /// The epoch.
    pub epoch: u64,
    /// The edge path.
    pub path: u64,
    /// The chunk.
    pub chunk: u64,
}

impl Schedule {
    /// The number of iterations in all, which is also the last version; `None` past 2^64.
    pub(crate) fn iterations(&self) -> Option<u64> {
        self.epochs.checked_mul(self.paths)?.checked_mul(self.chunks)
    }

    /// The iteration of that index; `None` where the schedule has no paths or no chunks. Whether it is
    /// past the last epoch is not asked.
    pub(crate) fn place(&self, index: u64) -> Option<EpochPosition> {
        let paths = index.checked_div(self.chunks)?;
        Some(EpochPosition {
            epoch: paths.checked_div(self.paths)?,
            path: paths % self.paths,
            chunk: index % self.chunks,
        })
    }

    /// The iteration that made a version; `None` for version 0, which is what there was before.
    pub(crate) fn made_by(&self, version: u64) -> Option<EpochPosition> {
        self.place(version.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_places_are_one_to_one() {
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
