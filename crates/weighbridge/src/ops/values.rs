//! Option values in text form: sizes, element types, pairs.

#[cfg(feature = "biggraph")]
use crate::formats::biggraph::{Comparator, Negatives};
#[cfg(feature = "scan")]
use crate::ops::scan::Category;
#[cfg(feature = "seal")]
use crate::ops::seal::Algorithms;
#[cfg(feature = "biggraph")]
use crate::ops::versions::Remnants;
use crate::tensor::{DType, Rounding};
#[cfg(feature = "biggraph")]
use std::path::PathBuf;

/// Parses an element type that tensors can be cast to.
///
/// # Errors
/// A text with the valid types.
pub fn cast_target(text: &str) -> Result<DType, String> {
    let target = |dtype: &DType| DType::CAST_TARGETS.contains(dtype);
    DType::from_spelling(text).filter(target).ok_or_else(|| format!("expected {}", DType::CAST_NAMES))
}

/// Parses a rounding mode.
///
/// # Errors
/// A text with the valid modes.
pub fn rounding(text: &str) -> Result<Rounding, String> {
    Rounding::from_name(text).ok_or_else(|| "expected nearest, paddle-2.6 or paddle-3.3".to_owned())
}

/// Parses `NAME=VALUE` into a name and a value.
///
/// # Errors
/// A text with the expected form.
pub fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "expected NAME=VALUE".to_owned())
}

/// Parses a positive number.
///
/// # Errors
/// A text with the expected form.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number of 1 or more".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// Parses a comparator.
///
/// # Errors
/// A text with the valid comparators.
#[cfg(feature = "biggraph")]
pub fn comparator(text: &str) -> Result<Comparator, String> {
    let all = || Comparator::ALL.map(Comparator::name).join(", ");
    Comparator::from_name(text).ok_or_else(|| format!("expected one of {}", all()))
}

/// Parses an element type of an index.
///
/// # Errors
/// A text with the valid types.
#[cfg(feature = "usearch")]
pub fn index_dtype(text: &str) -> Result<DType, String> {
    let all = crate::ops::index::DTYPES;
    let names = || all.map(DType::name).join(", ");
    all.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| format!("expected one of {}", names()))
}

/// Parses the negatives of an evaluation: `all`, `partition`, or a number of random entities.
///
/// # Errors
/// A text with the expected form.
#[cfg(feature = "biggraph")]
pub fn negatives(text: &str) -> Result<Negatives, String> {
    match text {
        "all" => Ok(Negatives::All),
        "partition" => Ok(Negatives::Partition),
        _ => match text.parse() {
            Ok(count @ 1..) => Ok(Negatives::Sampled(count)),
            _ => Err("expected all, partition, or a number of 1 or more".to_owned()),
        },
    }
}

/// Parses a file of candidates: `FILE`, or `TYPE=FILE` for those of an entity type.
///
/// # Errors
/// A text with the expected form.
#[cfg(feature = "biggraph")]
pub fn candidates(text: &str) -> Result<(Option<String>, PathBuf), String> {
    match text.split_once('=') {
        None if !text.is_empty() => Ok((None, PathBuf::from(text))),
        Some((entity, file)) if !entity.is_empty() && !file.is_empty() => {
            Ok((Some(entity.to_owned()), PathBuf::from(file)))
        }
        _ => Err("expected FILE or TYPE=FILE".to_owned()),
    }
}

/// Parses a number of bytes with an optional unit: `64MiB`, `1G`, `500MB`, `1048576`.
///
/// # Errors
/// A text with the expected form.
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
        _ => return Err("expected a size such as 64MiB, 1GiB or a number of bytes".to_owned()),
    };
    let number: u64 =
        text[..digits].parse().map_err(|_| "expected a size that begins with a number".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "the size is too large".to_owned())
}

/// Parses a category of findings that can be denied.
///
/// # Errors
/// A text with the valid categories.
#[cfg(feature = "scan")]
pub fn category(name: &str) -> Result<Category, String> {
    // Remarks cannot be denied.
    let denied = |category: &Category| *category != Category::Remark;
    Category::from_name(name).filter(denied).ok_or_else(|| {
        let names: Vec<_> = Category::ALL.iter().filter(|c| denied(c)).map(|c| c.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Parses algorithms, separated by commas.
///
/// # Errors
/// A text with the valid algorithms.
#[cfg(feature = "seal")]
pub fn algorithms(text: &str) -> Result<Algorithms, String> {
    Algorithms::parse(text).map_err(|_| "expected sha256, blake3, or both with a comma between".to_owned())
}

/// Parses a kind of remnants of crashed runs.
///
/// # Errors
/// A text with the valid words.
#[cfg(feature = "biggraph")]
pub fn remnants(name: &str) -> Result<Remnants, String> {
    Remnants::from_name(name)
        .ok_or_else(|| format!("expected one of {}", Remnants::EACH.map(Remnants::as_str).join(", ")))
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
