//! tsv: a table as text, one line per row, fields separated by tabs.
//!
//! ```text
//! name TAB v1 TAB v2 TAB … vD LF        no header
//! ```
//!
//! The exporter of PyTorch-BigGraph writes this form; with the setting `floats=upstream` the bytes
//! are identical. The default is the shortest decimal that parses as the same float. `nan`, `inf` and
//! `-inf` are words; NaN payloads cannot be written.
//!
//! Rows without names are written without the first field. If the elements are integers, which
//! a reader could mistake for names, the row numbers are written as names.
//!
//! Records, such as edges by name, are lines of text and numbers in the same form.
//!
//! The published embeddings of Wikidata (`wikidata_translation_v1.tsv`) have one more line in front, with the
//! numbers of entities, relations and columns. They are read as two tables: `entities`, and `relations` for
//! the lines behind the entities.
//!
//! Read: opening reads the file once, to find its lines and check that all have as many fields. All numbers
//! are f32. The first field is the name, unless in all of the first lines it is a number with a point,
//! an exponent or no finite value. Names of that form are reported when they
//! are written. Lines may end in CR LF.

mod read;
#[cfg(test)]
mod tests;

use super::table::digits::DTYPES;
use super::table::records::{self, TextRecords};
use super::table::text::{FirstField, TextTable, floats};
use super::table::{Form, Table, is_table, plan};
use std::sync::Arc;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Loss};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, Setting, WriteFormat,
};
use weighbridge_io::source::SourceRef;

/// Tab-separated text format.
#[derive(Debug)]
pub struct Tsv;

static INFO: FormatInfo = FormatInfo {
    id: "tsv",
    title: "text table: name and numbers, separated by tabs",
    coverage: Coverage {
        name: "tsv",
        read: "tables of a name and numbers, separated by tabs",
        written: "yes",
        not_read: "other separators",
    },
    extensions: &[("tsv", "table")],
    dtypes: DTYPES,
    order: Some(Order::Row),
    settings: &[Setting {
        name: "floats",
        values: "shortest or upstream",
        what: "the shortest decimal of each float (default), or %.9f as PyTorch-BigGraph's exporter writes",
    }],
};

impl Format for Tsv {
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
}

impl Detect for Tsv {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        read::recognises(head, head.len() as u64 == source.len())
    }

    fn is_detected_by_extension(&self) -> bool {
        true
    }

    fn needs_extension(&self) -> bool {
        true
    }

    fn shares_extensions(&self) -> bool {
        true
    }
}

impl ReadFormat for Tsv {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }
}

impl WriteFormat for Tsv {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != "table") {
            return Err(Error::usage("unknown-kind", "unknown kind for tsv").expected("table").found(kind));
        }
        let floats = floats(options)?;
        let encoder = |table: Table| {
            let names = match &table.entry.row_names {
                Some(_) => FirstField::Name,
                None if table.entry.dtype().is_float() => FirstField::None,
                None => FirstField::Number,
            };
            Ok(Arc::new(TextTable { table, separator: b'\t', floats, names, header: false }) as _)
        };
        let form = Form {
            info: &INFO,
            kind: "table",
            extension: "tsv",
            carries: false,
            plain: options.plain,
            encoder: &encoder,
        };
        let of_records = |records| Ok(Arc::new(TextRecords { records, floats }) as _);
        if let Some(plan) = records::plan(checkpoint, &form, options, of_records)? {
            return Ok(plan);
        }
        let mut plan = plan(checkpoint, &form)?;
        let nameless = checkpoint.tensors.iter().filter(|t| {
            t.row_names.is_none()
                && !t.dtype().is_float()
                && !t.role.is_state()
                && Table::new(t).is_some_and(|t| t.columns > 0)
        });
        let detail = "the rows have no names; row numbers are written";
        plan.losses.extend(nameless.map(|t| Loss::new("names-made", t.name(), detail)));
        for entry in checkpoint.tensors.iter().filter(|t| !t.role.is_state()) {
            if Table::new(entry).is_some_and(|table| table.rows == 0 && is_table(&table)) {
                let detail = "the number of columns is dropped: a table without rows has no lines";
                plan.losses.push(Loss::new("no-rows", entry.name(), detail));
            }
            if let (Some(table), Some(row_names)) = (Table::new(entry), &entry.row_names)
                && read::look_like_numbers(&*row_names.read()?, table.columns)
            {
                let detail = "the first names look like numbers; a reader may read them as a column";
                plan.losses.push(Loss::new("names-like-numbers", entry.name(), detail));
            }
        }
        Ok(plan)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Column
    }
}

impl Salvage for Tsv {
    fn hidden_damage(&self, source: &SourceRef, options: &OpenOptions) -> Result<Option<Error>> {
        read::line_fault(source, options)
    }

    fn salvage(&self, place: &Input<'_>, error: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        place.source().map(|source| read::salvage(source, error, options)).transpose()
    }

    fn is_unproved(&self) -> bool {
        true
    }
}

impl DeepCheck for Tsv {
    fn outline(&self, source: &SourceRef, _: &Limits) -> Result<Outline> {
        Ok(Outline::whole(source.len(), "lines of the table"))
    }
}
