//! Summary of a checkpoint: format, totals, notes. Reads no tensor data.

use crate::checkpoint::{Checkpoint, Damage, Metadata, Note, Origin, Role, TensorEntry, Value};
use crate::error::Result;
use crate::formats::{files_of, registry};
use crate::source::{FolderRef, LocalFolder, PathKind};
use crate::tensor::{DType, Shape};
use crate::text::path_text;
use serde_json::{Map, Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Number of largest tensors that are named.
const LARGEST: usize = 5;
/// Last name parts that PyTorch, Keras and Paddle use for running statistics and constants. Where a file does not state which
/// tensors are trained, these are counted as buffers.
const BUFFERS: [&str; 9] = [
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "moving_mean",
    "moving_variance",
    "_mean",
    "_variance",
    "position_ids",
    "inv_freq",
];

/// Totals of a group of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Number of tensors.
    pub tensors: u64,
    /// Number of elements.
    pub elements: u64,
    /// Number of bytes, in the type of the tensor after casts. See [`TensorEntry::bytes`].
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, entry: &TensorEntry) {
        self.tensors += 1;
        self.elements = self.elements.saturating_add(entry.elements());
        self.bytes = self.bytes.saturating_add(entry.bytes());
    }
    /// `{"tensors", "elements", "bytes"}`.
    pub fn to_json(&self) -> Json {
        json!({ "tensors": self.tensors, "elements": self.elements, "bytes": self.bytes })
    }
}

/// One of the largest tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Large {
    /// The displayed name, not escaped. See [`TensorEntry::text`].
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The shape.
    pub shape: Shape,
    /// Number of bytes.
    pub bytes: u64,
}

/// Result of [`info`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The path, or another display name.
    pub label: String,
    /// The format's id.
    pub format: &'static str,
    /// The file kind within the format.
    pub kind: &'static str,
    /// The format before the conversion to a bridge format.
    pub origin: Option<Origin>,
    /// All tensors.
    pub total: Tally,
    /// Number of files.
    pub files: u64,
    /// Total length of the files.
    pub file_bytes: u64,
    /// Names of the files that accompany the model in its folder. Set by [`Info::add_others`].
    pub others: Vec<String>,
    /// Elements of trained tensors: parameters and embeddings, without buffers. Tied tensors count once.
    pub parameters: u64,
    /// Tensors with the role of a parameter that are buffers by name or type: running statistics, positions, masks.
    pub buffers: Tally,
    /// Tensors that share the bytes of an earlier one: their name, and that of the first.
    pub tied: Vec<(String, String)>,
    /// Bytes of `tied`, which are stored once.
    pub tied_bytes: u64,
    /// Totals by role, by the word in JSON, in the order of first appearance.
    pub by_role: Vec<(&'static str, Tally)>,
    /// Totals by element type, most bytes first.
    pub by_dtype: Vec<(DType, Tally)>,
    /// The largest tensors, largest first, at most five; among equals in the order of the file.
    pub largest: Vec<Large>,
    /// Parts of the longest path; 0 without tensors.
    pub depth: u64,
    /// Tensors whose name, type or layout was guessed.
    pub guessed: u64,
    /// Metadata of the file.
    pub metadata: Metadata,
    /// Notes: oddities, guesses, omissions.
    pub notes: Vec<Note>,
    /// Location of the damage and the lost tensors, for a damaged file.
    pub damage: Option<Box<Damage>>,
}

impl Info {
    /// Adds the names of the files that accompany the model `checkpoint` in the folder at `path`, such as its configuration and its
    /// tokenizer. A path that is not a folder has none.
    ///
    /// # Errors
    /// Errors of listing the folder.
    pub fn add_others(&mut self, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        if !matches!(PathKind::of(path), Ok(PathKind::Folder)) {
            return Ok(());
        }
        let folder: FolderRef = Arc::new(LocalFolder::open(path)?);
        let names = registry().files_beside(&folder, checkpoint)?;
        self.others = names.iter().map(|name| path_text(name)).collect();
        Ok(())
    }
}

/// Summarizes `checkpoint`. Pure: nothing is read.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// let model = weighbridge::open(&path)?;
/// let summary = weighbridge::ops::info::info(model.index());
/// println!("{}: {} parameters in {} bytes", summary.format, summary.parameters, summary.file_bytes);
/// assert_eq!(summary.largest[0].name, "w1");
/// # Ok(())
/// # }
/// ```
pub fn info(checkpoint: &Checkpoint) -> Info {
    let mut total = Tally::default();
    let mut by_role: Vec<(&'static str, Tally)> = Vec::new();
    let mut by_dtype: Vec<(DType, Tally)> = Vec::new();
    let mut parameters = 0u64;
    let mut buffers = Tally::default();
    let tied = checkpoint.tied();
    let again: HashSet<usize> = tied.iter().map(|(place, _)| *place).collect();
    for (place, entry) in checkpoint.tensors.iter().enumerate() {
        total.add(entry);
        tally_of(&mut by_role, entry.role.as_str()).add(entry);
        tally_of(&mut by_dtype, entry.dtype()).add(entry);
        if !matches!(entry.role, Role::Parameter | Role::Embedding) {
            continue;
        }
        if is_buffer(entry) {
            buffers.add(entry);
        } else if !again.contains(&place) {
            parameters = parameters.saturating_add(entry.elements());
        }
    }
    let mut files: HashMap<String, u64> = HashMap::new();
    // A few bytes taken out of a file are labelled with its name.
    files_of(checkpoint, &mut |source, _| {
        let bytes = files.entry(source.label().to_owned()).or_default();
        *bytes = source.len().max(*bytes);
    });
    let name = |place: usize| checkpoint.tensors[place].text();
    by_dtype.sort_by_key(|(dtype, tally)| (std::cmp::Reverse(tally.bytes), *dtype));
    let tied_bytes = again
        .iter()
        .filter_map(|&place| checkpoint.tensors.get(place))
        .fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes()));
    let depth = checkpoint.tensors.iter().map(|t| t.path.parts().len()).max().unwrap_or(0);
    Info {
        label: checkpoint.label.clone(),
        format: checkpoint.shown_format(),
        kind: checkpoint.kind,
        origin: checkpoint.carried_origin().cloned(),
        total,
        files: files.len() as u64,
        file_bytes: files.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
        others: Vec::new(),
        parameters,
        buffers,
        tied: tied.into_iter().map(|(place, first)| (name(place), name(first))).collect(),
        tied_bytes,
        by_role,
        by_dtype,
        largest: largest(&checkpoint.tensors),
        depth: depth as u64,
        guessed: checkpoint.tensors.iter().filter(|t| t.guessed).count() as u64,
        metadata: checkpoint.metadata.clone(),
        notes: checkpoint.notes.clone(),
        damage: checkpoint.damage.clone(),
    }
}

/// True for a tensor that is not trained although the file does not state it: by its name, or by a type without gradients.
/// 8-bit integers may be quantized weights.
fn is_buffer(entry: &TensorEntry) -> bool {
    let dtype = entry.dtype();
    let is_number = dtype.is_float() || matches!(dtype, DType::C64 | DType::C128 | DType::U8 | DType::I8);
    let last = entry.path.parts().last().and_then(|part| part.as_str()).unwrap_or_default();
    // Keras numbers the outputs of variables.
    let last = last.strip_suffix(":0").unwrap_or(last);
    let is_frozen = entry.attributes.get("trainable") == Some(&Value::Bool(false));
    !is_number || is_frozen || BUFFERS.contains(&last)
}

/// Returns the tally of `key`, appended where it is new. There are few keys.
fn tally_of<K: PartialEq>(tallies: &mut Vec<(K, Tally)>, key: K) -> &mut Tally {
    let place = tallies.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
        tallies.push((key, Tally::default()));
        tallies.len() - 1
    });
    &mut tallies[place].1
}

fn largest(tensors: &[TensorEntry]) -> Vec<Large> {
    let mut entries: Vec<&TensorEntry> = tensors.iter().collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.bytes()));
    entries
        .into_iter()
        .take(LARGEST)
        .map(|entry| Large {
            name: entry.text(),
            dtype: entry.dtype(),
            shape: entry.shape.clone(),
            bytes: entry.bytes(),
        })
        .collect()
}

impl Info {
    /// Returns all fields as JSON, with `path` for the label. `roles` and `dtypes` are objects of tallies.
    pub fn to_json(&self) -> Json {
        let tallies = |pairs: &mut dyn Iterator<Item = (&str, &Tally)>| -> Json {
            pairs.map(|(name, tally)| (name.to_owned(), tally.to_json())).collect::<Map<_, _>>().into()
        };
        let mut json = json!({
            "path": self.label,
            "format": self.format,
            "kind": self.kind,
            "tensors": self.total.tensors,
            "elements": self.total.elements,
            "bytes": self.total.bytes,
            "files": self.files,
            "file_bytes": self.file_bytes,
            "parameters": self.parameters,
            "buffers": self.buffers.to_json(),
            "tied": self.tied.iter().map(|(name, of)| json!({ "name": name, "of": of })).collect::<Json>(),
            "roles": tallies(&mut self.by_role.iter().map(|(role, tally)| (*role, tally))),
            "dtypes": tallies(&mut self.by_dtype.iter().map(|(dtype, tally)| (dtype.name(), tally))),
            "largest": self.largest.iter().map(Large::to_json).collect::<Json>(),
            "depth": self.depth,
            "guessed": self.guessed,
            "metadata": null,
            "notes": self.notes.iter().map(Note::to_json).collect::<Json>(),
        });
        // The macro would copy the metadata.
        json["metadata"] = self.metadata.to_json();
        if let Some(origin) = &self.origin {
            json["origin"] = json!({ "format": origin.format, "kind": origin.kind });
        }
        if !self.others.is_empty() {
            json["others"] = json!(self.others);
        }
        if let Some(damage) = &self.damage {
            json["damage"] = damage.to_json(usize::try_from(self.total.tensors).unwrap_or(usize::MAX));
        }
        json
    }
}

impl Large {
    /// Returns `{"name", "dtype", "shape", "bytes"}`.
    pub fn to_json(&self) -> Json {
        json!({
            "name": self.name,
            "dtype": self.dtype.name(),
            "shape": self.shape.dims(),
            "bytes": self.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_names_the_files_beside_its_model() {
        let path = weighbridge_testkit::testdata("samples/bert");
        let others = |path: &Path| {
            let checkpoint = crate::formats::open(path).unwrap();
            let mut info = info(&checkpoint);
            info.add_others(path, &checkpoint).unwrap();
            info.others
        };
        assert_eq!(others(&path), ["config.json", "vocab.txt"]);
        assert_eq!(others(&path.join("pytorch_model.bin")), Vec::<String>::new());
    }

    use crate::checkpoint::{Name, TensorPath, Value};
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::Encoding;
    use std::sync::Arc;

    #[test]
    fn sums() {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 4096]));
        let mut checkpoint = Checkpoint::new("primitiv", "model", "m.model");
        let mut add = |name: &str, dtype, dims: &[u64], role| {
            let path = TensorPath::from_dotted(name);
            let shape = Shape::new(dims);
            let mut entry = TensorEntry::dense(path, dtype, shape, &source, 0, Encoding::COLUMN).unwrap();
            entry.role = role;
            checkpoint.tensors.push(entry);
        };
        add("a.b.w", DType::F32, &[12, 2], Role::Parameter);
        add("a.b.w", DType::F32, &[12, 2], Role::OptimizerState { slot: Name::from("m1") });
        add("e", DType::F16, &[100, 3], Role::Embedding);
        add("ids", DType::I64, &[5], Role::Other);
        add("empty", DType::F32, &[0], Role::Parameter);
        add("last", DType::U8, &[1], Role::Buffer);
        checkpoint.tensors[3].guessed = true;
        checkpoint.metadata.set("epoch", Value::U32(3));
        checkpoint.metadata.set("text", Value::Text("\u{1b}x".repeat(200)));
        checkpoint.notes.push(Note::new("odd", "something"));

        let info = info(&checkpoint);
        assert_eq!(info.total, Tally { tensors: 6, elements: 354, bytes: 96 + 96 + 600 + 40 + 1 });
        assert_eq!(info.parameters, 24 + 300);
        let roles: Vec<_> = info.by_role.iter().map(|(role, tally)| (*role, tally.tensors)).collect();
        assert_eq!(
            roles,
            [("parameter", 2), ("optimizer", 1), ("embedding", 1), ("other", 1), ("buffer", 1)]
        );
        let dtypes: Vec<_> = info.by_dtype.iter().map(|(dtype, tally)| (dtype.name(), tally.bytes)).collect();
        assert_eq!(dtypes, [("f16", 600), ("f32", 192), ("i64", 40), ("u8", 1)]);
        let names: Vec<_> = info.largest.iter().map(|large| large.name.as_str()).collect();
        assert_eq!(names, ["e", "a.b.w", "a.b.w/m1", "ids", "last"]);
        assert_eq!((info.depth, info.guessed), (3, 1));
        assert_eq!(info.to_json()["metadata"]["epoch"], 3);

        let json = info.to_json();
        assert_eq!(json["roles"]["parameter"], json!({ "tensors": 2, "elements": 24, "bytes": 96 }));
        assert_eq!(json["largest"][0]["shape"], json!([100, 3]));
        assert_eq!(json["notes"][0]["code"], "odd");
        assert_eq!(json.get("origin"), None);
    }

    #[test]
    fn counts_what_is_trained_once() {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 4096]));
        let mut checkpoint = Checkpoint::new("torch", "state_dict", "m.pt");
        let mut add = |name: &str, dtype, dims: &[u64], offset| {
            let path = TensorPath::from_dotted(name);
            let shape = Shape::new(dims);
            let entry = TensorEntry::dense(path, dtype, shape, &source, offset, Encoding::ROW).unwrap();
            checkpoint.tensors.push(entry);
        };
        add("wte.weight", DType::F32, &[10, 2], 0);
        add("bn.running_mean", DType::F32, &[7], 100);
        add("bn.num_batches_tracked", DType::I64, &[], 200);
        add("embeddings.position_ids", DType::I64, &[1, 9], 300);
        add("moving_mean:0", DType::F32, &[3], 400);
        add("lm_head.weight", DType::F32, &[10, 2], 0);
        add("view", DType::F32, &[5, 4], 0);
        add("packed", DType::U8, &[6], 500);
        add("empty", DType::F32, &[0], 0);
        add("frozen", DType::F32, &[8], 600);
        checkpoint.tensors[9].attributes.insert("trainable".into(), Value::Bool(false));

        let info = info(&checkpoint);
        assert_eq!(info.parameters, 20 + 20 + 6);
        assert_eq!((info.buffers.tensors, info.buffers.elements), (5, 7 + 1 + 9 + 3 + 8));
        assert_eq!(info.tied, [("lm_head.weight".to_owned(), "wte.weight".to_owned())]);
        assert_eq!((info.files, info.file_bytes), (1, 4096));
        assert_eq!(info.to_json()["tied"], json!([{ "name": "lm_head.weight", "of": "wte.weight" }]));
    }

    #[test]
    fn nothing_at_all() {
        let info = info(&Checkpoint::default());
        assert_eq!((info.total, info.depth, info.parameters), (Tally::default(), 0, 0));
        assert_eq!(info.to_json()["tensors"], 0);
    }
}
