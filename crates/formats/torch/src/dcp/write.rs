//! Writer: from the index to a plan of the files of one rank.

use super::metadata::{self, Content, Described, MODULE, STORAGE_MODULE, Step};
use super::{CHECKPOINT, DATA_FILE, INDEX_FILE, INFO, METADATA_FILE};
use crate::VERSIONS;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_format::PlanOptions;
use weighbridge_io::source::{RangeSource, SourceRef};
use weighbridge_pickle::{Builder, Location, ObjectId, Part, write};
use weighbridge_torch_archive::{self as torch, REQUIRES_GRAD, SavedBuilder, is_recent, torch_name};

/// Module of the properties of tensors. torch before version 2.3 reads them from this module only; later versions have it, too.
const PROPERTIES_MODULE: &str = "torch.distributed._shard.sharded_tensor.metadata";

/// Plans a checkpoint of one rank.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for tensors that torch cannot hold; [`weighbridge_core::Kind::Usage`] for an unknown
/// kind.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    options.check(&INFO)?;
    if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != CHECKPOINT) {
        return Err(Error::usage("unknown-kind", "distributed checkpoints of this kind cannot be written")
            .expected(CHECKPOINT)
            .found(kind));
    }
    let names = checkpoint.bridge_names(|name| name, &[]);
    let mut losses = checkpoint.left_behind();
    losses.extend(checkpoint.renamed_losses(&names));
    let original = Original::of(checkpoint);
    let mut data = FileBuilder::new(DATA_FILE);
    let mut described = Describer::new(original.as_ref());
    for (entry, name) in checkpoint.tensors.iter().zip(&names) {
        if is_recent(entry.dtype()) {
            let detail = format!("torch before version 2.3 cannot load dtype {}", entry.dtype());
            losses.push(Loss::new("recent-dtype", entry.name(), detail));
        }
        let mut builder = SavedBuilder::new();
        // torch saves the chunks of parameters without their gradient flag.
        let mut plain = entry.clone();
        plain.attributes.remove(REQUIRES_GRAD);
        let id = builder.tensor(&plain)?;
        let start = data.position();
        data.embed(builder.finish(id, "")?);
        described.tensor(name, entry, start, data.position() - start)?;
    }
    let taken: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut native = HashSet::new();
    for (key, value) in checkpoint.metadata.iter() {
        if key.starts_with(Metadata::RESERVED_PREFIX) {
            let detail = "the key prefix is reserved for Weighbridge";
            losses.push(Loss::new("metadata-dropped", escape_text(key), detail));
            continue;
        }
        if key == VERSIONS || taken.contains(key) {
            continue;
        }
        let start = data.position();
        match original.as_ref().and_then(|original| original.unchanged(key, value)) {
            Some(bytes) => data.embed(FileBuilder::copy_of(key, &bytes)),
            None => {
                let mut builder = SavedBuilder::new();
                // The index holds values that a pickle cannot.
                let Ok(id) = builder.value(value) else { continue };
                data.embed(builder.finish(id, "")?);
            }
        }
        described.value(key, start, data.position() - start)?;
        native.insert(key);
    }
    let mut file = FileBuilder::new(METADATA_FILE);
    file.owned(described.finish()?);
    let mut files = vec![file.finish(), data.finish()];
    let held = |key: &str, _: &Value| native.contains(key) || key.starts_with(Metadata::RESERVED_PREFIX);
    let index = checkpoint.bridge_index_beside(&names, held);
    if let Some(index) = options.own_entry(index, &checkpoint.label, &mut losses) {
        let mut file = FileBuilder::new(INDEX_FILE);
        file.owned(index.into_bytes());
        files.push(file.finish());
    }
    Ok(WritePlan { format: INFO.id, kind: CHECKPOINT, files, losses })
}

/// Opened checkpoint, for the parts that are written as they are.
struct Original {
    described: Described,
    files: HashMap<String, SourceRef>,
}

impl Original {
    /// Reads the metadata of an opened checkpoint again; `None` for other formats.
    fn of(checkpoint: &Checkpoint) -> Option<Self> {
        if checkpoint.format != INFO.id {
            return None;
        }
        let name = |source: &SourceRef| source.label().rsplit(['/', '\\']).next().map(str::to_owned);
        let files = checkpoint.files.iter().filter_map(|source| Some((name(source)?, source.clone())));
        let files: HashMap<String, SourceRef> = files.collect();
        let described = metadata::read(files.get(METADATA_FILE)?, &Limits::default()).ok()?;
        Some(Self { described, files })
    }

    /// Returns the bytes of a value, if it is still the same. They keep what values do not distinguish, such as tuples.
    fn unchanged(&self, name: &str, value: &Value) -> Option<SourceRef> {
        let item = self.described.items.iter().find(|item| item.name == name)?;
        let Content::Value(place) = &item.content else { return None };
        if place.transforms.is_some() {
            return None;
        }
        let file = self.files.get(place.file.rsplit('/').next()?)?;
        let bytes: SourceRef = Arc::new(RangeSource::new(file.clone(), place.offset, place.len).ok()?);
        let saved = torch::read(&bytes, &Limits::default()).ok()?;
        (saved.plain(saved.root()).ok()?.as_ref() == Some(value)).then_some(bytes)
    }
}

/// Builder of the metadata.
struct Describer<'a> {
    b: Builder,
    original: Option<&'a Original>,
    items: Vec<(ObjectId, ObjectId)>,
    places: Vec<(ObjectId, ObjectId)>,
    paths: Vec<(ObjectId, ObjectId)>,
}

impl<'a> Describer<'a> {
    fn new(original: Option<&'a Original>) -> Self {
        Self { b: Builder::new(), original, items: Vec::new(), places: Vec::new(), paths: Vec::new() }
    }

    fn tensor(&mut self, name: &str, entry: &TensorEntry, offset: u64, len: u64) -> Result<()> {
        let key = self.b.text(name)?;
        let properties = self.properties(entry)?;
        let dims = entry.shape.dims();
        let (size, sizes) = (self.size(dims)?, self.size(dims)?);
        let zeros = vec![0; dims.len()];
        let offsets = self.size(&zeros)?;
        let chunk =
            self.object((MODULE, "ChunkStorageMetadata"), &[("offsets", offsets), ("sizes", sizes)])?;
        let chunks = self.b.list(vec![chunk])?;
        let parts = [("properties", properties), ("size", size), ("chunks", chunks)];
        let item = self.object((MODULE, "TensorStorageMetadata"), &parts)?;
        let (start, first) = (self.size(&zeros)?, self.b.int(0)?);
        self.add(key, name, item, &[("offset", start), ("index", first)], (offset, len))
    }

    fn value(&mut self, name: &str, offset: u64, len: u64) -> Result<()> {
        let key = self.b.text(name)?;
        let item = self.object((MODULE, "BytesStorageMetadata"), &[])?;
        let none = self.b.none();
        self.add(key, name, item, &[("index", none)], (offset, len))
    }

    fn add(
        &mut self,
        key: ObjectId,
        name: &str,
        item: ObjectId,
        index: &[(&str, ObjectId)],
        (offset, len): (u64, u64),
    ) -> Result<()> {
        let mut parts = vec![("fqn", key)];
        parts.extend(index);
        let index = self.object((MODULE, "MetadataIndex"), &parts)?;
        let (file, offset, len) = (self.b.interned(DATA_FILE)?, self.int(offset)?, self.int(len)?);
        let parts = [("relative_path", file), ("offset", offset), ("length", len)];
        let place = self.object((STORAGE_MODULE, "_StorageInfo"), &parts)?;
        let path = self.path(key, name)?;
        self.items.push((key, item));
        self.places.push((index, place));
        self.paths.push((key, path));
        Ok(())
    }

    /// Adds the keys of the nested dicts of a name: those of the opened checkpoint, else the name as one key.
    fn path(&mut self, key: ObjectId, name: &str) -> Result<ObjectId> {
        let steps = self.original.and_then(|original| original.described.paths.get(name));
        let Some(steps) = steps else { return self.b.tuple(&[key]) };
        let mut path = Vec::with_capacity(steps.len());
        for step in steps {
            path.push(match step {
                Step::Key(key) => self.b.interned(key)?,
                Step::Index(number) => self.b.int(*number)?,
            });
        }
        self.b.tuple(&path)
    }

    /// Adds the properties of a tensor, in the form of torch 2.2.
    fn properties(&mut self, entry: &TensorEntry) -> Result<ObjectId> {
        let dtype = self.b.global("torch", torch_name(entry.dtype()).unwrap_or("float32"))?;
        let function = self.b.global("torch.serialization", "_get_layout")?;
        let layout = self.b.interned("torch.strided")?;
        let layout = self.call(function, &[layout])?;
        let class = self.b.global(PROPERTIES_MODULE, "MEM_FORMAT_ENCODING")?;
        let zero = self.b.int(0)?;
        let format = self.call(class, &[zero])?;
        let no = self.b.bool(false);
        let state = self.b.tuple(&[dtype, layout, no, format, no])?;
        let class = self.b.global(PROPERTIES_MODULE, "TensorProperties")?;
        let id = self.b.new_object(class, ObjectId::EMPTY_TUPLE)?;
        self.b.build(id, state)?;
        Ok(id)
    }

    fn call(&mut self, callable: ObjectId, args: &[ObjectId]) -> Result<ObjectId> {
        let args = self.b.tuple(args)?;
        self.b.reduce(callable, args)
    }

    /// Adds a `torch.Size`.
    fn size(&mut self, dims: &[u64]) -> Result<ObjectId> {
        let items = dims.iter().map(|&dim| self.int(dim)).collect::<Result<Vec<_>>>()?;
        let (class, items) = (self.b.global("torch", "Size")?, self.b.tuple(&items)?);
        self.call(class, &[items])
    }

    fn int(&mut self, number: u64) -> Result<ObjectId> {
        let number = i64::try_from(number)
            .map_err(|_| Error::unsupported("torch-value", "the integer exceeds 2^63 - 1").found(number))?;
        self.b.int(number)
    }

    /// Adds an object with these attributes.
    fn object(&mut self, (module, class): (&str, &str), parts: &[(&str, ObjectId)]) -> Result<ObjectId> {
        let class = self.b.global(module, class)?;
        let id = self.b.new_object(class, ObjectId::EMPTY_TUPLE)?;
        if parts.is_empty() {
            return Ok(id);
        }
        let mut pairs = Vec::with_capacity(parts.len());
        for &(name, part) in parts {
            pairs.push((self.b.interned(name)?, part));
        }
        let state = self.b.dict(pairs)?;
        self.b.build(id, state)?;
        Ok(id)
    }

    /// Returns the bytes of the file.
    fn finish(mut self) -> Result<Vec<u8>> {
        let items = std::mem::take(&mut self.items);
        let items = self.b.dict(items)?;
        let paths = std::mem::take(&mut self.paths);
        let paths = self.b.dict(paths)?;
        let places = std::mem::take(&mut self.places);
        let places = self.b.dict(places)?;
        let parts = [("state_dict_metadata", items), ("planner_data", paths), ("storage_data", places)];
        let root = self.object((MODULE, "Metadata"), &parts)?;
        let lost = || Error::usage("pickle-payload", "the pickle refers to bytes outside of it");
        let mut bytes = Vec::new();
        for part in write(&self.b.finish(), root, 4, &mut |_: &Location| Err(lost()))? {
            let Part::Literal(literal) = part else { return Err(lost()) };
            bytes.extend(literal);
        }
        Ok(bytes)
    }
}
