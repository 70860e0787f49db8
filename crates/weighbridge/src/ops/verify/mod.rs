//! Integrity check: structure, checksums, values, and the use of every byte.
//!
//! Opening a checkpoint already rejects damage. Then everything in the index is checked against the bytes: extents, names,
//! checksums, the program, and on request the values. Parts that could not be checked are reported; a file with unchecked parts
//! is not called sound.

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
use crate::phrase;
use crate::phrase::{Opt, Term};
use crate::source::{FileSource, Folder, FolderItem, FolderRef, LocalFolder, PathKind, SourceRef};
use crate::text::path_text;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::{FindingCode, NoteCode};

/// Options of [`verify`].
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// How to open.
    pub open: OpenOptions,
    /// Read all values and report NaN, infinities and other oddities; also read all row names, not only short lists.
    pub values: bool,
    /// As `values`, with NaN and infinities as errors: a finished model has none.
    pub deny_nonfinite: bool,
    /// Number of threads; 0 for one per processor.
    pub threads: usize,
}

/// Result of [`verify`].
#[derive(Debug, Clone, PartialEq)]
pub struct VerifyReport {
    /// The path, or another display name.
    pub label: String,
    /// The format's id, where it is known.
    pub format: Option<&'static str>,
    /// The file kind within the format, where it could be opened.
    pub kind: Option<&'static str>,
    /// The verdict of the findings.
    pub verdict: Verdict,
    /// The findings, errors first.
    pub findings: Vec<Finding>,
    /// The performed checks, in order: `opening`, `names`, `extents`, `bytes`, `checksums`, `values`, `row-names`, `lod`,
    /// `program`, `format`.
    pub checked: Vec<&'static str>,
    /// The use of the bytes of each file.
    pub files: Vec<Account>,
    /// For a damaged file: the damage, with its lost tensors, and the number of intact tensors.
    pub damage: Option<(Damage, usize)>,
    /// For a folder: other files in it that are in none of `files` and were not checked.
    pub other_files: Vec<OtherFile>,
}

impl VerifyReport {
    /// Returns `path`, `format`, `kind`, `verdict`, `checked`, `findings`, and `files`, with their `ranges` if `spans` is true;
    /// `damage` for a damaged file; `other_files` for a folder with other files. As a tree; [`VerifyReport::as_json`] streams it.
    pub fn to_json(&self, spans: bool) -> Json {
        tree(&self.as_json(spans))
    }

    /// As [`VerifyReport::to_json`], serialized without an intermediate tree.
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

    /// As [`VerifyReport::as_json`], with `manifest`: the result of the comparison with a manifest.
    #[cfg(feature = "seal")]
    pub fn as_json_with(&self, spans: bool, manifest: Option<&Checked>) -> impl Serialize + '_ {
        Against { report: self.as_json(spans), manifest: manifest.map(Checked::to_json) }
    }

    /// Returns the number of unchecked model files in the folder.
    pub fn other_models(&self) -> usize {
        self.other_files.iter().filter(|file| file.is_model).count()
    }
}

fn other(file: &OtherFile) -> Json {
    json!({ "path": file.path, "bytes": file.bytes, "model": file.is_model })
}

#[cfg(feature = "seal")]
/// Document of a report with the result for a manifest.
#[derive(Serialize)]
struct Against<Report: Serialize> {
    #[serde(flatten)]
    report: Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<Json>,
}

/// Document of a report.
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
/// It is opened strictly, whatever the options. Where that fails, the rest is checked as far as possible: leniently, or else
/// salvaged.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::finding::Verdict;
/// use weighbridge::ops::verify::{VerifyOptions, verify};
///
/// let options = VerifyOptions { values: true, ..VerifyOptions::default() };
/// let report = verify(&path, &options)?;
/// for finding in &report.findings {
///     println!("{}: {}", finding.code, finding.text);
/// }
/// assert_eq!(report.verdict, Verdict::Sound);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Kind::Io`] and [`crate::Kind::Usage`], where nothing can be checked. Faults of the file are findings.
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
            // For a folder of one format, the format lists its files.
            let format = report.format.and_then(|id| formats::registry().by_id(id).ok());
            (report, format)
        }
        // Where a folder has a single model file, that file is checked.
        FolderModel::File(file) => (judged(&file.path(&folder), Some(&file.source), options, open)?, None),
    };
    others(&local, &mut report, format)?;
    let text = formats::other_models_text(&report.other_files);
    report.findings.extend(text.map(|text| {
        Finding::note(FindingCode::OtherModels, text).hint("verify each of these files by its own path")
    }));
    Ok(settled(report))
}

/// Adds the files of a folder that are not accounted for, and its other entries; nothing where nothing was opened.
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
    // A model file that could not be read is not in the account.
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
            let text = format!("the file cannot be read: {}", error.message());
            report.findings.push(Finding::unchecked("unreadable-file", text).in_file(label));
        }
    }
    report.other_files =
        formats::registry().other_files(&(folder.clone() as FolderRef), &items, &used, format);
    let skipped = all.skipped.iter().map(|item| (&item.name, item.reason.as_str()));
    let skipped = skipped.filter(|(name, _)| is_asked(name));
    report.findings.extend(skipped.map(|(name, what)| {
        let text = format!("this is {what} and was not checked");
        Finding::note("not-looked-at", text).in_file(path_text(&Path::new(folder.label()).join(name)))
    }));
    let unlisted = all.unreadable.iter().filter(|(name, _)| is_asked(name));
    report.findings.extend(unlisted.map(|(name, error)| {
        let text = format!("the folder cannot be listed: {}", error.message());
        let label = path_text(&Path::new(folder.label()).join(name));
        Finding::unchecked("unreadable-file", text).in_file(label)
    }));
    Ok(())
}

/// Returns the report on the checkpoint that `open` opens at `path`; `opened` is its file, if it is a file.
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
            let message = error.message().to_owned();
            let mut finding = finding(error)?;
            let code = finding.code;
            let mut report = match open(true, false).or_else(|_| open(false, true)) {
                Ok(mut rest) => {
                    // The notes repeat the error as a warning.
                    rest.notes.retain(|note| note.code != code.as_str() && note.code != NoteCode::Damaged);
                    checked(&rest, opened, options)?
                }
                Err(_) => unopened(path, opened, options)?,
            };
            // Report trailing bytes once: the reader names the part before them, the account their count and probable content.
            if let Some(place) =
                report.findings.iter().position(|f| f.code == FindingCode::TrailingBytes && f.code == code)
            {
                let other = report.findings.remove(place);
                finding.text = match message.strip_prefix("bytes follow ") {
                    Some(part) => other
                        .text
                        .replacen(check::Account::AFTER_LAST_PART, &format!("after {part}"), 1)
                        .into(),
                    None => finding.text.and("; ").and(other.text),
                };
            }
            let is_lenient =
                |term: &Term| matches!(term, Term::Choice(choice) if choice.option == Opt::Lenient);
            if options.open.lenient && finding.hint.as_ref().is_some_and(|hint| hint.terms().any(is_lenient))
            {
                finding.hint = Some(phrase!["verify reports this fault even with ", Opt::Lenient]);
            }
            report.findings.insert(0, finding);
            report
        }
    };
    Ok(report)
}

/// Returns the report on a file that could not be opened, without the reason.
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

/// Checks an opened checkpoint.
///
/// # Errors
/// [`crate::Kind::Io`] where bytes cannot be read.
pub fn verify_checkpoint(checkpoint: &Checkpoint, options: &VerifyOptions) -> Result<VerifyReport> {
    checked(checkpoint, None, options)
}

/// Checks an opened checkpoint; `opened` is its file, if it is a file.
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
    // Row names that are stored as tensors have extents and checksums, too.
    let kept = tensors.iter().filter_map(|t| t.row_names.as_ref()).flat_map(|labels| labels.tensors());
    let kept: Vec<TensorEntry> = kept.cloned().collect();
    broken.extend(check::extents(&kept));
    findings.extend(check::shared_bytes(tensors, formats::shares_storage(checkpoint.format)));
    // Tensors with faulty extents have no values to read.
    let unreadable: HashSet<String> = broken.iter().filter_map(|f| f.tensor.clone()).collect();
    findings.extend(broken);
    let readable: Vec<&TensorEntry> = tensors.iter().filter(|t| !unreadable.contains(&t.name())).collect();
    let summed = |t: &&TensorEntry| t.extents.iter().any(|p| p.check.is_some() || is_encoded(&p.source));
    let with_names: Vec<&TensorEntry> =
        readable.iter().copied().chain(kept.iter().filter(|t| !unreadable.contains(&t.name()))).collect();
    if with_names.iter().any(summed) {
        // Text is decoded as well, but has no checksums.
        let format = formats::registry().by_id(checkpoint.format).ok();
        let is_text =
            format.and_then(|format| format.salvager()).is_some_and(|salvager| salvager.is_unproved());
        let has_check = |t: &&TensorEntry| t.extents.iter().any(|p| p.check.is_some());
        if !is_text || with_names.iter().any(has_check) {
            checked.push("checksums");
        }
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
        // Report once what the reader notes and the format considers an error.
        findings.retain(|f| f.severity != Severity::Note || own.iter().all(|o| o.code != f.code));
        findings.extend(own);
    }
    let account::Accounts { files, findings: odd } = accounts(checkpoint, opened, &options.open.limits)?;
    // The account reports trailing bytes with offset and probable content, the reader without.
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

/// Returns the report with sorted findings, few of the same kind, and the verdict.
pub(super) fn settled(mut report: VerifyReport) -> VerifyReport {
    report.verdict = verdict(&report.findings);
    report.findings = Finding::capped(report.findings);
    report.findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    report
}

/// Returns the finding for an error about the file; other errors stay errors.
fn finding(error: Error) -> Result<Finding> {
    Finding::from_error(&error).ok_or(error)
}

/// Returns the finding for a note: an omitted part was not checked.
fn of_note(note: &Note) -> Finding {
    let severity = match note.code {
        NoteCode::Damaged => Severity::Error,
        NoteCode::RunsCode => Severity::Unchecked,
        _ if note.is_unread() => Severity::Unchecked,
        _ => Severity::Note,
    };
    let finding = Finding::new(severity, note.code, note.text.clone());
    match note.code {
        NoteCode::UnknownClass => {
            finding.hint("the tensors in the object are checked; what else it holds is not read")
        }
        _ => finding,
    }
}

/// Verifies all bytes that have a checksum.
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
    // The tensors in one range share its checksum: it is reported with the first one.
    let (mut findings, mut shared) = (Vec::<Finding>::new(), HashMap::new());
    for (_, finding) in found {
        if finding.code.as_str() == "crc-mismatch" {
            let key = (finding.file.clone(), finding.offset, finding.text.to_string());
            let (_, tensors) = shared.entry(key).or_insert((findings.len(), 0));
            *tensors += 1;
            if *tensors > 1 {
                continue;
            }
        }
        findings.push(finding);
    }
    for (place, tensors) in shared.into_values().filter(|(_, tensors)| *tensors > 1) {
        if let Some(finding) = findings.get_mut(place) {
            finding.text = format!("{}; {tensors} tensors have these bytes", finding.text).into();
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests;
