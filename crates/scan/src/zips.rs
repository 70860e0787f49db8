//! zip archives: faults of their structure, and the members to scan.

use super::{Scan, judge_member};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::{escape, first_and_more};
use weighbridge_core::{Budget, ErrorCode, HeldMemory};
use weighbridge_io::source::{Source, SourceRef, Within, check_range, read_vec, to_usize};
use weighbridge_zip::{Found, InflateSource, Member, Method, survey};

/// An archive is a bomb where all members without numbers unpack to more than this many times its length in total, and to
/// more than [`MIN_BOMB_BYTES`]. The bytes that are unpacked are bounded by the budget.
const MAX_UNPACK_RATIO: u64 = 200;
const MIN_BOMB_BYTES: u64 = 1 << 30;

/// Bytes read at once to verify the CRC-32 of a member. Longer members of numbers are unpacked while they are read: only
/// their header is scanned.
const BLOCK: u64 = 1 << 20;

/// Names of members in one message.
const MAX_NAMED: usize = 3;

/// Reports faults of the archive structure. Every member that some reader finds is passed to `route` with its
/// bytes: a range of the archive, or the unpacked bytes. A member that cannot be unpacked within the limits is
/// reported and not passed.
///
/// `raw` selects members of numbers: their CRC-32 is not verified, and long ones are unpacked while they are
/// read.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`] where it cannot be read.
pub fn archive(
    source: &SourceRef,
    limits: &Limits,
    scan: &mut Scan,
    raw: &dyn Fn(&str) -> bool,
    route: &mut dyn FnMut(&Member, SourceRef, &mut Scan) -> Result<()>,
) -> Result<()> {
    let survey = match survey(source, limits) {
        Ok(survey) => survey,
        Err(error) => return scan.push_error(error),
    };
    for odd in &survey.oddities {
        let found = super::found(odd.code, odd.text.clone()).at(odd.at).in_file(source.label());
        let truncated = odd.code == "zip-damaged" && odd.at == source.len();
        scan.list(if truncated { found.hint("download the file again") } else { found });
    }
    // Numbers may all be zero, which compress to a thousandth.
    let others = survey.members.iter().map(|found| &found.member).filter(|member| !raw(&member.name));
    let sum = others.fold(0u64, |sum, member| sum.saturating_add(member.len));
    if sum > MIN_BOMB_BYTES.max(source.len().saturating_mul(MAX_UNPACK_RATIO)) {
        let text = format!("the archive ({} bytes) claims to unpack to {sum} bytes", source.len());
        scan.list(super::found("zip-bomb", text).at(0).in_file(source.label()));
    }
    let budget = limits.budget_of(source);
    let mut unread: Vec<&Member> = Vec::new();
    for Found { member, readable } in &survey.members {
        judge_member(&member.name, member.header_offset, scan);
        if member.name.ends_with('/') && member.len == 0 {
            continue;
        }
        if !readable {
            let is_reported = survey.oddities.iter().any(|odd| {
                odd.code == "zip-encrypted" && odd.text.starts_with(&format!("`{}`", escape(&member.name)))
            });
            if !is_reported {
                unread.push(member);
            }
            continue;
        }
        // Members may share their bytes.
        if let Err(error) = budget.take_work(member.compressed_len) {
            refused(error, member, scan)?;
            continue;
        }
        if raw(&member.name) && member.method == Method::Stored {
            route(member, member.open(source)?, scan)?;
            continue;
        }
        match bytes(source, member, raw(&member.name), &budget) {
            Ok(bytes) => bytes.scan(|bytes| route(member, bytes, scan))?,
            Err(error) => {
                let other = error.code() == ErrorCode::CrcMismatch;
                refused(error, member, scan)?;
                // Some programs load it despite the wrong checksum.
                if other && let Ok(bytes) = unchecked(source, member, &budget) {
                    bytes.scan(|bytes| route(member, bytes, scan))?;
                }
            }
        }
    }
    // A truncated archive may have thousands.
    if let Some(first) = unread.first() {
        let names = unread.iter().map(|member| format!("`{}`", escape(&member.name)));
        let text = format!("zip-member: the data cannot be read: {}", first_and_more(names, MAX_NAMED));
        scan.push_at("unreadable", first.header_offset, text);
    }
    Ok(())
}

/// Bytes of a member: a range of the archive if stored, in memory if deflated. The CRC-32 of both is verified.
fn bytes(source: &SourceRef, member: &Member, raw: bool, budget: &Budget) -> Result<Bytes> {
    let opened = member.open(source)?;
    if raw && member.len > BLOCK {
        return Ok(Bytes::Range(opened));
    }
    if member.method == Method::Stored {
        verify_crc32(&*opened, member)?;
        return Ok(Bytes::Range(opened));
    }
    Unpacked::of(|| InflateSource::new(source.clone(), member), member.len, budget)
}

/// Same as [`bytes`], without verifying the CRC-32.
fn unchecked(source: &SourceRef, member: &Member, budget: &Budget) -> Result<Bytes> {
    match member.method {
        Method::Stored => Ok(Bytes::Range(member.open(source)?)),
        _ => Unpacked::of(|| InflateSource::unchecked(source.clone(), member), member.len, budget),
    }
}

/// Bytes of a member.
enum Bytes {
    /// A range of the archive, or bytes unpacked while they are read.
    Range(SourceRef),
    Unpacked(Arc<Unpacked>, HeldMemory),
}

impl Bytes {
    /// Scans the bytes, then frees the memory of unpacked ones.
    fn scan(self, scan: impl FnOnce(SourceRef) -> Result<()>) -> Result<()> {
        match self {
            Self::Range(source) => scan(source),
            Self::Unpacked(unpacked, _held) => {
                scan(unpacked.clone())?;
                *unpacked.bytes() = None;
                Ok(())
            }
        }
    }
}

/// A deflated member that is unpacked as a whole on reading, and again if its memory was freed in between.
#[derive(Debug)]
struct Unpacked {
    packed: InflateSource,
    bytes: Mutex<Option<Vec<u8>>>,
}

impl Unpacked {
    fn of(open: impl FnOnce() -> Result<InflateSource>, len: u64, budget: &Budget) -> Result<Bytes> {
        let mut held = HeldMemory::of(budget);
        held.take(len)?;
        budget.take_work(len)?;
        let packed = open()?;
        let bytes = read_vec(&packed, 0, packed.len())?;
        Ok(Bytes::Unpacked(Arc::new(Self { packed, bytes: Mutex::new(Some(bytes)) }), held))
    }

    fn bytes(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Unpacked {
    fn len(&self) -> u64 {
        self.packed.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_range(self, offset, buffer.len() as u64)?;
        let mut place = self.bytes();
        let bytes = match place.take() {
            Some(bytes) => bytes,
            None => read_vec(&self.packed, 0, self.packed.len())?,
        };
        let start = to_usize(offset)?;
        buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
        *place = Some(bytes);
        Ok(())
    }

    fn label(&self) -> &str {
        self.packed.label()
    }

    fn within(&self) -> Option<Within<'_>> {
        self.packed.within()
    }
}

/// Verifies the CRC-32 of a stored member.
fn verify_crc32(bytes: &dyn Source, member: &Member) -> Result<()> {
    let mut sum = crc32fast::Hasher::new();
    let mut at = 0;
    let mut block = vec![0; to_usize(BLOCK.min(bytes.len()))?];
    while at < bytes.len() {
        let len = to_usize(BLOCK.min(bytes.len() - at))?;
        bytes.read_at(at, &mut block[..len])?;
        sum.update(&block[..len]);
        at += len as u64;
    }
    let found = sum.finalize();
    if found == member.crc32 {
        return Ok(());
    }
    Err(Error::corrupt("crc-mismatch", "the CRC-32 of the data does not match")
        .expected(format_args!("{:08x}", member.crc32))
        .found(format_args!("{found:08x}")))
}

/// Reports a member whose bytes cannot be read.
fn refused(error: Error, member: &Member, scan: &mut Scan) -> Result<()> {
    let name = escape(&member.name);
    match error.code() {
        ErrorCode::CrcMismatch => {
            let text = format!("`{name}` does not match its checksum (CRC-32)");
            let hint = "the file is damaged or was changed: download it again";
            scan.list(super::found("zip-crc", text).at(member.header_offset).hint(hint));
        }
        ErrorCode::DeflateTooLong | ErrorCode::DeflateClaim => {
            let text = format!("`{name}` unpacks to a different length than it claims: {}", error.message());
            scan.push_at("zip-bomb", member.header_offset, text);
        }
        ErrorCode::Limit => {
            let text =
                format!("limit: `{name}` unpacks to {} bytes, more than the budget of the scan", member.len);
            scan.push_at("unreadable", member.header_offset, text);
        }
        _ => scan.push_error(error.within(name).at(member.header_offset))?,
    }
    Ok(())
}
