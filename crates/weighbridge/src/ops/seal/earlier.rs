//! Taking over what an earlier manifest says of files that have not changed since.
//!
//! A manifest says the name of what was sealed and not where that is. So it is believed only where it lies
//! beside what is sealed, under the name that it says, or in the sealed folder itself: elsewhere there may be
//! another model of that name. Whoever puts something else in that place renames it, which changes its times.
//!
//! A file counts as unchanged where it has the same length, and both its time of modification and its
//! time of change are older than the manifest's time of modification: by more than [`MARGIN`], as clocks
//! of file systems are coarse (two seconds on FAT), and a file may have been written in the same tick of the
//! clock after it was hashed. So must be the times of each folder on the way from the sealed path to the file,
//! as a folder that was put in the place of another brings old files along; and no link is on that way.
//! Where the manifest lies in the sealed folder it came along with it, and the times of that folder itself,
//! which writing the manifest changes, do not count.
//! The time of modification can be set by anybody, the time of change cannot.
//! Who copies a manifest makes it younger, and what was changed before the copy would count as unchanged:
//! the times of a manifest are believed, so it must be the file that was written when the model was sealed.

use super::digest::Digests;
use super::manifest::{FileRecord, Manifest, Own, TensorRecord};
use super::subject::{ALONE, Scope, SealedFile, Subject};
use super::{SealOptions, parse, subject};
use crate::checkpoint::{Name, Note, TensorPath};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::source::{FileSource, Stamp, real_path, stamp_of_itself, stamp_of_path};
use crate::text::escape;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// By how much a file must be older than the manifest, in nanoseconds.
const MARGIN: i128 = 2_000_000_000;

/// An earlier manifest, where it lies, and when it was written.
#[derive(Debug, Clone)]
pub struct Earlier {
    manifest: Manifest,
    /// The folder in which it lies, without links.
    folder: Option<PathBuf>,
    stamp: Stamp,
}

impl Earlier {
    /// Reads the manifest at `path`.
    ///
    /// # Errors
    /// As [`parse::read`](super::read).
    pub fn read(path: &Path, limits: &Limits) -> Result<Self> {
        // First, so that a manifest which is replaced meanwhile is not taken for a younger one.
        let stamp = stamp_of_path(path)?;
        let manifest = parse::read(&FileSource::open(path)?, limits)?.manifest;
        let folder = real_path(path).and_then(|path| path.parent().map(Path::to_owned));
        Ok(Self { manifest, folder, stamp })
    }

    fn is_older(&self, stamp: &Stamp) -> bool {
        let Some(sealed) = self.stamp.modified else { return false };
        let older = |time: Option<i128>| time.is_some_and(|time| time.saturating_add(MARGIN) < sealed);
        older(stamp.modified) && older(stamp.changed)
    }

    /// The folders that lead to the files and whose times count, relative to that of the files, and why
    /// nothing can be taken over at all.
    fn place(&self, path: &Path, subject: &Subject) -> std::result::Result<Place, &'static str> {
        let Some(own) = &self.manifest.own else {
            return Err("it is not a manifest of this program");
        };
        if own.scope != subject.scope {
            return Err("what belongs to the model is more or less than then");
        }
        let real = real_path(path).unwrap_or_default();
        let around = real.parent();
        let is_itself = real.file_name().is_some_and(|name| name == subject.name.as_str());
        let inside = subject.scope == Scope::Folder && self.folder.as_deref() == Some(real.as_path());
        if !is_itself {
            return Err("a symbolic link may lead elsewhere than then");
        }
        if !inside && (around.is_none() || self.folder.as_deref() != around) {
            return Err(
                "the manifest does not lie beside what is sealed, nor in it: it may be that of another \
                        model of this name",
            );
        }
        let root = if subject.scope == Scope::Folder { Some(real.as_path()) } else { around };
        let root = root.unwrap_or(&real).to_owned();
        let counts = subject.scope == Scope::Folder && !inside;
        if counts && !self.is_old_folder(&root) {
            return Err(
                "the folder itself changed since the manifest was written; a manifest in the folder \
                        does not ask for its times",
            );
        }
        Ok(Place { root, known: HashMap::new() })
    }

    fn is_old_folder(&self, path: &Path) -> bool {
        stamp_of_itself(path).is_ok_and(|stamp| stamp.is_some_and(|stamp| self.is_older(&stamp)))
    }

    /// Why no file and no tensor could be taken over, though the manifest lies where it should.
    fn why_nothing(
        &self,
        subject: &Subject,
        records: &HashMap<&str, &FileRecord>,
        unchanged: &[bool],
    ) -> &'static str {
        if unchanged.contains(&true) {
            return "the manifest has not the hashes that are asked for";
        }
        let alike = |file: &&SealedFile| {
            records.get(file.name.as_str()).is_some_and(|record| record.bytes == file.stamp.len)
        };
        let alike: Vec<&SealedFile> = subject.files.iter().filter(alike).collect();
        if alike.is_empty() {
            return "no file is as long as it was";
        }
        match alike.iter().any(|file| self.is_older(&file.stamp)) {
            true => "links or folders on the way to the files are younger than the manifest",
            false => {
                "no file is older than the manifest by more than two seconds, so each may have changed since"
            }
        }
    }

    fn is_unchanged(&self, file: &SealedFile, record: &FileRecord, place: &mut Place) -> bool {
        if file.stamp.len != record.bytes || !self.is_older(&file.stamp) {
            return false;
        }
        let name = if file.name == ALONE {
            file.path.file_name().map(Path::new)
        } else {
            Some(Path::new(&file.name))
        };
        let Some(name) = name else { return false };
        // The file itself, no link to it; and each folder between.
        if !stamp_of_itself(&place.root.join(name)).is_ok_and(|stamp| stamp == Some(file.stamp)) {
            return false;
        }
        let folders = name.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        folders.map(|folder| place.root.join(folder)).all(|folder| {
            let old = || self.is_old_folder(&folder);
            *place.known.entry(folder.clone()).or_insert_with(old)
        })
    }
}

/// Where the files are.
#[derive(Debug)]
struct Place {
    /// The folder to which their names are relative, without links.
    root: PathBuf,
    /// Folders below it, and whether they are older than the manifest.
    known: HashMap<PathBuf, bool>,
}

/// What is known already.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// For each file of the subject, its hashes where they are taken over.
    pub(super) files: Vec<Option<Digests>>,
    /// The hashes of tensors, by place.
    pub(super) tensors: HashMap<usize, Digests>,
    /// The hashes of the names of their rows, by place.
    pub(super) names: HashMap<usize, Digests>,
    /// Why nothing could be taken over, where that is so.
    pub(super) note: Option<Note>,
}

/// What can be taken over from the earlier manifest, if there is one.
///
/// # Errors
/// [`crate::Kind::Usage`], `other-subject`, where that is the manifest of something else.
pub(super) fn take_over(path: &Path, subject: &Subject, options: &SealOptions) -> Result<Taken> {
    let mut taken = Taken { files: vec![None; subject.files.len()], ..Taken::default() };
    let Some(earlier) = &options.earlier else { return Ok(taken) };
    if earlier.manifest.name != subject.name {
        return Err(Error::usage(
            "other-subject",
            "the manifest that is to be brought up to date is that of another model",
        )
        .in_file(path.display())
        .expected(escape(&subject.name))
        .found(escape(&earlier.manifest.name))
        .hint("give the manifest of this model another name; --force without --update replaces that one"));
    }
    let mut place = match earlier.place(path, subject) {
        Ok(place) => place,
        Err(why) => {
            let text = format!("all is hashed anew: {why}");
            taken.note = Some(Note::new("nothing-taken-over", text));
            return Ok(taken);
        }
    };
    let Some(own) = &earlier.manifest.own else { return Ok(taken) };
    let records: HashMap<&str, &FileRecord> =
        own.files.iter().map(|file| (file.name.as_str(), file)).collect();
    // A file that stayed, though its hashes are not all there.
    let mut unchanged = vec![false; subject.files.len()];
    for (number, file) in subject.files.iter().enumerate() {
        let Some(record) = records.get(file.name.as_str()) else { continue };
        if !earlier.is_unchanged(file, record, &mut place) {
            continue;
        }
        unchanged[number] = true;
        if record.digests.cover(options.algorithms) {
            taken.files[number] = Some(record.digests.only(options.algorithms));
        }
    }
    tensors(subject, own, &unchanged, options, &mut taken);
    let nothing =
        taken.files.iter().all(Option::is_none) && taken.tensors.is_empty() && taken.names.is_empty();
    if nothing {
        let text = format!("all is hashed anew: {}", earlier.why_nothing(subject, &records, &unchanged));
        taken.note = Some(Note::new("nothing-taken-over", text));
    }
    Ok(taken)
}

/// A tensor is taken over where the files that hold it are unchanged, and so is every file without
/// tensors that was read to find it: a program or a list says which bytes a name means. Where it is not
/// known which files hold it, all of them must be.
fn tensors(subject: &Subject, own: &Own, unchanged: &[bool], options: &SealOptions, taken: &mut Taken) {
    let Some(checkpoint) = &subject.checkpoint else { return };
    let same_view = own.options == subject.options
        && own.format.as_deref() == Some(checkpoint.format)
        && own.kind.as_deref() == Some(checkpoint.kind);
    let is_unchanged = |file: &usize| unchanged.get(*file).copied().unwrap_or(false);
    let holders: HashSet<usize> =
        checkpoint.tensors.iter().filter_map(|entry| subject.files_of(entry)).flatten().collect();
    let headers_stayed = subject.opened.iter().filter(|file| !holders.contains(file)).all(is_unchanged);
    // Of files outside of the folder nothing is known.
    let all_inside = subject.notes.iter().all(|note| note.code != subject::OUTSIDE);
    if !same_view || !headers_stayed || !all_inside {
        return;
    }
    type Key<'a> = (&'a TensorPath, &'a Option<Name>);
    let mut records: HashMap<Key, Vec<&TensorRecord>> = HashMap::new();
    for record in &own.tensors {
        records.entry((&record.path, &record.slot)).or_default().push(record);
    }
    let names = |files: &[usize]| -> Vec<&str> {
        files.iter().filter_map(|&file| subject.files.get(file)).map(|f| f.name.as_str()).collect()
    };
    let all_stayed = unchanged.iter().all(|&stayed| stayed) && own.files.len() == unchanged.len();
    for (number, entry) in checkpoint.tensors.iter().enumerate() {
        let slot = entry.role.slot().cloned();
        // Of two tensors of one name nobody knows which is which.
        let Some([record]) = records.get(&(&entry.path, &slot)).map(Vec::as_slice) else { continue };
        let stayed = match subject.files_of(entry) {
            Some(files) => files.iter().all(is_unchanged) && names(&files).iter().eq(record.files.iter()),
            None => all_stayed,
        };
        let names = record.row_names.as_deref();
        let of_entry = TensorRecord::of(entry, record.files.clone());
        let alike = TensorRecord { digests: record.digests, row_names: record.row_names.clone(), ..of_entry };
        // Names may stand in other files than the elements; a manifest may be older than their hashes.
        let named = match (&entry.labels, names) {
            (None, None) => true,
            (Some(labels), Some(names)) => {
                let files = subject.files_with(labels.sources().iter());
                files.map_or(all_stayed, |files| files.iter().all(is_unchanged))
                    && names.cover(options.algorithms)
            }
            _ => false,
        };
        if stayed && named && alike == **record && record.digests.cover(options.algorithms) {
            taken.tensors.insert(number, record.digests.only(options.algorithms));
            if let Some(names) = names {
                taken.names.insert(number, names.only(options.algorithms));
            }
        }
    }
}
