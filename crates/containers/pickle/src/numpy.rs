//! Recognition of numpy arrays and scalars in a graph.

use super::allowed::is_mapped_array;
use super::graph::{Graph, Location, Object, ObjectId, ReduceKind, Span, Stored};
use super::opened::{JoblibArray, Options};
use super::payload::{PayloadSource, may_hold};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Encoding, Endian, Order, Shape};
use weighbridge_io::source::{MemorySource, SourceRef};

/// Bytes of an array, scalar or string: length and location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Length in bytes after decoding.
    pub len: u64,
    /// Location. Use [`super::PayloadSource`] for a span of the source.
    pub place: Location,
    /// The bytes, if short and already read.
    pub short: Option<Box<[u8]>>,
}

/// A numpy array; a scalar is an array without dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NdArray {
    /// The `descr` of numpy without byte order: `f4`, `O8`, `V6`.
    pub descr: Box<str>,
    /// Element type; `None` for objects, records, text and dates, which tensors cannot hold.
    pub dtype: Option<DType>,
    /// Byte order of the elements; little-endian for one-byte elements.
    pub endian: Endian,
    /// Shape.
    pub shape: Shape,
    /// True if the first index varies fastest.
    pub fortran_order: bool,
    /// The elements; `None` if `dtype` is `None`.
    pub payload: Option<Payload>,
}

impl NdArray {
    /// Returns the source of the elements, the offset of the first one, and their encoding; `None` if a tensor cannot hold
    /// them. `source` is the source of the pickle.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `numpy-array`, if the elements are not in the file.
    pub fn elements(&self, source: &SourceRef) -> Result<Option<(SourceRef, u64, Encoding)>> {
        let (Some(_), Some(payload)) = (self.dtype, &self.payload) else { return Ok(None) };
        let order = if self.fortran_order { Order::Column } else { Order::Row };
        let encoding = Encoding { order, endian: self.endian };
        let (source, offset): (SourceRef, u64) = match (payload.place, &payload.short) {
            (Location::Source(span), _) if span.stored == Stored::Raw => (source.clone(), span.offset),
            (_, Some(bytes)) => (Arc::new(MemorySource::new(source.label(), bytes.to_vec())), 0),
            (Location::Source(span), None) => {
                (Arc::new(PayloadSource::new(source.clone(), span, payload.len)?), 0)
            }
            _ => return Err(corrupt("the elements of the array are not in the file")),
        };
        Ok(Some((source, offset, encoding)))
    }

    /// Returns true for a call that makes a numpy array of any class and dtype.
    pub fn is_one(graph: &Graph, id: ObjectId) -> bool {
        matches!(
            graph.call(id),
            Some((
                ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct")
                    | ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer"),
                _
            ))
        )
    }
}

/// Content of a dtype object.
struct Dtype {
    descr: Box<str>,
    dtype: Option<DType>,
    endian: Endian,
}

impl NdArray {
    /// Recognizes a numpy array; returns `None` for any other object.
    ///
    /// Arrays of objects or records are recognized, but have neither `dtype` nor `payload`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], code `numpy-array`, for an array that contradicts itself;
    /// [`weighbridge_core::Kind::Limit`] for more dimensions than `options` allow.
    pub fn of(graph: &Graph, id: ObjectId, options: &Options) -> Result<Option<NdArray>> {
        let Some((global, args)) = graph.call(id) else { return Ok(None) };
        let offset = graph.made(id).map_or(0, |made| made.offset);
        let array = match (global, args) {
            (("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"), [class, ..])
                if graph.global(*class) == Some(("numpy", "ndarray")) || is_mapped_class(graph, *class) =>
            {
                reconstructed(graph, id, options)
            }
            (
                ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer"),
                &[buffer, dtype, shape, order],
            ) => {
                let fortran = match graph.text(order) {
                    Some("C") => Ok(false),
                    Some("F") => Ok(true),
                    _ => Err(corrupt("the array order is neither C nor F")),
                };
                fortran.and_then(|fortran| {
                    array(graph, dtype, array_shape(graph, shape, options)?, fortran, buffer)
                })
            }
            _ => return Ok(None),
        };
        array.map(Some).map_err(|e| e.at(offset))
    }
}

impl NdArray {
    /// Recognizes an array of joblib by its description; returns `None` for any other object. The payload of an array of objects is
    /// `None`.
    ///
    /// # Errors
    /// Same as [`of`](Self::of).
    pub fn of_joblib(graph: &Graph, array: &JoblibArray, options: &Options) -> Result<Option<NdArray>> {
        let state = graph.made(array.object).and_then(|made| graph.pairs(made.state()?));
        let entry = |name: &str| {
            let pair = state?.iter().rev().find(|(key, _)| graph.text(*key) == Some(name));
            pair.map(|&(_, value)| value)
        };
        let (Some(shape), Some(dtype), Some(order)) = (entry("shape"), entry("dtype"), entry("order")) else {
            return Ok(None);
        };
        let fortran_order = match graph.text(order) {
            Some("C") => false,
            Some("F") => true,
            _ => return Err(corrupt("the array order is neither C nor F")),
        };
        let shape = array_shape(graph, shape, options)?;
        let Dtype { descr, dtype, endian } = describe(graph, dtype)?;
        let payload = match dtype {
            None => None,
            Some(kind) => {
                let len = shape.bytes(kind).ok_or_else(|| corrupt("the array has 2^64 bytes or more"))?;
                let span = Span { offset: array.offset, len, stored: Stored::Raw };
                Some(Payload { len, place: Location::Source(span), short: None })
            }
        };
        Ok(Some(NdArray { descr, dtype, endian, shape, fortran_order, payload }))
    }
}

/// Recognizes a numpy scalar; returns `None` for any other object.
///
/// # Errors
/// Same as [`NdArray::of`].
pub fn scalar(graph: &Graph, id: ObjectId) -> Result<Option<NdArray>> {
    let Some((global, args)) = graph.call(id) else { return Ok(None) };
    match (global, args) {
        (("numpy.core.multiarray" | "numpy._core.multiarray", "scalar"), &[dtype, bytes]) => {
            let offset = graph.made(id).map_or(0, |made| made.offset);
            array(graph, dtype, Shape::default(), false, bytes).map(Some).map_err(|e| e.at(offset))
        }
        _ => Ok(None),
    }
}

/// Returns true for the class `numpy.memmap`. A pickle stores such an array like any other array.
fn is_mapped_class(graph: &Graph, id: ObjectId) -> bool {
    graph.global(id).is_some_and(|(module, name)| is_mapped_array(module, name))
}

/// Returns the arguments of the exact call that rebuilds an array of the class `numpy.memmap`.
pub(super) fn rebuilt_mapped(graph: &Graph, id: ObjectId) -> Option<ObjectId> {
    let made = graph.made(id).filter(|made| made.how == ReduceKind::Reduce)?;
    match graph.call(id)? {
        (("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"), &[class, shape, code])
            if is_mapped_class(graph, class)
                && !is_mapped_class(graph, shape)
                && !is_mapped_class(graph, code) =>
        {
            Some(made.args)
        }
        _ => None,
    }
}

fn corrupt(message: &str) -> Error {
    Error::corrupt("numpy-array", message)
}

/// An array that is made empty and then gets its state.
fn reconstructed(graph: &Graph, id: ObjectId, options: &Options) -> Result<NdArray> {
    let state = graph.made(id).and_then(|made| graph.tuple(made.state()?));
    // Very old numpy wrote no version in front.
    match state {
        Some(&[_, shape, dtype, fortran, data] | &[shape, dtype, fortran, data]) => {
            let fortran =
                graph.truth(fortran).ok_or_else(|| corrupt("the order flag of the array is not a bool"))?;
            array(graph, dtype, array_shape(graph, shape, options)?, fortran, data)
        }
        _ => Err(corrupt("the array state is missing or has an unknown form")),
    }
}

fn array_shape(graph: &Graph, shape: ObjectId, options: &Options) -> Result<Shape> {
    let items = graph.sequence(shape).ok_or_else(|| corrupt("the array shape is not a tuple"))?;
    Limits::check("dimensions", "dimensions", items.len() as u64, options.limits.dimensions)?;
    let dimension = |&id| graph.int(id).and_then(|n| u64::try_from(n).ok());
    let dims: Option<Vec<u64>> = items.iter().map(dimension).collect();
    dims.map(Shape::new).ok_or_else(|| corrupt("a dimension of the array is not a non-negative integer"))
}

fn array(
    graph: &Graph,
    dtype: ObjectId,
    shape: Shape,
    fortran_order: bool,
    data: ObjectId,
) -> Result<NdArray> {
    let Dtype { descr, dtype, endian } = describe(graph, dtype)?;
    let mut array = NdArray { descr, dtype, endian, shape, fortran_order, payload: None };
    let Some(dtype) = dtype else { return Ok(array) };
    let len = array.shape.bytes(dtype).ok_or_else(|| {
        corrupt("the array has 2^64 bytes or more").found(format_args!("{dtype} {}", array.shape))
    })?;
    let payload =
        bytes_of(graph, data, Some(len))?.ok_or_else(|| corrupt("the array elements are not bytes"))?;
    array.payload = Some(payload);
    Ok(array)
}

/// Returns the bytes of the object: `bytes`, `bytearray`, a Python 2 string, or the call that encodes
/// bytes in protocol 2. `None` for any other object.
///
/// `len` is the required number of bytes, if the caller knows it. The length of long text is known
/// only after decoding, so without `len` it also yields `None`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], code `numpy-length`, if there are not `len` bytes.
pub fn bytes_of(graph: &Graph, id: ObjectId, len: Option<u64>) -> Result<Option<Payload>> {
    let (short, place) = match graph.object(id) {
        Object::Bytes(blob) | Object::ByteArray(blob) => (blob.short.clone(), blob.place),
        Object::ByteString(text) => (text.short.as_deref().and_then(latin1), text.place),
        Object::Reduced(_) => match graph.call(id) {
            Some((("_codecs", "encode"), &[text, codec])) if is_latin1(graph, codec) => {
                let Object::Text(text) = graph.object(text) else { return Ok(None) };
                (text.short.as_deref().and_then(latin1), text.place)
            }
            Some((("__builtin__" | "builtins", "bytes"), [])) => (Some(Box::default()), Location::Memory),
            Some((("__builtin__" | "builtins", "bytearray"), &[inner]))
                if matches!(graph.object(inner), Object::Bytes(_)) =>
            {
                return bytes_of(graph, inner, len);
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let known = match (&short, place) {
        (Some(bytes), _) => Some(bytes.len() as u64),
        (None, Location::Source(Span { len, stored: Stored::Raw, .. }) | Location::Payload { len, .. }) => {
            Some(len)
        }
        (None, _) => None,
    };
    let impossible = |len| match place {
        Location::Source(span) => known.is_none() && !may_hold(span, len),
        _ => known.is_none(),
    };
    match (len, known) {
        (Some(len), known) if known.is_some_and(|known| known != len) || impossible(len) => {
            let error = Error::corrupt("numpy-length", "the array length does not match its shape")
                .expected(format_args!("{len} bytes"));
            Err(match (known, place) {
                (Some(known), _) => error.found(format_args!("{known} bytes")),
                (None, Location::Source(span)) => error.found(format_args!("{} bytes of text", span.len)),
                _ => error,
            })
        }
        (Some(len), _) | (None, Some(len)) => Ok(Some(Payload { len, place, short })),
        (None, None) => Ok(None),
    }
}

fn is_latin1(graph: &Graph, codec: ObjectId) -> bool {
    matches!(graph.text(codec), Some("latin1" | "latin-1" | "iso-8859-1"))
}

fn latin1(text: &str) -> Option<Box<[u8]>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

fn describe(graph: &Graph, id: ObjectId) -> Result<Dtype> {
    let bad = || corrupt("malformed numpy dtype");
    let (("numpy", "dtype"), &[code, ..]) = graph.call(id).ok_or_else(bad)? else { return Err(bad()) };
    let inert = |descr: &str| Dtype { descr: descr.into(), dtype: None, endian: Endian::Little };
    // User-defined dtypes are named by their class.
    if let Some((module, name)) = graph.global(code) {
        let mut described = inert(name);
        described.dtype = if module == "ml_dtypes" { added(name) } else { None };
        return Ok(described);
    }
    let code = graph.text(code).ok_or_else(bad)?;
    let mut described = inert(code);
    let states = graph.made(id).map_or(&[][..], |made| &made.states);
    match *states {
        [] => {}
        [state] => {
            let [version, endian, subtype, names, fields, ..] = *graph.tuple(state).ok_or_else(bad)? else {
                return Err(bad());
            };
            graph.int(version).ok_or_else(bad)?;
            if [subtype, names, fields] != [ObjectId::NONE; 3] {
                return Ok(described);
            }
            described.endian = match graph.text(endian) {
                Some("<" | "|" | "=") => Endian::Little,
                Some(">") => Endian::Big,
                _ => return Err(bad()),
            };
        }
        _ => return Err(bad()),
    }
    described.dtype = DType::from_numpy_code(code);
    if described.dtype.is_some_and(|dtype| dtype.swap_unit() == 1) {
        described.endian = Endian::Little;
    }
    Ok(described)
}

/// The dtype that package `ml_dtypes` adds under this name.
fn added(name: &str) -> Option<DType> {
    Some(match name {
        "bfloat16" => DType::BF16,
        "float8_e4m3fn" => DType::F8E4M3,
        "float8_e5m2" => DType::F8E5M2,
        "float8_e8m0fnu" => DType::F8E8M0,
        "float8_e4m3fnuz" => DType::F8E4M3Fnuz,
        "float8_e5m2fnuz" => DType::F8E5M2Fnuz,
        _ => return None,
    })
}

/// Returns the array of a tensor with LoD, which Paddle writes inside a structure as
/// `eval("data", {"data": array})`. Evaluating that returns the array and runs nothing else.
pub fn lod_tensor(graph: &Graph, id: ObjectId) -> Option<ObjectId> {
    let (("__builtin__" | "builtins", "eval"), &[text, names]) = graph.call(id)? else { return None };
    let (Some("data"), Object::Dict(pairs)) = (graph.text(text), graph.object(names)) else { return None };
    match pairs.as_slice() {
        [(key, value)] if graph.text(*key) == Some("data") => Some(*value),
        _ => None,
    }
}

/// Returns true if [`lod_tensor`] matches, and the call has no other parts.
pub(crate) fn is_lod_tensor(graph: &Graph, id: ObjectId) -> bool {
    let plain = graph.made(id).is_some_and(|m| {
        m.how == ReduceKind::Reduce && m.states.is_empty() && m.items.is_empty() && m.pairs.is_empty()
    });
    plain && lod_tensor(graph, id).is_some()
}
