//! What is written, held against the files that it is made of.
//!
//! A model that is written over as a whole is a wish that `force` says. A model of several files of which one becomes the
//! output, while the others stay, is a model destroyed: so that is refused, whatever may be replaced.

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::formats::files_of;
use crate::plan::WritePlan;
use crate::source::{FileIdentity, PathKind, kind_of_path};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The files that a model was opened from.
#[derive(Debug, Default)]
pub struct Inputs {
    /// All, and what people call them.
    all: HashMap<FileIdentity, String>,
    /// Those of the tensors and the names of their rows.
    data: HashSet<FileIdentity>,
}

impl Inputs {
    /// The files of `checkpoint`; none where nothing stands at `target`, as nothing is replaced then.
    pub fn of(checkpoint: &Checkpoint, target: &Path) -> Self {
        let mut inputs = Self::default();
        if FileIdentity::of_path(target).is_none() {
            return inputs;
        }
        files_of(checkpoint, &mut |source, is_data| {
            let Some(identity) = FileIdentity::of_source(&**source) else { return };
            if is_data {
                inputs.data.insert(identity.clone());
            }
            inputs.all.entry(identity).or_insert_with(|| source.label().to_owned());
        });
        inputs
    }

    /// Fails where `plan`, written to `target`, would take the place of some files of the model at `source` and leave others
    /// of it behind. One named file that holds all tensors may become another one; so may a folder, which the engine
    /// replaces only as a whole.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `output-is-input`.
    pub fn check(&self, source: &Path, target: &Path, plan: &WritePlan) -> Result<()> {
        if self.all.is_empty() {
            return Ok(());
        }
        let own = FileIdentity::of_path(source);
        let replaced: HashSet<FileIdentity> = if plan.is_one_file() {
            FileIdentity::of_path(target).into_iter().collect()
        } else if own == FileIdentity::of_path(target) {
            return Ok(());
        } else {
            plan.files.iter().filter_map(|file| FileIdentity::of_path(&target.join(&file.name))).collect()
        };
        let Some(hit) = replaced.iter().filter_map(|identity| self.all.get(identity)).min() else {
            return Ok(());
        };
        let is_folder = kind_of_path(source).is_ok_and(|kind| kind == PathKind::Folder);
        let is_whole = match own.filter(|own| !is_folder && replaced.contains(own)) {
            Some(_) => self.data.is_subset(&replaced),
            None => self.all.keys().all(|identity| replaced.contains(identity)),
        };
        if is_whole { Ok(()) } else { Err(refused(hit)) }
    }

    /// Fails where `target` is one of the files.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `output-is-input`.
    pub fn check_apart(&self, target: &Path) -> Result<()> {
        match FileIdentity::of_path(target).and_then(|identity| self.all.get(&identity)) {
            Some(hit) => Err(refused(hit)),
            None => Ok(()),
        }
    }

    /// Adds the file at `path`, where there is one: for [`check_apart`](Self::check_apart), as it is not told what it holds.
    pub fn add(&mut self, path: PathBuf) {
        if let Some(identity) = FileIdentity::of_path(&path) {
            self.all.insert(identity, path.display().to_string());
        }
    }
}

fn refused(file: &str) -> Error {
    Error::usage("output-is-input", "the output would take the place of a file that is part of what is read")
        .in_file(file)
        .hint("give the output another name")
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::ops::{ConvertOptions, convert};
    use std::fs;

    const MODEL: &str = "../../testdata/primitiv/good/trained/trained_xor_a.model";

    /// A folder of shards of one tensor each.
    fn shards(dir: &Path) -> PathBuf {
        let folder = dir.join("sh");
        let mut options = options("safetensors");
        options.kind = Some("sharded".into());
        options.settings = vec![("shard".into(), "1".into())];
        convert(MODEL, &folder, &options).unwrap();
        fs::write(folder.join("config.json"), "{}").unwrap();
        folder
    }

    fn options(to: &str) -> ConvertOptions {
        ConvertOptions { to: Some(to.into()), force: true, ..ConvertOptions::default() }
    }

    fn code(source: &Path, target: &Path) -> &'static str {
        convert(source, target, &options("npz")).map_or_else(|error| error.code(), |_| "fine")
    }

    #[test]
    fn a_part_of_a_model_is_never_replaced_by_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = shards(dir.path());
        let list = folder.join("model.safetensors.index.json");
        let shard = folder.join("model-00001-of-00004.safetensors");
        let kept = fs::read(&shard).unwrap();
        for source in [&folder, &list] {
            for target in [&shard, &list] {
                assert_eq!(
                    code(source, target),
                    "output-is-input",
                    "{} {}",
                    source.display(),
                    target.display()
                );
            }
        }
        #[cfg(unix)]
        {
            let link = dir.path().join("link.npz");
            std::os::unix::fs::symlink(&shard, &link).unwrap();
            assert_eq!(code(&folder, &link), "output-is-input");
        }
        assert_eq!(fs::read(&shard).unwrap(), kept);
        assert!(crate::open(&folder).is_ok());
        // What belongs to nothing that is read may be replaced, and so may a file that is all of what is read.
        assert_eq!(code(&folder, &folder.join("config.json")), "fine");
        assert_eq!(code(&shard, &shard), "fine");
    }
}
