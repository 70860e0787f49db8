//! Reader: from a file to the index.

use super::walk::{Overlaps, Walk};
use super::{METADATA, metadata};
use weighbridge_core::checkpoint::{Checkpoint, Note, TensorEntry, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_torch_archive::{self as torch, Salvaged, Saved};
use weighbridge_zip::Member;

/// Maximum number of unread members that are named; more are counted.
const MAX_NAMED: usize = 100;
/// Memory for reading metadata as a multiple of its length: text, pairs and index.
const METADATA_COPIES: u64 = 4;

/// Returns true for the tar archives of torch before version 0.1.10.
pub(super) fn is_torch_tar(head: &[u8]) -> bool {
    let first = |name: &[u8]| head.starts_with(name) && head.get(name.len()) == Some(&0);
    head.get(257..262) == Some(b"ustar")
        && [&b"sys_info"[..], b"pickle", b"storages", b"tensors"].into_iter().any(first)
}

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let mut head = [0; 512];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    source.read_at(0, &mut head[..count])?;
    if is_torch_tar(&head[..count]) {
        return Err(Error::unsupported(
            "torch-tar",
            "tar archives of torch before version 0.1.10 are not supported",
        )
        .in_file(source.label())
        .hint("load the file with an old PyTorch and save it again"));
    }
    let saved = torch::read(source, &options.limits)?;
    let (mut checkpoint, mut overlaps) = Walk::new(&saved, options).run()?;
    checkpoint.warn_of_code(saved.warning());
    if let Some(rest) = saved.archive_rest() {
        rest.settle(options.lenient, source.label(), &mut checkpoint.notes)?;
    }
    match saved.legacy_end() {
        Some(end) if end < source.len() => {
            let text =
                format!("{} bytes after the last storage omitted; torch ignores them", source.len() - end);
            checkpoint.notes.push(Note::omission("trailing-bytes", text));
        }
        Some(_) => {}
        None => members(&saved, source, options, &mut checkpoint, &mut overlaps)?,
    }
    drop(saved);
    overlaps.mark(&mut checkpoint);
    Ok(checkpoint)
}

/// Reads the intact tensors of a damaged file. Requires an intact pickle of the object.
///
/// # Errors
/// Same as [`torch::salvage`].
pub(super) fn salvage(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let Salvaged { saved, lost, unnamed } = torch::salvage(source, &options.limits)?;
    let (mut checkpoint, mut overlaps) = Walk::new(&saved, options).run()?;
    let of_tensors = checkpoint.damage_mut(error).lost.len() as u64;
    // The pickle names every tensor, also the lost ones.
    let expected = of_tensors.saturating_add(checkpoint.tensors.len() as u64);
    checkpoint.damage_mut(error).expected = Some(expected);
    checkpoint.damage_mut(error).unnamed = unnamed;
    if saved.legacy_end().is_none() {
        members(&saved, source, options, &mut checkpoint, &mut overlaps)?;
    }
    for (name, error) in &lost {
        let text = format!("damaged member {} omitted: {}", escape_text(name), error.message());
        checkpoint.notes.push(Note::omission("member-damaged", text));
    }
    drop(saved);
    overlaps.mark(&mut checkpoint);
    Ok(checkpoint)
}

/// Reads the metadata member, and notes other members that are not storages.
fn members(
    saved: &Saved,
    source: &SourceRef,
    options: &OpenOptions,
    checkpoint: &mut Checkpoint,
    overlaps: &mut Overlaps,
) -> Result<()> {
    let (mut unread, mut code) = (Vec::new(), false);
    for member in saved.members() {
        let Some(name) = member.name.strip_prefix(saved.folder()) else {
            unread.push(&member.name);
            continue;
        };
        match name {
            "data.pkl"
            | "byteorder"
            | "version"
            | ".data/serialization_id"
            | ".format_version"
            | ".storage_alignment" => {}
            METADATA => read_metadata(member, source, options, checkpoint, overlaps)?,
            // A storage without a reference from the object is noted as unread.
            name if name.starts_with("data/") && saved.refers_to(&name["data/".len()..]) => {}
            name if name.starts_with("constants/") => {
                checkpoint.notes.push(Note::skipped_tensor(name, "constant of TorchScript code"));
            }
            name if is_code(name) => code = true,
            _ => unread.push(&member.name),
        }
    }
    if code {
        let text = "the file holds a TorchScript program; its tensors are read, its code is not";
        checkpoint.notes.push(Note::omission("torchscript-code", text));
    }
    for name in unread.iter().take(MAX_NAMED) {
        let text = format!("member {} omitted: torch.save does not write it", escape_text(name));
        checkpoint.notes.push(Note::omission("unread-member", text));
    }
    if unread.len() > MAX_NAMED {
        let text = format!("{} more members omitted", unread.len() - MAX_NAMED);
        checkpoint.notes.push(Note::omission("unread-member", text));
    }
    Ok(())
}

/// Returns true for members with code of TorchScript or packages, and for their constants.
pub(super) fn is_code(name: &str) -> bool {
    name.starts_with("code/")
        || name.starts_with("constants/")
        || name == "constants.pkl"
        || name.ends_with(".py")
}

/// Returns true for metadata that exceeds the memory budget of the file.
pub(super) fn is_bomb(member: &Member, source: &SourceRef, limits: &Limits) -> bool {
    limits.budget_of(source).memory_left() / METADATA_COPIES < member.len
}

/// Reads the metadata member of this library.
fn read_metadata(
    member: &Member,
    source: &SourceRef,
    options: &OpenOptions,
    checkpoint: &mut Checkpoint,
    overlaps: &mut Overlaps,
) -> Result<()> {
    Limits::check("bytes of metadata", "header_bytes", member.len, options.limits.header_bytes)?;
    let mut decoded = None;
    if !is_bomb(member, source, &options.limits) {
        decoded = metadata::decode(&read_vec(&*member.open(source)?, 0, member.len)?);
    }
    let Some((pairs, index)) = decoded else {
        let text = format!("member {METADATA} omitted: Weighbridge cannot read it");
        checkpoint.notes.push(Note::omission("metadata-unreadable", text));
        return Ok(());
    };
    if let Some(containers) = &mut checkpoint.containers {
        containers.set_elsewhere();
    }
    // torch reads the module versions in the pickle only, so these count; the stored ones only map versions to state dicts.
    let own = checkpoint.metadata.take_versions();
    for (key, value) in pairs.iter() {
        checkpoint.metadata.set(key, value.clone());
    }
    if let Some(index) = index {
        // Overlaps refer to tensors by index, and restoring the index reorders them.
        overlaps.mark(checkpoint);
        let names: Vec<String> = checkpoint.tensors.iter().map(TensorEntry::text).collect();
        checkpoint.restore_bridge_index(&names, &index);
    }
    checkpoint.metadata.set_versions(own);
    Ok(())
}
