//! Is a file whole and consistent? What is wrong, and what every byte of it is for.
//!
//! A checkpoint is opened, which refuses damage already; then everything that the index promises
//! is held against the bytes: pieces, names, checksums, the program, on request the values. What
//! was not or could not be checked is said, and not called sound.

mod row_names;
mod values;

use super::account::{self, accounts};
use super::parallel;
use crate::check::{self, Account};
use crate::checkpoint::{Checkpoint, Damage, Note, TensorEntry};
use crate::engine::{is_encoded, read_through};
use crate::error::{Error, Kind, Result};
use crate::finding::{Finding, Severity, Verdict, verdict};
use crate::formats::{self, FolderModel, Format, OpenOptions, OtherFile};
use crate::json::{rows, tree};
#[cfg(feature = "seal")]
use crate::ops::seal::Checked;
use crate::source::{FileSource, Folder, FolderItem, FolderRef, LocalFolder, PathKind, SourceRef};
use crate::text::path_text;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::{FindingCode, NoteCode};

/// What [`verify`] shall do.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// How to open.
    pub open: OpenOptions,
    /// Read all values and look for NaN, infinities and what else is odd about them; and all names of rows, of which
    /// otherwise only some are read.
    pub values: bool,
    /// As `values`, and NaN and infinities are errors: no model that is finished has any.
    pub deny_nonfinite: bool,
    /// Threads; 0 for one a processor.
    pub threads: usize,
}

/// What [`verify`] found.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifyReport {
    /// The path, or what else people call it.
    pub label: String,
    /// The format's id, where it is known.
    pub format: Option<&'static str>,
    /// Which file of the format's family, where it could be opened.
    pub kind: Option<&'static str>,
    /// What follows from the findings.
    pub verdict: Verdict,
    /// What was found, errors first.
    pub findings: Vec<Finding>,
    /// What was checked, in order: `opening`, `names`, `extents`, `bytes`, `checksums`, `values`,
    /// `row-names`, `lod`, `program`, `format`.
    pub checked: Vec<&'static str>,
    /// What the bytes of each file are for.
    pub files: Vec<Account>,
    /// Where the file is damaged, how many tensors are intact, and which are lost, where it could be
    /// opened that far.
    pub damage: Option<(Damage, usize)>,
    /// Where a folder was opened, what stands in it and is in none of `files`: nobody looked at these.
    pub other_files: Vec<OtherFile>,
}

impl VerifyReport {
    /// `path`, `format`, `kind`, `verdict`, `checked`, `findings`, and `files`, these with their
    /// `ranges` where `spans` is true; `damage` where the file was opened as far as possible; `other_files` where a
    /// folder was opened and there are some. As a tree;
    /// [`VerifyReport::as_json`] takes no memory.
    pub fn to_json(&self, spans: bool) -> Json {
        tree(&self.as_json(spans))
    }

    /// As [`VerifyReport::to_json`], made as it is written.
    pub fn as_json(&self, spans: bool) -> impl Serialize + '_ {
        Document {
            path: &self.label,
            format: self.format,
            kind: self.kind,
            verdict: self.verdict.as_str(),
            checked: &self.checked,
            findings: rows(&self.findings, Finding::to_json),
            files: rows(&self.files, move |file| file.as_json(spans)),
            damage: self.damage.as_ref().map(|(damage, intact)| damage.to_json(*intact)),
            other_files: (!self.other_files.is_empty()).then(|| rows(&self.other_files, other)),
        }
    }

    /// As [`VerifyReport::as_json`], with `manifest`: what came of holding it against one.
    #[cfg(feature = "seal")]
    pub fn as_json_with(&self, spans: bool, manifest: Option<&Checked>) -> impl Serialize + '_ {
        Against { report: self.as_json(spans), manifest: manifest.map(Checked::to_json) }
    }

    /// How many model files stand in the folder and were not looked at.
    pub fn other_models(&self) -> usize {
        self.other_files.iter().filter(|file| file.is_model).count()
    }
}

fn other(file: &OtherFile) -> Json {
    json!({ "path": file.path, "bytes": file.bytes, "model": file.is_model })
}

#[cfg(feature = "seal")]
/// The document of a report that was held against a manifest.
#[derive(Serialize)]
struct Against<Report: Serialize> {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<Json>,
}

/// The document of a report.
#[derive(Serialize)]
struct Document<'a, Findings: Serialize, Files: Serialize, Others: Serialize> {
    path: &'a str,
    format: Option<&'a str>,
    kind: Option<&'a str>,
    verdict: &'a str,
    checked: &'a [&'a str],
    findings: Findings,
    files: Files,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_files: Option<Others>,
}

/// Checks the file or folder at `path`.
///
/// It is opened strictly, whatever the options say. Where that fails and what is wrong does not
/// keep the rest from being read, the rest is checked too: leniently, or else what can be salvaged.
///
/// # Errors
/// What keeps it from being checked at all: [`crate::Kind::Io`] and [`crate::Kind::Usage`]. What is
/// wrong with the file is a finding.
pub fn verify(path: impl AsRef<Path>, options: &VerifyOptions) -> Result<VerifyReport> {
    let path = path.as_ref();
    if PathKind::of(path)? != PathKind::Folder {
        let opened: SourceRef = Arc::new(FileSource::open(path)?);
        let open = |open: &OpenOptions| formats::open_with(path, open);
        return judged(path, Some(&opened), options, open).map(settled);
    }
    let local = Arc::new(LocalFolder::open(path)?);
    let folder: FolderRef = local.clone();
    let model = FolderModel::of(formats::registry(), &folder, &options.open)?;
    let open =
        |open: &OpenOptions| model.open(formats::registry(), &folder, open).map(|(checkpoint, _)| checkpoint);
    let (mut report, format) = match &model {
        FolderModel::Whole(_) => {
            let report = judged(path, None, options, open)?;
            // Of the files of a format's own folder that format tells.
            let format = report.format.and_then(|id| formats::registry().by_id(id).ok());
            (report, format)
        }
        // The one model file of a folder is what is judged.
        FolderModel::File(file) => (judged(&file.path(&folder), Some(&file.source), options, open)?, None),
    };
    others(&local, &mut report, format)?;
    let told = formats::other_models_text(&report.other_files);
    report.findings.extend(told.map(|text| {
        Finding::note(FindingCode::OtherModels, text)
            .hint("the verdict is not about them: verify each by its own path")
    }));
    Ok(settled(report))
}

/// Adds the files of a folder that are not in the account of what was opened in it, and what else stands there; nothing
/// where nothing was opened.
fn others(folder: &Arc<LocalFolder>, report: &mut VerifyReport, format: Option<&dyn Format>) -> Result<()> {
    if report.kind.is_none() {
        return Ok(());
    }
    let all = folder.survey(FolderItem::DEPTH)?;
    let is_asked = |name: &Path| {
        let first = name.iter().next();
        !first.is_some_and(|first| FolderItem::IGNORED_NAMES.iter().any(|ignored| first == *ignored))
    };
    let items: Vec<_> = all.items.into_iter().filter(|item| is_asked(&item.name)).collect();
    let mut used: HashSet<String> = report.files.iter().map(|file| file.file.clone()).collect();
    // A file of the model that could not be read is not in the account.
    let wrong = report.findings.iter().filter(|finding| finding.severity >= Severity::Unchecked);
    used.extend(wrong.filter_map(|finding| finding.file.clone()));
    if let Some((damage, _)) = &report.damage {
        used.extend(
            damage.file.iter().chain(damage.lost.iter().filter_map(|lost| lost.file.as_ref())).cloned(),
        );
    }
    for item in &items {
        let label = path_text(&Path::new(folder.label()).join(&item.name));
        if !used.contains(&label)
            && let Err(error) = folder.open(&item.name)
            && error.kind() == Kind::Io
        {
            let text = format!("this file cannot be read: {}", error.message());
            report.findings.push(Finding::unchecked("unreadable-file", text).in_file(label));
        }
    }
    report.other_files =
        formats::registry().other_files(&(folder.clone() as FolderRef), &items, &used, format);
    let skipped = all.skipped.iter().map(|item| (&item.name, item.reason.as_str()));
    let skipped = skipped.filter(|(name, _)| is_asked(name));
    report.findings.extend(skipped.map(|(name, what)| {
        let text = format!("this is {what}: nobody looked at it");
        Finding::note("not-looked-at", text).in_file(path_text(&Path::new(folder.label()).join(name)))
    }));
    let unlisted = all.unreadable.iter().filter(|(name, _)| is_asked(name));
    report.findings.extend(unlisted.map(|(name, error)| {
        let text = format!("this folder cannot be listed: {}", error.message());
        let label = path_text(&Path::new(folder.label()).join(name));
        Finding::unchecked("unreadable-file", text).in_file(label)
    }));
    Ok(())
}

/// The report on what `open` opens, which stands at `path`; `opened` is the file that it is, where it is one.
fn judged(
    path: &Path,
    opened: Option<&SourceRef>,
    options: &VerifyOptions,
    open: impl Fn(&OpenOptions) -> Result<Checkpoint>,
) -> Result<VerifyReport> {
    let open = |lenient: bool, salvage: bool| open(&OpenOptions { lenient, salvage, ..options.open.clone() });
    let report = match open(false, false) {
        Ok(checkpoint) => checked(&checkpoint, opened, options)?,
        Err(error) => {
            let mut finding = finding(error)?;
            let code = finding.code;
            let mut report = match open(true, false).or_else(|_| open(false, true)) {
                Ok(mut rest) => {
                    // The notes say the same as the error, more mildly.
                    rest.notes.retain(|note| note.code != code.as_str() && note.code != NoteCode::Damaged);
                    checked(&rest, opened, options)?
                }
                Err(_) => unopened(path, opened, options)?,
            };
            // Once is enough; the reader knows what should be there, the account what it looks like.
            if let Some(place) =
                report.findings.iter().position(|f| f.code == FindingCode::TrailingBytes && f.code == code)
            {
                let other = report.findings.remove(place);
                finding.text = finding.text.and("; ").and(other.text);
            }
            report.findings.insert(0, finding);
            report
        }
    };
    Ok(report)
}

/// The report on what could not be opened, without the reason.
fn unopened(path: &Path, opened: Option<&SourceRef>, options: &VerifyOptions) -> Result<VerifyReport> {
    let format = match &options.open.format {
        Some(id) => Some(formats::registry().by_id(id)?),
        None => opened.and_then(|source| formats::registry().detect(source).ok()),
    };
    Ok(VerifyReport {
        label: path_text(path),
        format: format.map(|f| f.info().id),
        kind: None,
        verdict: Verdict::CouldNotTell,
        findings: Vec::new(),
        checked: vec!["opening"],
        files: opened.map(account::unread).into_iter().collect(),
        damage: None,
        other_files: Vec::new(),
    })
}

/// Checks what was opened.
///
/// # Errors
/// [`crate::Kind::Io`] where bytes cannot be read.
pub fn verify_checkpoint(checkpoint: &Checkpoint, options: &VerifyOptions) -> Result<VerifyReport> {
    checked(checkpoint, None, options)
}

/// Checks what was opened; `opened` is the file itself, where it is one.
fn checked(
    checkpoint: &Checkpoint,
    opened: Option<&SourceRef>,
    options: &VerifyOptions,
) -> Result<VerifyReport> {
    let tensors = &checkpoint.tensors;
    let mut checked = vec!["opening", "names", "pieces", "bytes"];
    let mut findings: Vec<Finding> = checkpoint.notes.iter().map(of_note).collect();
    findings.extend(check::names(tensors));
    let mut broken = check::extents(tensors);
    // Names of rows that are kept as tensors have pieces and checksums, too.
    let kept = tensors.iter().filter_map(|t| t.row_names.as_ref()).flat_map(|labels| labels.tensors());
    let kept: Vec<TensorEntry> = kept.cloned().collect();
    broken.extend(check::extents(&kept));
    findings.extend(check::shared_bytes(tensors, formats::shares_storage(checkpoint.format)));
    // Tensors whose pieces do not fit them have no values to read.
    let unreadable: HashSet<String> = broken.iter().filter_map(|f| f.tensor.clone()).collect();
    findings.extend(broken);
    let readable: Vec<&TensorEntry> = tensors.iter().filter(|t| !unreadable.contains(&t.name())).collect();
    let summed = |t: &&TensorEntry| t.extents.iter().any(|p| p.check.is_some() || is_encoded(&p.source));
    let with_names: Vec<&TensorEntry> =
        readable.iter().copied().chain(kept.iter().filter(|t| !unreadable.contains(&t.name()))).collect();
    if with_names.iter().any(summed) {
        checked.push("checksums");
        findings.extend(checksums(&with_names, options.threads)?);
    }
    let values = options.values || options.deny_nonfinite;
    if values && !tensors.is_empty() {
        checked.push("values");
        let mut odd = values::values(&readable, options.threads)?;
        let denied = |f: &&mut Finding| options.deny_nonfinite && values::NONFINITE.contains(&f.code);
        odd.iter_mut().filter(denied).for_each(|finding| finding.severity = Severity::Error);
        findings.extend(odd);
    }
    if let Some(odd) = row_names::row_names(&readable, values, |t| summed(&t), options.threads)? {
        checked.push("row-names");
        findings.extend(odd);
    }
    if tensors.iter().any(|t| t.attributes.contains_key("lod")) {
        checked.push("lod");
        findings.extend(check::lod(tensors));
    }
    if let Some(topology) = &checkpoint.topology {
        checked.push("program");
        findings.extend(check::program(topology, tensors));
    }
    if let Ok(format) = formats::registry().by_id(checkpoint.format) {
        checked.push("format");
        let own = format.checker().map_or(Ok(Vec::new()), |checker| checker.check(checkpoint))?;
        // Where the format holds a remark of the reader for an error, once is enough.
        findings.retain(|f| f.severity != Severity::Note || own.iter().all(|o| o.code != f.code));
        findings.extend(own);
    }
    let account::Accounts { files, findings: odd } = accounts(checkpoint, opened, &options.open.limits)?;
    // What the reader told of the end of a file is told better with its place and looks.
    findings.retain(|f| {
        f.code != FindingCode::TrailingBytes || odd.iter().all(|o| o.code != FindingCode::TrailingBytes)
    });
    findings.extend(odd);
    Ok(settled(VerifyReport {
        label: checkpoint.label.clone(),
        format: Some(checkpoint.shown_format()),
        kind: Some(checkpoint.kind),
        verdict: Verdict::CouldNotTell,
        findings,
        checked,
        files,
        damage: checkpoint.damage.as_ref().map(|damage| (Damage::clone(damage), tensors.len())),
        other_files: Vec::new(),
    }))
}

/// The report with its findings in order, not too many alike, and the verdict that follows.
pub(super) fn settled(mut report: VerifyReport) -> VerifyReport {
    report.verdict = verdict(&report.findings);
    report.findings = Finding::capped(report.findings);
    report.findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    report
}

/// The finding that an error is; an error that is not about the file stays one.
fn finding(error: Error) -> Result<Finding> {
    Finding::from_error(&error).ok_or(error)
}

/// A part that was left out was not checked.
fn of_note(note: &Note) -> Finding {
    let severity = match note.code {
        NoteCode::Damaged => Severity::Error,
        NoteCode::RunsCode => Severity::Unchecked,
        _ if note.is_unread() => Severity::Unchecked,
        _ => Severity::Note,
    };
    Finding::new(severity, note.code, note.text.clone())
}

/// Holds all bytes that have a checksum against it.
fn checksums(tensors: &[&TensorEntry], threads: usize) -> Result<Vec<Finding>> {
    let jobs = tensors.len() as u64;
    let look = |found: &mut Vec<(usize, Finding)>, number: usize, tensor: &&TensorEntry| {
        let sources = tensor.extents.iter().map(|p| &p.source).filter(|source| is_encoded(source));
        let whole = tensor.verify_tensor().and_then(|()| sources.into_iter().try_for_each(read_through));
        if let Err(error) = whole {
            found.push((number, finding(error.on_tensor(tensor.name()))?));
        }
        Ok(())
    };
    let workers = parallel::workers(threads, jobs);
    let mut found: Vec<(usize, Finding)> =
        parallel::each(tensors.iter(), workers, look)?.into_iter().flatten().collect();
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, finding)| finding).collect())
}

#[cfg(test)]
mod tests;
