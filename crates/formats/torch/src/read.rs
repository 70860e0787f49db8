//! From a file to the index.

use super::walk::{Overlaps, Walk};
use super::{METADATA, metadata};
use std::path::Path;
use weighbridge_core::checkpoint::{Checkpoint, Note, TensorEntry, escape_text};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{FolderItem, FolderRef, SourceRef, read_vec};
use weighbridge_torch_archive::{self as torch, Salvaged, Saved};
use weighbridge_zip::Member;

/// Members that are not read are named one by one up to this number, then counted.
const NAMED: usize = 100;
/// Copies of metadata while it is read: as text, as pairs, and as the index in it.
const HELD: u64 = 4;

/// The extension of the files of `torch.distributed.checkpoint`.
const DISTRIBUTED: &str = ".distcp";
/// The file of `torch.distributed.checkpoint` that says where the tensors are.
const DIRECTORY: &str = ".metadata";

/// True for the tar archives that torch wrote before version 0.1.10.
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
            "this is the tar archive of torch before version 0.1.10",
        )
        .in_file(source.label())
        .hint("load it with a PyTorch that still can, and save it again"));
    }
    let saved = torch::read(source, &options.limits).map_err(|error| of_distributed(source, error))?;
    let (mut checkpoint, mut overlaps) = Walk::new(&saved, options).run()?;
    checkpoint.warn_of_code(saved.warning());
    if let Some(rest) = saved.archive_rest() {
        rest.settle(options.lenient, source.label(), &mut checkpoint.notes)?;
    }
    match saved.legacy_end() {
        Some(end) if end < source.len() => {
            let text = format!("{} bytes follow the last storage; torch ignores them", source.len() - end);
            checkpoint.notes.push(Note::omission("trailing-bytes", text));
        }
        Some(_) => {}
        None => members(&saved, source, options, &mut checkpoint, &mut overlaps)?,
    }
    drop(saved);
    overlaps.mark(&mut checkpoint);
    Ok(checkpoint)
}

/// The error of what `torch.distributed.checkpoint` writes: one archive for each tensor, one behind the other, of which the
/// file `.metadata` beside them tells what they are. That no archive is read of it is no damage.
fn of_distributed(source: &SourceRef, error: Error) -> Error {
    if error.kind() != Kind::Corrupt || !source.label().ends_with(DISTRIBUTED) {
        return error;
    }
    distributed("a part of a PyTorch distributed checkpoint", "DIR")
        .found(error.message())
        .in_file(source.label())
}

/// True for a folder that `torch.distributed.checkpoint` wrote: a directory `.metadata`, and files with the elements.
/// Paddle's directories have a number before the dot.
pub(super) fn is_distributed(folder: &FolderRef) -> bool {
    let is_part = |item: &FolderItem| item.name.as_os_str().to_string_lossy().ends_with(DISTRIBUTED);
    matches!(folder.open(Path::new(DIRECTORY)), Ok(Some(_)))
        && folder.list(1).is_ok_and(|items| items.iter().any(is_part))
}

/// The error for a distributed checkpoint, or a part of one; `folder` is that in the command that converts it.
pub(super) fn distributed(what: &str, folder: &str) -> Error {
    Error::unsupported("torch-distributed", format!("this is {what}, which is not read yet")).hint(
        format_args!(
            "convert it with torch 2.3 or later: \
         python -m torch.distributed.checkpoint.format_utils dcp_to_torch {folder} OUT.pt"
        ),
    )
}

/// What is intact of a damaged file: the tensors whose storages are. Where the pickle of the object is
/// not, nothing is known of any.
///
/// # Errors
/// As [`torch::salvage`].
pub(super) fn salvage(source: &SourceRef, error: &Error, options: &OpenOptions) -> Result<Checkpoint> {
    let Salvaged { saved, lost, unnamed } = torch::salvage(source, &options.limits)?;
    let (mut checkpoint, mut overlaps) = Walk::new(&saved, options).run()?;
    let of_tensors = checkpoint.damage_mut(error).lost.len() as u64;
    // The pickle names every tensor, whatever became of its bytes.
    let expected = of_tensors.saturating_add(checkpoint.tensors.len() as u64);
    checkpoint.damage_mut(error).expected = Some(expected);
    checkpoint.damage_mut(error).unnamed = unnamed;
    if saved.legacy_end().is_none() {
        members(&saved, source, options, &mut checkpoint, &mut overlaps)?;
    }
    for (name, error) in &lost {
        let text = format!("the member {} was not recovered: {}", escape_text(name), error.message());
        checkpoint.notes.push(Note::omission("member-damaged", text));
    }
    drop(saved);
    overlaps.mark(&mut checkpoint);
    Ok(checkpoint)
}

/// Members that are no storages: our own is read, others are noted.
fn members(
    saved: &Saved,
    source: &SourceRef,
    options: &OpenOptions,
    checkpoint: &mut Checkpoint,
    overlaps: &mut Overlaps,
) -> Result<()> {
    let (mut unread, mut code) = (Vec::new(), 0u64);
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
            METADATA => carried(member, source, options, checkpoint, overlaps)?,
            // What the object does not refer to, no tensor has; see below.
            name if name.starts_with("data/") && saved.refers_to(&name["data/".len()..]) => {}
            name if name.starts_with("constants/") => {
                checkpoint.notes.push(Note::skipped_tensor(name, "a constant of TorchScript code"));
            }
            name if is_code(name) => code += 1,
            _ => unread.push(&member.name),
        }
    }
    if code > 0 {
        let members =
            counted(code, "member with its code and constants is", "members with its code and constants are");
        let text = format!("this is TorchScript: {members} left out");
        checkpoint.notes.push(Note::omission("torchscript-code", text));
    }
    for name in unread.iter().take(NAMED) {
        let text = format!("{}: not a part of what torch.save writes", escape_text(name));
        checkpoint.notes.push(Note::omission("unread-member", text));
    }
    if unread.len() > NAMED {
        let text = format!("and {} more members", unread.len() - NAMED);
        checkpoint.notes.push(Note::omission("unread-member", text));
    }
    Ok(())
}

/// True for the members of TorchScript and of packages that hold code, or belong to it.
pub(super) fn is_code(name: &str) -> bool {
    name.starts_with("code/")
        || name.starts_with("constants/")
        || name == "constants.pkl"
        || name.ends_with(".py")
}

/// True for metadata that the budget of the file has no memory for.
pub(super) fn is_bomb(member: &Member, source: &SourceRef, limits: &Limits) -> bool {
    limits.budget_of(source).memory_left() / HELD < member.len
}

/// Reads what this library carries.
fn carried(
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
        let text = format!("{METADATA} is not what this library writes; it is ignored");
        checkpoint.notes.push(Note::omission("metadata-unreadable", text));
        return Ok(());
    };
    if let Some(containers) = &mut checkpoint.containers {
        containers.set_elsewhere();
    }
    // Of the versions of modules torch reads those beside the tensors alone, and no others count; the carried ones only say
    // of which state dicts they were.
    let own = checkpoint.metadata.take_versions();
    for (key, value) in pairs.iter() {
        checkpoint.metadata.set(key, value.clone());
    }
    if let Some(index) = index {
        // They know tensors by their places, which the index changes.
        overlaps.mark(checkpoint);
        let names: Vec<String> = checkpoint.tensors.iter().map(TensorEntry::text).collect();
        checkpoint.restore_bridge_index(&names, &index);
    }
    checkpoint.metadata.set_versions(own);
    Ok(())
}
