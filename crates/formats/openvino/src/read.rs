//! Reader: network and constants to checkpoint. Elements are not read.

use crate::graph::{self, Constant};
use crate::xml::Element;
use crate::{MODEL, dtype, xml};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{
    Checkpoint, Damage, Distinct, Name, Note, Role, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_core::text::quoted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// Attribute with the dtype of a tensor whose elements share bytes, such as `i4`. The tensor has its bytes as `u8`.
const PACKED_DTYPE: &str = "packed_dtype";
/// Attribute with the shape of a tensor whose elements share bytes.
const PACKED_SHAPE: &str = "packed_shape";
/// Versions of the network. Earlier ones have their constants in other elements.
const VERSIONS: std::ops::RangeInclusive<u64> = 10..=11;
/// Memory of a constant.
const ENTRY: u64 = 400;

/// Returns true for the beginning of a document whose root is a network.
pub(crate) fn is_model(head: &[u8]) -> bool {
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let mut text = text.trim_start_matches('\u{feff}').trim_start();
    while let Some(stop) = [("<?", "?>"), ("<!--", "-->")].iter().find(|(start, _)| text.starts_with(start)) {
        let Some((_, after)) = text.split_once(stop.1) else { return false };
        text = after.trim_start();
    }
    text.starts_with("<net ") && text.contains("version=")
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
    Limits::check("bytes of the network", "header_bytes", source.len(), limits.header_bytes)?;
    let bytes = read_vec(&**source, 0, source.len())?;
    let net = xml::parse(text(&bytes)?, &budget)?;
    check_version(&net)?;
    let network = graph::read(&net, bytes, &budget)?;
    let mut reader = Reader {
        checkpoint: Checkpoint::new("openvino", MODEL, source.label()),
        limits: &limits,
        names: Distinct::default(),
        packed: 0,
    };
    if let Some(error) = salvaged {
        reader.checkpoint.damage_mut(error);
    }
    if let Some(name) = net.attribute("name") {
        reader.checkpoint.metadata.set("name", Value::Text(name.to_owned()));
    }
    let beside = match around {
        Some((folder, name)) => folder.open(&name.with_extension("bin"))?,
        None => None,
    };
    let Some(constants) = beside.as_ref().or(network.constants.is_empty().then_some(source)) else {
        return Err(Error::unsupported("file-missing", "the constants of the network are in another file")
            .in_file(source.label())
            .at(network.constants.first().map_or(0, |constant| constant.data.at))
            .expected("a .bin file of the same name beside the network")
            .hint("copy the .bin file next to the .xml file"));
    };
    for constant in &network.constants {
        budget.take_memory(ENTRY)?;
        let path =
            TensorPath::new(constant.path.iter().map(|part| Name::from(part.as_str())).collect::<Vec<_>>());
        match reader.constant(constant, &path, constants) {
            Err(error) if salvaged.is_some() && Damage::is(&error) => reader.checkpoint.lose(&path, &error),
            result => result.map_err(|error| error.on_tensor(&path).at(constant.data.at))?,
        }
    }
    let Reader { mut checkpoint, packed, .. } = reader;
    checkpoint.mark_ties(&budget)?;
    if packed > 0 {
        let text = "tensors of elements smaller than a byte are listed as their bytes; attributes have dtype and shape";
        checkpoint.notes.push(Note::new("packed-as-bytes", text));
    }
    checkpoint.topology = Some(Arc::new(network.topology));
    checkpoint.files.push(source.clone());
    Ok(checkpoint)
}

/// Returns the text of a document.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-text`.
pub(crate) fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|fault| {
        Error::corrupt("bad-text", "the network is not UTF-8 text").at(fault.valid_up_to() as u64)
    })
}

/// Rejects documents that are not networks of a known version.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-header`; [`weighbridge_core::Kind::Unsupported`], `format-version`.
pub(crate) fn check_version(net: &Element) -> Result<()> {
    if net.name != "net" {
        return Err(Error::corrupt("bad-header", "the document is not a network of OpenVINO")
            .at(net.at)
            .expected("<net>")
            .found(quoted(&net.name)));
    }
    let version = net.attribute("version").unwrap_or_default();
    if version.parse().is_ok_and(|version: u64| VERSIONS.contains(&version)) {
        return Ok(());
    }
    Err(Error::unsupported("format-version", "the version of the network is not read")
        .at(net.at)
        .expected("10 or 11")
        .found(quoted(version)))
}

/// Adds the ranges of constants that are not in the index to the outline of the file of constants.
///
/// # Errors
/// As [`open`].
pub(crate) fn unlisted(network: &SourceRef, limits: &Limits, outline: &mut Outline) -> Result<()> {
    let limits = limits.with_budget_of(network);
    let budget = limits.budget_of(network);
    let bytes = read_vec(&**network, 0, network.len())?;
    let net = xml::parse(text(&bytes)?, &budget)?;
    for constant in graph::read(&net, Vec::new(), &budget)?.constants {
        let number = |key| constant.data.attribute(key).and_then(|text| text.parse::<u64>().ok());
        let (Some(offset), Some(size)) = (number("offset"), number("size")) else { continue };
        let word = constant.data.attribute("element_type").unwrap_or_default();
        let is_known = dtype::of_name(word).is_some() || dtype::packed_bits(word).is_some();
        let mut sizes = constant.data.attribute("shape").unwrap_or_default().split(',').map(str::trim);
        if !is_known {
            outline.unread(offset, size, "elements of a skipped tensor");
        } else if sizes.any(|size| size == "0") {
            outline.padding(offset, size, "place of a tensor without elements");
        }
    }
    Ok(())
}

struct Reader<'a> {
    checkpoint: Checkpoint,
    limits: &'a Limits,
    names: Distinct,
    packed: u64,
}

impl Reader<'_> {
    fn constant(&mut self, constant: &Constant<'_>, path: &TensorPath, source: &SourceRef) -> Result<()> {
        Limits::check("bytes in a name", "name_bytes", path.byte_len() as u64, self.limits.name_bytes)?;
        let count = self.checkpoint.tensors.len() as u64 + 1;
        Limits::check("tensors", "tensors", count, self.limits.tensors)?;
        let data = constant.data;
        let word = data.attribute("element_type").unwrap_or_default();
        let text = data.attribute("shape").unwrap_or_default();
        let sizes = text.split(',').map(str::trim).filter(|size| !size.is_empty());
        let sizes: Option<Vec<u64>> = sizes.map(|size| size.parse().ok()).collect();
        let sizes = sizes.ok_or_else(|| bad("shape", "sizes", text))?;
        Limits::check("dimensions", "dimensions", sizes.len() as u64, self.limits.dimensions)?;
        let shape = Shape::new(sizes);
        let too_large = || Error::corrupt("shape-overflow", "the tensor exceeds 2^64 bytes").found(&shape);
        let (dtype, stored, packed) = match (dtype::of_name(word), dtype::packed_bits(word)) {
            (Some(dtype), _) if shape.bytes(dtype).is_some() => (dtype, shape.clone(), false),
            (Some(_), _) => return Err(too_large()),
            (None, Some(bits)) => {
                let all = shape.elements().and_then(|count| count.checked_mul(bits)).ok_or_else(too_large)?;
                (DType::U8, Shape::from([all.div_ceil(8)]), true)
            }
            (None, None) => {
                let reason = match word {
                    "string" => "holds text, which is not read".to_owned(),
                    _ => format!("has the unknown dtype {}", quoted(word)),
                };
                self.checkpoint.notes.push(Note::skipped_tensor(path.to_text(), reason));
                return Ok(());
            }
        };
        let number = |key| {
            let text = data.attribute(key).unwrap_or_default();
            text.parse::<u64>().map_err(|_| bad(key, "a number of bytes", text))
        };
        let (offset, size) = (number("offset")?, number("size")?);
        let needed = stored.bytes(dtype).unwrap_or(u64::MAX);
        // A constant without elements has one byte in the file.
        if needed != size && needed > 0 {
            return Err(Error::corrupt("length-mismatch", "the elements do not match shape and dtype")
                .expected(format_args!("{needed} bytes for {word} {shape}"))
                .found(format_args!("{size} bytes")));
        }
        let mut entry = TensorEntry::dense(path.clone(), dtype, stored, source, offset, Encoding::ROW)?;
        entry.role = if dtype.is_float() || packed { Role::Parameter } else { Role::Buffer };
        if packed {
            self.packed += 1;
            entry.attributes.insert(PACKED_DTYPE.to_owned(), Value::Text(word.to_owned()));
            let dims = shape.dims().iter().map(|&size| Value::U64(size)).collect();
            entry.attributes.insert(PACKED_SHAPE.to_owned(), Value::List(dims));
        }
        self.checkpoint.notes.extend(self.names.add(&mut entry));
        self.checkpoint.tensors.push(entry);
        Ok(())
    }
}

fn bad(key: &str, expected: &str, found: &str) -> Error {
    Error::corrupt("bad-number", format!("the {key} of a constant is malformed"))
        .expected(expected)
        .found(quoted(found))
}
