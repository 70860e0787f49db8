//! Protection of input files from being overwritten by an output.
//!
//! Replacing a whole model is allowed with `force`. Replacing one file of a model of several files would destroy the model, so
//! it is refused in any case.

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::formats::{OpenOptions, files_of};
use crate::plan::WritePlan;
use crate::source::{FileIdentity, PathKind, real_path};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Files that a model was opened from.
#[derive(Debug, Default)]
pub struct Inputs {
    /// All files, with their display names.
    all: HashMap<FileIdentity, String>,
    /// Files with tensors or row names.
    data: HashSet<FileIdentity>,
}

impl Inputs {
    /// Returns the files of `checkpoint`; none where `target` does not exist, as nothing is replaced then.
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

    /// Adds the files named besides the model: program, configuration, counts and names of entities.
    ///
    /// # Errors
    /// [`crate::Kind::Io`] where the folder of entities cannot be listed.
    pub fn and_named(mut self, options: &OpenOptions) -> Result<Self> {
        for own in options.all_own() {
            for source in own.sources() {
                if let Some(identity) = FileIdentity::of_source(&*source) {
                    self.all.entry(identity).or_insert_with(|| source.label().to_owned());
                }
            }
            own.files()?.into_iter().for_each(|path| self.add(path));
        }
        Ok(self)
    }

    /// Fails where `plan`, written to `target`, would replace some files of the model at `source` and keep others. A single
    /// named file with all tensors may be replaced; so may a folder, which the engine replaces only as a whole. Where symbolic
    /// links lead to a file, only the name under which it was read permits its replacement: the other names may belong to other
    /// models.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `output-is-input`.
    pub fn check(&self, source: &Path, target: &Path, plan: &WritePlan) -> Result<()> {
        if self.all.is_empty() {
            return Ok(());
        }
        let own = FileIdentity::of_path(source);
        let with_place = |path: PathBuf| FileIdentity::of_path(&path).map(|identity| (identity, path));
        let places: HashMap<FileIdentity, PathBuf> = if plan.is_one_file() {
            with_place(target.to_owned()).into_iter().collect()
        } else if own == FileIdentity::of_path(target) {
            return Ok(());
        } else {
            plan.files.iter().filter_map(|file| with_place(target.join(&file.name))).collect()
        };
        let replaced: HashSet<FileIdentity> = places.keys().cloned().collect();
        let Some(hit) = replaced.iter().filter_map(|identity| self.all.get(identity)).min() else {
            return Ok(());
        };
        let is_folder = PathKind::of(source).is_ok_and(|kind| kind == PathKind::Folder);
        let own = own.filter(|own| !is_folder && replaced.contains(own));
        let is_named = places.iter().all(|(identity, place)| match self.all.get(identity) {
            Some(_) if own.as_ref() == Some(identity) => is_lost_by_name(source, place),
            Some(read) => is_lost_by_name(Path::new(read), place),
            None => true,
        });
        let is_whole = match own {
            Some(_) => self.data.is_subset(&replaced),
            None => self.all.keys().all(|identity| replaced.contains(identity)),
        };
        if is_whole && is_named { Ok(()) } else { Err(refused(hit)) }
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

    /// Adds the file at `path`, if it exists: for [`check_apart`](Self::check_apart), as its contents are unknown.
    pub fn add(&mut self, path: PathBuf) {
        if let Some(identity) = FileIdentity::of_path(&path) {
            self.all.insert(identity, path.display().to_string());
        }
    }
}

/// True where writing to `target` does not silently change the file behind the name `read`: both are one name, or, as with
/// hard links, two directory entries.
fn is_lost_by_name(read: &Path, target: &Path) -> bool {
    real_path(read) != real_path(target) || own_place(read) == own_place(target)
}

/// Returns the path with all links resolved but the last.
fn own_place(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some(real_path(parent.unwrap_or(Path::new(".")))?.join(path.file_name()?))
}

fn refused(file: &str) -> Error {
    Error::usage("output-is-input", "the output would overwrite an input file")
        .in_file(file)
        .hint("choose another name for the output")
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::formats::{biggraph, paddle};
    use crate::ops::{ConvertOptions, convert};
    use std::fs;

    fn model() -> PathBuf {
        weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model")
    }

    /// A folder of shards of one tensor each.
    fn shards(dir: &Path) -> PathBuf {
        let folder = dir.join("sh");
        let mut options = options("safetensors");
        options.kind = Some("sharded".into());
        options.settings = vec![("shard".into(), "1".into())];
        convert(model(), &folder, &options).unwrap();
        fs::write(folder.join("config.json"), "{}").unwrap();
        folder
    }

    fn options(to: &str) -> ConvertOptions {
        ConvertOptions { to: Some(to.into()), force: true, ..ConvertOptions::default() }
    }

    fn code(source: &Path, target: &Path) -> &'static str {
        convert(source, target, &options("npz")).map_or_else(|error| error.code().as_str(), |_| "fine")
    }

    #[test]
    fn refuses_to_replace_one_file_of_a_model() {
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
            assert_eq!(code(&folder, &link), "link");
        }

        assert_eq!(fs::read(&shard).unwrap(), kept);
        assert!(crate::formats::open(&folder).is_ok());
        // A file outside the input may be replaced, and so may a single file that is the whole input.
        assert_eq!(code(&folder, &folder.join("config.json")), "fine");
        assert_eq!(code(&shard, &shard), "fine");
    }

    /// As in the cache of a hub, where the files of two snapshots are links to one.
    #[cfg(unix)]
    #[test]
    fn only_the_input_name_may_be_overwritten() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        convert(model(), path("blob"), &options("npz")).unwrap();
        let kept = fs::read(path("blob")).unwrap();
        for name in ["a", "b"] {
            fs::create_dir(path(name)).unwrap();
            symlink(path("blob"), path(name).join("m.npz")).unwrap();
        }
        symlink(path("a"), path("way")).unwrap();
        let safetensors = options("safetensors");
        let refused = |source: &str, target: &str, code: &str| {
            let done = convert(path(source), path(target), &safetensors);
            assert_eq!(done.unwrap_err().code().as_str(), code, "{source} {target}");
            assert_eq!(fs::read(path("blob")).unwrap(), kept);
        };
        refused("a/m.npz", "b/m.npz", "link");
        refused("a", "b/m.npz", "link");
        refused("blob", "a/m.npz", "link");
        refused("a/m.npz", "way/m.npz", "link");
        refused("a/m.npz", "blob", "output-is-input");
        // A hard link keeps what the other name had.
        fs::hard_link(path("blob"), path("hard")).unwrap();
        convert(path("a/m.npz"), path("hard"), &safetensors).unwrap();
        assert_eq!(fs::read(path("blob")).unwrap(), kept);
        convert(path("blob"), path("blob"), &safetensors).unwrap();
        assert_ne!(fs::read(path("blob")).unwrap(), kept);
        assert!(path("a/m.npz").is_symlink());
    }

    #[test]
    fn files_named_besides_the_model_are_inputs() {
        let dir = tempfile::tempdir().unwrap();
        let golden = weighbridge_testkit::testdata("biggraph/set1");
        let mut paths = Vec::new();
        for name in [
            "ckpt_weighted/config.json",
            "ckpt_weighted/model.v1.h5",
            "ckpt_weighted/embeddings_n_0.v1.h5",
            "ckpt_weighted/checkpoint_version.txt",
            "weighted/entities/entity_count_n_0.txt",
            "weighted/entities/entity_names_n_0.json",
            "weighted/edges/edges_0_0.h5",
        ] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::copy(golden.join(name), &path).unwrap();
            paths.push(path);
        }
        let [config, model, part, _, count, names, edges] = paths.as_slice() else { unreachable!() };
        let (checkpoint, entities) = (config.parent().unwrap(), count.parent().unwrap());
        let program = dir.path().join("model.pdmodel");
        let parameters = dir.path().join("model.pdiparams");
        let paddle = weighbridge_testkit::testdata("paddle/good/p262/seq_jit");
        for path in [&program, &parameters] {
            fs::copy(paddle.join(path.file_name().unwrap()), path).unwrap();
        }
        let mut joined = options("npz");
        joined.open.set_own(paddle::ReadOptions::of_program(&program).unwrap());
        let before = fs::read(&program).unwrap();
        assert_eq!(convert(&parameters, &program, &joined).unwrap_err().code().as_str(), "output-is-input");
        assert_eq!(fs::read(&program).unwrap(), before);

        let mut plain = options("npz");
        plain.open.set_own(biggraph::ReadOptions {
            config: Some(std::sync::Arc::new(crate::source::FileSource::open(config).unwrap())),
            entities: Some(std::sync::Arc::new(crate::source::LocalFolder::open(entities).unwrap())),
            version: None,
        });
        let kept = |path: &Path| fs::read(path).unwrap();
        for (source, target) in [
            (edges.parent().unwrap(), config),
            (part, config),
            (checkpoint, count),
            (checkpoint, names),
            // It has no tensors.
            (checkpoint, model),
        ] {
            let before = kept(target);
            let code = convert(source, target, &plain).map_or_else(|error| error.code().as_str(), |_| "fine");
            assert_eq!(code, "output-is-input", "{} {}", source.display(), target.display());
            assert_eq!(kept(target), before);
        }
        // Another file in the folder of entities is not an input.
        fs::write(entities.join("out.npz"), "").unwrap();
        convert(checkpoint, entities.join("out.npz"), &plain).unwrap();
    }
}
