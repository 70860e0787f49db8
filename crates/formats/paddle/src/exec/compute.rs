//! Computing operators: tensors in memory, computed block by block.

use super::element::put;
use super::scope::Value;
use std::fmt::Display;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath, Value as Known};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{
    Cast, DType, Element, Encoding, Order, Region, Rounding, Shape, cast as cast_bytes,
};
use weighbridge_io::source::{MemorySource, SourceRef, to_usize};

/// Number of elements computed at once.
const BLOCK_ELEMENTS: u64 = 1 << 18;

/// Scales complex elements with the arithmetic of C++.
macro_rules! complex {
    ($t:ty, $block:expr, $scale:expr, $bias:expr, $bias_after_scale:expr) => {{
        const HALF: usize = size_of::<$t>();
        let numbers = |bytes: &[u8]| -> Vec<($t, $t)> {
            let halves = bytes.as_chunks::<HALF>().0.as_chunks::<2>().0;
            halves.iter().map(|&[re, im]| (<$t>::from_le_bytes(re), <$t>::from_le_bytes(im))).collect()
        };
        let times = |(a, b): ($t, $t), (c, d): ($t, $t)| (a * c - b * d, a * d + b * c);
        let plus = |(a, b): ($t, $t), (c, d): ($t, $t)| (a + c, b + d);
        let (s, b) = (*numbers($scale).first()?, *numbers($bias).first()?);
        let one = |x| {
            let (re, im) = if $bias_after_scale { plus(times(x, s), b) } else { times(plus(x, b), s) };
            [re.to_le_bytes(), im.to_le_bytes()].concat()
        };
        numbers($block).into_iter().flat_map(one).collect()
    }};
}

/// Rounding mode and memory budget of computations.
#[derive(Debug)]
pub(super) struct Computer {
    pub(super) rounding: Rounding,
    /// Maximum total length in bytes of all results of a run.
    pub(super) memory: u64,
    pub(super) used: u64,
}

/// `scale` and `bias`, and their order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scaling {
    pub(super) scale: Element,
    pub(super) bias: f64,
    pub(super) bias_after_scale: bool,
}

impl Computer {
    /// Charges the value of a variable: vocabularies, LoD and row indices are copied for each variable.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`], `memory`.
    pub(super) fn charge(&mut self, value: &Value) -> Result<()> {
        /// Overhead of a word or a number in bytes.
        const OVERHEAD: u64 = 48;
        fn numbers(value: &Known) -> u64 {
            match value {
                Known::List(list) => list.iter().map(numbers).fold(OVERHEAD, u64::saturating_add),
                _ => OVERHEAD,
            }
        }
        let need = match value {
            Value::Words(words) => {
                let word = |(word, _): &(Name, i32)| word.as_bytes().len() as u64 + OVERHEAD;
                words.iter().map(word).fold(OVERHEAD, u64::saturating_add)
            }
            Value::Tensor(entry) => entry.attributes.values().map(numbers).fold(0, u64::saturating_add),
        };
        self.take_bytes(need, "vocabularies, LoD and row indices")
    }

    /// Returns a tensor whose elements are all `number`.
    pub(super) fn fill(&mut self, shape: Shape, dtype: DType, number: f64) -> Result<TensorEntry> {
        let mut one = Vec::new();
        put(Element::Float(number), dtype, self.rounding, &mut one).ok_or_else(|| cannot("fill", dtype))?;
        let len = self.take(&shape, dtype)?;
        let mut bytes = vec![0; len];
        if one.iter().any(|&byte| byte != 0) {
            bytes.chunks_exact_mut(one.len()).for_each(|element| element.copy_from_slice(&one));
        }
        dense(shape, dtype, bytes)
    }

    /// Casts the elements of a tensor to the type `to`. Casts to floats are deferred until the elements are needed;
    /// nothing is read here.
    pub(super) fn cast(&mut self, entry: &TensorEntry, to: DType) -> Result<TensorEntry> {
        let from = entry.dtype();
        if from == to {
            return Ok(entry.clone());
        }
        // Integers wrap as in Paddle; 8-bit floats are not supported here.
        if from.cast_is_supported(to) && matches!(to, DType::F16 | DType::BF16 | DType::F32 | DType::F64) {
            // Only one cast can be deferred.
            let mut result = if entry.cast.is_some() {
                self.each(entry, from, |block| Ok(block.to_vec()))?
            } else {
                entry.clone()
            };
            result.cast = Some(Cast { to, rounding: self.rounding });
            return Ok(result);
        }
        let rounding = self.rounding;
        let none = || {
            Error::unsupported("no-such-cast", format!("cannot cast {from} to {to}"))
                .hint("casts are supported between the booleans, integers and floats of Paddle 2.6.2")
        };
        if !put_is_supported(from, to) {
            return Err(none());
        }
        self.each(entry, to, |block| {
            let count = block.len() / from.size().unwrap_or(1);
            let mut out = Vec::with_capacity(count * to.size().unwrap_or(1));
            for index in 0..count {
                let element = from.element_at(block, index).ok_or_else(none)?;
                put(element, to, rounding, &mut out).ok_or_else(none)?;
            }
            Ok(out)
        })
    }

    /// Computes every element times `scale` plus `bias`, in the type of the tensor.
    pub(super) fn scale(&mut self, entry: &TensorEntry, scaling: Scaling) -> Result<TensorEntry> {
        let (dtype, rounding) = (entry.dtype(), self.rounding);
        let typed = |number: Element| {
            let mut out = Vec::new();
            put(number, dtype, rounding, &mut out).ok_or_else(|| cannot("scale", dtype)).map(|()| out)
        };
        let scale = typed(scaling.scale)?;
        let bias = typed(Element::Float(scaling.bias))?;
        self.each(entry, dtype, |block| {
            scaled(dtype, block, &scale, &bias, scaling.bias_after_scale, rounding)
                .ok_or_else(|| cannot("scale", dtype))
        })
    }

    /// Returns the only element of a tensor.
    pub(super) fn single(entry: &TensorEntry) -> Result<Element> {
        let wrong = |what: &str| {
            Error::mismatch("scale-tensor", what).found(format_args!("{} {}", entry.dtype(), entry.shape))
        };
        if entry.shape.elements() != Some(1) {
            return Err(wrong("the scale tensor must have one element"));
        }
        entry.verify_tensor()?;
        let bytes = entry.read_region(&Region::whole(&entry.shape), Order::Row)?;
        DType::element_at(entry.dtype(), &bytes, 0)
            .ok_or_else(|| wrong("the scale tensor has no numeric element"))
    }

    /// Maps the blocks of a tensor. Shape and attributes are kept.
    fn each(
        &mut self,
        entry: &TensorEntry,
        to: DType,
        make: impl Fn(&[u8]) -> Result<Vec<u8>>,
    ) -> Result<TensorEntry> {
        let len = self.take(&entry.shape, to)?;
        entry.verify_tensor()?;
        let mut bytes = Vec::with_capacity(len);
        for region in Region::blocks(&entry.shape, Order::Row, BLOCK_ELEMENTS) {
            bytes.extend_from_slice(&make(&entry.read_region(&region, Order::Row)?)?);
        }
        let mut result = dense(entry.shape.clone(), to, bytes)?;
        result.attributes = entry.attributes.clone();
        Ok(result)
    }

    /// Charges memory for a result, and returns its length in bytes.
    fn take(&mut self, shape: &Shape, dtype: DType) -> Result<usize> {
        let len = shape.bytes(dtype).unwrap_or(u64::MAX);
        self.take_bytes(len, format_args!("{dtype} {shape}"))?;
        to_usize(len)
    }

    fn take_bytes(&mut self, len: u64, what: impl Display) -> Result<()> {
        let used = self.used.saturating_add(len);
        if used > self.memory {
            return Err(Error::limit("memory", "the results of the program exceed the memory budget")
                .expected(format_args!("at most {} bytes", self.memory))
                .found(format_args!("{what}, {used} bytes with earlier results"))
                .hint("if you trust the program, raise the memory budget"));
        }
        self.used = used;
        Ok(())
    }
}

fn dense(shape: Shape, dtype: DType, bytes: Vec<u8>) -> Result<TensorEntry> {
    let source: SourceRef = Arc::new(MemorySource::new("memory", bytes));
    TensorEntry::dense(TensorPath::value(), dtype, shape, &source, 0, Encoding::ROW)
}

fn cannot(what: &str, dtype: DType) -> Error {
    Error::unsupported("operator-dtype", format!("cannot {what} tensors of type {dtype}"))
        .hint("Paddle 2.6.2 computes with bool, u8, i8, i16, i32, i64, f16, bf16, f32, f64, c64 and c128")
}

fn put_is_supported(from: DType, to: DType) -> bool {
    let zero = [0; 16];
    let element = from.size().and_then(|size| from.element_at(zero.get(..size)?, 0));
    let complex = matches!(to, DType::C64 | DType::C128);
    !complex && element.is_some_and(|e| put(e, to, Rounding::default(), &mut Vec::new()).is_some())
}

/// Scales a block of elements. `scale` and `bias` are elements of the same type.
fn scaled(
    dtype: DType,
    block: &[u8],
    scale: &[u8],
    bias: &[u8],
    bias_after_scale: bool,
    rounding: Rounding,
) -> Option<Vec<u8>> {
    macro_rules! each {
        ($t:ty, $times:expr, $plus:expr) => {{
            const SIZE: usize = size_of::<$t>();
            let number = |bytes: [u8; SIZE]| <$t>::from_le_bytes(bytes);
            let (s, b) = (number(scale.try_into().ok()?), number(bias.try_into().ok()?));
            let one = |bytes: &[u8; SIZE]| {
                let x = number(*bytes);
                let y = if bias_after_scale { $plus($times(x, s), b) } else { $times($plus(x, b), s) };
                y.to_le_bytes()
            };
            block.as_chunks::<SIZE>().0.iter().flat_map(one).collect()
        }};
    }
    let step =
        |block: &[u8], other: &[u8], op: fn(f32, f32) -> f32| narrow_step(dtype, block, other, rounding, op);
    Some(match dtype {
        DType::U8 => each!(u8, u8::wrapping_mul, u8::wrapping_add),
        DType::I8 => each!(i8, i8::wrapping_mul, i8::wrapping_add),
        DType::I16 => each!(i16, i16::wrapping_mul, i16::wrapping_add),
        DType::I32 => each!(i32, i32::wrapping_mul, i32::wrapping_add),
        DType::I64 => each!(i64, i64::wrapping_mul, i64::wrapping_add),
        DType::F32 => each!(f32, |a, b| a * b, |a, b| a + b),
        DType::F64 => each!(f64, |a, b| a * b, |a, b| a + b),
        // Both steps round.
        DType::F16 | DType::BF16 if bias_after_scale => {
            step(&step(block, scale, |a, b| a * b)?, bias, |a, b| a + b)?
        }
        DType::F16 | DType::BF16 => step(&step(block, bias, |a, b| a + b)?, scale, |a, b| a * b)?,
        // Booleans multiply by `and`, and add by `or`.
        DType::Bool => {
            let (s, b) = (scale != [0], bias != [0]);
            let one =
                |&x: &u8| u8::from(if bias_after_scale { x != 0 && s || b } else { (x != 0 || b) && s });
            block.iter().map(one).collect()
        }
        DType::C64 => complex!(f32, block, scale, bias, bias_after_scale),
        DType::C128 => complex!(f64, block, scale, bias, bias_after_scale),
        _ => return None,
    })
}

/// Combines 16-bit elements with a number: each becomes an `f32`, and the result is rounded again.
fn narrow_step(
    dtype: DType,
    block: &[u8],
    other: &[u8],
    rounding: Rounding,
    op: fn(f32, f32) -> f32,
) -> Option<Vec<u8>> {
    let (mut wide, mut number) = (Vec::new(), Vec::new());
    cast_bytes(block, dtype, DType::F32, &mut wide)?;
    cast_bytes(other, dtype, DType::F32, &mut number)?;
    let number = f32::from_le_bytes(number.try_into().ok()?);
    for element in wide.as_chunks_mut::<4>().0 {
        *element = op(f32::from_le_bytes(*element), number).to_le_bytes();
    }
    let mut narrow = Vec::new();
    cast_bytes(&wide, DType::F32, Cast { to: dtype, rounding }, &mut narrow)?;
    Some(narrow)
}
