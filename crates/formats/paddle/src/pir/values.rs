//! Types and attribute values: objects with `#`, the kind, and `D`, the data.

use super::json::{Item, Kind};
use super::model::Type;
use super::words::{NULL, bare};
use crate::dtype;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::{AttributeValue, VariableKind};

/// Parts of a type or attribute: its kind, `D`, and `VD`, which replaces `D` for numbers that JSON lacks.
struct Parts<'d> {
    kind: String,
    data: Option<Item<'d>>,
    void: Option<Item<'d>>,
}

fn parts<'d>(item: Item<'d>, what: &str) -> Result<Parts<'d>> {
    let [kind, data, void] = item.fields(what, ["#", "D", "VD"])?;
    let kind = kind.ok_or_else(|| item.missing(what, "#"))?;
    Ok(Parts { kind: bare(&kind.text("the kind")?).into_owned(), data, void })
}

/// Reads an attribute's type and value.
pub(super) fn attribute(item: Item<'_>) -> Result<(String, AttributeValue)> {
    let parts = parts(item, "an attribute")?;
    let value = value(item, &parts)?;
    Ok((parts.kind, value))
}

fn value(item: Item<'_>, parts: &Parts<'_>) -> Result<AttributeValue> {
    if parts.kind == NULL {
        return Ok(AttributeValue::None);
    }
    if let Some(void) = parts.void {
        return not_finite(void, &parts.kind);
    }
    let data = || parts.data.ok_or_else(|| item.missing("an attribute", "D"));
    Ok(match parts.kind.as_str() {
        "a_bool" => match data()?.kind() {
            Kind::True => AttributeValue::Bool(true),
            Kind::False => AttributeValue::Bool(false),
            _ => return Err(data()?.wrong("a boolean", "true or false")),
        },
        "a_i32" | "a_i64" | "a_index" => AttributeValue::Int(integer(data()?)?),
        "a_f32" => AttributeValue::Float(narrow(float(data()?)?)),
        "a_f64" => AttributeValue::Double(float(data()?)?),
        "a_str" => AttributeValue::Text(data()?.text("a text")?.into_owned()),
        "a_tensorname" => AttributeValue::Variable(data()?.text("a name")?.into_owned()),
        "a_dtype" | "a_layout" => AttributeValue::Word(data()?.text("a word")?.into_owned()),
        "a_c64" | "a_c128" => complex(data()?)?,
        "a_array" => {
            let list = data()?;
            if list.kind() != Kind::Array {
                return Err(list.wrong("a list of attributes", "an array"));
            }
            AttributeValue::List(list.elements().map(|e| Ok(attribute(e)?.1)).collect::<Result<_>>()?)
        }
        "a_type" => AttributeValue::Word(type_word(data()?)?),
        // The first element is the name of a type, not a text.
        "a_scalar" => match any(data()?)? {
            AttributeValue::List(mut list) => {
                if let Some(AttributeValue::Text(word)) = list.first() {
                    list[0] = AttributeValue::Word(word.clone());
                }
                AttributeValue::List(list)
            }
            _ => return Err(data()?.wrong("a scalar", "an array")),
        },
        _ => parts.data.map_or(Ok(AttributeValue::None), any)?,
    })
}

/// Reads NaN and infinities. Paddle 3.3.1 writes `NaN` and reads `NAN`, so case is ignored.
fn not_finite(void: Item<'_>, kind: &str) -> Result<AttributeValue> {
    let word = void.text("a non-finite number")?;
    let x = match word.to_ascii_lowercase().as_str() {
        "nan" | "-nan" => f64::NAN,
        "inf" | "infinity" => f64::INFINITY,
        "-inf" | "-infinity" => f64::NEG_INFINITY,
        _ => return Err(void.wrong("a non-finite number", "NaN, INF or -INF")),
    };
    Ok(if kind == "a_f32" { AttributeValue::Float(narrow(x)) } else { AttributeValue::Double(x) })
}

fn integer(item: Item<'_>) -> Result<i64> {
    item.integer().ok_or_else(|| item.wrong("a number", "a 64-bit integer"))
}

fn float(item: Item<'_>) -> Result<f64> {
    item.float().ok_or_else(|| item.wrong("a number", "a number within the range of 64-bit floats"))
}

/// Rounds to 32 bits after rounding to 64, as Paddle does on reading.
#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is intended")]
fn narrow(x: f64) -> f32 {
    x as f32
}

fn complex(item: Item<'_>) -> Result<AttributeValue> {
    let mut parts = item.elements();
    match (parts.next(), parts.next(), parts.next()) {
        (Some(real), Some(imaginary), None) => Ok(AttributeValue::Complex(float(real)?, float(imaginary)?)),
        _ => Err(item.wrong("a complex number", "an array of two numbers")),
    }
}

/// Reads a value of an unknown kind by its JSON type. Nesting is bounded by the scanner.
fn any(item: Item<'_>) -> Result<AttributeValue> {
    Ok(match item.kind() {
        Kind::Null => AttributeValue::None,
        Kind::True => AttributeValue::Bool(true),
        Kind::False => AttributeValue::Bool(false),
        Kind::Plain | Kind::Escaped => AttributeValue::Text(item.text("a text")?.into_owned()),
        Kind::Number => match item.integer() {
            // `1.0` is a float unless a type says otherwise.
            Some(n) if !item.raw().contains('.') => AttributeValue::Int(n),
            _ if item.raw().contains(['.', 'e', 'E']) => AttributeValue::Double(float(item)?),
            // Integers beyond 64 bits are kept as text.
            _ => AttributeValue::Word(item.raw().to_owned()),
        },
        Kind::Array => AttributeValue::List(item.elements().map(any).collect::<Result<_>>()?),
        Kind::Object => match item.fields("a value", ["#"])? {
            [Some(_)] => attribute(item)?.1,
            [None] => AttributeValue::Word(item.raw().to_owned()),
        },
    })
}

/// Returns a type as one word, such as `t_f32` or `t_dtensor<t_f32>[-1, 3]`.
fn type_word(item: Item<'_>) -> Result<String> {
    let parts = parts(item, "a type")?;
    let read = describe(&parts, &Limits::default())?;
    Ok(match (read.dtype_name, read.shape) {
        (Some(dtype), Some(shape)) => format!("{}<{dtype}>{shape:?}", parts.kind),
        (Some(dtype), None) => format!("{}<{dtype}>", parts.kind),
        _ => parts.kind,
    })
}

/// Reads the type of a value.
pub(super) fn type_of(item: Item<'_>, limits: &Limits) -> Result<Type> {
    describe(&parts(item, "a type")?, limits)
}

fn describe(parts: &Parts<'_>, limits: &Limits) -> Result<Type> {
    let kind = match parts.kind.as_str() {
        "t_dtensor" | "pd_dist.t_dist_dtensor" => VariableKind::Tensor,
        "t_dense_tensor_array" => VariableKind::TensorArray,
        "t_selectedrows" | "t_srows" => VariableKind::SelectedRows,
        other => VariableKind::Other(other.to_owned()),
    };
    let mut read = Type { kind, dtype_name: None, dtype: None, shape: None, lod_level: 0 };
    let Some(data) = parts.data else { return Ok(read) };
    let must = matches!(parts.kind.as_str(), "t_dtensor" | "t_dense_tensor_array");
    let mut items = data.elements();
    // All tensor types begin with the element type (a distributed one with the type of the
    // whole tensor) and the shape; a list of types (`t_vec`) has no shape.
    let (first, second) = (items.next(), items.next());
    match first.filter(|f| f.kind() == Kind::Object) {
        Some(first) if parts.kind != "t_vec" => {
            let element = self::parts(first, "a type")?;
            if element.data.is_some() {
                let whole = describe(&element, limits)?;
                return Ok(Type { kind: read.kind, ..whole });
            }
            read.dtype = dtype::from_pir(&element.kind);
            read.dtype_name = Some(element.kind);
        }
        _ if must => {
            return Err(data.wrong("the type of a tensor", "an array that begins with an element type"));
        }
        _ => return Ok(read),
    }
    match second.filter(|s| s.kind() == Kind::Array) {
        Some(dims) => read.shape = Some(shape_of(dims, limits)?),
        None if must => {
            return Err(data.wrong("the type of a tensor", "an array of dimensions as second element"));
        }
        None => return Ok(read),
    }
    // Layout, LoD, offset: dense tensors only.
    if parts.kind == "t_dtensor" {
        let levels = items.nth(1).map_or(0, |lod| lod.elements().count());
        read.lod_level = u32::try_from(levels).unwrap_or(u32::MAX);
    }
    Ok(read)
}

fn shape_of(dims: Item<'_>, limits: &Limits) -> Result<Vec<i64>> {
    let rank = dims.elements().count() as u64;
    Limits::check("dimensions", "dimensions", rank, limits.dimensions)
        .map_err(|e: Error| e.at(dims.offset()))?;
    dims.elements().map(integer).collect()
}
