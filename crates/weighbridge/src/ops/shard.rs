//! One model over many files of safetensors, with their list, as Hugging Face's libraries write and read it.
use super::ConvertOptions;
use super::convert::{check_nothing_lost, prepare_replacing};
use crate::checkpoint::{Loss, Note};
use crate::error::{Error, Result};
use crate::formats::registry;
use crate::formats::safetensors::parse_size;
use crate::plan::{Content, PlannedFile, WritePlan};
use crate::source::PathKind;
use crate::text::path_text;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A file of a folder of shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its name in the folder.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// How many tensors stand in it.
    pub tensors: usize,
    /// Bytes of these tensors.
    pub tensor_bytes: u64,
    /// True where that is more than was asked for: one tensor, or several that are the same bytes.
    pub oversized: bool,
}

/// Shards that were planned.
#[derive(Debug)]
pub struct PreparedShards {
    /// What is written.
    pub plan: WritePlan,
    /// What was odd about the source.
    pub notes: Vec<Note>,
    /// The files of tensors, in order.
    pub shards: Vec<Shard>,
    /// The files of the source that the new ones take the place of, where the source is the target.
    pub replaced: Vec<PathBuf>,
}

impl PreparedShards {
    /// The document of what was written, or would be: `bytes` of all files, `done` where it was.
    pub fn to_json(&self, target: &Path, done: bool, bytes: u64) -> Json {
        let one = |shard: &Shard| {
            json!({
                "name": shard.name, "bytes": shard.bytes, "tensors": shard.tensors,
                "tensor_bytes": shard.tensor_bytes, "oversized": shard.oversized,
            })
        };
        json!({
            "path": path_text(target), "done": done, "bytes": bytes,
            "shards": self.shards.iter().map(one).collect::<Json>(),
            "losses": self.plan.losses.iter().map(Loss::to_json).collect::<Json>(),
            "notes": self.notes.iter().map(Note::to_json).collect::<Json>(),
        })
    }

    /// Writes the shards to `target`; returns the bytes of all files. A folder of shards may be cut anew in its own place.
    ///
    /// # Errors
    /// As [`save`](super::save).
    pub fn write(&self, target: &Path, options: &ConvertOptions) -> Result<u64> {
        let report = match self.replaced.as_slice() {
            [] => super::save(&self.plan, target, options.force, &options.run)?,
            own => super::convert::save_replacing(&self.plan, target, own, &options.run)?,
        };
        Ok(report.bytes)
    }
}

/// Plans the folder `target` with the tensors of `source` in files of at most `size` bytes of tensors: `5GB`
/// (powers of 1000), `64MiB` (powers of 1024), or bytes. A tensor that is larger has a file of its own. The
/// order is that of the source, and the same source gives the same bytes.
///
/// # Errors
/// As [`prepare`](super::prepare); [`crate::Kind::Usage`], `bad-size`, `shards-in-a-folder`; [`crate::Kind::Mismatch`], `loss-denied`, where the
/// folder is cut in its own place and something in its files has no place in shards.
pub fn shard(source: &Path, target: &Path, size: &str, options: &ConvertOptions) -> Result<PreparedShards> {
    let most = parse_size(size)?;
    check_target(target)?;
    let mut options = options.clone();
    options.to = Some("safetensors".to_owned());
    options.kind = Some("sharded".to_owned());
    options.settings.push(("shard".to_owned(), size.to_owned()));
    let (plan, notes, replaced) = prepare_replacing(source, target, true, &options)
        .map_err(|error| registry().offer_salvage(error, source, &options.open))?;
    if !replaced.is_empty() {
        check_nothing_lost(&plan.losses).map_err(|error| {
            let hint = "write to another folder instead, and see what it says of these";
            error.in_file(source.display()).hint(hint)
        })?;
    }
    let listed = listed(&plan);
    let shards = plan.files.iter().filter_map(|file| told(file, &listed, most)).collect();
    Ok(PreparedShards { plan, notes, shards, replaced })
}

/// Fails where the name is that of a file, as of the one that `merge` writes, unless a folder has it already.
fn check_target(target: &Path) -> Result<()> {
    let is_file_name = target.extension().is_some_and(|end| end.eq_ignore_ascii_case("safetensors"));
    if !is_file_name || PathKind::of(target).is_ok_and(|kind| kind == PathKind::Folder) {
        return Ok(());
    }
    Err(Error::usage("shards-in-a-folder", "shards are several files, and this is the name of one")
        .in_file(target.display())
        .expected("the name of a folder, without .safetensors")
        .hint("the folder is made; for one file, convert"))
}

/// The list of shards, of which the names of files are counted as they are read.
#[derive(serde::Deserialize)]
struct List {
    weight_map: Counts,
}

/// How many tensors each file has.
#[derive(Default)]
struct Counts(HashMap<String, usize>);

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(list: D) -> std::result::Result<Self, D::Error> {
        list.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for Counts {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names of files by names of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<Self, A::Error> {
        while let Some((IgnoredAny, file)) = map.next_entry::<_, String>()? {
            *self.0.entry(file).or_default() += 1;
        }
        Ok(self)
    }
}

/// How many tensors the planned list names for each file: some have no bytes, and nothing else of the plan knows them.
fn listed(plan: &WritePlan) -> HashMap<String, usize> {
    let lists = plan.files.iter().filter(|file| file.name.ends_with(".json"));
    let texts = lists.flat_map(|file| &file.segments).filter_map(|segment| match &segment.content {
        Content::Literal(text) => serde_json::from_slice::<List>(text).ok(),
        _ => None,
    });
    texts.flat_map(|list| list.weight_map.0).collect()
}

/// What stands in a file; `None` for the list, in which no tensor does.
fn told(file: &PlannedFile, listed: &HashMap<String, usize>, most: u64) -> Option<Shard> {
    if !file.name.ends_with(".safetensors") {
        return None;
    }
    let is_tensor = |content: &Content| matches!(content, Content::Copy { .. } | Content::Tensor { .. });
    let tensors = file.segments.iter().filter(|segment| is_tensor(&segment.content));
    let tensor_bytes = tensors.map(|segment| segment.len).sum();
    Some(Shard {
        name: file.name.clone(),
        bytes: file.len,
        tensors: listed.get(&file.name).copied().unwrap_or_default(),
        tensor_bytes,
        oversized: tensor_bytes > most,
    })
}
