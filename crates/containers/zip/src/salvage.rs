//! Recovery of intact members from a damaged archive: members whose bytes match their recorded CRC-32.
//!
//! The directory is at the end, so a truncated archive has none. Every member also has a local header, and
//! the walk goes from one to the next. Where the lengths follow the data, the walk searches for this
//! descriptor, which has the length of the data and its checksum.
//!
//! A checksum proves the bytes of a member, not its name. Where there is a directory, the names in it and in
//! the local header must agree; otherwise the name is that of the local header.

use super::inflate::{Extent, extent};
use super::read::{
    FLAG_DESCRIPTOR, FLAGS_REFUSED, Record, decode_name, le16, le32, le64, read_central, take_wide,
    zip64_extra,
};
use super::{DEFLATE_RATIO, DESCRIPTOR, DESCRIPTOR_LEN, LOCAL, LOCAL_LEN, MAX32, Member, Method};
use std::collections::{HashMap, HashSet};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::engine::read_through;
use weighbridge_io::source::{Cursor, SourceRef, read_vec, to_usize};

/// Bytes searched or hashed at once.
const STEP_LEN: u64 = 256 << 10;
/// Bytes read for all checksums, in lengths of the archive: malformed headers may claim the same bytes many
/// times.
const MAX_READ_RATIO: u64 = 8;
/// Bytes that may be read in addition, so that short archives have a budget too.
const MIN_READ_BYTES: u64 = 1 << 20;
/// Bytes searched first for the next header, which is usually near.
const FIRST_STEP_LEN: u64 = 4 << 10;

/// Result of [`salvage`].
#[derive(Debug, Default)]
pub struct Recovered {
    /// Intact members in the order of the archive.
    pub members: Vec<Member>,
    /// Names of the lost members with the reason.
    pub lost: Vec<(String, Error)>,
    /// True where the directory could be read, so that every missing member is listed in `lost`.
    pub complete: bool,
    /// True where the name of some member is not confirmed by a directory.
    pub unnamed: bool,
}

/// Lengths and checksum of a member, from a header, the directory or a descriptor.
#[derive(Clone, Copy)]
struct Sizes {
    crc32: u32,
    compressed_len: u64,
    len: u64,
}

/// Finds the intact members of `source`. Reads all of it, once if it is well-formed.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Limit`] for more members than `limits.tensors`.
pub fn salvage(source: &SourceRef, limits: &Limits) -> Result<Recovered> {
    let directory = read_central(source, limits).map(|(_, records)| records).ok();
    let mut walk = Walk {
        source,
        limits,
        left: source.len().saturating_mul(MAX_READ_RATIO).saturating_add(MIN_READ_BYTES),
        unpacked_left: source.len().saturating_mul(DEFLATE_RATIO).saturating_add(MIN_READ_BYTES),
        records: directory.iter().flatten().map(|record| (record.header_offset, record)).collect(),
        found: Recovered { complete: directory.is_some(), ..Recovered::default() },
    };
    let names: HashSet<&str> = directory.iter().flatten().map(|record| record.name.as_str()).collect();
    let mut at = 0;
    while let Some(header_at) = find_header(source, at)? {
        at = walk.member(header_at, &names)?;
    }
    let mut found = walk.found;
    drop_duplicates(&mut found);
    let known: HashSet<String> =
        found.members.iter().map(|m| m.name.clone()).chain(found.lost.iter().map(|l| l.0.clone())).collect();
    for record in directory.into_iter().flatten().filter(|record| !known.contains(&record.name)) {
        let error = Error::corrupt("zip-no-member", "the member in the directory was not found");
        found.lost.push((record.name, error.at(record.header_offset)));
    }
    Ok(found)
}

/// Moves members with duplicate names to the lost ones: either may be the wrong one.
fn drop_duplicates(found: &mut Recovered) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for member in &found.members {
        *count.entry(member.name.clone()).or_default() += 1;
    }
    let (kept, doubled): (Vec<_>, Vec<_>) =
        std::mem::take(&mut found.members).into_iter().partition(|m| count.get(&m.name) == Some(&1));
    found.members = kept;
    for member in doubled {
        let error = Error::corrupt("duplicate-member", "duplicate member name");
        found.lost.push((member.name, error.at(member.header_offset)));
    }
}

/// Offset of the next local header from `at` on.
fn find_header(source: &SourceRef, at: u64) -> Result<Option<u64>> {
    let (mut from, mut step) = (at, FIRST_STEP_LEN);
    while source.len().saturating_sub(from) >= LOCAL_LEN {
        let len = step.min(source.len() - from);
        let bytes = read_vec(&**source, from, len)?;
        if let Some(place) = memchr::memmem::find(&bytes, &LOCAL) {
            let place = from + place as u64;
            return Ok((source.len() - place >= LOCAL_LEN).then_some(place));
        }
        if len < step {
            break;
        }
        // A signature may cross the border.
        from += len - 3;
        step = STEP_LEN.min(step * 2);
    }
    Ok(None)
}

struct Walk<'a> {
    source: &'a SourceRef,
    limits: &'a Limits,
    /// Bytes that may still be read for checksums.
    left: u64,
    /// Bytes that streams may still unpack to: the maximum for all bytes of the archive, once.
    unpacked_left: u64,
    /// Entries of the directory by the offset of the local header.
    records: HashMap<u64, &'a Record>,
    found: Recovered,
}

impl Walk<'_> {
    /// Adds the member with the header at `at`; returns the offset from which to search for the next one.
    fn member(&mut self, at: u64, names: &HashSet<&str>) -> Result<u64> {
        let count = self.found.members.len() + self.found.lost.len();
        Limits::check("archive members", "tensors", count as u64 + 1, self.limits.tensors)?;
        let within = at + LOCAL.len() as u64;
        let mut cursor = Cursor::new(self.source.clone(), at);
        let Ok(local) = cursor.array::<30>("a local header") else { return Ok(within) };
        let flags = le16(&local, 6);
        let name = cursor.bytes(le16(&local, 26).into(), "a name");
        let Some(name) = name.ok().and_then(|raw| decode_name(raw, flags).ok()) else { return Ok(within) };
        let record = self.records.get(&at).copied();
        if self.found.complete && record.is_none() && !names.contains(name.as_str()) {
            // The directory has no such member: the header belongs to the data of another one.
            return Ok(within);
        }
        match self.read(&mut cursor, &local, record, &name) {
            Ok((member, end)) => {
                self.found.unnamed |= record.is_none();
                self.found.members.push(member);
                Ok(end)
            }
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Cancelled) => Err(error),
            Err(error) => {
                // If the headers have the end of this member, the next one follows it.
                let end = self.claimed_end(&local, cursor.position(), record);
                if let Some(record) = record.filter(|record| record.name != name) {
                    // Either name may be the correct one.
                    let other = Error::corrupt("zip-headers-differ", "the local header has a different name");
                    self.found.lost.push((record.name.clone(), other.at(at)));
                }
                self.found.lost.push((name, error.at(at)));
                Ok(end.unwrap_or(within))
            }
        }
    }

    /// End of the data by the headers, if another header or a descriptor follows it.
    fn claimed_end(&self, local: &[u8], data_at: u64, record: Option<&Record>) -> Option<u64> {
        let len = record.map_or(u64::from(le32(local, 18)), |record| record.compressed_len);
        let end = data_at.checked_add(len).filter(|_| len > 0)?;
        let mark = read_vec(&**self.source, end, 4).ok()?;
        mark.starts_with(b"PK").then_some(end)
    }

    /// Reads the member and its end, if its bytes match the checksum of some record of the archive.
    fn read(
        &mut self,
        cursor: &mut Cursor,
        local: &[u8],
        record: Option<&Record>,
        name: &str,
    ) -> Result<(Member, u64)> {
        let header_at = cursor.position() - LOCAL_LEN - u64::from(le16(local, 26));
        let flags = le16(local, 6);
        let extra = cursor.bytes(le16(local, 28).into(), "an extra field")?;
        let method = Method::new(le16(local, 8));
        if flags & FLAGS_REFUSED != 0 || matches!(method, Method::Other(_)) {
            return Err(Error::unsupported(
                "zip-method",
                "the compression method of the member is not supported",
            ));
        }
        if let Some(record) = record.filter(|record| record.name != name) {
            return Err(Error::corrupt(
                "zip-headers-differ",
                "the names in the directory and in the local header differ",
            )
            .expected(&record.name)
            .found(name));
        }
        let data_at = cursor.position();
        // Candidate sizes, and whether the data were already verified against them.
        let mut candidates = Vec::new();
        let of_record = |r: &Record| Sizes { crc32: r.crc32, compressed_len: r.compressed_len, len: r.len };
        candidates.extend(record.map(|r| (of_record(r), false)));
        if flags & FLAG_DESCRIPTOR == 0 {
            candidates.extend(local_sizes(local, &extra).map(|sizes| (sizes, false)));
        } else if record.is_none() {
            let sizes = self.descriptor_sizes(data_at, method)?;
            candidates.extend(sizes.map(|sizes| (sizes, method == Method::Deflated)));
        }
        let mut failure = None;
        for (sizes, proven) in candidates {
            let Sizes { crc32, compressed_len, len } = sizes;
            let member = Member {
                name: name.to_owned(),
                method,
                header_offset: header_at,
                data_offset: data_at,
                compressed_len,
                len,
                crc32,
            };
            let proof = if proven { Ok(()) } else { self.verify(&member) };
            match proof {
                Ok(()) => return Ok((member, data_at + compressed_len)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            Error::corrupt("zip-no-length", "the member is truncated, or its length is missing")
        }))
    }

    /// Charges bytes to the read budget.
    fn spend(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(tangle)?;
        Ok(())
    }

    /// Charges bytes to the unpacking budget.
    fn spend_unpacked(&mut self, bytes: u64) -> Result<()> {
        self.unpacked_left = self.unpacked_left.checked_sub(bytes).ok_or_else(tangle)?;
        Ok(())
    }

    /// Verifies the bytes of a member against its CRC-32.
    fn verify(&mut self, member: &Member) -> Result<()> {
        let Member { data_offset, compressed_len, len, crc32, method, .. } = *member;
        weighbridge_io::source::check_range(&**self.source, data_offset, compressed_len)?;
        match method {
            Method::Stored if len != compressed_len => Err(Error::corrupt(
                "zip-stored-length",
                "the member is stored, but its compressed and uncompressed lengths differ",
            )),
            Method::Stored => {
                self.spend(len)?;
                let found = crc_of(self.source, data_offset, len)?;
                if found == crc32 {
                    return Ok(());
                }
                Err(Error::corrupt("crc-mismatch", "the CRC-32 of the data does not match")
                    .expected(format_args!("{crc32:08x}"))
                    .found(format_args!("{found:08x}")))
            }
            _ if len / DEFLATE_RATIO > compressed_len => Err(Error::corrupt(
                "deflate-claim",
                "the claimed length of the member exceeds the maximum for its compressed data",
            )),
            _ => {
                self.spend(compressed_len)?;
                self.spend_unpacked(len)?;
                read_through(&member.open(self.source)?)
            }
        }
    }

    /// Sizes from the descriptor after the data.
    fn descriptor_sizes(&mut self, data_at: u64, method: Method) -> Result<Option<Sizes>> {
        if method == Method::Deflated {
            if self.left == 0 || self.unpacked_left == 0 {
                return Err(tangle());
            }
            let Extent { taken: compressed_len, given: len, crc32 } =
                extent(self.source, data_at, self.left, self.unpacked_left)?;
            // A broken stream used up its budget, too.
            self.left = self.left.saturating_sub(compressed_len);
            self.unpacked_left = self.unpacked_left.saturating_sub(len);
            let Some(crc32) = crc32 else { return Ok(None) };
            let end = data_at + compressed_len;
            let tail = read_vec(&**self.source, end, DESCRIPTOR_LEN.min(self.source.len() - end))?;
            let tail = tail.strip_prefix(&DESCRIPTOR).unwrap_or(&tail);
            let recorded = tail.first_chunk::<4>().map(|crc| u32::from_le_bytes(*crc));
            return Ok((recorded == Some(crc32)).then_some(Sizes { crc32, compressed_len, len }));
        }
        let (mut at, len) = (data_at, self.source.len());
        while len.saturating_sub(at) >= DESCRIPTOR_LEN - 8 {
            let step = STEP_LEN.min(len - at);
            self.spend(step)?;
            let bytes = read_vec(&**self.source, at, step)?;
            for place in memchr::memmem::find_iter(&bytes, &DESCRIPTOR) {
                let here = at + place as u64;
                if let Some(sizes) = self.descriptor(here, here - data_at)? {
                    return Ok(Some(sizes));
                }
            }
            if step < STEP_LEN {
                break;
            }
            at += step - 3;
        }
        Ok(None)
    }

    /// Reads the descriptor at `at`, if it is for `distance` bytes of data.
    fn descriptor(&self, at: u64, distance: u64) -> Result<Option<Sizes>> {
        let bytes = read_vec(&**self.source, at, DESCRIPTOR_LEN.min(self.source.len() - at))?;
        let matches = |len: Option<u64>| len == Some(distance);
        let short = |place: usize| (bytes.len() >= place + 4).then(|| u64::from(le32(&bytes, place)));
        let long = |place: usize| (bytes.len() >= place + 8).then(|| le64(&bytes, place));
        let fits = (matches(short(8)) && matches(short(12))) || (matches(long(8)) && matches(long(16)));
        Ok(fits.then(|| Sizes { crc32: le32(&bytes, 4), compressed_len: distance, len: distance }))
    }
}

fn tangle() -> Error {
    Error::limit("zip-tangle", "the members of the archive overlap too often to be verified")
}

/// Lengths and checksum of a local header.
fn local_sizes(local: &[u8], extra: &[u8]) -> Option<Sizes> {
    let mut wide = zip64_extra(extra).ok()?;
    let mut number = |short: u32| match u64::from(short) {
        MAX32 => take_wide(&mut wide),
        short => Ok(short),
    };
    let (len, compressed_len) = (number(le32(local, 22)).ok()?, number(le32(local, 18)).ok()?);
    Some(Sizes { crc32: le32(local, 14), compressed_len, len })
}

/// CRC-32 of a range within the source.
fn crc_of(source: &SourceRef, offset: u64, len: u64) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; to_usize(len.min(STEP_LEN))?];
    let mut done = 0;
    while done < len {
        let step = &mut buffer[..to_usize((len - done).min(STEP_LEN))?];
        source.read_at(offset + done, step)?;
        hasher.update(step);
        done += step.len() as u64;
    }
    Ok(hasher.finalize())
}
