//! Names of the files of a family.

use weighbridge_format::shards::IndexName;

/// What follows the name of a file of tensors.
pub(super) const SUFFIX: &str = ".safetensors";
/// The name of a model where nobody gives another one.
const STEM: &str = "model";
/// The fewest and the most digits of a number in a name.
const DIGITS: std::ops::RangeInclusive<usize> = 5..=9;

/// What the name of a shard says: `STEM-00001-of-00003.safetensors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shard<'a> {
    pub(super) stem: &'a str,
    /// How many there are.
    pub(super) of: u64,
    /// Counted from 1.
    pub(super) number: u64,
}

impl<'a> Shard<'a> {
    /// What `name` says; `None` where it is no name of a shard.
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

    /// The name of the file.
    pub(super) fn name(&self) -> String {
        format!("{}-{:05}-of-{:05}{SUFFIX}", self.stem, self.number, self.of)
    }
}

/// The name of a shard that is written.
pub(super) fn shard_name(number: u64, of: u64) -> String {
    Shard { stem: STEM, of, number }.name()
}

/// The name of the list that is written.
pub(super) fn list_name() -> String {
    IndexName::of(&format!("{STEM}{SUFFIX}"))
}

/// True for the name of a list of shards.
pub(super) fn is_list_name(name: &str) -> bool {
    IndexName::parse(name).is_some_and(|index| is_file_name(index.model))
}

/// True for the name of a file of tensors.
pub(super) fn is_file_name(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lists() {
        assert!(is_list_name(&list_name()) && is_list_name("a.safetensors.index.fp16.json"));
        assert!(!is_list_name("pytorch_model.bin.index.json"));
    }

    #[test]
    fn names_of_shards() {
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
