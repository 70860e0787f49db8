//! Check of a model against its manifest.

use super::compare::{TensorCounts, algorithms, compare};
use super::digest::Algorithms;
use super::hashing::{self, Wanted};
use super::manifest::{Manifest, Own, Resource};
use super::parse::{Read, read};
use super::pass::{self, From, Job};
use super::subject::{ALONE, OUTSIDE, Scope, Search, Subject};
use crate::engine::{Progress, RunOptions};
use crate::error::{Error, Result};
use crate::finding::{Finding, Severity, Verdict};
use crate::formats::OpenOptions;
use crate::ops::verify::{VerifyOptions, VerifyReport, settled, verify};
use crate::source::{FileSource, Folder, FolderItem, LocalFolder, PathKind, Stamp, check_no_links};
use crate::text::escape;
use serde_json::{Value as Json, json};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weighbridge_core::phrase::Opt;
use weighbridge_core::{ErrorCode, FindingCode, phrase};

/// Code of findings about a sealed model that cannot be opened.
const NOT_OPENED: &str = "not-opened";

/// Options of [`check`].
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// How to open the model, and limits on the manifest.
    pub open: OpenOptions,
    /// Number of threads; 0 for one per processor.
    pub threads: usize,
    /// Compare only tensors, not files: for a model that was converted.
    pub tensors_only: bool,
    /// Receives progress, and may cancel the work.
    pub progress: Arc<dyn Progress>,
}

impl Default for CheckOptions {
    /// Default options for opening, one thread per processor, without progress.
    fn default() -> Self {
        Self {
            open: OpenOptions::default(),
            threads: 0,
            tensors_only: false,
            progress: RunOptions::default().progress,
        }
    }
}

/// Number of files by result of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Identical byte for byte.
    pub equal: usize,
    /// Different bytes.
    pub changed: usize,
    /// Listed, but missing.
    pub missing: usize,
    /// Present, but not listed.
    pub extra: usize,
}

impl Counts {
    /// Returns the fields by name.
    pub fn to_json(self) -> Json {
        json!({ "equal": self.equal, "changed": self.changed, "missing": self.missing, "extra": self.extra })
    }
}

/// Result of [`check`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// Differences from the manifest, and unchecked parts.
    pub findings: Vec<Finding>,
    /// Counts of files; `None` where files were not compared with the manifest.
    pub files: Option<Counts>,
    /// Counts of tensors; `None` where tensors were not compared with the manifest.
    pub tensors: Option<TensorCounts>,
    /// True where the manifest came in a signed envelope. The signature is not verified.
    pub signed: bool,
}

impl Checked {
    /// Returns `files`, `tensors` (null where they were not compared) and `signed`.
    pub fn to_json(&self) -> Json {
        json!({
            "files": self.files.map(Counts::to_json),
            "tensors": self.tensors.map(TensorCounts::to_json),
            "signed": self.signed,
        })
    }
}

/// Compares the file or folder at `path` with the manifest in the file `manifest`, file by file. A model with another format and
/// name than the sealed one can only be compared by tensors. That its files are not compared is an `unchecked` finding, or a note
/// where only tensors are requested.
///
/// # Errors
/// [`crate::Kind::Usage`], `not-a-manifest`; [`crate::Kind::Io`] where something cannot be read; [`crate::Kind::Cancelled`].
/// Faults of the model or the manifest are findings.
pub fn check(path: impl AsRef<Path>, manifest: impl AsRef<Path>, options: &CheckOptions) -> Result<Checked> {
    let (path, place) = (path.as_ref(), manifest.as_ref());
    match understood(place, options)? {
        Ok(manifest) => against(path, &manifest, place, options),
        Err(finding) => Ok(Checked { findings: vec![finding], ..Checked::default() }),
    }
}

/// As [`crate::ops::verify`], with a comparison with a manifest; only of its tensors if `tensors_only` is true.
///
/// # Errors
/// As both.
pub fn verify_sealed(
    path: impl AsRef<Path>,
    manifest: impl AsRef<Path>,
    options: &VerifyOptions,
    tensors_only: bool,
    progress: Arc<dyn Progress>,
) -> Result<(VerifyReport, Checked)> {
    let (path, place) = (path.as_ref(), manifest.as_ref());
    let check = CheckOptions { open: options.open.clone(), threads: options.threads, tensors_only, progress };
    let understood = understood(place, &check)?;
    // Files that were sealed without opening them need not be a model.
    let any_files = understood
        .as_ref()
        .is_ok_and(|read| read.manifest.own.as_ref().is_none_or(|own| own.format.is_none()));
    // The reason why it was not opened, where the rest is checked.
    let mut unopened = None;
    let bare = || VerifyReport {
        label: path.display().to_string(),
        format: None,
        kind: None,
        verdict: Verdict::CouldNotTell,
        findings: Vec::new(),
        checked: Vec::new(),
        files: Vec::new(),
        damage: None,
        other_files: Vec::new(),
    };
    // Broken rules of a format are reported as without a manifest; an unknown file breaks none. A folder that is opened as a whole
    // has a format.
    let is_folder = PathKind::of(path)? == PathKind::Folder;
    let is_broken = |report: &VerifyReport| {
        let is_model = report.format.is_some() || is_folder;
        is_model && report.findings.iter().any(|finding| finding.severity == Severity::Error)
    };
    let mut report = match verify(path, options) {
        Ok(report) if any_files && report.kind.is_none() && !is_broken(&report) => {
            unopened = report.findings.first().map(|finding| finding.text.clone());
            bare()
        }
        Ok(report) => report,
        Err(error)
            if matches!(
                error.code(),
                ErrorCode::NotAFile | ErrorCode::SeveralModels | ErrorCode::PartOfModel
            ) && is_folder =>
        {
            unopened = Some(error.message().into());
            bare()
        }
        Err(error) => return Err(error),
    };
    let checked = match understood {
        Ok(manifest) => against(path, &manifest, place, &check)?,
        Err(finding) => Checked { findings: vec![finding], ..Checked::default() },
    };
    report.checked.push("manifest");
    report.findings.extend(checked.findings.iter().cloned());
    let reported = report.findings.iter().any(|finding| finding.code == NOT_OPENED);
    if let Some(why) = unopened.filter(|_| !reported) {
        // A manifest without tensors does not require a model.
        report.findings.push(match any_files {
            true => {
                let text = format!("only file bytes were checked; the model could not be opened: {why}");
                Finding::note(NOT_OPENED, text)
            }
            false => {
                let text = format!("the sealed model could not be opened: {why}");
                Finding::unchecked(NOT_OPENED, text)
            }
        });
    }
    Ok((settled(report), checked))
}

/// Returns the manifest, or the finding about it.
fn understood(place: &Path, options: &CheckOptions) -> Result<Result<Read, Finding>> {
    let source = FileSource::open(place)?;
    match read(&source, &options.open.limits) {
        Ok(read) => Ok(Ok(read)),
        Err(error) => match Finding::from_error(&error) {
            Some(finding) => Ok(Err(finding)),
            None => Err(error),
        },
    }
}

fn against(path: &Path, read: &Read, place: &Path, options: &CheckOptions) -> Result<Checked> {
    let manifest = &read.manifest;
    let mut checked = Checked { signed: read.signed, ..Checked::default() };
    if read.signed {
        let text = "the manifest is signed; its content was checked, but not the signature";
        checked.findings.push(Finding::warning("signature-not-checked", text).in_file(place.display()));
    }
    let search = Search {
        open: &options.open,
        files_only: manifest.own.as_ref().is_none_or(|own| own.format.is_none()),
        symlinks: manifest.allow_symlinks,
        without: vec![place.to_owned()],
        ignored: manifest.ignore_paths.iter().map(PathBuf::from).collect(),
        lenient: true,
    };
    let subject = Subject::find(path, &search)?;
    let scope = match (&manifest.own, manifest.resources.as_slice()) {
        (Some(own), _) => own.scope,
        (None, [one]) if one.name == ALONE => Scope::File,
        (None, _) => Scope::Folder,
    };
    let is_folder = PathKind::of(path)? == PathKind::Folder;
    let fits = match scope {
        Scope::File => !is_folder,
        Scope::Files => true,
        Scope::Folder => is_folder,
    };
    // A file with the name of the sealed model is compared in any format.
    let claims = same_form(&subject, manifest) || subject.name == manifest.name;
    if options.tensors_only {
        let text = "only tensors are compared: files, program and metadata may differ from the sealed ones";
        checked.findings.push(Finding::note("tensors-only", text));
    } else if fits && claims {
        let counts = files(path, is_folder, scope, &subject, manifest, options, &mut checked.findings)?;
        checked.files = Some(counts);
        if counts.changed == 0 && counts.missing == 0 {
            if manifest.own.as_ref().is_some_and(|own| !own.tensors.is_empty()) {
                let text = "all files are unchanged since sealing, so tensors were not hashed separately";
                checked.findings.push(Finding::note("tensors-by-file", text));
            }
            return Ok(checked);
        }
    } else {
        let (why, way) = match (fits, is_folder) {
            (true, _) => ("the format differs from the sealed one", ""),
            (false, true) => {
                ("the manifest is that of a file, not of a folder", "give the path of the sealed file; ")
            }
            (false, false) => {
                ("the manifest is that of a folder, not of a file", "give the path of the folder; ")
            }
        };
        let text = format!("{why}: only tensors are compared, not files, program and metadata");
        let hint = phrase![way, "if that is enough, use ", Opt::TensorsOnly];
        checked.findings.push(Finding::unchecked("files-not-compared", text).hint(hint));
    }
    tensors(&subject, manifest, options, &mut checked)?;
    let none_match =
        |counts: TensorCounts| counts.equal + counts.changed + counts.renamed == 0 && counts.missing > 0;
    if checked.tensors.is_some_and(none_match) {
        for finding in checked.findings.iter_mut().filter(|one| one.code == FindingCode::FileChanged) {
            finding.hint = Some(
                "no tensor of the manifest is in the model: check that the manifest is that of this model"
                    .into(),
            );
        }
    }
    let all_match = |counts: TensorCounts| {
        counts.equal > 0 && counts == TensorCounts { equal: counts.equal, ..TensorCounts::default() }
    };
    if checked.tensors.is_some_and(all_match)
        && let Some(finding) =
            checked.findings.iter_mut().find(|one| one.code == FindingCode::FilesNotCompared)
    {
        finding.text = match (fits, is_folder) {
            (true, _) => "all tensors match; files of another format cannot be compared",
            (false, true) => {
                "all tensors match; the files were not compared, as the manifest is that of a file"
            }
            (false, false) => {
                "all tensors match; the file was not compared, as the manifest is that of a folder"
            }
        }
        .into();
    }
    Ok(checked)
}

/// True where the files can be the sealed ones. A file that cannot be opened may be damaged.
fn same_form(subject: &Subject, manifest: &Manifest) -> bool {
    match (&manifest.own, &subject.checkpoint) {
        (Some(Own { format: Some(format), kind, .. }), Some(checkpoint)) => {
            format == checkpoint.format && kind.as_deref() == Some(checkpoint.kind)
        }
        _ => true,
    }
}

/// Compares the files with the manifest; in a folder also reports other files.
fn files(
    path: &Path,
    is_folder: bool,
    scope: Scope,
    subject: &Subject,
    manifest: &Manifest,
    options: &CheckOptions,
    findings: &mut Vec<Finding>,
) -> Result<Counts> {
    let mut counts = Counts::default();
    let listed: HashSet<&str> = manifest.resources.iter().map(|resource| resource.name.as_str()).collect();
    let label = |name: &str| if name == ALONE { path.display().to_string() } else { escape(name) };
    if scope == Scope::Folder {
        let others = subject.files.iter().filter(|file| !listed.contains(file.name.as_str()));
        for file in others {
            counts.extra += 1;
            let finding = Finding::error("file-extra", "the file is not in the manifest");
            findings.push(finding.in_file(label(&file.name)));
        }
        for odd in subject.odd.iter().filter(|odd| !listed.contains(odd.name.as_str())) {
            let finding = match odd.hides_files {
                true => {
                    let text = format!(
                        "this is {}, nested deeper than {} levels, and was not checked",
                        odd.what,
                        FolderItem::DEPTH
                    );
                    Finding::unchecked("too-deep", text)
                }
                false => {
                    counts.extra += 1;
                    Finding::error("file-extra", format!("this is {} and is not in the manifest", odd.what))
                }
            };
            findings.push(finding.in_file(label(&odd.name)));
        }
    }
    if scope != Scope::Folder {
        for name in opened_besides(path, is_folder, subject, scope) {
            if !listed.contains(name.as_str()) {
                counts.extra += 1;
                let text = "opening the model reads this file, which is not in the manifest";
                findings.push(Finding::error("file-extra", text).in_file(label(&name)));
            }
        }
    }
    for note in subject.notes.iter().filter(|note| note.code == OUTSIDE) {
        findings.push(Finding::note(OUTSIDE, note.text.clone()));
    }
    if !manifest.ignore_paths.is_empty() {
        let names: Vec<String> = manifest.ignore_paths.iter().take(8).map(|name| escape(name)).collect();
        let more = if manifest.ignore_paths.len() > names.len() { " and more" } else { "" };
        let text = format!("the manifest excludes {}{more}", names.join(", "));
        findings.push(Finding::note("ignored-paths", text));
    }
    let found = found(path, is_folder, scope, subject, manifest);
    let (mut jobs, mut of_job) = (Vec::new(), Vec::new());
    let whole = Algorithms::only(manifest.hash_type);
    for resource in &manifest.resources {
        match found.get(resource.name.as_str()) {
            Some(Ok((from, len))) => {
                jobs.push(Job { from: from.clone(), len: *len, whole, stretches: Vec::new() });
                of_job.push(resource);
            }
            gone => {
                counts.missing += 1;
                let text = match gone {
                    Some(Err(what)) => format!("the file is missing: there is {what}"),
                    _ => "the file is missing".to_owned(),
                };
                findings.push(Finding::error("file-missing", text).in_file(label(&resource.name)));
            }
        }
    }
    options.progress.begin(jobs.iter().map(Job::bytes).fold(0, u64::saturating_add));
    let hashed = pass::run(&jobs, options.threads, &*options.progress)?;
    for (resource, hashed) in of_job.into_iter().zip(hashed) {
        if hashed.whole.get(manifest.hash_type) == Some(&resource.digest) {
            counts.equal += 1;
            continue;
        }
        counts.changed += 1;
        findings.push(changed(resource, hashed.len, manifest).in_file(label(&resource.name)));
    }
    Ok(counts)
}

/// Returns the names of the files that opening the path reads, relative as in a manifest of that scope: the named file itself is
/// `.`, unless it is one of several.
fn opened_besides(path: &Path, is_folder: bool, subject: &Subject, scope: Scope) -> Vec<String> {
    let files = subject.opened.iter().filter_map(|&number| subject.files.get(number));
    let own = if is_folder { None } else { path.file_name().and_then(|name| name.to_str()) };
    let name = |name: &str| match own {
        Some(own) if scope == Scope::File && name == own => ALONE.to_owned(),
        Some(own) if scope == Scope::Files && name == ALONE => own.to_owned(),
        _ => name.to_owned(),
    };
    files.map(|file| name(&file.name)).collect()
}

fn changed(resource: &Resource, len: u64, manifest: &Manifest) -> Finding {
    let own = manifest.own.as_ref().and_then(|own| own.files.iter().find(|file| file.name == resource.name));
    let text = match own {
        Some(own) if own.bytes != len => {
            format!("the file had {} bytes when sealed, and has {len}", own.bytes)
        }
        _ => "the bytes differ from the sealed ones".to_owned(),
    };
    Finding::error("file-changed", text).hint("restore the file from another copy, or download it again")
}

/// Sources of the listed files: the file, or the kind of entry found instead.
type Found<'a> = HashMap<&'a str, Result<(From, u64), &'static str>>;

fn found<'a>(
    path: &Path,
    is_folder: bool,
    scope: Scope,
    subject: &'a Subject,
    manifest: &'a Manifest,
) -> Found<'a> {
    if scope == Scope::Folder {
        let files = subject.files.iter();
        let files = files.map(|file| (file.name.as_str(), Ok((file.from.clone(), file.stamp.len))));
        let odd = subject.odd.iter().map(|odd| (odd.name.as_str(), Err(odd.what)));
        return odd.chain(files).collect();
    }
    let one = |path: PathBuf| {
        let len = Stamp::of_path(&path).map_or(0, |stamp| stamp.len);
        Ok((From::Path(path), len))
    };
    if scope == Scope::File {
        return HashMap::from([(ALONE, one(path.to_owned()))]);
    }
    let root = match LocalFolder::around(path) {
        Some((around, _)) if !is_folder => PathBuf::from(around.label()),
        _ => path.to_owned(),
    };
    let mut found = HashMap::new();
    for resource in &manifest.resources {
        let full = root.join(&resource.name);
        if !PathKind::of(&full).is_ok_and(|kind| kind == PathKind::File) {
            continue;
        }
        let linked = !manifest.allow_symlinks && check_no_links(&root, Path::new(&resource.name)).is_err();
        found.insert(resource.name.as_str(), if linked { Err("a symbolic link") } else { one(full) });
    }
    found
}

/// Compares the tensors with the manifest.
fn tensors(
    subject: &Subject,
    manifest: &Manifest,
    options: &CheckOptions,
    checked: &mut Checked,
) -> Result<()> {
    let Some(own) = manifest.own.as_ref().filter(|own| own.format.is_some()) else {
        if checked.files.is_none() {
            let finding = Finding::unchecked("no-tensor-hashes", "the manifest has no tensor hashes");
            checked.findings.push(match options.tensors_only {
                true => finding.hint(phrase!["omit ", Opt::TensorsOnly, " to compare the files"]),
                false => finding,
            });
        }
        return Ok(());
    };
    let Some(checkpoint) = &subject.checkpoint else {
        let why = subject.unopened.as_ref().map(Error::message).unwrap_or_default();
        let text = format!("tensors could not be compared; the model could not be opened: {why}");
        checked.findings.push(Finding::unchecked(NOT_OPENED, text));
        return Ok(());
    };
    if own.options != subject.options {
        let sealed = if own.options.is_empty() { "none".to_owned() } else { escape(&own.options.join(", ")) };
        let text = format!("it was sealed with other open options: {sealed}");
        checked.findings.push(Finding::note("other-options", text));
    }
    let wanted = Wanted {
        files: Vec::new(),
        tensors: (0..checkpoint.tensors.len()).collect(),
        algorithms: algorithms(own, manifest.hash_type),
        threads: options.threads,
        progress: &*options.progress,
    };
    let hashed = match hashing::hash(subject, &wanted) {
        Ok(hashed) => hashed,
        Err(error) => {
            let finding = Finding::from_error(&error).ok_or(error)?;
            checked.findings.push(finding);
            return Ok(());
        }
    };
    let (findings, counts) = compare(own, manifest.hash_type, &checkpoint.tensors, &hashed);
    checked.findings.extend(findings);
    checked.tensors = Some(counts);
    Ok(())
}
