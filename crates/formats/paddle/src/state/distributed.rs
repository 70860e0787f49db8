//! Distributed checkpoints: `N.metadata` describes the parts of each tensor, `N_K.distcp` contain them.
//!
//! The directory is a pickle of three dicts. Each tensor has a list of parts, each with the start
//! (`global_offset`) and shape (`local_shape`) of a box of the tensor. A second dict maps each box to the
//! file that stores it under the name of the tensor. Classes are never imported: their state is read as data.

use super::KIND;
use super::arrays::Array;
use super::read::arrays;
use super::slots::Scope;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use weighbridge_core::Budget;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Extent, Name, Note, Origin, Pieces, Role, TensorEntry, TensorPath,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{DType, Region, Shape};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, check_range};
use weighbridge_pickle::{self as pickle, Cost, Graph, ObjectId, Options, Reduced};

/// Extension of a directory file.
const DIRECTORY: &str = "metadata";
/// Work units for one overlap test of two boxes.
const OVERLAP_TEST_COST: u64 = 4;
/// Maximum number of fields of a directory object. Paddle writes six. Objects may share fields, and each is searched.
const MAX_FIELDS: usize = 32;

/// Reads a folder with a distributed checkpoint; `None` if there is no directory file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `shard-missing` if a file or box is missing, `shard-mismatch` if it
/// differs from the directory, `shards-incomplete` if the boxes do not fill a tensor; errors from reading
/// pickles.
pub(in super::super) fn read_distributed(
    folder: &FolderRef,
    options: &OpenOptions,
) -> Result<Option<Checkpoint>> {
    let mut checkpoint = Checkpoint::new("paddle", KIND, folder.label());
    let mut shards = Shards { folder, options, opened: HashMap::new() };
    let mut found = false;
    for item in folder.list(1)? {
        if item.name.extension().is_none_or(|e| e != DIRECTORY) {
            continue;
        }
        let Some(source) = folder.open(&item.name)? else { continue };
        let bounds = Options::with_limits(options.limits.clone());
        let pickle = pickle::read(&source, 0, &bounds)?;
        let budget = pickle.budget();
        let directory = Directory::of(&pickle.graph, pickle.root, &options.limits, budget);
        let Some(directory) = directory.map_err(|e| e.in_file(source.label()))? else { continue };
        found = true;
        let (checkpoint, shards) = (&mut checkpoint, &mut shards);
        let mut reader = Reader { checkpoint, shards, options, budget };
        reader.read(&directory).map_err(|e| e.in_file(source.label()))?;
        checkpoint.files.push(source);
    }
    if !found {
        return Ok(None);
    }
    checkpoint.origin = Some(Origin { format: "paddle".into(), kind: KIND.into() });
    checkpoint.metadata.set(super::NAME_TABLE, weighbridge_core::checkpoint::Value::Bool(false));
    checkpoint.check_unique()?;
    Ok(Some(checkpoint))
}

/// Dicts of a directory.
struct Directory<'a> {
    graph: &'a Graph,
    tensors: &'a [(ObjectId, ObjectId)],
    /// The file of each box of each tensor.
    files: HashMap<(&'a str, Vec<u64>), &'a str>,
}

impl<'a> Directory<'a> {
    /// Interprets an object as a directory; `None` if it is something else.
    fn of(graph: &'a Graph, root: ObjectId, limits: &Limits, budget: &Budget) -> Result<Option<Self>> {
        let dict = |state, name| graph.pairs(field(graph, state, name)?);
        let dicts = instance(graph, root).filter(|(class, _)| *class == "Metadata").and_then(|(_, state)| {
            Some((dict(state, "state_dict_metadata")?, dict(state, "storage_metadata")?))
        });
        let Some((tensors, places)) = dicts else { return Ok(None) };
        let mut files = HashMap::new();
        for &(index, file) in places {
            let place = || {
                let (_, index) = instance(graph, index)?;
                let key = graph.text(field(graph, index, "tensor_key")?)?;
                Some((key, field(graph, index, "global_offset")?, graph.text(file)?))
            };
            let Some((key, offset, file)) = place() else { return Ok(None) };
            // One offset tuple may be shared by all boxes.
            let Some(offset) = counts(graph, offset, limits)? else { return Ok(None) };
            budget.take_memory(Cost::ITEM + 8 * offset.len() as u64)?;
            files.insert((key, offset), file);
        }
        Ok(Some(Self { graph, tensors, files }))
    }
}

/// Returns class and state of an object from Paddle's module for distributed checkpoints.
fn instance(graph: &Graph, id: ObjectId) -> Option<(&str, ObjectId)> {
    let made: &Reduced = graph.made(id)?;
    let (module, class) = graph.global(made.callable)?;
    let ours = module.starts_with("paddle.distributed.") && module.ends_with(".metadata");
    Some((class, made.state()?)).filter(|_| ours)
}

fn field(graph: &Graph, state: ObjectId, name: &str) -> Option<ObjectId> {
    let fields = graph.pairs(state).filter(|fields| fields.len() <= MAX_FIELDS)?;
    fields.iter().find(|(key, _)| graph.text(*key) == Some(name)).map(|&(_, value)| value)
}

/// Returns an offset or a shape; `None` if the object is neither.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`] for more dimensions than the limits allow.
fn counts(graph: &Graph, id: ObjectId, limits: &Limits) -> Result<Option<Vec<u64>>> {
    let Some(numbers) = graph.sequence(id) else { return Ok(None) };
    Limits::check("dimensions", "dimensions", numbers.len() as u64, limits.dimensions)?;
    Ok(numbers.iter().map(|&n| graph.int(n).and_then(|n| u64::try_from(n).ok())).collect())
}

/// Files with the parts, each opened once.
struct Shards<'a> {
    folder: &'a FolderRef,
    options: &'a OpenOptions,
    opened: HashMap<String, HashMap<String, Array>>,
}

impl Shards<'_> {
    fn find(&mut self, file: &str, key: &str) -> Result<&Array> {
        if !self.opened.contains_key(file) {
            let source = self.folder.open(Path::new(file))?;
            let source = source.ok_or_else(|| missing("a file of the checkpoint is missing").found(file))?;
            let all = arrays(&source, self.options).map_err(|e| e.in_file(source.label()))?;
            self.opened.insert(file.to_owned(), all);
        }
        let array = self.opened.get(file).and_then(|arrays| arrays.get(key));
        array.ok_or_else(|| missing("a file lacks a part that the directory assigns to it").found(file))
    }
}

fn missing(message: &str) -> Error {
    Error::corrupt("shard-missing", message)
}

struct Reader<'a, 'b> {
    checkpoint: &'a mut Checkpoint,
    shards: &'a mut Shards<'b>,
    options: &'a OpenOptions,
    budget: &'a Budget,
}

impl Reader<'_, '_> {
    fn read(&mut self, directory: &Directory<'_>) -> Result<()> {
        let graph = directory.graph;
        let keys = directory.tensors.iter().filter_map(|&(key, _)| graph.text(key));
        let scope = Scope::new(keys, std::iter::empty(), std::iter::empty());
        for &(key, parts) in directory.tensors {
            let count = (self.checkpoint.tensors.len() as u64).saturating_add(1);
            Limits::check("tensors", "tensors", count, self.options.limits.tensors)?;
            let Some(key) = graph.text(key) else {
                return Err(Error::corrupt("shard-mismatch", "a tensor name is not text"));
            };
            self.budget.take_memory(Cost::name(key.split('.').count(), key.len() as u64))?;
            let Some(mut entry) = self.tensor(directory, key, parts).map_err(|e| e.on_tensor(key))? else {
                let reason = "flattened parts are not supported";
                self.checkpoint.notes.push(Note::skipped_tensor(key, reason));
                continue;
            };
            if let Some((param, slot)) = scope.owner(key) {
                entry.path = TensorPath::from_dotted(param);
                entry.role = Role::OptimizerState { slot: Name::from(slot) };
            } else if scope.is_without_owner(key) {
                entry.role = Role::OptimizerPart { of: None };
            }
            self.checkpoint.tensors.push(entry);
        }
        Ok(())
    }

    /// Assembles a tensor from its parts; `None` if they are not boxes.
    fn tensor(
        &mut self,
        directory: &Directory<'_>,
        key: &str,
        parts: ObjectId,
    ) -> Result<Option<TensorEntry>> {
        let graph = directory.graph;
        let bad = |message: &str| Error::corrupt("shard-mismatch", message);
        let parts = graph.sequence(parts).ok_or_else(|| bad("the parts of a tensor are not a list"))?;
        let mut extents = Pieces::new();
        let mut seen = HashSet::new();
        let mut dtype: Option<DType> = None;
        let mut whole: Option<Vec<u64>> = None;
        // Tensors may share one list of parts.
        self.budget.take_work(Cost::VISIT.saturating_mul(parts.len() as u64))?;
        for &part in parts {
            let (_, state) = instance(graph, part).ok_or_else(|| bad("a part has no metadata"))?;
            if field(graph, state, "is_flattened").and_then(|id| graph.truth(id)) == Some(true) {
                return Ok(None);
            }
            let limits = &self.options.limits;
            let list = |name: &str| match field(graph, state, name) {
                Some(id) => counts(graph, id, limits),
                None => Ok(None),
            };
            let (Some(start), Some(extent)) = (list("global_offset")?, list("local_shape")?) else {
                return Err(bad("a part has no offset or shape"));
            };
            let ends: Option<Vec<u64>> = start.iter().zip(&extent).map(|(&a, &b)| a.checked_add(b)).collect();
            let ends = ends
                .filter(|_| start.len() == extent.len())
                .ok_or_else(|| bad("offset and shape of a part differ in length"))?;
            let so_far = match &mut whole {
                Some(whole) => whole,
                none => none.insert(list("global_shape")?.unwrap_or_else(|| ends.clone())),
            };
            if so_far.len() != ends.len() {
                return Err(bad("parts of one tensor differ in rank"));
            }
            so_far.iter_mut().zip(&ends).for_each(|(whole, &end)| *whole = (*whole).max(end));
            if !seen.insert(start.clone()) {
                continue;
            }
            self.budget.take_memory(Cost::ITEM + Cost::dimensions(start.len()))?;
            let file = directory.files.get(&(key, start.clone()));
            let file = file.ok_or_else(|| missing("the directory has no file for a part"))?;
            let array = self.shards.find(file, key)?;
            if array.shape.dims() != extent || *dtype.get_or_insert(array.dtype) != array.dtype {
                return Err(bad("a part differs from its entry in the directory")
                    .expected(Shape::new(extent))
                    .found(format_args!("{} {} in {file}", array.dtype, array.shape)));
            }
            let len = array
                .shape
                .bytes(array.dtype)
                .ok_or_else(|| bad("the length of a part exceeds 2^64 bytes"))?;
            check_range(&*array.source, array.offset, len)?;
            let source = array.source.clone();
            let part = Some(Box::new(Region { start, shape: extent }));
            extents.push(Extent {
                source,
                offset: array.offset,
                len,
                encoding: array.encoding,
                part,
                check: None,
            });
        }
        let (Some(dtype), Some(dims)) = (dtype, whole) else { return Err(bad("a tensor has no parts")) };
        let shape = Shape::new(dims);
        self.budget.take_memory(Cost::entry(false) + Cost::dimensions(shape.rank()))?;
        self.check_coverage(&shape, &extents)?;
        extents.retain(|extent| extent.len > 0 || shape.elements() == Some(0));
        Ok(Some(TensorEntry {
            path: TensorPath::from_dotted(key),
            role: Role::Parameter,
            // uint16 is bfloat16, as in every pickle of Paddle.
            stored: if dtype == DType::U16 { DType::BF16 } else { dtype },
            cast: None,
            shape,
            extents,
            attributes: Attributes::new(),
            row_names: None,
            guessed: false,
        }))
    }

    /// Fails unless the boxes fill the shape without overlap.
    fn check_coverage(&mut self, shape: &Shape, extents: &[Extent]) -> Result<()> {
        let all = extents
            .iter()
            .try_fold(0u64, |sum, extent| sum.checked_add(Shape::new(extent.shape(shape)).elements()?));
        if all.is_none() || all != shape.elements() {
            return Err(Error::corrupt("shards-incomplete", "the parts do not fill the tensor")
                .expected(format_args!("{shape}"))
                .found(format_args!("{} elements in {} parts", all.unwrap_or(u64::MAX), extents.len())));
        }
        for (at, extent) in extents.iter().enumerate() {
            self.budget.take_work(OVERLAP_TEST_COST.saturating_mul(at as u64))?;
            let region = extent.region(shape);
            let meets = |other: &Extent| region.intersect(&other.region(shape)).is_some();
            if extents.get(..at).unwrap_or_default().iter().any(meets) {
                return Err(Error::corrupt("shards-incomplete", "tensor parts overlap"));
            }
        }
        Ok(())
    }
}
