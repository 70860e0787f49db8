//! Files of weights: blobs with their metadata.
//!
//! ```text
//! header      number of blobs, version; 64 bytes
//! metadata    sentinel, dtype, length, offset of the elements; 64 bytes, for each blob before its elements
//! ```

use crate::dtype::{self, Stored};
use crate::tree::Range;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use weighbridge_core::check::Outline;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::source::check_shard;
use weighbridge_core::text::{escape, path_text, quoted};
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_io::source::{FolderRef, SourceRef, check_range, read_vec};

/// Beginning of a name relative to the folder of the model.
const MODEL_FOLDER: &str = "@model_path/";
/// Bytes of the header, and of the metadata of a blob. Both are aligned to as many.
const ENTRY: u64 = 64;
/// Version of the file.
const VERSION: u32 = 2;
/// First number of the metadata of a blob.
const SENTINEL: u32 = 0xdead_beef;

/// Folder of a model, and the path of the model in it.
pub(crate) type Around<'a> = (&'a FolderRef, &'a Path);

/// Blob of a file.
#[derive(Debug, Clone)]
pub(crate) struct Blob {
    /// File.
    pub(crate) source: SourceRef,
    /// Dtype.
    pub(crate) stored: Stored,
    /// Elements.
    pub(crate) range: Range,
}

/// Opened files of weights.
pub(crate) struct Blobs<'a> {
    around: Option<Around<'a>>,
    files: HashMap<String, usize>,
    /// Files in the order of their first use.
    pub(crate) opened: Vec<SourceRef>,
    overlap: OverlapBudget,
    /// Blobs that were found. Tensors of one blob are tied.
    known: HashSet<(usize, u64)>,
}

impl<'a> Blobs<'a> {
    /// Creates an empty set of files.
    pub(crate) fn new(around: Option<Around<'a>>) -> Self {
        Self {
            around,
            files: HashMap::new(),
            opened: Vec::new(),
            overlap: OverlapBudget::default(),
            known: HashSet::new(),
        }
    }

    /// Rejects blobs that share bytes excessively.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`].
    pub(crate) fn check(&mut self, limits: &Limits) -> Result<()> {
        std::mem::take(&mut self.overlap).check("external-data", limits)
    }

    /// Finds the blob at an offset of a file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `file-missing`; [`weighbridge_core::Kind::Corrupt`] for a malformed file, and for a name
    /// outside of the folder.
    pub(crate) fn find(&mut self, name: &str, offset: u64) -> Result<Blob> {
        let number = match self.files.get(name) {
            Some(number) => *number,
            None => self.open(name)?,
        };
        let source = self.opened.get(number).ok_or_else(|| missing(name))?.clone();
        let blob = metadata(&source, offset).map_err(|error| error.in_file(source.label()))?;
        if self.known.insert((number, offset)) {
            let Range { at, len } = blob.range;
            self.overlap.add(number, (at, at.saturating_add(len)), len);
        }
        Ok(blob)
    }

    fn open(&mut self, name: &str) -> Result<usize> {
        let Some((folder, model)) = self.around else { return Err(missing(name)) };
        let relative = name.strip_prefix(MODEL_FOLDER).unwrap_or(name);
        let parent = model.parent().unwrap_or(Path::new(""));
        check_shard(folder, parent, relative)?;
        let path: PathBuf = parent.join(relative);
        let source = folder.open(&path)?.ok_or_else(|| missing(name).expected(path_text(&path)))?;
        check_header(&source).map_err(|error| error.in_file(source.label()))?;
        let number = self.opened.len();
        self.opened.push(source);
        self.files.insert(name.to_owned(), number);
        Ok(number)
    }
}

fn missing(name: &str) -> Error {
    Error::unsupported("file-missing", "the weights of the model are in another file, which is missing")
        .found(escape(name))
        .hint("copy the whole folder of the package, with its folder of weights")
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(number(bytes, at)) | u64::from(number(bytes, at + 4)) << 32
}

fn entry(source: &SourceRef, at: u64) -> Result<Vec<u8>> {
    check_range(&**source, at, ENTRY).map_err(|error| error.at(at))?;
    read_vec(&**source, at, ENTRY)
}

/// Returns the number of blobs.
fn check_header(source: &SourceRef) -> Result<u32> {
    let bytes = entry(source, 0)?;
    let version = number(&bytes, 4);
    if version != VERSION {
        return Err(Error::unsupported("format-version", "the version of the file of weights is not read")
            .at(4)
            .expected(VERSION)
            .found(version));
    }
    Ok(number(&bytes, 0))
}

fn metadata(source: &SourceRef, at: u64) -> Result<Blob> {
    let bytes = entry(source, at)?;
    let sentinel = number(&bytes, 0);
    if sentinel != SENTINEL {
        return Err(Error::corrupt("bad-magic", "the metadata of a blob does not begin with its sentinel")
            .at(at)
            .expected(format_args!("{SENTINEL:#010x}"))
            .found(format_args!("{sentinel:#010x}"))
            .hint("the offset may be wrong, or the file of weights may belong to another model"));
    }
    let kind = u64::from(number(&bytes, 4));
    let stored = dtype::of_blob(kind)
        .ok_or_else(|| Error::unsupported("dtype", "the dtype of a blob is unknown").at(at).found(kind))?;
    let range = Range { at: long(&bytes, 16), len: long(&bytes, 8) };
    check_range(&**source, range.at, range.len).map_err(|error| error.at(at))?;
    Ok(Blob { source: source.clone(), stored, range })
}

/// Returns true for the beginning of a file of weights with a blob.
pub(crate) fn is_file(source: &SourceRef) -> bool {
    check_header(source).is_ok() && source.len() >= 2 * ENTRY
}

/// Returns the ranges of a file of weights: its header, and the metadata and the elements of each blob.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for a malformed header.
pub(crate) fn outline(source: &SourceRef, outline: &mut Outline) -> Result<()> {
    let count = check_header(source)?;
    outline.header(0, ENTRY, "header");
    let mut at = ENTRY;
    for _ in 0..count {
        let Ok(blob) = metadata(source, at) else { break };
        outline.header(at, ENTRY, "metadata of a blob");
        let end = blob.range.at.saturating_add(blob.range.len);
        outline.hidden(blob.range.at, blob.range.len, "blob that no operation names");
        let next = end.div_ceil(ENTRY).saturating_mul(ENTRY);
        // Blobs follow each other. An earlier one would be read again.
        if next <= at {
            break;
        }
        at = next;
    }
    Ok(())
}

/// Returns the error for a blob that does not match its declaration.
pub(crate) fn differs(what: &str, expected: &str, found: &str) -> Error {
    Error::corrupt("dtype-differs", format!("the {what} of a blob differs from that of the program"))
        .expected(expected)
        .found(quoted(found))
}
