//! Metadata of arrays in Zarr 2 (`.zarray`) and Zarr 3 (`zarr.json`).

use crate::dtypes;
use serde_json::Value as Json;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Cast, DType, Encoding, Endian, Order, Shape, cast};

/// Key of the metadata of Zarr 2, and of Zarr 3.
pub(super) const KEYS: [&str; 2] = [".zarray", "zarr.json"];

/// Step of the encoding of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    /// Zstandard.
    Zstd,
    /// gzip or zlib.
    Gzip,
    /// CRC-32C behind the bytes.
    Crc32c,
}

/// Array of Zarr.
#[derive(Debug)]
pub(super) struct Zarr {
    pub(super) dtype: DType,
    pub(super) encoding: Encoding,
    pub(super) shape: Shape,
    /// Sizes of a stored value: a chunk, or a shard of chunks.
    pub(super) chunk: Vec<u64>,
    /// Codecs of a chunk, in the order of encoding.
    pub(super) codecs: Vec<Codec>,
    /// Element of chunks that are not stored, little-endian; `None` if it is not understood.
    pub(super) fill: Option<Vec<u8>>,
    pub(super) shards: Option<Shards>,
    /// Text before the indices in the key of a chunk: empty, or `c`.
    prefix: &'static str,
    separator: &'static str,
}

/// Chunks within shards.
#[derive(Debug)]
pub(super) struct Shards {
    /// Sizes of a chunk.
    pub(super) chunk: Vec<u64>,
    /// True if a CRC-32C follows the index.
    pub(super) has_sum: bool,
    /// True if the index precedes the chunks.
    pub(super) is_first: bool,
}

/// Parsed metadata.
pub(super) enum Parsed {
    Zarr(Zarr),
    /// Well-formed metadata of an array that Weighbridge cannot read, with the reason.
    Unsupported(String),
}

/// Reason why an array cannot be read: malformed, or unsupported.
enum Fault {
    Error(Error),
    Unsupported(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Parses the metadata of an array.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `bad-json`, `zarr-metadata`; [`weighbridge_core::Kind::Limit`] for too many dimensions.
pub(super) fn parse(bytes: &[u8], limits: &Limits) -> Result<Parsed> {
    let json: Json = serde_json::from_slice(bytes)
        .map_err(|e| Error::corrupt("bad-json", format!("the metadata of the array is not JSON: {e}")))?;
    let parsed = match json.get("zarr_format").and_then(Json::as_u64) {
        Some(2) => version_2(&json, limits),
        Some(3) => version_3(&json, limits),
        _ => Err(fault("zarr_format of 2 or 3").into()),
    };
    match parsed {
        Ok(zarr) => Ok(Parsed::Zarr(zarr)),
        Err(Fault::Unsupported(reason)) => Ok(Parsed::Unsupported(reason)),
        Err(Fault::Error(error)) => Err(error),
    }
}

fn fault(expected: &str) -> Error {
    Error::corrupt("zarr-metadata", "the metadata of the array is malformed").expected(expected)
}

fn unsupported(what: &str, found: &Json) -> Fault {
    let text: String = found.to_string().chars().take(80).collect();
    Fault::Unsupported(format!("its {what} {} is not supported", escape_text(&text)))
}

fn version_2(json: &Json, limits: &Limits) -> Result<Zarr, Fault> {
    let named = json.get("dtype").and_then(Json::as_str).ok_or_else(|| fault("a dtype"))?;
    let (endian, code) = match named.split_at_checked(1) {
        Some((">", code)) => (Endian::Big, code),
        Some(("<" | "|", code)) => (Endian::Little, code),
        _ => (Endian::Little, named),
    };
    let dtype = if code == named { dtypes::of_name(named) } else { DType::from_numpy_code(code) };
    let dtype = dtype.ok_or_else(|| unsupported("dtype", &json["dtype"]))?;
    let order = match json.get("order").and_then(Json::as_str) {
        Some("C") => Order::Row,
        Some("F") => Order::Column,
        _ => return Err(fault("an order of C or F").into()),
    };
    let codecs = match json.get("compressor") {
        None | Some(Json::Null) => Vec::new(),
        Some(compressor) => match compressor.get("id").and_then(Json::as_str) {
            Some("zstd") => vec![Codec::Zstd],
            Some("gzip" | "zlib") => vec![Codec::Gzip],
            _ => return Err(unsupported("compressor", compressor)),
        },
    };
    if let Some(filters) = json.get("filters").filter(|filters| !filters.is_null()) {
        return Err(unsupported("filter", filters));
    }
    let shape = dims(json.get("shape"), limits)?;
    let separator = match json.get("dimension_separator").and_then(Json::as_str) {
        None | Some(".") => ".",
        Some("/") => "/",
        Some(_) => return Err(fault("a separator of . or /").into()),
    };
    Ok(Zarr {
        dtype,
        encoding: Encoding { order, endian },
        chunk: chunk(json.get("chunks"), &shape, limits)?,
        shape: Shape::new(shape),
        codecs,
        fill: fill(json.get("fill_value"), dtype),
        shards: None,
        prefix: "",
        separator,
    })
}

fn version_3(json: &Json, limits: &Limits) -> Result<Zarr, Fault> {
    let name = json.get("data_type").ok_or_else(|| fault("a data_type"))?;
    let dtype = name.as_str().and_then(dtypes::of_name).ok_or_else(|| unsupported("dtype", name))?;
    let shape = dims(json.get("shape"), limits)?;
    let configured = |json: &Json, key: &str| json.get("configuration").and_then(|own| own.get(key)).cloned();
    let named = |json: &Json| json.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let grid = json.get("chunk_grid").ok_or_else(|| fault("a chunk_grid"))?;
    if named(grid) != "regular" {
        return Err(unsupported("chunk grid", grid));
    }
    let keys = json.get("chunk_key_encoding").ok_or_else(|| fault("a chunk_key_encoding"))?;
    let stated = configured(keys, "separator");
    let (prefix, separator) = match (named(keys).as_str(), stated.as_ref().and_then(Json::as_str)) {
        ("default", None | Some("/")) => ("c", "/"),
        ("default", Some(".")) => ("c", "."),
        ("v2", None | Some(".")) => ("", "."),
        ("v2", Some("/")) => ("", "/"),
        _ => return Err(unsupported("encoding of chunk keys", keys)),
    };
    let outer = chunk(configured(grid, "chunk_shape").as_ref(), &shape, limits)?;
    let list = json.get("codecs").and_then(Json::as_array).ok_or_else(|| fault("codecs"))?;
    if let Some(other) =
        json.get("storage_transformers").and_then(Json::as_array).filter(|list| !list.is_empty())
    {
        return Err(unsupported("storage transformer", &other[0]));
    }
    let (shards, list) = match list.as_slice() {
        [one] if named(one) == "sharding_indexed" => {
            let inner = chunk(configured(one, "chunk_shape").as_ref(), &shape, limits)?;
            let divides = inner.len() == outer.len()
                && outer.iter().zip(&inner).all(|(outer, inner)| outer % inner == 0);
            if !divides {
                return Err(fault("shards of whole chunks").into());
            }
            let index = configured(one, "index_codecs").unwrap_or_default();
            let (codecs, index_endian) = codecs(index.as_array().ok_or_else(|| fault("index_codecs"))?)?;
            let has_sum = match codecs.as_slice() {
                [] => false,
                [Codec::Crc32c] => true,
                _ => return Err(unsupported("encoding of the index of a shard", &index)),
            };
            if index_endian == Endian::Big {
                return Err(unsupported("encoding of the index of a shard", &index));
            }
            let is_first = configured(one, "index_location").is_some_and(|place| place == "start");
            let list = configured(one, "codecs").unwrap_or_default();
            let list = list.as_array().cloned().ok_or_else(|| fault("codecs of chunks"))?;
            (Some(Shards { chunk: inner, has_sum, is_first }), list)
        }
        list => (None, list.to_vec()),
    };
    let (codecs, endian) = codecs(&list)?;
    Ok(Zarr {
        dtype,
        encoding: Encoding { order: Order::Row, endian },
        chunk: outer,
        shape: Shape::new(shape),
        codecs,
        fill: fill(json.get("fill_value"), dtype),
        shards,
        prefix,
        separator,
    })
}

/// Returns the codecs after `bytes`, and its byte order.
fn codecs(list: &[Json]) -> Result<(Vec<Codec>, Endian), Fault> {
    let mut list = list.iter();
    let first = list.next().ok_or_else(|| fault("the codec bytes"))?;
    if first.get("name").and_then(Json::as_str) != Some("bytes") {
        return Err(unsupported("codec", first));
    }
    let endian = match first.get("configuration").and_then(|own| own.get("endian")).and_then(Json::as_str) {
        None | Some("little") => Endian::Little,
        Some("big") => Endian::Big,
        Some(_) => return Err(fault("the byte order little or big").into()),
    };
    let codec = |json: &Json| match json.get("name").and_then(Json::as_str) {
        Some("zstd") => Ok(Codec::Zstd),
        Some("gzip") => Ok(Codec::Gzip),
        Some("crc32c") => Ok(Codec::Crc32c),
        _ => Err(unsupported("codec", json)),
    };
    Ok((list.map(codec).collect::<Result<_, _>>()?, endian))
}

fn dims(json: Option<&Json>, limits: &Limits) -> Result<Vec<u64>> {
    let list = json.and_then(Json::as_array).ok_or_else(|| fault("a list of sizes"))?;
    Limits::check("dimensions", "dimensions", list.len() as u64, limits.dimensions)?;
    list.iter().map(|dim| dim.as_u64().ok_or_else(|| fault("sizes of at least 0"))).collect()
}

fn chunk(json: Option<&Json>, shape: &[u64], limits: &Limits) -> Result<Vec<u64>> {
    let chunk = dims(json, limits)?;
    if chunk.len() == shape.len() && !chunk.contains(&0) {
        return Ok(chunk);
    }
    Err(fault("sizes of chunks above 0, one for each dimension"))
}

/// Returns the little-endian bytes of a fill value; `None` if it is not understood.
fn fill(json: Option<&Json>, dtype: DType) -> Option<Vec<u8>> {
    let zeros = vec![0; dtype.size()?];
    let number = match json {
        None | Some(Json::Null | Json::Bool(false)) => return Some(zeros),
        Some(Json::Bool(true)) => return (dtype == DType::Bool).then(|| vec![1]),
        Some(Json::Number(number)) => number,
        // Zero of a complex dtype.
        Some(Json::Array(parts)) => {
            return parts.iter().all(|part| part.as_f64() == Some(0.0)).then_some(zeros);
        }
        Some(_) => return None,
    };
    let bytes = match (dtype, number.as_u64(), number.as_i64()) {
        (DType::U8 | DType::U16 | DType::U32 | DType::U64, Some(value), _) => value.to_le_bytes(),
        (DType::I8 | DType::I16 | DType::I32 | DType::I64, _, Some(value)) => value.to_le_bytes(),
        _ => {
            let value = number.as_f64()?;
            if value.to_bits() == 0 {
                return Some(zeros);
            }
            let wide = value.to_le_bytes();
            if dtype == DType::F64 {
                return Some(wide.to_vec());
            }
            let mut out = Vec::new();
            cast(&wide, DType::F64, Cast::from(dtype), &mut out)?;
            return Some(out);
        }
    };
    bytes.get(..zeros.len()).map(<[u8]>::to_vec)
}

impl Zarr {
    /// Returns the key of the chunk or shard with that index.
    pub(super) fn key(&self, index: &[u64]) -> String {
        let mut parts: Vec<String> = index.iter().map(u64::to_string).collect();
        if !self.prefix.is_empty() {
            parts.insert(0, self.prefix.to_owned());
        } else if parts.is_empty() {
            parts.push("0".to_owned());
        }
        parts.join(self.separator)
    }
}
