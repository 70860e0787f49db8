//! Names of indexes of shards.

use weighbridge_core::error::Result;
use weighbridge_io::source::FolderRef;

/// What follows the name of a model in that of its index, whatever its format; before the extension a variant may
/// be named, as loaders ask for one: `model.safetensors.index.fp16.json`.
const INDEX: &str = ".index";
/// The extension of an index.
const EXTENSION: &str = ".json";

/// The parts of the name of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexName<'a> {
    /// The name of the model, with the extension of its files.
    pub model: &'a str,
    /// The form of the model; loaders take the index without one unless they are asked for another.
    pub variant: Option<&'a str>,
}

impl<'a> IndexName<'a> {
    /// Parses `name`; `None` where it is no name of an index.
    pub fn parse(name: &'a str) -> Option<Self> {
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

    /// The name of the index of `model`.
    pub fn of(model: &str) -> String {
        format!("{model}{INDEX}{EXTENSION}")
    }
}

/// The names of the files of a folder, in order, without those that are not UTF-8.
pub fn file_names(folder: &FolderRef) -> Result<Vec<String>> {
    let items = folder.list(1)?;
    let names = items.iter().filter_map(|item| item.name.to_str());
    // Companions that macOS writes beside files on foreign disks.
    Ok(names.filter(|name| !name.starts_with("._")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_indexes_are_parsed() {
        let parts = |name: &str| {
            IndexName::parse(name).map(|index| (index.model.to_owned(), index.variant.map(str::to_owned)))
        };
        let some = |model: &str, variant: Option<&str>| Some((model.to_owned(), variant.map(str::to_owned)));
        assert_eq!(parts(&IndexName::of("m.safetensors")), some("m.safetensors", None));
        assert_eq!(parts("a.safetensors.index.fp16.json"), some("a.safetensors", Some("fp16")));
        assert_eq!(parts("a.safetensors.index.non_ema-2.json"), some("a.safetensors", Some("non_ema-2")));
        assert_eq!(parts("pytorch_model.bin.index.fp16.json"), some("pytorch_model.bin", Some("fp16")));
        for bad in [
            "a.json",
            "a.index.fp16.txt",
            "a.index..json",
            "a.index.a b.json",
            "a.index.a.b.json",
            "index.json",
        ] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }
}
