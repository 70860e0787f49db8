//! Files of a checkpoint by their names, and the folder that holds them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::{escape, path_text};
use weighbridge_io::source::{FolderItem, FolderRef, SourceRef, check_shard, read_vec};

/// File with the name of the newest checkpoint.
pub(super) const LATEST: &str = "latest";
/// Maximum length of that name.
const MAX_TAG: u64 = 255;
/// Ends of the names of files.
const MODEL_END: &str = "model_states.pt";
const OPTIMIZER_END: &str = "optim_states.pt";
/// Models that loaders of transformers and PEFT open in the same folder: they have precedence.
const LOADED: [&str; 4] =
    ["model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin"];
const INDEX_END: &str = ".index.json";
/// Ends of the names of other models.
const MODEL_ENDS: [&str; 5] = [".pt", ".pth", ".bin", ".ckpt", ".safetensors"];

/// Part of a checkpoint in one file. Ranks are those of data and of model parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartName {
    /// Model; without a data-parallel rank, the file of all of them.
    Model {
        data: Option<usize>,
        model: usize,
    },
    Optimizer {
        data: usize,
        model: usize,
    },
    /// Layer of a pipeline, or expert of a mixture.
    Other,
}

impl PartName {
    /// Parses the name of a file; `None` for files of other programs.
    fn of(name: &str) -> Option<Self> {
        let (rest, is_model) = match (name.strip_suffix(MODEL_END), name.strip_suffix(OPTIMIZER_END)) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => return None,
        };
        let rest = rest.strip_suffix('_').or_else(|| rest.strip_suffix('-')).unwrap_or(rest);
        if ["layer_", "expert_", "expp_rank_"].into_iter().any(|start| rest.starts_with(start)) {
            return Some(Self::Other);
        }
        let rest = rest.strip_prefix("bf16_").or_else(|| rest.strip_prefix("fp16_")).unwrap_or(rest);
        let (data, model) = match rest.strip_prefix("zero_pp_rank_") {
            Some(ranks) => {
                let (data, model) = ranks.split_once("_mp_rank_")?;
                (Some(number(data)?), number(model)?)
            }
            None => (None, number(rest.strip_prefix("mp_rank_")?)?),
        };
        match (is_model, data) {
            (true, data) => Some(Self::Model { data, model }),
            (false, Some(data)) => Some(Self::Optimizer { data, model }),
            (false, None) => None,
        }
    }
}

fn number(digits: &str) -> Option<usize> {
    let is_number =
        !digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Folder of one checkpoint: `global_stepN`, or another tag.
#[derive(Debug)]
pub(super) struct Place<'a> {
    folder: &'a FolderRef,
    /// Path in `folder`.
    around: PathBuf,
    /// File with the name of the tag, if that selected the folder.
    pub(super) latest: Option<SourceRef>,
    /// Names of the files with the model, by data-parallel rank; one of all ranks counts as rank 0.
    pub(super) models: BTreeMap<usize, String>,
    /// Names of the files with the optimizer, by data-parallel rank.
    pub(super) optimizers: BTreeMap<usize, String>,
    /// True if each rank has its own file with the model.
    pub(super) is_partitioned: bool,
}

impl<'a> Place<'a> {
    /// Finds the files of the checkpoint in the folder, or in its newest tag.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Usage`], `not-a-checkpoint` and `several-models`;
    /// [`weighbridge_core::Kind::Corrupt`], `deepspeed-files`, for `latest` without its folder; errors of [`Self::at`].
    pub(super) fn of(folder: &'a FolderRef) -> Result<Self> {
        let items = folder.list(2)?;
        if items.iter().any(|item| is_part_in(&item.name, Path::new(""))) {
            return Self::at(folder, PathBuf::new(), &items);
        }
        if let Some(latest) = folder.open(Path::new(LATEST))? {
            return Self::of_latest(folder, Path::new(""), latest);
        }
        let tags = tags(&items);
        match tags.as_slice() {
            [] => Err(Error::usage("not-a-checkpoint", "the folder has no checkpoint of DeepSpeed")
                .in_file(folder.label())
                .hint("give the folder that contains the files *_model_states.pt, or the folder around it")),
            [tag] => Self::at(folder, (*tag).to_owned(), &items),
            [first, second, ..] => Err(Error::usage(
                "several-models",
                "the folder has several checkpoints, and no file `latest` that selects one",
            )
            .in_file(folder.label())
            .found(escape(&format!("{}, {}", path_text(first), path_text(second))))
            .hint("give the path of one of these folders")),
        }
    }

    /// Finds the files of the checkpoint that `latest`, a file in `around`, names.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(super) fn of_latest(folder: &'a FolderRef, around: &Path, latest: SourceRef) -> Result<Self> {
        let tag = tag_of(&latest)?.ok_or_else(|| {
            Error::corrupt("deepspeed-files", "the file does not contain the name of a checkpoint")
                .in_file(latest.label())
        })?;
        check_shard(folder, around, &tag).map_err(|error| error.in_file(latest.label()))?;
        let inner = around.join(&tag);
        let items = folder.list(inner.components().count() + 1)?;
        if !items.iter().any(|item| is_part_in(&item.name, &inner)) {
            return Err(Error::corrupt(
                "deepspeed-files",
                "the file names a checkpoint whose folder is missing or has no files of DeepSpeed",
            )
            .in_file(latest.label())
            .found(escape(&tag))
            .hint("give the path of the folder of another checkpoint"));
        }
        let mut place = Self::at(folder, inner, &items)?;
        place.latest = Some(latest);
        Ok(place)
    }

    /// Collects the files of the checkpoint at `around`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`], `deepspeed-parallel`, for layers of a pipeline, experts and model parallelism;
    /// [`weighbridge_core::Kind::Corrupt`], `deepspeed-files`, for two files of one rank.
    fn at(folder: &'a FolderRef, around: PathBuf, items: &[FolderItem]) -> Result<Self> {
        let (models, optimizers) = (BTreeMap::new(), BTreeMap::new());
        let mut place = Place { folder, around, latest: None, models, optimizers, is_partitioned: false };
        for item in items.iter().filter(|item| item.name.parent() == Some(&*place.around)) {
            let Some(name) = item.name.file_name().and_then(|name| name.to_str()) else { continue };
            let Some(part) = PartName::of(name) else { continue };
            let (files, rank) = match part {
                PartName::Model { data, model: 0 } => {
                    place.is_partitioned |= data.is_some();
                    (&mut place.models, data.unwrap_or(0))
                }
                PartName::Optimizer { data, model: 0 } => (&mut place.optimizers, data),
                PartName::Other => {
                    return Err(apart(
                        "parts of a pipeline or of experts are not joined",
                        &place.label(name),
                    ));
                }
                _ => {
                    return Err(apart(
                        "parts of several model-parallel ranks are not joined",
                        &place.label(name),
                    ));
                }
            };
            if let Some(other) = files.insert(rank, name.to_owned()) {
                return Err(Error::corrupt("deepspeed-files", "two files of one rank")
                    .in_file(place.label(name))
                    .found(escape(&other))
                    .hint("one of them is of another checkpoint: move it away"));
            }
        }
        Ok(place)
    }

    /// Returns the display name of a file.
    pub(super) fn label(&self, name: &str) -> String {
        let root = if self.folder.label() == "." { "" } else { self.folder.label() };
        path_text(&Path::new(root).join(&self.around).join(name))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `deepspeed-files`, for a missing one; errors of the folder.
    pub(super) fn open(&self, name: &str) -> Result<SourceRef> {
        check_shard(self.folder, &self.around, name)?;
        self.folder.open(&self.around.join(name))?.ok_or_else(|| self.missing(name))
    }

    /// Error for a missing file.
    pub(super) fn missing(&self, name: &str) -> Error {
        Error::corrupt("deepspeed-files", "a file of the checkpoint is missing")
            .in_file(self.label(name))
            .hint("copy the whole folder: each rank writes files of its own")
    }

    /// Returns the total length of the files.
    pub(super) fn len(&self) -> Result<u64> {
        let mut sum = 0u64;
        for name in self.models.values().chain(self.optimizers.values()) {
            sum = sum.saturating_add(self.open(name)?.len());
        }
        Ok(sum)
    }

    /// Returns true for a universal checkpoint, which has a folder for each parameter.
    pub(super) fn is_universal(&self) -> bool {
        let zero = self.around.join("zero");
        let depth = zero.components().count() + 2;
        self.folder.list(depth).is_ok_and(|items| {
            items.iter().any(|item| item.name.starts_with(&zero) && item.name.ends_with("fp32.pt"))
        })
    }
}

/// Error for a kind of parallelism that is not joined.
fn apart(text: &'static str, file: &str) -> Error {
    Error::unsupported("deepspeed-parallel", text)
        .in_file(file)
        .hint("give the path of one file to open its part alone")
}

/// Returns true for a file of DeepSpeed directly in `folder`.
fn is_part_in(name: &Path, folder: &Path) -> bool {
    let own = name.file_name().and_then(|name| name.to_str());
    name.parent() == Some(folder) && own.is_some_and(|own| PartName::of(own).is_some())
}

/// Returns the folders with files of DeepSpeed.
fn tags(items: &[FolderItem]) -> Vec<PathBuf> {
    let mut tags: Vec<PathBuf> = Vec::new();
    for item in items {
        let Some(parent) = item.name.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
            continue;
        };
        if tags.last().is_none_or(|last| last != parent) && is_part_in(&item.name, parent) {
            tags.push(parent.to_owned());
        }
    }
    tags.dedup();
    tags
}

/// Reads the name of a checkpoint; `None` for other text.
pub(super) fn tag_of(latest: &SourceRef) -> Result<Option<String>> {
    if !(1..=MAX_TAG).contains(&latest.len()) {
        return Ok(None);
    }
    let text = String::from_utf8(read_vec(&**latest, 0, latest.len())?).unwrap_or_default();
    let tag = text.trim();
    let is_tag = !tag.is_empty() && !tag.chars().any(char::is_control);
    Ok(is_tag.then(|| tag.to_owned()))
}

/// Returns true for a folder of DeepSpeed: with its files, or with folders of them and no other model.
pub(super) fn recognises_folder(folder: &FolderRef) -> bool {
    let Ok(items) = folder.list(2) else { return false };
    if items.iter().any(|item| is_part_in(&item.name, Path::new(""))) {
        return true;
    }
    let has_latest = items.iter().any(|item| item.name == Path::new(LATEST));
    let is_other = |item: &FolderItem| {
        let name = item.name.to_str().filter(|name| !name.contains('/')).unwrap_or_default();
        let is_model = MODEL_ENDS.into_iter().any(|end| name.ends_with(end));
        LOADED.contains(&name) || name.ends_with(INDEX_END) || (is_model && !has_latest)
    };
    !items.iter().any(is_other) && !tags(&items).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_parsed() {
        let of = PartName::of;
        assert_eq!(of("mp_rank_00_model_states.pt"), Some(PartName::Model { data: None, model: 0 }));
        let partitioned = of("zero_pp_rank_12_mp_rank_01_model_states.pt");
        assert_eq!(partitioned, Some(PartName::Model { data: Some(12), model: 1 }));
        for name in
            ["bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt", "zero_pp_rank_3_mp_rank_00optim_states.pt"]
        {
            assert_eq!(of(name), Some(PartName::Optimizer { data: 3, model: 0 }), "{name}");
        }
        for name in ["layer_01-model_00-model_states.pt", "layer_0_expert_3_mp_rank_00_model_states.pt"] {
            assert_eq!(of(name), Some(PartName::Other), "{name}");
        }
        for name in
            ["optim_states.pt", "mp_rank_00_optim_states.pt", "mp_rank_x_model_states.pt", "model_states.pt"]
        {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
