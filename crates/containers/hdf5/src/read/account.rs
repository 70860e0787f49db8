//! What all datasets of a file come to together: each may be small, and the same bytes stand for many.

use super::chunks::Slot;
use std::sync::atomic::{AtomicU64, Ordering};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

/// Lists of chunks may take so many times the length of the file: an index has eight bytes at least for each,
/// and the chunk itself is there too.
const MOST_TIMES: u64 = 8;
/// What they may take however short the file is, in bytes.
const LEAST: u64 = 4 << 20;

/// What the datasets of a file took so far.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Bytes of elements, as they are when they are read, with those of chunks that no element of the dataset is in.
    elements: AtomicU64,
    /// Bytes of chunks that are not packed and not byte ranges.
    plain: AtomicU64,
    /// Bytes of lists of chunks.
    lists: AtomicU64,
    /// Bytes of indexes of chunks that were read.
    indexes: AtomicU64,
}

impl Account {
    /// Adds the elements of a dataset of `len` bytes in a file of `file` bytes: names for one dataset, datasets
    /// in one place, chunks that inflate and elements that were never written are all small in the file.
    pub(super) fn elements(&self, len: u64, file: u64, limits: &Limits) -> Result<()> {
        let all = add(&self.elements, len, limits.expanded(file));
        limits.check_expansion("the elements of all datasets together are", all, file)
    }

    /// Adds chunks of `len` bytes that are not packed, of a dataset of a file of `file` bytes. True where they may be kept when they
    /// are read: each has bytes of its own. Those that names share would be kept for each name.
    pub(super) fn take_plain(&self, len: u64, file: u64) -> bool {
        add(&self.plain, len, file) <= file
    }

    /// Adds the list of `count` chunks of a dataset in a file of `file` bytes.
    pub(super) fn list(&self, count: u64, file: u64) -> Result<()> {
        let most = file.saturating_mul(MOST_TIMES).saturating_add(LEAST);
        let all = add(&self.lists, count.saturating_mul(size_of::<Slot>() as u64), most);
        if all <= most {
            return Ok(());
        }
        Err(Error::limit("limit", "HDF5: the lists of chunks take more memory than the file allows")
            .expected(format_args!("at most {most} bytes"))
            .found(format_args!("{all} bytes"))
            .hint("write the file again with larger chunks, or each dataset once"))
    }

    /// Adds `len` bytes of an index in a file of `file` bytes: it is read anew for each name of a dataset, also where
    /// it lists no chunk.
    pub(super) fn index(&self, len: u64, file: u64) -> Result<()> {
        let most = file.saturating_mul(MOST_TIMES).saturating_add(LEAST);
        if add(&self.indexes, len, most) <= most {
            return Ok(());
        }
        Err(Error::limit("limit", "HDF5: the same indexes of chunks would be read too often")
            .expected(format_args!("at most {most} bytes, of all datasets together"))
            .hint("write the file again with larger chunks, or each dataset once"))
    }
}

/// The sum with `more`, which is kept where it is at most `most`.
fn add(sum: &AtomicU64, more: u64, most: u64) -> u64 {
    let add = |now: u64| now.checked_add(more).filter(|&all| all <= most);
    match sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
        Ok(before) | Err(before) => before.saturating_add(more),
    }
}
