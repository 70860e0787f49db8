//! Manifests of the hashes of a model's files and tensors, which signing tools can sign, and checks against them.
//!
//! [`seal`] makes a manifest: an in-toto Statement as signers of models make it, with Weighbridge's own records of tensors. The
//! manifest depends only on the input: not on the clock, the threads or the location of the folder. [`check`](fn@check) compares
//! a model with it: sealed files byte by byte, and on request a converted model tensor by tensor, as equal tensors have equal
//! hashes in every format. Nothing here makes or verifies a signature.

mod block;
mod check;
mod compare;
mod digest;
mod hashing;
mod manifest;
mod parse;
mod pass;
mod row_names;
mod subject;
mod tree;

pub use check::{CheckOptions, Checked, Counts, check, verify_sealed};
pub use compare::TensorCounts;
pub use digest::{Algorithm, Algorithms, Digest, Digests};
pub use manifest::{FileRecord, Manifest, Own, Resource, TensorRecord};
pub use parse::{Read, read};
pub use subject::Scope;

use crate::checkpoint::Note;
use crate::engine::{LocalSink, Progress, RunOptions, run};
use crate::error::{Error, Result};
use crate::formats::OpenOptions;
use crate::plan::{PlannedFile, WritePlan};
use crate::source::{FileIdentity, FileSource, Stamp, name_below, own_name, real_path};
use crate::text::path_text;
use hashing::{Wanted, hash};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use subject::{Search, Subject};
use weighbridge_core::{ErrorCode, NoteCode};

/// Options of [`seal`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SealOptions {
    /// How to open.
    pub open: OpenOptions,
    /// The hashes to make.
    pub algorithms: Algorithms,
    /// Seal files without opening them as a model.
    pub files_only: bool,
    /// Seal the targets of symbolic links to files; otherwise links are refused.
    pub allow_symlinks: bool,
    /// Paths that are excluded from a folder, such as the manifest itself.
    pub without: Vec<PathBuf>,
    /// Target of the manifest, which is excluded from a folder, too. An existing file there, within the sealed folder, must be a
    /// manifest: every other file is part of the folder.
    pub target: Option<PathBuf>,
    /// Number of threads; 0 for one per processor.
    pub threads: usize,
    /// Receives progress, and may cancel the work.
    pub progress: Arc<dyn Progress>,
}

impl Default for SealOptions {
    /// Both algorithms, files and tensors, without progress.
    fn default() -> Self {
        Self {
            open: OpenOptions::default(),
            algorithms: Algorithms::BOTH,
            files_only: false,
            allow_symlinks: false,
            without: Vec::new(),
            target: None,
            threads: 0,
            progress: RunOptions::default().progress,
        }
    }
}

/// Result of [`seal`].
#[derive(Debug, Clone)]
pub struct Sealed {
    /// The manifest.
    pub manifest: Arc<Manifest>,
    /// The report.
    pub report: SealReport,
}

/// Report of [`seal`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SealReport {
    /// Number of listed files.
    pub files: usize,
    /// Total bytes of the files.
    pub bytes: u64,
    /// Number of listed tensors.
    pub tensors: usize,
    /// Tensors that were read a second time, because their bytes in the file differ from the hashed form.
    pub read_again: usize,
    /// Names excluded from a folder, present or not.
    pub ignored: Vec<String>,
    /// The excluded names that are present.
    pub left_out: Vec<String>,
    /// Notes.
    pub notes: Vec<Note>,
}

impl Sealed {
    /// Returns the document: `path`, `manifest` (its file), `algorithms`, `sha256`, `scope`, and the fields of
    /// [`SealReport::to_json`].
    pub fn to_json(&self, path: &Path, target: &Path, algorithms: Algorithms) -> Json {
        let mut json = json!({
            "path": path_text(path),
            "manifest": path_text(target),
            "algorithms": algorithms.names(),
            "sha256": self.manifest.subject_text(),
            "scope": self.manifest.own.as_ref().map(|own| own.scope.as_str()),
        });
        if let (Some(all), Json::Object(report)) = (json.as_object_mut(), self.report.to_json()) {
            all.extend(report);
        }
        json
    }

    /// True where the source is damaged: the manifest does not cover the complete model.
    pub fn is_of_damaged(&self) -> bool {
        self.report.notes.iter().any(|note| note.code == NoteCode::Damaged)
    }
}

impl SealReport {
    /// Returns `files`, `bytes`, `tensors`, `read_again`, `ignored`, `left_out`, `notes`.
    pub fn to_json(&self) -> Json {
        json!({
            "files": self.files,
            "bytes": self.bytes,
            "tensors": self.tensors,
            "read_again": self.read_again,
            "ignored": self.ignored,
            "left_out": self.left_out,
            "notes": self.notes.iter().map(Note::to_json).collect::<Json>(),
        })
    }
}

impl Manifest {
    /// Returns the default name of the manifest for `path`: beside it, with `.manifest.json` appended to its name.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `no-name`, for the root of the file system.
    pub fn default_path(path: &Path) -> Result<PathBuf> {
        let mut name = own_name(path)?.into_os_string();
        name.push(".manifest.json");
        Ok(match path.file_name() {
            Some(_) => path.with_file_name(name),
            // `.`, `..` and paths that end so: the parent folder is one level up.
            None => path.join("..").join(name),
        })
    }
}

/// Makes the manifest of the file or folder at `path`; writes nothing.
///
/// Each file is read once. Tensors with another order, type or layout in the file than the hashed form are read a second time.
/// Buffers take about 70 MiB, and the memory of [`crate::ops::hash::sha256`] for each worker that reads such a tensor.
///
/// # Errors
/// Errors of opening; [`crate::Kind::Unsupported`] for entries that cannot be sealed, such as symbolic links;
/// [`crate::Kind::Corrupt`] where bytes do not match the checksums of a file: damage is not sealed; [`crate::Kind::Usage`],
/// `output-is-input`, where the manifest would overwrite an input; [`crate::Kind::Io`], `changed-while-read`, where a file
/// changed meanwhile; [`crate::Kind::Cancelled`].
pub fn seal(path: impl AsRef<Path>, options: &SealOptions) -> Result<Sealed> {
    let path = path.as_ref();
    if options.algorithms.is_empty() {
        return Err(Error::usage("no-algorithm", "no hash algorithm is selected"));
    }
    let without: Vec<PathBuf> = options.without.iter().chain(&options.target).cloned().collect();
    let search = Search {
        open: &options.open,
        files_only: options.files_only,
        symlinks: options.allow_symlinks,
        without: without.clone(),
        ignored: Vec::new(),
        lenient: false,
    };
    let subject = Subject::find(path, &search)?;
    check_apart(path, &subject, &without, options)?;
    let count = subject.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.tensors.len());
    let wanted = Wanted {
        files: vec![options.algorithms; subject.files.len()],
        tensors: (0..count).collect(),
        algorithms: options.algorithms,
        threads: options.threads,
        progress: &*options.progress,
    };
    let hashed = hash(&subject, &wanted)?;

    let mut files = Vec::with_capacity(subject.files.len());
    for (file, &(len, digests)) in subject.files.iter().zip(&hashed.files) {
        let bytes = len.unwrap_or(file.stamp.len);
        files.push(FileRecord { name: file.name.clone(), bytes, digests });
    }
    let mut tensors: Vec<TensorRecord> = Vec::with_capacity(count);
    for (number, entry) in subject.checkpoint.iter().flat_map(|checkpoint| &checkpoint.tensors).enumerate() {
        let names = subject.files_of(entry).unwrap_or_default();
        let names = names.iter().filter_map(|&file| subject.files.get(file)).map(|f| &f.name);
        // Most tensors are in the same file as the previous one.
        let files = match tensors.last() {
            Some(last) if last.files.iter().eq(names.clone()) => last.files.clone(),
            _ => names.cloned().collect(),
        };
        let mut record = TensorRecord::of(entry, files);
        record.digests = hashed.of(number).copied().unwrap_or_default();
        record.row_names = hashed.names.get(&number).copied().map(Box::new);
        tensors.push(record);
    }
    tensors.sort_unstable_by(|a, b| (&a.path, &a.slot, &a.files).cmp(&(&b.path, &b.slot, &b.files)));

    let mut report = SealReport {
        files: files.len(),
        bytes: files.iter().map(|file| file.bytes).sum(),
        tensors: tensors.len(),
        read_again: hashed.read_again,
        ignored: subject.ignored.clone(),
        left_out: subject.left_out.clone(),
        notes: subject.notes.clone(),
    };
    report.notes.extend(subject.checkpoint.iter().flat_map(|checkpoint| checkpoint.notes.iter().cloned()));
    for (_, error) in &hashed.failed {
        let tensor = error.tensor().unwrap_or_default();
        report.notes.push(Note::new("tensor-not-hashed", format!("{tensor}: {}", error.message())));
    }
    for (_, error) in &hashed.nameless {
        let tensor = error.tensor().unwrap_or_default();
        report.notes.push(Note::new("names-not-hashed", format!("{tensor}: {}", error.message())));
    }
    let manifest = Arc::new(Manifest {
        name: subject.name.clone(),
        hash_type: options.algorithms.main(),
        allow_symlinks: options.allow_symlinks,
        ignore_paths: subject.ignored.clone(),
        resources: Manifest::resources_of(&files, options.algorithms),
        own: Some(Own {
            scope: subject.scope,
            format: subject.checkpoint.as_ref().map(|checkpoint| checkpoint.format.to_owned()),
            kind: subject.checkpoint.as_ref().map(|checkpoint| checkpoint.kind.to_owned()),
            options: subject.options.clone(),
            files,
            tensors,
        }),
    });
    // Last of all: later changes are newer than the manifest, which is written now.
    for file in &subject.files {
        if Stamp::of_path(&file.path)? != file.stamp {
            return Err(Error::new(crate::Kind::Io, "changed-while-read", "the file changed during sealing")
                .in_file(file.path.display())
                .hint("wait until other programs have finished writing, then seal again"));
        }
    }
    Ok(Sealed { manifest, report })
}

/// Fails where the manifest would overwrite a sealed file, or a file that was read to find the tensors.
fn check_apart(path: &Path, subject: &Subject, without: &[PathBuf], options: &SealOptions) -> Result<()> {
    let refused = |what: &str, path: &Path| {
        Error::usage("output-is-input", what)
            .in_file(path.display())
            .hint("choose another name for the manifest")
    };
    let without: Vec<FileIdentity> = without.iter().filter_map(|path| FileIdentity::of_path(path)).collect();
    let is_without = |path: &Path| FileIdentity::of_path(path).is_some_and(|file| without.contains(&file));
    let files = subject.files.iter().map(|file| &file.path).chain(&subject.outside);
    if let Some(path) = files.filter(|_| !without.is_empty()).find(|path| is_without(path)) {
        return Err(refused("the manifest would overwrite an input file", path));
    }
    // In a folder the target was excluded before it could be one of the files.
    let Some(target) = options.target.as_deref().and_then(real_path) else { return Ok(()) };
    if subject.scope != Scope::Folder || name_below(path, &target)?.is_none() {
        return Ok(());
    }
    let limits = &options.open.limits;
    match FileSource::open(&target).and_then(|file| read(&file, limits)) {
        Err(error) if error.code() == ErrorCode::NotAManifest || error.kind() == crate::Kind::Limit => {
            Err(refused(
                "the manifest would overwrite a file of the sealed folder that is not a manifest",
                &target,
            )
            .found(error.found_text().unwrap_or_else(|| error.message())))
        }
        // An odd manifest, or one of another version, is a manifest, too.
        _ => Ok(()),
    }
}

impl Sealed {
    /// Writes the manifest to the file `target`: staged, synced, and moved into place as a whole.
    ///
    /// # Errors
    /// As [`LocalSink::file`], and errors of the engine.
    pub fn save(&self, target: impl AsRef<Path>, replace: bool) -> Result<()> {
        let file = PlannedFile::streamed("", self.manifest.clone());
        let plan = WritePlan { format: "manifest", kind: "seal", files: vec![file], losses: Vec::new() };
        let options = RunOptions { threads: 1, ..RunOptions::default() };
        run(&plan, &LocalSink::file(target, replace)?, &options).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
