//! Shape arithmetic on known elements, computed while exporting.

use super::builder::{Attrs, Value};
use super::infer::{Read, front};
use crate::constant::{Constant, Data};
use crate::dtype;
use weighbridge_core::tensor::DType;

/// Maximum elements of an operand.
const MAX: usize = 1 << 12;

/// Returns the result of a node whose operands are known; `None` if it must run.
pub(super) fn fold(kind: &str, inputs: &[&Value], attributes: &Attrs) -> Option<Constant> {
    let read = Read(attributes);
    if kind == "Shape" && attributes.is_empty() {
        return inputs.first()?.sizes().map(|sizes| Constant::ints(&sizes));
    }
    let constants: Vec<&Constant> =
        inputs.iter().map(|value| value.constant.as_deref()).collect::<Option<_>>()?;
    if constants.iter().any(|constant| constant.len() > MAX) {
        return None;
    }
    let x = constants.first()?;
    match kind {
        "Add" | "Sub" | "Mul" | "Div" | "Min" | "Max" => arithmetic(kind, &constants),
        "Cast" => {
            let to = dtype::from_number(read.int("to", 1))?;
            // Conversions of values outside the range differ between runtimes.
            let fits = to.is_float() || matches!(to, DType::I64 | DType::Bool) || in_range(x, to);
            (fits && !to.name().starts_with('c')).then(|| x.cast(to))
        }
        "Reshape" => {
            let sizes = resolve(&x.shape, constants.get(1)?.as_ints()?, x.len())?;
            Some(Constant { shape: sizes, ..(*x).clone() })
        }
        "Unsqueeze" => {
            let axes = constants.get(1)?.as_ints()?;
            let rank = x.shape.len() + axes.len();
            let mut places: Vec<usize> = axes.iter().map(|a| front(*a, rank)).collect::<Option<_>>()?;
            places.sort_unstable();
            let mut shape = x.shape.clone();
            for place in places {
                (place <= shape.len()).then(|| shape.insert(place, 1))?;
            }
            Some(Constant { shape, ..(*x).clone() })
        }
        "Squeeze" => {
            let axes = constants.get(1)?.as_ints()?;
            let rank = x.shape.len();
            let places: Vec<usize> = axes.iter().map(|a| front(*a, rank)).collect::<Option<_>>()?;
            let all_ones = places.iter().all(|place| x.shape.get(*place) == Some(&1));
            let kept = x.shape.iter().enumerate().filter(|(place, _)| !places.contains(place));
            all_ones.then(|| Constant { shape: kept.map(|(_, s)| *s).collect(), ..(*x).clone() })
        }
        "Concat" => concat(&constants, read.int("axis", 0)),
        "Gather" => gather(x, constants.get(1)?, read.int("axis", 0)),
        "Slice" => slice(&constants),
        "ReduceProd" | "ReduceSum" => reduce(kind, &constants, &read),
        "Range" => range(&constants),
        "ConstantOfShape" => {
            let sizes = x.as_ints()?;
            let count = sizes.iter().try_fold(1i64, |p, s| p.checked_mul(*s))?;
            (usize::try_from(count).ok()? <= MAX).then_some(())?;
            let filler = read.tensor("value").map_or((0.0, DType::F32), |t| (t.to_floats()[0], t.dtype));
            Some(Constant::filled(filler.0, filler.1, sizes))
        }
        "Neg" => match &x.data {
            Data::Ints(values) => Some(Constant {
                data: Data::Ints(values.iter().map(|v| v.checked_neg()).collect::<Option<_>>()?),
                ..(*x).clone()
            }),
            Data::Floats(values) => {
                Some(Constant { data: Data::Floats(values.iter().map(|v| -v).collect()), ..(*x).clone() })
            }
        },
        "Identity" => Some((*x).clone()),
        _ => None,
    }
}

/// Returns true if all elements fit an integer dtype.
fn in_range(x: &Constant, to: DType) -> bool {
    let (low, high) = match to {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::U16 => (0.0, 65535.0),
        DType::I32 => (-2_147_483_648.0, 2_147_483_647.0),
        DType::U32 => (0.0, 4_294_967_295.0),
        _ => return false,
    };
    x.to_floats().iter().all(|v| *v >= low && *v <= high)
}

/// Returns sizes with 0 and -1 replaced.
fn resolve(own: &[i64], sizes: &[i64], count: usize) -> Option<Vec<i64>> {
    let mut out = Vec::new();
    for (place, size) in sizes.iter().enumerate() {
        out.push(if *size == 0 { *own.get(place)? } else { *size });
    }
    let count = i64::try_from(count).ok()?;
    if let Some(place) = out.iter().position(|size| *size == -1) {
        let rest: i64 = out
            .iter()
            .enumerate()
            .filter(|(p, _)| *p != place)
            .try_fold(1i64, |p, (_, s)| p.checked_mul(*s))?;
        (rest > 0 && count % rest == 0).then(|| out[place] = count / rest)?;
    }
    (out.iter().try_fold(1i64, |p, s| p.checked_mul(*s))? == count).then_some(out)
}

/// Computes on operands of one shape, or with a scalar or a single element.
fn arithmetic(kind: &str, constants: &[&Constant]) -> Option<Constant> {
    let [a, b] = constants else { return None };
    let shape = match (a.shape == b.shape, a.len(), b.len()) {
        (true, ..) => &a.shape,
        (false, _, 1) if b.shape.len() <= a.shape.len() => &a.shape,
        (false, 1, _) if a.shape.len() <= b.shape.len() => &b.shape,
        _ => return None,
    };
    let count = a.len().max(b.len());
    if a.len() == 0 || b.len() == 0 {
        return None;
    }
    let data = match (&a.data, &b.data) {
        (Data::Ints(x), Data::Ints(y)) => {
            // Narrow integers wrap around.
            if !matches!(a.dtype, DType::I64 | DType::I32) {
                return None;
            }
            let one = |place: usize| {
                let (x, y) = (x[place % x.len()], y[place % y.len()]);
                let value = match kind {
                    "Add" => x.checked_add(y),
                    "Sub" => x.checked_sub(y),
                    "Mul" => x.checked_mul(y),
                    "Div" => x.checked_div(y),
                    "Min" => Some(x.min(y)),
                    _ => Some(x.max(y)),
                }?;
                (a.dtype == DType::I64 || i32::try_from(value).is_ok()).then_some(value)
            };
            Data::Ints((0..count).map(one).collect::<Option<_>>()?)
        }
        (Data::Floats(x), Data::Floats(y)) => {
            #[allow(clippy::cast_possible_truncation)]
            let one = |place: usize| {
                let (x, y) = (x[place % x.len()], y[place % y.len()]);
                let value = match kind {
                    "Add" => x + y,
                    "Sub" => x - y,
                    "Mul" => x * y,
                    "Div" => x / y,
                    "Min" => x.min(y),
                    _ => x.max(y),
                };
                if a.dtype == DType::F32 { f64::from(value as f32) } else { value }
            };
            if !matches!(a.dtype, DType::F32 | DType::F64) {
                return None;
            }
            Data::Floats((0..count).map(one).collect())
        }
        _ => return None,
    };
    Some(Constant { dtype: a.dtype, shape: shape.clone(), data })
}

/// Concatenates vectors.
fn concat(constants: &[&Constant], axis: i64) -> Option<Constant> {
    if constants.iter().any(|c| c.shape.len() != 1) || !matches!(axis, 0 | -1) {
        return None;
    }
    let first = constants.first()?;
    let length: usize = constants.iter().map(|c| c.len()).sum();
    if length > MAX {
        return None;
    }
    let shape = vec![i64::try_from(length).ok()?];
    let data = match &first.data {
        Data::Ints(_) => {
            let parts: Vec<&[i64]> = constants.iter().map(|c| c.as_ints()).collect::<Option<_>>()?;
            Data::Ints(parts.concat())
        }
        Data::Floats(_) => Data::Floats(constants.iter().flat_map(|c| c.to_floats()).collect()),
    };
    Some(Constant { dtype: first.dtype, shape, data })
}

/// Selects elements of a vector.
fn pick(x: &Constant, places: &[usize], shape: Vec<i64>) -> Option<Constant> {
    let data = match &x.data {
        Data::Ints(values) => {
            Data::Ints(places.iter().map(|p| values.get(*p).copied()).collect::<Option<_>>()?)
        }
        Data::Floats(values) => {
            Data::Floats(places.iter().map(|p| values.get(*p).copied()).collect::<Option<_>>()?)
        }
    };
    Some(Constant { dtype: x.dtype, shape, data })
}

fn gather(x: &Constant, indices: &Constant, axis: i64) -> Option<Constant> {
    if x.shape.len() != 1 || !matches!(axis, 0 | -1) {
        return None;
    }
    let places: Vec<usize> = indices.as_ints()?.iter().map(|i| front(*i, x.len())).collect::<Option<_>>()?;
    pick(x, &places, indices.shape.clone())
}

/// Returns the first place and the number of places of a slice of an axis of `size`.
pub(super) fn slice_range(size: i64, start: i64, end: i64, step: i64) -> Option<(i64, i64)> {
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let clamp = |bound: i64| {
        let bound = if bound < 0 { bound.saturating_add(size) } else { bound };
        bound.clamp(low, high)
    };
    if step == 0 || size < 0 {
        return None;
    }
    let (start, end) = (clamp(start), clamp(end));
    // A step may be as large as any number.
    let (span, step) = if step > 0 { (end - start, step) } else { (start - end, step.saturating_neg()) };
    Some((start, if span > 0 { (span - 1) / step + 1 } else { 0 }))
}

fn slice(constants: &[&Constant]) -> Option<Constant> {
    let x = constants.first()?;
    let [size] = x.shape[..] else { return None };
    let one = |place: usize, default: i64| match constants.get(place) {
        Some(constant) => match constant.as_ints()? {
            [value] => Some(*value),
            _ => None,
        },
        None => Some(default),
    };
    let (start, end, step) = (one(1, 0)?, one(2, i64::MAX)?, one(4, 1)?);
    let (start, count) = slice_range(size, start, end, step)?;
    let places: Vec<usize> =
        (0..count).map(|i| usize::try_from(start + i.checked_mul(step)?).ok()).collect::<Option<_>>()?;
    pick(x, &places, vec![count])
}

fn reduce(kind: &str, constants: &[&Constant], read: &Read<'_>) -> Option<Constant> {
    let x = constants.first()?;
    let values = x.as_ints()?;
    if x.shape.len() > 1 || x.dtype != DType::I64 {
        return None;
    }
    let value = match kind {
        "ReduceProd" => values.iter().try_fold(1i64, |p, v| p.checked_mul(*v))?,
        _ => values.iter().try_fold(0i64, |p, v| p.checked_add(*v))?,
    };
    let keep = read.int("keepdims", 1) != 0 && !x.shape.is_empty();
    Some(Constant {
        dtype: x.dtype,
        shape: if keep { vec![1] } else { Vec::new() },
        data: Data::Ints(vec![value]),
    })
}

fn range(constants: &[&Constant]) -> Option<Constant> {
    let [start, limit, step] = constants else { return None };
    let one = |constant: &Constant| constant.as_ints().and_then(|values| values.first().copied());
    let (start, limit, step) = (one(start)?, one(limit)?, one(step)?);
    if step == 0 {
        return None;
    }
    let span = i128::from(limit) - i128::from(start);
    let size = i128::from(step).abs();
    let count = if (span > 0) == (step > 0) { (span.abs() + size - 1) / size } else { 0 };
    let count =
        i64::try_from(count).ok().filter(|count| usize::try_from(*count).is_ok_and(|count| count <= MAX))?;
    let values: Option<Vec<i64>> =
        (0..count).map(|i| i.checked_mul(step).and_then(|i| start.checked_add(i))).collect();
    Some(Constant { dtype: constants[0].dtype, shape: vec![count], data: Data::Ints(values?) })
}
