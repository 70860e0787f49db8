//! Suggestions for mistyped file names.

use std::path::{Path, PathBuf};
use weighbridge::source::{Folder, LocalFolder};
use weighbridge::text::{escape, near};
use weighbridge::{Error, ErrorCode};

/// Maximum number of suggestions.
const MAX_NAMES: usize = 3;

/// Adds similar file names of the same folder as a hint to an error about a missing file.
pub(crate) fn with_similar_files(error: Error) -> Error {
    if error.code() != ErrorCode::NotFound || error.hint_text().is_some() {
        return error;
    }
    let Some(similar) = error.file().and_then(|file| similar_files(Path::new(file))) else { return error };
    error.hint(format!("did you mean {similar}?"))
}

/// Returns the similar names beside `missing`, each in backticks: `` `a.pt` or `b.pt` ``.
fn similar_files(missing: &Path) -> Option<String> {
    let name = missing.file_name()?.to_str()?;
    let parent = missing.parent().filter(|parent| !parent.as_os_str().is_empty());
    let items = LocalFolder::open(parent.unwrap_or(Path::new("."))).ok()?.list(1).ok()?;
    let names: Vec<String> = items.iter().filter_map(|item| Some(item.name.to_str()?.to_owned())).collect();
    let found = near(|| names.iter().map(String::as_str), name, MAX_NAMES);
    let shown = |name: &&str| {
        let path = parent.map_or_else(|| PathBuf::from(name), |parent| parent.join(name));
        format!("`{}`", escape(&path.display().to_string()))
    };
    (!found.is_empty()).then(|| found.iter().map(shown).collect::<Vec<_>>().join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_names_of_the_same_folder() {
        let folder = tempfile::tempdir().unwrap();
        #[allow(clippy::disallowed_methods, reason = "a file of a test")]
        std::fs::write(folder.path().join("model.safetensors"), b"").unwrap();
        let error = |name: &str| {
            let path = folder.path().join(name);
            let missing = Error::io("cannot open the file", std::io::ErrorKind::NotFound.into());
            with_similar_files(missing.in_file(path.display()))
        };
        let hint = error("modle.safetensors");
        assert!(hint.hint_text().unwrap().ends_with("model.safetensors`?"), "{hint}");
        assert_eq!(error("x").hint_text(), None);
    }
}
