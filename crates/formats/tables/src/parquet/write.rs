//! Encoding of rows as row groups.

use crate::table::Table;
use crate::table::pipe::{Pipe, batches, guarded};
use crate::table::records;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use weighbridge_core::checkpoint::{RecordsRef, TensorEntry};
use weighbridge_core::error::Result;
use weighbridge_core::plan::{Encode, Output};
use weighbridge_io::source::{SourceRef, to_usize};

/// Target size of a batch, in bytes of elements.
const BATCH_BYTES: u64 = 1 << 20;
/// Target size of a row group, in bytes of elements.
const GROUP_BYTES: u64 = 16 << 20;
/// Maximum bytes of a dictionary of text.
const DICTIONARY_BYTES: usize = 64 << 10;

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
        Ok(properties(self.compression)
            .set_max_row_group_row_count(Some(to_usize(group * at_once)?))
            .set_key_value_metadata(Some(pairs))
            .build())
    }
}

/// Description of a compression.
fn how(compression: Compression) -> &'static str {
    match compression {
        Compression::UNCOMPRESSED => "",
        Compression::SNAPPY => ", snappy",
        _ => ", zstd",
    }
}

/// Properties of every file: without dictionaries and statistics.
fn properties(compression: Compression) -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_created_by(concat!("weighbridge ", env!("CARGO_PKG_VERSION")).to_owned())
}

impl Encode for ParquetTable {
    fn describe(&self) -> String {
        format!("{} as row groups{}", self.table.describe(), how(self.compression))
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

/// Records written as row groups, such as edges by name.
#[derive(Debug)]
pub(super) struct ParquetRecords {
    pub records: RecordsRef,
    pub compression: Compression,
}

impl Encode for ParquetRecords {
    fn describe(&self) -> String {
        format!("{} as row groups{}", self.records.describe(), how(self.compression))
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
        // Names of relations repeat. A column of many names is written without a dictionary once that is full.
        let properties = properties(self.compression)
            .set_dictionary_enabled(true)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES)
            .build();
        let mut writer =
            guarded("the records", || ArrowWriter::try_new(pipe.clone(), schema.clone(), Some(properties)))?;
        let mut held = 0;
        records::batches(&self.records, &schema, BATCH_BYTES, &pipe, out, &mut |batch| {
            guarded("the records", || writer.write(batch))?;
            // Counted before dictionaries and compression, so that readers can hold a group too.
            held += batch.get_array_memory_size() as u64;
            if held < GROUP_BYTES {
                return Ok(());
            }
            held = 0;
            guarded("the records", || writer.flush())
        })?;
        guarded("the records", || writer.close())?;
        pipe.drain(out)
    }
}
