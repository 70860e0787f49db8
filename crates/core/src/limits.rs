//! Limits on the claims of untrusted files.
//!
//! A number from a file sizes an allocation, recursion or loop only after two comparisons: with the length of the file and
//! with these limits. The defaults fit all known models; raise them for a larger one.
//!
//! ```
//! use weighbridge_core::Limits;
//!
//! let limits = Limits { dimensions: 8, ..Limits::default() };
//! Limits::check("dimensions", "dimensions", 4, limits.dimensions)?;
//! let error = Limits::check("dimensions", "dimensions", 9, limits.dimensions).unwrap_err();
//! assert_eq!((error.message(), error.expected_text()), ("the number of dimensions exceeds the limit", Some("at most 8")));
//! # Ok::<(), weighbridge_core::Error>(())
//! ```

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::{Term, limit as limit_named};
use crate::source::{BlockCache, SourceRef};
use crate::text::counted;

/// Default of [`Limits::header_bytes`].
const HEADER_BYTES: u64 = 100_000_000;

/// Bounds on the cost of reading an index. `Limits::default()` is safe for untrusted files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a header that is read into memory at once (default 100 MB, as in the original reader of
    /// safetensors).
    pub header_bytes: u64,
    /// Maximum number of tensors in one checkpoint (default 4,000,000).
    pub tensors: u64,
    /// Maximum bytes of one tensor name, all parts together (default 1 MiB).
    pub name_bytes: u64,
    /// Maximum number of dimensions of one tensor (default 64).
    pub dimensions: u64,
    /// Maximum number of parts of a tensor path (default 4096).
    pub path_parts: u64,
    /// Maximum number of objects in a pickle (default 16,000,000: a million arrays). The memory budget is at least one byte
    /// for each; see [`Budget::new`].
    pub pickle_objects: u64,
    /// Maximum unpacked bytes of an HDF5 chunk, or of the weights in a `.keras` archive (default 256 MiB). All chunks that
    /// one row intersects may use half of it together.
    pub chunk_bytes: u64,
    /// Maximum ratio of unpacked to stored bytes, for formats without a bound of their own (default 1024): compressed buffers
    /// of Arrow, tables of Parquet, and unwritten elements of HDF5.
    pub expansion: u64,
    /// Maximum bytes of all tensors that repeat a few elements (default 1 GiB): `expand` of PyTorch, runs of Parquet, chunks
    /// and names in HDF5.
    pub repeated_bytes: u64,
    /// Budget of the outermost file; `None` until a reader starts one.
    pub budget: Option<Budget>,
    /// Cache of unpacked blocks, at most 512 MiB, shared by all clones. Each call of `default` creates a new one.
    pub blocks: BlockCache,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: HEADER_BYTES,
            tensors: 4_000_000,
            name_bytes: 1 << 20,
            dimensions: 64,
            path_parts: 4096,
            pickle_objects: 16_000_000,
            chunk_bytes: 256 << 20,
            expansion: 1024,
            repeated_bytes: 1 << 30,
            budget: None,
            blocks: BlockCache::default(),
        }
    }
}

impl Limits {
    /// Field names that [`Limits::set`] accepts.
    pub const NAMES: [&str; 9] = [
        "header_bytes",
        "tensors",
        "name_bytes",
        "dimensions",
        "path_parts",
        "pickle_objects",
        "chunk_bytes",
        "expansion",
        "repeated_bytes",
    ];

    /// Rejects a `claim` above `limit`. `what` is a plural (`tensors`), or a size: `bytes of header`, `bytes in a name`. The hint
    /// names `field` as the limit to raise; a `field` outside [`NAMES`](Self::NAMES) is fixed.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] when `claim > limit`.
    pub fn check(what: &str, field: &'static str, claim: u64, limit: u64) -> Result<()> {
        if !Self::NAMES.contains(&field) {
            return Self::compare(what, claim, limit).map_err(|e| e.hint("this limit is fixed"));
        }
        // Claims may grow while the file is read, so no number is known to be sufficient.
        Self::compare(what, claim, limit).map_err(|e| {
            e.hint(phrase![
                "if you trust the file, raise the limit ",
                Term::Limit { name: field, enough: None }
            ])
        })
    }

    /// Rejects a `claim` above `limit`, as [`check`](Self::check), where `limit` is at most 1 / `parts` of the field, and the
    /// claim is known as a whole. The hint states the sufficient value of the field.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] when `claim > limit`.
    pub fn check_part(what: &str, field: &'static str, claim: u64, limit: u64, parts: u64) -> Result<()> {
        Self::check_up_to(what, field, claim, limit, claim.saturating_mul(parts))
    }

    /// Rejects a `claim` above `limit`, as [`check`](Self::check), with the hint to raise the field to `enough`.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] when `claim > limit`.
    pub(crate) fn check_up_to(
        what: &str,
        field: &'static str,
        claim: u64,
        limit: u64,
        enough: u64,
    ) -> Result<()> {
        // The first hint of an error stays.
        Self::compare(what, claim, limit).map_err(|e| {
            e.hint(phrase![
                "if you trust the file, raise the limit ",
                Term::Limit { name: field, enough: Some(enough) }
            ])
        })
    }

    fn compare(what: &str, claim: u64, limit: u64) -> Result<()> {
        if claim <= limit {
            return Ok(());
        }
        let size = what.strip_prefix("bytes of ").or_else(|| what.strip_prefix("bytes in "));
        let Some(part) = size else {
            return Err(Error::limit("limit", format!("the number of {what} exceeds the limit"))
                .expected(format_args!("at most {limit}"))
                .found(claim));
        };
        let has_article = ["a ", "an ", "the ", "one "].iter().any(|article| part.starts_with(article));
        let article = if has_article { "" } else { "the " };
        Err(Error::limit("limit", format!("the size of {article}{part} exceeds the limit"))
            .expected(format_args!("at most {}", counted(limit, "byte", "bytes")))
            .found(counted(claim, "byte", "bytes")))
    }

    /// Returns the current budget, or a new one for a file of `len` bytes.
    pub fn budget_for(&self, len: u64) -> Budget {
        self.budget.clone().unwrap_or_else(|| Budget::new(len, self))
    }

    /// Returns the current budget, or a new one for the outermost file that contains `source`.
    pub fn budget_of(&self, source: &SourceRef) -> Budget {
        let mut outermost = source;
        while let Some(within) = outermost.within() {
            outermost = within.source;
        }
        self.budget_for(outermost.len())
    }

    /// Returns these limits with the budget of [`budget_of`](Self::budget_of), for readers that share it over several steps.
    #[must_use]
    pub fn with_budget_of(&self, source: &SourceRef) -> Self {
        Self { budget: Some(self.budget_of(source)), ..self.clone() }
    }

    /// Returns the difference of [`header_bytes`](Self::header_bytes) to its default. Bounds that depend on the file length
    /// rise by it.
    pub fn raised(&self) -> u64 {
        self.header_bytes.saturating_sub(HEADER_BYTES)
    }

    /// Returns the maximum unpacked bytes of a file of `len` bytes: [`expansion`](Self::expansion) times the file, at least
    /// [`repeated_bytes`](Self::repeated_bytes).
    pub fn expanded(&self, len: u64) -> u64 {
        len.saturating_mul(self.expansion).max(self.repeated_bytes)
    }

    /// Rejects `bytes` unpacked from a file of `len` bytes if they exceed [`expanded`](Self::expanded). `what` is a subject
    /// with its verb: `the table is`.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `inflated`.
    pub fn check_expansion(&self, what: &str, bytes: u64, len: u64) -> Result<()> {
        let most = self.expanded(len);
        if bytes <= most {
            return Ok(());
        }
        Err(Error::limit("inflated", format!("{what} too large for the size of the file"))
            .expected(format_args!("at most {most} bytes"))
            .found(bytes)
            .hint(phrase![
                "if you trust the file, raise the limit ",
                limit_named("expansion"),
                " or ",
                limit_named("repeated_bytes")
            ]))
    }

    /// Sets the limit named `field`, one of [`NAMES`](Self::NAMES).
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] for an unknown name, with the valid names.
    pub fn set(&mut self, field: &str, value: u64) -> Result<()> {
        let slot = match field {
            "header_bytes" => &mut self.header_bytes,
            "tensors" => &mut self.tensors,
            "name_bytes" => &mut self.name_bytes,
            "dimensions" => &mut self.dimensions,
            "path_parts" => &mut self.path_parts,
            "pickle_objects" => &mut self.pickle_objects,
            "chunk_bytes" => &mut self.chunk_bytes,
            "expansion" => &mut self.expansion,
            "repeated_bytes" => &mut self.repeated_bytes,
            _ => {
                return Err(Error::usage("unknown-limit", "unknown limit")
                    .found(field)
                    .hint(format_args!("the limits are {}", Limits::NAMES.join(", "))));
            }
        };
        *slot = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_sets_its_own_field() {
        let mut all = Limits::default();
        for (value, name) in (7..).zip(Limits::NAMES) {
            let mut one = Limits::default();
            one.set(name, value).unwrap();
            assert!(format!("{one:?}").contains(&format!("{name}: {value}")), "{name}");
            all.set(name, value).unwrap();
        }
        // The budget and the block cache have no name.
        let count = |limits: &Limits| {
            format!("{limits:#?}")
                .lines()
                .filter(|line| line.starts_with("    ") && !line.starts_with("     ") && line.contains(": "))
                .count()
        };
        assert_eq!(count(&all), Limits::NAMES.len() + 2);
        let error = all.set("colour", 1).unwrap_err();
        assert_eq!(error.code().as_str(), "unknown-limit");
        assert!(Limits::NAMES.iter().all(|name| error.hint_text().unwrap().contains(name)));
    }

    #[test]
    fn rejects_claims_above_the_limit() {
        Limits::check("tensors", "tensors", 7, 7).unwrap();
        let error = Limits::check("tensors", "tensors", 8, 7).unwrap_err();
        assert_eq!((error.code().as_str(), error.found_text()), ("limit", Some("8")));
        assert!(error.hint_text().unwrap().contains("`tensors`"));
        let error = Limits::check_part("bytes of header", "header_bytes", 960, 500, 1).unwrap_err();
        assert_eq!(error.message(), "the size of the header exceeds the limit");
        assert_eq!(
            (error.expected_text(), error.found_text()),
            (Some("at most 500 bytes"), Some("960 bytes"))
        );
        assert!(error.hint_text().unwrap().ends_with("`header_bytes` to 960"), "{error}");
        let error = Limits::check("bytes in a name", "none: this limit is fixed", 2, 1).unwrap_err();
        assert_eq!(error.message(), "the size of a name exceeds the limit");
        assert_eq!(
            (error.expected_text(), error.hint_text()),
            (Some("at most 1 byte"), Some("this limit is fixed"))
        );
        let error = Limits::check_part("rows", "tensors", 8, 7, 3).unwrap_err();
        assert!(error.hint_text().unwrap().ends_with("`tensors` to 24"), "{error}");
    }
}
