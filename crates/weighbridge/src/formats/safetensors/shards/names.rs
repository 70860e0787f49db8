//! Names of the files of a family.

/// What follows the name of a file of tensors.
const SUFFIX: &str = ".safetensors";
/// What follows the name of a model in that of its list, whatever form its files have; before the extension a variant may
/// stand, as loaders ask for one: `model.safetensors.index.fp16.json`.
const INDEX: &str = ".index";
/// The extension of a list.
const EXTENSION: &str = ".json";
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
    format!("{STEM}{SUFFIX}{INDEX}{EXTENSION}")
}

/// What the name of a list says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListName<'a> {
    /// The name of the model, with the extension of its files.
    model: &'a str,
    /// Which of several forms of the model it is; loaders take the list without one unless they are asked for another.
    pub(super) variant: Option<&'a str>,
}

impl<'a> ListName<'a> {
    /// What `name` says; `None` where it is no name of a list.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let rest = name.strip_suffix(EXTENSION)?;
        if let Some(model) = rest.strip_suffix(INDEX) {
            return Some(Self { model, variant: None });
        }
        let (rest, variant) = rest.rsplit_once('.')?;
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let model = rest.strip_suffix(INDEX)?;
        (!variant.is_empty() && variant.bytes().all(is_word))
            .then_some(Self { model, variant: Some(variant) })
    }

    /// True for a list of files of tensors.
    pub(super) fn is_of_tensors(self) -> bool {
        self.model.ends_with(SUFFIX)
    }
}

/// True for the name of a list of shards.
pub(super) fn is_list_name(name: &str) -> bool {
    ListName::parse(name).is_some_and(ListName::is_of_tensors)
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
        let variant = |name: &str| {
            ListName::parse(name).map(|list| (list.is_of_tensors(), list.variant.map(str::to_owned)))
        };
        assert_eq!(variant(&list_name()), Some((true, None)));
        let some = |variant: &str| Some(variant.to_owned());
        assert_eq!(variant("a.safetensors.index.fp16.json"), Some((true, some("fp16"))));
        assert_eq!(variant("a.safetensors.index.non_ema-2.json"), Some((true, some("non_ema-2"))));
        assert_eq!(variant("pytorch_model.bin.index.fp16.json"), Some((false, some("fp16"))));
        for bad in [
            "a.json",
            "a.index.fp16.txt",
            "a.index..json",
            "a.index.a b.json",
            "a.index.a.b.json",
            "index.json",
        ] {
            assert_eq!(variant(bad), None, "{bad}");
        }
        assert!(is_list_name(&list_name()) && !is_list_name("pytorch_model.bin.index.json"));
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
