//! Byte outline of a file: archive and pickle, or the pickles of the legacy form.

use super::header_members::is_header_member;
use super::read::is_bomb;
use super::{METADATA, metadata};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_torch_archive::{self as torch, Saved};
use weighbridge_zip as zip;

pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let saved = torch::read(source, limits)?;
    if let Some(storages) = saved.legacy_storages() {
        let mut outline = Outline::new(Gaps::Forbidden);
        let mut at = 0;
        for (offset, len) in storages {
            // First the pickles, then the length before each storage.
            let what = if at == 0 { "pickles" } else { "length of a storage" };
            let lengths = if at == 0 { 8 } else { 0 };
            outline.header(at, offset.saturating_sub(at + lengths), what);
            outline.header(offset.saturating_sub(lengths), lengths, "length of a storage");
            outline.header(offset, len, Outline::BEYOND_TENSORS);
            at = offset + len;
        }
        let end = saved.legacy_end().unwrap_or(at);
        outline.header(at, end.saturating_sub(at), "pickles");
        return Ok(outline);
    }
    zipped(&saved, source, limits)
}

/// Returns true if the member holds metadata in this library's form.
fn is_metadata(member: &zip::Member, source: &SourceRef, limits: &Limits) -> Result<bool> {
    if member.len > limits.header_bytes || is_bomb(member, source, limits) {
        return Ok(false);
    }
    Ok(metadata::decode(&read_vec(&*member.open(source)?, 0, member.len)?).is_some())
}

fn zipped(saved: &Saved, source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let (mut outline, members) = zip::outline(source, limits)?;
    for member in &members {
        let (at, len) = (member.data_offset, member.compressed_len);
        let stored = member.method == zip::Method::Stored;
        match member.name.strip_prefix(saved.folder()) {
            Some("data.pkl") => {
                let end = saved.pickle().end;
                // In a stored member, offsets are those of the archive.
                let rest =
                    if stored { (at + len).saturating_sub(end) } else { member.len.saturating_sub(end) };
                if stored {
                    outline.header(at, len.saturating_sub(rest), "pickle");
                    outline.hidden(at + len.saturating_sub(rest), rest, "bytes after the pickle");
                } else {
                    outline.header(at, len, "pickle");
                    if rest > 0 {
                        let text = format!("{rest} bytes follow the pickle in its member");
                        outline
                            .findings
                            .push(weighbridge_core::finding::Finding::unchecked("hidden-bytes", text).at(at));
                    }
                }
            }
            Some(name) if is_header_member(name, &member.open(source)?)? => {
                outline.header(at, len, "archive header");
            }
            Some(METADATA) if is_metadata(member, source, limits)? => outline.header(at, len, "metadata"),
            Some(name) if name.strip_prefix("data/").is_some_and(|key| saved.refers_to(key)) => {
                outline.header(at, len, Outline::BEYOND_TENSORS);
            }
            _ => outline.unread(at, len, "a member without tensors"),
        }
    }
    Ok(outline)
}
