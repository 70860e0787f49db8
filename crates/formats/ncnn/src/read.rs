//! Reader: network and weights to checkpoint. Elements are not read.

use crate::network::{self, Form, Layer, Network};
use crate::weights::{self, Load, Scheme, Storage};
use crate::{MODEL, graph, types};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Distinct, Name, Note, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_core::text::{counted, first_and_more, quoted};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// Attribute with the scheme of a quantized tensor.
const QUANTIZED: &str = "quantized";
/// Attribute with the dtype of a tensor whose elements share bytes, such as `i4`. The tensor has its bytes as `u8`.
const PACKED_DTYPE: &str = "packed_dtype";
/// Attribute with the shape of a tensor whose elements share bytes.
const PACKED_SHAPE: &str = "packed_shape";
/// Scheme of indices into a table.
const LOOKUP: Scheme = Scheme { name: "lookup_table", axis: None };
/// Word before elements of 16 bits.
const HALF: u32 = 0x0130_6b47;
/// Word before elements of 16 bits with the exponent of 32 bits.
const BRAIN: u32 = 0x0134_8b83;
/// Word before integers of 8 bits.
const BYTES: u32 = 0x000d_4b38;
/// Word before elements of 32 bits, which are also those after zero.
const PLAIN: u32 = 0x0002_c056;
/// Elements of a table.
const TABLE: u64 = 256;
/// Bytes that the network of a file is recognized by.
const HEAD: u64 = 4096;
/// Maximum number of types that a note names.
const MAX_NAMED: usize = 5;
/// Memory of a tensor.
const ENTRY: u64 = 500;

/// Reads the index of `source`: a network or weights. `around` is its folder with its name in it; `salvaged` is the error of opening
/// a damaged file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset.
pub(crate) fn open(
    source: &SourceRef,
    around: Option<(&FolderRef, &Path)>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let head = read_vec(&**source, 0, source.len().min(HEAD))?;
    let is_network = network::form(&head).is_some();
    let beside = match around {
        Some((folder, name)) if is_network => match weights_of(name) {
            Some(weights) => folder.open(&weights)?,
            None => None,
        },
        Some((folder, name)) => network_beside(folder, name)?,
        None => None,
    };
    let (file, data) = if is_network {
        (source.clone(), beside)
    } else {
        let missing = || {
            Error::unsupported("file-missing", "the network of the weights is in another file")
                .in_file(source.label())
                .at(0)
                .expected("a .param file of the same name beside the weights")
                .hint("copy the .param file next to the .bin file")
        };
        (beside.ok_or_else(missing)?, Some(source.clone()))
    };
    let limits = options.limits.with_budget_of(&file);
    let budget = limits.budget_of(&file);
    let bytes = bytes_of(&file, &limits)?;
    let fail = |error: Error| error.in_file(file.label());
    let network = network::read(&bytes, &budget).map_err(fail)?;
    let all = loads(&network, &budget).map_err(fail)?;
    let mut checkpoint = Checkpoint::new("ncnn", MODEL, source.label());
    checkpoint.files.push(file.clone());
    if let Some(error) = salvaged {
        checkpoint.damage_mut(error);
    }
    Limits::check("tensors", "tensors", all.loads.len() as u64, limits.tensors)?;
    match data {
        Some(data) => {
            let walk = Walk::new(&all, &data)?;
            let fault = match walk.fault {
                Some(fault) if salvaged.is_none() => return Err(fault),
                fault => fault,
            };
            let tables = walk.places.iter().filter(|place| place.table.is_some()).count();
            let tensors = all.loads.len().saturating_add(tables) as u64;
            Limits::check("tensors", "tensors", tensors, limits.tensors)?;
            let mut reader = Reader {
                checkpoint,
                limits: &limits,
                names: Distinct::default(),
                quantized: None,
                packed: 0,
            };
            for (place, (layer, load)) in all.loads.iter().enumerate() {
                let path = path(layer, load);
                match (walk.places.get(place), &fault) {
                    (Some(found), _) => {
                        if found.table.is_some() {
                            budget.take_memory(ENTRY + 2 * layer.name.len() as u64)?;
                        }
                        reader.tensor(load, path, found, &data)?;
                    }
                    (None, Some(fault)) => reader.checkpoint.lose(&path, fault),
                    (None, None) => {}
                }
            }
            checkpoint = reader.finish();
            if fault.is_none() {
                checkpoint.notes.extend(guess(&network, "as the others fill the file"));
            }
            if fault.is_none() && walk.end < data.len() {
                checkpoint.notes.push(rest(&data, walk.end, options.lenient || salvaged.is_some())?);
            }
            // Weights without elements of a tensor are a file of the model, too.
            if data.is_empty() {
                checkpoint.files.push(data);
            }
        }
        None => {
            if let Some((layer, _)) = all.loads.first() {
                return Err(Error::unsupported(
                    "file-missing",
                    "the weights of the network are in another file",
                )
                .in_file(file.label())
                .at(layer.at)
                .expected("a .bin file of the same name beside the network")
                .hint("copy the .bin file next to the network, which is NAME.param or NAME.param.bin"));
            }
            checkpoint.notes.extend(guess(&network, "as there is no .bin file"));
        }
    }
    checkpoint.topology = Some(Arc::new(graph::topology(&network, bytes, &budget)?));
    Ok(checkpoint)
}

/// Reads a whole network.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`]; errors of reading the file.
pub(crate) fn bytes_of(source: &SourceRef, limits: &Limits) -> Result<Vec<u8>> {
    Limits::check("bytes of the network", "header_bytes", source.len(), limits.header_bytes)
        .map_err(|error| error.in_file(source.label()))?;
    read_vec(&**source, 0, source.len())
}

/// Returns the name of the weights of a network: `NAME.bin` for `NAME.param` and `NAME.param.bin`. A network `NAME.bin` has none.
fn weights_of(name: &Path) -> Option<PathBuf> {
    let stem = match name.extension() {
        Some(extension) if extension == "bin" => name.with_extension(""),
        _ => name.to_owned(),
    };
    Some(stem.with_extension("bin")).filter(|weights| weights != name)
}

/// Opens the network of the weights `NAME.bin`: `NAME.param` or `NAME.param.bin`.
///
/// # Errors
/// Errors of reading the file.
pub(crate) fn network_beside(folder: &FolderRef, name: &Path) -> Result<Option<SourceRef>> {
    if name.extension().is_none_or(|extension| extension != "bin") {
        return Ok(None);
    }
    for extension in ["param", "param.bin"] {
        if let Some(source) = folder.open(&name.with_extension(extension))? {
            let head = read_vec(&*source, 0, source.len().min(HEAD))?;
            if network::is_recognized(&head) {
                return Ok(Some(source));
            }
        }
    }
    Ok(None)
}

/// Returns the outline of a network, and an empty one of weights.
///
/// # Errors
/// Errors of reading the file.
pub(crate) fn outline(source: &SourceRef) -> Result<Outline> {
    let head = read_vec(&**source, 0, source.len().min(HEAD))?;
    match network::form(&head) {
        Some(Form::Text) => weighbridge_format::outline::text(source, "network"),
        // The reader refuses bytes after the last layer.
        Some(Form::Binary) => Ok(Outline::whole(source.len(), "network")),
        None => Ok(Outline::new(Gaps::Forbidden)),
    }
}

/// Adds the ranges of weights that are not in the index to their outline: words before the elements, and bytes of alignment.
///
/// # Errors
/// As [`open`].
pub(crate) fn unlisted(
    file: &SourceRef,
    data: &SourceRef,
    limits: &Limits,
    outline: &mut Outline,
) -> Result<()> {
    let limits = limits.with_budget_of(file);
    let budget = limits.budget_of(file);
    let network = network::read(&bytes_of(file, &limits)?, &budget)?;
    let all = loads(&network, &budget)?;
    for place in Walk::new(&all, data)?.places {
        if let Some(flag) = place.flag {
            outline.header(flag, 4, "storage of weights");
        }
        let end = place.at.saturating_add(place.len);
        outline.padding(end, place.end.saturating_sub(end), "alignment");
    }
    Ok(())
}

/// Weights of all layers, in order.
struct All<'a> {
    loads: Vec<(&'a Layer, Load)>,
    /// First layer of another library, with the number of weights before it.
    custom: Option<(&'a Layer, usize)>,
}

fn loads<'a>(network: &'a Network, budget: &Budget) -> Result<All<'a>> {
    let mut all = All { loads: Vec::new(), custom: None };
    for layer in &network.layers {
        match weights::of_layer(layer)? {
            Some(loads) => {
                for load in loads {
                    budget.take_memory(ENTRY + 2 * layer.name.len() as u64)?;
                    all.loads.push((layer, load));
                }
            }
            None if all.custom.is_none() => all.custom = Some((layer, all.loads.len())),
            None => {}
        }
    }
    Ok(all)
}

/// Returns the note on layers of other libraries, whose weights are guessed to be none.
fn guess(network: &Network, reason: &str) -> Option<Note> {
    let kinds = network.layers.iter().map(|layer| layer.kind.as_str()).filter(|kind| !types::is_known(kind));
    let kinds: BTreeSet<&str> = kinds.collect();
    let names = first_and_more(kinds.iter().map(|kind| format!("`{}`", quoted(kind))), MAX_NAMED);
    let text = match kinds.len() {
        0 => return None,
        1 => format!("{names} is not a layer of ncnn: it is read as if it had no weights, {reason}"),
        _ => format!("{names} are not layers of ncnn: they are read as if they had no weights, {reason}"),
    };
    Some(Note::new("weights-guessed", text))
}

fn path(layer: &Layer, load: &Load) -> TensorPath {
    let parts = load.name.iter().map(|part| Name::from(*part));
    TensorPath::new(std::iter::once(Name::from(layer.name.as_str())).chain(parts).collect::<Vec<_>>())
}

/// Place of weights in their file.
struct Place {
    /// Offset of the word before them.
    flag: Option<u64>,
    /// Offset of a table of floats before the elements, which are indices into it.
    table: Option<u64>,
    dtype: DType,
    /// Offset of the elements.
    at: u64,
    /// Bytes of the elements.
    len: u64,
    /// Offset after the alignment.
    end: u64,
}

impl Place {
    /// Finds `count` elements from an offset on. Unknown words precede a table, as in ncnn, unless `is_strict`.
    fn find(source: &SourceRef, start: u64, load: &Load, is_strict: bool) -> Result<Self> {
        let count = load.dims.iter().product::<u64>();
        let mut place =
            Self { flag: None, table: None, dtype: DType::F32, at: start, len: count * 4, end: 0 };
        if load.storage == Storage::Bytes {
            (place.dtype, place.len) = (DType::I8, count);
        }
        if load.storage == Storage::Word {
            within(source, start, 4)?;
            let word = read_vec(&**source, start, 4)?;
            let word = word.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            place.flag = Some(start);
            place.at = start + 4;
            (place.dtype, place.len) = match word {
                0 | PLAIN => (DType::F32, count * 4),
                HALF => (DType::F16, count * 2),
                BRAIN => (DType::BF16, count * 2),
                BYTES => (DType::I8, count),
                _ if is_strict => {
                    return Err(Error::corrupt("bad-magic", "the storage of weights is unknown")
                        .at(start)
                        .found(format_args!("{word:#010x}")));
                }
                _ => {
                    place.table = Some(place.at);
                    place.at += 4 * TABLE;
                    (DType::U8, count)
                }
            };
        }
        let padded = place.len.checked_next_multiple_of(4).unwrap_or(u64::MAX);
        within(source, start, padded.saturating_add(place.at - start))?;
        place.end = place.at + padded;
        Ok(place)
    }
}

/// Rejects bytes beyond the end of the weights.
fn within(source: &SourceRef, at: u64, len: u64) -> Result<()> {
    if at.checked_add(len).is_some_and(|end| end <= source.len()) {
        return Ok(());
    }
    Err(Error::corrupt("past-the-end", "the weights are shorter than those of the network")
        .at(at)
        .expected(format_args!("{len} bytes from here"))
        .found(format_args!("{} bytes", source.len().saturating_sub(at)))
        .hint("the copy or download may be incomplete, or the .param file may be that of another network"))
}

/// Places of all weights of a network in their file.
struct Walk {
    /// Places of the first weights.
    places: Vec<Place>,
    /// Error that ended the walk.
    fault: Option<Error>,
    /// Offset after the last weights.
    end: u64,
}

impl Walk {
    /// Finds the weights. Those of a layer of another library are unknown: it has none only if the others fill the file.
    ///
    /// # Errors
    /// Errors of reading the file.
    fn new(all: &All<'_>, source: &SourceRef) -> Result<Self> {
        let mut walk = Self { places: Vec::new(), fault: None, end: 0 };
        for (number, (layer, load)) in all.loads.iter().enumerate() {
            let is_strict = all.custom.is_some_and(|(_, first)| first <= number);
            match Place::find(source, walk.end, load, is_strict) {
                Ok(place) => {
                    walk.end = place.end;
                    walk.places.push(place);
                }
                Err(error) if error.kind() == Kind::Corrupt => {
                    walk.fault = Some(error.in_file(source.label()).on_tensor(path(layer, load)));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some((layer, first)) = all.custom
            && walk.places.len() >= first
            && (walk.fault.is_some() || walk.end < source.len())
        {
            walk.places.truncate(first);
            walk.end = walk.places.last().map_or(0, |place| place.end);
            let text = "the weights of custom layers are not read, and those after them cannot be found";
            walk.fault = Some(
                Error::unsupported("not-understood", text)
                    .in_file(source.label())
                    .at(walk.end)
                    .expected("layers of ncnn")
                    .found(weights::shown(layer)),
            );
        }
        Ok(walk)
    }
}

/// Returns a note on bytes after the last weights, or rejects them.
fn rest(source: &SourceRef, end: u64, is_lenient: bool) -> Result<Note> {
    if is_lenient {
        let bytes = counted(source.len().saturating_sub(end), "byte", "bytes");
        return Ok(Note::omission(
            "trailing-bytes",
            format!("{bytes} after the weights of the last layer skipped"),
        ));
    }
    Err(Error::corrupt("trailing-bytes", "bytes follow the weights of the last layer")
        .in_file(source.label())
        .at(end)
        .expected(format_args!("{end} bytes"))
        .found(format_args!("{} bytes", source.len()))
        .hint("the .param file may be that of another network"))
}

struct Reader<'a> {
    checkpoint: Checkpoint,
    limits: &'a Limits,
    names: Distinct,
    /// Number of quantized tensors, and the name of the first one.
    quantized: Option<(u64, String)>,
    packed: u64,
}

impl Reader<'_> {
    fn tensor(&mut self, load: &Load, path: TensorPath, place: &Place, source: &SourceRef) -> Result<()> {
        Limits::check("bytes in a name", "name_bytes", path.byte_len() as u64, self.limits.name_bytes)?;
        let (mut dtype, scheme) = match place.dtype {
            DType::I8 => (DType::I8, load.scheme),
            other => (other, place.table.map(|_| LOOKUP)),
        };
        let packed = load.packed.as_ref().filter(|_| dtype == DType::I8);
        if packed.is_some() {
            dtype = DType::U8;
        }
        let shape = Shape::new(load.dims.clone());
        let mut entry = TensorEntry::dense(path.clone(), dtype, shape, source, place.at, Encoding::ROW)?;
        entry.role = load.role.clone();
        if let Some(scheme) = scheme {
            entry.attributes.insert(QUANTIZED.to_owned(), Value::Text(scheme.name.to_owned()));
            if let Some(axis) = scheme.axis {
                entry.attributes.insert(Attributes::QUANTIZED_AXIS.to_owned(), Value::I64(axis));
            }
            self.quantized.get_or_insert_with(|| (0, path.to_text())).0 += 1;
        }
        if let Some((word, dims)) = packed {
            self.packed += 1;
            entry.attributes.insert(PACKED_DTYPE.to_owned(), Value::Text((*word).to_owned()));
            let dims = dims.iter().map(|&size| Value::U64(size)).collect();
            entry.attributes.insert(PACKED_SHAPE.to_owned(), Value::List(dims));
        }
        self.checkpoint.notes.extend(self.names.add(&mut entry));
        self.checkpoint.tensors.push(entry);
        if let Some(at) = place.table {
            let path = path.parts().iter().cloned().chain([Name::from("table")]).collect::<Vec<_>>();
            let path = TensorPath::new(path);
            let mut table =
                TensorEntry::dense(path, DType::F32, Shape::from([TABLE]), source, at, Encoding::ROW)?;
            table.role = load.role.clone();
            self.checkpoint.notes.extend(self.names.add(&mut table));
            self.checkpoint.tensors.push(table);
        }
        Ok(())
    }

    fn finish(mut self) -> Checkpoint {
        if let Some((count, first)) = &self.quantized {
            let tensors = counted(*count, "quantized tensor", "quantized tensors");
            let more = if *count == 1 { "" } else { ", ..." };
            let text = format!(
                "{tensors} (`{}`{more}) listed as integers, with `scale` (a divisor) or `table` nested under the name",
                quoted(first)
            );
            self.checkpoint.notes.push(Note::new("quantized-as-integers", text));
        }
        if self.packed > 0 {
            let text = "tensors of elements smaller than a byte are listed as their bytes; attributes have dtype and shape";
            self.checkpoint.notes.push(Note::new("packed-as-bytes", text));
        }
        self.checkpoint
    }
}
