//! Encoding of rows as row groups.

use crate::table::Table;
use crate::table::pipe::{Pipe, batches, guarded};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::plan::{Encode, Output};
use weighbridge_io::source::{SourceRef, to_usize};

/// Target size of a batch, in bytes of elements.
const BATCH_BYTES: u64 = 1 << 20;
/// Target size of a row group, in bytes of elements.
const GROUP_BYTES: u64 = 16 << 20;

/// Table written as row groups.
#[derive(Debug)]
pub(super) struct ParquetTable {
    pub table: Table,
    pub schema: SchemaRef,
    pub carried: Vec<(String, String)>,
    pub compression: Compression,
}

impl ParquetTable {
    fn properties(&self, at_once: u64, group: u64) -> Result<WriterProperties> {
        let pairs = self.carried.iter().map(|(k, v)| KeyValue::new(k.clone(), v.clone())).collect();
        Ok(WriterProperties::builder()
            .set_compression(self.compression)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .set_created_by(concat!("weighbridge ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_max_row_group_row_count(Some(to_usize(group * at_once)?))
            .set_key_value_metadata(Some(pairs))
            .build())
    }
}

impl Encode for ParquetTable {
    fn describe(&self) -> String {
        let how = match self.compression {
            Compression::UNCOMPRESSED => "",
            Compression::SNAPPY => ", snappy",
            _ => ", zstd",
        };
        format!("{} as row groups{how}", self.table.describe())
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
        // The same groups for every budget, so that the output is deterministic.
        let at_once = (BATCH_BYTES / self.table.row_bytes().saturating_add(16)).max(1);
        let properties = self.properties(at_once, GROUP_BYTES / BATCH_BYTES)?;
        let mut writer = guarded("the table", || {
            ArrowWriter::try_new(pipe.clone(), self.schema.clone(), Some(properties))
        })?;
        batches(&self.table, &self.schema, at_once, &pipe, out, &mut |batch| {
            guarded("the table", || writer.write(batch))
        })?;
        guarded("the table", || writer.close())?;
        pipe.drain(out)
    }
}
