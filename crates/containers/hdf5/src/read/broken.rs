//! Unreadable parts of a structure, one by one: a leaf of a tree, a block of a heap, a name.

use weighbridge_core::error::{Error, Kind, Result};

/// Parts that cannot be read are reported one by one up to this number, then counted.
pub(super) const REPORTED: usize = 16;

/// The errors of the parts of a structure. The other parts are read all the same.
#[derive(Default)]
pub(super) struct Broken {
    errors: Vec<Error>,
    more: u64,
}

impl Broken {
    /// Notes the error of a part that is damaged.
    ///
    /// # Errors
    /// The error, where it says anything else: that a limit is reached, that the file cannot be read.
    pub(super) fn part<T>(&mut self, part: Result<T>) -> Result<Option<T>> {
        match part {
            Ok(part) => return Ok(Some(part)),
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            Err(error) if self.errors.len() < REPORTED => self.errors.push(error),
            Err(_) => self.more += 1,
        }
        Ok(None)
    }

    /// Counts one more part whose error is the one before.
    pub(super) fn again(&mut self) {
        self.more += 1;
    }

    /// Fails with the first error, where there is one.
    ///
    /// # Errors
    /// This one.
    pub(super) fn none(self) -> Result<()> {
        self.errors.into_iter().next().map_or(Ok(()), Err)
    }

    /// All of them, the first first.
    pub(super) fn into_errors(self) -> Vec<Error> {
        let Self { mut errors, more } = self;
        if more > 0 {
            let text = format!("HDF5: {more} more parts or names of a group cannot be read");
            errors.push(Error::corrupt("hdf5-corrupt", text));
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_broken_parts_are_counted() {
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
