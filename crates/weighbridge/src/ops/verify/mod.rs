//! Is a file whole and consistent? What is wrong, and what every byte of it is for.
//!
//! A checkpoint is opened, which refuses damage already; then everything that the index promises
//! is held against the bytes: pieces, names, checksums, the program, on request the values. What
//! was not or could not be checked is said, and not called sound.

mod values;

use super::parallel;
use crate::check::{self, Account, Use, accounts, capped};
use crate::checkpoint::{Checkpoint, Note, TensorEntry};
use crate::engine::verify_tensor;
use crate::error::{Error, Result};
use crate::finding::{Finding, Severity, Verdict, verdict};
use crate::formats::{self, OpenOptions};
use crate::source::{FileSource, PathKind, Source, SourceRef, kind_of_path, to_usize};
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Bytes of an encoded source that are read at once.
const STEP: u64 = 256 << 10;

/// What [`verify`] shall do.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// How to open.
    pub open: OpenOptions,
    /// Read all values and look for NaN, infinities and what else is odd about them.
    pub values: bool,
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
    /// What was checked, in order: `opening`, `names`, `pieces`, `bytes`, `checksums`, `values`,
    /// `lod`, `program`, `format`.
    pub checked: Vec<&'static str>,
    /// What the bytes of each file are for.
    pub files: Vec<Account>,
}

impl VerifyReport {
    /// `path`, `format`, `kind`, `verdict`, `checked`, `findings`, and `files`, these with their
    /// `ranges` where `spans` is true.
    pub fn to_json(&self, spans: bool) -> Json {
        json!({
            "path": self.label,
            "format": self.format,
            "kind": self.kind,
            "verdict": self.verdict.as_str(),
            "checked": self.checked,
            "findings": self.findings.iter().map(Finding::to_json).collect::<Json>(),
            "files": self.files.iter().map(|file| file.to_json(spans)).collect::<Json>(),
        })
    }
}

/// Checks the file or folder at `path`.
///
/// It is opened strictly, whatever the options say. Where that fails and what is wrong does not
/// keep the rest from being read, the rest is checked too.
///
/// # Errors
/// What keeps it from being checked at all: [`crate::Kind::Io`] and [`crate::Kind::Usage`]. What is
/// wrong with the file is a finding.
pub fn verify(path: impl AsRef<Path>, options: &VerifyOptions) -> Result<VerifyReport> {
    let path = path.as_ref();
    let open = |lenient: bool| formats::open_with(path, &OpenOptions { lenient, ..options.open.clone() });
    let mut report = match open(false) {
        Ok(checkpoint) => verify_checkpoint(&checkpoint, options)?,
        Err(error) => {
            let finding = finding(error)?;
            let code = finding.code;
            let mut report = match open(true) {
                Ok(mut rest) => {
                    // The note says the same as the error, more mildly.
                    rest.notes.retain(|note| note.code != code);
                    verify_checkpoint(&rest, options)?
                }
                Err(_) => unopened(path, options)?,
            };
            report.findings.insert(0, finding);
            report
        }
    };
    if report.files.is_empty() && kind_of_path(path)? == PathKind::File {
        let used = if report.kind.is_some() { Use::Header } else { Use::Unknown };
        let file = FileSource::open(path)?;
        report.files.push(Account::without_tensors(file.label(), file.len(), used));
    }
    Ok(settled(report))
}

/// The report on what could not be opened, without the reason.
fn unopened(path: &Path, options: &VerifyOptions) -> Result<VerifyReport> {
    let format = match &options.open.format {
        Some(id) => Some(formats::by_id(id)?),
        None if kind_of_path(path)? == PathKind::File => {
            let source: SourceRef = Arc::new(FileSource::open(path)?);
            formats::detect(&source).ok()
        }
        None => None,
    };
    Ok(VerifyReport {
        label: path.display().to_string(),
        format: format.map(|f| f.facts().id),
        kind: None,
        verdict: Verdict::CouldNotTell,
        findings: Vec::new(),
        checked: vec!["opening"],
        files: Vec::new(),
    })
}

/// Checks what was opened.
///
/// # Errors
/// [`crate::Kind::Io`] where bytes cannot be read.
pub fn verify_checkpoint(checkpoint: &Checkpoint, options: &VerifyOptions) -> Result<VerifyReport> {
    let tensors = &checkpoint.tensors;
    let mut checked = vec!["opening", "names", "pieces", "bytes"];
    let mut findings: Vec<Finding> = checkpoint.notes.iter().map(of_note).collect();
    findings.extend(check::duplicates(tensors));
    findings.extend(check::lone_state(tensors));
    let broken = check::pieces(tensors);
    findings.extend(check::shared_bytes(tensors, checkpoint.format == "torch"));
    // Tensors whose pieces do not fit them have no values to read.
    let unreadable: HashSet<String> = broken.iter().filter_map(|f| f.tensor.clone()).collect();
    findings.extend(broken);
    let readable: Vec<&TensorEntry> = tensors.iter().filter(|t| !unreadable.contains(&t.name())).collect();
    let summed = |t: &&TensorEntry| t.pieces.iter().any(|p| p.check.is_some() || is_encoded(&p.source));
    if readable.iter().any(summed) {
        checked.push("checksums");
        findings.extend(checksums(&readable, options.threads)?);
    }
    if options.values && !tensors.is_empty() {
        checked.push("values");
        findings.extend(values::values(&readable, options.threads)?);
    }
    if tensors.iter().any(|t| t.attributes.contains_key("lod")) {
        checked.push("lod");
        findings.extend(check::lod(tensors));
    }
    if let Some(topology) = &checkpoint.topology {
        checked.push("program");
        findings.extend(check::program(topology, tensors));
    }
    if let Ok(format) = formats::by_id(checkpoint.format) {
        checked.push("format");
        let own = format.check(checkpoint)?;
        // Where the format holds a remark of the reader for an error, once is enough.
        findings.retain(|f| f.severity != Severity::Note || own.iter().all(|o| o.code != f.code));
        findings.extend(own);
    }
    Ok(settled(VerifyReport {
        label: checkpoint.label.clone(),
        format: Some(checkpoint.format),
        kind: Some(checkpoint.kind),
        verdict: Verdict::CouldNotTell,
        findings,
        checked,
        files: accounts(checkpoint)?,
    }))
}

/// The report with its findings in order, not too many alike, and the verdict that follows.
pub(super) fn settled(mut report: VerifyReport) -> VerifyReport {
    report.verdict = verdict(&report.findings);
    report.findings = capped(report.findings);
    report.findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    report
}

/// The finding that an error is; an error that is not about the file stays one.
fn finding(error: Error) -> Result<Finding> {
    Finding::from_error(&error).ok_or(error)
}

/// A part that was left out was not checked.
fn of_note(note: &Note) -> Finding {
    let severity = if note.omission { Severity::Unchecked } else { Severity::Note };
    Finding::new(severity, note.code, note.text.clone())
}

/// True where the bytes are made from others, whose own checks are met only by reading to the end.
fn is_encoded(source: &SourceRef) -> bool {
    source.within().is_some_and(|within| within.encoded)
}

/// Holds all bytes that have a checksum against it.
fn checksums(tensors: &[&TensorEntry], threads: usize) -> Result<Vec<Finding>> {
    let jobs = tensors.len() as u64;
    let look = |found: &mut Vec<(usize, Finding)>, number: usize, tensor: &&TensorEntry| {
        let sources = tensor.pieces.iter().map(|p| &p.source).filter(|source| is_encoded(source));
        let whole = verify_tensor(tensor).and_then(|()| sources.into_iter().try_for_each(read_through));
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

/// Reads a source from front to back.
fn read_through(source: &SourceRef) -> Result<()> {
    let mut buffer = vec![0; to_usize(source.len().min(STEP))?];
    let mut at = 0;
    while at < source.len() {
        let step = to_usize((source.len() - at).min(STEP))?;
        source.read_at(at, &mut buffer[..step])?;
        at += step as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
