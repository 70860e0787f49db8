//! Reader: file to checkpoint. Elements of arrays are not read.

use crate::array::{self, Array, CPU, Content, Part, Storage};
use crate::{ARRAY_VERSION, GLUON, LIST, MODULE, SYMBOL, VERSION, symbol};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Name, Note, Origin, Role, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::tensor::Encoding;
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef};

/// Ending of the file of a symbol.
pub(crate) const ENDING: &str = "-symbol.json";
/// Prefix of the names of parameters in files of Module.
pub(crate) const ARG: &str = "arg:";
/// Prefix of the names of auxiliary states, such as running means.
pub(crate) const AUX: &str = "aux:";
/// Attribute of the data of a sparse array: its shape.
pub(crate) const SPARSE_SHAPE: &str = "sparse_shape";
/// Attribute of an array of another device than `cpu(0)`: type and number.
pub(crate) const DEVICE: &str = "device";
/// Endings of the names of running means and variances of Gluon.
const BUFFERS: [&str; 4] = ["running_mean", "running_var", "moving_mean", "moving_var"];

/// Reads the index of `source`. `around` is its folder with its name in it; `salvaged` is the error of opening a damaged file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], [`weighbridge_core::Kind::Unsupported`] or [`weighbridge_core::Kind::Limit`], with the offset.
pub(crate) fn open(
    source: &SourceRef,
    around: Option<(&FolderRef, &Path)>,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let limits = options.limits.with_budget_of(source);
    let budget = limits.budget_of(source);
    let head = weighbridge_io::source::read_vec(&**source, 0, source.len().min(512))?;
    if symbol::recognises(&head) {
        let mut checkpoint = Checkpoint::new("mxnet", SYMBOL, source.label());
        checkpoint.topology = Some(Arc::new(symbol::read(source, &limits, &budget, &HashSet::new())?));
        checkpoint.files.push(source.clone());
        return Ok(checkpoint);
    }
    let mut content = array::read(source, &limits, salvaged.is_some())?;
    let lost_names = content.fault.is_some() && content.names.len() != content.arrays.len();
    if lost_names {
        // Names are at the end: without all of them, none is certain.
        content.names.clear();
    }
    let mut checkpoint = Checkpoint::new("mxnet", kind(&content), source.label());
    if lost_names && !content.arrays.is_empty() {
        let text = "the names of the arrays are lost; the arrays have their numbers";
        checkpoint.notes.push(Note::new("names-missing", text));
    }
    if let Some(error) = salvaged {
        let damage = checkpoint.damage_mut(content.fault.as_ref().unwrap_or(error));
        let count = if lost_names { content.count } else { content.arrays.len() as u64 };
        damage.expected = Some(count).filter(|count| *count < source.len());
    } else if content.end < source.len() {
        let error = array::trailing(&content, source);
        if !options.lenient {
            return Err(error);
        }
        let text = format!("{}, ignored", error.message());
        checkpoint.notes.push(Note::omission("trailing-bytes", text));
    }
    if checkpoint.kind != GLUON {
        // A file of another format, converted back, gets its prefixes again.
        checkpoint.origin = Some(Origin { format: "mxnet".to_owned(), kind: checkpoint.kind.to_owned() });
    }
    fill(&mut checkpoint, &content, lost_names, source, &limits)?;
    if let Some((folder, name)) = around
        && let Some(symbol) = symbol_of(folder, name)?
    {
        attach(&mut checkpoint, symbol, &limits, &budget)?;
    }
    Ok(checkpoint)
}

/// Returns the kind of a file by its names.
fn kind(content: &Content) -> &'static str {
    let is_prefixed = |name: &Vec<u8>| name.starts_with(ARG.as_bytes()) || name.starts_with(AUX.as_bytes());
    if content.names.is_empty() {
        return if content.arrays.is_empty() { GLUON } else { LIST };
    }
    let plain: HashSet<&[u8]> = content.names.iter().filter_map(|name| name.get(ARG.len()..)).collect();
    let is_module = content.names.iter().all(is_prefixed) && plain.len() == content.names.len();
    if is_module { MODULE } else { GLUON }
}

fn fill(
    checkpoint: &mut Checkpoint,
    content: &Content,
    lost_names: bool,
    source: &SourceRef,
    limits: &Limits,
) -> Result<()> {
    let version = content.arrays.first().map(|array| array.version);
    if let Some(version) = version.filter(|version| *version != VERSION) {
        checkpoint.metadata.set(ARRAY_VERSION, Value::U64(version.into()));
    }
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    let (mut sparse, mut duplicates) = (0u64, 0u64);
    for (place, array) in content.arrays.iter().enumerate() {
        let full = content.names.get(place).cloned().unwrap_or_else(|| place.to_string().into_bytes());
        let is_module = checkpoint.kind == MODULE;
        let role = match is_module {
            true if full.starts_with(AUX.as_bytes()) => Role::Buffer,
            false if is_buffer(&full) => Role::Buffer,
            _ => Role::Parameter,
        };
        let mut name = if is_module { full.get(ARG.len()..).unwrap_or_default().to_vec() } else { full };
        let base = name.clone();
        while !known.insert(name.clone()) {
            duplicates += 1;
            name = [base.as_slice(), format!("~{}", duplicates + 1).as_bytes()].concat();
        }
        if name.len() > base.len() {
            let text = format!(
                "duplicate name; the second array is named {}",
                escape_text(&Name::new(&name).to_text())
            );
            checkpoint.notes.push(Note::new("name-collision", text));
        }
        let path = path(&name);
        let parts = path.parts().len() as u64;
        Limits::check("parts in a name", "path_parts", parts, limits.path_parts)
            .map_err(|e| e.at(array.at))?;
        let Some((data, others)) = array.parts.split_first() else {
            checkpoint
                .notes
                .push(Note::skipped_tensor(path.to_text(), "an array without shape and elements"));
            continue;
        };
        let mut entry = match array.storage {
            Storage::Dense => tensor(path.clone(), data, source)?,
            _ => {
                sparse += 1;
                sparse_data(array, &path, data, source)?
            }
        };
        entry.role = role.clone();
        entry.guessed = lost_names;
        if array.device != CPU {
            let (kind, number) = array.device;
            let device = Value::List(vec![Value::I64(kind.into()), Value::I64(number.into())]);
            entry.attributes.insert(DEVICE.to_owned(), device);
        }
        if Some(array.version) != version {
            entry.attributes.insert(ARRAY_VERSION.to_owned(), Value::U64(array.version.into()));
        }
        checkpoint.tensors.push(entry);
        for (part, name) in others.iter().zip(array.storage.parts()) {
            let mut entry = tensor(below(&path, name), part, source)?;
            (entry.role, entry.guessed) = (Role::Buffer, lost_names);
            checkpoint.tensors.push(entry);
        }
    }
    if sparse > 0 {
        let count = counted(sparse, "sparse array is", "sparse arrays are");
        checkpoint.notes.push(Note::new("sparse-as-parts", format!("{count} listed as data and indices")));
    }
    Ok(())
}

/// Returns true for a name that Gluon gives to running means and variances.
pub(crate) fn is_buffer(name: &[u8]) -> bool {
    BUFFERS.iter().any(|ending| name.ends_with(ending.as_bytes()))
}

/// Returns the path of a name: its parts between dots.
fn path(name: &[u8]) -> TensorPath {
    match std::str::from_utf8(name) {
        Ok(text) => TensorPath::from_dotted(text),
        Err(_) => TensorPath::new([Name::new(name)]),
    }
}

/// Returns the path of a part of a sparse array.
pub(crate) fn below(path: &TensorPath, part: &str) -> TensorPath {
    TensorPath::new(path.parts().iter().cloned().chain([Name::from(part)]).collect::<Vec<_>>())
}

fn tensor(path: TensorPath, part: &Part, source: &SourceRef) -> Result<TensorEntry> {
    TensorEntry::dense(path, part.dtype, part.shape.clone(), source, part.at, Encoding::ROW)
}

fn sparse_data(array: &Array, path: &TensorPath, data: &Part, source: &SourceRef) -> Result<TensorEntry> {
    let mut entry = tensor(below(path, "data"), data, source)?;
    let layout = array.storage.name().unwrap_or_default();
    entry.attributes.insert(Attributes::SPARSE_LAYOUT.to_owned(), Value::Text(layout.to_owned()));
    let shape = array.shape.dims().iter().map(|&size| Value::U64(size)).collect();
    entry.attributes.insert(SPARSE_SHAPE.to_owned(), Value::List(shape));
    Ok(entry)
}

/// Opens the symbol of a parameter file: `NAME-symbol.json` beside `NAME-0000.params` or `NAME.params`.
fn symbol_of(folder: &FolderRef, name: &Path) -> Result<Option<SourceRef>> {
    let Some(stem) = name.file_stem().and_then(|stem| stem.to_str()) else { return Ok(None) };
    let is_epoch = |text: &str| text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let without = stem.rsplit_once('-').filter(|(_, epoch)| is_epoch(epoch)).map(|(stem, _)| stem);
    for stem in without.into_iter().chain([stem]) {
        let file: PathBuf = name.with_file_name(format!("{stem}{ENDING}"));
        if let Some(source) = folder.open(&file)? {
            return Ok(Some(source));
        }
    }
    Ok(None)
}

/// Adds the symbol to the checkpoint.
fn attach(checkpoint: &mut Checkpoint, source: SourceRef, limits: &Limits, budget: &Budget) -> Result<()> {
    let stored: HashSet<String> = checkpoint.tensors.iter().map(|tensor| tensor.path.to_text()).collect();
    let topology = symbol::read(&source, limits, budget, &stored).map_err(|error| {
        error.hint(phrase!["move the symbol to another folder to open the parameters alone"])
    })?;
    checkpoint.topology = Some(Arc::new(topology));
    checkpoint.files.push(source);
    Ok(())
}
