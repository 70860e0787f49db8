//! Elements that were never written.

use crate::error::Result;
use crate::source::{Source, Within, check_range};

/// The same element again and again.
#[derive(Debug)]
pub(super) struct FillSource {
    label: String,
    /// One element.
    pattern: Vec<u8>,
    len: u64,
}

impl FillSource {
    /// `len` bytes of `pattern`, which has at least one byte.
    pub(super) fn new(label: &str, pattern: Vec<u8>, len: u64) -> Self {
        Self { label: label.to_owned(), pattern, len }
    }
}

/// Fills `buffer` with what stands at `offset` of an endless run of `pattern`.
pub(super) fn repeat(pattern: &[u8], offset: u64, buffer: &mut [u8]) {
    match pattern {
        [] => buffer.fill(0),
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => buffer.fill(*first),
        pattern => {
            let start = usize::try_from(offset % pattern.len() as u64).unwrap_or(0);
            let run = pattern.iter().cycle().skip(start);
            buffer.iter_mut().zip(run).for_each(|(to, from)| *to = *from);
        }
    }
}

impl Source for FillSource {
    fn len(&self) -> u64 {
        self.len
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        repeat(&self.pattern, offset, buffer);
        Ok(())
    }
    fn label(&self) -> &str {
        &self.label
    }
    fn made_of(&self) -> Option<Vec<Within<'_>>> {
        Some(Vec::new())
    }
}
