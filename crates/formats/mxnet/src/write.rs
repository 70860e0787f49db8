//! Writer: checkpoint to plan.

use crate::array::{CPU, HEAD, Storage, V1, dtype_number};
use crate::read::{ARG, AUX, DEVICE, SPARSE_SHAPE, below, is_buffer};
use crate::{ARRAY_VERSION, GLUON, LIST, MODEL, MODULE, PARAMETERS, SYMBOL, VERSION, symbol};
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Loss, Name, Role, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, PlannedFile, WritePlan};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_core::text::first_and_more;
use weighbridge_core::topology::Topology;
use weighbridge_format::PlanOptions;

/// Names of the files of a model.
const FILES: [&str; 2] = ["model-symbol.json", "model-0000.params"];
/// Version with scalars. MXNet does not load it together with other versions.
const WITH_SCALARS: u8 = 3;
/// Attributes that are stored.
const ATTRIBUTES: [&str; 4] = [Attributes::SPARSE_LAYOUT, SPARSE_SHAPE, DEVICE, ARRAY_VERSION];
/// Maximum number of names in a loss.
const MAX_NAMED: usize = 10;

/// Plans a parameter file, or a folder with the symbol too.
pub(crate) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    options.check(&crate::INFO)?;
    let own = checkpoint.format == crate::INFO.id;
    let origin = checkpoint.origin.as_ref().filter(|origin| origin.format == crate::INFO.id);
    let opened = if own { Some(checkpoint.kind) } else { origin.map(|origin| origin.kind.as_str()) };
    let kind = match options.kind.as_deref() {
        None if opened == Some(SYMBOL) && checkpoint.tensors.is_empty() => SYMBOL,
        None | Some(PARAMETERS) => match opened {
            Some(MODULE) => MODULE,
            Some(LIST) if is_numbered(checkpoint) => LIST,
            _ => GLUON,
        },
        Some(kind) => {
            [MODULE, GLUON, LIST, MODEL].into_iter().find(|known| *known == kind).ok_or_else(|| {
                Error::usage("unknown-kind", "unknown kind for mxnet")
                    .expected("parameters, gluon, module, list or model")
                    .found(kind)
            })?
        }
    };
    let symbol = checkpoint.topology.as_deref().filter(|topology| topology.form == symbol::FORM);
    if let (SYMBOL, Some(symbol)) = (kind, symbol) {
        let mut file = FileBuilder::new("");
        file.literal(&*symbol.bytes);
        return Ok(WritePlan { format: "mxnet", kind, files: vec![file.finish()], losses: Vec::new() });
    }
    let mut losses = losses(checkpoint);
    if kind != MODEL {
        let file = parameters(checkpoint, kind, "", &mut losses)?;
        return Ok(WritePlan { format: "mxnet", kind, files: vec![file], losses });
    }
    let Some(symbol) = symbol else {
        return Err(Error::unsupported("no-program", "the source has no symbol of MXNet")
            .hint(phrase!["write the parameters alone: ", Opt::Kind.with(GLUON)]));
    };
    check_names(checkpoint, symbol)?;
    losses.retain(|loss| loss.code != "program");
    let mut file = FileBuilder::new(FILES[0]);
    file.literal(&*symbol.bytes);
    let files = vec![file.finish(), parameters(checkpoint, MODULE, FILES[1], &mut losses)?];
    Ok(WritePlan { format: "mxnet", kind, files, losses })
}

/// Returns true if the names of the tensors are those of arrays without names: 0, 1, ..., in any order.
fn is_numbered(checkpoint: &Checkpoint) -> bool {
    let first = |tensor: &TensorEntry| {
        tensor.path.parts().first().map(Name::to_text).and_then(|name| number_of(&name))
    };
    let Some(mut numbers) = checkpoint.tensors.iter().map(first).collect::<Option<Vec<u64>>>() else {
        return false;
    };
    numbers.sort_unstable();
    // Parts of a sparse array have one number.
    numbers.dedup();
    numbers.iter().copied().eq(0..numbers.len() as u64)
}

/// Returns the number that is the name of an array without a name.
fn number_of(name: &str) -> Option<u64> {
    name.parse().ok().filter(|number: &u64| number.to_string() == name)
}

/// Rejects a model whose symbol has parameters without tensors.
fn check_names(checkpoint: &Checkpoint, symbol: &Topology) -> Result<()> {
    let stored: HashSet<String> = checkpoint.tensors.iter().map(|tensor| tensor.path.to_text()).collect();
    match symbol.parameters().into_iter().find(|variable| !stored.contains(&variable.name)) {
        None => Ok(()),
        Some(missing) => Err(Error::mismatch(
            "belongs-to-a-program",
            "the symbol has a parameter of this name, and the checkpoint has no such tensor",
        )
        .on_tensor(escape_text(&missing.name))
        .hint(phrase![
            "keep the names of the symbol, or write the parameters alone: ",
            Opt::Kind.with(MODULE)
        ])),
    }
}

/// Returns the losses of metadata, attributes and other parts of the source.
fn losses(checkpoint: &Checkpoint) -> Vec<Loss> {
    let mut losses = checkpoint.left_behind();
    let keys = checkpoint.metadata.iter().filter(|(key, _)| *key != ARRAY_VERSION);
    let detail = "metadata dropped: a parameter file of MXNet has no place for it";
    losses.extend(keys.map(|(key, _)| Loss::new("metadata-dropped", escape_text(key), detail)));
    for tensor in &checkpoint.tensors {
        let keys = tensor.attributes.keys().map(String::as_str).filter(|key| !ATTRIBUTES.contains(key));
        let keys: Vec<String> =
            keys.filter(|key| *key != Attributes::RENAMED_FROM).map(escape_text).collect();
        if !keys.is_empty() {
            let keys = first_and_more(keys, MAX_NAMED);
            let detail = format!("attributes dropped: a parameter file of MXNet has no place for {keys}");
            losses.push(Loss::new("attribute-dropped", tensor.name(), detail));
        }
        if TensorPath::from_dotted(&tensor.path.to_text()) != tensor.path {
            let detail = "a parameter file of MXNet has one text as a name: dots separate its parts";
            losses.push(Loss::new("name-changed", tensor.name(), detail));
        }
        if tensor.row_names.is_some() {
            let detail = "row names dropped: a parameter file of MXNet has no place for them";
            losses.push(Loss::new("names-left-out", tensor.name(), detail));
        }
        let is_recent = matches!(tensor.dtype(), DType::I16 | DType::U16 | DType::U32 | DType::U64);
        if is_recent && checkpoint.format != crate::INFO.id {
            let detail = format!("MXNet before version 2.0 cannot load dtype {}", tensor.dtype());
            losses.push(Loss::new("recent-dtype", tensor.name(), detail));
        }
    }
    losses
}

/// Array of the file: a dense tensor, or the data of a sparse array with its other parts.
struct Planned<'a> {
    entry: &'a TensorEntry,
    storage: Storage,
    parts: Vec<&'a TensorEntry>,
    /// Sizes of the array.
    shape: Vec<u64>,
    name: Vec<u8>,
}

fn parameters(
    checkpoint: &Checkpoint,
    kind: &str,
    name: &str,
    losses: &mut Vec<Loss>,
) -> Result<PlannedFile> {
    let names = checkpoint.bridge_names(|name| name, &[]);
    for (tensor, name) in
        checkpoint.tensors.iter().zip(&names).filter(|(tensor, name)| tensor.text() != **name)
    {
        let detail = format!("written as {}", escape_text(name));
        losses.push(Loss::new("renamed", tensor.name(), detail));
    }
    let mut arrays = arrays(checkpoint, kind, &names, losses);
    if kind == LIST && is_numbered(checkpoint) {
        // Other formats sort their tensors by name.
        arrays.sort_by_key(|array| std::str::from_utf8(&array.name).ok().and_then(number_of));
    }
    let has_scalars = arrays.iter().any(|array| array.shape.is_empty());
    let mut file = FileBuilder::new(name);
    file.literal(HEAD);
    file.literal((arrays.len() as u64).to_le_bytes());
    let stated = checkpoint.metadata.get(ARRAY_VERSION);
    for array in &arrays {
        let version = match has_scalars {
            true => WITH_SCALARS,
            false => version(array, stated),
        };
        put(array, version, &mut file)?;
    }
    let names: &[Planned<'_>] = if kind == LIST { &[] } else { &arrays };
    file.literal((names.len() as u64).to_le_bytes());
    for array in names {
        file.literal((array.name.len() as u64).to_le_bytes());
        file.literal(&array.name);
    }
    if kind == LIST && !is_numbered(checkpoint) {
        let detail = "names dropped: a list of arrays has none";
        losses.push(Loss::new(
            "name-dropped",
            first_and_more(checkpoint.tensors.iter().map(TensorEntry::name), MAX_NAMED),
            detail,
        ));
    }
    Ok(file.finish())
}

/// Returns the version of an array: that of the opened file if it can hold the array.
fn version(array: &Planned<'_>, stated: Option<&Value>) -> u8 {
    let own = match array.entry.attributes.get(ARRAY_VERSION).or(stated) {
        Some(Value::U64(own)) => u8::try_from(*own).unwrap_or(VERSION),
        _ => VERSION,
    };
    let is_dense = array.storage == Storage::Dense;
    let is_small = array.shape.len() <= 64 && array.shape.iter().all(|&size| u32::try_from(size).is_ok());
    match own {
        0 if is_dense && is_small => 0,
        1 if is_dense => 1,
        WITH_SCALARS => WITH_SCALARS,
        _ => VERSION,
    }
}

fn arrays<'a>(
    checkpoint: &'a Checkpoint,
    kind: &str,
    names: &[String],
    losses: &mut Vec<Loss>,
) -> Vec<Planned<'a>> {
    let layout =
        |entry: &TensorEntry| entry.text_attribute(Attributes::SPARSE_LAYOUT).and_then(Storage::of_name);
    let is_part = |entry: &TensorEntry| layout(entry).is_some();
    let mut places: HashMap<&TensorPath, &TensorEntry> = HashMap::new();
    // A file with scalars has no sparse arrays.
    if checkpoint.tensors.iter().any(is_part)
        && !checkpoint.tensors.iter().any(|tensor| tensor.shape.rank() == 0)
    {
        places = checkpoint.tensors.iter().map(|tensor| (&tensor.path, tensor)).collect();
    }
    let mut taken: HashSet<&TensorPath> = HashSet::new();
    let mut sparse: HashMap<&TensorPath, (Storage, Vec<&TensorEntry>, Vec<u64>)> = HashMap::new();
    for entry in checkpoint.tensors.iter().filter(|entry| is_part(entry)) {
        match layout(entry).and_then(|storage| whole(entry, storage, &places)) {
            Some(found) => {
                taken.extend(found.1.iter().map(|part| &part.path));
                sparse.insert(&entry.path, found);
            }
            None => {
                let detail =
                    "indices are missing, or the file has scalars: the parts are written as dense arrays";
                losses.push(Loss::new("parts-missing", entry.name(), detail));
            }
        }
    }
    let mut arrays = Vec::with_capacity(names.len());
    for (entry, name) in checkpoint.tensors.iter().zip(names) {
        if taken.contains(&entry.path) && !is_part(entry) {
            continue;
        }
        let mut name = if *name == entry.text() { bytes(entry) } else { name.as_bytes().to_vec() };
        let (storage, parts, shape) = match sparse.remove(&entry.path) {
            Some(found) => {
                name.truncate(name.len().saturating_sub(".data".len()));
                found
            }
            None => {
                losses.extend(role_loss(entry, &name, kind));
                (Storage::Dense, Vec::new(), entry.shape.dims().to_vec())
            }
        };
        if kind == MODULE {
            let prefix = if entry.role == Role::Buffer { AUX } else { ARG };
            name.splice(..0, prefix.bytes());
        }
        arrays.push(Planned { entry, storage, parts, shape, name });
    }
    arrays
}

/// Returns the other parts of a sparse array and its sizes; `None` if they do not fit.
fn whole<'a>(
    entry: &TensorEntry,
    storage: Storage,
    places: &HashMap<&TensorPath, &'a TensorEntry>,
) -> Option<(Storage, Vec<&'a TensorEntry>, Vec<u64>)> {
    let (last, base) = entry.path.parts().split_last()?;
    if last.as_str() != Some("data") || base.is_empty() {
        return None;
    }
    let base = TensorPath::new(base.to_vec());
    let part = |name: &&str| places.get(&below(&base, name)).copied();
    let parts: Vec<&TensorEntry> = storage.parts().iter().map(part).collect::<Option<_>>()?;
    let Value::List(sizes) = entry.attributes.get(SPARSE_SHAPE)? else { return None };
    let size = |value: &Value| match value {
        Value::U64(size) => Some(*size),
        Value::I64(size) => u64::try_from(*size).ok(),
        _ => None,
    };
    let sizes: Vec<u64> = sizes.iter().map(size).collect::<Option<_>>()?;
    let count = entry.shape.dims().first()?;
    let fits = match storage {
        Storage::RowSparse => sizes.get(1..) == entry.shape.dims().get(1..),
        _ => sizes.len() == 2 && entry.shape.rank() == 1,
    };
    let indices = parts.last()?;
    let is_integer = parts.iter().all(|part| matches!(part.dtype(), DType::I32 | DType::I64));
    (fits && is_integer && indices.shape.dims() == [*count]).then_some((storage, parts, sizes))
}

/// Returns the loss of the role of a dense array of this name, if another one would be read: prefixes in modules and the names of
/// Gluon tell buffers.
fn role_loss(entry: &TensorEntry, name: &[u8], kind: &str) -> Option<Loss> {
    if entry.role.is_state() {
        let detail = "a parameter file of MXNet does not store roles: state is read as a parameter";
        return Some(Loss::new("read-as-parameter", entry.name(), detail));
    }
    let read = match kind {
        MODULE if entry.role == Role::Buffer => Role::Buffer,
        GLUON if is_buffer(name) => Role::Buffer,
        _ => Role::Parameter,
    };
    let detail = || {
        let (role, read) = (entry.role.as_str(), read.as_str());
        format!(
            "a parameter file of MXNet does not store roles: by its name, this {role} is read as a {read}"
        )
    };
    (entry.role != read).then(|| Loss::new("role", entry.name(), detail()))
}

/// Returns the bytes of the name of a tensor, without `\xNN` for bytes that are not UTF-8.
fn bytes(entry: &TensorEntry) -> Vec<u8> {
    let parts: Vec<&[u8]> = entry.path.parts().iter().map(Name::as_bytes).collect();
    let mut name = parts.join(&b'.');
    if let Some(slot) = entry.role.slot() {
        name.push(b'/');
        name.extend_from_slice(slot.as_bytes());
    }
    name
}

fn put(array: &Planned<'_>, version: u8, file: &mut FileBuilder) -> Result<()> {
    let fail = |error: Error| error.on_tensor(array.entry.name());
    let mut head = Vec::new();
    if let Some(more) = version.checked_sub(1) {
        head.extend((V1 + u32::from(more)).to_le_bytes());
        if version >= VERSION {
            head.extend(array.storage.number().to_le_bytes());
        }
        if array.storage != Storage::Dense {
            put_shape(array.entry.shape.dims(), &mut head).map_err(fail)?;
        }
        put_shape(&array.shape, &mut head).map_err(fail)?;
    } else {
        let all = std::iter::once(array.shape.len() as u64).chain(array.shape.iter().copied());
        for size in all {
            head.extend(u32::try_from(size).map_err(|_| fail(too_large(size)))?.to_le_bytes());
        }
    }
    for number in device(array.entry).into_iter().chain([number(array.entry)?]) {
        head.extend(number.to_le_bytes());
    }
    for part in &array.parts {
        head.extend(number(part)?.to_le_bytes());
        put_shape(part.shape.dims(), &mut head).map_err(fail)?;
    }
    file.literal(head);
    for entry in std::iter::once(&array.entry).chain(&array.parts) {
        file.tensor(entry, Order::Row)?;
    }
    Ok(())
}

fn device(entry: &TensorEntry) -> [i32; 2] {
    let number = |value: &Value| match value {
        Value::I64(number) => i32::try_from(*number).ok(),
        _ => None,
    };
    match entry.attributes.get(DEVICE) {
        Some(Value::List(values)) => match values.as_slice() {
            [kind, index] => number(kind).zip(number(index)).map_or([CPU.0, CPU.1], |(a, b)| [a, b]),
            _ => [CPU.0, CPU.1],
        },
        _ => [CPU.0, CPU.1],
    }
}

fn number(entry: &TensorEntry) -> Result<i32> {
    dtype_number(entry.dtype()).ok_or_else(|| {
        Error::mismatch("no-such-dtype", format!("MXNet has no dtype for {}", entry.dtype()))
            .on_tensor(entry.name())
            .hint(entry.f32_hint())
    })
}

fn put_shape(sizes: &[u64], out: &mut Vec<u8>) -> Result<()> {
    let rank = i32::try_from(sizes.len()).map_err(|_| too_large(sizes.len() as u64))?;
    out.extend(rank.to_le_bytes());
    for &size in sizes {
        out.extend(i64::try_from(size).map_err(|_| too_large(size))?.to_le_bytes());
    }
    Ok(())
}

fn too_large(size: u64) -> Error {
    Error::mismatch("shape-overflow", "a dimension exceeds the range of MXNet").found(size)
}
