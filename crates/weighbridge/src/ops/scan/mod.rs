//! What could happen if the original framework opened this: code that would run, source code that
//! would be given away, files that are not what they seem. A part that was not looked at is never called
//! clean.
//!
//! Each format looks for what is its own; what is inside, members and bytes, is looked through as a file of
//! its own, to a bounded depth. The codes are [`crate::scan::Rule::ALL`], and no others.

mod deep;
mod outside;
mod sarif;
#[cfg(test)]
mod tests;

use crate::error::{Error, Kind, Result};
use crate::finding::{Finding, Severity, Verdict, verdict};
use crate::formats::{self, Format, OpenOptions};
use crate::json::{rows, tree};
use crate::pickle::{Call, GlobalFinding};
use crate::scan::{AssumedType, found};
#[doc(no_inline)]
pub use crate::scan::{Category, Rule, Scan, Topic};
use crate::source::{FileSource, Folder, FolderItem, LocalFolder, PathKind, SkipReason, SourceRef};
use crate::text::path_text;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::FindingCode;

/// How deep a folder is looked through.
const DEPTH: usize = 16;

/// What [`scan`] found.
#[derive(Debug, Clone)]
pub struct ScanReport {
    /// The path.
    pub label: String,
    /// What follows from the findings in all files.
    pub verdict: Verdict,
    /// The files, in the order of their names.
    pub files: Vec<ScannedFile>,
}

/// A file that was looked through, or could not be.
#[derive(Debug, Clone)]
pub struct ScannedFile {
    /// The path, for people.
    pub label: String,
    /// The path as the system has it, which need not be UTF-8; `None` for a source without one.
    pub path: Option<PathBuf>,
    /// The format's id, where it is known; `zip`, `tar`, `json`, `template`, `text`, `pickle` and
    /// `empty` for what is no model.
    pub format: Option<&'static str>,
    /// What was found in it. Nothing is left in [`Scan::inner`].
    pub scan: Scan,
}

/// The word for a verdict of a scan: `clean`, `found` or `could-not-tell`.
pub fn scan_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sound => "clean",
        Verdict::Unsound => "found",
        Verdict::CouldNotTell => "could-not-tell",
    }
}

/// Looks through a file, or through every file of a folder.
///
/// # Errors
/// [`crate::Kind::Io`] and [`crate::Kind::Usage`] where the path cannot be read at all.
pub fn scan(path: impl AsRef<Path>, options: &OpenOptions) -> Result<ScanReport> {
    let path = path.as_ref();
    // What is left of a damaged file says nothing about the rest.
    let options = &OpenOptions { salvage: false, ..options.clone() };
    let mut files = Vec::new();
    if PathKind::of(path)? == PathKind::Folder {
        let folder = LocalFolder::open(path)?;
        let mut looked = Vec::new();
        let found_there = folder.survey(DEPTH)?;
        for item in found_there.items {
            // One file that cannot be read hides nothing of the others.
            let file = match in_folder(&folder, path, &item, options) {
                Err(error) if error.kind() == Kind::Io => unread(&path.join(&item.name), cannot_read(&error)),
                scanned => scanned?,
            };
            looked.push((item.name, file));
        }
        for item in found_there.skipped {
            let file = unread(&path.join(&item.name), skipped(item.reason));
            looked.push((item.name, file));
        }
        for (name, error) in found_there.unreadable {
            let file = unread(&path.join(&name), cannot_read(&error));
            looked.push((name, file));
        }
        looked
            .sort_by(|(a, _), (b, _)| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
        files.extend(looked.into_iter().map(|(_, file)| file));
    } else {
        let source: SourceRef = Arc::new(FileSource::open(path)?);
        files.push(scan_named(&source, Some(path), options)?);
    }
    let label = path_text(path);
    if files.is_empty() {
        files.push(unread(path, found("no-files", "there is no file to look through")));
    }
    let verdict =
        files.iter().map(|file| verdict(&file.scan.findings)).max().unwrap_or(Verdict::CouldNotTell);
    Ok(ScanReport { label, verdict, files })
}

/// Looks through one file of a folder.
fn in_folder(
    folder: &LocalFolder,
    path: &Path,
    item: &FolderItem,
    options: &OpenOptions,
) -> Result<ScannedFile> {
    let whole = path.join(&item.name);
    let Some(source) = folder.open(&item.name)? else {
        return Ok(unread(&whole, found("unreadable", "file-vanished: the file was there a moment ago")));
    };
    let mut file = scan_named(&source, Some(&item.name), options)?;
    let unknown =
        |file: &ScannedFile| file.format.is_none_or(|format| matches!(format, "json" | "text" | "empty"));
    // The texts of some formats are known by their names only.
    let of = |format: &&dyn Format| match format.scanner() {
        Some(scanner) => scanner.is_text(&item.name, &source, &options.limits),
        None => Ok(false),
    };
    let mut owner = None;
    for format in formats::ALL.iter().filter(|_| unknown(&file)) {
        if of(format)? {
            owner = Some(format.info().id);
        }
    }
    if owner.is_some() {
        file.format = owner;
        file.scan.findings.retain(|finding| finding.code != FindingCode::UnknownContent);
    }
    if folder.leads_out(&item.name) {
        let finding = found("link-leads-out", "the file is a link that leads out of the folder");
        file.scan.findings.push(finding.in_file(&file.label));
    }
    file.path = Some(whole);
    Ok(file)
}

/// Looks through one source, and all that is inside.
///
/// # Errors
/// [`crate::Kind::Io`] where it cannot be read.
pub fn scan_source(source: &SourceRef, options: &OpenOptions) -> Result<ScannedFile> {
    scan_named(source, None, options)
}

/// As [`scan_source`]; `name` is that of the file: its extension is held against the content.
///
/// # Errors
/// As [`scan_source`].
pub(crate) fn scan_named(
    source: &SourceRef,
    name: Option<&Path>,
    options: &OpenOptions,
) -> Result<ScannedFile> {
    let label = source.label().to_owned();
    let (format, mut scan) = deep::look(source, name, AssumedType::File, options)?;
    for finding in scan.findings.iter_mut().filter(|finding| finding.file.is_none()) {
        finding.file = Some(label.clone());
    }
    // The same may be met by two ways.
    let mut seen = std::collections::HashSet::new();
    scan.findings
        .retain(|f| seen.insert((f.code, f.text.clone(), f.member.clone(), f.offset, f.tensor.clone())));
    // What weighs most stands first, else as it was met.
    scan.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(ScannedFile { label, path: name.map(Path::to_owned), format, scan })
}

/// A file or folder that the system does not let us read.
fn cannot_read(error: &Error) -> Finding {
    found("unreadable", format!("{}: {}", error.code(), error.message()))
}

/// What stands in a folder and is not looked at.
fn skipped(reason: SkipReason) -> Finding {
    let code = match reason {
        SkipReason::TooDeep => "too-deep",
        SkipReason::LinkToFolder => "link-to-folder",
        SkipReason::DeadLink => "dead-link",
        SkipReason::NotAFile => "not-a-file",
    };
    let finding = found(code, format!("{} was not looked at", reason.as_str()));
    match reason {
        SkipReason::TooDeep => finding.hint(format_args!("folders are looked through {DEPTH} levels deep")),
        SkipReason::LinkToFolder => finding.hint("scan the folder that it leads to"),
        SkipReason::DeadLink | SkipReason::NotAFile => finding,
    }
}

/// Reports on several paths as one log of SARIF 2.1.0 with one run. `failed` are the paths that could not be scanned, and
/// why: notifications of a run that was not successful.
pub fn sarif_of_all(reports: &[ScanReport], failed: &[(PathBuf, Error)]) -> Json {
    sarif::log(reports, failed)
}

fn unread(path: &Path, finding: Finding) -> ScannedFile {
    let label = path_text(path);
    let finding = finding.in_file(&label);
    ScannedFile { label, path: Some(path.to_owned()), format: None, scan: Scan::of_findings(vec![finding]) }
}

impl ScanReport {
    /// `path`, `verdict` (`clean`, `found`, `could-not-tell`), and `files`: `path`, `format`,
    /// `verdict`, `findings`, `imports`, `calls`. As a tree; [`ScanReport::as_json`] takes no memory.
    pub fn to_json(&self) -> Json {
        tree(&self.as_json())
    }

    /// As [`ScanReport::to_json`], made as it is written.
    pub fn as_json(&self) -> impl Serialize + '_ {
        Document {
            path: &self.label,
            verdict: scan_word(self.verdict),
            files: rows(&self.files, ScannedFile::as_json),
        }
    }

    /// Makes warnings of these categories errors, so that the file is `found`.
    pub fn deny(&mut self, categories: &[Category]) {
        for finding in self.files.iter_mut().flat_map(|file| &mut file.scan.findings) {
            if finding.severity > Severity::Note && categories.contains(&Category::of(finding.code.as_str()))
            {
                finding.severity = Severity::Error;
            }
        }
        for file in &mut self.files {
            file.scan.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        }
        let verdicts = self.files.iter().map(ScannedFile::verdict);
        self.verdict = verdicts.max().unwrap_or(Verdict::CouldNotTell);
    }

    /// The report in SARIF 2.1.0: rules, results with their places in bytes, the files and the members in
    /// them as artifacts.
    pub fn to_sarif(&self) -> Json {
        sarif::log(std::slice::from_ref(self), &[])
    }

    /// How many findings of that severity there are.
    pub fn count(&self, severity: Severity) -> usize {
        self.files.iter().flat_map(|f| &f.scan.findings).filter(|f| f.severity == severity).count()
    }
}

impl ScannedFile {
    /// What follows from the findings in this file.
    pub fn verdict(&self) -> Verdict {
        verdict(&self.scan.findings)
    }

    fn as_json(&self) -> impl Serialize + '_ {
        FileDocument {
            path: &self.label,
            format: self.format,
            verdict: scan_word(self.verdict()),
            findings: rows(&self.scan.findings, finding),
            imports: rows(&self.scan.imports, import),
            calls: rows(&self.scan.calls, call),
        }
    }
}

/// The document of a report.
#[derive(Serialize)]
struct Document<'a, Files: Serialize> {
    path: &'a str,
    verdict: &'a str,
    files: Files,
}

/// What the document has of a file.
#[derive(Serialize)]
struct FileDocument<'a, Findings: Serialize, Imports: Serialize, Calls: Serialize> {
    path: &'a str,
    format: Option<&'a str>,
    verdict: &'a str,
    findings: Findings,
    imports: Imports,
    calls: Calls,
}

fn finding(finding: &Finding) -> Json {
    let mut json = finding.to_json();
    json["member"] = finding.member.clone().into();
    json["category"] = Category::of(finding.code.as_str()).as_str().into();
    json
}

fn import(found: &GlobalFinding) -> Json {
    json!({
        "module": found.module,
        "name": found.name,
        "member": found.member,
        "offset": found.offset,
        "opcode": found.opcode,
        "judgement": found.judgement.as_str(),
        "text": found.judgement.text(),
    })
}

fn call(call: &Call) -> Json {
    json!({ "how": call.how, "callable": call.callable, "count": call.count, "offset": call.offset })
}
