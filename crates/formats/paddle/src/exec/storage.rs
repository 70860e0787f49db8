//! Saving variables to files, and loading them.

use super::action::{Part, Save};
use super::compute::Computer;
use super::run::{Executor, WriteBudget};
use super::scope::{Scope, Value, is_selected_rows};
use crate::stream::combined::{self, Item};
use crate::stream::{Kind as StreamKind, Stream, Wanted, dense, lod, selected_rows};
use std::path::Path;
use std::sync::Arc;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{Name, TensorEntry, TensorPath};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::{DType, Encoding};
use weighbridge_core::topology::VariableKind;
use weighbridge_io::engine::{LocalSink, make_folders, run};
use weighbridge_io::source::{Cursor, FileSource, PathKind, SourceRef, check_no_links};

impl Executor {
    /// Saves variables to one file. Returns its length.
    pub(super) fn save(
        &self,
        save: &Save,
        scope: &Scope,
        computer: &mut Computer,
        budget: &mut WriteBudget,
    ) -> Result<u64> {
        let mut values = Vec::with_capacity(save.from.len());
        for name in &save.from {
            let value = scope.get(name).ok_or_else(|| undefined(name))?;
            values.push(self.ready(save, name, value, computer)?);
        }
        let mut file = FileBuilder::new("");
        let kind = match (values.as_slice(), save.combined) {
            ([Value::Tensor(entry)], false) if is_selected_rows(entry) => {
                selected_rows::write(&mut file, entry)?;
                "selected-rows"
            }
            ([Value::Tensor(entry)], false) => {
                dense::write(&mut file, entry)?;
                "tensor"
            }
            _ => {
                combined::layout_with(&mut file, values.iter().map(item))?;
                "combined"
            }
        };
        let plan = WritePlan { format: "paddle", kind, files: vec![file.finish()], losses: Vec::new() };
        budget.write(plan.bytes())?;
        self.write(&plan, &save.file, save.overwrite)?;
        Ok(plan.bytes())
    }

    /// Prepares a value for saving.
    fn ready(&self, save: &Save, name: &str, value: &Value, computer: &mut Computer) -> Result<Value> {
        let refuse = |what: &str| Err(Error::unsupported("not-savable", what).on_tensor(name));
        match value {
            Value::Words(_) if !save.combined => refuse("a vocabulary can be saved by `save_combine` only"),
            Value::Tensor(entry) if is_selected_rows(entry) && save.combined => {
                refuse("selected rows can be saved by `save` only")
            }
            Value::Tensor(entry) if is_selected_rows(entry) && save.as_f16 => {
                refuse("selected rows cannot be saved as f16")
            }
            Value::Tensor(entry) if save.as_f16 => {
                computer.cast(entry, DType::F16).map(Value::Tensor).map_err(|e| e.on_tensor(name))
            }
            other => Ok(other.clone()),
        }
    }

    fn write(&self, plan: &WritePlan, name: &Path, overwrite: bool) -> Result<()> {
        // Links were checked before the first step too; one may have been created since.
        check_no_links(&self.folder, name)?;
        let path = self.folder.join(name);
        let replace = overwrite && self.replace;
        if !replace && exists(&path)? {
            let hint = if overwrite {
                "move the file, or allow the replacement of files"
            } else {
                "move the file; the program sets overwrite=false"
            };
            return Err(Error::usage("exists", "the file already exists").in_file(path.display()).hint(hint));
        }
        if let Some(parent) = path.parent() {
            make_folders(parent)?;
        }
        run(plan, &LocalSink::file(&path, replace)?, &self.run).map(|_| ())
    }

    /// Loads the tensor of a single-tensor file. Returns it with the length of its stream.
    pub(super) fn load(
        &self,
        to: &str,
        file: &Path,
        part: Option<&Part>,
        as_f16: bool,
        kind: Option<&VariableKind>,
        computer: &mut Computer,
    ) -> Result<(Value, u64)> {
        let source = self.open(file)?;
        let path = TensorPath::new(vec![Name::from(to)]);
        let mut cursor = Cursor::new(source.clone(), 0);
        let whole = match kind {
            Some(VariableKind::SelectedRows) if part.is_some() || as_f16 => {
                return Err(Error::unsupported(
                    "not-loadable",
                    "selected rows can only be loaded whole and without a cast",
                )
                .on_tensor(to));
            }
            Some(VariableKind::SelectedRows) => selected_rows::read(&mut cursor, &path, &self.limits)?,
            Some(VariableKind::Tensor) | None => dense::read(&mut cursor, &path, &self.limits)?,
            Some(other) => {
                return Err(Error::unsupported(
                    "not-loadable",
                    "`load` supports tensors and selected rows only",
                )
                .on_tensor(to)
                .found(other.as_str()));
            }
        };
        let bytes = whole.header.stream_bytes;
        let entry = match part {
            None => whole.entry,
            Some(part) => {
                some_of(&whole.entry, &source, whole.header.data_offset, part).map_err(|e| e.on_tensor(to))?
            }
        };
        Ok((Value::Tensor(loaded(entry, as_f16, computer)?), bytes))
    }

    /// Loads all tensors of a combined file, which must contain exactly these. Returns them with the length
    /// of the file.
    pub(super) fn load_combine(
        &self,
        to: &[String],
        file: &Path,
        as_f16: bool,
        kind: impl Fn(&str) -> Option<VariableKind>,
        computer: &mut Computer,
    ) -> Result<(Vec<Value>, u64)> {
        let wanted = to.iter().map(|name| {
            let kind = match kind(name) {
                Some(VariableKind::Vocab) => StreamKind::Vocab,
                Some(VariableKind::Tensor) | None => StreamKind::Dense,
                Some(other) => {
                    return Err(Error::unsupported(
                        "not-loadable",
                        "`load_combine` supports dense tensors and vocabularies only",
                    )
                    .on_tensor(name)
                    .found(other.as_str()));
                }
            };
            Ok(Wanted { path: TensorPath::new(vec![Name::from(name.as_str())]), kind })
        });
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        let source = self.open(file)?;
        let value = |stream| match stream {
            Stream::Dense(dense) => loaded(dense.entry, as_f16, computer).map(Value::Tensor),
            Stream::Vocab(vocab) => Ok(Value::Words(vocab.words)),
        };
        let streams = combined::read_with(&source, &wanted, &self.limits)?;
        Ok((streams.into_iter().map(value).collect::<Result<_>>()?, source.len()))
    }

    fn open(&self, name: &Path) -> Result<SourceRef> {
        check_no_links(&self.folder, name)?;
        Ok(Arc::new(FileSource::open(self.folder.join(name))?))
    }
}

fn item(value: &Value) -> Item<'_> {
    match value {
        Value::Tensor(entry) => Item::Dense(entry),
        Value::Words(words) => Item::Vocab(words),
    }
}

/// True if a file or folder exists at `path`.
fn exists(path: &Path) -> Result<bool> {
    match PathKind::of(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == Kind::Io && error.code() == ErrorCode::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the error for a variable without a value.
pub(super) fn undefined(name: &str) -> Error {
    Error::mismatch("undefined-variable", "the variable has no value when it is read").found(name)
}

fn loaded(entry: TensorEntry, as_f16: bool, computer: &mut Computer) -> Result<TensorEntry> {
    if !as_f16 {
        return Ok(entry);
    }
    let name = entry.name();
    computer.cast(&entry, DType::F16).map_err(|e| e.on_tensor(name))
}

/// Returns the elements of a dense tensor from `seek` on, in the requested shape.
fn some_of(entry: &TensorEntry, source: &SourceRef, data: u64, part: &Part) -> Result<TensorEntry> {
    if !lod::levels(entry)?.is_empty() {
        return Err(Error::unsupported(
            "seek-with-lod",
            "partial loading of a tensor with LoD is not supported",
        )
        .hint("load the whole tensor; Paddle does not support this either"));
    }
    let outside = || {
        Error::mismatch("seek-outside", "the requested part exceeds the tensor")
            .expected(format_args!("within {} elements", entry.elements()))
            .found(format_args!("{} from element {} on", part.shape, part.seek))
    };
    let end = part.shape.elements().and_then(|count| count.checked_add(part.seek)).ok_or_else(outside)?;
    if end > entry.elements() {
        return Err(outside());
    }
    let size = u64::from(entry.stored.bits() / 8);
    let offset = part.seek.checked_mul(size).and_then(|skip| skip.checked_add(data)).ok_or_else(outside)?;
    TensorEntry::dense(entry.path.clone(), entry.stored, part.shape.clone(), source, offset, Encoding::ROW)
}
