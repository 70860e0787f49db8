//! Length of arrays of unsupported types: texts, dates, records.

use super::literal::{Literal, Parser};
use serde_json::Value as Json;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;

/// Returns the length in bytes of the elements of an array with that header; `None` where the element size is unknown.
///
/// # Errors
/// As [`super::Header::read`], for an invalid header.
pub(crate) fn len_of_unread(text: &str, limits: &Limits) -> Result<Option<u64>> {
    let (mut width, mut elements) = (None, None);
    for (key, (value, text)) in Parser::new(text, true, limits.dimensions).whole_dict()? {
        match (key, value) {
            (Literal::Text(key), _) if key == "descr" => width = json(text).as_ref().and_then(width_of),
            (Literal::Text(key), Literal::Tuple(items)) if key == "shape" => {
                elements = items.iter().try_fold(1u64, |product, item| match item {
                    Literal::Int(dim) => product.checked_mul(*dim),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Ok(width.zip(elements).and_then(|(width, elements)| elements.checked_mul(width)))
}

/// Converts a type to JSON: lists and tuples become lists. `None` for strings with escapes or quotes.
fn json(text: &str) -> Option<Json> {
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    for letter in text.trim().chars() {
        match (quote, letter) {
            (_, '\\') | (Some('\''), '"') => return None,
            (Some(open), _) if letter == open => {
                quote = None;
                out.push('"');
            }
            (None, '\'' | '"') => {
                quote = Some(letter);
                out.push('"');
            }
            (None, '(') => out.push('['),
            (None, ')' | ']') => {
                let len = out.trim_end().trim_end_matches(',').len();
                out.truncate(len);
                out.push(']');
            }
            _ => out.push(letter),
        }
    }
    serde_json::from_str(&out).ok()
}

/// Returns the element size in bytes of `"<U8"`, or of `[[NAME, TYPE], [NAME, TYPE, [DIMENSIONS]]]`.
fn width_of(json: &Json) -> Option<u64> {
    match json {
        Json::String(code) => width_of_code(code),
        Json::Array(fields) => fields.iter().try_fold(0u64, |sum, field| {
            let field = field.as_array().filter(|field| matches!(field.len(), 2 | 3))?;
            let dims = field.get(2).map_or(Some(&[][..]), |dims| dims.as_array().map(Vec::as_slice))?;
            let count = dims.iter().try_fold(1u64, |n, dim| n.checked_mul(dim.as_u64()?))?;
            sum.checked_add(width_of(field.get(1)?)?.checked_mul(count)?)
        }),
        _ => None,
    }
}

fn width_of_code(code: &str) -> Option<u64> {
    let code = code.trim_start_matches(['<', '>', '=', '|']);
    let (kind, rest) = code.split_at_checked(1)?;
    let digits = rest.split('[').next().unwrap_or(rest);
    match kind {
        "?" | "c" if digits.is_empty() => Some(1),
        "U" => digits.parse::<u64>().ok()?.checked_mul(4),
        "M" | "m" if digits == "8" => Some(8),
        "S" | "a" | "V" | "b" | "i" | "u" | "f" | "c" => digits.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_the_length_of_unsupported_arrays() {
        let len = |descr: &str, shape: &str| {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
            len_of_unread(&text, &Limits::default()).unwrap()
        };
        assert_eq!(len("'<U5'", "(3, 2)"), Some(120));
        assert_eq!((len("'|S7'", "(2,)"), len("'<M8[ns]'", "(2,)")), (Some(14), Some(16)));
        assert_eq!(len("'<f16'", "()"), Some(16));
        assert_eq!(len("[('a', '<f4'), ('b', '<U2', (3,)), ('', '|V4')]", "(2,)"), Some(64));
        assert_eq!(len("[('a', [('x', '<i2'), ('y', '|u1')]), ]", "(10,)"), Some(30));
        assert_eq!((len("'|T16'", "(2,)"), len("'<U99999999999999999999'", "(2,)")), (None, None));
        assert!(len_of_unread("{", &Limits::default()).is_err());
    }
}
