//! Arrow IPC files, also called Feather version 2: a table in record batches.
//!
//! ```text
//! ARROW1\0\0
//! schema                      a flatbuffer
//! record batch (repeated)     a flatbuffer with the positions of the buffers, then the buffers
//! footer                      the schema again, and the position of each batch
//! length of the footer        i32 little-endian
//! ARROW1
//! ```
//!
//! Written: a column `name` of text, where the rows have names, and a column `vector` of fixed-size
//! lists. Batches hold about 2 MiB, uncompressed. The name, role and metadata of the tensor are stored in the
//! metadata of the schema.
//!
//! Read: the columns selected by the rules in `table/columns.rs`. Uncompressed fixed-size lists are
//! byte ranges of the file, one per batch. Everything else (compressed with LZ4 or Zstandard, plain columns,
//! lists) is decoded batch by batch on access.

mod read;
mod stream;
mod write;

pub(crate) use read::ArrowSections;

use super::table::columns::DTYPES;
use super::table::salvage::rows_before;
use super::table::{Form, pipe, plan, records};
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
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::SourceRef;

/// Arrow IPC format.
#[derive(Debug)]
pub struct Arrow;

/// Magic bytes at the start and end of a file.
pub(crate) const MAGIC: &[u8] = b"ARROW1";

static INFO: FormatInfo = FormatInfo {
    id: "arrow",
    title: "Arrow IPC file (Feather 2): a table",
    coverage: Coverage {
        name: "Arrow, Feather 2",
        read: "tables as in Parquet",
        written: "yes",
        not_read: "nested lists, missing values, big-endian files, streams",
    },
    extensions: &[("arrow", "table"), ("feather", "table"), ("ipc", "table")],
    dtypes: DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Arrow {
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

impl Detect for Arrow {
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        // A row of text may start with the same bytes.
        head.starts_with(MAGIC) && head.get(MAGIC.len()) != Some(&b'\t')
    }
}

impl ReadFormat for Arrow {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }
}

impl WriteFormat for Arrow {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != "table") {
            return Err(Error::usage("unknown-kind", "unknown kind for arrow").expected("table").found(kind));
        }
        let encoder = |table: super::table::Table| {
            let schema = pipe::schema(&table, pipe::carried(checkpoint, &table.entry, options.plain))?;
            Ok(Arc::new(write::ArrowTable { table, schema }) as _)
        };
        let form = Form {
            info: &INFO,
            kind: "table",
            extension: "arrow",
            carries: true,
            plain: options.plain,
            encoder: &encoder,
        };
        let of_records = |records| Ok(Arc::new(write::ArrowRecords { records }) as _);
        match records::plan(checkpoint, &form, options, of_records)? {
            Some(plan) => Ok(plan),
            None => plan(checkpoint, &form),
        }
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Column
    }
}

impl Salvage for Arrow {
    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        place.source().map(|source| read::salvage(source, error, options)).transpose()
    }

    fn intact_rows(&self, tensor: &TensorEntry, error: &Error) -> Result<Option<(TensorEntry, Lost)>> {
        rows_before(tensor, error)
    }
}

impl DeepCheck for Arrow {
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for held in held(&checkpoint.tensors, &[]) {
            if let Err(error) = read::check(&held.source, &Limits::default()) {
                findings.push(Finding::from_error(&error).ok_or(error)?);
            }
        }
        Ok(findings)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        read::outline(source, limits)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Arrow {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        read::scan(source, options)
    }
}
