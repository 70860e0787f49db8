//! Values as people write them: sizes, types of elements, pairs.

#[cfg(feature = "scan")]
use crate::ops::scan::Category;
#[cfg(feature = "seal")]
use crate::ops::seal::Algorithms;
#[cfg(feature = "biggraph")]
use crate::ops::versions::Remnants;
use crate::tensor::{DType, Rounding};

/// A type that tensors can be cast to.
///
/// # Errors
/// A text that names the types.
pub fn cast_target(text: &str) -> Result<DType, String> {
    let target = |dtype: &DType| DType::CAST_TARGETS.contains(dtype);
    DType::from_spelling(text).filter(target).ok_or_else(|| format!("casts go to {}", DType::CAST_NAMES))
}

/// A way to round.
///
/// # Errors
/// A text that names the ways.
pub fn rounding(text: &str) -> Result<Rounding, String> {
    Rounding::from_name(text).ok_or_else(|| "rounding is nearest, paddle-2.6 or paddle-3.3".to_owned())
}

/// A name and a value: `NAME=VALUE`.
///
/// # Errors
/// A text that says how it is written.
pub fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "a setting is written NAME=VALUE".to_owned())
}

/// A number of 1 or more.
///
/// # Errors
/// A text that says so.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a number of 1 or more is expected".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// A number of bytes with an optional unit: `64MiB`, `1G`, `500MB`, `1048576`.
///
/// # Errors
/// A text that says how it is written.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err("write a size as 64MiB, 1GiB or a number of bytes".to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "a size begins with a number".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "this size is too large".to_owned())
}

/// A category of findings that can be denied.
///
/// # Errors
/// A text that names the categories.
#[cfg(feature = "scan")]
pub fn category(name: &str) -> Result<Category, String> {
    // Remarks are nothing that could be denied.
    let denied = |category: &Category| *category != Category::Remark;
    Category::from_name(name).filter(denied).ok_or_else(|| {
        let names: Vec<_> = Category::ALL.iter().filter(|c| denied(c)).map(|c| c.as_str()).collect();
        format!("one of {}", names.join(", "))
    })
}

/// Algorithms with commas between.
///
/// # Errors
/// A text that names the algorithms.
#[cfg(feature = "seal")]
pub fn algorithms(text: &str) -> Result<Algorithms, String> {
    Algorithms::parse(text)
        .map_err(|_| "the algorithms are sha256 and blake3, with a comma between".to_owned())
}

/// A kind of remnants of crashed runs.
///
/// # Errors
/// A text that names the words.
#[cfg(feature = "biggraph")]
pub fn remnants(name: &str) -> Result<Remnants, String> {
    Remnants::from_name(name)
        .ok_or_else(|| format!("one of {}", Remnants::EACH.map(Remnants::as_str).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1 GB"), Ok(1_000_000_000));
        assert_eq!(size("7"), Ok(7));
        assert!(size("MiB").is_err() && size("1x").is_err() && size("99999999999GiB").is_err());
    }
}
