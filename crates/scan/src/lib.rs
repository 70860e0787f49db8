//! What the scanners of all formats share: rules, judged pickles, archives, names, beginnings.
//!
//! A format's scanner looks at what is its own and hands on what is inside: members of archives, opaque
//! bytes, pickles in attributes. Whoever calls it looks through those as files in their own right, to a
//! bounded depth. So a pickle in an archive in a dataset is judged like one that stands alone.
//!
//! | what | where |
//! | --- | --- |
//! | [`Scan`], [`Inner`] | what one look brought, and what is to be looked at next |
//! | [`Rule::ALL`], [`found`] | the closed list of codes, and what each weighs |
//! | [`pickles()`] | every pickle of a source, one behind the other |
//! | [`archive`], [`tar()`] | members, and what is wrong with the archive around them |
//! | [`leads_out`] | names |
//! | [`Beginning`] | what a file is by its first bytes |
//! | [`hdf5()`] | HDF5: links, storage elsewhere, code of Keras, opaque bytes |
//! | [`config()`], [`template()`] | JSON: configurations of Keras and others; templates of chats |
//! | [`yaml()`] | YAML: tags and targets that name what is to be called |
//!
//! The rule of all: what was not looked at is said, and is never clean.
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
//! See also: `weighbridge` looks through whole files and folders, archives in archives included.

mod beginning;
mod config;
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

/// Names of tensors that are shown; more are counted.
const SHOWN: usize = 5;

/// What looking for code in a file brought to light.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// What was found. An error is something that would run or give away code, or deceive.
    pub findings: Vec<Finding>,
    /// Every import of every pickle in the file.
    pub imports: Vec<GlobalFinding>,
    /// What its pickles would call, each once, with its number.
    pub calls: Vec<Call>,
    /// What is inside and must be looked through as well.
    pub inner: Vec<Inner>,
    /// What is listed of all parts, and how much is not.
    pub(crate) tally: Tally,
}

/// Something within a file.
#[derive(Debug, Clone)]
pub struct Inner {
    /// What people call it: the name of a member, the path of a dataset.
    pub name: String,
    /// Its bytes.
    pub source: SourceRef,
    /// What it is taken for.
    pub assumed_type: AssumedType,
}

/// What something within a file is taken for by the program that loads the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssumedType {
    /// A file in its own right.
    File,
    /// A pickle, whatever it looks like.
    Pickle,
    /// Bytes that mean something to their writer only.
    Bytes,
    /// Numbers; a whole pickle among them is looked at all the same.
    Numbers,
}

impl Scan {
    /// A look that brought these findings.
    pub fn of_findings(findings: Vec<Finding>) -> Self {
        Self { findings, ..Self::default() }
    }

    /// What was left out when a file was opened was not looked at; names of tensors that are paths are told.
    pub fn of_notes(checkpoint: &Checkpoint) -> Self {
        let omitted = checkpoint.notes.iter().filter(|note| note.is_unread());
        let findings = omitted.map(|note| found("left-out", phrase![note.code, ": ", &note.text])).collect();
        let mut scan = Self { findings, ..Self::default() };
        scan.judge_names(checkpoint);
        scan
    }

    /// Tells names of tensors that would lead out of a folder.
    pub fn judge_names(&mut self, checkpoint: &Checkpoint) {
        let mut odd = checkpoint.tensors.iter().filter(|tensor| {
            // A dot may be one between parts, or of the name of a folder.
            let parts: Vec<_> = tensor.path.parts().iter().map(ToString::to_string).collect();
            parts.iter().any(|part| path_like(part))
                || ["/", "."].iter().any(|dot| path_like(&parts.join(dot)))
        });
        for tensor in odd.by_ref().take(SHOWN) {
            let text = "the name would lead out of the folder, were the tensor written to a file of its own";
            self.findings.push(found("path-like-name", text).on_tensor(tensor.name()));
        }
        let more = odd.count();
        if more > 0 {
            self.findings.push(found("path-like-name", format!("and {more} more names")));
        }
    }

    /// A file that cannot be opened could not be looked through.
    ///
    /// # Errors
    /// The error itself, where it is not about the file.
    pub fn of_error(error: Error) -> Result<Self> {
        let mut scan = Self::default();
        scan.push_error(error)?;
        Ok(scan)
    }

    /// Adds that a part cannot be read.
    ///
    /// # Errors
    /// The error itself, where it is not about the file.
    pub fn push_error(&mut self, error: Error) -> Result<()> {
        let Some(mut finding) = Finding::from_error(&error) else { return Err(error) };
        // A path that the format's own reader refuses because it leads out is a finding by itself.
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

    /// Adds something that must be looked through as well.
    pub fn look_into(&mut self, name: impl Into<String>, source: SourceRef, assumed_type: AssumedType) {
        self.inner.push(Inner { name: name.into(), source, assumed_type });
    }

    /// Takes in what was found in a part of the file; `member` names the part.
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
