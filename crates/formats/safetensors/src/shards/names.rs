//! File names of shards and their index.

use weighbridge_format::shards::IndexName;

/// Suffix of a safetensors file.
pub(super) const SUFFIX: &str = ".safetensors";
/// Default name of a model.
const STEM: &str = "model";
/// Number of digits of a shard number.
const DIGITS: std::ops::RangeInclusive<usize> = 5..=9;

/// Parsed name of a shard: `STEM-00001-of-00003.safetensors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shard<'a> {
    pub(super) stem: &'a str,
    /// Number of shards.
    pub(super) of: u64,
    /// Number of this shard, from 1.
    pub(super) number: u64,
}

impl<'a> Shard<'a> {
    /// Parses `name`; `None` where it is not the name of a shard.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let (rest, of) = name.strip_suffix(SUFFIX)?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let number_of = |digits: &str| {
            let plain = DIGITS.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse::<u64>().ok()).flatten()
        };
        let shard = Self { stem, of: number_of(of)?, number: number_of(number)? };
        (1..=shard.of).contains(&shard.number).then_some(shard)
    }

    /// File name.
    pub(super) fn name(&self) -> String {
        format!("{}-{:05}-of-{:05}{SUFFIX}", self.stem, self.number, self.of)
    }
}

/// File name of a written shard.
pub(super) fn shard_name(number: u64, of: u64) -> String {
    Shard { stem: STEM, of, number }.name()
}

/// File name of the written index.
pub(super) fn list_name() -> String {
    IndexName::of(&format!("{STEM}{SUFFIX}"))
}

/// True for the file name of a shard index.
pub(super) fn is_list_name(name: &str) -> bool {
    IndexName::parse(name).is_some_and(|index| is_file_name(index.model))
}

/// True for the name of a safetensors file.
pub(super) fn is_file_name(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_index_names() {
        assert!(is_list_name(&list_name()) && is_list_name("a.safetensors.index.fp16.json"));
        assert!(!is_list_name("pytorch_model.bin.index.json"));
    }

    #[test]
    fn parses_shard_names() {
        let shard = Shard::parse("a-b-00002-of-00010.safetensors").unwrap();
        assert_eq!((shard.stem, shard.number, shard.of), ("a-b", 2, 10));
        assert_eq!(shard.name(), "a-b-00002-of-00010.safetensors");
        assert_eq!(Shard::parse(&shard_name(7, 123_456)).map(|s| s.of), Some(123_456));
        for bad in [
            "model.safetensors",
            "model-1-of-2.safetensors",
            "model-00000-of-00002.safetensors",
            "model-00003-of-00002.safetensors",
            "model-0000x-of-00002.safetensors",
            "model-+0001-of-00002.safetensors",
            "model-00001-of-9999999999.safetensors",
            "model-00001-of-00002.bin",
        ] {
            assert_eq!(Shard::parse(bad), None, "{bad}");
        }
    }
}
