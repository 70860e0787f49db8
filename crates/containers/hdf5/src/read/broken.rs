//! Errors of the unreadable parts of a structure: a leaf of a B-tree, a block of a heap, a name.

use weighbridge_core::error::{Error, Kind, Result};

/// Maximum number of unreadable parts that are reported one by one; more are counted.
pub(super) const REPORTED: usize = 16;

/// Errors of the parts of a structure whose other parts are read.
#[derive(Default)]
pub(super) struct Broken {
    errors: Vec<Error>,
    more: u64,
}

impl Broken {
    /// Collects the error of a damaged part; `None` for such a part.
    ///
    /// # Errors
    /// Errors of any other kind: an exceeded limit, an unreadable file.
    pub(super) fn part<T>(&mut self, part: Result<T>) -> Result<Option<T>> {
        match part {
            Ok(part) => return Ok(Some(part)),
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            Err(error) if self.errors.len() < REPORTED => self.errors.push(error),
            Err(_) => self.more += 1,
        }
        Ok(None)
    }

    /// Counts a part with the same error as the one before.
    pub(super) fn repeat(&mut self) {
        self.more += 1;
    }

    /// Fails with the first error, if any.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn into_result(self) -> Result<()> {
        self.errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns all errors, in order.
    pub(super) fn into_errors(self) -> Vec<Error> {
        let Self { mut errors, more } = self;
        if more > 0 {
            let text = format!("HDF5: {more} more parts or names of the group are unreadable");
            errors.push(Error::corrupt("hdf5-corrupt", text));
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_errors_beyond_the_reported_ones() {
        let mut broken = Broken::default();
        for part in 0..40 {
            let error = Error::corrupt("hdf5-corrupt", "bad").at(part);
            assert!(broken.part::<()>(Err(error)).unwrap().is_none());
        }
        let errors = broken.into_errors();
        assert_eq!(errors.len(), 17);
        assert!(errors[16].message().contains("24 more"), "{}", errors[16].message());
    }
}
