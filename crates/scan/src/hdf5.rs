//! HDF5: what leads to other files, what holds code, and bytes that may be anything.

use super::{AssumedType, Scan, begins_as_zip, config, embedded, found, keras, may_be_pickle, may_import};
use crate::pickles::FEWEST;
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

/// Attributes that hold the configuration of a Keras model.
const KERAS: &[&str] = &["model_config", "training_config", "layer_config"];
/// Problems of the listing that are findings of their own.
const OWN: &[&str] = &["hdf5-external-link", "hdf5-external-storage", "hdf5-virtual", "hdf5-user-link"];

/// Looks through an HDF5 file. `files` are the paths of datasets that a program loads as files.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where it cannot be read. Damage is a finding.
pub fn hdf5(source: &SourceRef, files: &[&[&str]], limits: &Limits, scan: &mut Scan) -> Result<()> {
    let contents = match hdf5::read(source, limits) {
        Ok(contents) => contents,
        Err(error) => return scan.push_error(error),
    };
    for problem in contents.problems {
        tell(problem.error, &problem.path, scan)?;
    }
    for link in &contents.links {
        let text = format!("{} leads to {}", shown(&link.path), escape(&link.target));
        scan.push("hdf5-soft-link", text);
    }
    let budget = limits.budget_of(source);
    let before = budget.work_left();
    let reader = ElementReader::new(before);
    let mut look = Look { label: source.label(), limits, reader, scan };
    look.attributes(&[], &contents.attributes);
    for item in contents.items {
        look.attributes(&item.path, &item.attributes);
        let Some(dataset) = item.dataset else { continue };
        let is_file = files.iter().any(|path| item.path.iter().map(String::as_str).eq(path.iter().copied()));
        if let Err(error) = look.dataset(&item.path, &dataset, is_file) {
            tell(error, &item.path, look.scan)?;
        }
    }
    budget.spend_work(before.saturating_sub(look.reader.left()));
    Ok(())
}

/// A part that cannot be read: some are findings of their own, since the library reads on elsewhere.
fn tell(error: Error, path: &[String], scan: &mut Scan) -> Result<()> {
    let Some(&code) = OWN.iter().find(|code| **code == error.code()) else {
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

/// A look at the values of a file.
struct Look<'a> {
    /// What the file is called.
    label: &'a str,
    limits: &'a Limits,
    reader: ElementReader,
    scan: &'a mut Scan,
}

impl Look<'_> {
    fn dataset(&mut self, path: &[String], dataset: &Dataset, is_file: bool) -> Result<()> {
        let plugins: Vec<String> = dataset
            .filters()
            .filter(|(id, _)| *id > 255 && *id != hdf5::FILTER_LZF)
            .map(|(id, name)| format!("{id} {}", escape(name.unwrap_or_default())))
            .collect();
        if !plugins.is_empty() {
            let text = format!("packed with filter {}, for which a plugin is loaded", plugins.join(", "));
            self.scan.list(found("hdf5-plugin-filter", text).on_tensor(shown(path)));
            return Ok(());
        }
        let assumed_type = match &dataset.kind {
            _ if is_file => AssumedType::File,
            Kind::Text => return self.texts(path, dataset),
            Kind::Opaque { .. } => AssumedType::Bytes,
            Kind::Numbers(dtype, _) => return self.numbers(path, dataset, *dtype),
            Kind::Other(words) => {
                let text = format!(
                    "hdf5-type: {}: elements of a kind that is not read ({})",
                    shown(path),
                    escape(words)
                );
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
        let bytes = match self.begun(dataset) {
            // Nobody keeps objects as floats, and zeros are packed so well that to look at all of them would not end.
            Err(error) if dtype.is_float() && error.kind() == weighbridge_core::Kind::Limit => return Ok(()),
            bytes => bytes?,
        };
        if matches!(dtype, DType::U8 | DType::I8) && may_be_pickle(&bytes)? {
            self.scan.look_into(shown(path), bytes, AssumedType::Numbers);
            return Ok(());
        }
        self.values(path, &bytes).map(|_| ())
    }

    /// The bytes of a dataset; what is unpacked to see the first of them is taken from the bound.
    fn begun(&mut self, dataset: &Dataset) -> Result<SourceRef> {
        let bytes = dataset.bytes()?;
        if !bytes.is_empty() {
            self.reader.take(dataset.unpacked_at_once())?;
        }
        Ok(bytes)
    }

    /// Looks at the bytes of all values of a dataset, and says whether they are something else as well.
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

    /// Takes in what a pickle that imports does, and says whether the bytes are one. By chance a few values are a pickle
    /// that does nothing.
    fn imports(&mut self, path: &[String], bytes: &SourceRef) -> bool {
        let own = pickled(bytes, self.limits).filter(|own| !own.imports.is_empty());
        let is_pickle = own.is_some();
        self.scan.absorb(own.unwrap_or_default(), Some(&shown(path)));
        is_pickle
    }

    /// Libraries keep objects as text, too: each text may be one, and all of them together, as arrays of letters are.
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
        // As they lie there, and without what fills their places.
        let is_filled = joined.bytes.len() as u64 == bytes.len();
        if dataset.has_fixed_texts() && !is_filled && self.values(path, &bytes)? {
            return Ok(());
        }
        if may_import(&joined.bytes) {
            self.joined(path, joined);
        }
        Ok(())
    }

    /// Looks at the texts of a dataset as one.
    fn joined(&mut self, path: &[String], joined: Joined) {
        let len = joined.bytes.len();
        let bytes: SourceRef = Arc::new(MemorySource::new(self.label, joined.bytes));
        if self.imports(path, &bytes) || !joined.is_cut {
            return;
        }
        let report = inspect(&bytes, 0, &Options::with_limits(self.limits.clone()));
        let goes_on = report.error.is_some_and(|error| error.code() == ErrorCode::Truncated);
        if goes_on && report.instructions >= FEWEST {
            let text = format!(
                "long-texts: {}: the texts together may be a pickle, of which {len} bytes were looked at",
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
                    _ => own.push("keras-unread", "the configuration of the model is no text"),
                }
                self.scan.absorb(own, Some(&place));
                continue;
            }
            self.attribute(&place, value);
        }
    }

    /// Libraries keep objects in attributes, too: as text of an old protocol, or as opaque bytes.
    fn attribute(&mut self, place: &str, value: &Value) {
        let (bytes, is_opaque) = match value {
            Value::Text(text) => {
                let mut own = Scan::default();
                let json = behind_blanks(text);
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
            own.push("opaque-bytes", "an attribute of bytes without a type");
            self.scan.absorb(own, Some(place));
        }
    }

    /// Takes in what `bytes` do where they are a pickle, and says whether they are.
    fn pickle(&mut self, place: &str, bytes: Vec<u8>) -> bool {
        let own = pickled(&(Arc::new(MemorySource::new(self.label, bytes)) as SourceRef), self.limits);
        let is_pickle = own.is_some();
        self.scan.absorb(own.unwrap_or_default(), Some(place));
        is_pickle
    }
}

/// What bytes do that are a pickle; `None` where they are none.
fn pickled(bytes: &SourceRef, limits: &Limits) -> Option<Scan> {
    let mut own = Scan::default();
    // What could not be followed is told, too.
    (embedded(bytes, limits, &mut own) || !own.findings.is_empty()).then_some(own)
}

/// Without blanks in front, which readers of JSON pass over, and without the mark of UTF-8, which some take for none.
fn behind_blanks(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{feff}')
}

/// Without what fills the place, whatever it is.
fn trim(text: &[u8]) -> &[u8] {
    &text[..text.iter().rposition(|&b| b != 0 && b != b' ').map_or(0, |at| at + 1)]
}

/// The texts of a dataset, one behind the other.
struct Joined {
    bytes: Vec<u8>,
    /// Their memory, and how many there may be: half of what was left is for what is found in them.
    held: HeldMemory,
    most: u64,
    texts: u64,
    /// True where there are more.
    is_cut: bool,
}

impl Joined {
    fn of(budget: &Budget) -> Self {
        let most = budget.memory_left() / 4;
        Self { bytes: Vec::new(), held: HeldMemory::of(budget), most, texts: 0, is_cut: false }
    }

    /// The bytes that there is memory for. Vectors double when they grow.
    fn room(&self) -> u64 {
        let left = self.held.budget().memory_left() / 4;
        if self.is_cut { 0 } else { left.min(self.most.saturating_sub(self.bytes.len() as u64)) }
    }

    fn add(&mut self, text: &[u8]) {
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX);
        let part = &text[..text.len().min(room)];
        if self.held.take(2 * part.len() as u64).is_ok() {
            self.bytes.extend(part);
        }
        self.is_cut |= text.len() > room;
        self.texts += 1;
    }

    /// Adds a long text, as far as there is room.
    fn add_long(&mut self, place: &SourceRef) -> Result<()> {
        let text = read_vec(&**place, 0, place.len().min(self.room()))?;
        let is_cut = place.len() > text.len() as u64;
        self.add(&text[..text.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1)]);
        self.is_cut |= is_cut;
        Ok(())
    }
}

/// What the bytes of a list may be: an array of bytes is a list of numbers, or of very short texts.
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
    // The width that they had in the file is not known any more: those that none of them is too long for.
    let fits = |width: &usize| {
        numbers.iter().all(|n| n[*width..].iter().all(|&b| b == 0) || n[*width..].iter().all(|&b| b == 0xff))
    };
    let of = |width: usize| numbers.iter().flat_map(|n| &n[..width]).copied().collect();
    [1, 2, 4, 8].into_iter().filter(fits).map(of).collect()
}

/// A path as people see it.
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
    fn texts_are_put_together_up_to_a_bound() {
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
    fn json_stands_behind_blanks() {
        for text in ["{}", " {}", "\u{feff}\n\t{}", "\r\n {}"] {
            assert_eq!(behind_blanks(text), "{}");
        }
        assert_eq!(behind_blanks("\u{a0}{}"), "\u{a0}{}");
    }

    #[test]
    fn an_array_of_bytes_is_joined() {
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
