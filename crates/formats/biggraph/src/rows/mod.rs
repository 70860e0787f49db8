//! Sources of generated rows: random ones, zeros, and rows of tables in another order.
//!
//! Each is a pure function of the offset: any offset, from any thread, with memory independent of
//! the size of the table. With [`TensorEntry::dense`](weighbridge_core::checkpoint::TensorEntry::dense) they are
//! tensors like all others.

mod gather;
mod global;
mod normal;
mod quantile;

pub(crate) use gather::GatherSource;
pub(crate) use global::add_global_embeddings;
pub(crate) use normal::{NormalSource, REPEAT_OF_UPSTREAM, Repeat, seed_of_table};

use weighbridge_core::error::Result;
use weighbridge_io::source::{Source, check_range};

/// Zeros: the optimizer state of rows that were never trained.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZeroSource {
    len: u64,
}

impl ZeroSource {
    /// Source of `len` zero bytes.
    pub(crate) fn new(len: u64) -> Self {
        Self { len }
    }
}

impl Source for ZeroSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        buffer.fill(0);
        Ok(())
    }
    fn label(&self) -> &str {
        "zeros"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_reads_beyond_the_end() {
        let zeros = ZeroSource::new(10);
        let mut buffer = [1; 4];
        zeros.read_at(6, &mut buffer).unwrap();
        assert_eq!(buffer, [0; 4]);
        assert_eq!(zeros.read_at(7, &mut buffer).unwrap_err().code().as_str(), "past-the-end");
    }
}
