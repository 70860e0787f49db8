//! Loading into existing objects, for programs that resume training.

use super::model::unknown;
use super::raw::Reader;
use super::{FileKind, Model, Optimizer, Parameter, Tensor};
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Name, Note, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;

/// Strictness of loading into an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadMode {
    /// Atomic and strict: names that the object does not have and different shapes are errors; files are read
    /// strictly.
    Strict,
    /// Like the original:
    ///
    /// - shapes come from the file and replace those of the object;
    /// - bytes after the end are ignored; the first of duplicate stats and settings counts, and the last of
    ///   duplicate parameters;
    /// - a model replaces its parameters one by one, so that those before a bad one **have been replaced** when
    ///   the error is returned;
    /// - an optimizer ignores keys that it does not have.
    ///
    /// Two differences remain. Shapes with a volume above 2^32 are errors (in the original the volume wraps around
    /// and the values are misread). A parameter count that exceeds the file fails before the first parameter is
    /// replaced.
    AsOriginal,
}

/// Source of a load: a file or another object.
#[derive(Debug, Clone)]
pub enum LoadFrom<'a, T> {
    /// An object in memory.
    Object(&'a T),
    /// A file of the same kind.
    Source(SourceRef),
}

impl<'a, T> From<&'a T> for LoadFrom<'a, T> {
    fn from(object: &'a T) -> Self {
        Self::Object(object)
    }
}

impl<T> From<SourceRef> for LoadFrom<'_, T> {
    fn from(source: SourceRef) -> Self {
        Self::Source(source)
    }
}

/// Report of a load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// Number of replaced parameters or settings.
    pub replaced: usize,
    /// Names that the file does not have; the object keeps their values.
    pub missing: Vec<TensorPath>,
    /// Names that the object does not have; they were ignored.
    pub ignored: Vec<TensorPath>,
    /// Oddities of the file.
    pub notes: Vec<Note>,
}

/// Options for reading as the original.
fn original() -> OpenOptions {
    OpenOptions { lenient: true, ..OpenOptions::default() }
}

fn options(mode: LoadMode) -> OpenOptions {
    match mode {
        LoadMode::Strict => OpenOptions::default(),
        LoadMode::AsOriginal => original(),
    }
}

fn check_shape(old: &Tensor, new: &Tensor) -> Result<()> {
    if old.shape() == new.shape() {
        return Ok(());
    }
    Err(Error::mismatch("shape-differs", "the shape of the parameter differs from the file")
        .expected(old.shape())
        .found(new.shape()))
}

impl Model {
    /// Replaces parameters by those with the same address, together with their stats. Stats are removed where the
    /// source has none or `with_stats` is false. The addresses of the model do not change.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`]: `unknown-address`, and in [`LoadMode::Strict`] `shape-differs`;
    /// and errors of reading. [`LoadMode`] defines which parameters are replaced then.
    pub fn load_into<'a>(
        &mut self,
        from: impl Into<LoadFrom<'a, Self>>,
        with_stats: bool,
        mode: LoadMode,
    ) -> Result<LoadReport> {
        match (from.into(), mode) {
            (LoadFrom::Object(model), _) => self.take_from(model.clone(), with_stats, mode),
            (LoadFrom::Source(source), LoadMode::Strict) => {
                let (model, notes) = Self::read_noted(source.clone(), &options(mode), with_stats)?;
                let report = self.take_from(model, with_stats, mode);
                report.map(|r| LoadReport { notes, ..r }).map_err(|e| e.in_file(source.label()))
            }
            (LoadFrom::Source(source), LoadMode::AsOriginal) => {
                let label = source.label().to_owned();
                self.load_as_original(source, with_stats).map_err(|e| e.in_file(label))
            }
        }
    }

    fn take_from(&mut self, mut model: Self, with_stats: bool, mode: LoadMode) -> Result<LoadReport> {
        if mode == LoadMode::Strict {
            for (path, new) in model.walk() {
                let old = self.get(path).ok_or_else(|| unknown(path))?;
                check_shape(old.value(), new.value()).map_err(|e| e.on_tensor(path))?;
            }
        }
        let mut loaded = HashSet::new();
        for (path, new) in model.walk_mut() {
            let old = self.get_mut(path).ok_or_else(|| unknown(path))?;
            std::mem::swap(old, new);
            if !with_stats {
                old.clear_stats();
            }
            loaded.insert(path.clone());
        }
        Ok(self.report(&loaded))
    }

    /// Replaces entry by entry in file order.
    fn load_as_original(&mut self, source: SourceRef, with_stats: bool) -> Result<LoadReport> {
        let options = original();
        let mut reader = Reader::new(source, &options)?;
        reader.expect(FileKind::Model)?;
        let mut loaded = HashSet::new();
        for _ in 0..reader.entries()? {
            let entry = reader.entry()?;
            let fail = |e: Error| e.at(entry.at).on_tensor(&entry.path);
            let old = self.get_mut(&entry.path).ok_or_else(|| fail(unknown(&entry.path)))?;
            *old = Parameter::from_raw(&reader.source(), entry.parameter, with_stats).map_err(fail)?;
            if !loaded.insert(entry.path) {
                reader.see("duplicate-address", entry.at);
            }
        }
        let notes = reader.finish()?;
        Ok(LoadReport { notes, ..self.report(&loaded) })
    }

    fn report(&self, loaded: &HashSet<TensorPath>) -> LoadReport {
        let missing = self.walk().map(|(path, _)| path).filter(|path| !loaded.contains(path));
        LoadReport { replaced: loaded.len(), missing: missing.cloned().collect(), ..LoadReport::default() }
    }
}

impl Parameter {
    /// Replaces value and stats. Stats are removed where the source has none or `with_stats` is false. On an error
    /// nothing changes.
    ///
    /// # Errors
    /// In [`LoadMode::Strict`], [`weighbridge_core::Kind::Mismatch`], code `shape-differs`; and errors of
    /// reading.
    pub fn load_into<'a>(
        &mut self,
        from: impl Into<LoadFrom<'a, Self>>,
        with_stats: bool,
        mode: LoadMode,
    ) -> Result<LoadReport> {
        let (mut new, notes) = match from.into() {
            LoadFrom::Object(parameter) => (parameter.clone(), Vec::new()),
            LoadFrom::Source(source) => Self::read_noted(source, &options(mode), with_stats)?,
        };
        if mode == LoadMode::Strict {
            check_shape(self.value(), new.value())?;
        }
        if !with_stats {
            new.clear_stats();
        }
        *self = new;
        Ok(LoadReport { replaced: 1, notes, ..LoadReport::default() })
    }
}

impl Optimizer {
    /// Replaces settings by those with the same key and type. Settings missing from the file keep their values and are
    /// reported. On an error nothing changes.
    ///
    /// # Errors
    /// In [`LoadMode::Strict`], [`weighbridge_core::Kind::Mismatch`], code `unknown-key`, for a key that this
    /// optimizer does not have, as in the file of another class; and errors of reading.
    pub fn load_into<'a>(
        &mut self,
        from: impl Into<LoadFrom<'a, Self>>,
        mode: LoadMode,
    ) -> Result<LoadReport> {
        let (new, notes) = match from.into() {
            LoadFrom::Object(optimizer) => (optimizer.clone(), Vec::new()),
            LoadFrom::Source(source) => Self::read_noted(source, &options(mode))?,
        };
        let mut report = LoadReport { notes, ..LoadReport::default() };
        let uints = take_settings(&self.uints, new.uints, &mut report);
        let floats = take_settings(&self.floats, new.floats, &mut report);
        if mode == LoadMode::Strict
            && let Some(key) = report.ignored.first()
        {
            return Err(Error::mismatch("unknown-key", format!("the optimizer has no setting `{key}`"))
                .hint("check that the file belongs to an optimizer of this class"));
        }
        self.uints = uints;
        self.floats = floats;
        Ok(report)
    }
}

/// Returns the settings of `old` with the values of `new`.
fn take_settings(old: &[(Name, u32)], new: Vec<(Name, u32)>, report: &mut LoadReport) -> Vec<(Name, u32)> {
    let path = |key: &Name| TensorPath::new([key.clone()]);
    let known: HashSet<&Name> = old.iter().map(|(key, _)| key).collect();
    report.ignored.extend(new.iter().map(|(key, _)| key).filter(|key| !known.contains(key)).map(path));
    let new: std::collections::HashMap<Name, u32> = new.into_iter().collect();
    let take = |(key, value): &(Name, u32)| {
        let value = match new.get(key) {
            Some(&value) => {
                report.replaced += 1;
                value
            }
            None => {
                report.missing.push(path(key));
                *value
            }
        };
        (key.clone(), value)
    };
    old.iter().map(take).collect()
}
