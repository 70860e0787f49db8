//! A format of one's own beside those of Weighbridge: numbers behind a mark and a count.
//!
//! ```text
//! "RAWF"  u32, little-endian: the number of floats  f32, little-endian, one behind the other
//! ```
//!
//! `cargo run -p weighbridge --example own_format` opens such a file by its content and converts it to safetensors.

use std::sync::Arc;
use weighbridge::check::{Gaps, Outline};
use weighbridge::checkpoint::{Checkpoint, TensorEntry, TensorPath};
use weighbridge::engine::RunOptions;
use weighbridge::formats::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, OpenOptions, PlanOptions, ReadFormat, WriteFormat,
    registry,
};
use weighbridge::ops::save;
use weighbridge::plan::{FileBuilder, WritePlan};
use weighbridge::source::{SourceRef, read_vec};
use weighbridge::tensor::{DType, Encoding, Order, Shape};
use weighbridge::{Error, Limits, Result};

const MARK: &[u8] = b"RAWF";
const HEADER: u64 = 8;

static INFO: FormatInfo = FormatInfo {
    id: "rawf",
    title: "floats behind a mark and a count",
    coverage: Coverage { name: "rawf", read: "one tensor", written: "yes", not_read: "" },
    extensions: &[("rawf", "array")],
    dtypes: &[DType::F32],
    order: Some(Order::Row),
    settings: &[],
};

/// The format.
struct Rawf;

impl Format for Rawf {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn writer(&self) -> Option<&dyn WriteFormat> {
        Some(self)
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }
}

impl Detect for Rawf {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        head.starts_with(MARK)
    }
}

impl ReadFormat for Rawf {
    fn open(&self, source: SourceRef, _: &OpenOptions) -> Result<Checkpoint> {
        let header = read_vec(&*source, 0, HEADER)?;
        let count = header.last_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let shape = Shape::from([u64::from(count)]);
        // Fails where the file is shorter than the count says.
        let tensor =
            TensorEntry::dense(TensorPath::value(), DType::F32, shape, &source, HEADER, Encoding::ROW)?;
        let mut checkpoint = Checkpoint::new("rawf", "array", source.label());
        checkpoint.tensors.push(tensor);
        Ok(checkpoint)
    }
}

impl WriteFormat for Rawf {
    fn plan(&self, checkpoint: &Checkpoint, _: &PlanOptions) -> Result<WritePlan> {
        let [tensor] = checkpoint.tensors.as_slice() else {
            return Err(Error::mismatch("one-tensor", "a file of this format holds one tensor"));
        };
        let count = u32::try_from(tensor.elements())
            .map_err(|_| Error::mismatch("too-long", "the count has 32 bits"))?;
        let mut file = FileBuilder::new("");
        file.literal(MARK);
        file.literal(count.to_le_bytes());
        file.tensor(tensor, Order::Row)?;
        Ok(WritePlan { format: "rawf", kind: "array", files: vec![file.finish()], losses: Vec::new() })
    }
}

impl DeepCheck for Rawf {
    fn outline(&self, _: &SourceRef, _: &Limits) -> Result<Outline> {
        let mut outline = Outline::new(Gaps::Forbidden);
        outline.header(0, HEADER, "mark and count");
        Ok(outline)
    }
}

fn main() -> Result<()> {
    let formats = registry().clone().with(&Rawf);
    let folder = tempfile::tempdir().map_err(|error| Error::io("cannot make a folder", error))?;
    let values: Vec<u8> = [1.5f32, -2.0, 3.25].iter().flat_map(|value| value.to_le_bytes()).collect();
    let bytes = [MARK, &3u32.to_le_bytes(), &values].concat();
    let source: SourceRef = Arc::new(weighbridge::source::MemorySource::new("numbers.rawf", bytes));
    // The format is detected by content.
    let checkpoint = formats.open_source(source, &OpenOptions::default())?;
    println!("{}: {} {}", checkpoint.format, checkpoint.tensors[0].dtype(), checkpoint.tensors[0].shape);
    for (id, name) in [("safetensors", "numbers.safetensors"), ("rawf", "again.rawf")] {
        let plan = formats.by_id(id)?.plan(&checkpoint, &PlanOptions::default())?;
        save(&plan, folder.path().join(name), true, &RunOptions::default())?;
        let again = formats.open_with(folder.path().join(name), &OpenOptions::default())?;
        assert_eq!(again.tensors[0].read_tensor(Order::Row)?, values);
        println!("wrote {name}: {}", again.format);
    }
    Ok(())
}
