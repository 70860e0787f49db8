//! What is intact of a damaged archive: members whose bytes have the CRC-32 that the archive gives.
//!
//! The directory stands at the end, so an archive that is cut short has none. Every member has a header
//! of its own, though, and the walk goes from one to the next. Where the lengths follow the data, the
//! record that has them is looked for: it gives the distance back to the data, and their checksum.
//!
//! A checksum proves the bytes of a member, not its name. Where there is a directory, it and the member
//! itself must give the same name; where there is none, the name is that of the header.

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

/// Bytes that are looked through at once.
const STEP: u64 = 256 << 10;
/// All checksums together read so many times the length of the archive: headers that claim the same
/// bytes again and again would have them read as often.
const MOST_TIMES: u64 = 8;
/// What they may read however short it is.
const LEAST: u64 = 1 << 20;
/// Bytes that are looked through first for the next header: mostly it is near.
const FIRST_STEP: u64 = 4 << 10;

/// What [`salvage`] found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The members that are intact, in the order of the archive.
    pub members: Vec<Member>,
    /// The names of the others, and why.
    pub lost: Vec<(String, Error)>,
    /// True where the directory could be read, so that no member is missing without a word.
    pub complete: bool,
    /// True where no directory confirms the name of some member: a checksum proves bytes, and no name.
    pub unnamed: bool,
}

/// What a header, a directory or a descriptor says of a member.
#[derive(Clone, Copy)]
struct Facts {
    crc32: u32,
    compressed_len: u64,
    len: u64,
}

/// Finds the members of `source` that are intact. Reads all of it, once where it is honest.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`]; [`weighbridge_core::Kind::Limit`] for more members than `limits.tensors`.
pub fn salvage(source: &SourceRef, limits: &Limits) -> Result<Recovered> {
    let directory = read_central(source, limits).map(|(_, records)| records).ok();
    let mut walk = Walk {
        source,
        limits,
        left: source.len().saturating_mul(MOST_TIMES).saturating_add(LEAST),
        unpacked_left: source.len().saturating_mul(DEFLATE_RATIO).saturating_add(LEAST),
        records: directory.iter().flatten().map(|record| (record.header_offset, record)).collect(),
        found: Recovered { complete: directory.is_some(), ..Recovered::default() },
    };
    let names: HashSet<&str> = directory.iter().flatten().map(|record| record.name.as_str()).collect();
    let mut at = 0;
    while let Some(header_at) = find_header(source, at)? {
        at = walk.member(header_at, &names)?;
    }
    let mut found = walk.found;
    twice(&mut found);
    let known: HashSet<String> =
        found.members.iter().map(|m| m.name.clone()).chain(found.lost.iter().map(|l| l.0.clone())).collect();
    for record in directory.into_iter().flatten().filter(|record| !known.contains(&record.name)) {
        let error = Error::corrupt("zip-no-member", "the member that the directory names is not there");
        found.lost.push((record.name, error.at(record.header_offset)));
    }
    Ok(found)
}

/// Of members of one name none is believed.
fn twice(found: &mut Recovered) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for member in &found.members {
        *count.entry(member.name.clone()).or_default() += 1;
    }
    let (kept, doubled): (Vec<_>, Vec<_>) =
        std::mem::take(&mut found.members).into_iter().partition(|m| count.get(&m.name) == Some(&1));
    found.members = kept;
    for member in doubled {
        let error = Error::corrupt("duplicate-member", "the archive has two members of this name");
        found.lost.push((member.name, error.at(member.header_offset)));
    }
}

/// Where the next header begins, from `at` on.
fn find_header(source: &SourceRef, at: u64) -> Result<Option<u64>> {
    let (mut from, mut step) = (at, FIRST_STEP);
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
        // A mark may lie across the border.
        from += len - 3;
        step = STEP.min(step * 2);
    }
    Ok(None)
}

struct Walk<'a> {
    source: &'a SourceRef,
    limits: &'a Limits,
    /// Bytes that may still be read for checksums.
    left: u64,
    /// Bytes that streams may still unpack to: as much as all bytes of the archive could, once.
    unpacked_left: u64,
    /// What the directory says, by the offset of the header.
    records: HashMap<u64, &'a Record>,
    found: Recovered,
}

impl Walk<'_> {
    /// Takes the member whose header is at `at`; the place from which to look for the next one.
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
            // The directory knows of no such member: it stands within another one.
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
                // Behind a member that says where it ends the next one is expected.
                let end = self.claimed_end(&local, cursor.position(), record);
                if let Some(record) = record.filter(|record| record.name != name) {
                    // Either may be the true one.
                    let other = Error::corrupt("zip-headers-differ", "the member itself has another name");
                    self.found.lost.push((record.name.clone(), other.at(at)));
                }
                self.found.lost.push((name, error.at(at)));
                Ok(end.unwrap_or(within))
            }
        }
    }

    /// The end of the data by what the headers say, where another header or a descriptor follows it.
    fn claimed_end(&self, local: &[u8], data_at: u64, record: Option<&Record>) -> Option<u64> {
        let len = record.map_or(u64::from(le32(local, 18)), |record| record.compressed_len);
        let end = data_at.checked_add(len).filter(|_| len > 0)?;
        let mark = read_vec(&**self.source, end, 4).ok()?;
        mark.starts_with(b"PK").then_some(end)
    }

    /// The member, if its bytes are what some part of the archive says that they are; and its end.
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
                "the member is packed in a way that is not read here",
            ));
        }
        if let Some(record) = record.filter(|record| record.name != name) {
            return Err(Error::corrupt(
                "zip-headers-differ",
                "the directory and the member itself name it differently, so its name is not known",
            )
            .expected(&record.name)
            .found(name));
        }
        let data_at = cursor.position();
        // What is said, and whether the data were held against it already.
        let mut says = Vec::new();
        let of_record = |r: &Record| Facts { crc32: r.crc32, compressed_len: r.compressed_len, len: r.len };
        says.extend(record.map(|r| (of_record(r), false)));
        if flags & FLAG_DESCRIPTOR == 0 {
            says.extend(facts_of(local, &extra).map(|facts| (facts, false)));
        } else if record.is_none() {
            says.extend(self.behind(data_at, method)?.map(|facts| (facts, method == Method::Deflated)));
        }
        let mut failure = None;
        for (facts, proven) in says {
            let Facts { crc32, compressed_len, len } = facts;
            let member = Member {
                name: name.to_owned(),
                method,
                header_offset: header_at,
                data_offset: data_at,
                compressed_len,
                len,
                crc32,
            };
            let proof = if proven { Ok(()) } else { self.prove(&member) };
            match proof {
                Ok(()) => return Ok((member, data_at + compressed_len)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            Error::corrupt(
                "zip-no-length",
                "the archive ends, or breaks, before it says how long the member is",
            )
        }))
    }

    /// Takes a part of what may be read.
    fn spend(&mut self, bytes: u64) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(tangle)?;
        Ok(())
    }

    /// Takes a part of what may be unpacked.
    fn spend_unpacked(&mut self, bytes: u64) -> Result<()> {
        self.unpacked_left = self.unpacked_left.checked_sub(bytes).ok_or_else(tangle)?;
        Ok(())
    }

    /// Holds the bytes of a member against its checksum.
    fn prove(&mut self, member: &Member) -> Result<()> {
        let Member { data_offset, compressed_len, len, crc32, method, .. } = *member;
        weighbridge_io::source::check_range(&**self.source, data_offset, compressed_len)?;
        match method {
            Method::Stored if len != compressed_len => {
                Err(Error::corrupt("zip-stored-length", "the member is stored as it is, but has two lengths"))
            }
            Method::Stored => {
                self.spend(len)?;
                let found = crc_of(self.source, data_offset, len)?;
                if found == crc32 {
                    return Ok(());
                }
                Err(Error::corrupt("crc-mismatch", "the data is not what was written: its CRC-32 differs")
                    .expected(format_args!("{crc32:08x}"))
                    .found(format_args!("{found:08x}")))
            }
            _ if len / DEFLATE_RATIO > compressed_len => Err(Error::corrupt(
                "deflate-claim",
                "the member claims more bytes than its compressed data can hold",
            )),
            _ => {
                self.spend(compressed_len)?;
                self.spend_unpacked(len)?;
                read_through(&member.open(self.source)?)
            }
        }
    }

    /// What the record behind the data says.
    fn behind(&mut self, data_at: u64, method: Method) -> Result<Option<Facts>> {
        if method == Method::Deflated {
            if self.left == 0 || self.unpacked_left == 0 {
                return Err(tangle());
            }
            let Extent { taken: compressed_len, given: len, crc32 } =
                extent(self.source, data_at, self.left, self.unpacked_left)?;
            // A stream that breaks was followed as well.
            self.left = self.left.saturating_sub(compressed_len);
            self.unpacked_left = self.unpacked_left.saturating_sub(len);
            let Some(crc32) = crc32 else { return Ok(None) };
            let end = data_at + compressed_len;
            let tail = read_vec(&**self.source, end, DESCRIPTOR_LEN.min(self.source.len() - end))?;
            let tail = tail.strip_prefix(&DESCRIPTOR).unwrap_or(&tail);
            let said = tail.first_chunk::<4>().map(|crc| u32::from_le_bytes(*crc));
            return Ok((said == Some(crc32)).then_some(Facts { crc32, compressed_len, len }));
        }
        let (mut at, len) = (data_at, self.source.len());
        while len.saturating_sub(at) >= DESCRIPTOR_LEN - 8 {
            let step = STEP.min(len - at);
            self.spend(step)?;
            let bytes = read_vec(&**self.source, at, step)?;
            for place in memchr::memmem::find_iter(&bytes, &DESCRIPTOR) {
                let here = at + place as u64;
                if let Some(facts) = self.descriptor(here, here - data_at)? {
                    return Ok(Some(facts));
                }
            }
            if step < STEP {
                break;
            }
            at += step - 3;
        }
        Ok(None)
    }

    /// The descriptor at `at`, where it is one of `distance` bytes of data.
    fn descriptor(&self, at: u64, distance: u64) -> Result<Option<Facts>> {
        let bytes = read_vec(&**self.source, at, DESCRIPTOR_LEN.min(self.source.len() - at))?;
        let says = |len: Option<u64>| len == Some(distance);
        let short = |place: usize| (bytes.len() >= place + 4).then(|| u64::from(le32(&bytes, place)));
        let long = |place: usize| (bytes.len() >= place + 8).then(|| le64(&bytes, place));
        let fits = (says(short(8)) && says(short(12))) || (says(long(8)) && says(long(16)));
        Ok(fits.then(|| Facts { crc32: le32(&bytes, 4), compressed_len: distance, len: distance }))
    }
}

fn tangle() -> Error {
    Error::limit("zip-tangle", "the headers of the archive claim the same bytes again and again")
}

/// What a local header says of lengths and checksum.
fn facts_of(local: &[u8], extra: &[u8]) -> Option<Facts> {
    let mut wide = zip64_extra(extra).ok()?;
    let mut number = |short: u32| match u64::from(short) {
        MAX32 => take_wide(&mut wide),
        short => Ok(short),
    };
    let (len, compressed_len) = (number(le32(local, 22)).ok()?, number(le32(local, 18)).ok()?);
    Some(Facts { crc32: le32(local, 14), compressed_len, len })
}

/// The CRC-32 of a range, which lies in the source.
fn crc_of(source: &SourceRef, offset: u64, len: u64) -> Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; to_usize(len.min(STEP))?];
    let mut done = 0;
    while done < len {
        let step = &mut buffer[..to_usize((len - done).min(STEP))?];
        source.read_at(offset + done, step)?;
        hasher.update(step);
        done += step.len() as u64;
    }
    Ok(hasher.finalize())
}
