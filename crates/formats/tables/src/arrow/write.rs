//! Encoding of rows as record batches.

use crate::table::Table;
use crate::table::pipe::{Pipe, batches, guarded};
use crate::table::records;
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;
use weighbridge_core::checkpoint::{RecordsRef, TensorEntry};
use weighbridge_core::error::Result;
use weighbridge_core::plan::{Encode, Output};
use weighbridge_io::source::SourceRef;

/// Target size of a batch, in bytes of elements.
const BATCH_BYTES: u64 = 2 << 20;

/// Table written as record batches.
#[derive(Debug)]
pub(super) struct ArrowTable {
    pub table: Table,
    pub schema: SchemaRef,
}

impl Encode for ArrowTable {
    fn describe(&self) -> String {
        format!("{} as record batches", self.table.describe())
    }
    fn estimate(&self) -> u64 {
        self.table.estimate()
    }
    fn tensors(&self) -> Vec<&TensorEntry> {
        vec![&self.table.entry]
    }
    fn other_sources(&self) -> Vec<SourceRef> {
        self.table.name_sources()
    }
    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        let pipe = Pipe::default();
        let mut writer = guarded("the table", || FileWriter::try_new(pipe.clone(), &self.schema))?;
        // The same batches for every budget, so that the output is deterministic.
        let at_once = (BATCH_BYTES / self.table.row_bytes().saturating_add(16)).max(1);
        batches(&self.table, &self.schema, at_once, &pipe, out, &mut |batch| {
            guarded("the table", || writer.write(batch))
        })?;
        guarded("the table", || writer.finish())?;
        pipe.drain(out)
    }
}

/// Records written as record batches, such as edges by name.
#[derive(Debug)]
pub(super) struct ArrowRecords {
    pub records: RecordsRef,
}

impl Encode for ArrowRecords {
    fn describe(&self) -> String {
        format!("{} as record batches", self.records.describe())
    }
    fn estimate(&self) -> u64 {
        records::estimate(&self.records)
    }
    fn tensors(&self) -> Vec<&TensorEntry> {
        self.records.tensors()
    }
    fn other_sources(&self) -> Vec<SourceRef> {
        self.records.sources()
    }
    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        let (pipe, schema) = (Pipe::default(), records::schema(&self.records)?);
        let mut writer = guarded("the records", || FileWriter::try_new(pipe.clone(), &schema))?;
        records::batches(&self.records, &schema, BATCH_BYTES, &pipe, out, &mut |batch| {
            guarded("the records", || writer.write(batch))
        })?;
        guarded("the records", || writer.finish())?;
        pipe.drain(out)
    }
}
