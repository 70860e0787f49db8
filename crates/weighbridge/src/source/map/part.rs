//! A range of bytes within a map.

use super::Map;
use crate::error::Result;
use crate::source::to_usize;
use std::ops::Range;
use std::sync::Arc;

/// A range that lies within a map, which others may share.
#[derive(Debug, Clone)]
pub(crate) struct MapPart {
    map: Arc<Map>,
    range: Range<usize>,
}

impl MapPart {
    /// `len` bytes from `from` on; `None` where they are not all within the map.
    pub(crate) fn of(map: Arc<Map>, from: u64, len: u64) -> Option<Self> {
        let end = to_usize(from.checked_add(len)?).ok()?;
        let range = to_usize(from).ok()?..end;
        (end <= map.bytes().len()).then_some(Self { map, range })
    }

    /// The bytes; zeros where they were lost.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map.bytes()[self.range.clone()]
    }

    /// As [`Map::intact`].
    ///
    /// # Errors
    /// As [`Map::intact`].
    pub(crate) fn intact(&self) -> Result<()> {
        self.map.intact()
    }
}
