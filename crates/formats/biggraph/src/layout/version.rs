//! Versions and iterations: which pass over which edges made a version, and what becomes of it.

/// How a training run counts: an iteration is one pass over one chunk of one edge path.
///
/// Versions count iterations, not epochs: the iteration of index i makes version i + 1. So another
/// number of paths or chunks gives the versions of a folder another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// The number of epochs in all.
    pub epochs: u64,
    /// The number of edge paths.
    pub paths: u64,
    /// The number of chunks that each bucket is cut into.
    pub chunks: u64,
}

/// An iteration, as its place within the run. All are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The epoch.
    pub epoch: u64,
    /// The edge path.
    pub path: u64,
    /// The chunk.
    pub chunk: u64,
}

impl Schedule {
    /// The number of iterations in all, which is also the last version; `None` past 2^64.
    pub fn iterations(&self) -> Option<u64> {
        self.epochs.checked_mul(self.paths)?.checked_mul(self.chunks)
    }

    /// The index of an iteration; `None` where the schedule has no such path or chunk, or past 2^64.
    pub fn index(&self, place: Place) -> Option<u64> {
        if place.path >= self.paths || place.chunk >= self.chunks {
            return None;
        }
        let paths = place.epoch.checked_mul(self.paths)?.checked_add(place.path)?;
        paths.checked_mul(self.chunks)?.checked_add(place.chunk)
    }

    /// The iteration of that index; `None` where the schedule has no paths or no chunks. Whether it is
    /// past the last epoch is not asked.
    pub fn place(&self, index: u64) -> Option<Place> {
        let paths = index.checked_div(self.chunks)?;
        Some(Place {
            epoch: paths.checked_div(self.paths)?,
            path: paths % self.paths,
            chunk: index % self.chunks,
        })
    }

    /// The version that an iteration makes.
    pub fn version_after(&self, place: Place) -> Option<u64> {
        self.index(place)?.checked_add(1)
    }

    /// The iteration that made a version; `None` for version 0, which is what there was before.
    pub fn made_by(&self, version: u64) -> Option<Place> {
        self.place(version.checked_sub(1)?)
    }

    /// True where training goes on after this version.
    pub fn goes_on(&self, version: u64) -> bool {
        self.iterations().is_none_or(|all| version < all)
    }

    /// The epoch under whose number a snapshot of this version is made, where one is: the version is
    /// what an epoch begins with whose number is a multiple of `interval`. Without an interval, and
    /// for an interval of 0 (on which upstream fails), there is none.
    pub fn snapshot_of(&self, version: u64, interval: Option<u64>) -> Option<u64> {
        let interval = interval.filter(|&interval| interval > 0)?;
        self.made_by(version)?;
        let next = self.place(version)?;
        (next.path == 0 && next.chunk == 0 && next.epoch % interval == 0).then_some(next.epoch)
    }

    /// The version whose files are deleted once `version` is complete: the one before, unless it is
    /// kept for a snapshot, or is version 0.
    pub fn deleted_after(&self, version: u64, interval: Option<u64>) -> Option<u64> {
        let before = version.checked_sub(1).filter(|&before| before > 0)?;
        self.snapshot_of(before, interval).is_none().then_some(before)
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
            assert_eq!(schedule.index(place), Some(index));
            assert_eq!(schedule.version_after(place), Some(index + 1));
            assert_eq!(schedule.made_by(index + 1), Some(place));
            assert_eq!(schedule.goes_on(index), index < 30);
        }
        assert_eq!(schedule.made_by(0), None);
        assert_eq!(schedule.place(29), Some(Place { epoch: 2, path: 1, chunk: 4 }));
        assert_eq!(schedule.index(Place { epoch: 0, path: 2, chunk: 0 }), None);
        assert_eq!(schedule.index(Place { epoch: u64::MAX, path: 0, chunk: 0 }), None);
        assert_eq!(Schedule { epochs: 1, paths: 0, chunks: 1 }.place(3), None);
        assert_eq!(Schedule { epochs: u64::MAX, paths: 2, chunks: 1 }.iterations(), None);
    }

    #[test]
    fn snapshots_as_upstream_makes_them() {
        // Seen in a run with 2 chunks and interval 2: v4 is epoch_2, v8 is epoch_4; v5's step keeps v4.
        let schedule = Schedule { epochs: 4, paths: 1, chunks: 2 };
        let snapshots: Vec<_> =
            (0..9).filter_map(|v| schedule.snapshot_of(v, Some(2)).map(|e| (v, e))).collect();
        assert_eq!(snapshots, [(4, 2), (8, 4)]);
        let deleted: Vec<_> = (0..10).map(|v| schedule.deleted_after(v, Some(2))).collect();
        assert_eq!(deleted, [None, None, Some(1), Some(2), Some(3), None, Some(5), Some(6), Some(7), None]);
        assert_eq!(schedule.deleted_after(5, None), Some(4));
        assert_eq!(schedule.snapshot_of(4, Some(0)), None);
    }
}
