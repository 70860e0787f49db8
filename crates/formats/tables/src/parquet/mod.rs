//! Parquet: a table in row groups.
//!
//! ```text
//! PAR1
//! row group (repeated)        for each column its pages
//! footer                      thrift: schema, the position of each column of each group, key-value pairs
//! length of the footer        u32 little-endian
//! PAR1
//! ```
//!
//! Written: a column `name` of text, where the rows have names, and a column `vector` of fixed-size
//! lists (declared by an Arrow schema in the metadata). Row groups hold about 16 MiB and are
//! built in memory one at a time. The vector has no dictionary and no statistics, and is compressed
//! only on request. The name, role and metadata of the tensor are stored as key-value pairs.
//!
//! Read: the columns selected by the rules in `table/columns.rs`, a few rows at a time, from front to back. The
//! index needs the footer alone. If lists have no declared fixed length, the first list sets the length.
//!
//! A page is unpacked as a whole. The sizes in its header are first compared with its bytes and with the limit
//! `header_bytes`. A row of a variable-length list may still be as long as the run lengths in
//! the file claim.

mod chunks;
mod footer;
mod pages;
mod read;
mod thrift;
mod write;

pub(crate) use read::ParquetSections;

use super::table::columns::DTYPES;
use super::table::salvage::rows_before;
use super::table::{Form, pipe, plan, records};
use ::parquet::basic::{Compression, ZstdLevel};
use std::sync::Arc;
use weighbridge_core::check::{Outline, held};
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::checkpoint::{Lost, TensorEntry};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, OpenOptions, PlanOptions, ReadFormat, RowNameSupport,
    Salvage, Setting, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::SourceRef;

/// Parquet format.
#[derive(Debug)]
pub struct Parquet;

/// Magic bytes at the start and end of a file.
pub(crate) const MAGIC: &[u8] = b"PAR1";
/// Magic bytes of a file with an encrypted footer.
pub(crate) const ENCRYPTED: &[u8] = b"PARE";

static INFO: FormatInfo = FormatInfo {
    id: "parquet",
    title: "Parquet file: a table",
    coverage: Coverage {
        name: "Parquet",
        read: "tables: one list column of numbers, or numeric columns of one type; row names",
        written: "yes",
        not_read: "nested lists, missing values, encryption, Brotli",
    },
    extensions: &[("parquet", "table")],
    dtypes: DTYPES,
    order: Some(Order::Row),
    settings: &[Setting {
        name: "compression",
        values: "none, snappy or zstd",
        what: "compression of the pages (default none)",
    }],
};

impl Format for Parquet {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn writer(&self) -> Option<&dyn WriteFormat> {
        Some(self)
    }

    fn salvager(&self) -> Option<&dyn Salvage> {
        Some(self)
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }

    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        Some(self)
    }
}

impl Detect for Parquet {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        head.starts_with(MAGIC) || head.starts_with(ENCRYPTED)
    }
}

impl ReadFormat for Parquet {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }
}

impl WriteFormat for Parquet {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != "table") {
            return Err(Error::usage("unknown-kind", "unknown kind for parquet")
                .expected("table")
                .found(kind));
        }
        let compression = match options.setting("compression") {
            None | Some("none") => Compression::UNCOMPRESSED,
            Some("snappy") => Compression::SNAPPY,
            Some("zstd") => Compression::ZSTD(ZstdLevel::default()),
            Some(other) => {
                let error = Error::usage("bad-setting", "unknown compression");
                return Err(error.expected("none, snappy or zstd").found(other));
            }
        };
        let encoder = |table: super::table::Table| {
            let schema = pipe::schema(&table, Vec::new())?;
            let carried = pipe::carried(checkpoint, &table.entry, options.plain);
            Ok(Arc::new(write::ParquetTable { table, schema, carried, compression }) as _)
        };
        let form = Form {
            info: &INFO,
            kind: "table",
            extension: "parquet",
            carries: true,
            plain: options.plain,
            encoder: &encoder,
        };
        let of_records = |records| Ok(Arc::new(write::ParquetRecords { records, compression }) as _);
        match records::plan(checkpoint, &form, options, of_records)? {
            Some(plan) => Ok(plan),
            None => plan(checkpoint, &form),
        }
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Column
    }
}

impl Salvage for Parquet {
    fn intact_rows(&self, tensor: &TensorEntry, error: &Error) -> Result<Option<(TensorEntry, Lost)>> {
        rows_before(tensor, error)
    }
}

impl DeepCheck for Parquet {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for held in held(&checkpoint.tensors, &[]) {
            match read::check(&held.source, &Limits::default()) {
                Ok(own) => findings.extend(own),
                Err(error) => findings.push(Finding::from_error(&error).ok_or(error)?),
            }
        }
        Ok(findings)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        read::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Parquet {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        read::scan(source, options)
    }
}
