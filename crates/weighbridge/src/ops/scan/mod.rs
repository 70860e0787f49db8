//! Scan for risks of loading a file in its original framework: code that would run, source code that would leak, files of
//! another type than expected. A file with unscanned parts is never called clean.
//!
//! Each format scans its own content; members and embedded bytes are scanned as files of their own, to a bounded depth. The
//! codes are [`crate::scan::Rule::ALL`], and no others.

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

/// Maximum depth of scanned folders.
const DEPTH: usize = 16;

/// Result of [`scan`].
#[derive(Debug, Clone)]
pub struct ScanReport {
    /// The path.
    pub label: String,
    /// The verdict of the findings in all files.
    pub verdict: Verdict,
    /// The files, in the order of their names.
    pub files: Vec<ScannedFile>,
}

/// File that was scanned, or could not be.
#[derive(Debug, Clone)]
pub struct ScannedFile {
    /// The displayed path.
    pub label: String,
    /// The path of the system, which may not be UTF-8; `None` for a source without one.
    pub path: Option<PathBuf>,
    /// The format's id, where it is known; `zip`, `tar`, `json`, `template`, `text`, `pickle` and `empty` for files that are not
    /// models.
    pub format: Option<&'static str>,
    /// The findings in it. [`Scan::inner`] is empty.
    pub scan: Scan,
}

/// Returns the word for a verdict of a scan: `clean`, `found` or `could-not-tell`.
pub fn scan_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sound => "clean",
        Verdict::Unsound => "found",
        Verdict::CouldNotTell => "could-not-tell",
    }
}

/// Scans a file, or every file of a folder, without loading it.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::OpenOptions;
/// use weighbridge::finding::Verdict;
/// use weighbridge::ops::scan::scan;
///
/// let report = scan(&path, &OpenOptions::default())?;
/// for finding in report.files.iter().flat_map(|file| &file.scan.findings) {
///     println!("{}: {}", finding.code, finding.text);
/// }
/// assert_eq!(report.verdict, Verdict::Sound);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Kind::Io`] and [`crate::Kind::Usage`] where the path cannot be read at all.
pub fn scan(path: impl AsRef<Path>, options: &OpenOptions) -> Result<ScanReport> {
    let path = path.as_ref();
    // The salvaged part of a damaged file allows no conclusion about the rest.
    let options = &OpenOptions { salvage: false, ..options.clone() };
    let mut files = Vec::new();
    if PathKind::of(path)? == PathKind::Folder {
        let folder = LocalFolder::open(path)?;
        let mut scanned = Vec::new();
        let found_there = folder.survey(DEPTH)?;
        for item in found_there.items {
            // One unreadable file must not hide the others.
            let file = match in_folder(&folder, path, &item, options) {
                Err(error) if error.kind() == Kind::Io => unread(&path.join(&item.name), cannot_read(&error)),
                other => other?,
            };
            scanned.push((item.name, file));
        }
        for item in found_there.skipped {
            let file = unread(&path.join(&item.name), skipped(item.reason));
            scanned.push((item.name, file));
        }
        for (name, error) in found_there.unreadable {
            let file = unread(&path.join(&name), cannot_read(&error));
            scanned.push((name, file));
        }
        scanned
            .sort_by(|(a, _), (b, _)| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
        files.extend(scanned.into_iter().map(|(_, file)| file));
    } else {
        let source: SourceRef = Arc::new(FileSource::open(path)?);
        files.push(scan_named(&source, Some(path), options)?);
    }
    let label = path_text(path);
    if files.is_empty() {
        files.push(unread(path, found("no-files", "there are no files to scan")));
    }
    let verdict =
        files.iter().map(|file| verdict(&file.scan.findings)).max().unwrap_or(Verdict::CouldNotTell);
    Ok(ScanReport { label, verdict, files })
}

/// Scans one file of a folder.
fn in_folder(
    folder: &LocalFolder,
    path: &Path,
    item: &FolderItem,
    options: &OpenOptions,
) -> Result<ScannedFile> {
    let whole = path.join(&item.name);
    let Some(source) = folder.open(&item.name)? else {
        return Ok(unread(
            &whole,
            found("unreadable", "file-vanished: the file was removed during the scan"),
        ));
    };
    let mut file = scan_named(&source, Some(&item.name), options)?;
    let unknown =
        |file: &ScannedFile| file.format.is_none_or(|format| matches!(format, "json" | "text" | "empty"));
    // Some formats recognize their text files only by name.
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
        let finding = found("link-leads-out", "the file is a symbolic link to a target outside the folder");
        file.scan.findings.push(finding.in_file(&file.label));
    }
    file.path = Some(whole);
    Ok(file)
}

/// Scans one source and all embedded content.
///
/// # Errors
/// [`crate::Kind::Io`] where it cannot be read.
pub fn scan_source(source: &SourceRef, options: &OpenOptions) -> Result<ScannedFile> {
    scan_named(source, None, options)
}

/// As [`scan_source`]; `name` is the file name, whose extension is checked against the content.
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
    // Content may be reached twice.
    let mut seen = std::collections::HashSet::new();
    scan.findings
        .retain(|f| seen.insert((f.code, f.text.clone(), f.member.clone(), f.offset, f.tensor.clone())));
    // By severity, otherwise in the order of discovery.
    scan.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Ok(ScannedFile { label, path: name.map(Path::to_owned), format, scan })
}

/// Returns the finding for a file or folder that cannot be read.
fn cannot_read(error: &Error) -> Finding {
    found("unreadable", error.message())
}

/// Returns the finding for a skipped entry of a folder.
fn skipped(reason: SkipReason) -> Finding {
    let code = match reason {
        SkipReason::TooDeep => "too-deep",
        SkipReason::LinkToFolder => "link-to-folder",
        SkipReason::DeadLink => "dead-link",
        SkipReason::NotAFile => "not-a-file",
    };
    let finding = found(code, format!("{} was not scanned", reason.as_str()));
    match reason {
        SkipReason::TooDeep => finding.hint(format_args!(
            "folders are scanned to a depth of {DEPTH}; scan the inner folder by its own path"
        )),
        SkipReason::LinkToFolder => finding.hint("scan the target of the link"),
        SkipReason::DeadLink | SkipReason::NotAFile => finding,
    }
}

/// Returns the reports on several paths as one SARIF 2.1.0 log with one run. `failed` are the paths that could not be scanned,
/// with their errors: notifications of an unsuccessful run.
pub fn sarif_of_all(reports: &[ScanReport], failed: &[(PathBuf, Error)]) -> Json {
    sarif::log(reports, failed)
}

fn unread(path: &Path, finding: Finding) -> ScannedFile {
    let label = path_text(path);
    let finding = finding.in_file(&label);
    ScannedFile { label, path: Some(path.to_owned()), format: None, scan: Scan::of_findings(vec![finding]) }
}

impl ScanReport {
    /// Returns `path`, `verdict` (`clean`, `found`, `could-not-tell`), and `files`: `path`, `format`, `verdict`, `findings`,
    /// `imports`, `calls`. As a tree; [`ScanReport::as_json`] streams it.
    pub fn to_json(&self) -> Json {
        tree(&self.as_json())
    }

    /// As [`ScanReport::to_json`], serialized without an intermediate tree.
    pub fn as_json(&self) -> impl Serialize + '_ {
        Document {
            path: &self.label,
            verdict: scan_word(self.verdict),
            files: rows(&self.files, ScannedFile::as_json),
        }
    }

    /// Turns warnings of these categories into errors, so that the verdict is `found`.
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

    /// Returns the report in SARIF 2.1.0: rules, results with byte offsets, and files and members as artifacts.
    pub fn to_sarif(&self) -> Json {
        sarif::log(std::slice::from_ref(self), &[])
    }

    /// Returns the number of findings of that severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.files.iter().flat_map(|f| &f.scan.findings).filter(|f| f.severity == severity).count()
    }
}

impl ScannedFile {
    /// Returns the verdict of the findings in this file.
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

/// Document of a report.
#[derive(Serialize)]
struct Document<'a, Files: Serialize> {
    path: &'a str,
    verdict: &'a str,
    files: Files,
}

/// Document of a file.
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
