//! Sharded states with an index from tensors to files, as PaddleNLP writes them.
//!
//! ```text
//! model_state.pdparams.index.json            {"metadata": {"total_size": 284},
//!                                             "weight_map": {"first.weight": "model_state-00001-of-00002.pdparams", …}}
//! model_state-00001-of-00002.pdparams        a state dict each
//! model_state-00002-of-00002.pdparams
//! ```

use super::super::state;
use super::checkpoint;
use std::cell::Cell;
use std::path::Path;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::Result;
use weighbridge_format::OpenOptions;
use weighbridge_format::shards::{Part, Reader, ShardIndex, open_index};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Suffix of an index, after the name of the state.
const INDEX: &str = ".index.json";
/// Suffixes of states.
const STATES: [&str; 2] = [".pdparams", ".pdopt"];

/// True for the name of an index of parameters or of optimizer state.
pub(super) fn is_index_name(name: &str) -> bool {
    name.strip_suffix(INDEX).is_some_and(|state| STATES.iter().any(|ending| state.ends_with(ending)))
}

/// True for the name of an index of optimizer state.
pub(super) fn is_of_optimizer(name: &str) -> bool {
    name.strip_suffix(INDEX).is_some_and(|state| state.ends_with(STATES[1]))
}

/// True for an index whose entries are state files.
pub(in super::super) fn is_index(head: &[u8], source: &SourceRef) -> bool {
    ShardIndex::is_index(head, source)
        && ShardIndex::names_files(source, &STATES)
        && !ShardIndex::names_files(source, &[".safetensors"])
}

/// Opens the state that the index `source` describes. Its shards are in the folder `around` of `folder`.
///
/// # Errors
/// Same as [`open_index`] and [`state::read`].
pub(super) fn open(
    source: &SourceRef,
    folder: &FolderRef,
    around: &Path,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let is_first = Cell::new(true);
    let read = |shard: &SourceRef| {
        let mut checkpoint = state::read(shard, options)?;
        // Differences in the pickle format between shards are ignored: the first shard's is reported.
        if !is_first.replace(false) {
            state::FORM.iter().for_each(|key| drop(checkpoint.metadata.remove(key)));
        }
        Ok(Part { names: checkpoint.tensors.iter().map(state::key_of).collect(), checkpoint })
    };
    // State reading salvages internally: it returns the tensors before the damage.
    let reader = Reader { open: &read, salvage: &|_, _| None, options };
    Ok(open_index(source, folder, around, checkpoint("state", source.label()), reader)?.0)
}

#[cfg(test)]
mod tests {
    use super::super::super::Paddle;
    use super::*;
    use crate::opening::open_folder;
    use std::sync::Arc;
    use weighbridge_core::tensor::Order;
    use weighbridge_format::ReadFormat;
    use weighbridge_format::ScanCode;
    use weighbridge_io::source::MemoryFolder;

    const INDEX_FILE: &str = "model_state.pdparams.index.json";
    const FIRST: &str = "model_state-00001-of-00002.pdparams";
    const SECOND: &str = "model_state-00002-of-00002.pdparams";

    fn shard(number: u8) -> Vec<u8> {
        let name = format!("paddle/made/paddlenlp/model_state-0000{number}-of-00002.pdparams");
        weighbridge_testkit::golden(name)
    }

    fn index(pairs: &[(&str, &str)]) -> Vec<u8> {
        let map: serde_json::Map<_, _> =
            pairs.iter().map(|(name, file)| ((*name).to_owned(), (*file).into())).collect();
        serde_json::json!({ "metadata": { "total_size": 284 }, "weight_map": map }).to_string().into_bytes()
    }

    const WHOLE: [(&str, &str); 10] = [
        ("first.weight", FIRST),
        ("first.bias", FIRST),
        ("second.weight", FIRST),
        ("second.bias", FIRST),
        ("norm.weight", SECOND),
        ("norm.bias", SECOND),
        ("norm._mean", SECOND),
        ("norm._variance", SECOND),
        ("out.weight", SECOND),
        ("out.bias", SECOND),
    ];

    fn open(files: &[(&str, Vec<u8>)], options: &OpenOptions) -> Result<Checkpoint> {
        let folder = files
            .iter()
            .fold(MemoryFolder::new("m"), |folder, (name, bytes)| folder.with(name, bytes.clone()));
        open_folder(&(Arc::new(folder) as FolderRef), options)
    }

    fn files(pairs: &[(&str, &str)]) -> Vec<(&'static str, Vec<u8>)> {
        vec![(INDEX_FILE, index(pairs)), (FIRST, shard(1)), (SECOND, shard(2))]
    }

    fn code(files: &[(&str, Vec<u8>)]) -> &'static str {
        open(files, &OpenOptions::default()).unwrap_err().code().as_str()
    }

    #[test]
    fn opens_index_and_shards_as_one_state() {
        let whole = open(&files(&WHOLE), &OpenOptions::default()).unwrap();
        assert_eq!((whole.format, whole.kind, whole.label.as_str()), ("paddle", "state", "m"));
        let names: Vec<String> = whole.tensors.iter().map(|t| t.text()).collect();
        assert_eq!(names, WHOLE.map(|(name, _)| name));
        for tensor in &whole.tensors {
            tensor.read_tensor(Order::Row).unwrap();
        }
        assert_eq!(whole.notes, []);
        assert_eq!(whole.files.len(), 3);
        // AppleDouble files of macOS with the same names are ignored.
        let mut more = files(&WHOLE);
        more.push(("._model_state-00001-of-00002.pdparams", vec![0, 5, 22, 7]));
        more.push(("._model_state.pdparams.index.json", vec![0, 5, 22, 7]));
        assert_eq!(open(&more, &OpenOptions::default()).unwrap().tensors.len(), 10);
    }

    #[test]
    fn detects_index_by_content() {
        let source =
            |bytes: Vec<u8>| Arc::new(weighbridge_io::source::MemorySource::new("x", bytes)) as SourceRef;
        let of = |bytes: Vec<u8>| weighbridge::formats::registry().detect(&source(bytes)).unwrap().info().id;
        assert_eq!(of(index(&WHOLE)), "paddle");
        assert_eq!(of(index(&[("a", "model-00001-of-00002.safetensors")])), "safetensors");
        let error = Paddle.open(source(index(&WHOLE)), &OpenOptions::default()).unwrap_err();
        assert_eq!(error.code().as_str(), "list-alone");
        assert_eq!(Paddle.scan(&source(index(&WHOLE)), &OpenOptions::default()).unwrap().findings, []);
    }

    #[test]
    fn rejects_shards_that_differ_from_their_index() {
        let mut without = files(&WHOLE);
        without.remove(2);
        assert_eq!(code(&without), "shard-missing");
        let swapped: Vec<_> = WHOLE
            .iter()
            .map(|&(name, file)| (name, if name == "first.bias" { SECOND } else { file }))
            .collect();
        assert_eq!(code(&files(&swapped)), "wrong-shard");
        let mut more = WHOLE.to_vec();
        more.push(("third.weight", SECOND));
        assert_eq!(code(&files(&more)), "tensor-missing");
        let mut duplicated = files(&WHOLE);
        duplicated[2].1 = shard(1);
        assert_eq!(code(&duplicated), "tensor-twice");
        assert_eq!(code(&files(&[("a", "../x.pdparams")])), "unsafe-name");
        let mut damaged = files(&WHOLE);
        damaged[2].1.truncate(60);
        assert!(open(&damaged, &OpenOptions::default()).is_err());
        let salvage = OpenOptions { salvage: true, ..OpenOptions::default() };
        for files in [&without, &damaged] {
            let saved = open(files, &salvage).unwrap();
            let lost = saved.damage.as_ref().unwrap();
            assert_eq!(saved.tensors.len(), 4);
            assert!(lost.lost.iter().any(|lost| lost.name == "out.weight"), "{lost:?}");
        }
        // Wherever a shard is truncated, the damage is reported, and the lost tensors are attributed to it.
        let second = shard(2);
        for end in (60..second.len()).step_by(5) {
            damaged[2].1 = second[..end].to_vec();
            let saved = open(&damaged, &salvage).unwrap();
            assert!(saved.notes.iter().any(|note| note.text.contains("is damaged")), "{end}");
            let lost = &saved.damage.as_ref().unwrap().lost;
            assert!(lost.iter().all(|lost| lost.code != "tensor-missing"), "{end}: {lost:?}");
            assert!(!lost.is_empty() && saved.tensors.len() + lost.len() >= WHOLE.len(), "{end}: {lost:?}");
        }
        let lenient = OpenOptions { lenient: true, ..OpenOptions::default() };
        let some = open(&without, &lenient).unwrap();
        assert!(some.notes.iter().any(|note| note.code == "shard-missing" && note.omission));
        assert_eq!(some.notes.iter().filter(|note| note.skipped.is_some()).count(), 6);
        // A tensor missing from the index is still read.
        let fewer = open(&files(&WHOLE[..9]), &OpenOptions::default()).unwrap();
        assert_eq!((fewer.tensors.len(), fewer.notes[0].code.as_str()), (10, "not-in-list"));
    }
}
