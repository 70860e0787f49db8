//! Use of every byte of the files behind a checkpoint.

use crate::FindingCode;
use crate::check::{Account, FileExtents, Outline, Use, account, held};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::finding::Finding;
use crate::formats;
use crate::limits::Limits;
use crate::source::SourceRef;

/// Accounts of all files behind a checkpoint, and findings about their bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accounts {
    /// One account per file: first the files with tensors, in the order of the tensors.
    pub files: Vec<Account>,
    /// Bytes without a known use, with their probable content: `hidden-bytes`, `trailing-bytes`; rules of a format that the
    /// outline found broken; files that could not be examined.
    pub findings: Vec<Finding>,
}

/// Accounts for the bytes of all files behind `checkpoint`, and of `opened`, the file that the caller opened, if any.
/// Reads headers and unclaimed byte ranges; no elements.
///
/// # Errors
/// [`crate::Kind::Io`] where a file cannot be read.
pub fn accounts(checkpoint: &Checkpoint, opened: Option<&SourceRef>, limits: &Limits) -> Result<Accounts> {
    let mut others: Vec<SourceRef> = opened.cloned().into_iter().collect();
    others.extend(checkpoint.files.iter().cloned());
    others.extend(checkpoint.companions.iter().map(|(_, source)| outermost(source)));
    for tensor in &checkpoint.tensors {
        others.extend(tensor.row_names.iter().flat_map(|labels| labels.sources()));
    }
    let mut all = Accounts::default();
    for held in held(&checkpoint.tensors, &others) {
        let (file, findings) = one(checkpoint, &held, limits)?;
        all.findings.extend(findings.into_iter().map(|finding| explained(finding, checkpoint)));
        all.findings.extend(beyond(&file));
        all.files.push(file);
    }
    Ok(all)
}

/// Returns the file around a companion that is a member of an archive.
fn outermost(source: &SourceRef) -> SourceRef {
    let mut file = source.clone();
    while let Some(outer) = file.within().map(|within| within.source.clone()) {
        file = outer;
    }
    file
}

fn one(checkpoint: &Checkpoint, held: &FileExtents<'_>, limits: &Limits) -> Result<(Account, Vec<Finding>)> {
    // For example an array that is text within a pickle: its decoded bytes are not a file of the format.
    if held.is_filled() && held.source.file().is_none() {
        return account(held, &Outline::default());
    }
    // A file without tensors may have another format: a program, an index.
    let own = if held.has_tensors() { None } else { formats::registry().detect(&held.source).ok() };
    let format = own.or_else(|| formats::registry().by_id(checkpoint.format).ok());
    let outline = match format.and_then(|format| format.checker()) {
        Some(checker) => checker.outline_within(checkpoint, &held.source, limits),
        // Made by a program, without a format: all bytes outside tensors have no known use.
        None => Ok(Outline::default()),
    };
    match outline {
        Ok(outline) => account(held, &outline),
        Err(error) => {
            let Some(finding) = Finding::from_error(&error) else { return Err(error) };
            // The error itself was reported before, if it is one; here it only prevents an account of the bytes.
            let text = weighbridge_core::phrase!["the use of the file's bytes is unknown: ", finding.text];
            let file = held.source.label();
            let finding = Finding::unchecked("bytes-unaccounted", text).in_file(file);
            let mut rest = Outline::default();
            rest.unread(0, held.source.len(), "not distinguished");
            let (account, _) = account(held, &rest)?;
            Ok((account, vec![finding]))
        }
    }
}

/// Explains unclaimed bytes at the place of the damage.
fn explained(mut finding: Finding, checkpoint: &Checkpoint) -> Finding {
    let lost = checkpoint.damage.as_deref().and_then(|damage| damage.lost.first());
    if let Some(lost) = lost
        && finding.code == FindingCode::TrailingBytes
        && lost.offset.is_some()
        && lost.offset == finding.offset
    {
        finding.text = format!("the last bytes of the file are the beginning of {}", lost.name).into();
    }
    finding
}

/// Note on storages larger than their tensors: PyTorch saves the whole storage of a view.
fn beyond(file: &Account) -> Option<Finding> {
    let spans = || file.spans.iter().filter(|span| span.what == Outline::BEYOND_TENSORS);
    let bytes: u64 = spans().map(|span| span.len).sum();
    let first = spans().next()?;
    let text = format!(
        "{bytes} bytes of storages belong to no listed tensor: the tensors are views of larger storages, or a tensor was \
         omitted"
    );
    Some(Finding::note("storage-beyond", text).in_file(&file.file).at(first.offset))
}

/// Returns the account of a file that could not be opened.
pub(super) fn unread(source: &SourceRef) -> Account {
    Account::whole(source.label(), source.len(), Use::Unknown, "not read")
}
