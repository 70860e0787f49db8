//! Packages: folders with a manifest, a model and its weights.
//!
//! ```text
//! Manifest.json                          items by their identifiers, and that of the model
//! Data/com.apple.CoreML/model.mlmodel    model
//! Data/com.apple.CoreML/weights          files of weights
//! ```

use crate::read;
use std::path::{Path, PathBuf};
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::source::check_shard;
use weighbridge_core::text::{path_text, quoted};
use weighbridge_format::OpenOptions;
use weighbridge_format::json::{self, Json};
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// Name of the manifest.
const MANIFEST: &str = "Manifest.json";
/// Key of the identifier of the model.
const ROOT: &str = "rootModelIdentifier";
/// Folder of the items.
const DATA: &str = "Data";
/// Maximum bytes of a manifest.
const MAX_MANIFEST: u64 = 1 << 20;

/// Returns true for a folder with a manifest of a package.
pub(crate) fn recognises(folder: &FolderRef) -> bool {
    let Ok(Some(source)) = folder.open(Path::new(MANIFEST)) else { return false };
    is_manifest(&source)
}

/// Returns true for a manifest.
pub(crate) fn is_manifest(source: &SourceRef) -> bool {
    let len = source.len().min(MAX_MANIFEST);
    read_vec(&**source, 0, len).is_ok_and(|bytes| {
        bytes.trim_ascii_start().starts_with(b"{")
            && bytes.windows(ROOT.len()).any(|text| text == ROOT.as_bytes())
    })
}

/// Opens a package. `salvaged` is the error of opening a damaged one.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for a malformed manifest, and for names outside of the package; errors of reading the model.
pub(crate) fn open(
    folder: &FolderRef,
    options: &OpenOptions,
    salvaged: Option<&Error>,
) -> Result<Checkpoint> {
    let Some(manifest) = folder.open(Path::new(MANIFEST))? else {
        return Err(Error::usage("not-a-file", "the folder is not a package of Core ML")
            .in_file(folder.label())
            .hint("give the path of one model file"));
    };
    let model = model(folder, &manifest).map_err(|error| error.in_file(manifest.label()))?;
    let source = folder.open(&model)?.ok_or_else(|| {
        Error::corrupt("model-missing", "the model of the package is missing")
            .in_file(folder.label())
            .expected(format_args!("the file {}", path_text(&model)))
    })?;
    let mut checkpoint = read::open(&source, Some((folder, &model)), options, salvaged)
        .map_err(|error| error.in_file(source.label()))?;
    folder.label().clone_into(&mut checkpoint.label);
    checkpoint.files.push(manifest);
    Ok(checkpoint)
}

/// Returns the path of the model that a manifest names.
fn model(folder: &FolderRef, manifest: &SourceRef) -> Result<PathBuf> {
    Limits::check("bytes of the manifest", "header_bytes", manifest.len(), MAX_MANIFEST)?;
    let bytes = read_vec(&**manifest, 0, manifest.len())?;
    let bad = |message: &str| Error::corrupt("bad-manifest", message).at(0);
    let text = std::str::from_utf8(&bytes).map_err(|_| bad("the manifest is not UTF-8 text"))?;
    let json = json::parse(text)?;
    let Some(Json::Text(root)) = json.get(ROOT) else {
        return Err(bad("the manifest does not name the model")
            .expected("`rootModelIdentifier` with the identifier of an item"));
    };
    let item = json.get("itemInfoEntries").and_then(|items| items.get(root)?.get("path"));
    let Some(Json::Text(path)) = item else {
        return Err(bad("the manifest has no item for the model")
            .expected("an item with its path")
            .found(quoted(root)));
    };
    check_shard(folder, Path::new(DATA), path).map_err(|error| error.at(0))?;
    Ok(Path::new(DATA).join(path))
}
