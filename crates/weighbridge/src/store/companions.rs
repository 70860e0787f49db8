//! The files beside the versions: the configuration and the training statistics.

use super::{CONFIG, CheckpointStore, Expected, STATS};
use crate::engine::replace_small;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::to_usize;
use serde_json::{Value as Json, json};

/// What appending statistics did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsReport {
    /// Lines that were appended.
    pub lines: usize,
    /// Bytes of a torn last line, of a run that died, that were cut off: BigGraph refuses to start
    /// with such a line.
    pub cut: u64,
}

impl StatsReport {
    /// The report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"lines": self.lines, "cut": self.cut})
    }
}

impl CheckpointStore {
    /// Replaces the configuration, `config.json`, in one step. It belongs to the folder, not to a
    /// version; BigGraph writes it at the start of a run.
    ///
    /// # Errors
    /// [`crate::Kind::Corrupt`] where these bytes are no configuration; [`crate::Kind::Io`].
    pub fn write_config(&self, bytes: &[u8]) -> Result<()> {
        Expected::of_config(bytes)?;
        replace_small(&*self.disk, &self.folder, CONFIG, bytes, self.sync())
    }

    /// Appends lines to the training statistics, `training_stats.json`. A torn last line is cut off
    /// first.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `bad-line`, for an empty line or one with a line break in it;
    /// [`crate::Kind::Limit`] for a file that is too large to be mended in memory;
    /// [`crate::Kind::Io`].
    pub fn append_stats<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> Result<StatsReport> {
        let mut text = String::new();
        let mut report = StatsReport { lines: 0, cut: 0 };
        for line in lines {
            if line.trim().is_empty() || line.contains(['\n', '\r']) {
                return Err(Error::usage("bad-line", "each entry is one line of JSON").found(line));
            }
            text.push_str(line);
            text.push('\n');
            report.lines += 1;
        }
        report.cut = self.mend_stats()?;
        let path = self.folder.join(STATS);
        self.disk.append(&path, text.as_bytes())?;
        if self.sync() {
            self.disk.sync_file(&path)?;
            self.disk.sync_folder(&self.folder)?;
        }
        Ok(report)
    }

    /// Cuts off a last line without an end. Returns its length in bytes.
    fn mend_stats(&self) -> Result<u64> {
        let Some(source) = self.source(STATS)? else { return Ok(0) };
        let len = source.len();
        let mut last = [b'\n'];
        if len > 0 {
            source.read_at(len - 1, &mut last)?;
        }
        if last == *b"\n" {
            return Ok(0);
        }
        Limits::check("statistics", "header_bytes", len, Limits::default().header_bytes)?;
        let mut bytes = vec![0; to_usize(len)?];
        source.read_at(0, &mut bytes)?;
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        replace_small(&*self.disk, &self.folder, STATS, &bytes[..whole], self.sync())?;
        Ok((bytes.len() - whole) as u64)
    }
}
