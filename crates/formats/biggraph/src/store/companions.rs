//! The files beside the versions: the configuration and the training statistics.

use super::{CONFIG, CheckpointStore, Expected, STATS, Staging};
use serde_json::{Value as Json, json};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::engine::replace_small;
use weighbridge_io::source::to_usize;

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
    /// As [`Expected::of_config`] where these bytes are no configuration that the store understands;
    /// [`weighbridge_core::Kind::Usage`], `locked`, where somebody writes to the folder: who does so
    /// himself has [`Staging::write_config`]; [`weighbridge_core::Kind::Io`].
    pub fn write_config(&self, bytes: &[u8]) -> Result<()> {
        let _lock = self.lock()?;
        self.write_config_locked(bytes)
    }

    /// Appends lines to the training statistics, `training_stats.json`. A torn last line is cut off
    /// first.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `bad-line`, for an empty line or one with a line break in it, and
    /// `locked`, where somebody writes to the folder: who does so himself has
    /// [`Staging::append_stats`]; [`weighbridge_core::Kind::Limit`] for a file that is too large to be mended in
    /// memory; [`weighbridge_core::Kind::Io`].
    pub fn append_stats<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> Result<StatsReport> {
        let _lock = self.lock()?;
        self.append_stats_locked(lines)
    }

    fn write_config_locked(&self, bytes: &[u8]) -> Result<()> {
        Expected::of_config(bytes)?;
        replace_small(&*self.disk, &self.folder, CONFIG, bytes, self.sync())
    }

    fn append_stats_locked<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> Result<StatsReport> {
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

impl Staging {
    /// Replaces the configuration at once, not at the commit: it belongs to the folder. The commit
    /// asks for the files that the new one wants.
    ///
    /// # Errors
    /// As [`CheckpointStore::write_config`], but for the lock, which is held.
    pub fn write_config(&self, bytes: &[u8]) -> Result<()> {
        self.store.write_config_locked(bytes)
    }

    /// Appends lines to the training statistics at once, not at the commit: as BigGraph does.
    ///
    /// # Errors
    /// As [`CheckpointStore::append_stats`], but for the lock, which is held.
    pub fn append_stats<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> Result<StatsReport> {
        self.store.append_stats_locked(lines)
    }
}
