//! A file of `torch.save`, opened.

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

/// Elements that lie across their storage are gathered for about so many bytes at once.
const ACROSS: u64 = 1 << 20;

/// How `torch.save` laid a file out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// A zip archive: torch 1.6 and later.
    Zip,
    /// Pickles and storages one behind the other: before that, and on demand.
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

/// What `torch.save` was given: objects of a pickle, and the storages of their tensors. The bytes
/// of storages were not read.
#[derive(Debug)]
pub struct Saved {
    pub(super) pickle: Pickle,
    /// What the pickle was read from.
    pub(super) source: SourceRef,
    /// With the budget of the file.
    pub(super) limits: Limits,
    /// The memory of a pickle that is packed.
    _inflated: Option<HeldMemory>,
    storages: Storages,
    /// Of the storages that the object refers to.
    keys: HashSet<String>,
    /// Tensors so far that repeat their elements.
    pub(super) repeated: Repeated,
}

#[derive(Debug)]
enum Storages {
    /// The archive, and the name of the folder of storages in it.
    Zip(Archive, &'static str),
    Legacy(Legacy),
}

/// Reads what `torch.save` wrote in either form; the content tells which. Costs as much as there
/// are objects and storages, not bytes. Bytes behind the end are for the caller to judge:
/// [`Saved::archive_rest`], [`Saved::legacy_end`].
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for an archive or pickle that is broken; codes `torch-no-pickle`,
/// `torch-byteorder`, `torch-storages`, `torch-storage-length`, `crc-mismatch` and those of the
/// rooms `zip` and `pickle`; [`weighbridge_core::Kind::Unsupported`] for what is neither form
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
        return Err(Error::unsupported("torch-form", "torch.save writes no such file")
            .in_file(source.label())
            .at(0));
    }
    Saved::of_legacy(source, limits, legacy::read)
}

/// What is intact of a damaged file.
#[derive(Debug)]
pub struct Salvaged {
    /// The object, with the storages that are intact. A tensor whose storage is lost is the error
    /// `torch-storage-missing` of [`Saved::tensor`].
    pub saved: Saved,
    /// The names of the members that are not intact, in the zip form, and why.
    pub lost: Vec<(String, Error)>,
    /// True where nothing confirms the names of storages: which bytes are whose is not proved.
    pub unnamed: bool,
}

/// As [`read`], of a damaged file.
///
/// # Errors
/// As [`read`]; where the pickle of the object is not intact, nothing is known of any tensor.
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
            "the member that says the byte order of the storages is lost or not reached",
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
                let text = "by its name the storage does not stand where it was written, or the one beside it does not";
                (member.name, Error::corrupt("name-uncertain", text).at(member.header_offset))
            }));
        }
    }
    Ok(Salvaged { saved, lost: found.lost, unnamed: found.unnamed })
}

/// True where the byte order of the storages is certain: the member that says it is intact; or it is
/// certain that there is none, because the directory names none, or because the first members are
/// those of `torch.save`, which writes it before the storages.
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
    /// Reads the legacy form, with `read`.
    ///
    /// # Errors
    /// As [`read`].
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
            // Inflated once: long texts are read again in any order, and from a stream each would begin at its start.
            let memory = held.insert(HeldMemory::of(&limits.budget_of(source)));
            bytes = inflated(member, &bytes, memory, &limits)?;
        }
        let pickle = pickle::read(&bytes, offset, &Options::with_limits(limits.clone()))?;
        if pickle.end > offset.saturating_add(member.len) {
            return Err(Error::corrupt("torch-pickle-length", "the pickle goes on behind its member")
                .in_file(source.label())
                .at(member.header_offset));
        }
        Ok(Self::new(pickle, bytes, limits, held, Storages::Zip(archive, folder)))
    }

    /// The form of the file.
    pub fn form(&self) -> Form {
        match self.storages {
            Storages::Zip(..) => Form::Zip,
            Storages::Legacy(_) => Form::Legacy,
        }
    }

    /// The budget of the file.
    pub fn budget(&self) -> &Budget {
        self.pickle.budget()
    }

    /// The objects.
    pub fn graph(&self) -> &Graph {
        &self.pickle.graph
    }

    /// The object that `torch.save` was given.
    pub fn root(&self) -> ObjectId {
        self.pickle.root
    }

    /// The pickle of the object.
    pub fn pickle(&self) -> &Pickle {
        &self.pickle
    }

    /// What the pickle was read from; places of long text and bytes are places in it.
    pub fn source(&self) -> &SourceRef {
        &self.source
    }

    /// Says what loading the file in Python would run, where that is known to be dangerous.
    pub fn warning(&self) -> Option<weighbridge_core::phrase::Phrase> {
        self.pickle.warning()
    }

    /// Module and name of each import, once, in order of first use.
    pub fn imports(&self) -> Vec<(&str, &str)> {
        self.pickle.global_names()
    }

    /// The byte order of the storages.
    pub fn endian(&self) -> Endian {
        match &self.storages {
            Storages::Zip(archive, _) => archive.endian,
            // Whatever the machine, torch writes this form little-endian.
            Storages::Legacy(_) => Endian::Little,
        }
    }

    /// The members of the archive; none in the legacy form.
    pub fn members(&self) -> &[Member] {
        match &self.storages {
            Storages::Zip(archive, _) => archive.members(),
            Storages::Legacy(_) => &[],
        }
    }

    /// The folder of the archive that the members stand in, with its slash; may be empty.
    pub fn folder(&self) -> &str {
        match &self.storages {
            Storages::Zip(archive, _) => archive.folder(),
            Storages::Legacy(_) => "",
        }
    }

    /// The tensor that the object is; `None` where it is none. Costs no reading.
    ///
    /// Of a quantized tensor these are the integers, with the attributes [`QUANTIZED`](super::QUANTIZED) and
    /// `quantized_axis`. An array of numpy is a tensor, too.
    ///
    /// Row- and column-major tensors are ranges of their storage; others are gathered by a
    /// [`StridedSource`](super::StridedSource). Attributes: `requires_grad` where it is true, `class`
    /// for a class of its own. The role is a parameter's.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] for one that does not fit its storage, or whose storage is not there:
    /// `torch-tensor`, `torch-storage-missing`, `torch-storage-length`, `torch-outside-storage`;
    /// [`weighbridge_core::Kind::Unsupported`], `torch-tensor-kind`, for sparse tensors, which are several (see
    /// `sparse`), and for kinds that have no place in the index.
    pub fn tensor(&self, id: ObjectId, path: TensorPath) -> Result<Option<TensorEntry>> {
        super::rebuild::tensor(self, id, path)
    }

    /// True where the object is a tensor of any kind, also one that [`tensor`](Self::tensor) refuses.
    pub fn is_tensor(&self, id: ObjectId) -> bool {
        super::rebuild::is_tensor(self.graph(), id)
    }

    /// True where the object is an array of numpy.
    pub fn is_array(&self, id: ObjectId) -> bool {
        NdArray::is_one(self.graph(), id)
    }

    /// What the integers of the quantized tensor mean; `None` for any other object.
    pub fn quantizer(&self, id: ObjectId) -> Option<Quantizer> {
        super::rebuild::quantizer(self.graph(), id)
    }

    /// The sparse tensor that the object is.
    pub fn sparse(&self, id: ObjectId) -> Option<Sparse> {
        super::rebuild::sparse(self.graph(), id)
    }

    /// What Python code gave the tensor as attributes, besides what torch itself knows of one: the states that it would
    /// be given, none of them empty. A state is a dict, or a tuple of one and of another one with its slots; a class may
    /// have any other.
    pub fn states(&self, id: ObjectId) -> Vec<ObjectId> {
        super::rebuild::states(self.graph(), id)
    }

    /// Module and name of a class, also where the legacy form keeps it, with its source text, as one of a module.
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

    /// The key of the storage of the tensor that the object is; of an array, of its bytes in the pickle.
    pub fn storage_key(&self, id: ObjectId) -> Option<String> {
        super::rebuild::storage_key(self.graph(), id, &Options::with_limits(self.limits.clone()))
    }

    /// True where the object refers to the storage `key`.
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
            Error::corrupt("torch-storage-missing", "the bytes of the tensor are not in the file")
                .found(format_args!("no storage {}", escape(wanted.key)))
        };
        found.ok_or_else(missing)
    }

    /// Counts what a tensor costs in a deflated storage, which can only be read forwards: one that lies before the one
    /// before it has all before it inflated again, and so has each part of one whose elements lie across.
    pub(super) fn count_inflated(&self, view: &View) -> Result<()> {
        let (Storages::Zip(archive, _), None) = (&self.storages, view.storage.check) else { return Ok(()) };
        let size = view.dtype.size().map_or(1, |size| size as u64);
        let shape =
            || view.size.iter().copied().zip(view.stride.iter().copied()).filter(|&(extent, _)| extent != 1);
        let part = view.part.map_or(0, |(first, _)| first.saturating_mul(view.storage_unit));
        let start = part.saturating_add(view.offset.saturating_mul(size)).min(view.storage.len);
        let reach = shape().fold(1u64, |reach, (extent, stride)| {
            reach.saturating_add(extent.saturating_sub(1).saturating_mul(stride))
        });
        let end = start.saturating_add(reach.saturating_mul(size)).min(view.storage.len);
        let mut outer = u64::MAX;
        let forwards = shape().all(|(_, stride)| std::mem::replace(&mut outer, stride) >= stride);
        let bytes = shape().fold(size, |bytes, (extent, _)| bytes.saturating_mul(extent));
        let again = if forwards { 0 } else { bytes / ACROSS };
        let most = self.limits.repeated_bytes;
        let passes = archive.count_inflated(&view.storage, start, end, again);
        if passes <= most {
            return Ok(());
        }
        Err(Error::limit(
            "torch-inflated",
            "the tensors of deflated storages have them inflated again and again",
        )
        .expected(format_args!("at most {most} bytes more than the storages have"))
        .found(format_args!("{passes} bytes"))
        .hint(phrase![
            "pack the archive again without compression, or raise the limit ",
            limit("repeated_bytes")
        ]))
    }

    /// Offsets of the pickles of the legacy form; that of the object is the fourth.
    pub fn legacy_pickles(&self) -> Option<&[u64]> {
        match &self.storages {
            Storages::Legacy(legacy) => Some(&legacy.starts),
            Storages::Zip(..) => None,
        }
    }

    /// Offset and length of each storage of the legacy form, in the order of the file.
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

    /// Where the file does not end with its archive: a strict reading refuses what this says.
    pub fn archive_rest(&self) -> Option<Rest> {
        match &self.storages {
            Storages::Zip(archive, _) => archive.rest,
            Storages::Legacy(_) => None,
        }
    }

    /// Offset in the file behind the last storage of the legacy form.
    pub fn legacy_end(&self) -> Option<u64> {
        match &self.storages {
            Storages::Legacy(legacy) => Some(legacy.end),
            Storages::Zip(..) => None,
        }
    }
}

/// A deflated pickle in memory, which is held.
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

/// Holds a stored pickle that fits into memory against its checksum. One that is deflated is held
/// against it when it is inflated.
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
    Err(Error::corrupt("crc-mismatch", "the pickle is not what was written: the checksum differs")
        .in_file(source.label())
        .at(offset)
        .expected(format_args!("CRC-32 {:08x} over {} bytes", member.crc32, member.len))
        .found(format_args!("{found:08x}")))
}

fn slice(all: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    all.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}
