//! A plain list of the hashes of a model's files and tensors, made so that signing tools can sign it;
//! and whether a model is still what such a list says.
//!
//! [`seal`] makes the list: an in-toto Statement as signers of models make it, with our own words about
//! tensors beside it. It depends on the input alone: not on the clock, the threads or the folder that one
//! stands in. [`check`](fn@check) holds a model against it: the sealed files byte by byte; and where that is
//! asked for, what was made of them in another form tensor by tensor, as equal tensors have equal hashes in
//! every format. Nothing here is a signature, and none is checked.

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

/// What [`seal`] shall do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SealOptions {
    /// How to open.
    pub open: OpenOptions,
    /// The hashes to make.
    pub algorithms: Algorithms,
    /// Seal files as they are, and do not look for tensors in them.
    pub files_only: bool,
    /// Take the bytes behind symbolic links to files, where they would be refused.
    pub allow_symlinks: bool,
    /// Paths that do not belong to a folder wherever they are, such as that of the manifest itself.
    pub without: Vec<PathBuf>,
    /// Where the manifest will be written, which does not belong to a folder either. What stands there in the sealed
    /// folder must be a manifest: everything else is part of what is sealed.
    pub target: Option<PathBuf>,
    /// Threads; 0 for one a processor.
    pub threads: usize,
    /// Who is told of progress and may stop the work.
    pub progress: Arc<dyn Progress>,
}

impl Default for SealOptions {
    /// Both algorithms, files and tensors, unwatched.
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

/// What [`seal`] made.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// The manifest.
    pub manifest: Arc<Manifest>,
    /// What was done.
    pub report: SealReport,
}

/// What [`seal`] did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SealReport {
    /// How many files are listed.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How many tensors are listed.
    pub tensors: usize,
    /// Tensors that were read once more, as they do not stand in a file as they are hashed.
    pub read_again: usize,
    /// Names that are left out of a folder, be they there or not.
    pub ignored: Vec<String>,
    /// Those of them that are there.
    pub left_out: Vec<String>,
    /// What one should know.
    pub notes: Vec<Note>,
}

impl Sealed {
    /// The document: `path`, `manifest` (its file), `algorithms`, `sha256`, `scope`, and what [`SealReport::to_json`] has.
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

    /// True where the source is damaged: the manifest is not one of the whole.
    pub fn is_of_damaged(&self) -> bool {
        self.report.notes.iter().any(|note| note.code == NoteCode::Damaged)
    }
}

impl SealReport {
    /// `files`, `bytes`, `tensors`, `read_again`, `ignored`, `left_out`, `notes`.
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
    /// The name of the manifest that belongs to `path`: beside it, with `.manifest.json` behind its name.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`], `no-name`, for the root of the file system.
    pub fn default_path(path: &Path) -> Result<PathBuf> {
        let mut name = own_name(path)?.into_os_string();
        name.push(".manifest.json");
        Ok(match path.file_name() {
            Some(_) => path.with_file_name(name),
            // `.`, `..` and what ends so: the folder around is one further up.
            None => path.join("..").join(name),
        })
    }
}

/// Makes the manifest of the file or folder at `path`; writes nothing.
///
/// Each file is read once; tensors that stand in it in another order, type or form than they are hashed
/// are read a second time. Buffers take some 70 MiB, and what [`crate::ops::hash::sha256`] says for each
/// worker that reads such a tensor.
///
/// # Errors
/// What opening says; [`crate::Kind::Unsupported`] for what cannot be sealed, such as symbolic links;
/// [`crate::Kind::Corrupt`] where bytes do not fit a file's own checksums: damage is not sealed;
/// [`crate::Kind::Usage`], `output-is-input`, where the manifest would take the place of what is sealed or read;
/// [`crate::Kind::Io`], `changed-while-read`, where a file changed meanwhile; [`crate::Kind::Cancelled`].
pub fn seal(path: impl AsRef<Path>, options: &SealOptions) -> Result<Sealed> {
    let path = path.as_ref();
    if options.algorithms.is_empty() {
        return Err(Error::usage("no-algorithm", "a seal needs at least one algorithm"));
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
        // Most tensors are in the file of the one before.
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
    // Last of all: what changes after this is younger than the manifest that is written now.
    for file in &subject.files {
        if Stamp::of_path(&file.path)? != file.stamp {
            return Err(Error::new(
                crate::Kind::Io,
                "changed-while-read",
                "the file changed while it was sealed",
            )
            .in_file(file.path.display())
            .hint("wait until nobody writes to it, and seal it again"));
        }
    }
    Ok(Sealed { manifest, report })
}

/// Fails where the manifest would take the place of a file that is sealed, or that was read to know what is in them.
fn check_apart(path: &Path, subject: &Subject, without: &[PathBuf], options: &SealOptions) -> Result<()> {
    let refused = |what: &str, path: &Path| {
        Error::usage("output-is-input", what).in_file(path.display()).hint("give the manifest another name")
    };
    let without: Vec<FileIdentity> = without.iter().filter_map(|path| FileIdentity::of_path(path)).collect();
    let is_without = |path: &Path| FileIdentity::of_path(path).is_some_and(|file| without.contains(&file));
    let files = subject.files.iter().map(|file| &file.path).chain(&subject.outside);
    if let Some(path) = files.filter(|_| !without.is_empty()).find(|path| is_without(path)) {
        return Err(refused("the manifest would take the place of a file that is sealed or read", path));
    }
    // In a folder it was left out before it could be one of the files.
    let Some(target) = options.target.as_deref().and_then(real_path) else { return Ok(()) };
    if subject.scope != Scope::Folder || name_below(path, &target)?.is_none() {
        return Ok(());
    }
    let limits = &options.open.limits;
    match FileSource::open(&target).and_then(|file| read(&file, limits)) {
        Err(error) if error.code() == ErrorCode::NotAManifest || error.kind() == crate::Kind::Limit => {
            Err(refused("a file of the sealed folder is no manifest, and would be lost", &target)
                .found(error.found_text().unwrap_or_else(|| error.message())))
        }
        // One that is odd, or of another version, is one too.
        _ => Ok(()),
    }
}

impl Sealed {
    /// Writes the manifest to the file `target`: staged, synced, and put in its place as a whole.
    ///
    /// # Errors
    /// As [`LocalSink::file`], and what the engine says.
    pub fn save(&self, target: impl AsRef<Path>, replace: bool) -> Result<()> {
        let file = PlannedFile::streamed("", self.manifest.clone());
        let plan = WritePlan { format: "manifest", kind: "seal", files: vec![file], losses: Vec::new() };
        let options = RunOptions { threads: 1, ..RunOptions::default() };
        run(&plan, &LocalSink::file(target, replace)?, &options).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
