//! Bytes of an archive outside the data of members: headers, extra fields, comments, records.

use super::super::{
    CENTRAL, CENTRAL_LEN, DESCRIPTOR, DESCRIPTOR_LEN, END_LEN, END64, END64_LEN, EXTRA_ALIGNMENT,
    EXTRA_UNICODE_PATH, EXTRA_ZIP64, LOCAL_LEN, LOCATOR64_LEN,
};
use super::end::End;
use super::{FLAG_DESCRIPTOR, Member, le16, le32, le64, read_central, read_locals};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{Cursor, SourceRef, read_vec};

/// Greatest alignment of members that writers use: pages of up to 64 KiB.
const MAX_ALIGNMENT: u64 = 64 << 10;
/// Extra field of PyTorch with the padding that aligns a storage.
const EXTRA_TORCH: u16 = 0x4246;
/// Fill byte of that field.
const FILLER_TORCH: u8 = b'Z';

/// Outlines all of `source` except the data of its members, and returns the members in the order of the directory.
///
/// Extra fields are recognized by their number, up to their usual length: 64-bit lengths, times, owners, alignment.
/// Others, and all comments, are marked as hidden: no program needs them.
///
/// # Errors
/// As [`super::read_with_rest`].
pub fn outline(source: &SourceRef, limits: &Limits) -> Result<(Outline, Vec<Member>)> {
    let in_file = |e: weighbridge_core::Error| e.in_file(source.label());
    let (end, records) = read_central(source, limits).map_err(in_file)?;
    let flags: Vec<u16> = records.iter().map(|record| record.flags).collect();
    let (directory, tail) = (end.offset, end.position);
    let members = read_locals(source, &end, records).map_err(in_file)?;
    let mut outline = Outline::new(Gaps::Zeros(MAX_ALIGNMENT));
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&i| members[i].header_offset);
    let mut cursor = Cursor::new(source.clone(), 0);
    for &i in &order {
        let member = &members[i];
        cursor.skip(member.header_offset.saturating_sub(cursor.position()), "the members of the archive")?;
        local(&mut outline, &mut cursor)?;
        cursor.skip(member.compressed_len, "the data of a member")?;
        if flags[i] & FLAG_DESCRIPTOR != 0 {
            let at = cursor.position();
            let len = descriptor(source, at, directory, member)?;
            outline.header(at, len, "zip descriptor");
        }
    }
    central(&mut outline, source, &end, members.len() as u64)?;
    ends(&mut outline, source, tail)?;
    Ok((outline, members))
}

/// Outlines the local header at the cursor and moves the cursor to the data.
fn local(outline: &mut Outline, cursor: &mut Cursor) -> Result<()> {
    let at = cursor.position();
    let fixed: [u8; 30] = cursor.array("a local header")?;
    let name = u64::from(le16(&fixed, 26));
    let raw_name = cursor.bytes(name, "a name")?;
    outline.header(at, LOCAL_LEN + name, "zip local header");
    let place = cursor.position();
    let bytes = cursor.bytes(le16(&fixed, 28).into(), "an extra field")?;
    extra(outline, place, &bytes, &raw_name);
    Ok(())
}

/// Outlines the extra fields in `bytes`, at offset `at`, of a member with this name.
fn extra(outline: &mut Outline, at: u64, bytes: &[u8], raw_name: &[u8]) {
    let mut from = 0;
    while let Some(head) = bytes.get(from..from + 4) {
        let (id, len) = (le16(head, 0), usize::from(le16(head, 2)));
        let Some(body) = bytes.get(from + 4..from + 4 + len) else { break };
        let (place, whole) = (at + from as u64, 4 + len as u64);
        let zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        let most = match id {
            EXTRA_ZIP64 => 28,
            // Unix times, NTFS times, and three kinds of owner fields.
            0x5455 => 13,
            0x000a => 36,
            0x5855 => 12,
            0x7855 => 4,
            0x7875 => 15,
            // A copy of the name, which was compared before.
            EXTRA_UNICODE_PATH if body.get(1..5) == Some(&crc32fast::hash(raw_name).to_le_bytes()) => len,
            _ => 0,
        };
        match id {
            // The first two bytes are the alignment.
            EXTRA_ALIGNMENT if body.get(2..).is_some_and(zeros) => {
                outline.header(place, 6, "zip extra field");
                outline.padding(place + 6, whole - 6, "zip alignment");
            }
            EXTRA_TORCH if zeros(body) || body.iter().all(|&byte| byte == FILLER_TORCH) => {
                outline.header(place, 4, "zip extra field");
                outline.padding(place + 4, whole - 4, "zip alignment");
            }
            _ if len <= most => outline.header(place, whole, "zip extra field"),
            _ => outline.hidden(place, whole, "unknown extra field in a zip header"),
        }
        from += 4 + len;
    }
    let rest = bytes.get(from..).unwrap_or_default();
    let (place, len) = (at + from as u64, rest.len() as u64);
    if rest.iter().all(|&byte| byte == 0) {
        outline.padding(place, len, "zip alignment");
    } else {
        outline.hidden(place, len, "bytes after the extra fields of a zip header");
    }
}

/// Length of the descriptor at `at`, before `most`; 0 without a descriptor that matches the member.
fn descriptor(source: &SourceRef, at: u64, most: u64, member: &Member) -> Result<u64> {
    let room = most.saturating_sub(at).min(DESCRIPTOR_LEN);
    let bytes = read_vec(&**source, at, room)?;
    let signed = bytes.starts_with(&DESCRIPTOR);
    for mark in [4, 0].into_iter().filter(|&mark| mark == 0 || signed) {
        let body = bytes.get(mark..).unwrap_or_default();
        let crc = body.len() >= 12 && le32(body, 0) == member.crc32;
        let lens = |a: u64, b: u64| (a, b) == (member.compressed_len, member.len);
        if crc && body.len() >= 20 && lens(le64(body, 4), le64(body, 12)) {
            return Ok(mark as u64 + 20);
        }
        if crc && lens(le32(body, 4).into(), le32(body, 8).into()) {
            return Ok(mark as u64 + 12);
        }
    }
    Ok(0)
}

/// Outlines the directory.
fn central(outline: &mut Outline, source: &SourceRef, end: &End, count: u64) -> Result<()> {
    let mut cursor = Cursor::new(source.clone(), end.offset);
    for _ in 0..count {
        let at = cursor.position();
        let fixed: [u8; 46] = cursor.array("a directory entry")?;
        if fixed[..4] != CENTRAL {
            break;
        }
        let name = u64::from(le16(&fixed, 28));
        let raw_name = cursor.bytes(name, "a name in the directory")?;
        outline.header(at, CENTRAL_LEN + name, "zip directory");
        let place = cursor.position();
        let bytes = cursor.bytes(le16(&fixed, 30).into(), "an extra field in the directory")?;
        extra(outline, place, &bytes, &raw_name);
        let comment = u64::from(le16(&fixed, 32));
        outline.hidden(cursor.position(), comment, "comment of a zip member");
        cursor.skip(comment, "a comment in the directory")?;
    }
    Ok(())
}

/// Outlines the end records from `at` on: the zip64 record with its locator if present, the short record, the comment.
fn ends(outline: &mut Outline, source: &SourceRef, at: u64) -> Result<()> {
    let head = read_vec(&**source, at, (source.len() - at).min(END64_LEN))?;
    let mut short = at;
    if head.starts_with(&END64) && head.len() as u64 == END64_LEN {
        let whole = le64(&head, 4).saturating_add(12);
        outline.header(at, END64_LEN, "zip end record");
        let more = whole.saturating_sub(END64_LEN);
        outline.hidden(at + END64_LEN, more, "extension of the zip end record");
        outline.header(at.saturating_add(whole), LOCATOR64_LEN, "zip end record");
        short = at.saturating_add(whole).saturating_add(LOCATOR64_LEN);
    }
    outline.header(short, END_LEN, "zip end record");
    let comment = short.saturating_add(END_LEN);
    // Bytes after the comment are not part of the archive.
    let said = read_vec(&**source, comment.saturating_sub(2), 2)?;
    let len = u64::from(le16(&said, 0)).min(source.len().saturating_sub(comment));
    outline.hidden(comment, len, "comment of a zip archive");
    Ok(())
}
