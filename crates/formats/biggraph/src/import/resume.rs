//! Finished steps of an interrupted import.
//!
//! The system writes files to the disk in any order. After a power failure some may be missing or damaged, also such that
//! later steps depend on: the steps that make them are done again. All steps are deterministic, so that later files stay valid.

use super::{ChunkId, Steps, name};
use weighbridge_core::error::Result;
use weighbridge_io::source::read_vec;

/// Mark of the step that completes the dictionaries.
const DICTIONARY: &str = "dictionary";
/// Mark of the step that orders the names.
const ORDERED: &str = "ordered";
/// Mark of the step that reads all lines: the number of chunks of each file.
const PARSED: &str = "parsed";

impl Steps<'_> {
    /// Forgets the steps with missing files.
    pub(super) fn forget_lost(&self) -> Result<()> {
        let parts = (0..self.all_parts()).map(|part| format!("dictionary-{part}"));
        self.forget(DICTIONARY, parts)?;
        let orders =
            (0..self.schema.dictionaries).flat_map(|n| [format!("order-{n}"), format!("ids-of-{n}")]);
        self.forget(ORDERED, orders)?;
        for edges in self.work.names("edges-")? {
            if !self.is_parsed(edges.trim_start_matches("edges"))? {
                self.work.remove(&edges)?;
            }
        }
        for chunk in self.parsed()?.unwrap_or_default() {
            if !self.is_parsed(&name("", chunk))? {
                return self.work.remove(PARSED);
            }
        }
        Ok(())
    }

    /// Removes the mark of a step unless all its files are there.
    fn forget(&self, mark: &str, files: impl Iterator<Item = String>) -> Result<()> {
        if self.work.has(mark)? {
            for file in files {
                if !self.work.has(&file)? {
                    return self.work.remove(mark);
                }
            }
        }
        Ok(())
    }

    /// Returns true if the lines of a chunk need not be read again. `chunk` is the end of the names of its files.
    pub(super) fn is_parsed(&self, chunk: &str) -> Result<bool> {
        let has = |kind: &str| self.work.has(&format!("{kind}{chunk}"));
        Ok((has("edges")? || has("ids")?) && (self.work.has(DICTIONARY)? || has("names")?))
    }

    /// Returns all chunks in the order of the files, after all lines have been read.
    pub(super) fn parsed(&self) -> Result<Option<Vec<ChunkId>>> {
        if !self.work.has(PARSED)? {
            return Ok(None);
        }
        let source = self.work.open_file(PARSED)?;
        let bytes = read_vec(&*source, 0, source.len())?;
        let counts = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b));
        Ok(Some(
            counts.enumerate().flat_map(|(file, count)| (0..count).map(move |chunk| (file, chunk))).collect(),
        ))
    }

    /// Number of malformed lines that an interrupted import has skipped.
    pub(super) fn bad_before(&self) -> Result<u64> {
        let mut bad = 0;
        for name in self.work.names("edges-")? {
            let head = read_vec(&*self.work.open_file(&name)?, 8, 8)?;
            bad += head.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        }
        Ok(bad)
    }
}
