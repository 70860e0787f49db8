//! What every byte of the files behind a checkpoint is for.

use crate::check::{Account, FileExtents, Outline, Use, account, held};
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::finding::Finding;
use crate::formats;
use crate::limits::Limits;
use crate::source::SourceRef;

/// The accounts of all files behind a checkpoint, and what is odd about their bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accounts {
    /// One for each file: first those that hold tensors, in the order of these.
    pub files: Vec<Account>,
    /// Bytes of no known use, with what they look like: `hidden-bytes`, `trailing-bytes`; rules that the
    /// outline of a format found broken; files that could not be looked through.
    pub findings: Vec<Finding>,
}

/// Accounts for the bytes of all files behind `checkpoint`, and for `opened`, the file that the caller
/// opened, where there is one. Reads headers, and stretches that nothing claims; no elements.
///
/// # Errors
/// [`crate::Kind::Io`] where a file cannot be read.
pub fn accounts(checkpoint: &Checkpoint, opened: Option<&SourceRef>, limits: &Limits) -> Result<Accounts> {
    let mut others: Vec<SourceRef> = opened.cloned().into_iter().collect();
    others.extend(checkpoint.files.iter().cloned());
    others.extend(checkpoint.companions.iter().map(|(_, source)| source.clone()));
    for tensor in &checkpoint.tensors {
        others.extend(tensor.row_names.iter().flat_map(|labels| labels.sources()));
    }
    let mut all = Accounts::default();
    for held in held(&checkpoint.tensors, &others) {
        let (file, findings) = one(checkpoint, &held, limits)?;
        all.findings.extend(findings);
        all.findings.extend(beyond(&file));
        all.files.push(file);
    }
    Ok(all)
}

fn one(checkpoint: &Checkpoint, held: &FileExtents<'_>, limits: &Limits) -> Result<(Account, Vec<Finding>)> {
    // Such as an array that is kept as text within a pickle: decoded, it is no file of the format.
    if held.is_filled() && held.source.file().is_none() {
        return account(held, &Outline::default());
    }
    // What only stands beside the tensors may be of another format: a program, a list.
    let own = if held.has_tensors() { None } else { formats::registry().detect(&held.source).ok() };
    let format = own.or_else(|| formats::registry().by_id(checkpoint.format).ok());
    let outline = match format.and_then(|format| format.checker()) {
        Some(checker) => checker.outline(&held.source, limits),
        // Made by a program, of no format: all that is no tensor is of no known use.
        None => Ok(Outline::default()),
    };
    match outline {
        Ok(outline) => account(held, &outline),
        Err(error) => {
            let Some(finding) = Finding::from_error(&error) else { return Err(error) };
            // That it is wrong was said, if it is; here it only keeps the bytes from being told apart.
            let text = weighbridge_core::phrase!["what its bytes are for cannot be told: ", finding.text];
            let file = held.source.label();
            let finding = Finding::unchecked("bytes-unaccounted", text).in_file(file);
            let mut rest = Outline::default();
            rest.unread(0, held.source.len(), "not told apart");
            let (account, _) = account(held, &rest)?;
            Ok((account, vec![finding]))
        }
    }
}

/// A remark on storages that hold more than the tensors have: PyTorch saves the whole storage of a view.
fn beyond(file: &Account) -> Option<Finding> {
    let spans = || file.spans.iter().filter(|span| span.what == Outline::BEYOND_TENSORS);
    let bytes: u64 = spans().map(|span| span.len).sum();
    let first = spans().next()?;
    let text = format!(
        "{bytes} bytes of storages are in no tensor that is listed: what was saved are views of larger ones, or a \
         tensor was left out"
    );
    Some(Finding::note("storage-beyond", text).in_file(&file.file).at(first.offset))
}

/// The account of a file that could not be opened as anything.
pub(super) fn unread(source: &SourceRef) -> Account {
    Account::whole(source.label(), source.len(), Use::Unknown, "not read")
}
