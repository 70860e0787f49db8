//! Writer: a checkpoint with one data file. An opened checkpoint, SavedModel or graph without changes is copied.

use crate::bundle::{Entry, Header, OBJECT_GRAPH};
use crate::objects::{self, CHECKPOINT_KEY};
use crate::place::STATE;
use crate::read::{INDEX, Index, TF_DTYPE, bridge_names, prefix_of, shard_name, text_place};
use crate::saved::{FINGERPRINT, SAVED, VARIABLES, is_own_file};
use crate::table::{Writer, crc32c, mask};
use crate::{CHECKPOINT, GRAPH, INFO, SAVED_MODEL, dtype, names, text};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Loss, Metadata, Name, Note, TensorEntry, TensorPath, escape_text,
};
use weighbridge_core::checksum::{Checksum, ChecksumKind};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{Encode, FileBuilder, Output, PlannedFile, WritePlan};
use weighbridge_core::source::RangeSource;
use weighbridge_core::tensor::{Order, Region};
use weighbridge_format::PlanOptions;
use weighbridge_io::source::{SourceRef, read_vec};

/// Name of a checkpoint that has none.
const PREFIX: &str = "ckpt";
/// Bytes of elements whose checksum is computed at once.
const BLOCK: u64 = 1 << 20;

/// Plans a checkpoint, or the copy of an opened SavedModel or graph.
pub(crate) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    options.check(&INFO)?;
    let opened = if checkpoint.format == INFO.id { checkpoint.kind } else { "" };
    let kind = match options.kind.as_deref() {
        None if opened == SAVED_MODEL => SAVED_MODEL,
        None if opened == GRAPH => GRAPH,
        None | Some(CHECKPOINT) => CHECKPOINT,
        Some(SAVED_MODEL) => SAVED_MODEL,
        Some(GRAPH) => GRAPH,
        Some(other) => {
            return Err(Error::usage("unknown-kind", "unknown kind of TensorFlow output")
                .expected(format_args!("{CHECKPOINT}, {SAVED_MODEL} or {GRAPH}"))
                .found(other));
        }
    };
    if kind != CHECKPOINT && kind != opened {
        return Err(Error::unsupported(
            "no-program",
            format!("the kind {kind} needs a graph of TensorFlow, which the source does not have"),
        )
        .hint(phrase!["write a checkpoint: ", Opt::Kind.with(CHECKPOINT)]));
    }
    let origin = Origin::of(checkpoint)?;
    match kind {
        GRAPH => graph(checkpoint),
        SAVED_MODEL => saved_model(checkpoint, origin.as_ref(), options),
        _ => {
            let mut losses = lost(checkpoint, origin.is_some());
            let prefix =
                origin.as_ref().filter(|_| opened == CHECKPOINT).map_or(PREFIX, |origin| &origin.prefix);
            let mut files = variables(checkpoint, origin.as_ref(), prefix, options, &mut losses)?;
            files.push(state(prefix));
            Ok(WritePlan { format: INFO.id, kind: CHECKPOINT, files, losses })
        }
    }
}

/// Returns the losses of a checkpoint without the program of the source. Its tensors of text are kept.
fn lost(checkpoint: &Checkpoint, is_own: bool) -> Vec<Loss> {
    let mut losses = checkpoint.left_behind();
    if is_own {
        let kept: HashSet<String> = checkpoint
            .left_out()
            .filter_map(|note| note.skipped.as_ref())
            .map(|tensor| escape_text(&tensor.name))
            .collect();
        losses.retain(|loss| loss.code != "tensor-skipped" || !kept.contains(&loss.subject));
    }
    losses
}

/// Plans the text file with the name of the checkpoint.
fn state(prefix: &str) -> PlannedFile {
    let name = prefix.replace('\\', "\\\\").replace('"', "\\\"");
    let mut file = FileBuilder::new(STATE);
    file.literal(format!("model_checkpoint_path: \"{name}\"\nall_model_checkpoint_paths: \"{name}\"\n"));
    file.finish()
}

/// Plans the copy of a graph.
fn graph(checkpoint: &Checkpoint) -> Result<WritePlan> {
    let [file] = checkpoint.files.as_slice() else { return Err(changed("the graph")) };
    check_constants(file, &checkpoint.tensors, None)?;
    if checkpoint.damage.is_some() {
        return Err(changed("the graph"));
    }
    let losses = checkpoint.left_out().filter(|note| note.skipped.is_none()).map(Note::loss).collect();
    Ok(WritePlan { format: INFO.id, kind: GRAPH, files: vec![FileBuilder::copy_of("", file)], losses })
}

/// Rejects changed constants of a graph, or of a SavedModel with these variables.
fn check_constants(file: &SourceRef, tensors: &[TensorEntry], variables: Option<&Checkpoint>) -> Result<()> {
    let listed = crate::saved::constants_of(file, variables)?;
    let place = |tensor: &TensorEntry| tensor.extents.first().map(|extent| (extent.offset, extent.len));
    let form =
        |tensor: &TensorEntry| (tensor.path.clone(), tensor.shape.clone(), tensor.stored, place(tensor));
    let same = |(old, new): (&TensorEntry, &TensorEntry)| new.cast.is_none() && form(old) == form(new);
    match listed.tensors.len() == tensors.len() && listed.tensors.iter().zip(tensors).all(same) {
        true => Ok(()),
        false => Err(changed("the graph")),
    }
}

fn changed(what: &str) -> Error {
    Error::unsupported(
        "belongs-to-a-program",
        format!("the tensors belong to {what}, which is only copied as it is"),
    )
    .hint(phrase!["write the tensors alone: ", Opt::Kind.with(CHECKPOINT), ", or another format"])
}

/// Plans a SavedModel with the variables of the opened one.
fn saved_model(checkpoint: &Checkpoint, origin: Option<&Origin>, options: &PlanOptions) -> Result<WritePlan> {
    let mut losses: Vec<Loss> =
        checkpoint.damage.iter().flat_map(|damage| damage.losses(checkpoint.tensors.len())).collect();
    let Some(main) = checkpoint.files.iter().find(|file| SAVED.contains(&base(file).as_str())) else {
        return Err(changed("the program of a SavedModel"));
    };
    let is_constant =
        |tensor: &TensorEntry| tensor.extents.iter().all(|extent| extent.source.label() == main.label());
    let (constants, tensors): (Vec<_>, Vec<_>) = checkpoint.tensors.iter().cloned().partition(is_constant);
    let of_variables = Checkpoint { tensors, ..checkpoint.clone() };
    if checkpoint.topology.is_some() {
        check_constants(main, &constants, Some(&of_variables))?;
    }
    let (mut files, mut is_copy) = (Vec::new(), true);
    if let Some(origin) = origin {
        origin.check_variables(&of_variables)?;
        is_copy = origin.is_unchanged(&of_variables);
        files = variables(&of_variables, Some(origin), VARIABLES, options, &mut losses)?;
    }
    for file in checkpoint.files.iter().filter(|file| is_own_file(&base(file))) {
        // Hashes of other variables.
        if base(file) == FINGERPRINT && !is_copy {
            continue;
        }
        files.push(FileBuilder::copy_of(base(file), file));
    }
    for (name, source) in &checkpoint.companions {
        files.push(FileBuilder::copy_of(name, source));
    }
    Ok(WritePlan { format: INFO.id, kind: SAVED_MODEL, files, losses })
}

/// Returns the last part of the path of a file.
fn base(source: &SourceRef) -> String {
    let name = Path::new(source.label()).file_name();
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Checkpoint that was opened.
struct Origin {
    prefix: String,
    index_file: SourceRef,
    index: Index,
    shards: HashMap<u64, SourceRef>,
}

impl Origin {
    /// Reads the index of an opened checkpoint again. It was within the limits before.
    fn of(checkpoint: &Checkpoint) -> Result<Option<Self>> {
        if checkpoint.format != INFO.id {
            return Ok(None);
        }
        let mut found = checkpoint.files.iter().filter(|file| base(file).ends_with(INDEX));
        let (Some(file), None) = (found.next(), found.next()) else { return Ok(None) };
        let limits = Limits::default().with_budget_of(file);
        let budget = limits.budget_of(file);
        let index = Index::read(file, &limits, &budget, checkpoint.damage.is_some())?;
        let prefix = prefix_of(Path::new(&base(file)));
        let by_name: HashMap<String, &SourceRef> =
            checkpoint.files.iter().map(|file| (base(file), file)).collect();
        let used: HashSet<u64> = index.entries.iter().map(|entry| entry.shard).collect();
        let shards = used.into_iter().filter_map(|number| {
            let name = shard_name(&prefix, number, index.header.shards);
            by_name.get(&name).map(|source| (number, (*source).clone()))
        });
        let shards = shards.collect();
        Ok(Some(Self { prefix, index_file: file.clone(), index, shards }))
    }

    /// Returns the entries of tensors that the checkpoint lists.
    fn listed(&self) -> impl Iterator<Item = &Entry> {
        self.index
            .entries
            .iter()
            .filter(|entry| entry.key.first() != Some(&0) && dtype::skipped(entry.dtype).is_none())
    }

    /// Returns the entries of text and other values.
    fn special(&self) -> impl Iterator<Item = &Entry> {
        self.index
            .entries
            .iter()
            .filter(|entry| entry.key.first() != Some(&0) && dtype::skipped(entry.dtype).is_some())
    }

    /// Returns the places of the elements of an entry.
    fn places(&self, entry: &Entry) -> Vec<(u64, u64)> {
        let own = std::iter::once(entry).filter(|entry| entry.slices.is_empty());
        let slices = entry
            .slices
            .iter()
            .filter_map(|slice| self.index.find(&crate::ordered::slice_key(&entry.key, slice)));
        let mut places: Vec<(u64, u64)> =
            own.chain(slices).map(|entry| (entry.shard, entry.offset)).collect();
        places.sort_unstable();
        places
    }

    /// Returns the place of the first element of a tensor.
    fn place_of(&self, tensor: &TensorEntry) -> Option<(u64, u64)> {
        self.all_places(tensor)?.into_iter().min()
    }

    fn all_places(&self, tensor: &TensorEntry) -> Option<Vec<(u64, u64)>> {
        let number = |label: &str| {
            self.shards.iter().find(|(_, source)| source.label() == label).map(|(number, _)| *number)
        };
        let place = |extent: &weighbridge_core::checkpoint::Extent| {
            Some((number(extent.source.label())?, extent.offset))
        };
        let mut places = tensor.extents.iter().map(place).collect::<Option<Vec<_>>>()?;
        places.sort_unstable();
        Some(places)
    }

    /// Returns true if every tensor is as it was.
    fn is_unchanged(&self, checkpoint: &Checkpoint) -> bool {
        let keys = keys(checkpoint);
        let is_same = |tensor: &TensorEntry, key: &[u8]| {
            let Some(entry) = self.index.find(key) else { return false };
            tensor.cast.is_none()
                && is_of_entry(tensor, entry)
                && tensor
                    .extents
                    .iter()
                    .all(|extent| extent.encoding.order == Order::Row || tensor.shape.is_order_free())
                && self.all_places(tensor).is_some_and(|places| places == self.places(entry))
        };
        checkpoint.damage.is_none()
            && self.index.find(Metadata::INDEX_KEY.as_bytes()).is_none()
            && (checkpoint.kind != CHECKPOINT || checkpoint.metadata.is_empty())
            && checkpoint.tensors.len() == self.listed().count()
            && checkpoint.tensors.iter().zip(&keys).all(|(tensor, key)| is_same(tensor, key))
    }

    /// Rejects variables that the program of a SavedModel does not have.
    fn check_variables(&self, checkpoint: &Checkpoint) -> Result<()> {
        let keys = keys(checkpoint);
        let fits = |tensor: &TensorEntry, key: &[u8]| {
            self.index.find(key).is_some_and(|entry| is_of_entry(tensor, entry))
        };
        if checkpoint.tensors.len() != self.listed().count() {
            return Err(changed("the program of a SavedModel"));
        }
        match checkpoint.tensors.iter().zip(&keys).find(|(tensor, key)| !fits(tensor, key)) {
            Some((tensor, _)) => Err(changed("the program of a SavedModel").on_tensor(tensor.name())),
            None => Ok(()),
        }
    }
}

/// Returns true if dtype and shape of a tensor are those of an entry.
fn is_of_entry(tensor: &TensorEntry, entry: &Entry) -> bool {
    let dims = tensor.shape.dims().iter().map(|&size| i64::try_from(size).unwrap_or(-1));
    number(tensor) == Some(entry.dtype) && dims.eq(entry.dims.iter().copied())
}

/// Returns the number of the dtype of a tensor.
fn number(tensor: &TensorEntry) -> Option<u64> {
    let named = tensor.text_attribute(TF_DTYPE).filter(|_| tensor.cast.is_none());
    named
        .and_then(|name| dtype::number_of_name(name, tensor.stored))
        .or_else(|| dtype::number(tensor.dtype()))
}

/// Returns the key of each tensor: the one in its file, unless it was renamed.
fn keys(checkpoint: &Checkpoint) -> Vec<Vec<u8>> {
    let known = |tensor: &TensorEntry| {
        let key = Name::from(tensor.text_attribute(CHECKPOINT_KEY)?).as_bytes().to_vec();
        let named = names::of_key(&key);
        Some((key, named))
    };
    // Paths before other names were chosen.
    let mut old_paths: HashMap<&TensorPath, TensorPath> = HashMap::new();
    for tensor in checkpoint.tensors.iter().filter(|tensor| tensor.role.slot().is_none()) {
        if let Some((_, named)) = known(tensor)
            && tensor.text_attribute(Attributes::STRUCTURED_NAME) == Some(named.path.to_text().as_str())
        {
            old_paths.insert(&tensor.path, named.path);
        }
    }
    let key = |tensor: &TensorEntry| {
        let known = known(tensor);
        let is_object = known.is_some();
        if let Some((key, named)) = known {
            let path = old_paths.get(&tensor.path).unwrap_or(&tensor.path);
            let slot = tensor.role.slot().map(Name::to_text);
            let same_slot = match &named.slot {
                Some((optimizer, name)) => {
                    slot.as_ref().is_some_and(|slot| slot == name || *slot == format!("{optimizer}/{name}"))
                }
                None => slot.is_none(),
            };
            if *path == named.path && same_slot {
                return key;
            }
        }
        names::to_key(&tensor.path, tensor.role.slot(), is_object)
    };
    checkpoint.tensors.iter().map(key).collect()
}

/// Content of an entry that is written.
enum Content {
    Tensor(TensorEntry),
    Copy(SourceRef),
    Bytes(Vec<u8>),
}

struct Item {
    entry: Entry,
    /// Data file and offset in the opened checkpoint.
    place: Option<(u64, u64)>,
    content: Content,
    /// True if the checksum of the entry must be computed.
    is_open: bool,
}

/// Plans index and data file.
fn variables(
    checkpoint: &Checkpoint,
    origin: Option<&Origin>,
    prefix: &str,
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Result<Vec<PlannedFile>> {
    if let Some(origin) = origin.filter(|origin| origin.is_unchanged(checkpoint)) {
        let mut files = vec![FileBuilder::copy_of(format!("{prefix}{INDEX}"), &origin.index_file)];
        let mut shards: Vec<(&u64, &SourceRef)> = origin.shards.iter().collect();
        shards.sort_unstable_by_key(|shard| shard.0);
        for (number, source) in shards {
            files.push(FileBuilder::copy_of(shard_name(prefix, *number, origin.index.header.shards), source));
        }
        return Ok(files);
    }
    let keys = keys(checkpoint);
    let mut items = Vec::with_capacity(keys.len());
    for (tensor, key) in checkpoint.tensors.iter().zip(&keys) {
        items.push(item(tensor, key, origin)?);
    }
    if let Some(origin) = origin {
        for entry in origin.special().filter(|entry| entry.key != Metadata::INDEX_KEY.as_bytes()) {
            items.extend(kept(entry, origin, checkpoint, &keys)?);
        }
    }
    if let Some(bridge) = bridge(checkpoint, origin, &keys, options, losses) {
        let key = Metadata::INDEX_KEY.as_bytes();
        let (bytes, crc) = text::encode(bridge.as_bytes());
        items.push(Item {
            entry: of_text(key, crc),
            place: None,
            content: Content::Bytes(bytes),
            is_open: false,
        });
    }
    // As in the opened data files; other tensors by key.
    items.sort_by(|a, b| {
        let place = |item: &Item| item.place.unwrap_or((u64::MAX, u64::MAX));
        place(a).cmp(&place(b)).then_with(|| a.entry.key.cmp(&b.entry.key))
    });
    let mut data = FileBuilder::new(shard_name(prefix, 0, 1));
    for item in &mut items {
        item.entry.offset = data.position();
        match &item.content {
            Content::Tensor(tensor) => data.tensor(tensor, Order::Row)?,
            Content::Copy(source) => data.embed(FileBuilder::copy_of(names::shown(&item.entry.key), source)),
            Content::Bytes(bytes) => data.literal(bytes),
        }
        item.entry.len = data.position() - item.entry.offset;
    }
    items.sort_by(|a, b| a.entry.key.cmp(&b.entry.key));
    if let Some([first, _]) = items.windows(2).find(|pair| pair[0].entry.key == pair[1].entry.key) {
        return Err(Error::mismatch(
            "name-collision",
            "two tensors would have the same name in the checkpoint",
        )
        .found(names::shown(&first.entry.key))
        .hint("rename one of them"));
    }
    let name = format!("{prefix}{INDEX}");
    let index = if items.iter().any(|item| item.is_open) {
        let tensor = |item: Item| match item.content {
            Content::Tensor(tensor) if item.is_open => (item.entry, Some(tensor)),
            _ => (item.entry, None),
        };
        PlannedFile::streamed(name, Arc::new(OpenIndex { items: items.into_iter().map(tensor).collect() }))
    } else {
        let mut file = FileBuilder::new(name);
        file.owned(table(items.iter().map(|item| &item.entry)));
        file.finish()
    };
    Ok(vec![data.finish(), index])
}

/// Creates the item of a tensor.
fn item(tensor: &TensorEntry, key: &[u8], origin: Option<&Origin>) -> Result<Item> {
    if key.first().is_none_or(|&first| first == 0) {
        return Err(Error::mismatch(
            "reserved-name",
            "names of a checkpoint are not empty, and do not begin with a zero byte",
        )
        .on_tensor(tensor.name())
        .hint("rename the tensor"));
    }
    let Some(number) = number(tensor) else {
        return Err(Error::mismatch(
            "no-such-dtype",
            format!("TensorFlow does not support the dtype {}", tensor.dtype()),
        )
        .on_tensor(tensor.name())
        .hint(tensor.f32_hint()));
    };
    let dims: Option<Vec<i64>> = tensor.shape.dims().iter().map(|&size| i64::try_from(size).ok()).collect();
    let dims = dims.ok_or_else(|| {
        Error::mismatch("shape-overflow", "a dimension exceeds 2^63")
            .on_tensor(tensor.name())
            .found(&tensor.shape)
    })?;
    // A copied range with a checksum keeps it.
    let stated = tensor.single_extent().filter(|extent| {
        tensor.cast.is_none() && (extent.encoding.order == Order::Row || tensor.shape.is_order_free())
    });
    let stated = stated.and_then(|extent| {
        let check = extent.check.as_deref()?;
        let is_same = Arc::ptr_eq(check.source(), &extent.source)
            && check.kind() == ChecksumKind::Crc32c
            && (check.offset(), check.len()) == (extent.offset, extent.len);
        is_same.then_some(check.value())
    });
    let crc = if tensor.bytes() == 0 { Some(crc32c(&[])) } else { stated };
    let entry =
        Entry { key: key.to_vec(), dtype: number, dims, crc: mask(crc.unwrap_or(0)), ..Entry::default() };
    Ok(Item {
        entry,
        place: origin.and_then(|origin| origin.place_of(tensor)),
        content: Content::Tensor(tensor.clone()),
        is_open: crc.is_none(),
    })
}

fn of_text(key: &[u8], crc: u32) -> Entry {
    Entry { key: key.to_vec(), dtype: dtype::STRING, crc, ..Entry::default() }
}

/// Creates the item of a tensor of text, or of another value that is not listed; `None` if its bytes were not found. The graph of
/// objects follows renamed and dropped tensors.
fn kept(entry: &Entry, origin: &Origin, checkpoint: &Checkpoint, keys: &[Vec<u8>]) -> Result<Option<Item>> {
    let Some(source) = origin.shards.get(&entry.shard) else { return Ok(None) };
    let place = Some((entry.shard, entry.offset));
    if entry.key == OBJECT_GRAPH {
        let mut renamed: HashMap<&[u8], &[u8]> = HashMap::new();
        for (tensor, key) in checkpoint.tensors.iter().zip(keys) {
            if let Some(old) = tensor.text_attribute(CHECKPOINT_KEY) {
                renamed.insert(old.as_bytes(), key);
            }
        }
        let special: HashSet<&[u8]> = origin.special().map(|entry| entry.key.as_slice()).collect();
        let is_same =
            origin.listed().all(|entry| renamed.get(entry.key.as_slice()) == Some(&entry.key.as_slice()));
        if !is_same {
            let begin = text::verify(source, text_place(entry)?)?;
            let message = read_vec(&**source, begin, entry.offset + entry.len - begin)?;
            let key = |old: &[u8]| match special.get(old) {
                Some(own) => Some(*own),
                None => renamed.get(old).copied(),
            };
            let (bytes, crc) = text::encode(&objects::with_keys(&message, &key)?);
            let entry = of_text(OBJECT_GRAPH, crc);
            return Ok(Some(Item { entry, place, content: Content::Bytes(bytes), is_open: false }));
        }
    }
    let range: SourceRef = Arc::new(RangeSource::new(source.clone(), entry.offset, entry.len)?);
    let entry = Entry { shard: 0, ..entry.clone() };
    Ok(Some(Item { entry, place, content: Content::Copy(range), is_open: false }))
}

/// Returns the bridge index. An opened checkpoint has one only if it had one before, or has metadata now.
fn bridge(
    checkpoint: &Checkpoint,
    origin: Option<&Origin>,
    keys: &[Vec<u8>],
    options: &PlanOptions,
    losses: &mut Vec<Loss>,
) -> Option<String> {
    let had = |origin: &Origin| origin.index.find(Metadata::INDEX_KEY.as_bytes()).is_some();
    // The program and the graph of objects state what the index would.
    let is_needed = match origin {
        Some(origin) => had(origin) || (checkpoint.kind == CHECKPOINT && !checkpoint.metadata.is_empty()),
        None => checkpoint.format != INFO.id,
    };
    let entry = is_needed.then(|| {
        let names = bridge_names(keys);
        // Without an index, the reader guesses roles and slots by names and dtypes.
        let mut guessed = checkpoint.tensors.clone();
        crate::objects::guess(&mut guessed);
        let same = |(a, b): (&TensorEntry, &TensorEntry)| a.role == b.role && a.path == b.path;
        match origin.is_some() || guessed.iter().zip(&checkpoint.tensors).all(same) {
            true => checkpoint.bridge_index_beside(&names, |_, _| false),
            false => checkpoint.full_bridge_index(&names),
        }
    });
    let entry = entry.flatten();
    options.own_entry(entry, &checkpoint.label, losses)
}

/// Returns an index of sorted entries.
fn table<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.push(&[], &Header::encode());
    for entry in entries {
        writer.push(&entry.key, &entry.encode());
    }
    writer.finish()
}

/// Index with checksums that are computed when it is written.
#[derive(Debug)]
struct OpenIndex {
    /// Entries in the order of their keys, with the tensors to read.
    items: Vec<(Entry, Option<TensorEntry>)>,
}

impl Encode for OpenIndex {
    fn describe(&self) -> String {
        format!("index of {} tensors with their checksums", self.items.len())
    }

    fn estimate(&self) -> u64 {
        // Checksums have a fixed length.
        table(self.items.iter().map(|item| &item.0)).len() as u64
    }

    fn tensors(&self) -> Vec<&TensorEntry> {
        self.items.iter().filter_map(|item| item.1.as_ref()).collect()
    }

    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        let mut entries: Vec<Entry> = Vec::with_capacity(self.items.len());
        let mut bytes = Vec::new();
        for (entry, tensor) in &self.items {
            let mut entry = entry.clone();
            if let Some(tensor) = tensor {
                let mut sum = Checksum::new(ChecksumKind::Crc32c);
                let size = tensor.dtype().size().unwrap_or(1) as u64;
                for region in Region::blocks(&tensor.shape, Order::Row, BLOCK / size) {
                    out.read(tensor, &region, Order::Row, &mut bytes)?;
                    sum.update(&bytes);
                }
                entry.crc = mask(sum.finish());
            }
            entries.push(entry);
        }
        out.write(&table(entries.iter()))
    }
}
