//! Reader: weights and network to checkpoint. Elements are not read.

use crate::network::{self, Network};
use crate::{NETWORK, WEIGHTS, cfg};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Checkpoint, Name, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// Bytes of the version.
const VERSION: u64 = 12;
/// Maximum plausible number of images seen in training.
const MAX_SEEN: u64 = 1 << 50;

/// Beginning of a file of weights.
#[derive(Debug)]
pub(crate) struct Header {
    version: [i32; 3],
    seen: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

impl Header {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `past-the-end`; [`weighbridge_core::Kind::Unsupported`], `format-version`.
    pub(crate) fn parse(source: &SourceRef) -> Result<Self> {
        let bytes = read_vec(&**source, 0, VERSION)?;
        let mut version = [0; 3];
        for (number, bytes) in version.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *number = i32::from_le_bytes(*bytes);
        }
        let [major, minor, _] = version;
        // Weights of connected layers are transposed in files of other versions.
        if !(0..=1000).contains(&major) || !(0..=1000).contains(&minor) {
            return Err(Error::unsupported("format-version", "the version of the weights is not read")
                .at(0)
                .expected("0 to 1000")
                .found(format_args!("{major}.{minor}")));
        }
        let width = if major * 10 + minor >= 2 { 8 } else { 4 };
        let mut seen = read_vec(&**source, VERSION, width)?;
        seen.resize(8, 0);
        let seen = seen.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(Self { version, seen, len: VERSION + width })
    }
}

/// Returns the kind of a file by its content.
pub(crate) fn kind(head: &[u8], source: &SourceRef) -> Option<&'static str> {
    // Released versions are 0.1.0, 0.2.0 and 0.2.5.
    if let [0, 0, 0, 0, 1..=2, 0, 0, 0, 0..=9, 0, 0, 0, ..] = head {
        // A tensor stream of Paddle with lengths of sequences begins as version 0.1.
        if head[4] == 1 && !source.label().ends_with(".weights") {
            return None;
        }
        let header = Header::parse(source).ok()?;
        let elements = source.len().saturating_sub(header.len);
        return (header.seen < MAX_SEEN && elements > 0 && elements.is_multiple_of(4)).then_some(WEIGHTS);
    }
    is_text(head).then_some(NETWORK)
}

/// Returns true for text whose first section is that of a network, with sections for layers.
fn is_text(head: &[u8]) -> bool {
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if text.len() + 4 <= head.len() {
        return false;
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let mut sections = lines.filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    let layers = ["convolutional", "conv", "connected", "conn", "maxpool", "batchnorm", "local", "crop"];
    sections.next().is_some_and(network::is_net) && sections.next().is_some_and(|kind| layers.contains(&kind))
}

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
    let head = read_vec(&**source, 0, source.len().min(4096))?;
    if kind(&head, source) == Some(NETWORK) {
        let mut checkpoint = Checkpoint::new("darknet", NETWORK, source.label());
        checkpoint.topology = Some(Arc::new(network_of(source, &limits, &budget)?.topology));
        checkpoint.files.push(source.clone());
        return Ok(checkpoint);
    }
    let header = Header::parse(source)?;
    let beside = match around {
        Some((folder, name)) => network_beside(folder, name)?,
        None => None,
    };
    let Some(beside) = beside else {
        return Err(Error::unsupported(
            "config-missing",
            "the weights have no names and shapes of their own",
        )
        .in_file(source.label())
        .at(header.len)
        .expected("the network in a .cfg file of the same name beside the weights")
        .hint("copy the .cfg file of the network next to the weights"));
    };
    let Network { parameters, topology } = network_of(&beside, &limits, &budget)?;
    let mut checkpoint = Checkpoint::new("darknet", WEIGHTS, source.label());
    let version = header.version.map(|number| number.to_string()).join(".");
    checkpoint.metadata.set("version", Value::Text(version));
    checkpoint.metadata.set("seen", Value::U64(header.seen));
    if let Some(error) = salvaged {
        checkpoint.damage_mut(error);
    }
    Limits::check("tensors", "tensors", parameters.len() as u64, limits.tensors)?;
    let mut at = header.len;
    for parameter in &parameters {
        let path = TensorPath::new([Name::from(parameter.layer.as_str()), Name::from(parameter.name)]);
        let shape = Shape::new(parameter.dims.clone());
        let len = shape.bytes(DType::F32).ok_or_else(|| {
            Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bytes").on_tensor(&path).found(&shape)
        })?;
        let end = at.saturating_add(len);
        if end > source.len() {
            let error = past_the_end(source, at, &path, len);
            if salvaged.is_none() {
                return Err(error);
            }
            checkpoint.lose(&path, &error);
        } else {
            let mut entry = TensorEntry::dense(path, DType::F32, shape, source, at, Encoding::ROW)?;
            entry.role = parameter.role.clone();
            checkpoint.tensors.push(entry);
        }
        at = end;
    }
    if at < source.len() && salvaged.is_none() {
        return Err(Error::corrupt("length-mismatch", "the weights are longer than those of the network")
            .in_file(source.label())
            .at(at)
            .expected(format_args!("{at} bytes for {}", beside.label()))
            .found(format_args!("{} bytes", source.len()))
            .hint("the .cfg file may be that of another network"));
    }
    checkpoint.topology = Some(Arc::new(topology));
    checkpoint.files.push(beside);
    Ok(checkpoint)
}

fn past_the_end(source: &SourceRef, at: u64, path: &TensorPath, len: u64) -> Error {
    Error::corrupt("past-the-end", "the weights are shorter than those of the network")
        .in_file(source.label())
        .on_tensor(path)
        .at(at)
        .expected(format_args!("{len} bytes from here"))
        .found(format_args!("{} bytes", source.len().saturating_sub(at)))
        .hint("the download may be incomplete, or the .cfg file may be that of another network")
}

/// Reads a network in text.
fn network_of(source: &SourceRef, limits: &Limits, budget: &Budget) -> Result<Network> {
    let fail = |error: Error| error.in_file(source.label());
    Limits::check("bytes of the network", "header_bytes", source.len(), limits.header_bytes).map_err(fail)?;
    let bytes = read_vec(&**source, 0, source.len())?;
    // Comments may be in any encoding.
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let sections = cfg::parse(&text, budget).map_err(fail)?;
    network::read(&sections, bytes, budget).map_err(fail)
}

/// Opens the network beside weights: `NAME.cfg`, also without the suffix that training adds, such as `_final`.
fn network_beside(folder: &FolderRef, name: &Path) -> Result<Option<SourceRef>> {
    let Some(stem) = name.file_stem().and_then(|stem| stem.to_str()) else { return Ok(None) };
    let is_suffix = |word: &str| {
        matches!(word, "final" | "last" | "best" | "backup") || word.bytes().all(|byte| byte.is_ascii_digit())
    };
    let trained = stem.rsplit_once('_').filter(|(_, word)| is_suffix(word)).map(|(stem, _)| stem);
    for stem in std::iter::once(stem).chain(trained) {
        if let Some(source) = folder.open(&name.with_file_name(format!("{stem}.cfg")))? {
            return Ok(Some(source));
        }
    }
    Ok(None)
}

/// Returns the only file of weights in a folder, if its network is there as well.
pub(crate) fn weights_in(folder: &FolderRef) -> Option<PathBuf> {
    let items = folder.list(1).ok()?;
    let is_weights = |path: &Path| path.extension().is_some_and(|extension| extension == WEIGHTS);
    let mut weights = items.iter().filter(|item| is_weights(&item.name));
    let (first, second) = (weights.next()?, weights.next());
    let network = network_beside(folder, &first.name).ok()?;
    (second.is_none() && network.is_some()).then(|| first.name.clone())
}

/// Opens the only file of weights in a folder.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `not-a-file`, if there is none or several.
pub(crate) fn in_folder(folder: &FolderRef) -> Result<(PathBuf, SourceRef)> {
    let found = match weights_in(folder) {
        Some(name) => folder.open(&name)?.map(|source| (name, source)),
        None => None,
    };
    found.ok_or_else(|| {
        Error::usage("not-a-file", "the folder does not have one file of weights with its network")
            .in_file(folder.label())
            .hint("give the path of one model file")
    })
}
