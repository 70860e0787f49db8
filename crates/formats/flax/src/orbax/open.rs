//! Reader: folder to checkpoint.

use super::chunks::{self, Values};
use super::layout::AGGREGATE;
use super::metadata::{self, METADATA, STEP_METADATA, STRINGS, Tree};
use super::ocdbt::{self, Ocdbt, manifest_in};
use super::stored::{FolderFile, Stored};
use super::zarr::{self, KEYS, Parsed};
use crate::keys::key_of;
use crate::tree::TreeReader;
use crate::{roles, tree};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::{Checkpoint, Damage, Name, Note, TensorEntry, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderItem, FolderRef, SourceRef};

/// End of the name of the file that marks a complete checkpoint.
pub(super) const MARKER: &str = "commit_success.txt";
/// Maximum bytes of the marker.
pub(super) const MAX_MARKER: u64 = 4096;
/// Names of files without tensors, at the root of a tree.
const OTHERS: [&str; 4] = [STEP_METADATA, MARKER, "_sharding", "descriptor/descriptor.pbtxt"];
/// Folder of files about the chunks of arrays.
const ARRAY_METADATAS: &str = "array_metadatas";
/// Beginning of a text in place of an array that is stored elsewhere.
const PLACEHOLDER: &str = "PLACEHOLDER://";
/// Metadata key of the metadata of the user.
const CUSTOM: &str = "custom_metadata";
/// Maximum bytes of the metadata of an array.
const MAX_ZARR: u64 = 1 << 20;

/// Opens trees of a folder as one checkpoint; with several, the paths of each begin with the name of its folder.
///
/// # Errors
/// Errors of the files of the checkpoint, with the tensor.
pub(super) fn trees(
    folder: &FolderRef,
    label: &str,
    trees: &[PathBuf],
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let items = folder.list(FolderItem::DEPTH)?;
    let total = items.iter().fold(0u64, |sum, item| sum.saturating_add(item.len));
    let limits = Limits { budget: Some(options.limits.budget_for(total)), ..options.limits.clone() };
    let budget = limits.budget_for(total);
    let mut checkpoint = Checkpoint::new("orbax", super::KIND, label);
    for around in trees {
        let prefix = match trees.len() {
            1 => None,
            _ => around.file_name().map(|name| Name::from(&*name.to_string_lossy())),
        };
        let mut reader = Reader {
            folder,
            around,
            prefix,
            options,
            limits: &limits,
            budget: &budget,
            checkpoint: &mut checkpoint,
        };
        reader.read()?;
    }
    let step = trees.first().and_then(|tree| tree.parent()).unwrap_or(Path::new(""));
    for name in [Path::new(""), step].map(|at| at.join(STEP_METADATA)) {
        let known = checkpoint.files.iter().any(|file| Path::new(file.label()).ends_with(&name));
        if !known && let Some(source) = folder.open(&name)? {
            checkpoint.files.push(source);
        }
    }
    let bytes = checkpoint.tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(tensor.bytes()));
    limits.check_expansion("the tensors are", bytes, total).map_err(|e| e.in_file(label))?;
    roles::assign(&mut checkpoint.tensors);
    Ok(checkpoint)
}

/// Values of a store by key.
enum Store {
    Ocdbt(Ocdbt),
    Folders,
}

struct Reader<'a> {
    folder: &'a FolderRef,
    around: &'a Path,
    prefix: Option<Name>,
    options: &'a OpenOptions,
    limits: &'a Limits,
    budget: &'a Budget,
    checkpoint: &'a mut Checkpoint,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<()> {
        let store = match self.file(&manifest_in(Path::new("")))? {
            Some(manifest) => {
                Store::Ocdbt(ocdbt::read(self.folder, self.around, manifest, self.limits, self.budget)?)
            }
            None => Store::Folders,
        };
        let mut arrays: HashSet<String> = self.arrays(&store)?;
        let aggregate = self.aggregate(&store, &mut arrays)?;
        let tree = match self.file(Path::new(METADATA))? {
            Some(source) => {
                let tree = metadata::read(&source, self.limits, self.budget)?;
                self.checkpoint.files.push(source);
                tree
            }
            None => Tree::default(),
        };
        if let Some(custom) = tree.custom {
            self.checkpoint.metadata.set(CUSTOM, custom);
        }
        let strings = match self.file(Path::new(STRINGS))? {
            Some(source) => {
                let strings = metadata::strings(&source, self.limits, self.budget)?;
                self.checkpoint.files.push(source);
                strings
            }
            None => HashMap::new(),
        };
        for leaf in tree.leaves {
            if aggregate.contains(&leaf.path) {
                continue;
            }
            if arrays.remove(&leaf.name) {
                self.add(&store, &leaf.name, leaf.path)?;
            } else if let Some(value) = leaf.empty() {
                self.value(&leaf.path, value);
            } else if let Some(text) = strings.get(&leaf.name) {
                self.value(&leaf.path, Value::Text(text.clone()));
            } else {
                let error = Error::corrupt("tensor-missing", "the tensor is listed, but not stored")
                    .in_file(self.checkpoint.label.clone())
                    .found(&leaf.kind);
                self.lose(&leaf.path, error)?;
            }
        }
        // Arrays that no tree lists, by the parts of their names.
        let mut rest: Vec<String> = arrays.into_iter().collect();
        rest.sort();
        if !rest.is_empty() {
            let text = format!(
                "{} not listed in {METADATA}; the parts of their names are split at dots",
                counted(rest.len() as u64, "array is", "arrays are")
            );
            self.checkpoint.notes.push(Note::new("names-from", text));
        }
        for name in rest {
            self.add(&store, &name, TensorPath::from_dotted(&name))?;
        }
        self.others(store)
    }

    fn file(&self, name: &Path) -> Result<Option<SourceRef>> {
        self.folder.open(&self.around.join(name))
    }

    /// Returns the path of a leaf in the checkpoint.
    fn path(&self, path: &TensorPath) -> TensorPath {
        self.prefix.iter().chain(path.parts()).cloned().collect()
    }

    fn value(&mut self, path: &TensorPath, value: Value) {
        let key = key_of(&self.path(path));
        self.checkpoint.metadata.set(key, value);
    }

    /// Records a lost tensor for a salvage; otherwise fails.
    fn lose(&mut self, path: &TensorPath, error: Error) -> Result<()> {
        let path = self.path(path);
        if self.options.salvage && Damage::is(&error) {
            self.checkpoint.lose(path.to_text(), &error);
            return Ok(());
        }
        Err(error.on_tensor(path))
    }

    /// Returns the names of all stored arrays.
    fn arrays(&self, store: &Store) -> Result<HashSet<String>> {
        let of_key = |key: &str| {
            let (name, last) = key.rsplit_once('/')?;
            KEYS.contains(&last).then(|| name.to_owned())
        };
        Ok(match store {
            Store::Ocdbt(store) => {
                store.entries.keys().filter_map(|key| of_key(std::str::from_utf8(key).ok()?)).collect()
            }
            Store::Folders => {
                let items = self.folder.list(FolderItem::DEPTH)?;
                let inside =
                    items.iter().filter_map(|item| item.name.strip_prefix(self.around).ok()?.to_str());
                inside.filter_map(of_key).collect()
            }
        })
    }

    /// Reads the file of the tree in an old checkpoint: adds its arrays, and the stored arrays that it refers to. Returns all paths.
    fn aggregate(&mut self, store: &Store, arrays: &mut HashSet<String>) -> Result<HashSet<TensorPath>> {
        let Some(source) = self.file(Path::new(AGGREGATE))?.filter(tree::is_any) else {
            return Ok(HashSet::new());
        };
        let mut reader = TreeReader::new(&source, self.limits);
        reader.read(self.options).map_err(|e| e.in_file(source.label()))?;
        let content = std::mem::take(&mut reader.content);
        let mut paths: HashSet<TensorPath> = HashSet::new();
        self.checkpoint.notes.extend(content.notes);
        for mut tensor in content.tensors {
            paths.insert(tensor.path.clone());
            tensor.path = self.path(&tensor.path);
            self.checkpoint.tensors.push(tensor);
        }
        for leaf in content.values {
            match leaf.value {
                Value::Text(text) if text.starts_with(PLACEHOLDER) => {
                    let name = text.get(PLACEHOLDER.len()..).unwrap_or_default();
                    if arrays.remove(name) {
                        paths.insert(leaf.path.clone());
                        self.add(store, name, leaf.path)?;
                    }
                }
                value => {
                    self.value(&leaf.path, value);
                    paths.insert(leaf.path);
                }
            }
        }
        self.checkpoint.files.push(source);
        Ok(paths)
    }

    /// Adds the tensor of a stored array, or a note if it cannot be read.
    fn add(&mut self, store: &Store, name: &str, path: TensorPath) -> Result<()> {
        match self.tensor(store, name, &path) {
            Ok(Some(tensor)) => self.checkpoint.tensors.push(tensor),
            Ok(None) => {}
            Err(error) => self.lose(&path, error)?,
        }
        Ok(())
    }

    fn tensor(&mut self, store: &Store, name: &str, path: &TensorPath) -> Result<Option<TensorEntry>> {
        let get = |key: &str| self.get(store, &format!("{name}/{key}"));
        let found = KEYS.iter().find_map(|key| get(key).transpose()).transpose()?;
        let Some(found) = found else { return Ok(None) };
        let at = |error: Error| error.in_file(found.file().label()).at(found.offset());
        Limits::check("bytes of the metadata of an array", "zarr", found.len(), MAX_ZARR).map_err(at)?;
        self.budget.take_work(found.len())?;
        let path = self.path(path);
        let label = self.checkpoint.label.clone();
        let values = Values { get: &get, limits: self.limits, budget: self.budget, label: &label };
        let parsed = zarr::parse(&found.read()?, self.limits).map_err(at)?;
        let tensor = match parsed {
            Parsed::Zarr(zarr) => Some(chunks::tensor(path, &zarr, &values)?),
            Parsed::Unsupported(reason) => {
                let note = Note::skipped_tensor(path.to_text(), reason);
                self.checkpoint.notes.push(note.of_state(roles::is_state(&path)));
                None
            }
        };
        if let (Store::Folders, Stored::Range { source, .. }) = (store, found) {
            self.checkpoint.files.push(source);
        }
        Ok(tensor)
    }

    /// Returns the value of a key.
    fn get(&self, store: &Store, key: &str) -> Result<Option<Stored>> {
        match store {
            Store::Ocdbt(store) => Ok(store.entries.get(key.as_bytes()).cloned()),
            Store::Folders => Ok(FolderFile::open(self.folder, self.around.join(key))?.map(Stored::whole)),
        }
    }

    /// Adds the files without tensors.
    fn others(&mut self, store: Store) -> Result<()> {
        if let Store::Ocdbt(store) = store {
            self.checkpoint.files.extend(store.files);
        }
        for name in OTHERS {
            self.checkpoint.files.extend(self.file(Path::new(name))?);
        }
        // The stores of single processes, and files about the chunks of arrays.
        for item in self.folder.list(FolderItem::DEPTH)? {
            let Ok(inside) = item.name.strip_prefix(self.around) else { continue };
            let Some(first) = inside.iter().next().and_then(|part| part.to_str()) else { continue };
            let is_part = first == ARRAY_METADATAS || first == "d" || first.starts_with("ocdbt.process_");
            if is_part && inside.iter().count() > 1 {
                let known = |file: &SourceRef| Path::new(file.label()).ends_with(&item.name);
                if !self.checkpoint.files.iter().any(known) {
                    self.checkpoint.files.extend(FolderFile::open(self.folder, item.name.clone())?);
                }
            }
        }
        Ok(())
    }
}
