//! Reader: from a folder to the index.

use super::metadata::{self, Content, Described, Item, Place};
use super::{CHECKPOINT, INDEX_FILE, LIGHTNING_FILE, METADATA_FILE, state};
use crate::walk::Walk;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::check::extents;
use weighbridge_core::checkpoint::{
    Checkpoint, Damage, Extent, Metadata, Note, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::finding::Severity;
use weighbridge_core::limits::Limits;
use weighbridge_core::source::check_shard;
use weighbridge_core::tensor::{DType, Region, Shape};
use weighbridge_core::text::escape;
use weighbridge_core::{Budget, NoteCode};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderRef, RangeSource, SourceRef, read_vec};
use weighbridge_pickle::Cost;
use weighbridge_torch_archive::{self as torch, Saved};

/// Opens the checkpoint at `around` in `folder`.
///
/// # Errors
/// Errors of [`metadata::read`] and of reading the archives; [`Kind::Corrupt`], `dcp-data`, for a missing data file or byte
/// ranges that overlap; `dcp-chunk` for chunks that differ from the metadata or do not cover their tensor.
pub(super) fn open(
    folder: &FolderRef,
    around: &Path,
    label: &str,
    options: &OpenOptions,
) -> Result<Checkpoint> {
    let Some(source) = folder.open(&around.join(METADATA_FILE))? else {
        return Err(Error::usage("not-a-checkpoint", "the folder has no file .metadata")
            .in_file(label)
            .hint("give the folder that torch.distributed.checkpoint wrote"));
    };
    let limits = options.limits.with_budget_of(&source);
    let Described { items, warning, .. } = metadata::read(&source, &limits)?;
    check_ranges(&items).map_err(|error| error.in_file(source.label()))?;
    let budget = limits.budget_of(&source);
    let mut checkpoint = Checkpoint::new(super::INFO.id, CHECKPOINT, label);
    checkpoint.warn_of_code(warning);
    checkpoint.files.push(source);
    let mut reader = Reader { folder, around, options, files: BTreeMap::new(), budget, checkpoint };
    let tensors = items.iter().filter(|item| matches!(item.content, Content::Tensor { .. })).count();
    for item in items {
        if let Err(error) = reader.item(&item) {
            if !options.salvage || !Damage::is(&error) {
                return Err(error);
            }
            reader.checkpoint.lose(&item.name, &error);
        }
    }
    if let Some(damage) = &mut reader.checkpoint.damage {
        damage.expected = Some(tensors as u64);
    }
    reader.finish()
}

/// Rejects byte ranges that overlap: each tensor and value has bytes of its own.
fn check_ranges(items: &[Item]) -> Result<()> {
    let places = |item: &'_ Item| -> Vec<Place> {
        match &item.content {
            Content::Tensor { chunks, .. } => chunks.iter().map(|(_, place)| place.clone()).collect(),
            Content::Value(place) => vec![place.clone()],
        }
    };
    let mut all: Vec<Place> = items.iter().flat_map(places).filter(|place| place.len > 0).collect();
    all.sort_unstable_by(|a, b| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
    let meets = |pair: &&[Place]| matches!(pair, [a, b] if a.file == b.file && b.offset - a.offset < a.len);
    match all.windows(2).find(meets) {
        Some([_, second]) => {
            let text = "two tensors or values have overlapping byte ranges";
            Err(Error::corrupt("dcp-data", text).found(format_args!(
                "{} from byte {}",
                escape(&second.file),
                second.offset
            )))
        }
        _ => Ok(()),
    }
}

struct Reader<'a> {
    folder: &'a FolderRef,
    around: &'a Path,
    options: &'a OpenOptions,
    /// Data files by name.
    files: BTreeMap<Arc<str>, SourceRef>,
    /// Budget of the metadata.
    budget: Budget,
    checkpoint: Checkpoint,
}

impl Reader<'_> {
    fn item(&mut self, item: &Item) -> Result<()> {
        let name = &item.name;
        self.budget
            .take_memory(Cost::entry(false) + Cost::name(name.matches('.').count() + 1, name.len() as u64))?;
        let skipped = |reason: String| Note::skipped_tensor(name, reason);
        match &item.content {
            Content::Tensor { chunks, .. } if chunks.iter().any(|(_, place)| place.transforms.is_some()) => {
                let transforms = chunks.iter().find_map(|(_, place)| place.transforms.as_deref());
                let reason = format!("stored through {}", escape(transforms.unwrap_or_default()));
                self.checkpoint.notes.push(skipped(reason));
            }
            Content::Tensor { dtype: Err(dtype), .. } => {
                self.checkpoint.notes.push(skipped(format!("dtype {}", escape(dtype))));
            }
            Content::Tensor { dtype: Ok(dtype), shape, chunks } => {
                match self.tensor(name, *dtype, shape, chunks) {
                    Ok(entry) => self.checkpoint.tensors.push(entry),
                    Err(error) if error.kind() == Kind::Unsupported => {
                        let reason = error.found_text().unwrap_or("unknown kind of tensor").to_owned();
                        self.checkpoint.notes.push(skipped(reason));
                    }
                    Err(error) => return Err(error.on_tensor(escape(name))),
                }
            }
            Content::Value(place) => {
                self.value(name, place).map_err(|error| error.on_tensor(escape(name)))?
            }
        }
        Ok(())
    }

    /// Opens a data file.
    fn file(&mut self, name: &Arc<str>) -> Result<SourceRef> {
        if let Some(source) = self.files.get(name) {
            return Ok(source.clone());
        }
        check_shard(self.folder, self.around, name)?;
        let Some(source) = self.folder.open(&self.around.join(&**name))? else {
            return Err(Error::corrupt("dcp-data", "a data file is missing")
                .in_file(self.folder.label())
                .found(escape(name))
                .hint("copy the whole folder: each rank writes files of its own"));
        };
        self.files.insert(name.clone(), source.clone());
        Ok(source)
    }

    /// Opens the archive of a chunk or value. Returns it with its source and the file around it.
    fn saved(&mut self, place: &Place) -> Result<(Saved, SourceRef, SourceRef)> {
        let file = self.file(&place.file)?;
        let nested: SourceRef = Arc::new(RangeSource::new(file.clone(), place.offset, place.len)?);
        // A budget of its own: the ranges of a file do not overlap.
        let limits = Limits { budget: None, ..self.options.limits.clone() };
        let saved = torch::read(&nested, &limits).map_err(|error| in_archive(error, place))?;
        if let Some(rest) = saved.archive_rest() {
            rest.settle(self.options.lenient, file.label(), &mut self.checkpoint.notes)?;
        }
        if self.checkpoint.notes.first().is_none_or(|note| note.code != NoteCode::RunsCode) {
            self.checkpoint.warn_of_code(saved.warning());
        }
        Ok((saved, nested, file))
    }

    fn tensor(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &Shape,
        chunks: &[(Region, Place)],
    ) -> Result<TensorEntry> {
        let path = TensorPath::from_dotted(name);
        let limits = &self.options.limits;
        Limits::check("parts in a name", "path_parts", path.parts().len() as u64, limits.path_parts)?;
        let mut whole: Option<TensorEntry> = None;
        for (region, place) in chunks {
            let (saved, nested, file) = self.saved(place)?;
            let differs =
                |text: &str| Error::corrupt("dcp-chunk", text).in_file(file.label()).at(place.offset);
            let mut entry = saved
                .tensor(saved.root(), path.clone())
                .map_err(|error| in_archive(error, place))?
                .ok_or_else(|| differs("the byte range of a chunk holds no tensor"))?;
            if (entry.stored, entry.shape.dims()) != (dtype, region.shape.as_slice()) {
                return Err(differs("the tensor of a chunk differs from the metadata")
                    .expected(format_args!("{dtype} {}", region.shape()))
                    .found(format_args!("{} {}", entry.stored, entry.shape)));
            }
            if !region.fits(shape) {
                return Err(differs("a chunk exceeds the shape of its tensor")
                    .expected(format_args!("a box in {shape}"))
                    .found(format_args!("{:?} from {:?}", region.shape, region.start)));
            }
            entry.extents.iter_mut().for_each(|extent| relocate(extent, &nested, &file, place.offset));
            entry.extents.iter_mut().for_each(|extent| extent.part = region.clone().unless_whole(shape));
            match &mut whole {
                None => whole = Some(TensorEntry { shape: shape.clone(), ..entry }),
                Some(whole) => whole.extents.extend(entry.extents),
            }
        }
        let mut whole = whole.ok_or_else(|| Error::corrupt("dcp-chunk", "the tensor has no chunks"))?;
        // Ranks without elements of a tensor write empty chunks.
        if whole.extents.len() > 1 && whole.elements() > 0 {
            whole.extents.retain(|extent| extent.len > 0);
        } else {
            whole.extents.truncate(1);
            if whole.elements() == 0 {
                whole.extents.iter_mut().for_each(|extent| extent.part = None);
            }
        }
        match extents(std::slice::from_ref(&whole))
            .into_iter()
            .find(|found| found.severity == Severity::Error)
        {
            None => Ok(whole),
            Some(finding) => {
                Err(Error::corrupt("dcp-chunk", "the chunks do not cover the tensor exactly once")
                    .found(finding.text.as_str()))
            }
        }
    }

    /// Reads a value, and the tensors in it.
    fn value(&mut self, name: &str, place: &Place) -> Result<()> {
        if let Some(transforms) = &place.transforms {
            let text = format!("value `{}` omitted: stored through {}", escape(name), escape(transforms));
            self.checkpoint.notes.push(Note::omission("value-left-out", text));
            return Ok(());
        }
        let (saved, nested, file) = self.saved(place)?;
        let containers = self.checkpoint.containers.take();
        let path = TensorPath::from_dotted(name);
        let (mut own, mut overlaps) = Walk::new(&saved, self.options)
            .within(path.parts(), containers)
            .run()
            .map_err(|error| in_archive(error, place))?;
        overlaps.mark(&mut own);
        for extent in own.tensors.iter_mut().flat_map(|entry| &mut entry.extents) {
            relocate(extent, &nested, &file, place.offset);
        }
        self.add_walked(own, file.label());
        Ok(())
    }

    /// Adds the tensors and values of an archive of the file `label`.
    fn add_walked(&mut self, own: Checkpoint, label: &str) {
        self.checkpoint.containers = own.containers;
        self.checkpoint.tensors.extend(own.tensors);
        self.checkpoint.notes.extend(own.notes);
        for (key, value) in own.metadata.iter() {
            if self.checkpoint.metadata.get(key).is_some() {
                let text = format!(
                    "value `{}` of {} omitted: another value has that name",
                    escape(key),
                    escape(label)
                );
                self.checkpoint.notes.push(Note::omission("value-left-out", text));
                continue;
            }
            self.checkpoint.metadata.set(key, value.clone());
        }
        if let Some(damage) = own.damage
            && let Some(first) = damage.lost.first()
        {
            let cause = Error::corrupt(first.code, first.text.clone()).in_file(label);
            self.checkpoint.damage_mut(&cause).lost.extend(damage.lost);
        }
    }

    /// Reads the file in which the strategy of PyTorch Lightning for FSDP has everything but weights and optimizer: steps, hyper
    /// parameters, callbacks.
    fn lightning(&mut self) -> Result<()> {
        let Some(source) = self.folder.open(&self.around.join(LIGHTNING_FILE))? else { return Ok(()) };
        let mut head = [0; 4];
        if source.len() < 4 || source.read_at(0, &mut head).is_err() || head != *b"PK\x03\x04" {
            return Ok(());
        }
        let limits = Limits { budget: None, ..self.options.limits.clone() };
        let saved = torch::read(&source, &limits)?;
        if let Some(rest) = saved.archive_rest() {
            rest.settle(self.options.lenient, source.label(), &mut self.checkpoint.notes)?;
        }
        if self.checkpoint.notes.first().is_none_or(|note| note.code != NoteCode::RunsCode) {
            self.checkpoint.warn_of_code(saved.warning());
        }
        let containers = self.checkpoint.containers.take();
        let (mut own, mut overlaps) = Walk::new(&saved, self.options).within(&[], containers).run()?;
        overlaps.mark(&mut own);
        // A dict without tensors is one value; its keys have names here.
        if let Some(Value::Map(pairs)) = own.metadata.get("value").cloned()
            && own.metadata.iter().count() == 1
        {
            own.metadata = Metadata::default();
            pairs.into_iter().for_each(|(key, value)| own.metadata.set(key.to_text(), value));
        }
        self.add_walked(own, source.label());
        self.checkpoint.files.push(source);
        Ok(())
    }

    fn finish(mut self) -> Result<Checkpoint> {
        self.lightning()?;
        self.carried()?;
        state::assign(&mut self.checkpoint, &self.budget);
        self.checkpoint.files.extend(self.files.into_values());
        Ok(self.checkpoint)
    }

    /// Restores what only Weighbridge can read: exact paths, roles and attributes.
    fn carried(&mut self) -> Result<()> {
        let Some(source) = self.folder.open(&self.around.join(INDEX_FILE))? else { return Ok(()) };
        let limits = &self.options.limits;
        Limits::check("bytes of metadata", "header_bytes", source.len(), limits.header_bytes)?;
        match String::from_utf8(read_vec(&*source, 0, source.len())?) {
            Ok(text) => {
                let names: Vec<String> = self.checkpoint.tensors.iter().map(TensorEntry::text).collect();
                self.checkpoint.restore_bridge_index(&names, &text);
            }
            Err(_) => {
                let text = format!("file {INDEX_FILE} omitted: Weighbridge cannot read it");
                self.checkpoint.notes.push(Note::omission("metadata-unreadable", text));
            }
        }
        self.checkpoint.files.push(source);
        Ok(())
    }
}

/// Moves an extent from the range `nested` to the `file` that it starts at `offset` of.
fn relocate(extent: &mut Extent, nested: &SourceRef, file: &SourceRef, offset: u64) {
    if Arc::ptr_eq(&extent.source, nested) {
        extent.source = file.clone();
        extent.offset += offset;
    }
}

/// Adds the position of the archive to an error in it.
fn in_archive(error: Error, place: &Place) -> Error {
    error.within(format_args!("archive at byte {}", place.offset))
}
