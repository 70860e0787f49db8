//! Members of the zip form.

use super::storage::Storage;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checksum::{Check, ChecksumKind};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Endian;
use weighbridge_core::text::escape;
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_zip::{Member, Method, Rest, read_with_rest};

/// Maximum length of a member that holds one word, such as `byteorder`.
const MAX_WORD_LEN: u64 = 64;

/// Counters for reading deflated storages.
#[derive(Debug, Default)]
struct Passes {
    /// End of the last tensor read from each storage, by the address of its source.
    ends: HashMap<usize, u64>,
    /// Bytes inflated for all tensors so far, and total bytes of their storages.
    inflated: u64,
    storages: u64,
}

/// The members of an archive of `torch.save`.
#[derive(Debug)]
pub(super) struct Archive {
    source: SourceRef,
    members: Vec<Member>,
    /// Index of each member by its name without the folder.
    places: HashMap<String, usize>,
    /// One source per deflated member, by offset: tensors of the same storage share an inflater, and one worker reads them
    /// in order.
    inflating: Mutex<HashMap<u64, SourceRef>>,
    /// Checksums of stored members, by offset: tensors of the same storage share one.
    checks: Mutex<HashMap<u64, Arc<Check>>>,
    passes: Mutex<Passes>,
    /// Name of the folder with its slash; empty for members without a folder.
    folder: String,
    /// Byte order of the storages.
    pub(super) endian: Endian,
    /// Fault after the end of the archive.
    pub(super) rest: Option<Rest>,
}

impl Archive {
    /// Reads the directory of `source`.
    pub(super) fn open(source: &SourceRef, limits: &Limits) -> Result<Self> {
        let (members, rest) = read_with_rest(source, limits)?;
        Ok(Self { rest, ..Self::of(source, members)? })
    }

    /// Creates the archive from these members.
    pub(super) fn of(source: &SourceRef, members: Vec<Member>) -> Result<Self> {
        let pickle = members.iter().find_map(|m| {
            let folder = m.name.strip_suffix("data.pkl")?;
            (folder.is_empty() || folder.find('/') == Some(folder.len() - 1)).then_some(folder)
        });
        let Some(folder) = pickle.map(str::to_owned) else {
            return Err(Error::corrupt("torch-no-pickle", "the archive has no member X/data.pkl")
                .in_file(source.label())
                .hint("the zip archive was not written by torch.save"));
        };
        let inside = |(place, m): (usize, &Member)| Some((m.name.strip_prefix(&folder)?.to_owned(), place));
        let places = members.iter().enumerate().filter_map(inside).collect();
        let mut archive = Self {
            source: source.clone(),
            members,
            places,
            inflating: Mutex::default(),
            checks: Mutex::default(),
            passes: Mutex::default(),
            folder,
            endian: Endian::Little,
            rest: None,
        };
        if let Some(word) = archive.word("byteorder")? {
            archive.endian = match word.as_slice() {
                b"little" => Endian::Little,
                b"big" => Endian::Big,
                other => {
                    return Err(Error::corrupt(
                        "torch-byteorder",
                        "the member `byteorder` is not a valid byte order",
                    )
                    .in_file(source.label())
                    .expected("little or big")
                    .found(escape(&String::from_utf8_lossy(other))));
                }
            };
        }
        Ok(archive)
    }

    /// Returns the member of that name in the folder.
    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.places.get(name).and_then(|&place| self.members.get(place))
    }

    /// Returns all members in directory order, with their full names.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the name of the folder with its slash.
    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    /// Reads a short member.
    fn word(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self.member(name) {
            Some(member) if member.len <= MAX_WORD_LEN => {
                Ok(Some(read_vec(&*member.open(&self.source)?, 0, member.len)?))
            }
            _ => Ok(None),
        }
    }

    /// Returns a source with the bytes of `member`, and the offset of the first byte in it. For a stored
    /// member this is the archive itself.
    pub(super) fn bytes_of(&self, member: &Member) -> Result<(SourceRef, u64)> {
        if member.method == Method::Stored {
            return Ok((self.source.clone(), member.data_offset));
        }
        let mut inflating = self.inflating.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = inflating.get(&member.data_offset) {
            return Ok((known.clone(), 0));
        }
        let opened = member.open(&self.source)?;
        inflating.insert(member.data_offset, opened.clone());
        Ok((opened, 0))
    }

    /// Counts a read of `start` to `end` of a deflated storage, and `again` more passes from its beginning to `end`. Returns the
    /// bytes inflated so far beyond one pass over each storage.
    pub(super) fn count_inflated(&self, storage: &Storage, start: u64, end: u64, again: u64) -> u64 {
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = passes.ends.insert(std::sync::Arc::as_ptr(&storage.source).cast::<()>().addr(), end);
        if known.is_none() {
            passes.storages = passes.storages.saturating_add(storage.len);
        }
        let from = known.filter(|&known| known <= start).unwrap_or(0);
        let more = end.saturating_sub(from).saturating_add(end.saturating_mul(again));
        passes.inflated = passes.inflated.saturating_add(more);
        passes.inflated.saturating_sub(passes.storages)
    }

    /// Returns the bytes of the storage `key`.
    pub(super) fn storage(&self, folder: &str, key: &str) -> Result<Option<Storage>> {
        let Some(member) = self.member(&format!("{folder}/{key}")) else { return Ok(None) };
        let (source, offset) = self.bytes_of(member)?;
        let stored = member.method == Method::Stored;
        let check = stored.then(|| {
            let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Check::new(&source, offset, member.len, ChecksumKind::Crc32, member.crc32);
            checks.entry(offset).or_insert_with(new).clone()
        });
        Ok(Some(Storage { source, offset, len: member.len, check }))
    }
}
