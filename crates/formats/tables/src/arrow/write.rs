//! From rows to record batches.

use crate::table::Table;
use crate::table::pipe::{Pipe, batch, guarded};
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::plan::{Encode, Output};
use weighbridge_io::source::SourceRef;

/// About as many bytes of elements make a batch.
const BATCH: u64 = 2 << 20;

/// A table that becomes record batches.
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
        let names = if self.table.entry.labels.is_some() { 12 } else { 0 };
        self.table.row_bytes().saturating_add(names).saturating_mul(self.table.rows).saturating_add(1000)
    }
    fn tensors(&self) -> Vec<&TensorEntry> {
        vec![&self.table.entry]
    }
    fn other_sources(&self) -> Vec<SourceRef> {
        self.table.name_sources()
    }
    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        let names = self.table.names()?;
        let pipe = Pipe::default();
        let mut writer = guarded("the table", || FileWriter::try_new(pipe.clone(), &self.schema))?;
        // The same batches for every budget, so that the bytes are the same.
        let at_once = (BATCH / self.table.row_bytes().saturating_add(16)).max(1);
        let mut start = 0;
        while start < self.table.rows {
            let rows = start..self.table.rows.min(start + at_once);
            let batch = batch(&self.table, &self.schema, names.as_deref(), &rows, out)?;
            guarded("the table", || writer.write(&batch))?;
            pipe.drain(out)?;
            start = rows.end;
        }
        guarded("the table", || writer.finish())?;
        pipe.drain(out)
    }
}
