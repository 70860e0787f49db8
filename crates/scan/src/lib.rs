//! Shared parts of all format scanners: rules, pickles, archives, member names, magic bytes.
//!
//! The scanner of a format checks its own structure and returns nested content: members of archives, opaque
//! bytes, pickles in attributes. The caller scans these as files of their own, to a bounded depth. So a pickle
//! in an archive in a dataset is judged like a separate file.
//!
//! | content | item |
//! | --- | --- |
//! | [`Scan`], [`Inner`] | findings of one file, and nested content to scan next |
//! | [`Rule::ALL`], [`found`] | the closed list of rules with their severities |
//! | [`pickles()`] | consecutive pickles of a source |
//! | [`archive`], [`tar()`] | archive members and faults of the archive structure |
//! | [`leads_out`] | names that point outside a folder |
//! | [`Beginning`] | detection by magic bytes |
//! | [`hdf5()`] | HDF5: links, external storage, Keras code, opaque bytes |
//! | [`config()`], [`template()`] | JSON: configurations of Keras and others; chat templates |
//! | [`yaml()`] | YAML: tags and targets that name a callable |
//! | [`graph_operator`] | operators of TensorFlow that read or write files, or call Python |
//!
//! Content that was not scanned is always reported and never counts as clean.
//!
//! # An example
//!
//! ```
//! # fn main() -> weighbridge_core::Result<()> {
//! use std::sync::Arc;
//! use weighbridge_core::limits::Limits;
//! use weighbridge_core::source::{MemorySource, SourceRef};
//! use weighbridge_scan::{Scan, pickles};
//!
//! let bytes = b"cposix\nsystem\n(S'true'\ntR.".to_vec();
//! let source: SourceRef = Arc::new(MemorySource::new("evil.pkl", bytes));
//! let mut scan = Scan::default();
//! pickles(&source, 0, 1, false, &Limits::default(), &mut scan);
//! assert_eq!(scan.imports[0].name, "system");
//! assert!(!scan.findings.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! See also: `weighbridge` scans whole files and folders, including nested archives.

mod beginning;
mod config;
mod graph_operators;
#[cfg(feature = "hdf5")]
mod hdf5;
mod json;
mod listed;
mod names;
mod pickles;
mod rules;
mod tar;
mod template;
mod zips;

pub use beginning::{Beginning, Class};
pub use beginning::{Ending, begins_as_zip, ends_as_zip};
pub use config::{config, keras, template, yaml};
pub use graph_operators::{graph_effect, graph_operator};
#[cfg(feature = "hdf5")]
pub use hdf5::hdf5;
pub(crate) use names::judge_member;
pub use names::leads_out;
use names::path_like;
pub use pickles::{embedded, may_be_pickle, may_import, pickle_too, pickles, runs};
pub use rules::{Category, Rule, Topic, found};
pub use tar::{is_tar, tar};
use weighbridge_core::phrase::Phrase;
use weighbridge_core::{FindingCode, phrase};
pub use zips::archive;

use listed::Tally;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{Call, GlobalFinding};

/// Number of tensor names listed; the rest is counted.
const MAX_LISTED: usize = 5;

/// Result of scanning one file for code.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Findings. An error would run code, disclose code or deceive a reader.
    pub findings: Vec<Finding>,
    /// Every import of every pickle in the file.
    pub imports: Vec<GlobalFinding>,
    /// Distinct calls of its pickles, each with its count.
    pub calls: Vec<Call>,
    /// Nested content that must be scanned as well.
    pub inner: Vec<Inner>,
    /// Bounds of the lists of all parts, and the number of dropped items.
    pub(crate) tally: Tally,
}

/// Nested content of a file.
#[derive(Debug, Clone)]
pub struct Inner {
    /// Display name: the name of a member or the path of a dataset.
    pub name: String,
    /// Its bytes.
    pub source: SourceRef,
    /// Assumed type of the content.
    pub assumed_type: AssumedType,
}

/// Type that the loading program assumes for nested content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssumedType {
    /// A file in its own right.
    File,
    /// A pickle, whatever its first bytes are.
    Pickle,
    /// Opaque bytes, which only their writer can interpret.
    Bytes,
    /// Numbers; a complete pickle in them is still scanned.
    Numbers,
}

impl Scan {
    /// A scan with these findings.
    pub fn of_findings(findings: Vec<Finding>) -> Self {
        Self { findings, ..Self::default() }
    }

    /// Reports the parts that the reader skipped, and tensor names that are paths.
    pub fn of_notes(checkpoint: &Checkpoint) -> Self {
        let omitted = checkpoint.notes.iter().filter(|note| note.is_unread());
        let findings = omitted.map(|note| found("left-out", phrase![note.code, ": ", &note.text])).collect();
        let mut scan = Self { findings, ..Self::default() };
        scan.judge_names(checkpoint);
        scan
    }

    /// Reports tensor names that point outside a folder when used as file names.
    pub fn judge_names(&mut self, checkpoint: &Checkpoint) {
        let mut odd = checkpoint.tensors.iter().filter(|tensor| {
            // A dot may separate parts of the path or belong to a folder name.
            let parts: Vec<_> = tensor.path.parts().iter().map(ToString::to_string).collect();
            parts.iter().any(|part| path_like(part))
                || ["/", "."].iter().any(|dot| path_like(&parts.join(dot)))
        });
        for tensor in odd.by_ref().take(MAX_LISTED) {
            let text = "exporting the tensor to a file of this name would write outside the folder";
            self.findings.push(found("path-like-name", text).on_tensor(tensor.name()));
        }
        let more = odd.count();
        if more > 0 {
            self.findings
                .push(found("path-like-name", format!("{more} more tensor names point outside the folder")));
        }
    }

    /// A scan of a file that cannot be opened.
    ///
    /// # Errors
    /// The error itself, where it is not about the file.
    pub fn of_error(error: Error) -> Result<Self> {
        let mut scan = Self::default();
        scan.push_error(error)?;
        Ok(scan)
    }

    /// Reports a part that cannot be read.
    ///
    /// # Errors
    /// The error itself, where it is not about the file.
    pub fn push_error(&mut self, error: Error) -> Result<()> {
        let Some(mut finding) = Finding::from_error(&error) else { return Err(error) };
        // A path that the format reader refuses because it points outside has its own rule.
        let code = if finding.code == FindingCode::UnsafeName { "name-leads-out" } else { "unreadable" };
        let plain = found(code, "");
        finding.text = phrase![finding.code, ": ", finding.text];
        (finding.code, finding.severity) = (plain.code, plain.severity);
        self.list(finding);
        Ok(())
    }

    /// Adds a finding of the rule `code`.
    pub fn push(&mut self, code: &'static str, text: impl Into<Phrase>) {
        self.list(found(code, text));
    }

    /// Adds a finding of the rule `code` at an offset.
    pub fn push_at(&mut self, code: &'static str, offset: u64, text: impl Into<Phrase>) {
        self.list(found(code, text).at(offset));
    }

    /// Adds nested content that must be scanned as well.
    pub fn look_into(&mut self, name: impl Into<String>, source: SourceRef, assumed_type: AssumedType) {
        self.inner.push(Inner { name: name.into(), source, assumed_type });
    }

    /// Merges the scan of a part of the file; `member` names the part.
    pub fn absorb(&mut self, part: Self, member: Option<&str>) {
        let place = |inner: Option<String>| match (member, inner) {
            (Some(outer), Some(inner)) => Some(format!("{outer}!{inner}")),
            (Some(outer), None) => Some(outer.to_owned()),
            (None, inner) => inner,
        };
        for mut finding in part.findings {
            finding.member = place(finding.member.take());
            self.list(finding);
        }
        for mut import in part.imports {
            import.member = place(import.member.take());
            self.list_import(import);
        }
        self.tally.absorb(&part.tally);
        for call in part.calls {
            self.count_call(call);
        }
        self.inner.extend(part.inner.into_iter().map(|mut inner| {
            if let Some(outer) = member {
                inner.name = format!("{outer}!{}", inner.name);
            }
            inner
        }));
    }
}
