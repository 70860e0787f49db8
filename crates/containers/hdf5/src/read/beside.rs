//! Files beside an HDF5 file, as far as its virtual datasets may lead there.

use super::mapped::shown;
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

/// The file itself and those in the same folder. Their own virtual datasets are not followed, so that nothing
/// leads back.
#[derive(Debug)]
pub struct Beside {
    own: SourceRef,
    /// The folder, and the name of the file in it.
    folder: Option<(FolderRef, PathBuf)>,
    limits: Limits,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    /// By their names; the file itself by the name `.`.
    files: HashMap<String, Listed>,
    /// The datasets that were asked for, by file and path.
    datasets: HashMap<(String, String), Arc<SourceDataset>>,
    /// Bytes of all files together.
    bytes: u64,
}

/// The datasets, problems and links of a file, by path.
#[derive(Debug)]
struct Listed {
    label: String,
    datasets: HashMap<Vec<String>, Dataset>,
    problems: HashMap<Vec<String>, Error>,
    links: HashMap<Vec<String>, String>,
}

impl Beside {
    /// The files beside `own`, which has that name in the folder; none for a file without a folder.
    pub fn new(own: SourceRef, folder: Option<(FolderRef, PathBuf)>, limits: &Limits) -> Self {
        let opened = Mutex::new(Opened { bytes: own.len(), ..Opened::default() });
        Self { own, folder, limits: limits.clone(), opened }
    }

    /// The file of that name, and whether it is another one.
    fn source(&self, file: &str) -> Result<(SourceRef, bool)> {
        if file == "." {
            return Ok((self.own.clone(), false));
        }
        let mut parts = Path::new(file).components();
        let (Some(Component::Normal(name)), None, Ok(())) = (parts.next(), parts.next(), check_plain(file))
        else {
            return Err(leads_out(file, "a name without a folder"));
        };
        let Some((folder, own)) = &self.folder else {
            return Err(missing_file(file).hint("open the file by its path, in the folder with its sources"));
        };
        if own.file_name() == Some(name) {
            return Ok((self.own.clone(), false));
        }
        let place = own.with_file_name(name);
        if folder.leads_out(&place) && !folder.leads_out(own) {
            return Err(leads_out(file, "a file, and no link to another folder"));
        }
        let source = folder.open(&place)?.ok_or_else(|| missing_file(file))?;
        Ok((source, true))
    }
}

impl Sources for Beside {
    fn bytes(&self) -> u64 {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    fn dataset(&self, file: &str, path: &str) -> Result<Arc<SourceDataset>> {
        // The same file, which is opened once.
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
            let text = "HDF5: a file of a virtual dataset is marked as still open for writing";
            problems.insert(Vec::new(), Error::unsupported("hdf5-open", text));
        }
        let label = label.to_owned();
        Self { label, datasets: datasets.collect(), problems, links: links.collect() }
    }

    /// The error of the object at that path.
    fn problem(&self, place: &[String]) -> Option<Error> {
        let error = self.problems.get(place)?;
        Some(match error.code() {
            ErrorCode::Hdf5Virtual => {
                Error::unsupported("hdf5-virtual", "HDF5: a virtual dataset that is made of virtual datasets")
                    .hint("copy the dataset with h5py or h5repack first")
            }
            ErrorCode::Hdf5Open => Error::unsupported("hdf5-open", error.message())
                .hint("if its writer was killed, h5clear removes the mark; else wait until it is done"),
            code => Error::new(error.kind(), code, error.message()),
        })
        .map(|error| error.in_file(&self.label))
    }

    fn dataset(&self, file: &str, path: &str, limits: &Limits) -> Result<SourceDataset> {
        // HDF5's own library opens no file that is cut short or still being written.
        if let Some(error) = self.problem(&[]) {
            return Err(error);
        }
        let place = resolve(&[], path, &self.links, limits).ok_or_else(|| missing(file, path))?;
        let Some(dataset) = self.datasets.get(&place) else {
            return Err(self.problem(&place).unwrap_or_else(|| missing(file, path)).found(shown(file, path)));
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
    Error::corrupt("hdf5-virtual-missing", "HDF5: a file of a virtual dataset is not there")
        .expected("a file in the same folder")
        .found(format_args!("no {}", escape(file)))
        .hint(phrase![
            "put it beside this file; ",
            Opt::Lenient,
            " leaves the dataset out, h5py would read its fill value instead"
        ])
}

fn missing(file: &str, path: &str) -> Error {
    Error::corrupt("hdf5-virtual-missing", "HDF5: a dataset that a virtual one is made of is not there")
        .found(format_args!("no {}", shown(file, path)))
        .hint(phrase![Opt::Lenient, " leaves the dataset out; h5py would read its fill value instead"])
}

fn leads_out(file: &str, expected: &str) -> Error {
    Error::unsupported("unsafe-name", "HDF5: a virtual dataset leads out of the folder of its file")
        .expected(expected)
        .found(escape(file))
        .hint(phrase!["copy the dataset with h5py or h5repack first; ", Opt::Lenient, " leaves it out"])
}
