//! Folders that no format calls its own.

use super::{FolderModel, Format, OpenOptions, backing_files, registry, safetensors};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::source::{Folder, FolderItem, FolderRef, LocalFolder, MemoryFolder, SkippedItem, SourceRef};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use weighbridge_core::NoteCode;

static NPY: LazyLock<Vec<u8>> = LazyLock::new(|| weighbridge_testkit::golden("npy/good/float64.npy"));
static NPZ: LazyLock<Vec<u8>> = LazyLock::new(|| weighbridge_testkit::golden("npz/good/stored.npz"));

/// Result of opening a folder of files: label and notes on other files, or the code and `found` of the error.
fn open(files: &[(&str, &[u8])]) -> (String, String) {
    let with = |folder: MemoryFolder, &(name, bytes): &(&str, &[u8])| folder.with(name, bytes.to_vec());
    let folder: FolderRef = Arc::new(files.iter().fold(MemoryFolder::new("m"), with));
    match registry().open_folder(&folder, &OpenOptions::default()) {
        Ok(found) => {
            let notes = found.notes.iter().filter(|note| note.code == NoteCode::OtherModels);
            (found.label.clone(), notes.map(|note| note.text.to_string()).collect())
        }
        Err(error) => (error.code().as_str().to_owned(), error.found_text().unwrap_or_default().to_owned()),
    }
}

#[test]
fn opens_the_only_model_of_a_folder() {
    let header = b"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    let model = &[&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat();
    assert!(
        registry()
            .detect(&(Arc::new(crate::source::MemorySource::new("m", model.clone())) as SourceRef))
            .is_ok_and(|f| f.info().id == safetensors::Safetensors.info().id)
    );
    let (config, words) = (("config.json", &b"{}"[..]), ("vocab.txt", &b"1\t2\n3\t4\n"[..]));
    let tokenizer = ("tokenizer.model", &b"\n\x0e\n\x05<unk>"[..]);
    let own = |name: &str| (format!("m/{name}"), String::new());
    let beside =
        [config, words, tokenizer, (".hidden.npy", &NPY[..]), ("README", b"read\n"), ("sub/y.npy", &NPY[..])];
    for name in ["model.safetensors", "x.safetensors", "without_extension"] {
        assert_eq!(open(&[&beside[..], &[(name, model)]].concat()), own(name), "{name}");
    }
    // A damaged file is opened by its name, and reported as damaged.
    assert_eq!(open(&[config, ("x.safetensors", b"")]).0, "empty-file");
    assert_eq!(open(&[config, ("pytorch_model.bin", b"")]).0, "empty-file");
    assert_eq!(open(&beside).0, "not-a-file");
    // A part is not the model, unless it is all of it.
    assert_eq!(open(&[config, ("w-00002-of-00003.npy", &NPY[..])]).0, "part-of-model");
    assert_eq!(open(&[config, ("w-00001-of-00001.npy", &NPY[..])]), own("w-00001-of-00001.npy"));
    // Tables that only their extension reveals count where there is no other model; labels for other data do not.
    let labels = ("metadata.tsv", &b"3\n1\n2\n"[..]);
    let tables = [labels, ("a.tsv", b"0.5\n-1\n"), ("b.tsv", b"x\t1\t2\ny\t3\t4\n")];
    assert_eq!(open(&tables[..1]).0, "not-a-file");
    assert_eq!(open(&tables[..2]), own("a.tsv"));
    assert_eq!(open(&tables), ("several-models".to_owned(), "a.tsv, b.tsv".to_owned()));
    assert_eq!(open(&[&tables[..], &[("x.npy", &NPY[..])]].concat()), own("x.npy"));
    // Which of several is meant is not guessed, unless those who load such folders take one.
    let two = [config, ("b.npy", &NPY[..]), ("a.safetensors", model)];
    assert_eq!(open(&two), ("several-models".to_owned(), "a.safetensors, b.npy".to_owned()));
    let text = |names: &str| format!("other model files in the folder not opened: {names}");
    let others = [&two[..], &[("model.safetensors", model), ("pytorch_model.bin", b"")]].concat();
    assert_eq!(open(&others), ("m/model.safetensors".to_owned(), text("m/a.safetensors, m/b.npy")));
}

#[test]
fn a_given_format_overrides_detection() {
    let folder = MemoryFolder::new("m").with("x.npy", NPY.to_vec()).with("README", vec![b'r']);
    let folder: FolderRef = Arc::new(folder);
    let options = |id: &str| OpenOptions { format: Some(id.to_owned()), ..OpenOptions::default() };
    // As a folder, where the format has such.
    assert_eq!(registry().open_folder(&folder, &options("npy")).unwrap().kind, "folder");
    for id in ["npz", "safetensors"] {
        assert_eq!(
            registry().open_folder(&folder, &options(id)).unwrap_err().file(),
            Some("m/x.npy"),
            "{id}"
        );
    }
}

/// A folder that counts how often each file in it is opened.
#[derive(Debug)]
struct Counting(MemoryFolder, Mutex<HashMap<PathBuf, usize>>);

impl Folder for Counting {
    fn label(&self) -> &str {
        self.0.label()
    }
    fn list(&self, depth: usize) -> Result<Vec<FolderItem>> {
        self.0.list(depth)
    }
    fn skipped(&self, depth: usize) -> Result<Vec<SkippedItem>> {
        self.0.skipped(depth)
    }
    fn open(&self, name: &Path) -> Result<Option<SourceRef>> {
        *self.1.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        self.0.open(name)
    }
}

#[test]
fn opening_does_not_read_other_files() {
    let strangers = ["LICENSE", "a.bin", "tokenizer.model"];
    let folder = MemoryFolder::new("m").with("x.npz", NPZ.to_vec());
    let folder = strangers.iter().fold(folder, |folder, name| folder.with(name, b"text".to_vec()));
    let counting = Arc::new(Counting(folder, Mutex::default()));
    let folder: FolderRef = counting.clone();
    let counts = || {
        let counts = counting.1.lock().unwrap();
        strangers.map(|name| counts.get(Path::new(name)).copied().unwrap_or_default())
    };
    let options = OpenOptions::default();
    let model = FolderModel::of(registry(), &folder, &options).unwrap();
    let found = counts();
    // Once by a format that may call the folder its own, and once to tell whether the file is a model.
    assert!(found.iter().all(|count| *count <= 2), "{found:?}");
    for _ in 0..3 {
        let (opened, model) = model.open(registry(), &folder, &options).unwrap();
        assert_eq!((opened.label.as_str(), opened.format), ("m/x.npz", "npz"));
        assert!(matches!(model, FolderModel::File(file) if file.is_sole()));
    }
    assert_eq!(counts(), found);
    // Nor for the note: they are recognized as other files.
    registry().open_folder(&folder, &options).unwrap();
    assert_eq!(counts(), found.map(|count| 2 * count));
}

/// A label may show two names alike.
#[cfg(unix)]
#[test]
#[allow(clippy::disallowed_methods)]
fn files_with_names_that_are_not_utf8_are_not_attributed_to_a_format() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let name = |bytes: &'static [u8]| Path::new(std::ffi::OsStr::from_bytes(bytes));
    for name in [name(b"a\xff.npy"), name(b"a\xfe.npy"), name("a\u{fffd}.npy".as_bytes()), name(b"b.npy")] {
        std::fs::write(dir.path().join(name), &NPY[..]).unwrap();
    }
    std::fs::write(dir.path().join("LICENSE"), "l").unwrap();
    let mut checkpoint = Checkpoint::new("npy", "folder", "m");
    let folder = LocalFolder::open(dir.path()).unwrap();
    for name in [name(b"a\xff.npy"), name(b"b.npy")] {
        checkpoint.files.extend(folder.open(name).unwrap());
    }
    let own = backing_files(dir.path(), &checkpoint).unwrap();
    assert!(own.contains(&"b.npy".into()) && own.iter().all(|name| name.to_str().is_some()), "{own:?}");
    assert!(!own.contains(&"LICENSE".into()));
}
