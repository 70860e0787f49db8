//! zip archives: what is wrong with them, and members that may be looked at.

use super::{Scan, judge_member};
use crate::containers::zip::{Found, InflateSource, Member, Method, survey};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{MemorySource, Source, SourceRef, to_usize};
use crate::text::escape;
use std::sync::Arc;

/// The longest member that is unpacked in memory; and of one that is held against its checksum.
const MOST_UNPACKED: u64 = 64 << 20;
/// Of numbers no more is unpacked at once: only their header is looked at.
const MOST_RAW: u64 = 1 << 20;
/// All members of one archive together.
const MOST_TOGETHER: u64 = 256 << 20;
/// Bytes that are read at once to hold a member against its checksum.
const BLOCK: u64 = 1 << 20;

/// Looks at the archive itself and tells what is odd. Every member that some reader finds is given to `route`
/// with its bytes: a range of the archive, or what it unpacks to. What cannot be unpacked within the limits is
/// told, and not given.
///
/// `raw` says which members are numbers: they are not held against their checksums, and long ones are
/// unpacked while they are read.
///
/// # Errors
/// [`crate::Kind::Io`] where it cannot be read.
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
        scan.findings.push(super::found(odd.code, odd.text.clone()).at(odd.at).in_file(source.label()));
    }
    let mut left = MOST_TOGETHER;
    // Members that share bytes would have the same bytes looked at again and again.
    let mut room = source.len().saturating_mul(2);
    for Found { member, readable } in &survey.members {
        judge_member(&member.name, member.header_offset, scan);
        if member.name.ends_with('/') && member.len == 0 {
            continue;
        }
        if !readable {
            let told = survey
                .oddities
                .iter()
                .any(|odd| odd.code == "zip-encrypted" && odd.text.starts_with(&escape(&member.name)));
            if !told {
                let text = format!("zip-member: {} cannot be read", escape(&member.name));
                scan.push_at("unreadable", member.header_offset, text);
            }
            continue;
        }
        let Some(rest) = room.checked_sub(member.compressed_len) else {
            let text = format!(
                "shared-bytes: {} has bytes of other members, and was not looked at",
                escape(&member.name)
            );
            scan.push_at("unreadable", member.header_offset, text);
            continue;
        };
        room = rest;
        if raw(&member.name) && member.method == Method::Stored {
            route(member, member.open(source)?, scan)?;
            continue;
        }
        match bytes(source, member, raw(&member.name), &mut left) {
            Ok(bytes) => route(member, bytes, scan)?,
            Err(error) => {
                let other = error.code() == "crc-mismatch";
                refused(error, member, scan)?;
                // Some program loads it all the same.
                if other && let Ok(bytes) = unchecked(source, member) {
                    route(member, bytes, scan)?;
                }
            }
        }
    }
    Ok(())
}

/// The bytes of a member: those of a stored one where they are, those of a deflated one in memory. Both are
/// held against their checksum, unless they are too long for that.
fn bytes(source: &SourceRef, member: &Member, raw: bool, left: &mut u64) -> Result<SourceRef> {
    let opened = member.open(source)?;
    if raw && member.len > MOST_RAW {
        return Ok(opened);
    }
    if member.method == Method::Stored {
        if member.len <= MOST_UNPACKED {
            hold(&*opened, member)?;
        }
        return Ok(opened);
    }
    let most = MOST_UNPACKED.min(*left);
    Limits::check("bytes to unpack", "unpacked bytes of a scan", member.len, most)?;
    *left -= member.len;
    let mut bytes = vec![0; to_usize(member.len)?];
    opened.read_at(0, &mut bytes)?;
    Ok(Arc::new(MemorySource::new(source.label(), bytes)))
}

/// As [`bytes`], whatever the checksum says.
fn unchecked(source: &SourceRef, member: &Member) -> Result<SourceRef> {
    if member.method == Method::Stored {
        return member.open(source);
    }
    let opened = InflateSource::unchecked(source.clone(), member)?;
    let mut bytes = vec![0; to_usize(member.len)?];
    opened.read_at(0, &mut bytes)?;
    Ok(Arc::new(MemorySource::new(source.label(), bytes)))
}

/// Holds a stored member against its checksum.
fn hold(bytes: &dyn Source, member: &Member) -> Result<()> {
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
    Err(Error::corrupt("crc-mismatch", "the data is not what was written: its CRC-32 differs")
        .expected(format_args!("{:08x}", member.crc32))
        .found(format_args!("{found:08x}")))
}

/// A member whose bytes cannot be had.
fn refused(error: Error, member: &Member, scan: &mut Scan) -> Result<()> {
    let name = escape(&member.name);
    match error.code() {
        "crc-mismatch" => {
            let text = format!("{name}: the data has another checksum than the archive says");
            scan.push_at("zip-crc", member.header_offset, text);
        }
        "deflate-too-long" | "deflate-claim" => {
            let text = format!("{name} unpacks to another length than it claims: {}", error.message());
            scan.push_at("zip-bomb", member.header_offset, text);
        }
        "limit" => {
            let text = format!("limit: {name} unpacks to {} bytes, more than a scan unpacks", member.len);
            scan.push_at("unreadable", member.header_offset, text);
        }
        _ => scan.push_error(error.within(name).at(member.header_offset))?,
    }
    Ok(())
}
