//! Two tensors of one shape, element by element, in bounded memory.

use crate::checkpoint::TensorEntry;
use crate::engine::{Scratch, read_into, verify_tensor};
use crate::error::Result;
use crate::ops::decode::decode;
use crate::ops::{hash, number_json, parallel};
use crate::tensor::{DType, Order, Region};
use serde_json::{Value as Json, json};

/// Bytes of a block where both files have one order.
const BLOCK: u64 = 4 << 20;
/// Bytes of a block where they have not: long enough runs are left in the other file.
const REORDERED_BLOCK: u64 = 32 << 20;
/// Elements that are decoded at once, so that they stay in the first cache.
const CHUNK: usize = 2048;

/// What counts as near enough: `|a - b| <= absolute + relative * |b|`, where `b` is the value on the
/// right.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tolerance {
    /// The absolute part.
    pub absolute: f64,
    /// The part that grows with the value.
    pub relative: f64,
}

impl Tolerance {
    fn admits(self, a: f64, b: f64, distance: f64) -> bool {
        a == b || (a.is_nan() && b.is_nan()) || distance <= self.absolute + self.relative * b.abs()
    }
}

/// How far the values of two tensors of one shape are apart. Booleans count as 0 and 1. Measures are
/// taken over the places where both are finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// Elements of one tensor.
    pub elements: u64,
    /// True where the types are the same and every bit is.
    pub same_bits: bool,
    /// Places where the values are further apart than the tolerance; two NaN are not apart.
    pub beyond: u64,
    /// Places where both are finite.
    pub finite: u64,
    /// The largest distance.
    pub max_abs: f64,
    /// The place of the largest distance, where there is any.
    pub at: Option<Vec<u64>>,
    /// The largest distance as a share of the larger of the two.
    pub max_relative: f64,
    /// The mean distance.
    pub mean_abs: f64,
    /// The cosine of the angle between the tensors as vectors; `None` where one of them is zero, and
    /// for complex numbers.
    pub cosine: Option<f64>,
    /// The largest distance in steps from one number of the type to the next; `None` unless both are of
    /// one type among f16, bf16, f32 and f64.
    pub max_ulp: Option<u64>,
    /// NaN on the left.
    pub nan_left: u64,
    /// NaN on the right.
    pub nan_right: u64,
    /// Places where only one side has NaN.
    pub nan_moved: u64,
    /// Places where one side is infinite and the other is not the same.
    pub infinite_apart: u64,
}

impl Values {
    /// As it stands in the JSON of a report.
    pub fn to_json(&self) -> Json {
        json!({
            "elements": self.elements, "same_bits": self.same_bits, "beyond": self.beyond, "finite": self.finite,
            "max_abs": number_json(self.max_abs), "at": self.at, "max_relative": number_json(self.max_relative),
            "mean_abs": number_json(self.mean_abs), "cosine": self.cosine.map(number_json),
            "max_ulp": self.max_ulp, "nan_left": self.nan_left, "nan_right": self.nan_right,
            "nan_moved": self.nan_moved, "infinite_apart": self.infinite_apart,
        })
    }

    /// Two tensors that are the same to the bit, without looking at what the bits say.
    fn same(elements: u64) -> Self {
        Self { same_bits: true, ..Part { elements, ..Part::default() }.into_values(false, false) }
    }
}

/// Reads both tensors, which have one shape, and says how far they are apart. Memory is bounded whatever
/// their size. Equal tensors are read once; of others, equal blocks are read again for the cosine.
///
/// `None` where elements share bytes and differ: such values have no order that could be compared.
///
/// # Errors
/// What the sources say, and [`crate::Kind::Corrupt`] where bytes do not fit their checksum.
pub(super) fn compare(
    left: &TensorEntry,
    right: &TensorEntry,
    tolerance: Tolerance,
    threads: usize,
) -> Result<Option<Values>> {
    verify_tensor(left)?;
    verify_tensor(right)?;
    let (Some(size), Some(other)) = (left.dtype().size(), right.dtype().size()) else {
        let same = left.dtype() == right.dtype() && hash::sha256(left)? == hash::sha256(right)?;
        return Ok(same.then(|| Values::same(left.elements())));
    };
    let same_type = left.dtype() == right.dtype();
    let order = left.order();
    let reordered = order != right.order() && !left.shape.is_order_free();
    let most = if reordered { REORDERED_BLOCK } else { BLOCK } / size.max(other) as u64;
    let work = Work { left, right, order, most: most.max(1), threads, tolerance };

    let mut first = work.run(|_| true, same_type)?;
    let skipped = std::mem::take(&mut first.equal);
    if first.parts.is_empty() && same_type {
        return Ok(Some(Values::same(left.elements())));
    }
    let mut parts = first.parts;
    parts.extend(work.run(|number| skipped.binary_search(&number).is_ok(), false)?.parts);
    parts.sort_by_key(|(number, _)| *number);
    let whole = parts.into_iter().fold(Part::default(), |whole, (_, part)| whole.with(part));
    let ulp = same_type && steps(left.dtype()).is_some();
    let complex = [left.dtype(), right.dtype()].iter().any(|t| matches!(t, DType::C64 | DType::C128));
    Ok(Some(whole.into_values(ulp, !complex)))
}

/// Two tensors and how to go through them.
struct Work<'a> {
    left: &'a TensorEntry,
    right: &'a TensorEntry,
    order: Order,
    /// Elements of a block.
    most: u64,
    threads: usize,
    tolerance: Tolerance,
}

/// What a worker gathers: the parts by the number of their block, and the blocks that are equal.
#[derive(Default)]
struct Gathered {
    parts: Vec<(usize, Part)>,
    equal: Vec<usize>,
    scratch: Scratch,
    bytes: [Vec<u8>; 2],
    numbers: [Vec<f64>; 2],
}

impl Work<'_> {
    /// Goes through the blocks that are `wanted`. With `skip`, those that are equal to the bit are only
    /// listed.
    fn run(&self, wanted: impl Fn(usize) -> bool + Sync, skip: bool) -> Result<Gathered> {
        let mut pieces = self.left.pieces.iter().chain(&self.right.pieces);
        let workers = match pieces.any(|piece| piece.source.is_sequential()) {
            true => 1,
            false => parallel::workers(self.threads, self.left.elements().div_ceil(self.most)),
        };
        let blocks = Region::blocks(&self.left.shape, self.order, self.most).enumerate();
        let blocks = blocks.filter(|(number, _)| wanted(*number)).collect::<Vec<_>>();
        let all = parallel::each(blocks.into_iter(), workers, |own: &mut Gathered, _, (number, block)| {
            for (entry, bytes) in [self.left, self.right].into_iter().zip(&mut own.bytes) {
                bytes.clear();
                read_into(entry, &block, self.order, &mut own.scratch, bytes)?;
            }
            if skip && own.bytes[0] == own.bytes[1] {
                own.equal.push(number);
            } else {
                let part = self.part(own, &block);
                own.parts.push((number, part));
            }
            Ok(())
        })?;
        let mut gathered = Gathered::default();
        for own in all {
            gathered.parts.extend(own.parts);
            gathered.equal.extend(own.equal);
        }
        gathered.equal.sort_unstable();
        Ok(gathered)
    }

    fn part(&self, own: &mut Gathered, block: &Region) -> Part {
        let types = [self.left.dtype(), self.right.dtype()];
        let sizes = types.map(|t| t.size().unwrap_or(1));
        let mut part = Part::default();
        let chunks = own.bytes[0].chunks(CHUNK * sizes[0]).zip(own.bytes[1].chunks(CHUNK * sizes[1]));
        for (number, (a, b)) in chunks.enumerate() {
            let before = part.max_abs;
            let place = if types.iter().all(|t| matches!(t, DType::I64 | DType::U64)) {
                part.add_wide(types, a, b, self.tolerance)
            } else if types[0] == types[1] && matches!(types[0], DType::C64 | DType::C128) {
                part.add_complex(types[0], a, b, &mut own.numbers, self.tolerance)
            } else {
                decode(types[0], a, &mut own.numbers[0]);
                decode(types[1], b, &mut own.numbers[1]);
                part.add(&own.numbers[0], &own.numbers[1], self.tolerance)
            };
            if types[0] == types[1] {
                part.max_ulp = part.max_ulp.max(most_steps(types[0], a, b));
            }
            if part.max_abs > before
                && let Some(place) = place
            {
                part.at = Some(index(block, self.order, (number * CHUNK + place) as u64));
            }
        }
        part
    }
}

/// The index in the tensor of the element `place` of `block`, counted in `order`.
fn index(block: &Region, order: Order, mut place: u64) -> Vec<u64> {
    let mut index = block.start.clone();
    let rank = index.len();
    let axes: Box<dyn Iterator<Item = usize>> = match order {
        Order::Row => Box::new((0..rank).rev()),
        Order::Column => Box::new(0..rank),
    };
    for axis in axes {
        let extent = block.extent[axis].max(1);
        index[axis] += place % extent;
        place /= extent;
    }
    index
}

/// What is known of some elements.
#[derive(Debug, Clone, Default)]
struct Part {
    elements: u64,
    beyond: u64,
    finite: u64,
    max_abs: f64,
    at: Option<Vec<u64>>,
    max_relative: f64,
    sum_abs: f64,
    dot: f64,
    squares: [f64; 2],
    max_ulp: u64,
    nan: [u64; 2],
    nan_moved: u64,
    infinite_apart: u64,
}

impl Part {
    /// Adds pairs of values, and gives the place among them of the largest distance so far.
    fn add(&mut self, left: &[f64], right: &[f64], tolerance: Tolerance) -> Option<usize> {
        let mut place = None;
        for (number, (&a, &b)) in left.iter().zip(right).enumerate() {
            self.one(a, b, (a - b).abs(), tolerance, number, &mut place);
        }
        place
    }

    /// As [`add`](Self::add) for 64-bit integers, whose distance `f64` would round.
    #[allow(clippy::cast_precision_loss)]
    fn add_wide(
        &mut self,
        types: [DType; 2],
        left: &[u8],
        right: &[u8],
        tolerance: Tolerance,
    ) -> Option<usize> {
        let wide = |dtype, bytes: &[u8; 8]| match dtype {
            DType::U64 => i128::from(u64::from_le_bytes(*bytes)),
            _ => i128::from(i64::from_le_bytes(*bytes)),
        };
        let mut place = None;
        for (number, (a, b)) in left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0).enumerate() {
            let (a, b) = (wide(types[0], a), wide(types[1], b));
            // Different integers may be one as `f64`: what they are apart tells.
            let distance = a.abs_diff(b) as f64;
            let near = self.beyond;
            self.one(a as f64, b as f64, distance, tolerance, number, &mut place);
            if self.beyond == near && distance > tolerance.absolute + tolerance.relative * (b as f64).abs() {
                self.beyond += 1;
            }
        }
        place
    }

    /// As [`add`](Self::add) for complex numbers: what counts is the modulus of their difference.
    fn add_complex(
        &mut self,
        dtype: DType,
        left: &[u8],
        right: &[u8],
        numbers: &mut [Vec<f64>; 2],
        tolerance: Tolerance,
    ) -> Option<usize> {
        let half = if dtype == DType::C64 { DType::F32 } else { DType::F64 };
        decode(half, left, &mut numbers[0]);
        decode(half, right, &mut numbers[1]);
        let mut place = None;
        let (left, right) = (numbers[0].as_chunks::<2>().0, numbers[1].as_chunks::<2>().0);
        for (number, (a, b)) in left.iter().zip(right).enumerate() {
            let modulus =
                |z: &[f64; 2]| if z.iter().any(|x| x.is_nan()) { f64::NAN } else { z[0].hypot(z[1]) };
            let distance = (a[0] - b[0]).hypot(a[1] - b[1]);
            let (one, other) = (modulus(a), modulus(b));
            let near = self.beyond;
            self.one(one, other, distance, tolerance, number, &mut place);
            if self.beyond == near && distance > tolerance.absolute + tolerance.relative * other {
                self.beyond += 1;
            }
        }
        place
    }

    fn one(
        &mut self,
        a: f64,
        b: f64,
        distance: f64,
        tolerance: Tolerance,
        number: usize,
        place: &mut Option<usize>,
    ) {
        self.elements += 1;
        self.beyond += u64::from(!tolerance.admits(a, b, distance));
        if a.is_finite() && b.is_finite() {
            self.finite += 1;
            self.dot += a * b;
            self.squares[0] += a * a;
            self.squares[1] += b * b;
            self.sum_abs += distance;
            if distance > self.max_abs {
                self.max_abs = distance;
                *place = Some(number);
            }
            if distance > 0.0 {
                self.max_relative = self.max_relative.max(distance / a.abs().max(b.abs()));
            }
            return;
        }
        self.nan[0] += u64::from(a.is_nan());
        self.nan[1] += u64::from(b.is_nan());
        if a.is_nan() != b.is_nan() {
            self.nan_moved += 1;
        } else if !a.is_nan() && a != b {
            self.infinite_apart += 1;
        }
    }

    fn with(self, next: Self) -> Self {
        let further = next.max_abs > self.max_abs;
        Self {
            elements: self.elements + next.elements,
            beyond: self.beyond + next.beyond,
            finite: self.finite + next.finite,
            max_abs: self.max_abs.max(next.max_abs),
            at: if further { next.at } else { self.at },
            max_relative: self.max_relative.max(next.max_relative),
            sum_abs: self.sum_abs + next.sum_abs,
            dot: self.dot + next.dot,
            squares: [self.squares[0] + next.squares[0], self.squares[1] + next.squares[1]],
            max_ulp: self.max_ulp.max(next.max_ulp),
            nan: [self.nan[0] + next.nan[0], self.nan[1] + next.nan[1]],
            nan_moved: self.nan_moved + next.nan_moved,
            infinite_apart: self.infinite_apart + next.infinite_apart,
        }
    }

    #[allow(clippy::cast_precision_loss)] // a count of elements
    fn into_values(self, ulp: bool, cosine: bool) -> Values {
        let lengths = self.squares[0].sqrt() * self.squares[1].sqrt();
        Values {
            elements: self.elements,
            same_bits: false,
            beyond: self.beyond,
            finite: self.finite,
            max_abs: self.max_abs,
            at: self.at,
            max_relative: self.max_relative,
            mean_abs: if self.finite == 0 { 0.0 } else { self.sum_abs / self.finite as f64 },
            cosine: (cosine && lengths > 0.0 && lengths.is_finite())
                .then(|| (self.dot / lengths).clamp(-1.0, 1.0)),
            max_ulp: ulp.then_some(self.max_ulp),
            nan_left: self.nan[0],
            nan_right: self.nan[1],
            nan_moved: self.nan_moved,
            infinite_apart: self.infinite_apart,
        }
    }
}

/// Bytes of an element, of the types whose numbers are counted in steps.
fn steps(dtype: DType) -> Option<usize> {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64).then(|| dtype.size()).flatten()
}

/// The most steps between two finite numbers in one place; 0 for other types.
fn most_steps(dtype: DType, left: &[u8], right: &[u8]) -> u64 {
    macro_rules! most {
        ($bits:ty, $wide:ty, $size:literal, $infinity:expr) => {{
            const SIGN: $bits = 1 << (<$bits>::BITS - 1);
            let infinity: $bits = $infinity;
            // The numbers in their order: zero in the middle, both zeros one.
            let place = |bits: $bits| match bits & SIGN {
                0 => <$wide>::from(bits),
                _ => -<$wide>::from(bits & !SIGN),
            };
            let pairs = left.as_chunks::<$size>().0.iter().zip(right.as_chunks::<$size>().0);
            let apart = pairs.map(|(a, b)| {
                let (a, b) = (<$bits>::from_le_bytes(*a), <$bits>::from_le_bytes(*b));
                match a & !SIGN < infinity && b & !SIGN < infinity {
                    true => u64::try_from(place(a).abs_diff(place(b))).unwrap_or(u64::MAX),
                    false => 0,
                }
            });
            apart.max().unwrap_or(0)
        }};
    }
    match dtype {
        DType::F16 => most!(u16, i32, 2, 0x7c00),
        DType::BF16 => most!(u16, i32, 2, 0x7f80),
        DType::F32 => most!(u32, i64, 4, 0x7f80_0000),
        DType::F64 => most!(u64, i128, 8, 0x7ff0_0000_0000_0000),
        _ => 0,
    }
}
