//! What could happen if the original framework opened this: code that would run, source code that
//! would be given away. A part that was not looked at is never called clean.

use crate::error::{Error, Kind, Result};
use crate::finding::{Finding, Severity, Verdict, verdict};
use crate::formats::{self, OpenOptions, Scan};
use crate::pickle::{self, GlobalFinding};
use crate::source::{FileSource, Folder, LocalFolder, PathKind, SkipReason, SourceRef, kind_of_path};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;

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
    /// The path.
    pub label: String,
    /// The format's id, where it is known.
    pub format: Option<&'static str>,
    /// What was found in it.
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
    if kind_of_path(path)? == PathKind::Folder {
        let folder = LocalFolder::open(path)?;
        let mut found = Vec::new();
        for item in folder.list(DEPTH)? {
            let label = path.join(&item.name).display().to_string();
            let file = match folder.open(&item.name)? {
                Some(source) => {
                    let scanned = scan_source(&source, options)?;
                    let is_text = scanned.format.is_none()
                        && (source.is_empty()
                            || formats::biggraph::is_text(&item.name, &source, &options.limits)?);
                    // A text of BigGraph's is known by its name only; nothing holds nothing.
                    if is_text {
                        ScannedFile { format: Some("biggraph"), scan: Scan::default(), ..scanned }
                    } else {
                        scanned
                    }
                }
                None => unread(label, Finding::unchecked("file-vanished", "the file was there a moment ago")),
            };
            found.push((item.name, file));
        }
        for item in folder.skipped(DEPTH)? {
            let label = path.join(&item.name).display().to_string();
            found.push((item.name, unread(label, skipped(item.reason))));
        }
        found
            .sort_by(|(a, _), (b, _)| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
        files.extend(found.into_iter().map(|(_, file)| file));
    } else {
        let source: SourceRef = Arc::new(FileSource::open(path)?);
        files.push(scan_source(&source, options)?);
    }
    let label = path.display().to_string();
    if files.is_empty() {
        let finding = Finding::unchecked("no-files", "there is no file to look through");
        files.push(unread(label.clone(), finding));
    }
    let verdict =
        files.iter().map(|file| verdict(&file.scan.findings)).max().unwrap_or(Verdict::CouldNotTell);
    Ok(ScanReport { label, verdict, files })
}

/// Looks through one source.
///
/// # Errors
/// [`crate::Kind::Io`] where it cannot be read.
pub fn scan_source(source: &SourceRef, options: &OpenOptions) -> Result<ScannedFile> {
    let label = source.label().to_owned();
    let format = match &options.format {
        Some(id) => formats::by_id(id),
        None => formats::detect(source),
    };
    let (format, scan) = match format {
        Ok(format) => (Some(format.facts().id), format.scan(source, options)?),
        Err(error) if matches!(error.kind(), Kind::Usage | Kind::Io) => return Err(error),
        Err(error) => (None, unknown(error, source, options)?),
    };
    Ok(ScannedFile { label, format, scan })
}

/// A file of no known format may hold anything. Where it is a whole pickle, though none that a
/// format would write, whoever loads it as one would run what it calls.
fn unknown(error: Error, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let mut scan = Scan::of_error(error)?;
    let report = pickle::inspect(source, 0, &pickle::Options::with_limits(options.limits.clone()));
    if report.error.is_none() {
        scan.findings.extend(report.findings.into_iter().map(|f| f.in_file(source.label())));
        scan.imports = report.globals;
    }
    Ok(scan)
}

/// What stands in a folder and is not looked at.
fn skipped(reason: SkipReason) -> Finding {
    let code = match reason {
        SkipReason::TooDeep => "too-deep",
        SkipReason::LinkToFolder => "link-to-folder",
        SkipReason::DeadLink => "dead-link",
        SkipReason::NotAFile => "not-a-file",
    };
    let finding = Finding::unchecked(code, format!("{} was not looked at", reason.as_str()));
    match reason {
        SkipReason::TooDeep => finding.hint(format_args!("folders are looked through {DEPTH} levels deep")),
        SkipReason::LinkToFolder => finding.hint("scan the folder that it leads to"),
        SkipReason::DeadLink | SkipReason::NotAFile => finding,
    }
}

fn unread(label: String, finding: Finding) -> ScannedFile {
    ScannedFile { label, format: None, scan: Scan { findings: vec![finding], imports: Vec::new() } }
}

impl ScanReport {
    /// `path`, `verdict` (`clean`, `found`, `could-not-tell`), and `files`: `path`, `format`,
    /// `verdict`, `findings`, `imports`.
    pub fn to_json(&self) -> Json {
        json!({
            "path": self.label,
            "verdict": scan_word(self.verdict),
            "files": self.files.iter().map(ScannedFile::to_json).collect::<Json>(),
        })
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

    fn to_json(&self) -> Json {
        json!({
            "path": self.label,
            "format": self.format,
            "verdict": scan_word(self.verdict()),
            "findings": self.scan.findings.iter().map(Finding::to_json).collect::<Json>(),
            "imports": self.scan.imports.iter().map(import).collect::<Json>(),
        })
    }
}

fn import(found: &GlobalFinding) -> Json {
    json!({
        "module": found.module,
        "name": found.name,
        "offset": found.offset,
        "judgement": found.judgement.as_str(),
        "text": found.judgement.text(),
    })
}
