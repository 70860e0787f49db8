//! Splitting of one model into safetensors shards with an index, in the layout of Hugging Face's libraries.
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

/// File in a folder of shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// File name in the folder.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of tensors in the file.
    pub tensors: usize,
    /// Total bytes of these tensors.
    pub tensor_bytes: u64,
    /// True where that exceeds the requested size: the file has a single tensor, or several with shared bytes.
    pub oversized: bool,
}

/// Planned shards.
#[derive(Debug)]
pub struct PreparedShards {
    /// The write plan.
    pub plan: WritePlan,
    /// Notes on the source.
    pub notes: Vec<Note>,
    /// The files with tensors, in order.
    pub shards: Vec<Shard>,
    /// Source files that the new files replace, where the source is the target.
    pub replaced: Vec<PathBuf>,
}

impl PreparedShards {
    /// Returns the document of the written or planned shards: `bytes` of all files, `done` where they were written.
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

    /// Writes the shards to `target`; returns the bytes of all files. A folder of shards may be split again in place.
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

/// Plans the folder `target` with the tensors of `source` in files of at most `size` bytes of tensors: `5GB` (powers of
/// 1000), `64MiB` (powers of 1024), or bytes. A larger tensor is put into a file of its own. The order is that of the source,
/// and the same source yields the same bytes.
///
/// # Errors
/// As [`prepare`](super::prepare); [`crate::Kind::Usage`], `bad-size`, `shards-in-a-folder`; [`crate::Kind::Mismatch`],
/// `loss-denied`, where the folder is split again in place and shards cannot represent something in its files.
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
            let hint = "write to another folder to see every loss";
            error.in_file(source.display()).hint(hint)
        })?;
    }
    let listed = listed(&plan);
    let shards = plan.files.iter().filter_map(|file| shard_of(file, &listed, most)).collect();
    Ok(PreparedShards { plan, notes, shards, replaced })
}

/// Fails where the target has the extension of a file, unless it is an existing folder.
fn check_target(target: &Path) -> Result<()> {
    let is_file_name = target.extension().is_some_and(|end| end.eq_ignore_ascii_case("safetensors"));
    if !is_file_name || PathKind::of(target).is_ok_and(|kind| kind == PathKind::Folder) {
        return Ok(());
    }
    Err(Error::usage(
        "shards-in-a-folder",
        "the target is a file name, but shards are several files in a folder",
    )
    .in_file(target.display())
    .expected("a folder name, without .safetensors")
    .hint("give the name of a folder, which is created; to write one file, use convert"))
}

/// Shard index; only the number of tensors per file is kept.
#[derive(serde::Deserialize)]
struct List {
    weight_map: Counts,
}

/// Number of tensors by file name.
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
        f.write_str("file names by tensor names")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<Self, A::Error> {
        while let Some((IgnoredAny, file)) = map.next_entry::<_, String>()? {
            *self.0.entry(file).or_default() += 1;
        }
        Ok(self)
    }
}

/// Returns the number of tensors that the planned index lists for each file. Empty tensors appear only there.
fn listed(plan: &WritePlan) -> HashMap<String, usize> {
    let lists = plan.files.iter().filter(|file| file.name.ends_with(".json"));
    let texts = lists.flat_map(|file| &file.segments).filter_map(|segment| match &segment.content {
        Content::Literal(text) => serde_json::from_slice::<List>(text).ok(),
        _ => None,
    });
    texts.flat_map(|list| list.weight_map.0).collect()
}

/// Returns the shard of a planned file; `None` for the index, which has no tensors.
fn shard_of(file: &PlannedFile, listed: &HashMap<String, usize>, most: u64) -> Option<Shard> {
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
