//! Conversion of neutral attributes to Paddle's.

use super::AttrType;
use crate::program::framework::op_desc::Attr;
use crate::program::framework::{Complex, Scalar, scalar};
use buffa::{EnumValue, Enumeration, MessageField};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::{Attribute, AttributeValue};

/// Converts an attribute. Its `kind` (`INTS`, `STRING`, …) determines the field of the value.
pub(super) fn attribute(attribute: &Attribute) -> Result<Attr> {
    let kind = <AttrType as Enumeration>::from_proto_name(&attribute.kind)
        .ok_or_else(|| Error::usage("unknown-kind", "unknown kind of attribute").found(&attribute.kind))?;
    let mut attr = Attr {
        name: Some(attribute.name.clone().into_bytes()),
        r#type: Some(EnumValue::Known(kind)),
        ..Attr::default()
    };
    fill(&mut attr, kind, &attribute.value).map_err(|error| error.on_tensor(&attribute.name))?;
    Ok(attr)
}

fn fill(attr: &mut Attr, kind: AttrType, value: &AttributeValue) -> Result<()> {
    match kind {
        AttrType::INT => attr.i = Some(small(value)?),
        AttrType::FLOAT => attr.f = Some(float(value)?),
        AttrType::STRING => attr.s = Some(text(value)?),
        AttrType::INTS => attr.ints = list(value, small)?,
        AttrType::FLOATS => attr.floats = list(value, float)?,
        AttrType::STRINGS => attr.strings = list(value, text)?,
        AttrType::BOOLEAN => attr.b = Some(truth(value)?),
        AttrType::BOOLEANS => attr.bools = list(value, truth)?,
        AttrType::BLOCK => attr.block_idx = Some(block(value)?),
        AttrType::LONG => attr.l = Some(int(value)?),
        AttrType::BLOCKS => attr.blocks_idx = list(value, block)?,
        AttrType::LONGS => attr.longs = list(value, int)?,
        AttrType::FLOAT64S => attr.float64s = list(value, double)?,
        AttrType::VAR => attr.var_name = Some(variable(value)?),
        AttrType::VARS => attr.vars_name = list(value, variable)?,
        AttrType::FLOAT64 => attr.float64 = Some(double(value)?),
        AttrType::SCALAR => attr.scalar = MessageField::some(scalar(value)?),
        AttrType::SCALARS => attr.scalars = list(value, scalar)?,
    }
    Ok(())
}

fn wrong(value: &AttributeValue) -> Error {
    Error::usage("wrong-value", "the attribute value does not match its kind")
        .found(format_args!("{value:?}"))
}

fn list<T>(value: &AttributeValue, one: fn(&AttributeValue) -> Result<T>) -> Result<Vec<T>> {
    match value {
        AttributeValue::List(values) => values.iter().map(one).collect(),
        other => Err(wrong(other)),
    }
}

fn int(value: &AttributeValue) -> Result<i64> {
    match value {
        AttributeValue::Int(i) => Ok(*i),
        other => Err(wrong(other)),
    }
}

fn small(value: &AttributeValue) -> Result<i32> {
    i32::try_from(int(value)?).map_err(|_| wrong(value))
}

fn float(value: &AttributeValue) -> Result<f32> {
    match value {
        AttributeValue::Float(f) => Ok(*f),
        other => Err(wrong(other)),
    }
}

fn double(value: &AttributeValue) -> Result<f64> {
    match value {
        AttributeValue::Double(d) => Ok(*d),
        other => Err(wrong(other)),
    }
}

fn truth(value: &AttributeValue) -> Result<bool> {
    match value {
        AttributeValue::Bool(b) => Ok(*b),
        other => Err(wrong(other)),
    }
}

fn text(value: &AttributeValue) -> Result<Vec<u8>> {
    match value {
        AttributeValue::Text(text) => Ok(text.clone().into_bytes()),
        AttributeValue::Bytes(bytes) => Ok(bytes.clone()),
        other => Err(wrong(other)),
    }
}

fn variable(value: &AttributeValue) -> Result<Vec<u8>> {
    match value {
        AttributeValue::Variable(name) => Ok(name.clone().into_bytes()),
        other => Err(wrong(other)),
    }
}

fn block(value: &AttributeValue) -> Result<i32> {
    match value {
        AttributeValue::Block(place) => i32::try_from(*place).map_err(|_| wrong(value)),
        other => Err(wrong(other)),
    }
}

fn scalar(value: &AttributeValue) -> Result<Scalar> {
    let mut scalar = Scalar::default();
    let kind = match value {
        AttributeValue::Bool(b) => {
            scalar.b = Some(*b);
            scalar::Type::BOOLEAN
        }
        AttributeValue::Int(i) => {
            scalar.i = Some(*i);
            scalar::Type::LONG
        }
        AttributeValue::Double(d) => {
            scalar.r = Some(*d);
            scalar::Type::FLOAT64
        }
        AttributeValue::Complex(r, i) => {
            scalar.c = MessageField::some(Complex { r: Some(*r), i: Some(*i), ..Complex::default() });
            scalar::Type::COMPLEX128
        }
        other => return Err(wrong(other)),
    };
    scalar.r#type = Some(EnumValue::Known(kind));
    Ok(scalar)
}
