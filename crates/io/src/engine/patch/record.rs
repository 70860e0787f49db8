//! Encoding of the undo record; the layout is in [`super`].

use super::outside::{Algorithm, Outside};
use super::{Patch, PatchRange};
use sha2::{Digest, Sha256};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;

const MAGIC: &[u8; 16] = b"weighbridge undo";
/// Bytes of the checksum at the end.
const SUM: usize = 32;
/// Longest record that is read, in bytes: more than twice the bytes of a patch and its numbers.
pub(super) const MAX_RECORD_LEN: u64 = 512 << 20;

pub(super) fn encode(patch: &Patch, outside: &Outside) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend(outside.algorithm.version().to_le_bytes());
    for number in [patch.old_len, patch.new_len, patch.ranges.len() as u64] {
        out.extend(number.to_le_bytes());
    }
    for range in &patch.ranges {
        for number in [range.offset, range.old.len() as u64, range.new.len() as u64] {
            out.extend(number.to_le_bytes());
        }
        out.extend(&range.old);
        out.extend(&range.new);
    }
    out.extend(outside.hash);
    let sum = Sha256::digest(&out);
    out.extend(sum);
    out
}

/// Decodes a record. A damaged one is refused as a whole: restoring wrong bytes is worse than restoring none.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-undo-record`; [`weighbridge_core::Kind::Unsupported`], `undo-version`.
pub(super) fn decode(bytes: &[u8]) -> Result<(Patch, Outside)> {
    let bad = |reason: &str| {
        Error::corrupt("bad-undo-record", format!("the undo record is damaged: {reason}"))
            .hint(phrase![Opt::ForgetUndo, " removes the undo record"])
    };
    let body = bytes.len().checked_sub(SUM).map(|end| bytes.split_at(end));
    let Some((body, sum)) = body.filter(|(body, _)| body.starts_with(MAGIC)) else {
        return Err(bad("its signature is missing"));
    };
    if Sha256::digest(body).as_slice() != sum {
        return Err(bad("its checksum does not match"));
    }
    let mut rest = &body[MAGIC.len()..];
    let version = take::<4>(&mut rest).map(u32::from_le_bytes).ok_or_else(|| bad("it is truncated"))?;
    let algorithm = Algorithm::of_version(version)?;
    let read = contents(&mut rest).zip(take(&mut rest)).filter(|_| rest.is_empty());
    let (patch, hash) = read.ok_or_else(|| bad("its lengths do not match its size"))?;
    if is_sensible(&patch) {
        Ok((patch, Outside { algorithm, hash }))
    } else {
        Err(bad("its ranges contradict each other"))
    }
}

fn contents(rest: &mut &[u8]) -> Option<Patch> {
    let mut number = || take::<8>(rest).map(u64::from_le_bytes);
    let (old_len, new_len, count) = (number()?, number()?, number()?);
    let mut patch = Patch { old_len, new_len, ranges: Vec::new() };
    for _ in 0..count {
        let mut number = || take::<8>(rest).map(u64::from_le_bytes);
        let (offset, old, new) = (number()?, number()?, number()?);
        let mut bytes = |len: u64| {
            let (now, later) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            *rest = later;
            Some(now.to_vec())
        };
        patch.ranges.push(PatchRange { offset, old: bytes(old)?, new: bytes(new)? });
    }
    Some(patch)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (now, later) = rest.split_first_chunk::<N>()?;
    *rest = later;
    Some(*now)
}

/// True where the ranges are sorted and within the file, and only the last one changes the length.
fn is_sensible(patch: &Patch) -> bool {
    let mut at = 0;
    let end = |offset: u64, bytes: &[u8]| offset.checked_add(bytes.len() as u64);
    for range in &patch.ranges {
        let (Some(old), Some(new)) = (end(range.offset, &range.old), end(range.offset, &range.new)) else {
            return false;
        };
        let at_end = old == patch.old_len && new == patch.new_len;
        if range.offset < at || (range.old.len() != range.new.len() && !at_end) || old > patch.old_len {
            return false;
        }
        at = old.max(new);
    }
    // A changed length must be reached by the last range.
    patch.old_len == patch.new_len
        || patch.ranges.last().is_some_and(|last| {
            end(last.offset, &last.old) == Some(patch.old_len)
                && end(last.offset, &last.new) == Some(patch.new_len)
        })
}
