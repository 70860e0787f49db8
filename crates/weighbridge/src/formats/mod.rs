//! The formats. Each is a reader from bytes to an index and a layouter from an index to a plan.
//!
//! A format never opens, writes, syncs or renames a file; it knows nothing of threads or progress
//! bars, nor of other formats. To add one: a folder here with `mod.rs` (facts, a picture of the
//! bytes), `read.rs`, `write.rs` and `tests.rs`, and one line in [`ALL`].

pub mod arrow;
pub mod biggraph;
mod folders;
pub use weighbridge_primitiv as primitiv;
pub mod hdf5;
pub mod npy;
pub mod npz;
pub mod paddle;
pub mod parquet;
pub mod safetensors;
mod salvage;
mod table;
mod told;
pub mod torch;
pub mod tsv;
pub mod word2vec;

pub(crate) use biggraph::entity_files;
pub use folders::OtherFile;
pub(crate) use folders::{
    FolderModel, OTHER_MODELS, files_beside, files_of, others, own_files, told as told_others,
};
pub use salvage::offer_salvage;
pub(crate) use weighbridge_format::row_names::{drop as drop_labels, spread as spread_labels};
use weighbridge_format::{choose_names, settle};
pub use weighbridge_format::{
    Facts, Format, HEAD, LabelsIn, Names, OpenOptions, Place, PlanOptions, Scan, Setting,
};
pub(crate) use weighbridge_format::{outline, overlap as again, shards, unknown};

use crate::checkpoint::{Checkpoint, Note, STRUCTURED_NAME, VARIABLE_NAME};
use crate::engine::read_tensor;
use crate::error::{Error, Result};
use crate::source::{FileSource, Folder, FolderRef, LocalFolder, PathKind, SourceRef, kind_of_path};
use crate::tensor::Order;
use salvage::or_salvage;
use std::path::Path;
use std::sync::Arc;
use told::format_of;

/// Every format, in the order in which they are asked whether a file is theirs.
pub static ALL: &[&dyn Format] = &[
    &primitiv::Primitiv,
    &safetensors::Safetensors,
    &npy::Npy,
    &npz::Npz,
    &torch::Torch,
    &biggraph::BigGraph,
    &paddle::Paddle,
    &tsv::Tsv,
    &word2vec::Word2Vec,
    &arrow::Arrow,
    &parquet::Parquet,
    &hdf5::Hdf5,
];

/// The format of that id.
///
/// # Errors
/// [`crate::Kind::Usage`], with the ids there are.
pub fn by_id(id: &str) -> Result<&'static dyn Format> {
    ALL.iter().copied().find(|f| f.facts().id == id).ok_or_else(|| {
        let ids: Vec<_> = ALL.iter().map(|f| f.facts().id).collect();
        Error::usage("unknown-format", "there is no such format")
            .found(id)
            .hint(format_args!("the formats are {}", ids.join(", ")))
    })
}

/// The format and kind that the extension of `path` means.
///
/// # Errors
/// [`crate::Kind::Usage`], with the extensions there are.
pub fn by_extension(path: &Path) -> Result<(&'static dyn Format, &'static str)> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    for &format in ALL {
        for &(ours, kind) in format.facts().extensions {
            if ours == extension {
                return Ok((format, kind));
            }
        }
    }
    let known: Vec<_> = ALL.iter().flat_map(|f| f.facts().extensions).map(|(e, _)| format!(".{e}")).collect();
    Err(Error::usage("unknown-extension", "the name does not say which format to write")
        .in_file(path.display())
        .hint(format_args!("use --to FORMAT, or one of {}", known.join(" "))))
}

/// Opens the file at `path` with default options.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
    open_with(path, &OpenOptions::default())
}

/// Opens the file or folder at `path`. The content tells the format; where it is text that could be
/// anybody's, the extension of a table of text does, with a note. Files that belong to it are found
/// beside it.
///
/// # Errors
/// [`crate::Kind::Io`] when it cannot be read, and what the format's reader says.
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint> {
    let path = path.as_ref();
    if kind_of_path(path)? == PathKind::Folder {
        return open_folder(&(Arc::new(LocalFolder::open(path)?) as FolderRef), options);
    }
    let source: SourceRef = Arc::new(FileSource::open(path)?);
    match LocalFolder::around(path) {
        Some((folder, name)) => open_in_folder(source, &(Arc::new(folder) as FolderRef), &name, options),
        None => open_source(source, options),
    }
}

/// Opens any source, alone.
///
/// # Errors
/// As [`open_with`].
pub fn open_source(source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let label = source.label().to_owned();
    let open = |options: &OpenOptions| {
        let (format, _) = format_of(&source, None, options)?;
        format.open(source.clone(), options).map_err(|error| unknown::or_empty(error, &source))
    };
    finish(or_salvage(Place::Alone(&source), open, options), &label, options)
}

/// Opens a source that stands in `folder` under `name`, with what belongs to it there.
///
/// # Errors
/// As [`open_with`].
pub fn open_in_folder(
    source: SourceRef,
    folder: &FolderRef,
    name: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let label = source.label().to_owned();
    let open = |options: &OpenOptions| {
        let (format, note) = format_of(&source, Some(name), options)?;
        let mut opened = format
            .open_beside(source.clone(), folder, name, options)
            .map_err(|error| unknown::or_empty(error, &source))?;
        opened.notes.extend(note);
        Ok(opened)
    };
    finish(or_salvage(Place::Beside(&source, folder, name), open, options), &label, options)
}

/// Opens a folder: one that a format calls its own, or else the one model file that stands in it. Other model files there
/// are told in a note, `other-models`.
///
/// # Errors
/// As [`open_with`]; [`crate::Kind::Usage`]: `not-a-file` where there is no model, `several-models` where it is not clear
/// which one is meant.
pub fn open_folder(folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let (mut opened, model) = FolderModel::of(folder, options)?.open(folder, options)?;
    folders::note(folder, &mut opened, &model);
    Ok(opened)
}

/// Opens a folder as one of that format.
fn as_folder(format: &dyn Format, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
    let open = |options: &OpenOptions| format.open_folder(folder, options);
    finish(or_salvage(Place::Folder(folder), open, options), folder.label(), options)
}

/// The first bytes, [`HEAD`] of them at most.
fn head_of(source: &SourceRef) -> Result<Vec<u8>> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_at(0, &mut head)?;
    Ok(head)
}

fn finish(opened: Result<Checkpoint>, label: &str, options: &OpenOptions) -> Result<Checkpoint> {
    let mut checkpoint = settle(opened, label, options)?;
    if checkpoint.topology.is_none()
        && let Some(program) = &options.program
    {
        // Tensors that come back from a bridge to the program that they belong to.
        paddle::attach(&mut checkpoint, program, options)?;
    }
    choose_names(&mut checkpoint, options)?;
    Ok(checkpoint)
}

/// The format of a folder, by what stands in it.
///
/// # Errors
/// [`crate::Kind::Usage`] where it is none that is known here.
pub fn detect_folder(folder: &FolderRef) -> Result<&'static dyn Format> {
    let gathered = || folders::gathered(folder);
    folders::own(folder).or_else(gathered).ok_or_else(|| folders::no_model(folder))
}

/// The format of a source, by its content.
///
/// # Errors
/// [`crate::Kind::Unsupported`], with a guess at what the file is instead.
pub fn detect(source: &SourceRef) -> Result<&'static dyn Format> {
    let head = head_of(source)?;
    match ALL.iter().find(|f| f.recognises(&head, source)) {
        Some(&format) => Ok(format),
        None => Err(unknown::explain(&head, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Value;

    #[test]
    fn no_two_formats_claim_an_extension_or_id() {
        let mut extensions: Vec<_> = ALL.iter().flat_map(|f| f.facts().extensions).map(|e| e.0).collect();
        let mut ids: Vec<_> = ALL.iter().map(|f| f.facts().id).collect();
        for list in [&mut extensions, &mut ids] {
            list.sort_unstable();
            let count = list.len();
            list.dedup();
            assert_eq!(list.len(), count);
        }
    }

    /// Several formats recognise these.
    #[test]
    fn the_first_format_of_the_registry_is_taken() {
        let long = format!("ARROW1\t22543e-{}\n", "8".repeat(100));
        for (bytes, id) in [(&b"]q)))).035224949\t-44."[..], "paddle"), (long.as_bytes(), "tsv")] {
            let source: SourceRef =
                std::sync::Arc::new(crate::source::MemorySource::new("m", bytes.to_vec()));
            assert_eq!(detect(&source).unwrap().facts().id, id);
        }
    }

    #[test]
    fn a_plain_file_names_the_metadata_that_it_omits() {
        let mut checkpoint = Checkpoint::new("test", "test", "m");
        checkpoint.metadata.set("epoch", Value::U64(3));
        checkpoint.metadata.set("note", Value::Text("kept by some".to_owned()));
        let options = PlanOptions { plain: true, ..PlanOptions::default() };
        let found = |format: &dyn Format| {
            let losses = format.plan(&checkpoint, &options).unwrap().losses;
            let dropped: Vec<_> = losses.into_iter().filter(|loss| loss.code == "index-dropped").collect();
            assert_eq!(dropped.len(), 1);
            dropped[0].detail.clone()
        };
        let of = |keys: &str| {
            format!(
                "a plain file omits the metadata {keys}, and the roles, attributes and exact paths that its format has no place for"
            )
        };
        assert_eq!(found(&safetensors::Safetensors), of("epoch"));
        for format in [&npz::Npz as &dyn Format, &torch::Torch] {
            let detail = found(format);
            assert!([of("epoch, note"), of("note, epoch")].contains(&detail), "{detail}");
        }
    }

    #[test]
    fn unknown_names_say_what_there_is() {
        let settings =
            PlanOptions { settings: vec![("colour".to_owned(), "red".to_owned())], ..PlanOptions::default() };
        let hint = |format: &dyn Format| {
            settings.check(format.facts()).unwrap_err().hint_text().map(str::to_owned).unwrap()
        };
        assert_eq!(hint(&npz::Npz), "it has none");
        assert!(hint(&tsv::Tsv).starts_with("there is floats="), "{}", hint(&tsv::Tsv));
        assert!(by_id("nope").err().unwrap().hint_text().unwrap().contains("primitiv"));
        assert!(by_extension(Path::new("x")).err().unwrap().hint_text().unwrap().contains(".model"));
    }
}
