//! Comparison of two tensors of one shape, element by element, in bounded memory.

use super::{Side, blame, loops};
use crate::engine::{Scratch, read_or_map};
use crate::error::Result;
use crate::ops::decode::decode;
use crate::ops::{hash, number_json, parallel};
use crate::source::MaybeMapped;
use crate::tensor::{DType, Element, Order, Region, Shape};
use crate::text::counted;
use serde_json::{Value as Json, json};

/// Maximum block size where both files have one order.
const BLOCK: u64 = if cfg!(test) { 4 << 10 } else { 4 << 20 };
/// Maximum block size where the orders differ: large enough for long runs in the other file.
const REORDERED_BLOCK: u64 = if cfg!(test) { 32 << 10 } else { 32 << 20 };
/// Number of blocks per worker: one for each side, and one for reordering.
const BLOCKS_PER_WORKER: u64 = 3;
/// Number of elements decoded at once, so that they stay in the first-level cache.
const CHUNK: usize = 2048;

/// Tolerance of equal values: `|a - b| <= absolute + relative * |b|`, where `b` is the value on the right and both are finite.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tolerance {
    /// Absolute tolerance.
    pub absolute: f64,
    /// Relative tolerance.
    pub relative: f64,
}

/// Distance of the values of two tensors of one shape. Booleans count as 0 and 1, real numbers beside complex ones as complex.
/// Distances are measured where both values are finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    /// Number of elements of one tensor.
    pub elements: u64,
    /// True where types and all bits are equal.
    pub same_bits: bool,
    /// Elements that are neither equal as numbers nor within the tolerance; two NaN are equal.
    pub beyond: u64,
    /// Elements that are finite on both sides.
    pub finite: u64,
    /// Largest absolute error.
    pub max_abs: f64,
    /// Index of the largest absolute error, where there is any.
    pub at: Option<Vec<u64>>,
    /// Largest relative error, as a fraction of the larger of the two values.
    pub max_relative: f64,
    /// Mean absolute error.
    pub mean_abs: f64,
    /// Cosine similarity of the tensors as vectors; `None` where one of them is zero, and for complex numbers.
    pub cosine: Option<f64>,
    /// Largest error in units in the last place; `None` unless both have one of the types f16, bf16, f32 and f64.
    pub max_ulp: Option<u64>,
    /// Number of NaN on the left.
    pub nan_left: u64,
    /// Number of NaN on the right.
    pub nan_right: u64,
    /// Elements that are NaN on one side only.
    pub nan_moved: u64,
    /// Index of the first such element, row-major; `None` where there is none.
    pub nan_at: Option<Vec<u64>>,
    /// Elements that are infinite on one side and different on the other.
    pub infinite_apart: u64,
    /// Index of the first such element, row-major; `None` where there is none.
    pub infinite_at: Option<Vec<u64>>,
}

impl Values {
    /// Returns the JSON of a report.
    pub fn to_json(&self) -> Json {
        json!({
            "elements": self.elements, "same_bits": self.same_bits, "beyond": self.beyond, "finite": self.finite,
            "max_abs": number_json(self.max_abs), "at": self.at, "max_relative": number_json(self.max_relative),
            "mean_abs": number_json(self.mean_abs), "cosine": self.cosine.map(number_json),
            "max_ulp": self.max_ulp, "nan_left": self.nan_left, "nan_right": self.nan_right,
            "nan_moved": self.nan_moved, "nan_at": self.nan_at,
            "infinite_apart": self.infinite_apart, "infinite_at": self.infinite_at,
        })
    }

    /// Returns texts about NaN and infinities, which distances do not cover.
    pub fn oddities(&self) -> Vec<String> {
        let mut odd = Vec::new();
        if self.nan_left + self.nan_right > 0 {
            let (left, right, moved) = (self.nan_left, self.nan_right, self.nan_moved);
            let first = first(&self.nan_at);
            odd.push(format!("NaN: {left} left, {right} right, {moved} on one side only{first}"));
        }
        if self.infinite_apart > 0 {
            let places = counted(self.infinite_apart, "place", "places");
            odd.push(format!("infinities differ at {places}{}", first(&self.infinite_at)));
        }
        odd
    }

    /// Returns the result for two identical tensors, without decoding.
    fn same(elements: u64) -> Self {
        let part = Part { elements, ..Part::default() };
        Self { same_bits: true, ..part.into_values(&Shape::new(Vec::new()), false, false) }
    }
}

/// Returns the suffix for the index of the first occurrence.
fn first(at: &Option<Vec<u64>>) -> String {
    at.as_ref().map_or_else(String::new, |at| format!(", first at {at:?}"))
}

/// Reads both tensors, which have one shape, and measures their distance.
///
/// Blocks take at most `memory` bytes in total, for tensors of any size and any number of `threads`; they do not depend on
/// `threads`. Equal tensors are read once; of others, equal blocks are read again for the cosine.
///
/// `None` where packed elements differ: they cannot be compared as numbers.
///
/// # Errors
/// Errors of the sources, and [`crate::Kind::Corrupt`] where bytes do not match their checksum.
pub(super) fn compare(
    sides: [Side<'_>; 2],
    tolerance: Tolerance,
    threads: usize,
    memory: u64,
) -> Result<Option<Values>> {
    for side in sides {
        side.0.verify_tensor().map_err(blame(side))?;
    }
    let [left, right] = sides.map(|(entry, _)| entry);
    let (Some(size), Some(other)) = (left.dtype().size(), right.dtype().size()) else {
        let hash = |side: Side<'_>| hash::sha256(side.0).map_err(blame(side));
        let same = left.dtype() == right.dtype() && hash(sides[0])? == hash(sides[1])?;
        return Ok(same.then(|| Values::same(left.elements())));
    };
    let same_type = left.dtype() == right.dtype();
    let order = left.order();
    let reordered = order != right.order() && !left.shape.is_order_free();
    let block = if reordered { REORDERED_BLOCK } else { BLOCK }.min(memory / BLOCKS_PER_WORKER).max(1);
    let most = (block / size.max(other) as u64).max(1);
    let workers = workers(sides, threads, most)
        .min(usize::try_from(memory / BLOCKS_PER_WORKER / block).unwrap_or(usize::MAX));
    let work = Work { sides, order, most, workers: workers.max(1), tolerance };

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
    Ok(Some(whole.into_values(&left.shape, ulp, !complex)))
}

/// Two tensors, with block size and number of workers.
struct Work<'a> {
    sides: [Side<'a>; 2],
    order: Order,
    /// Elements of a block.
    most: u64,
    workers: usize,
    tolerance: Tolerance,
}

/// Returns the number of workers for blocks of `most` elements.
fn workers(sides: [Side<'_>; 2], threads: usize, most: u64) -> usize {
    let [left, right] = sides.map(|(entry, _)| entry);
    match left.extents.iter().chain(&right.extents).any(|extent| extent.source.is_sequential()) {
        true => 1,
        false => parallel::workers(threads, left.elements().div_ceil(most)),
    }
}

/// Result of a worker: the parts by block number, and the equal blocks.
#[derive(Default)]
struct Gathered {
    parts: Vec<(usize, Part)>,
    equal: Vec<usize>,
    scratch: Scratch,
    bytes: [MaybeMapped; 2],
    numbers: [Vec<f64>; 2],
}

impl Work<'_> {
    /// Compares the `wanted` blocks. With `skip`, blocks that are equal bit for bit are only listed.
    fn run(&self, wanted: impl Fn(usize) -> bool + Sync, skip: bool) -> Result<Gathered> {
        let blocks = Region::blocks(&self.sides[0].0.shape, self.order, self.most).enumerate();
        let blocks = blocks.filter(|(number, _)| wanted(*number)).collect::<Vec<_>>();
        let all =
            parallel::each(blocks.into_iter(), self.workers, |own: &mut Gathered, _, (number, block)| {
                for (side, bytes) in self.sides.into_iter().zip(&mut own.bytes) {
                    let spare = std::mem::take(bytes).into_spare();
                    let held = read_or_map(side.0, &block, self.order, &mut own.scratch, spare);
                    *bytes = held.map_err(blame(side))?;
                }
                if skip && own.bytes[0].bytes() == own.bytes[1].bytes() {
                    own.equal.push(number);
                } else {
                    let part = self.part(own, &block);
                    own.parts.push((number, part));
                }
                for (side, bytes) in self.sides.into_iter().zip(&own.bytes) {
                    bytes.intact().map_err(blame(side))?;
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
        let types = self.sides.map(|(entry, _)| entry.dtype());
        let sizes = types.map(|t| t.size().unwrap_or(1));
        let mut part = Part::default();
        let chunks =
            own.bytes[0].bytes().chunks(CHUNK * sizes[0]).zip(own.bytes[1].bytes().chunks(CHUNK * sizes[1]));
        for (number, (a, b)) in chunks.enumerate() {
            let before = part.max_abs;
            let places =
                Places { block, order: self.order, shape: &self.sides[0].0.shape, before: number * CHUNK };
            let any = |wanted: &[DType]| types.iter().any(|t| wanted.contains(t));
            let is_wide = any(&[DType::I64, DType::U64]);
            let place = if any(&[DType::C64, DType::C128]) && !is_wide {
                complex(types[0], a, &mut own.numbers[0]);
                complex(types[1], b, &mut own.numbers[1]);
                part.add_complex(&own.numbers, self.tolerance, &places)
            } else if is_wide {
                part.add_wide(types, [a, b], self.tolerance, &places)
            } else {
                decode(types[0], a, &mut own.numbers[0]);
                decode(types[1], b, &mut own.numbers[1]);
                part.add(&own.numbers, self.tolerance, &places)
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

/// Returns the index in the tensor of element `place` of `block`, counted in `order`.
fn index(block: &Region, order: Order, mut place: u64) -> Vec<u64> {
    let mut index = block.start.clone();
    let rank = index.len();
    let axes: Box<dyn Iterator<Item = usize>> = match order {
        Order::Row => Box::new((0..rank).rev()),
        Order::Column => Box::new(0..rank),
    };
    for axis in axes {
        let extent = block.shape[axis].max(1);
        index[axis] += place % extent;
        place /= extent;
    }
    index
}

/// Location of a chunk in the tensor.
struct Places<'a> {
    block: &'a Region,
    order: Order,
    shape: &'a Shape,
    /// Elements of the block before the chunk.
    before: usize,
}

impl Places<'_> {
    /// Sets `first` to the position of element `number` of the chunk if that is earlier. Positions are row-major for any byte
    /// order, so that the first one does not depend on which side is which.
    fn note(&self, first: &mut Option<u64>, number: usize) {
        // Within a block of this order, later elements have later positions.
        if first.is_some() && self.order == Order::Row {
            return;
        }
        let index = index(self.block, self.order, (self.before + number) as u64);
        let place =
            index.iter().zip(self.shape.dims()).fold(0, |place: u64, (at, extent)| place * extent + at);
        *first = Some(first.map_or(place, |known| known.min(place)));
    }
}

/// Measures of some elements.
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
    /// Position of the first such element, row-major; likewise below.
    nan_at: Option<u64>,
    infinite_apart: u64,
    infinite_at: Option<u64>,
}

/// Decodes the elements as alternating real and imaginary parts.
fn complex(dtype: DType, bytes: &[u8], out: &mut Vec<f64>) {
    match dtype {
        DType::C64 => decode(DType::F32, bytes, out),
        DType::C128 => decode(DType::F64, bytes, out),
        real => {
            decode(real, bytes, out);
            *out = out.iter().flat_map(|&x| [x, 0.0]).collect();
        }
    }
}

/// Reason to record the position of a pair.
enum Odd {
    /// The largest distance so far.
    Further,
    /// NaN on one side only.
    Nan,
    /// Infinite on one side and different on the other.
    Infinite,
    No,
}

/// Returns the earlier of two positions.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Two values at one index.
struct Two {
    /// The value, or its modulus, on both sides; NaN where a part is NaN.
    a: f64,
    b: f64,
    /// The absolute error, where both are finite.
    distance: f64,
    /// True where they are not equal as numbers.
    unequal: bool,
}

impl Two {
    fn reals(a: f64, b: f64) -> Self {
        Self { a, b, distance: (a - b).abs(), unequal: a != b && !(a.is_nan() && b.is_nan()) }
    }

    fn complex(a: [f64; 2], b: [f64; 2]) -> Self {
        let is_nan = |z: [f64; 2]| z.iter().any(|x| x.is_nan());
        let modulus = |z: [f64; 2]| if is_nan(z) { f64::NAN } else { z[0].hypot(z[1]) };
        let distance = (a[0] - b[0]).hypot(a[1] - b[1]);
        Self { a: modulus(a), b: modulus(b), distance, unequal: a != b && !(is_nan(a) && is_nan(b)) }
    }

    /// Compares 64-bit integers, which `f64` would round.
    #[allow(clippy::cast_precision_loss)]
    fn exact(a: Element, b: Element) -> Self {
        let whole = |element| match element {
            Element::Bool(b) => Some(i128::from(b)),
            Element::Int(i) => Some(i),
            _ => None,
        };
        match (whole(a), whole(b)) {
            (Some(i), Some(j)) => {
                Self { a: i as f64, b: j as f64, distance: i.abs_diff(j) as f64, unequal: i != j }
            }
            (Some(i), None) => Self::whole_and_other(i, b),
            (None, Some(j)) => {
                let Self { a, b, distance, unequal } = Self::whole_and_other(j, a);
                Self { a: b, b: a, distance, unequal }
            }
            (None, None) => Self::reals(a.to_f64(), b.to_f64()),
        }
    }

    /// Compares the real part of a complex number with the integer, and the imaginary part with 0.
    fn whole_and_other(i: i128, other: Element) -> Self {
        let Element::Complex(re, im) = other else { return Self::whole_and_float(i, other.to_f64()) };
        let Self { a, distance, unequal, .. } = Self::whole_and_float(i, re);
        Self { a: a.abs(), b: other.to_f64(), distance: distance.hypot(im), unequal: unequal || im != 0.0 }
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    fn whole_and_float(i: i128, x: f64) -> Self {
        let two = Self::reals(i as f64, x);
        // Larger values are far from any 64-bit integer.
        if x.is_nan() || x.abs() > 1e30 {
            return two;
        }
        let distance = (i.saturating_sub(x.trunc() as i128) as f64 - x.fract()).abs();
        Self { distance, unequal: distance != 0.0, ..two }
    }
}

impl Part {
    /// Adds pairs of values. Returns the position among them of the largest distance so far.
    fn add(&mut self, numbers: &[Vec<f64>; 2], tolerance: Tolerance, places: &Places<'_>) -> Option<usize> {
        let [left, right] = numbers;
        let pairs = left.iter().zip(right).map(|(&a, &b)| Two::reals(a, b));
        if !(loops::all_finite(left) && loops::all_finite(right)) {
            return self.gather(pairs, tolerance, places);
        }
        let apart = loops::apart(left, right, tolerance);
        self.elements += left.len() as u64;
        self.finite += left.len() as u64;
        self.beyond += apart.beyond;
        self.max_relative = self.max_relative.max(apart.max_relative);
        self.sum_abs += apart.sum_abs;
        self.dot += apart.dot;
        self.squares[0] += apart.squares[0];
        self.squares[1] += apart.squares[1];
        if apart.max_abs <= self.max_abs {
            return None;
        }
        self.max_abs = apart.max_abs;
        pairs.map(|two| two.distance).position(|distance| distance == apart.max_abs)
    }

    /// As [`add`](Self::add), for alternating real and imaginary parts.
    fn add_complex(
        &mut self,
        numbers: &[Vec<f64>; 2],
        tolerance: Tolerance,
        places: &Places<'_>,
    ) -> Option<usize> {
        let [left, right] = numbers.each_ref().map(|list| list.as_chunks::<2>().0);
        self.gather(left.iter().zip(right).map(|(&a, &b)| Two::complex(a, b)), tolerance, places)
    }

    /// As [`add`](Self::add), where at least one side has 64-bit integers.
    fn add_wide(
        &mut self,
        types: [DType; 2],
        [left, right]: [&[u8]; 2],
        tolerance: Tolerance,
        places: &Places<'_>,
    ) -> Option<usize> {
        let pairs = (0..)
            .map_while(|at| Some((types[0].element_at(left, at)?, types[1].element_at(right, at)?)))
            .map(|(a, b)| Two::exact(a, b));
        self.gather(pairs, tolerance, places)
    }

    fn gather(
        &mut self,
        pairs: impl Iterator<Item = Two>,
        tolerance: Tolerance,
        places: &Places<'_>,
    ) -> Option<usize> {
        let mut place = None;
        for (number, two) in pairs.enumerate() {
            match self.one(&two, tolerance) {
                Odd::Further => place = Some(number),
                Odd::Nan => places.note(&mut self.nan_at, number),
                Odd::Infinite => places.note(&mut self.infinite_at, number),
                Odd::No => {}
            }
        }
        place
    }

    /// Adds a pair. Returns the reason to record its position.
    fn one(&mut self, two: &Two, tolerance: Tolerance) -> Odd {
        let &Two { a, b, distance, unequal } = two;
        self.elements += 1;
        if a.is_finite() && b.is_finite() {
            self.beyond += u64::from(unequal && distance > tolerance.absolute + tolerance.relative * b.abs());
            self.finite += 1;
            self.dot += a * b;
            self.squares[0] += a * a;
            self.squares[1] += b * b;
            self.sum_abs += distance;
            if distance > 0.0 {
                self.max_relative = self.max_relative.max(distance / a.abs().max(b.abs()));
            }
            let further = distance > self.max_abs;
            self.max_abs = if further { distance } else { self.max_abs };
            return if further { Odd::Further } else { Odd::No };
        }
        self.beyond += u64::from(unequal);
        self.nan[0] += u64::from(a.is_nan());
        self.nan[1] += u64::from(b.is_nan());
        if a.is_nan() != b.is_nan() {
            self.nan_moved += 1;
            Odd::Nan
        } else if unequal {
            self.infinite_apart += 1;
            Odd::Infinite
        } else {
            Odd::No
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
            nan_at: earlier(self.nan_at, next.nan_at),
            infinite_apart: self.infinite_apart + next.infinite_apart,
            infinite_at: earlier(self.infinite_at, next.infinite_at),
        }
    }

    #[allow(clippy::cast_precision_loss)] // a count of elements
    fn into_values(self, shape: &Shape, ulp: bool, cosine: bool) -> Values {
        let whole = Region::whole(shape);
        let place = |at: Option<u64>| at.map(|at| index(&whole, Order::Row, at));
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
            nan_at: place(self.nan_at),
            infinite_apart: self.infinite_apart,
            infinite_at: place(self.infinite_at),
        }
    }
}

/// Returns the element size of types with units in the last place.
fn steps(dtype: DType) -> Option<usize> {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64).then(|| dtype.size()).flatten()
}

/// Returns the largest error in units in the last place between finite numbers; 0 for other types.
fn most_steps(dtype: DType, left: &[u8], right: &[u8]) -> u64 {
    match dtype {
        DType::F16 => loops::most_steps_of_16(left, right, 0x7c00).into(),
        DType::BF16 => loops::most_steps_of_16(left, right, 0x7f80).into(),
        DType::F32 => loops::most_steps_of_32(left, right, 0x7f80_0000).into(),
        DType::F64 => loops::most_steps_of_64(left, right, 0x7ff0_0000_0000_0000),
        _ => 0,
    }
}
