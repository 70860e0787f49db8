//! HDF5: links and storage in other files, Keras code, and opaque bytes.

use super::{AssumedType, Scan, begins_as_zip, config, embedded, found, keras, may_be_pickle, may_import};
use crate::pickles::MIN_INSTRUCTIONS;
use std::sync::Arc;
use weighbridge_core::checkpoint::Value;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_core::text::escape;
use weighbridge_core::{Budget, ErrorCode, HeldMemory};
use weighbridge_hdf5::{self as hdf5, Attributes, Dataset, ElementReader, Kind, RawText};
use weighbridge_io::source::{MemorySource, SourceRef, read_vec};
use weighbridge_pickle::{Options, inspect};

/// Attributes with the configuration of a Keras model.
const KERAS: &[&str] = &["model_config", "training_config", "layer_config"];
/// Codes of the HDF5 reader that have rules of their own.
const OWN_RULES: &[&str] = &["hdf5-external-link", "hdf5-external-storage", "hdf5-virtual", "hdf5-user-link"];

/// Scans an HDF5 file. `files` are the paths of datasets that a program loads as files.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where it cannot be read. Damage is a finding.
pub fn hdf5(source: &SourceRef, files: &[&[&str]], limits: &Limits, scan: &mut Scan) -> Result<()> {
    let contents = match hdf5::read(source, limits) {
        Ok(contents) => contents,
        Err(error) => return scan.push_error(error),
    };
    for problem in contents.problems {
        report(problem.error, &problem.path, scan)?;
    }
    for link in &contents.links {
        let text = format!("`{}` points to `{}`", shown(&link.path), escape(&link.target));
        scan.push("hdf5-soft-link", text);
    }
    let budget = limits.budget_of(source);
    let before = budget.work_left();
    let reader = ElementReader::new(before);
    let mut values = Values { label: source.label(), limits, reader, scan };
    values.attributes(&[], &contents.attributes);
    for item in contents.items {
        values.attributes(&item.path, &item.attributes);
        let Some(dataset) = item.dataset else { continue };
        let is_file = files.iter().any(|path| item.path.iter().map(String::as_str).eq(path.iter().copied()));
        if let Err(error) = values.dataset(&item.path, &dataset, is_file) {
            report(error, &item.path, values.scan)?;
        }
    }
    budget.spend_work(before.saturating_sub(values.reader.left()));
    Ok(())
}

/// Reports a part that cannot be read. Some errors have rules of their own, since HDF5 itself opens other files for them.
fn report(error: Error, path: &[String], scan: &mut Scan) -> Result<()> {
    let Some(&code) = OWN_RULES.iter().find(|code| **code == error.code()) else {
        return match error.kind() {
            weighbridge_core::Kind::Unsupported => {
                let words = error.found_text().map(|found| format!(" ({found})")).unwrap_or_default();
                let text = format!("{}: {}: {}{words}", error.code(), shown(path), error.message());
                scan.push("left-out", text);
                Ok(())
            }
            _ => scan.push_error(error.on_tensor(shown(path))),
        };
    };
    let target = error.found_text().map(|found| format!(": {found}")).unwrap_or_default();
    scan.list(found(code, format!("{}{target}", error.message())).on_tensor(shown(path)));
    Ok(())
}

/// Scanner of the values of a file.
struct Values<'a> {
    /// Display name of the file.
    label: &'a str,
    limits: &'a Limits,
    reader: ElementReader,
    scan: &'a mut Scan,
}

impl Values<'_> {
    fn dataset(&mut self, path: &[String], dataset: &Dataset, is_file: bool) -> Result<()> {
        let plugins: Vec<String> = dataset
            .filters()
            .filter(|(id, _)| *id > 255 && *id != hdf5::FILTER_LZF)
            .map(|(id, name)| format!("{id} {}", escape(name.unwrap_or_default())))
            .collect();
        if !plugins.is_empty() {
            let text = format!(
                "compressed with filter {}, for which HDF5 loads a plugin; the elements were not scanned",
                plugins.join(", ")
            );
            self.scan.list(found("hdf5-plugin-filter", text).on_tensor(shown(path)));
            return Ok(());
        }
        let assumed_type = match &dataset.kind {
            _ if is_file => AssumedType::File,
            Kind::Text => return self.texts(path, dataset),
            Kind::Opaque { .. } => AssumedType::Bytes,
            Kind::Numbers(dtype, _) => return self.numbers(path, dataset, *dtype),
            Kind::Other(words) => {
                let text =
                    format!("hdf5-type: {}: unsupported element type ({})", shown(path), escape(words));
                self.scan.push("left-out", text);
                return Ok(());
            }
        };
        let bytes = dataset.bytes()?;
        if !bytes.is_empty() {
            self.scan.look_into(shown(path), bytes, assumed_type);
        }
        Ok(())
    }

    fn numbers(&mut self, path: &[String], dataset: &Dataset, dtype: DType) -> Result<()> {
        let bytes = match self.opened(dataset) {
            // Objects are not stored as floats, and zeros compress so well that scanning all of them would not end.
            Err(error) if dtype.is_float() && error.kind() == weighbridge_core::Kind::Limit => return Ok(()),
            bytes => bytes?,
        };
        if matches!(dtype, DType::U8 | DType::I8) && may_be_pickle(&bytes)? {
            self.scan.look_into(shown(path), bytes, AssumedType::Numbers);
            return Ok(());
        }
        self.values(path, &bytes).map(|_| ())
    }

    /// Bytes of a dataset; the bytes unpacked to read the first of them are charged to the reader's budget.
    fn opened(&mut self, dataset: &Dataset) -> Result<SourceRef> {
        let bytes = dataset.bytes()?;
        if !bytes.is_empty() {
            self.reader.take(dataset.unpacked_at_once())?;
        }
        Ok(bytes)
    }

    /// Scans the bytes of all values of a dataset. Returns true where they are also a zip archive or a pickle.
    fn values(&mut self, path: &[String], bytes: &SourceRef) -> Result<bool> {
        if !may_be_pickle(bytes)? {
            return Ok(false);
        }
        if begins_as_zip(&read_vec(&**bytes, 0, bytes.len().min(4))?) {
            self.scan.look_into(shown(path), bytes.clone(), AssumedType::Numbers);
            return Ok(true);
        }
        Ok(self.imports(path, bytes))
    }

    /// Scans the bytes as a pickle, and returns true where they are a pickle with an import. A few values can be a pickle
    /// without an effect by chance.
    fn imports(&mut self, path: &[String], bytes: &SourceRef) -> bool {
        let own = pickled(bytes, self.limits).filter(|own| !own.imports.is_empty());
        let is_pickle = own.is_some();
        self.scan.absorb(own.unwrap_or_default(), Some(&shown(path)));
        is_pickle
    }

    /// Scans strings: libraries store objects as text, one in each string or one in all strings together, as an array of
    /// letters.
    fn texts(&mut self, path: &[String], dataset: &Dataset) -> Result<()> {
        let place = shown(path);
        let bytes = dataset.bytes()?;
        let mut joined = Joined::of(&self.limits.budget_for(bytes.len()));
        let Self { label, limits, reader, scan } = self;
        reader.each_text(dataset, &bytes, &mut |number, text| {
            let bytes: SourceRef = match text {
                RawText::Short { place, text } => {
                    joined.add(text);
                    let known = trim(place);
                    if !may_import(known) {
                        return Ok(());
                    }
                    Arc::new(MemorySource::new(*label, known.to_vec()))
                }
                RawText::Long(place) => {
                    joined.add_long(&place)?;
                    place
                }
            };
            if let Some(own) = pickled(&bytes, limits) {
                let which =
                    if dataset.shape.rank() == 0 { place.clone() } else { format!("{place}[{number}]") };
                scan.absorb(own, Some(&which));
            }
            Ok(())
        })?;
        if joined.texts < 2 {
            return Ok(());
        }
        // As stored, with the fill bytes, and without them.
        let is_filled = joined.bytes.len() as u64 == bytes.len();
        if dataset.has_fixed_texts() && !is_filled && self.values(path, &bytes)? {
            return Ok(());
        }
        if may_import(&joined.bytes) {
            self.joined(path, joined);
        }
        Ok(())
    }

    /// Scans the joined strings of a dataset.
    fn joined(&mut self, path: &[String], joined: Joined) {
        let len = joined.bytes.len();
        let bytes: SourceRef = Arc::new(MemorySource::new(self.label, joined.bytes));
        if self.imports(path, &bytes) || !joined.is_cut {
            return;
        }
        let report = inspect(&bytes, 0, &Options::with_limits(self.limits.clone()));
        let goes_on = report.error.is_some_and(|error| error.code() == ErrorCode::Truncated);
        if goes_on && report.instructions >= MIN_INSTRUCTIONS {
            let text = format!(
                "long-texts: {}: the joined strings may be a pickle; only the first {len} bytes were scanned",
                shown(path)
            );
            self.scan.push("left-out", text);
        }
    }

    fn attributes(&mut self, path: &[String], attributes: &Attributes) {
        for (name, value) in attributes {
            let place = format!("{}@{}", shown(path), escape(name));
            if KERAS.contains(&name.as_str()) {
                let mut own = Scan::default();
                match value {
                    Value::Text(text) => keras(text, self.limits, &mut own),
                    Value::Bytes(bytes) => keras(&String::from_utf8_lossy(bytes), self.limits, &mut own),
                    _ => own.push("keras-unread", "the configuration of the model is not a string"),
                }
                self.scan.absorb(own, Some(&place));
                continue;
            }
            self.attribute(&place, value);
        }
    }

    /// Scans an attribute: libraries store pickles in attributes, as text of an old protocol or as opaque bytes.
    fn attribute(&mut self, place: &str, value: &Value) {
        let (bytes, is_opaque) = match value {
            Value::Text(text) => {
                let mut own = Scan::default();
                let json = without_leading_blanks(text);
                if json.starts_with(['{', '[']) && config(json, self.limits, &mut own) {
                    return self.scan.absorb(own, Some(place));
                }
                (text.clone().into_bytes(), false)
            }
            Value::Bytes(bytes) => (bytes.clone(), true),
            Value::List(list) => {
                list.iter().for_each(|value| self.attribute(place, value));
                for bytes in joined(list).into_iter().filter(|bytes| may_import(bytes)) {
                    self.pickle(place, bytes);
                }
                return;
            }
            _ => return,
        };
        let is_empty = bytes.is_empty();
        if !self.pickle(place, bytes) && is_opaque && !is_empty {
            let mut own = Scan::default();
            own.push("opaque-bytes", "the attribute has opaque (untyped) bytes");
            self.scan.absorb(own, Some(place));
        }
    }

    /// Scans `bytes` as a pickle, and returns true where they are one.
    fn pickle(&mut self, place: &str, bytes: Vec<u8>) -> bool {
        let own = pickled(&(Arc::new(MemorySource::new(self.label, bytes)) as SourceRef), self.limits);
        let is_pickle = own.is_some();
        self.scan.absorb(own.unwrap_or_default(), Some(place));
        is_pickle
    }
}

/// Scan of bytes that are a pickle; `None` where they are not.
fn pickled(bytes: &SourceRef, limits: &Limits) -> Option<Scan> {
    let mut own = Scan::default();
    // A pickle that could not be scanned to its end is reported, too.
    (embedded(bytes, limits, &mut own) || !own.findings.is_empty()).then_some(own)
}

/// The text without leading blanks and byte order mark, which JSON readers skip.
fn without_leading_blanks(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{feff}')
}

/// The string without its fill bytes: NULs or blanks.
fn trim(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|&b| b != 0 && b != b' ').map_or(0, |at| at + 1)]
}

/// The concatenated strings of a dataset.
struct Joined {
    bytes: Vec<u8>,
    /// Memory of the bytes.
    held: HeldMemory,
    /// Most bytes: the rest of the memory is for scanning them.
    most: u64,
    texts: u64,
    /// True where bytes were cut off.
    is_cut: bool,
}

impl Joined {
    fn of(budget: &Budget) -> Self {
        let most = budget.memory_left() / 4;
        Self { bytes: Vec::new(), held: HeldMemory::of(budget), most, texts: 0, is_cut: false }
    }

    /// Bytes that fit in the remaining memory. Vectors double when they grow.
    fn available(&self) -> u64 {
        let left = self.held.budget().memory_left() / 4;
        if self.is_cut { 0 } else { left.min(self.most.saturating_sub(self.bytes.len() as u64)) }
    }

    fn add(&mut self, text: &[u8]) {
        let available = usize::try_from(self.available()).unwrap_or(usize::MAX);
        let part = &text[..text.len().min(available)];
        if self.held.take(2 * part.len() as u64).is_ok() {
            self.bytes.extend(part);
        }
        self.is_cut |= text.len() > available;
        self.texts += 1;
    }

    /// Adds a long string, as far as memory allows.
    fn add_long(&mut self, place: &SourceRef) -> Result<()> {
        let text = read_vec(&**place, 0, place.len().min(self.available()))?;
        let is_cut = place.len() > text.len() as u64;
        self.add(&text[..text.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1)]);
        self.is_cut |= is_cut;
        Ok(())
    }
}

/// Candidate byte strings of a list: an array of bytes is a list of numbers or of very short strings.
fn joined(list: &[Value]) -> Vec<Vec<u8>> {
    let mut leaves = Vec::new();
    let mut open: Vec<_> = list.iter().rev().collect();
    while let Some(value) = open.pop() {
        match value {
            Value::List(inner) => open.extend(inner.iter().rev()),
            value => leaves.push(value),
        }
    }
    let parts: Option<Vec<&[u8]>> = leaves
        .iter()
        .map(|value| match value {
            Value::Text(text) => Some(text.as_bytes()),
            Value::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
        .collect();
    if let Some(parts) = parts {
        return if parts.len() > 1 { vec![parts.concat()] } else { Vec::new() };
    }
    let numbers: Option<Vec<[u8; 8]>> = leaves
        .iter()
        .map(|value| match value {
            Value::U64(n) => Some(n.to_le_bytes()),
            Value::I64(n) => Some(n.to_le_bytes()),
            _ => None,
        })
        .collect();
    let Some(numbers) = numbers else { return Vec::new() };
    // Their width in the file is no longer known: try every width that all of them fit.
    let fits = |width: &usize| {
        numbers.iter().all(|n| n[*width..].iter().all(|&b| b == 0) || n[*width..].iter().all(|&b| b == 0xff))
    };
    let of = |width: usize| numbers.iter().flat_map(|n| &n[..width]).copied().collect();
    [1, 2, 4, 8].into_iter().filter(fits).map(of).collect()
}

/// Display form of a path.
fn shown(path: &[String]) -> String {
    escape(&format!("/{}", path.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joined texts leave memory for scanning them, however many there are.
    #[test]
    fn many_short_texts_leave_half_of_the_memory() {
        let budget = Budget::new(30_000, &Limits::default());
        let before = budget.memory_left();
        let mut joined = Joined::of(&budget);
        for _ in 0..10_000 {
            joined.add(&[b'a'; 4000]);
        }
        assert!(joined.is_cut && budget.memory_left() >= before / 2 - 8000, "{}", budget.memory_left());
    }

    #[test]
    fn joined_strings_are_bounded() {
        let budget = Budget::new(0, &Limits::default());
        let mut joined = Joined::of(&budget);
        joined.add(b"cos\n");
        let long = |len: usize| -> SourceRef {
            Arc::new(MemorySource::new("m", [b"a", &vec![0; len][..]].concat()))
        };
        joined.add_long(&long(10)).unwrap();
        assert_eq!((&joined.bytes[..], joined.texts, joined.is_cut), (&b"cos\na"[..], 2, false));
        joined.add_long(&long(4_000_000)).unwrap();
        assert_eq!((&joined.bytes[..], joined.texts, joined.is_cut), (&b"cos\naa"[..], 3, true));
        drop(joined);
        let mut joined = Joined::of(&budget);
        joined.add(&vec![b'a'; 3_000_000]);
        joined.add(&vec![b'b'; 1_000_001]);
        joined.add(b"bc");
        assert_eq!(
            (joined.bytes.len(), joined.bytes.last(), joined.texts, joined.is_cut),
            (4_000_000, Some(&b'b'), 3, true)
        );
    }

    #[test]
    fn leading_blanks_before_json_are_skipped() {
        for text in ["{}", " {}", "\u{feff}\n\t{}", "\r\n {}"] {
            assert_eq!(without_leading_blanks(text), "{}");
        }
        assert_eq!(without_leading_blanks("\u{a0}{}"), "\u{a0}{}");
    }

    #[test]
    fn arrays_of_bytes_are_joined() {
        let of = |numbers: &[i64]| {
            numbers
                .iter()
                .map(|&n| if n < 0 { Value::I64(n) } else { Value::U64(n.unsigned_abs()) })
                .collect::<Vec<_>>()
        };
        assert_eq!(joined(&of(&[128, 2, 46]))[0], [128, 2, 46]);
        assert_eq!(joined(&of(&[-128, 2, 46]))[0], [128, 2, 46]);
        assert_eq!(joined(&of(&[0x0280, 46]))[0], [0x80, 2, 46, 0]);
        assert_eq!(joined(&[Value::List(of(&[1, 2])), Value::List(of(&[3]))])[0], [1, 2, 3]);
        assert!(joined(&[Value::Bool(true)]).is_empty());
    }
}
