//! External data: elements in other files, named relative to the model.

use crate::graph::Header;
use crate::read::without_file;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_io::source::{FolderRef, SourceRef, check_shard};

/// Place of external elements, as the model states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the file, relative to the model.
    pub(crate) location: String,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Length in bytes; up to the end of the file if it is not stated.
    pub(crate) length: Option<u64>,
}

impl Place {
    /// Parses the place of a tensor.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `external-data`, without a location or with a number that is not one.
    pub(crate) fn of(header: &Header) -> Result<Self> {
        let fault = |text: &str| Error::corrupt("external-data", text);
        let Some(location) = header.external("location").filter(|location| !location.is_empty()) else {
            return Err(fault("the elements are in another file, but the model does not name it"));
        };
        let number = |key: &str| -> Result<Option<u64>> {
            let Some(text) = header.external(key) else { return Ok(None) };
            text.parse().map(Some).map_err(|_| {
                fault("a number about external data is malformed")
                    .expected(format_args!("{key} as a decimal number"))
                    .found(escape_text(text))
            })
        };
        Ok(Self {
            location: location.to_owned(),
            offset: number("offset")?.unwrap_or(0),
            length: number("length")?,
        })
    }

    /// Returns the name of the file without a leading `./`.
    pub(crate) fn name(&self) -> &str {
        self.location.strip_prefix("./").unwrap_or(&self.location)
    }
}

/// Opened files of external data.
pub(crate) struct Files<'a> {
    model: &'a SourceRef,
    around: Option<(&'a FolderRef, &'a Path)>,
    opened: HashMap<String, (usize, SourceRef)>,
    overlap: OverlapBudget,
    spans: HashSet<(usize, u64, u64)>,
}

impl<'a> Files<'a> {
    /// Creates an empty set for a model, in the folder `around` under the name in it.
    pub(crate) fn new(model: &'a SourceRef, around: Option<(&'a FolderRef, &'a Path)>) -> Self {
        let opened = HashMap::new();
        Self { model, around, opened, overlap: OverlapBudget::default(), spans: HashSet::new() }
    }

    /// Returns the file and the offset of `len` bytes of elements.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`]: `external-missing`, `unsafe-name`, `past-the-end`, `length-mismatch`.
    pub(crate) fn find(&mut self, place: &Place, len: u64, limits: &Limits) -> Result<(SourceRef, u64)> {
        let (number, source) = self.file(place, limits)?;
        let rest = source.len().saturating_sub(place.offset);
        let fault = |code, text: &str| Error::corrupt(code, text).in_file(source.label()).at(place.offset);
        if let Some(stated) = place.length.filter(|&stated| stated != len) {
            return Err(fault(
                "length-mismatch",
                "the length of the external data does not match shape and dtype",
            )
            .expected(format_args!("{len} bytes"))
            .found(format_args!("{stated} bytes")));
        }
        if place.offset > source.len() || rest < len {
            return Err(fault("past-the-end", "the external data exceeds its file")
                .expected(format_args!("{len} bytes from here"))
                .found(format_args!("{rest} bytes"))
                .hint("the file of external data is incomplete, or belongs to another model"));
        }
        if place.length.is_none() && place.offset == 0 && rest != len {
            return Err(fault("length-mismatch", "the file of external data does not match shape and dtype")
                .expected(format_args!("{len} bytes"))
                .found(format_args!("{rest} bytes")));
        }
        // Tied tensors have the same range.
        let span = (number, place.offset, place.offset.saturating_add(len));
        if self.spans.insert(span) {
            self.overlap.add(number, (span.1, span.2), len);
        }
        Ok((source, place.offset))
    }

    fn file(&mut self, place: &Place, limits: &Limits) -> Result<(usize, SourceRef)> {
        let name = place.name();
        if let Some((number, source)) = self.opened.get(name) {
            return Ok((*number, source.clone()));
        }
        Limits::check("bytes in a name", "name_bytes", name.len() as u64, limits.name_bytes)?;
        let missing = |text: &str| {
            Error::corrupt("external-missing", text)
                .expected(format_args!("the file {} beside the model", escape_text(name)))
        };
        let Some((folder, model)) = self.around else {
            return Err(missing(
                "the elements are in another file, and the model was opened without its folder",
            )
            .hint("open the model by its path"));
        };
        let dir = model.parent().unwrap_or(Path::new(""));
        check_shard(folder, dir, name)?;
        let Some(source) = folder.open(&dir.join(name))? else {
            return Err(missing("the file with the elements of the tensor is missing").hint(without_file()));
        };
        if source.label() == self.model.label() {
            return Err(missing("the external data of the model is the model itself"));
        }
        let number = self.opened.len();
        self.opened.insert(name.to_owned(), (number, source.clone()));
        Ok((number, source))
    }

    /// Rejects tensors that share bytes excessively.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`].
    pub(crate) fn check(&mut self, limits: &Limits) -> Result<()> {
        std::mem::take(&mut self.overlap).check("external-data", limits)
    }

    /// Returns the files that no tensor of the index has: those of empty tensors.
    pub(crate) fn unused(&self, checkpoint: &Checkpoint) -> Vec<SourceRef> {
        let used: HashSet<&str> =
            checkpoint.tensors.iter().flat_map(|t| &t.extents).map(|extent| extent.source.label()).collect();
        let all = self.opened.values().map(|(_, source)| source);
        all.filter(|source| !used.contains(source.label())).cloned().collect()
    }
}
