//! An open file of `torch.save`.

use super::composite::{Quantizer, Sparse};
use super::files::Archive;
use super::layout::{Repeated, View};
use super::legacy::{self, Legacy, is_legacy};
use super::order::out_of_order;
use super::storage::{Reference, Storage, reference};
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::checkpoint::{TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase::limit;
use weighbridge_core::tensor::Endian;
use weighbridge_core::text::escape;
use weighbridge_core::{Budget, HeldMemory, phrase};
use weighbridge_io::source::{MemorySource, SourceRef, read_vec};
use weighbridge_pickle::{self as pickle, Graph, NdArray, Object, ObjectId, Options, Pickle};
use weighbridge_zip::{self as zip, Member, Method, Recovered, Rest};

/// Approximate bytes that one pass over a storage gathers for a transposed tensor.
const GATHER_CHUNK: u64 = 1 << 20;

/// File layout of `torch.save`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// A zip archive: torch 1.6 and later.
    Zip,
    /// Consecutive pickles and storages: before torch 1.6, and on demand.
    Legacy,
}

impl Form {
    /// `zip` or `legacy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::Legacy => "legacy",
        }
    }
}

/// Content of a file of `torch.save`: the objects of its pickle, and the storages of their tensors.
/// Storage bytes are not read.
#[derive(Debug)]
pub struct Saved {
    pub(super) pickle: Pickle,
    /// Source of the pickle.
    pub(super) source: SourceRef,
    /// Limits with the budget of the file.
    pub(super) limits: Limits,
    /// Memory of an inflated pickle.
    _inflated: Option<HeldMemory>,
    storages: Storages,
    /// Keys of the storages that the object refers to.
    keys: HashSet<String>,
    /// Tensors read so far that repeat their elements.
    pub(super) repeated: Repeated,
}

#[derive(Debug)]
enum Storages {
    /// The archive, and the name of its storage folder.
    Zip(Box<Archive>, &'static str),
    Legacy(Legacy),
}

/// Reads a file of `torch.save` in either form, detected by content. The cost depends on the number
/// of objects and storages, not on bytes. The caller decides about bytes after the end:
/// [`Saved::archive_rest`], [`Saved::legacy_end`].
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for a damaged archive or pickle; codes `torch-no-pickle`,
/// `torch-byteorder`, `torch-storages`, `torch-storage-length`, `crc-mismatch` and those of the
/// crates `zip` and `pickle`; [`weighbridge_core::Kind::Unsupported`] for any other file
/// (`torch-form`, `torch-version`); [`weighbridge_core::Kind::Limit`].
pub fn read(source: &SourceRef, limits: &Limits) -> Result<Saved> {
    let mut head = [0; 32];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    let head = &mut head[..count];
    source.read_at(0, head)?;
    if head.starts_with(b"PK\x03\x04") {
        return Saved::of_archive(Archive::open(source, limits)?, source, limits, ("data.pkl", "data"));
    }
    if !is_legacy(head) {
        return Err(Error::unsupported("torch-form", "the file is not in a form that torch.save writes")
            .in_file(source.label())
            .at(0));
    }
    Saved::of_legacy(source, limits, legacy::read)
}

/// Intact content of a damaged file.
#[derive(Debug)]
pub struct Salvaged {
    /// The object with the intact storages. For a tensor with a lost storage, [`Saved::tensor`] returns
    /// the error `torch-storage-missing`.
    pub saved: Saved,
    /// Names of the damaged members of the zip form, with their errors.
    pub lost: Vec<(String, Error)>,
    /// True if no checksum confirms the names of storages.
    pub unnamed: bool,
}

/// Same as [`read`] for a damaged file.
///
/// # Errors
/// Same as [`read`]; without an intact pickle of the object no tensor can be found.
pub fn salvage(source: &SourceRef, limits: &Limits) -> Result<Salvaged> {
    let mut head = [0; 32];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    let head = &mut head[..count];
    source.read_at(0, head)?;
    if is_legacy(head) {
        let saved = Saved::of_legacy(source, limits, legacy::salvage)?;
        return Ok(Salvaged { saved, lost: Vec::new(), unnamed: false });
    }
    let mut found = zip::salvage(source, limits)?;
    if !has_certain_order(&found) {
        return Err(Error::corrupt(
            "torch-byteorder",
            "the member with the byte order of the storages is lost",
        ));
    }
    let place = ("data.pkl", "data");
    let mut saved = Saved::of_archive(Archive::of(source, found.members.clone())?, source, limits, place)?;
    if found.unnamed {
        let graph = saved.graph();
        let mut seen = HashSet::new();
        let keys = graph.iter().filter_map(|(_, object)| Some(reference(graph, object)?.key.to_owned()));
        let keys: Vec<String> = keys.filter(|key| seen.insert(key.clone())).collect();
        let odd = out_of_order(&found.members, &keys);
        if !odd.is_empty() {
            let is_odd = |member: &Member| odd.contains(&member.header_offset);
            let (doubted, members): (Vec<_>, Vec<_>) = found.members.into_iter().partition(is_odd);
            saved = Saved::of_archive(Archive::of(source, members)?, source, limits, place)?;
            found.lost.extend(doubted.into_iter().map(|member| {
                let text = "the storage is out of order: its name or that of its neighbor is damaged";
                (member.name, Error::corrupt("name-uncertain", text).at(member.header_offset))
            }));
        }
    }
    Ok(Salvaged { saved, lost: found.lost, unnamed: found.unnamed })
}

/// Returns true if the byte order of the storages is certain. Either the member `byteorder` is intact, or
/// it cannot exist: the directory does not list it, or the first members are those of a `torch.save`
/// without it, which writes it before the storages.
fn has_certain_order(found: &Recovered) -> bool {
    const NAME: &str = "byteorder";
    if found.members.iter().any(|member| member.name.ends_with(NAME)) {
        return true;
    }
    if found.complete {
        return found.lost.iter().all(|(name, _)| !name.ends_with(NAME));
    }
    let first_lost = found.lost.iter().filter_map(|(_, error)| error.offset()).min().unwrap_or(u64::MAX);
    let pickle = found.members.first().is_some_and(|m| m.header_offset == 0 && m.name.ends_with("data.pkl"));
    let storage =
        found.members.get(1).is_none_or(|m| m.name.contains("data/") && m.header_offset < first_lost);
    pickle && storage
}

impl Saved {
    /// Reads the legacy form with `read`.
    ///
    /// # Errors
    /// Same as [`read`].
    pub(super) fn of_legacy(
        source: &SourceRef,
        limits: &Limits,
        read: impl FnOnce(&SourceRef, &Options) -> Result<(Pickle, Legacy)>,
    ) -> Result<Self> {
        let limits = limits.with_budget_of(source);
        let (pickle, legacy) = read(source, &Options::with_limits(limits.clone()))?;
        Ok(Self::new(pickle, source.clone(), limits, None, Storages::Legacy(legacy)))
    }

    fn new(
        pickle: Pickle,
        source: SourceRef,
        limits: Limits,
        inflated: Option<HeldMemory>,
        storages: Storages,
    ) -> Self {
        let references = pickle.graph.iter().filter_map(|(_, object)| reference(&pickle.graph, object));
        let keys = references.map(|found| found.key.to_owned()).collect();
        let repeated = Repeated::default();
        Self { pickle, source, limits, _inflated: inflated, storages, keys, repeated }
    }

    fn of_archive(
        archive: Archive,
        source: &SourceRef,
        limits: &Limits,
        (name, folder): (&str, &'static str),
    ) -> Result<Self> {
        let Some(member) = archive.member(name) else {
            return Err(Error::corrupt("torch-no-pickle", format!("the archive has no member X/{name}"))
                .in_file(source.label()));
        };
        let limits = limits.with_budget_of(source);
        let (mut bytes, offset) = archive.bytes_of(member)?;
        let mut held = None;
        if member.method == Method::Stored {
            check(member, &bytes, offset, &limits)?;
        } else {
            // Inflate once: long texts are read later in any order, and each read of a stream would start over.
            let memory = held.insert(HeldMemory::of(&limits.budget_of(source)));
            bytes = inflated(member, &bytes, memory, &limits)?;
        }
        let pickle = pickle::read(&bytes, offset, &Options::with_limits(limits.clone()))?;
        if pickle.end > offset.saturating_add(member.len) {
            return Err(Error::corrupt("torch-pickle-length", "the pickle exceeds its member")
                .in_file(source.label())
                .at(member.header_offset));
        }
        Ok(Self::new(pickle, bytes, limits, held, Storages::Zip(Box::new(archive), folder)))
    }

    /// Returns the form of the file.
    pub fn form(&self) -> Form {
        match self.storages {
            Storages::Zip(..) => Form::Zip,
            Storages::Legacy(_) => Form::Legacy,
        }
    }

    /// Returns the budget of the file.
    pub fn budget(&self) -> &Budget {
        self.pickle.budget()
    }

    /// Returns the objects.
    pub fn graph(&self) -> &Graph {
        &self.pickle.graph
    }

    /// Returns the saved object.
    pub fn root(&self) -> ObjectId {
        self.pickle.root
    }

    /// Returns the pickle of the object.
    pub fn pickle(&self) -> &Pickle {
        &self.pickle
    }

    /// Returns the source of the pickle; offsets of long text and bytes refer to it.
    pub fn source(&self) -> &SourceRef {
        &self.source
    }

    /// Returns a warning if loading the file in Python would run a dangerous import.
    pub fn warning(&self) -> Option<weighbridge_core::phrase::Phrase> {
        self.pickle.warning()
    }

    /// Returns module and name of each distinct import in order of first use.
    pub fn imports(&self) -> Vec<(&str, &str)> {
        self.pickle.global_names()
    }

    /// Returns the byte order of the storages.
    pub fn endian(&self) -> Endian {
        match &self.storages {
            Storages::Zip(archive, _) => archive.endian,
            // torch writes this form little-endian on all machines.
            Storages::Legacy(_) => Endian::Little,
        }
    }

    /// Returns the members of the archive; none for the legacy form.
    pub fn members(&self) -> &[Member] {
        match &self.storages {
            Storages::Zip(archive, _) => archive.members(),
            Storages::Legacy(_) => &[],
        }
    }

    /// Returns the folder of the members in the archive with its slash; may be empty.
    pub fn folder(&self) -> &str {
        match &self.storages {
            Storages::Zip(archive, _) => archive.folder(),
            Storages::Legacy(_) => "",
        }
    }

    /// Returns the tensor of an object; `None` for an object that is not a tensor. Reads no elements.
    ///
    /// A quantized tensor is returned as its integers, with the attributes [`QUANTIZED`](super::QUANTIZED) and
    /// `quantized_axis`. A numpy array is a tensor, too.
    ///
    /// Row- and column-major tensors are ranges of their storage; a [`StridedSource`](super::StridedSource)
    /// gathers the others. Attributes: `requires_grad` if true, `class` for a class outside of torch. The
    /// role is that of a parameter.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for a tensor that exceeds its storage, or a missing storage:
    /// `torch-tensor`, `torch-storage-missing`, `torch-storage-length`, `torch-outside-storage`;
    /// [`weighbridge_core::Kind::Unsupported`], `torch-tensor-kind`, for sparse tensors, which consist of several
    /// tensors (see `sparse`), and for unsupported kinds.
    pub fn tensor(&self, id: ObjectId, path: TensorPath) -> Result<Option<TensorEntry>> {
        super::rebuild::tensor(self, id, path)
    }

    /// Returns true for every tensor, also for a kind that [`tensor`](Self::tensor) rejects.
    pub fn is_tensor(&self, id: ObjectId) -> bool {
        super::rebuild::is_tensor(self.graph(), id)
    }

    /// Returns true for a numpy array.
    pub fn is_array(&self, id: ObjectId) -> bool {
        NdArray::is_one(self.graph(), id)
    }

    /// Returns scale and zero point of a quantized tensor; `None` for any other object.
    pub fn quantizer(&self, id: ObjectId) -> Option<Quantizer> {
        super::rebuild::quantizer(self.graph(), id)
    }

    /// Returns a sparse tensor; `None` for any other object.
    pub fn sparse(&self, id: ObjectId) -> Option<Sparse> {
        super::rebuild::sparse(self.graph(), id)
    }

    /// Returns the non-empty states of a tensor: attributes that Python code set, beyond those of torch. A state is a dict, or a
    /// tuple of two dicts for attributes and slots; a class may use any other object.
    pub fn states(&self, id: ObjectId) -> Vec<ObjectId> {
        super::rebuild::states(self.graph(), id)
    }

    /// Returns module and name of a class, also from the persistent id of a module class in the legacy form.
    pub fn class(&self, id: ObjectId) -> Option<(&str, &str)> {
        let graph = self.graph();
        match graph.object(id) {
            Object::PersistentId(reference) => match graph.tuple(*reference)? {
                [word, class, ..] if graph.text(*word) == Some("module") => graph.global(*class),
                _ => None,
            },
            _ => graph.global(id),
        }
    }

    /// Returns the storage key of a tensor; for an array, a key for its bytes in the pickle.
    pub fn storage_key(&self, id: ObjectId) -> Option<String> {
        super::rebuild::storage_key(self.graph(), id, &Options::with_limits(self.limits.clone()))
    }

    /// Returns true if the object refers to the storage `key`.
    pub fn refers_to(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// The storage behind a reference.
    pub(super) fn storage(&self, wanted: &Reference<'_>) -> Result<Storage> {
        let found = match &self.storages {
            Storages::Zip(archive, folder) => archive.storage(folder, wanted.key)?,
            Storages::Legacy(legacy) => legacy.storages.get(wanted.key).cloned(),
        };
        let missing = || {
            let text = format!("storage {} is missing or damaged", escape(wanted.key));
            Error::corrupt("torch-storage-missing", text)
        };
        found.ok_or_else(missing)
    }

    /// Counts the cost of a tensor in a deflated storage, which is only readable forwards. A tensor before the previously read
    /// one inflates the storage from its start again, and so does each chunk of a transposed tensor.
    pub(super) fn count_inflated(&self, view: &View) -> Result<()> {
        let (Storages::Zip(archive, _), None) = (&self.storages, &view.storage.check) else { return Ok(()) };
        let size = view.dtype.size().map_or(1, |size| size as u64);
        let shape =
            || view.size.iter().copied().zip(view.stride.iter().copied()).filter(|&(dim, _)| dim != 1);
        let part = view.part.map_or(0, |(first, _)| first.saturating_mul(view.storage_unit));
        let start = part.saturating_add(view.offset.saturating_mul(size)).min(view.storage.len);
        let reach = shape().fold(1u64, |reach, (dim, stride)| {
            reach.saturating_add(dim.saturating_sub(1).saturating_mul(stride))
        });
        let end = start.saturating_add(reach.saturating_mul(size)).min(view.storage.len);
        let mut outer = u64::MAX;
        let forwards = shape().all(|(_, stride)| std::mem::replace(&mut outer, stride) >= stride);
        let bytes = shape().fold(size, |bytes, (dim, _)| bytes.saturating_mul(dim));
        let again = if forwards { 0 } else { bytes / GATHER_CHUNK };
        let most = self.limits.repeated_bytes;
        let passes = archive.count_inflated(&view.storage, start, end, again);
        if passes <= most {
            return Ok(());
        }
        Err(Error::limit("torch-inflated", "reading the tensors inflates compressed storages too often")
            .expected(format_args!("at most {most} bytes beyond the storage size"))
            .found(format_args!("{passes} bytes"))
            .hint(phrase![
                "repack the archive without compression, or raise the limit ",
                limit("repeated_bytes")
            ]))
    }

    /// Returns the offsets of the pickles in the legacy form; the fourth one is that of the object.
    pub fn legacy_pickles(&self) -> Option<&[u64]> {
        match &self.storages {
            Storages::Legacy(legacy) => Some(&legacy.starts),
            Storages::Zip(..) => None,
        }
    }

    /// Returns offset and length of each storage in the legacy form, in file order.
    pub fn legacy_storages(&self) -> Option<Vec<(u64, u64)>> {
        match &self.storages {
            Storages::Legacy(legacy) => {
                let mut all: Vec<_> = legacy.storages.values().map(|s| (s.offset, s.len)).collect();
                all.sort_unstable();
                Some(all)
            }
            Storages::Zip(..) => None,
        }
    }

    /// Returns the data after the archive, if any; strict reading rejects it.
    pub fn archive_rest(&self) -> Option<Rest> {
        match &self.storages {
            Storages::Zip(archive, _) => archive.rest,
            Storages::Legacy(_) => None,
        }
    }

    /// Returns the offset after the last storage of the legacy form.
    pub fn legacy_end(&self) -> Option<u64> {
        match &self.storages {
            Storages::Legacy(legacy) => Some(legacy.end),
            Storages::Zip(..) => None,
        }
    }
}

/// Inflates a pickle into memory, charged to `held`.
fn inflated(
    member: &Member,
    packed: &SourceRef,
    held: &mut HeldMemory,
    limits: &Limits,
) -> Result<SourceRef> {
    let at = |error: Error| error.in_file(packed.label()).at(member.header_offset);
    let what = "bytes of a deflated pickle";
    Limits::check(what, "header_bytes", member.len, limits.header_bytes).map_err(at)?;
    held.take(member.len).map_err(at)?;
    held.budget().take_work(member.len).map_err(at)?;
    let bytes = read_vec(&**packed, 0, member.len)?;
    Ok(Arc::new(MemorySource::new(packed.label(), bytes)))
}

/// Compares a stored pickle that fits into memory with its checksum. Inflating checks a deflated one.
fn check(member: &Member, source: &SourceRef, offset: u64, limits: &Limits) -> Result<()> {
    if member.len > limits.header_bytes {
        return Ok(());
    }
    let found = match source.as_slice().and_then(|all| slice(all, offset, member.len)) {
        Some(bytes) => crc32fast::hash(bytes),
        None => crc32fast::hash(&read_vec(&**source, offset, member.len)?),
    };
    if found == member.crc32 {
        return Ok(());
    }
    Err(Error::corrupt("crc-mismatch", "the checksum of the pickle does not match")
        .in_file(source.label())
        .at(offset)
        .expected(format_args!("CRC-32 {:08x} over {} bytes", member.crc32, member.len))
        .found(format_args!("{found:08x}")))
}

fn slice(all: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    all.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}
