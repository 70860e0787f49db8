//! Typed access to an opened model file: tensors by name, values as Rust numbers, and conversions.

use crate::checkpoint::{Checkpoint, IndexTransform, Note, Role, TensorEntry};
use crate::engine::Progress;
use crate::error::{Error, Result};
use crate::formats::{self, OpenOptions};
use crate::ops::edit::Rule;
use crate::ops::slice::{Slice, Taken, read_taken, resolve};
use crate::ops::{self, ConvertOptions, Written};
use crate::plan::WritePlan;
use crate::tensor::{Cast, DType, Order, Rounding, Shape};
use crate::text::path_text;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Opens the file or folder at `path`. Reads headers, never tensor data.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// # let folder = tempfile::tempdir().unwrap();
/// # let target = folder.path().join("xor.safetensors");
/// use weighbridge::tensor::{DType, Order};
///
/// let model = weighbridge::open(&path)?;
/// let weights = model.tensor("w1")?;
/// assert_eq!((weights.dtype(), weights.shape()), (DType::F32, &[8, 2][..]));
/// let values: Vec<f32> = weights.read()?;
/// let rows = weights.slice((0..3, ..))?.to_bytes(Order::Row)?;
/// assert_eq!((values.len(), rows.len()), (16, 24));
/// for tensor in &model {
///     println!("{} {} {:?}", tensor.name(), tensor.dtype(), tensor.shape());
/// }
/// model.convert(&target).cast(DType::F16).run()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Kind::Io`] where the file cannot be read, and the errors of the format's reader.
pub fn open(path: impl AsRef<Path>) -> Result<Model> {
    open_with(path, &OpenOptions::default())
}

/// Opens the file or folder at `path` with options, such as a format or limits.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::OpenOptions;
///
/// let options = OpenOptions { format: Some("primitiv".to_owned()), ..OpenOptions::default() };
/// let model = weighbridge::open_with(&path, &options)?;
/// assert_eq!(model.format(), "primitiv");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Model> {
    let path = path.as_ref();
    let index = formats::open_with(path, options)?;
    Ok(Model { index, path: Some(path.to_owned()), options: options.clone(), places: OnceLock::new() })
}

/// Opened model file: its tensors by name, in the order of the file.
///
/// A model can also be made of an index in memory, by `Model::from`:
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// use std::sync::Arc;
/// use weighbridge::checkpoint::TensorPath;
/// use weighbridge::source::{MemorySource, SourceRef};
/// use weighbridge::tensor::{DType, Encoding, Shape};
/// use weighbridge::{Checkpoint, Model, TensorEntry};
///
/// let bytes: SourceRef = Arc::new(MemorySource::new("memory", vec![1, 2, 3, 4, 5, 6]));
/// let mut index = Checkpoint::new("test", "test", "memory");
/// let path = TensorPath::from_dotted("fc1.w");
/// index.tensors.push(TensorEntry::dense(path, DType::U8, Shape::from([2, 3]), &bytes, 0, Encoding::ROW)?);
///
/// let model = Model::from(index);
/// assert_eq!(model.tensor("fc1.w")?.slice((1, ..))?.read::<u8>()?, [4, 5, 6]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Model {
    index: Checkpoint,
    path: Option<PathBuf>,
    options: OpenOptions,
    /// Index of the tensor for each displayed name; `None` where several tensors have that name.
    places: OnceLock<HashMap<String, Option<usize>>>,
}

/// Model of an index that was made or changed in memory. It has no path, so files beside the model are unknown.
impl From<Checkpoint> for Model {
    fn from(index: Checkpoint) -> Self {
        Self { index, path: None, options: OpenOptions::default(), places: OnceLock::new() }
    }
}

impl Model {
    /// Returns the tensor with this name: as displayed (`fc1.w`, `fc1.w/Adam.m1`), with `/` instead of dots, or its path as a
    /// JSON array.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`]: `no-such-tensor`, with the nearest names as hint; `ambiguous-name`; `lost-tensor` for a tensor
    /// that a damaged file has lost.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>> {
        let places = self.places.get_or_init(|| {
            let mut places = HashMap::with_capacity(self.index.tensors.len());
            for (place, tensor) in self.index.tensors.iter().enumerate() {
                places.entry(tensor.text()).and_modify(|known| *known = None).or_insert(Some(place));
            }
            places
        });
        match places.get(name).copied().flatten().and_then(|place| self.index.tensors.get(place)) {
            Some(entry) => Ok(TensorView { entry }),
            None => self.index.tensor(name).map(|entry| TensorView { entry }),
        }
    }

    /// Returns a tensor or a slice of it, by text: `fc1.w[0:3, :]`, `embeddings.user['alice']`.
    ///
    /// ```
    /// # fn main() -> weighbridge::Result<()> {
    /// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
    /// let model = weighbridge::open(&path)?;
    /// let every_second_row = model.select("w1[::2, :]")?;
    /// assert_eq!(every_second_row.shape(), [4, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor), and as [`TensorView::slice`].
    pub fn select(&self, text: &str) -> Result<TensorSlice<'_>> {
        let (entry, slice) = resolve(&self.index, text)?;
        TensorView { entry }.slice(slice)
    }

    /// Iterates over the tensors, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TensorView<'_>> {
        self.index.tensors.iter().map(|entry| TensorView { entry })
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.index.tensors.len()
    }

    /// Returns true if there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.index.tensors.is_empty()
    }

    /// Returns the id of the format, such as `safetensors`.
    pub fn format(&self) -> &'static str {
        self.index.format
    }

    /// Returns the notes of the reader: oddities and assumptions about the file.
    pub fn notes(&self) -> &[Note] {
        &self.index.notes
    }

    /// Returns the index of the file: tensors, metadata, notes.
    pub fn index(&self) -> &Checkpoint {
        &self.index
    }

    /// Returns the index of the file by value, to be changed.
    pub fn into_index(self) -> Checkpoint {
        self.index
    }

    /// Starts a conversion of this model to the file or folder `target`. [`Conversion::run`] writes it.
    pub fn convert(&self, target: impl Into<PathBuf>) -> Conversion<'_> {
        let options = ConvertOptions { open: self.options.clone(), ..ConvertOptions::default() };
        Conversion { model: self, target: target.into(), options }
    }
}

impl<'a> IntoIterator for &'a Model {
    type Item = TensorView<'a>;
    type IntoIter = Box<dyn ExactSizeIterator<Item = TensorView<'a>> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

/// Tensor of an opened model. Elements are read on demand.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// let model = weighbridge::open(&path)?;
/// for tensor in &model {
///     let values: Vec<f64> = tensor.read()?; // f32 elements, widened exactly
///     let largest = values.iter().copied().fold(f64::MIN, f64::max);
///     println!("{} {} {:?}: at most {largest}", tensor.name(), tensor.dtype(), tensor.shape());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    entry: &'a TensorEntry,
}

impl<'a> TensorView<'a> {
    /// Returns the displayed name: the parts of its path, joined by dots. Optimizer state ends in `/slot`.
    pub fn name(&self) -> String {
        self.entry.text()
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.entry.dtype()
    }

    /// Returns the size of each dimension.
    pub fn shape(&self) -> &'a [u64] {
        self.entry.shape.dims()
    }

    /// Returns the role of the tensor: parameter, embedding, optimizer state and so on.
    pub fn role(&self) -> &'a Role {
        &self.entry.role
    }

    /// Returns the entry in the index: path, extents, attributes.
    pub fn entry(&self) -> &'a TensorEntry {
        self.entry
    }

    /// Reads all elements, in row-major order.
    ///
    /// The element type must be `T`. `f32` and `f64` also read narrower types whose values they represent exactly: `f32` reads
    /// `f16`, `bf16` and `i16`. For lossy casts, such as `f32` from `f64`, convert with a [cast](Conversion::cast).
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`], `other-dtype`, where the elements have another type; errors of the file.
    pub fn read<T: Scalar>(&self) -> Result<Vec<T>> {
        let entry = as_type::<T>(self.entry)?;
        Ok(T::all_from_le(&entry.read_tensor(Order::Row)?))
    }

    /// Reads all elements as little-endian bytes, in the given order.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn to_bytes(&self, order: Order) -> Result<Vec<u8>> {
        self.entry.read_tensor(order)
    }

    /// Selects a part of the tensor, as numpy indexes: `(0..3, ..)`, `5`, `(.., -1)`. Reads nothing yet.
    ///
    /// Indices are `i64`, in a tuple of at most six. Steps are written as text: `Slice::parse("[::2, 0]")` of
    /// [`Slice`](crate::ops::slice::Slice).
    ///
    /// # Errors
    /// [`crate::Kind::Usage`]: `too-many-indices`, `index-out-of-range`.
    pub fn slice(&self, slice: impl Into<Slice>) -> Result<TensorSlice<'a>> {
        let taken =
            slice.into().select(&self.entry.shape).map_err(|error| error.on_tensor(self.entry.name()))?;
        Ok(TensorSlice { entry: self.entry, shape: taken.shape(), taken })
    }
}

/// Part of a tensor. Elements are read on demand.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::tensor::Order;
///
/// let model = weighbridge::open(&path)?;
/// let last_column = model.tensor("w1")?.slice((.., -1))?;
/// assert_eq!(last_column.shape(), [8]);
/// assert_eq!(last_column.read::<f32>()?.len(), 8);
/// assert_eq!(last_column.to_bytes(Order::Row)?.len(), 32);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TensorSlice<'a> {
    entry: &'a TensorEntry,
    taken: Taken,
    shape: Shape,
}

impl TensorSlice<'_> {
    /// Returns the size of each dimension, without the dimensions that an index removed.
    pub fn shape(&self) -> &[u64] {
        self.shape.dims()
    }

    /// Reads the elements, in row-major order.
    ///
    /// # Errors
    /// As [`TensorView::read`].
    pub fn read<T: Scalar>(&self) -> Result<Vec<T>> {
        let entry = as_type::<T>(self.entry)?;
        Ok(T::all_from_le(&read_taken(&entry, &self.taken, Order::Row)?))
    }

    /// Reads the elements as little-endian bytes, in the given order.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn to_bytes(&self, order: Order) -> Result<Vec<u8>> {
        read_taken(self.entry, &self.taken, order)
    }
}

/// Rust type that is the element type of tensors.
pub trait Scalar: sealed::FromLe {
    /// The corresponding element type.
    const DTYPE: DType;
}

mod sealed {
    pub trait FromLe: Sized {
        fn all_from_le(bytes: &[u8]) -> Vec<Self>;
    }
}

macro_rules! scalars {
    ($($own:ty => $dtype:ident),*) => {$(
        impl sealed::FromLe for $own {
            fn all_from_le(bytes: &[u8]) -> Vec<Self> {
                let (elements, _) = bytes.as_chunks();
                elements.iter().map(|&element| Self::from_le_bytes(element)).collect()
            }
        }

        impl Scalar for $own {
            const DTYPE: DType = DType::$dtype;
        }
    )*};
}

scalars!(
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    f32 => F32, f64 => F64
);

impl sealed::FromLe for bool {
    fn all_from_le(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|&byte| byte != 0).collect()
    }
}

impl Scalar for bool {
    const DTYPE: DType = DType::Bool;
}

/// Returns the tensor with elements of type `T`.
fn as_type<T: Scalar>(entry: &TensorEntry) -> Result<Cow<'_, TensorEntry>> {
    let dtype = entry.dtype();
    if dtype == T::DTYPE {
        return Ok(Cow::Borrowed(entry));
    }
    // A tensor with a pending cast already has values that differ from the file.
    if entry.cast.is_some() || !dtype.cast_is_supported(T::DTYPE) || !dtype.cast_is_exact(T::DTYPE) {
        return Err(Error::mismatch("other-dtype", "the element type is not the requested type")
            .on_tensor(entry.name())
            .expected(T::DTYPE)
            .found(dtype));
    }
    let cast = Cast { to: T::DTYPE, rounding: Rounding::default() };
    Ok(Cow::Owned(TensorEntry { cast: Some(cast), ..entry.clone() }))
}

/// Description of a conversion. Nothing is written before [`run`](Self::run).
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// # let folder = tempfile::tempdir().unwrap();
/// # let target = folder.path().join("xor.npz");
/// use weighbridge::tensor::DType;
///
/// let model = weighbridge::open(&path)?;
/// let conversion = model.convert(&target).select("w*").rename("w1", "layer1.weight").cast(DType::F16);
/// for loss in conversion.plan()?.losses {
///     println!("{}: {}", loss.subject, loss.detail);
/// }
/// conversion.run()?;
/// assert_eq!(weighbridge::open(&target)?.tensor("layer1.weight")?.dtype(), DType::F16);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a conversion does nothing before `run`"]
pub struct Conversion<'a> {
    model: &'a Model,
    target: PathBuf,
    options: ConvertOptions,
}

impl Conversion<'_> {
    /// Writes this format. By default the extension of the target decides.
    pub fn to(mut self, format: impl Into<String>) -> Self {
        self.options.to = Some(format.into());
        self
    }

    /// Writes this kind of file within the format.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.options.kind = Some(kind.into());
        self
    }

    /// Sets one of the [settings](crate::formats::FormatInfo::settings) of the format.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.settings.push((name.into(), value.into()));
        self
    }

    /// Keeps only tensors whose names match this pattern, or another selected pattern.
    pub fn select(mut self, pattern: impl Into<String>) -> Self {
        self.options.changes.select.push(pattern.into());
        self
    }

    /// Drops the tensors whose names match this pattern.
    pub fn drop(mut self, pattern: impl Into<String>) -> Self {
        self.options.changes.drop.push(pattern.into());
        self
    }

    /// Drops optimizer state.
    pub fn without_state(mut self) -> Self {
        self.options.changes.no_state = true;
        self
    }

    /// Renames tensors and whole modules from `old` to `new`.
    pub fn rename(mut self, old: &str, new: &str) -> Self {
        self.options.changes.rename.push(format!("{old}={new}"));
        self
    }

    /// Applies a rule, in the grammar of [`edit`](mod@crate::ops::edit).
    pub fn rule(mut self, rule: Rule) -> Self {
        self.options.changes.rules.push(rule);
        self
    }

    /// Casts floating-point tensors to this type.
    pub fn cast(mut self, dtype: DType) -> Self {
        self.options.changes.cast = Some(dtype);
        self
    }

    /// Sets the rounding of casts; the default is to the nearest value.
    pub fn rounding(mut self, rounding: Rounding) -> Self {
        self.options.changes.rounding = rounding;
        self
    }

    /// Applies a change to the index before all others.
    pub fn transform(mut self, transform: impl IndexTransform + 'static) -> Self {
        self.options.changes.first.push(Arc::new(transform));
        self
    }

    /// Fails instead of writing if anything would be lost: a tensor, metadata, or digits in a cast.
    pub fn deny_loss(mut self) -> Self {
        self.options.deny_loss = true;
        self
    }

    /// Replaces the target if it exists.
    pub fn overwrite(mut self) -> Self {
        self.options.force = true;
        self
    }

    /// Reports progress to `progress`, which can also cancel the work.
    pub fn progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.options.run.progress = progress;
        self
    }

    /// Returns the options behind these methods, for settings without a method of their own.
    pub fn options_mut(&mut self) -> &mut ConvertOptions {
        &mut self.options
    }

    /// Plans the conversion: every file and every loss. Nothing is written.
    ///
    /// # Errors
    /// As [`crate::ops::plan`].
    pub fn plan(&self) -> Result<WritePlan> {
        self.prepare().map(|(plan, _)| plan)
    }

    /// Writes the target, all or nothing. Losses are in `plan.losses` of the result; [`plan`](Self::plan) returns them before
    /// anything is written.
    ///
    /// # Errors
    /// As [`plan`](Self::plan), and errors of the engine. The target is then unchanged.
    pub fn run(&self) -> Result<Written> {
        let (plan, notes) = self.prepare()?;
        let report = ops::save(&plan, &self.target, self.options.force, &self.options.run)?;
        Ok(Written { target: path_text(&self.target), plan, notes, report: Some(report) })
    }

    fn prepare(&self) -> Result<(WritePlan, Vec<Note>)> {
        let model = self.model;
        ops::prepare_opened(model.index.clone(), model.path.as_deref(), &self.target, &self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::TensorPath;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::Encoding;

    /// Numbers from 0 on in rows of 4, stored column by column.
    fn model() -> Model {
        let columns = (0..4u16).flat_map(|column| (0..3u16).map(move |row| row * 4 + column));
        let bytes: Vec<u8> = columns.flat_map(u16::to_le_bytes).collect();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let mut index = Checkpoint::new("test", "test", "m");
        for name in ["a.w", "b", "b"] {
            let path = TensorPath::from_dotted(name);
            let shape = Shape::from([3, 4]);
            index
                .tensors
                .push(TensorEntry::dense(path, DType::U16, shape, &source, 0, Encoding::COLUMN).unwrap());
        }
        index.into()
    }

    #[test]
    fn values_are_read_by_name_and_type() {
        let model = model();
        let tensor = model.tensor("a.w").unwrap();
        assert_eq!(tensor.read::<u16>().unwrap(), (0..12).collect::<Vec<u16>>());
        assert_eq!(tensor.read::<u8>().unwrap_err().code().as_str(), "other-dtype");
        assert_eq!(model.tensor("a/w").unwrap().name(), "a.w");
        assert_eq!(model.tensor("b").unwrap_err().code().as_str(), "ambiguous-name");
        assert_eq!(model.tensor("c").unwrap_err().code().as_str(), "no-such-tensor");
        assert_eq!((&model).into_iter().len(), 3);
    }

    #[test]
    fn slices_are_read_in_both_orders() {
        let model = model();
        let tensor = model.tensor("a.w").unwrap();
        let read = |slice: Slice| tensor.slice(slice).unwrap().read::<u16>().unwrap();
        assert_eq!(read((0..2, 1..3).into()), [1, 2, 5, 6]);
        assert_eq!(read((-1, ..).into()), [8, 9, 10, 11]);
        assert_eq!(read((.., 3).into()), [3, 7, 11]);
        assert_eq!(read(Slice::parse("[::2, ::2]").unwrap()), [0, 2, 8, 10]);
        assert_eq!(tensor.slice((5, ..)).unwrap_err().code().as_str(), "index-out-of-range");
        let stepped = model.select("a.w[::2, ::3]").unwrap();
        assert_eq!(stepped.shape(), [2, 2]);
        let columns: Vec<u8> = [0u16, 8, 3, 11].into_iter().flat_map(u16::to_le_bytes).collect();
        assert_eq!(stepped.to_bytes(Order::Column).unwrap(), columns);
    }

    #[test]
    fn slices_with_steps_are_read_in_parts() {
        let (rows, columns) = (3usize, 4_000_000usize);
        let bytes: Vec<u8> = (0..=250).cycle().take(rows * columns).collect();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes.clone()));
        let mut index = Checkpoint::new("test", "test", "m");
        for (name, shape) in [("a", [rows as u64, columns as u64]), ("empty", [1 << 60, 0])] {
            let path = TensorPath::from_dotted(name);
            let shape = Shape::from(shape);
            let entry = TensorEntry::dense(path, DType::U8, shape, &source, 0, Encoding::ROW);
            index.tensors.push(entry.unwrap());
        }
        let model = Model::from(index);
        for (text, step) in [("a[::2, ::7]", 7), ("a[::2, ::1000003]", 1_000_003)] {
            let wanted: Vec<u8> = (0..rows)
                .step_by(2)
                .flat_map(|row| (0..columns).step_by(step).map(move |column| row * columns + column))
                .map(|at| bytes[at])
                .collect();
            assert!(model.select(text).unwrap().read::<u8>().unwrap() == wanted, "{text}");
        }
        assert!(model.select("empty[::2]").unwrap().read::<u8>().unwrap().is_empty());
    }

    #[test]
    fn a_conversion_runs_after_its_description() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("m.npz");
        let model = model();
        let conversion = model.convert(&target).select("a.*").rename("a", "z");
        assert_eq!(conversion.plan().unwrap().format, "npz");
        assert!(!target.exists());
        let written = conversion.deny_loss().run().unwrap();
        assert_eq!(written.plan.losses, []);
        let again = open(&target).unwrap();
        assert_eq!((again.format(), again.len()), ("npz", 1));
        assert_eq!(again.tensor("z.w").unwrap().read::<u16>().unwrap(), (0..12).collect::<Vec<u16>>());
        assert_eq!(again.convert(&target).run().unwrap_err().code().as_str(), "exists");
        again.convert(&target).overwrite().run().unwrap();
        let mut conversion = model.convert(folder.path().join("all"));
        conversion.options_mut().copy_others = true;
        assert_eq!(conversion.run().unwrap_err().code().as_str(), "copy-others");
    }
}
