//! Source files of virtual datasets, in the folder of an HDF5 file.

use super::mapped::source_name;
use super::sources::{SourceDataset, Sources};
use super::walk::{read, resolve};
use crate::{Contents, Dataset};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase::Opt;
use weighbridge_core::text::escape;
use weighbridge_core::{ErrorCode, phrase};
use weighbridge_io::source::{FolderRef, SourceRef, check_plain};

/// The file itself and the files in its folder, as sources of virtual datasets. Virtual datasets in these files are not
/// followed, which prevents cycles.
#[derive(Debug)]
pub struct SiblingFiles {
    own: SourceRef,
    /// Folder, and the name of the file in it.
    folder: Option<(FolderRef, PathBuf)>,
    limits: Limits,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    /// Files by name; the file itself has the name `.`.
    files: HashMap<String, Listed>,
    /// Requested datasets, by file and path.
    datasets: HashMap<(String, String), Arc<SourceDataset>>,
    /// Total length of all files in bytes.
    bytes: u64,
}

/// Datasets, problems and links of a file, by path.
#[derive(Debug)]
struct Listed {
    label: String,
    datasets: HashMap<Vec<String>, Dataset>,
    problems: HashMap<Vec<String>, Error>,
    links: HashMap<Vec<String>, String>,
}

impl SiblingFiles {
    /// Creates the sources for `own`, with its folder and its path there; `None` for a file without a folder.
    pub fn new(own: SourceRef, folder: Option<(FolderRef, PathBuf)>, limits: &Limits) -> Self {
        let opened = Mutex::new(Opened { bytes: own.len(), ..Opened::default() });
        Self { own, folder, limits: limits.clone(), opened }
    }

    /// Opens the file named `file`; the flag is true unless it is the file itself.
    fn source(&self, file: &str) -> Result<(SourceRef, bool)> {
        if file == "." {
            return Ok((self.own.clone(), false));
        }
        let mut parts = Path::new(file).components();
        let (Some(Component::Normal(name)), None, Ok(())) = (parts.next(), parts.next(), check_plain(file))
        else {
            return Err(leads_out(file, "a file name without folders"));
        };
        let Some((folder, own)) = &self.folder else {
            return Err(missing_file(file).hint("open the file by its path, in the folder of its sources"));
        };
        if own.file_name() == Some(name) {
            return Ok((self.own.clone(), false));
        }
        let place = own.with_file_name(name);
        if folder.leads_out(&place) && !folder.leads_out(own) {
            return Err(leads_out(file, "a file, not a symbolic link to another folder"));
        }
        let source = folder.open(&place)?.ok_or_else(|| missing_file(file))?;
        Ok((source, true))
    }
}

impl Sources for SiblingFiles {
    fn bytes(&self) -> u64 {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    fn dataset(&self, file: &str, path: &str) -> Result<Arc<SourceDataset>> {
        // `./NAME` is the same file.
        let file = file.strip_prefix("./").filter(|name| *name != ".").unwrap_or(file);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (file.to_owned(), path.to_owned());
        if let Some(found) = opened.datasets.get(&key) {
            return Ok(found.clone());
        }
        if !opened.files.contains_key(file) {
            let (source, is_other) = self.source(file)?;
            let contents = read(&source, &self.limits)?;
            opened.bytes = opened.bytes.saturating_add(if is_other { source.len() } else { 0 });
            opened.files.insert(file.to_owned(), Listed::of(contents, source.label()));
        }
        let Some(listed) = opened.files.get(file) else { return Err(missing(file, path)) };
        let found = Arc::new(listed.dataset(file, path, &self.limits)?);
        opened.datasets.insert(key, found.clone());
        Ok(found)
    }
}

impl Listed {
    fn of(contents: Contents, label: &str) -> Self {
        let datasets = contents.items.into_iter().filter_map(|item| Some((item.path, item.dataset?)));
        let links = contents.links.into_iter().map(|link| (link.path, link.target));
        let mut problems = HashMap::new();
        for problem in contents.problems {
            problems.entry(problem.path).or_insert(problem.error);
        }
        if contents.is_open {
            let text = "HDF5: a source file of the virtual dataset is marked as open for writing";
            problems.insert(Vec::new(), Error::unsupported("hdf5-open", text));
        }
        let label = label.to_owned();
        Self { label, datasets: datasets.collect(), problems, links: links.collect() }
    }

    /// Error of the object at `place`, if any.
    fn problem(&self, place: &[String]) -> Option<Error> {
        let error = self.problems.get(place)?;
        Some(match error.code() {
            ErrorCode::Hdf5Virtual => {
                Error::unsupported("hdf5-virtual", "HDF5: a source of the virtual dataset is virtual itself")
                    .hint("copy the dataset with h5py or h5repack first")
            }
            ErrorCode::Hdf5Open => Error::unsupported("hdf5-open", error.message()).hint(
                "if its writer was killed, clear the mark with h5clear; else wait until the writer closes it",
            ),
            code => Error::new(error.kind(), code, error.message()),
        })
        .map(|error| error.in_file(&self.label))
    }

    fn dataset(&self, file: &str, path: &str, limits: &Limits) -> Result<SourceDataset> {
        // The HDF5 library rejects files that are cut short or open for writing.
        if let Some(error) = self.problem(&[]) {
            return Err(error);
        }
        let place = resolve(&[], path, &self.links, limits).ok_or_else(|| missing(file, path))?;
        let Some(dataset) = self.datasets.get(&place) else {
            return Err(self
                .problem(&place)
                .unwrap_or_else(|| missing(file, path))
                .found(source_name(file, path)));
        };
        let (unpacked, kept) = dataset.unpacked_for_a_run();
        Ok(SourceDataset {
            element: dataset.stored.element.clone(),
            dims: dataset.shape.dims().to_vec(),
            bytes: dataset.bytes()?,
            unpacked,
            kept,
        })
    }
}

fn missing_file(file: &str) -> Error {
    Error::corrupt("hdf5-virtual-missing", "HDF5: a source file of the virtual dataset is missing")
        .expected("a file in the same folder")
        .found(format_args!("no {}", escape(file)))
        .hint(phrase![
            "put the source into the folder of this file; ",
            Opt::Lenient,
            " skips the dataset (h5py would read fill values)"
        ])
}

fn missing(file: &str, path: &str) -> Error {
    Error::corrupt("hdf5-virtual-missing", "HDF5: a source dataset of the virtual dataset is missing")
        .found(format_args!("no {}", source_name(file, path)))
        .hint(phrase![Opt::Lenient, " skips the dataset (h5py would read fill values)"])
}

fn leads_out(file: &str, expected: &str) -> Error {
    Error::unsupported(
        "unsafe-name",
        "HDF5: a source of the virtual dataset is outside of the folder of its file",
    )
    .expected(expected)
    .found(escape(file))
    .hint(phrase!["copy the dataset with h5py or h5repack first; ", Opt::Lenient, " skips it"])
}
