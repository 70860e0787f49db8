//! Unversioned files: the configuration and the training statistics.

use super::{CONFIG, CheckpointStore, Expected, STATS, Staging};
use serde_json::{Value as Json, json};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::engine::replace_small;
use weighbridge_io::source::to_usize;

/// Report of appending statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsReport {
    /// Number of appended lines.
    pub lines: usize,
    /// Length of an incomplete last line that was cut off, in bytes. A crashed run leaves it, and BigGraph
    /// refuses to start with it.
    pub cut: u64,
}

impl StatsReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> Json {
        json!({"lines": self.lines, "cut": self.cut})
    }
}

impl CheckpointStore {
    /// Replaces the configuration, `config.json`, atomically. It belongs to the folder, not to a
    /// version; BigGraph writes it at the start of a run.
    ///
    /// Like [`Expected::of_config`] for an invalid configuration;
    /// [`weighbridge_core::Kind::Usage`], `locked`, if the folder is being written: the writer
    /// uses [`Staging::write_config`]; [`weighbridge_core::Kind::Io`].
    pub fn write_config(&self, bytes: &[u8]) -> Result<()> {
        let _lock = self.lock()?;
        self.write_config_locked(bytes)
    }

    /// Appends lines to the training statistics, `training_stats.json`. Cuts off an incomplete last line
    /// first.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`]: `bad-line`, for an empty line or one with a line break, and
    /// `locked`, if the folder is being written: the writer uses
    /// [`Staging::append_stats`]; [`weighbridge_core::Kind::Limit`] for a file too large to repair in
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
                return Err(Error::usage("bad-line", "an entry must be one line of JSON").found(line));
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

    /// Cuts off a last line without a line end. Returns its length in bytes.
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
        Limits::check("bytes of statistics", "header_bytes", len, Limits::default().header_bytes)?;
        let mut bytes = vec![0; to_usize(len)?];
        source.read_at(0, &mut bytes)?;
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        replace_small(&*self.disk, &self.folder, STATS, &bytes[..whole], self.sync())?;
        Ok((bytes.len() - whole) as u64)
    }
}

impl Staging {
    /// Replaces the configuration immediately, not at the commit: it belongs to the folder. The commit
    /// requires the files of the new configuration.
    ///
    /// # Errors
    /// Like [`CheckpointStore::write_config`], except for the lock, which is held.
    pub fn write_config(&self, bytes: &[u8]) -> Result<()> {
        self.store.write_config_locked(bytes)
    }

    /// Appends lines to the training statistics immediately, not at the commit, as BigGraph does.
    ///
    /// # Errors
    /// Like [`CheckpointStore::append_stats`], except for the lock, which is held.
    pub fn append_stats<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> Result<StatsReport> {
        self.store.append_stats_locked(lines)
    }
}
