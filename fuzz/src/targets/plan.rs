//! Round trips of any index through every format in memory: all content must return, except for reported losses.

mod compare;

use super::Outcome;
use compare::compare;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge::Error;
use weighbridge::checkpoint::{
    Checkpoint, Extent, MemoryRowNames, Name, Role, TensorEntry, TensorPath, Value,
};
use weighbridge::engine::{MIN_MEMORY, RunOptions, Sink, StagedFile};
use weighbridge::formats::{self, Format, OpenOptions, registry};
use weighbridge::ops::{ConvertOptions, plan_checkpoint};
use weighbridge::plan::{PlannedFile, WritePlan};
use weighbridge::source::{FileRange, FolderRef, MemoryFolder, MemorySource, SourceRef};
use weighbridge::tensor::{DType, Encoding, Endian, Order, Region, Shape};

pub(super) fn run(_: &'static str, bytes: &[u8]) -> Outcome {
    let checkpoint = Generator { bytes, at: 0 }.checkpoint();
    let mut outcome = Outcome::Refused;
    let mut failures = Vec::new();
    for &format in formats::ALL {
        match plan_checkpoint(checkpoint.clone(), format, None, &ConvertOptions::default()) {
            Ok(plan) => {
                failures.extend(round_trip(&checkpoint, format, &plan).err());
                outcome = Outcome::Opened;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    outcome
}

/// Writes the plan, reads it back and compares; returns the difference as an error.
fn round_trip(checkpoint: &Checkpoint, format: &dyn Format, plan: &WritePlan) -> Result<(), String> {
    let id = format.info().id;
    let files = MemorySink::default();
    let options = RunOptions { threads: 1, memory: MIN_MEMORY, sync: false, ..RunOptions::default() };
    if let Err(error) = weighbridge::engine::run(plan, &files, &options) {
        // Elements that the format cannot represent are detected during writing.
        assert!(!error.to_string().is_empty());
        return Ok(());
    }
    let options = OpenOptions { format: Some(id.to_owned()), ..OpenOptions::default() };
    let mut files: BTreeMap<String, Bytes> = std::mem::take(&mut *files.0.lock().unwrap());
    let single = plan.files.len() == 1 && plan.files[0].name.is_empty();
    let opened = if single {
        registry().open_source(taken(files.remove("").unwrap(), "written"), &options)
    } else if plan.losses.iter().any(|loss| loss.code == "apart") {
        // Independent files are opened one by one.
        files.into_iter().map(|(name, bytes)| registry().open_source(taken(bytes, &name), &options)).try_fold(
            Checkpoint::default(),
            |mut all, one| {
                let one = one?;
                one.metadata.iter().for_each(|(key, value)| all.metadata.set(key, value.clone()));
                all.tensors.extend(one.tensors);
                Ok(all)
            },
        )
    } else {
        let mut folder = MemoryFolder::new("written");
        for (name, bytes) in &files {
            folder = folder.with(PathBuf::from(name), bytes.lock().unwrap().clone());
        }
        registry().open_folder(&(Arc::new(folder) as FolderRef), &options)
    };
    match opened {
        Ok(opened) => compare(checkpoint, &opened, id, &plan.losses).map_err(|what| format!("{id}: {what}")),
        // Without rows there may be no file at all.
        Err(_) if plan.losses.iter().any(|loss| loss.code == "no-rows") => Ok(()),
        Err(error) => Err(format!("{id} cannot read its own output: {error}\n{:?}", plan.losses)),
    }
}

fn taken(bytes: Bytes, name: &str) -> SourceRef {
    Arc::new(MemorySource::new(name, std::mem::take(&mut *bytes.lock().unwrap())))
}

/// Generates an index from any bytes, followed by zeros.
struct Generator<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Generator<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    fn name(&mut self) -> Name {
        let len = usize::from(self.below(9));
        let words: [&[u8]; 16] = [
            b"w",
            b"fc1",
            b"a.b",
            b"embeddings",
            b"..",
            b"\xff\n",
            "é/".as_bytes(),
            b"CON",
            b"value",
            b"w_moment1_0",
            b"moment1_0",
            b"master_weights",
            b"names",
            b"0",
            b"weighbridge.index",
            b"nan",
        ];
        let word = words[usize::from(self.below(16))];
        let own: Vec<u8> = (0..len.saturating_sub(4)).map(|_| self.byte()).collect();
        Name::new([word, &own].concat())
    }

    fn path(&mut self) -> TensorPath {
        let parts = 1 + self.below(3);
        TensorPath::new((0..parts).map(|_| self.name()).collect::<Vec<_>>())
    }

    fn role(&mut self) -> Role {
        match self.below(8) {
            0 => Role::Buffer,
            1 => Role::Embedding,
            2 => Role::OptimizerState { slot: self.name() },
            3 => Role::Other,
            _ => Role::Parameter,
        }
    }

    fn value(&mut self, depth: u8) -> Value {
        match self.below(if depth == 0 { 8 } else { 10 }) {
            0 => Value::Bool(self.below(2) == 1),
            1 => Value::Null,
            2 => Value::I64(-i64::from(self.byte())),
            3 => Value::U32(u32::from(self.byte())),
            4 => Value::U64(u64::MAX - u64::from(self.byte())),
            5 => Value::F32(u32::from_le_bytes(std::array::from_fn(|_| self.byte()))),
            6 => Value::Text(self.name().to_text()),
            7 => Value::Bytes((0..self.below(9)).map(|_| self.byte()).collect()),
            8 => Value::List((0..self.below(4)).map(|_| self.value(depth - 1)).collect()),
            _ => Value::Map((0..self.below(4)).map(|_| (self.name(), self.value(depth - 1))).collect()),
        }
    }

    /// Generates a tensor of one or two extents, in any byte order and storage order.
    fn tensor(&mut self) -> TensorEntry {
        let dtype = DType::ALL[usize::from(self.below(u8::try_from(DType::ALL.len()).unwrap()))];
        let mut dims: Vec<u64> = (0..self.below(4)).map(|_| u64::from(self.below(5))).collect();
        if dtype.size().is_none() {
            // Sub-byte dtypes fill whole bytes.
            dims.push(8);
        }
        let shape = Shape::new(dims);
        let len = shape.bytes(dtype).unwrap();
        let data: Vec<u8> = (0..len).map(|_| self.byte()).collect();
        let order = if dtype.size().is_some() && self.below(3) == 0 { Order::Column } else { Order::Row };
        let endian = if dtype.size().is_some() && self.below(4) == 0 { Endian::Big } else { Endian::Little };
        let encoding = Encoding { order, endian };
        let source: SourceRef = Arc::new(MemorySource::new("made up", data));
        let path = self.path();
        let role = self.role();
        let mut entry = TensorEntry::dense(path, dtype, shape.clone(), &source, 0, encoding).unwrap();
        entry.role = role;
        let rows = shape.dims().first().copied().unwrap_or(0);
        if rows > 1 && order == Order::Row && dtype.size().is_some() && self.below(3) == 0 {
            entry.extents = halves(&shape, &source, len, encoding).into();
        }
        if self.below(4) == 0 {
            entry.attributes.insert(self.name().to_text(), self.value(2));
        }
        if shape.rank() > 0 && entry.role.slot().is_none() && self.below(4) == 0 {
            // Optimizer state has no row names in any format: the table has them.
            let names: Vec<String> = (0..rows).map(|_| self.name().to_text()).collect();
            entry.row_names =
                Some(MemoryRowNames::shared("made up", names.iter().map(String::as_str).collect()));
        }
        entry
    }

    fn checkpoint(&mut self) -> Checkpoint {
        let mut checkpoint = Checkpoint::new("none", "made up", "made up");
        for _ in 0..self.below(6) {
            let entry = self.tensor();
            checkpoint.tensors.push(entry);
        }
        for _ in 0..self.below(3) {
            let key = self.name().to_text();
            let value = self.value(3);
            checkpoint.metadata.set(key, value);
        }
        checkpoint
    }
}

/// Splits the rows into two extents.
fn halves(shape: &Shape, source: &SourceRef, len: u64, encoding: Encoding) -> Vec<Extent> {
    let rows = shape.dims()[0];
    let cut = rows / 2;
    let each = len / rows;
    let extent = |from: u64, to: u64| {
        let mut region = Region::whole(shape);
        region.start[0] = from;
        region.shape[0] = to - from;
        let source = source.clone();
        let part = Some(Box::new(region));
        Extent { source, offset: from * each, len: (to - from) * each, encoding, part, check: None }
    };
    vec![extent(0, cut), extent(cut, rows)]
}

type Bytes = Arc<Mutex<Vec<u8>>>;

/// Files in memory.
#[derive(Debug, Default)]
struct MemorySink(Mutex<BTreeMap<String, Bytes>>);

#[derive(Debug)]
struct MemoryFile(Bytes);

impl Sink for MemorySink {
    fn stage(&self, file: &PlannedFile) -> weighbridge::Result<Box<dyn StagedFile>> {
        let len = usize::try_from(file.staged_len()).unwrap();
        let bytes = Arc::new(Mutex::new(vec![0; len]));
        let before =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(file.name.clone(), bytes.clone());
        assert!(before.is_none(), "two files of one name: {}", file.name);
        Ok(Box::new(MemoryFile(bytes)))
    }
    fn sync(&self) -> weighbridge::Result<()> {
        Ok(())
    }
    fn publish(&self) -> weighbridge::Result<()> {
        Ok(())
    }
    fn settle(&self) -> weighbridge::Result<()> {
        Ok(())
    }
    fn discard(&self) {}
}

impl StagedFile for MemoryFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> weighbridge::Result<()> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).map_err(|_| Error::limit("too-large-for-memory", "too far"))?;
        let end = start + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[start..end].copy_from_slice(bytes);
        Ok(())
    }
    fn copy_from(&self, _: FileRange<'_>, _: u64, _: u64, _: u64) -> weighbridge::Result<u64> {
        Ok(0)
    }
}
