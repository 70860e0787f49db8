//! File names of indexes of shards.

use weighbridge_core::error::Result;
use weighbridge_io::source::FolderRef;

/// Suffix of the name of a model, of any format, in the name of its index. A variant may follow: `model.safetensors.index.fp16.json`.
const INDEX: &str = ".index";
/// Extension of an index.
const EXTENSION: &str = ".json";

/// Parts of the name of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexName<'a> {
    /// Name of the model, with the extension of its shards.
    pub model: &'a str,
    /// Variant of the model; loaders open the index without one by default.
    pub variant: Option<&'a str>,
}

impl<'a> IndexName<'a> {
    /// Parses `name`; `None` if it is not the name of an index.
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

    /// Returns the name of the index of `model`.
    pub fn of(model: &str) -> String {
        format!("{model}{INDEX}{EXTENSION}")
    }
}

/// Returns the names of the files of a folder, in order, without names that are not UTF-8.
pub fn file_names(folder: &FolderRef) -> Result<Vec<String>> {
    let items = folder.list(1)?;
    let names = items.iter().filter_map(|item| item.name.to_str());
    // Skip `._` files, which macOS creates on other file systems.
    Ok(names.filter(|name| !name.starts_with("._")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_of_indexes() {
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
