//! Structure of a file: names, shapes and offsets of values. Every length is checked against the rest of the file,
//! and no tensor values are read.

use super::wire::{ARRAY, BIN, MAP, Wire};
use super::{FileKind, Shape};
use std::collections::{BTreeMap, HashSet};
use weighbridge_core::checkpoint::{Name, Note, TensorPath};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{Cursor, SourceRef};

/// Shortest stat, in bytes: an empty name and a scalar.
const MIN_STAT_LEN: u64 = 1 + MIN_TENSOR_LEN;
/// Shortest entry of a model, in bytes: an empty address, a scalar, no stats.
const MIN_ENTRY_LEN: u64 = 1 + MIN_TENSOR_LEN + 5;
/// Shortest tensor, in bytes: a scalar.
const MIN_TENSOR_LEN: u64 = 1 + 5 + 2 + 4;
/// Shortest setting of an optimizer, in bytes: an empty key and a number.
const MIN_SETTING_LEN: u64 = 1 + 5;

/// Tensor whose values are at `offset`; their length follows from the shape.
#[derive(Debug)]
pub(super) struct RawTensor {
    pub(super) shape: Shape,
    pub(super) offset: u64,
}

/// Parameter: its value, and its stats in file order.
#[derive(Debug)]
pub(super) struct RawParameter {
    pub(super) value: RawTensor,
    pub(super) stats: Vec<(Name, RawTensor)>,
}

/// Parameter of a model, with the offset of its address.
#[derive(Debug)]
pub(super) struct RawEntry {
    pub(super) at: u64,
    pub(super) path: TensorPath,
    pub(super) parameter: RawParameter,
}

/// Settings of an optimizer in file order; floats as bits.
#[derive(Debug)]
pub(super) struct RawOptimizer {
    pub(super) uints: Vec<(Name, u32)>,
    pub(super) floats: Vec<(Name, u32)>,
}

/// Accepted oddities: code, whether a part of the file is omitted from the index, and the text, which is followed by
/// the count and the first offset.
const ODDITIES: &[(&str, bool, &str)] = &[
    ("long-headers", false, "lengths use longer headers than needed; saving writes the shortest ones"),
    ("trailing-ones", false, "trailing dimensions of 1 removed from shapes"),
    ("address-order", false, "parameters are not in the order of primitiv; saving sorts them"),
    ("batched-parameter", false, "values of parameters have a batch; primitiv refuses to load them"),
    ("name-clash", false, "addresses are both a parameter and a submodel, which primitiv does not allow"),
    ("duplicate-address", true, "duplicate addresses; the last one counts, as in primitiv"),
    ("duplicate-stat", true, "duplicate stats; the first one counts, as in primitiv"),
    ("duplicate-key", true, "duplicate settings; the first one counts, as in primitiv"),
];

/// Sequential reader of the objects of a file.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    wire: Wire,
    options: &'a OpenOptions,
    kind: FileKind,
    tensors: u64,
    /// For each code of [`ODDITIES`]: the count and the first offset.
    odd: BTreeMap<&'static str, (u64, u64)>,
}

impl<'a> Reader<'a> {
    /// Reads the header of `source`.
    pub(super) fn new(source: SourceRef, options: &'a OpenOptions) -> Result<Self> {
        let mut wire = Wire::new(Cursor::new(source, 0));
        let major = wire.uint("the version")?;
        let minor = wire.uint("the version")?;
        if (major, minor) != (0, 1) {
            return Err(Error::unsupported("wrong-version", "unknown version of the primitiv format")
                .at(0)
                .expected("0.1")
                .found(format_args!("{major}.{minor}")));
        }
        let at = wire.position();
        let number = wire.uint("the type of the file")?;
        let kind = FileKind::from_number(number).ok_or_else(|| {
            Error::unsupported("unknown-type", "unknown type of primitiv file")
                .at(at)
                .expected("0x0 shape, 0x100 tensor, 0x200 parameter, 0x300 model or 0x400 optimizer")
                .found(format_args!("0x{number:x}"))
        })?;
        Ok(Self { wire, options, kind, tensors: 0, odd: BTreeMap::new() })
    }

    /// Kind of file, from the header.
    pub(super) fn kind(&self) -> FileKind {
        self.kind
    }

    /// Source of the tensors.
    pub(super) fn source(&self) -> SourceRef {
        self.wire.cursor().source().clone()
    }

    /// Offset of the next byte to read.
    pub(super) fn position(&self) -> u64 {
        self.wire.position()
    }

    /// Fails unless the file has this kind.
    pub(super) fn expect(&self, kind: FileKind) -> Result<()> {
        if self.kind == kind {
            return Ok(());
        }
        Err(Error::mismatch("wrong-kind", "the file has a different primitiv type")
            .at(10)
            .expected(format_args!("0x{:x} {}", kind.number(), kind.word()))
            .found(format_args!("0x{:x} {}", self.kind.number(), self.kind.word())))
    }

    pub(super) fn shape(&mut self) -> Result<Shape> {
        let at = self.wire.position();
        let rank = self.wire.length(ARRAY, "the list of dimensions")?;
        let mut dims = [0; Shape::MAX_DIMS];
        let Some(dims) = usize::try_from(rank).ok().and_then(|rank| dims.get_mut(..rank)) else {
            return Err(Error::corrupt(
                "too-many-dims",
                "the shape has more dimensions than primitiv allows",
            )
            .at(at)
            .expected(format_args!("at most {}", Shape::MAX_DIMS))
            .found(rank));
        };
        Limits::check("dimensions", "dimensions", rank.into(), self.options.limits.dimensions)
            .map_err(|e| e.at(at))?;
        for dim in dims.iter_mut() {
            *dim = self.wire.uint("a dimension")?;
        }
        let batch = self.wire.uint("the batch")?;
        let shape = Shape::checked(dims, batch, Kind::Corrupt).map_err(|e| e.at(at))?;
        if shape.dims().len() < dims.len() {
            self.see("trailing-ones", at);
        }
        Ok(shape)
    }

    pub(super) fn tensor(&mut self) -> Result<RawTensor> {
        self.tensors += 1;
        Limits::check("tensors", "tensors", self.tensors, self.options.limits.tensors)
            .map_err(|e| e.at(self.wire.position()))?;
        let shape = self.shape()?;
        let at = self.wire.position();
        let len = u64::from(self.wire.length(BIN, "the values of a tensor")?);
        let expected = u64::from(shape.values()) * 4;
        if len != expected {
            return Err(Error::corrupt(
                "length-mismatch",
                "the length of the values does not match the shape",
            )
            .at(at)
            .expected(format_args!("{expected} bytes for {shape}"))
            .found(counted(len, "byte", "bytes")));
        }
        let offset = self.wire.position();
        self.wire.skip(len, "the values of a tensor")?;
        Ok(RawTensor { shape, offset })
    }

    /// Reads a parameter; the path names its tensors in errors.
    pub(super) fn parameter(&mut self, path: &TensorPath) -> Result<RawParameter> {
        let at = self.wire.position();
        let value = self.tensor()?;
        if value.shape.batch() > 1 {
            if !self.options.lenient {
                return Err(Error::corrupt(
                    "batched-parameter",
                    "the value of a parameter must not have a batch",
                )
                .at(at)
                .expected("batch 1")
                .found(format_args!("batch {}", value.shape.batch())));
            }
            self.see("batched-parameter", at);
        }
        let count = self.count("stats", MIN_STAT_LEN)?;
        let mut stats = Vec::new();
        let mut places = Vec::new();
        for _ in 0..count {
            places.push(self.wire.position());
            let name = self.wire.name("the name of a stat", self.options.limits.name_bytes)?;
            let tensor = self.tensor().map_err(|e| e.on_tensor(format_args!("{path}/{name}")))?;
            stats.push((name, tensor));
        }
        self.keep_first(&mut stats, &places, "duplicate-stat", "a stat")?;
        Ok(RawParameter { value, stats })
    }

    /// Reads the number of entries of a model; read each with [`entry`](Self::entry).
    pub(super) fn entries(&mut self) -> Result<u32> {
        self.count("parameters", MIN_ENTRY_LEN)
    }

    /// Reads one entry of a model.
    pub(super) fn entry(&mut self) -> Result<RawEntry> {
        let at = self.wire.position();
        let path = self.address()?;
        let parameter = self.parameter(&path).map_err(|e| e.on_tensor(&path))?;
        Ok(RawEntry { at, path, parameter })
    }

    /// Reads all entries of a model, without duplicates.
    pub(super) fn model(&mut self) -> Result<Vec<RawEntry>> {
        let count = self.entries()?;
        let mut entries: Vec<RawEntry> = Vec::new();
        for _ in 0..count {
            let entry = self.entry()?;
            if entries.last().is_some_and(|last| entry.path < last.path) {
                self.see("address-order", entry.at);
            }
            entries.push(entry);
        }
        self.settle(entries)
    }

    pub(super) fn address(&mut self) -> Result<TensorPath> {
        let at = self.wire.position();
        let count = u64::from(self.wire.length(ARRAY, "the address of a parameter")?);
        // A part takes at least one byte.
        self.wire.cursor().need(count, "the address of a parameter")?;
        if count == 0 {
            return Err(Error::corrupt("empty-address", "the address of a parameter is empty").at(at));
        }
        let limits = &self.options.limits;
        Limits::check("parts in an address", "path_parts", count, limits.path_parts).map_err(|e| e.at(at))?;
        let mut left = limits.name_bytes;
        let mut parts = Vec::new();
        for _ in 0..count {
            let part = self.wire.name("a part of an address", left)?;
            left = left.saturating_sub(part.as_bytes().len() as u64);
            parts.push(part);
        }
        Ok(TensorPath::new(parts))
    }

    /// Resolves duplicate addresses, and checks for addresses that are both a parameter and a submodel.
    ///
    /// In sorted order both are adjacent: only further continuations are between an address and its continuation.
    fn settle(&mut self, entries: Vec<RawEntry>) -> Result<Vec<RawEntry>> {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        if !entries.is_sorted_by(|a, b| a.path < b.path) {
            order.sort_by(|&a, &b| entries[a].path.cmp(&entries[b].path));
        }
        // For each replaced entry: the index of the later entry with the same address.
        let mut replaced_by: BTreeMap<usize, usize> = BTreeMap::new();
        let mut dropped: HashSet<usize> = HashSet::new();
        let mut kept: Option<usize> = None;
        for &place in &order {
            let entry = &entries[place];
            if let Some(earlier) = kept {
                let before = &entries[earlier];
                if before.path == entry.path {
                    self.broken("duplicate-address", "duplicate parameter name", entry.at, &entry.path)?;
                    replaced_by.insert(earlier, place);
                    dropped.insert(place);
                    continue;
                }
                if entry.path.starts_with(&before.path) {
                    let text = format!(
                        "the address continues `{}`, which is a parameter and not a submodel",
                        before.path
                    );
                    self.broken("name-clash", &text, entry.at, &entry.path)?;
                }
            }
            kept = Some(place);
        }
        if dropped.is_empty() {
            return Ok(entries);
        }
        // The first position is kept, with the last content.
        let mut entries: Vec<Option<RawEntry>> = entries.into_iter().map(Some).collect();
        for (&place, &by) in &replaced_by {
            entries[place] = entries[by].take();
        }
        let keep = |(place, entry): (usize, Option<RawEntry>)| (!dropped.contains(&place)).then_some(entry?);
        Ok(entries.into_iter().enumerate().filter_map(keep).collect())
    }

    pub(super) fn optimizer(&mut self) -> Result<RawOptimizer> {
        let uints = self.settings("a setting (uint32)", |wire| wire.uint("a setting (uint32)"))?;
        let floats = self.settings("a setting (float32)", |wire| wire.float_bits("a setting (float32)"))?;
        Ok(RawOptimizer { uints, floats })
    }

    fn settings(&mut self, what: &str, value: impl Fn(&mut Wire) -> Result<u32>) -> Result<Vec<(Name, u32)>> {
        let at = self.wire.position();
        let count = self.wire.length(MAP, "the settings")?;
        self.check_count(count, "settings", MIN_SETTING_LEN, at)?;
        let limits = &self.options.limits;
        Limits::check("settings", "tensors", count.into(), limits.tensors).map_err(|e| e.at(at))?;
        let mut settings = Vec::new();
        let mut places = Vec::new();
        for _ in 0..count {
            places.push(self.wire.position());
            let key = self.wire.name("the key of a setting", limits.name_bytes)?;
            settings.push((key, value(&mut self.wire)?));
        }
        self.keep_first(&mut settings, &places, "duplicate-key", what)?;
        Ok(settings)
    }

    /// Reads a count without checking it against the file, which may be truncated.
    pub(super) fn claimed_count(&mut self, what: &str) -> Result<u32> {
        self.wire.uint(what)
    }

    /// Reads the name of a stat.
    pub(super) fn stat_name(&mut self) -> Result<Name> {
        self.wire.name("the name of a stat", self.options.limits.name_bytes)
    }

    /// Current offset and number of remaining bytes.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.wire.position(), self.wire.cursor().remaining())
    }

    /// Reads a count of objects of at least `least` bytes each.
    fn count(&mut self, what: &str, least: u64) -> Result<u32> {
        let at = self.wire.position();
        let count = self.wire.uint(&format!("the number of {what}"))?;
        self.check_count(count, what, least, at)?;
        Ok(count)
    }

    /// Checks a count against the rest of the file.
    fn check_count(&self, count: u32, what: &str, least: u64, at: u64) -> Result<()> {
        let most = self.wire.cursor().remaining() / least;
        if u64::from(count) <= most {
            return Ok(());
        }
        let text = format!("the file is too short for {count} {what} ({least} bytes or more each)");
        Err(Error::corrupt("impossible-count", text)
            .at(at)
            .expected(format_args!("at most {most}"))
            .found(count)
            .hint("the file may be truncated; compare its length with the original"))
    }

    /// Removes items with duplicate names. `places` are the offsets of the names.
    fn keep_first<T>(
        &mut self,
        list: &mut Vec<(Name, T)>,
        places: &[u64],
        code: &'static str,
        what: &str,
    ) -> Result<()> {
        let mut seen = HashSet::with_capacity(list.len());
        let first: Vec<bool> = list.iter().map(|(name, _)| seen.insert(name)).collect();
        let mut at = places.iter();
        for ((name, _), &first) in list.iter().zip(&first) {
            let at = at.next().copied().unwrap_or(0);
            if !first {
                self.broken(code, &format!("duplicate name of {what}: `{name}`"), at, "")?;
            }
        }
        let mut first = first.into_iter();
        list.retain(|_| first.next() == Some(true));
        Ok(())
    }

    /// Reports a violation with a defined meaning: a note if reading is lenient, else an error.
    fn broken(
        &mut self,
        code: &'static str,
        text: &str,
        at: u64,
        tensor: impl std::fmt::Display,
    ) -> Result<()> {
        if self.options.lenient {
            self.see(code, at);
            return Ok(());
        }
        let error = Error::corrupt(code, text).at(at).hint(phrase![
            "primitiv silently uses one of them; ",
            Opt::Lenient,
            " does the same"
        ]);
        let tensor = tensor.to_string();
        Err(if tensor.is_empty() { error } else { error.on_tensor(tensor) })
    }

    /// Counts an oddity, by a code of [`ODDITIES`].
    pub(super) fn see(&mut self, code: &'static str, at: u64) {
        self.odd.entry(code).or_insert((0, at)).0 += 1;
    }

    /// Ends reading, and returns the oddities as notes.
    pub(super) fn finish(mut self) -> Result<Vec<Note>> {
        let at = self.wire.position();
        let rest = self.wire.cursor().remaining();
        if rest > 0 && !self.options.lenient {
            return Err(Error::corrupt("trailing-bytes", "bytes follow the end of the object")
                .at(at)
                .expected("the end of the file")
                .found(counted(rest, "byte", "bytes"))
                .hint(phrase![
                    "a count may be too small, or two files were joined; ",
                    Opt::Lenient,
                    " ignores the rest"
                ]));
        }
        if let Some(seen) = self.wire.long_headers() {
            self.odd.insert("long-headers", seen);
        }
        let mut notes = Vec::new();
        for &(code, omission, text) in ODDITIES {
            if let Some((count, first)) = self.odd.get(code) {
                let text = format!("{text} ({}, first at byte {first})", counted(*count, "time", "times"));
                notes.push(Note { omission, ..Note::new(code, text) });
            }
        }
        if rest > 0 {
            let rest = counted(rest, "byte", "bytes");
            let text = format!("{rest} after the end of the object ignored, from offset {at} on");
            notes.push(Note::omission("trailing-bytes", text));
        }
        Ok(notes)
    }
}
