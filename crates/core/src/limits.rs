//! What a file may ask for before it is refused.
//!
//! No allocation, recursion or loop is sized by a number from a file before that number was held
//! against the length of the file and against these limits. The defaults fit any honest model
//! known to us; an honest user with a larger one raises them.

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::{Term, limit as limit_named};
use crate::source::{BlockCache, SourceRef};

/// The default of [`Limits::header_bytes`].
const HEADER_BYTES: u64 = 100_000_000;

/// Bounds on what reading an index may cost. `Limits::default()` is safe for files of strangers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest header in bytes that is read into memory at once (default 100 MB, as in the
    /// original reader of safetensors).
    pub header_bytes: u64,
    /// Largest number of tensors in one checkpoint (default 4,000,000).
    pub tensors: u64,
    /// Longest name of one tensor in bytes, all parts together (default 1 MiB).
    pub name_bytes: u64,
    /// Largest number of dimensions of one tensor (default 64).
    pub dimensions: u64,
    /// Deepest path, in parts (default 4096).
    pub path_parts: u64,
    /// Largest number of objects that a pickle may make (default 16,000,000: a million arrays). They may take as many
    /// bytes of memory, or what the length of the file allows (docs/reliability.md), whichever is more.
    pub pickle_objects: u64,
    /// Longest chunk of HDF5, or weights of a `.keras` archive, in bytes unpacked, that is unpacked in memory (default 256 MiB); those that a
    /// row goes through may have half of it together.
    pub chunk_bytes: u64,
    /// How many times as long as its bytes in the file something may be where a format has no bound of
    /// its own: compressed buffers of Arrow, tables of Parquet, and elements of HDF5 that were never
    /// written (default 1024).
    pub expansion: u64,
    /// Bytes of all tensors together that may repeat a few elements without measure, as PyTorch's `expand`
    /// and the runs of Parquet do it, and chunks and names in HDF5 (default 1 GiB).
    pub repeated_bytes: u64,
    /// The budget of the outermost file; `None` until a reader begins one.
    pub budget: Option<Budget>,
    /// The cache of unpacked blocks, at most 512 MiB, which all clones share. Limits made by `default` have one of their own.
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
    /// The names of the fields, as [`Limits::set`] takes them.
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

    /// Refuses a `claim` above `limit`; `what` names the thing and `field` the limit to raise.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] when `claim > limit`.
    pub fn check(what: &str, field: &'static str, claim: u64, limit: u64) -> Result<()> {
        Self::held(what, claim, limit)
            .map_err(|e| e.hint(phrase!["if you trust the file, raise the limit ", limit_named(field)]))
    }

    /// As [`check`](Self::check), where `limit` is one of so many `parts` of the field, or more: the hint says how far the
    /// field is to be raised.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`] when `claim > limit`.
    pub fn check_part(what: &str, field: &'static str, claim: u64, limit: u64, parts: u64) -> Result<()> {
        Self::check_up_to(what, field, claim, limit, claim.saturating_mul(parts))
    }

    /// As [`check`](Self::check), where the field is to be raised to `enough`.
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
        Self::held(what, claim, limit).map_err(|e| {
            e.hint(phrase![
                "if you trust the file, raise the limit ",
                Term::Limit { name: field, enough: Some(enough) }
            ])
        })
    }

    fn held(what: &str, claim: u64, limit: u64) -> Result<()> {
        if claim <= limit {
            return Ok(());
        }
        Err(Error::limit("limit", format!("the file asks for more {what} than is allowed"))
            .expected(format_args!("at most {limit}"))
            .found(claim))
    }

    /// The budget that has begun, or a new one for a file of `len` bytes.
    pub fn budget_for(&self, len: u64) -> Budget {
        self.budget.clone().unwrap_or_else(|| Budget::new(len, self))
    }

    /// As [`budget_for`](Self::budget_for), for the outermost file that `source` is a part of, however it is packed there.
    pub fn budget_of(&self, source: &SourceRef) -> Budget {
        let mut outermost = source;
        while let Some(within) = outermost.within() {
            outermost = within.source;
        }
        self.budget_for(outermost.len())
    }

    /// These limits, with the budget that [`budget_of`](Self::budget_of) gives: what reads in several steps begins it once.
    #[must_use]
    pub fn with_budget_of(&self, source: &SourceRef) -> Self {
        Self { budget: Some(self.budget_of(source)), ..self.clone() }
    }

    /// By how much [`header_bytes`](Self::header_bytes) was raised: for bounds that go by the length of the file, which it may
    /// raise though they are lower than it is.
    pub fn raised(&self) -> u64 {
        self.header_bytes.saturating_sub(HEADER_BYTES)
    }

    /// How many bytes all that is unpacked of a file of `len` bytes may be together: [`expansion`](Self::expansion)
    /// times the file, and [`repeated_bytes`](Self::repeated_bytes) however short it is.
    pub fn expanded(&self, len: u64) -> u64 {
        len.saturating_mul(self.expansion).max(self.repeated_bytes)
    }

    /// Refuses a file of `len` bytes of which so many `bytes` are unpacked, as [`expanded`](Self::expanded) says;
    /// `what` says what they are.
    ///
    /// # Errors
    /// [`crate::Kind::Limit`], `inflated`.
    pub fn check_expansion(&self, what: &str, bytes: u64, len: u64) -> Result<()> {
        let most = self.expanded(len);
        if bytes <= most {
            return Ok(());
        }
        Err(Error::limit("inflated", format!("{what} far longer than the bytes of the file"))
            .expected(format_args!("at most {most} bytes"))
            .found(bytes)
            .hint(phrase![
                "if you trust the file, raise the limit ",
                limit_named("expansion"),
                " or ",
                limit_named("repeated_bytes")
            ]))
    }

    /// Sets the limit of that field name; for options of the command.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] for an unknown name, with the names there are.
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
                return Err(Error::usage("unknown-limit", "there is no such limit")
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

    /// Every name sets one field, its own, and no field is without a name.
    #[test]
    fn every_field_has_a_name() {
        let mut all = Limits::default();
        for (value, name) in (7..).zip(Limits::NAMES) {
            let mut one = Limits::default();
            one.set(name, value).unwrap();
            assert!(format!("{one:?}").contains(&format!("{name}: {value}")), "{name}");
            all.set(name, value).unwrap();
        }
        // And the budget, and the block cache, which have no name.
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
    fn a_claim_is_held_against_its_limit() {
        Limits::check("tensors", "tensors", 7, 7).unwrap();
        let error = Limits::check("tensors", "tensors", 8, 7).unwrap_err();
        assert_eq!((error.code().as_str(), error.found_text()), ("limit", Some("8")));
        assert!(error.hint_text().unwrap().contains("`tensors`"));
        let error = Limits::check_part("rows", "tensors", 8, 7, 3).unwrap_err();
        assert!(error.hint_text().unwrap().ends_with("`tensors` to 24"), "{error}");
    }
}
