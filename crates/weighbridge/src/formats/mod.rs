//! The formats. Each is a reader from bytes to an index and a layouter from an index to a plan.
//!
//! A format never opens, writes, syncs or renames a file; it knows nothing of threads or progress
//! bars, nor of other formats. To add one: a folder here with `mod.rs` (facts, a picture of the
//! bytes), `read.rs`, `write.rs` and `tests.rs`, and one line in [`ALL`].

pub mod npy;
pub mod npz;
pub mod primitiv;
pub mod safetensors;
mod unknown;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::plan::WritePlan;
use crate::source::{FileSource, SourceRef};
use crate::tensor::{DType, Order};
use std::path::Path;
use std::sync::Arc;

/// Every format, in the order in which they are asked whether a file is theirs.
pub static ALL: &[&dyn Format] = &[&primitiv::Primitiv, &safetensors::Safetensors, &npy::Npy, &npz::Npz];

/// Bytes of the beginning of a file that [`Format::recognises`] may look at.
pub const HEAD: usize = 4096;

/// A file format: what it is, how it is read, how it is laid out.
pub trait Format: Sync {
    /// What the format is and can hold.
    fn facts(&self) -> &'static Facts;

    /// True where a file of this beginning (at most [`HEAD`] bytes) is of this format, by content
    /// alone. Two formats never both say yes. Archives may look further into `source`.
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool;

    /// Reads the index. Headers and length prefixes only, never tensor data.
    ///
    /// # Errors
    /// Bad input gives [`crate::Kind::Corrupt`], [`crate::Kind::Unsupported`] or
    /// [`crate::Kind::Limit`] with the place.
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint>;

    /// Lays out a file that holds `checkpoint`; pure.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`] where the format cannot hold it at all.
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan>;
}

/// What a format is, as data.
#[derive(Debug)]
pub struct Facts {
    /// The name on the command line and in JSON.
    pub id: &'static str,
    /// One line for people.
    pub title: &'static str,
    /// File name extensions, without dot, and the kind that each one means.
    pub extensions: &'static [(&'static str, &'static str)],
    /// The element types that it can hold.
    pub dtypes: &'static [DType],
    /// The order of bytes that it can hold; `None` where it can hold both.
    pub order: Option<Order>,
}

/// How to open.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// The id of the format, where the caller knows better than the content tells.
    pub format: Option<String>,
    /// Read what can be read unambiguously though the file breaks a rule, and note it.
    pub lenient: bool,
    /// Bounds on what the file may ask for.
    pub limits: Limits,
}

/// How to lay out.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// The kind within the format, such as `parameter`; chosen from the content where `None`.
    pub kind: Option<String>,
}

/// The format of that id.
///
/// # Errors
/// [`crate::Kind::Usage`], with the ids there are.
pub fn by_id(id: &str) -> Result<&'static dyn Format> {
    ALL.iter().copied().find(|f| f.facts().id == id).ok_or_else(|| {
        let ids: Vec<_> = ALL.iter().map(|f| f.facts().id).collect();
        Error::usage("unknown-format", "there is no such format")
            .found(id)
            .hint(format_args!("the formats are {}", ids.join(", ")))
    })
}

/// The format and kind that the extension of `path` means.
///
/// # Errors
/// [`crate::Kind::Usage`], with the extensions there are.
pub fn by_extension(path: &Path) -> Result<(&'static dyn Format, &'static str)> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    for &format in ALL {
        for &(ours, kind) in format.facts().extensions {
            if ours == extension {
                return Ok((format, kind));
            }
        }
    }
    let known: Vec<_> = ALL.iter().flat_map(|f| f.facts().extensions).map(|(e, _)| format!(".{e}")).collect();
    Err(Error::usage("unknown-extension", "the name does not say which format to write")
        .in_file(path.display())
        .hint(format_args!("use --to FORMAT, or one of {}", known.join(" "))))
}

/// Opens the file at `path` with default options.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
    open_with(path, &OpenOptions::default())
}

/// Opens the file at `path`. The content tells the format, never the name.
///
/// # Errors
/// [`crate::Kind::Io`] when it cannot be read, and what the format's reader says.
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint> {
    open_source(Arc::new(FileSource::open(path)?), options)
}

/// Opens any source.
///
/// # Errors
/// As [`open_with`].
pub fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let label = source.label().to_owned();
    let open = || {
        let format = match &options.format {
            Some(id) => by_id(id)?,
            None => detect(&source)?,
        };
        format.open(source.clone(), options)
    };
    open().map_err(|e| if matches!(e.kind(), crate::Kind::Usage) { e } else { e.in_file(label) })
}

/// The format of a source, by its content.
///
/// # Errors
/// [`crate::Kind::Unsupported`], with a guess at what the file is instead.
pub fn detect(source: &SourceRef) -> Result<&'static dyn Format> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_at(0, &mut head)?;
    match ALL.iter().find(|f| f.recognises(&head, source)) {
        Some(&format) => Ok(format),
        None => Err(unknown::explain(&head, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_formats_claim_an_extension_or_id() {
        let mut extensions: Vec<_> = ALL.iter().flat_map(|f| f.facts().extensions).map(|e| e.0).collect();
        let mut ids: Vec<_> = ALL.iter().map(|f| f.facts().id).collect();
        for list in [&mut extensions, &mut ids] {
            list.sort_unstable();
            let count = list.len();
            list.dedup();
            assert_eq!(list.len(), count);
        }
    }

    #[test]
    fn unknown_names_say_what_there_is() {
        assert!(by_id("nope").err().unwrap().hint_text().unwrap().contains("primitiv"));
        assert!(by_extension(Path::new("x")).err().unwrap().hint_text().unwrap().contains(".model"));
    }
}
