//! word2vec: words and their vectors, as text or binary.
//!
//! ```text
//! text:    rows BLANK columns LF, then for each row:  name BLANK v1 BLANK v2 … LF
//! binary:  rows BLANK columns LF, then for each row:  name BLANK, columns f32 little-endian [LF]
//! ```
//! Read: both forms, and text without the first line, as GloVe writes it. Blanks at the end of a line, as the original
//! program writes them, are ignored; so is the line feed behind the vectors of a binary file. Written: text, or with the
//! setting `form=binary` the binary form as gensim writes it, without line feeds.
//! An empty name, or a name with a blank or a control character, cannot be written. Rows without names get their row numbers.

mod binary;
mod read;

use super::table::digits::DTYPES;
use super::table::text::{FirstField, TextTable, floats};
use super::table::{Form, Table, plan};
use std::sync::Arc;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::{Checkpoint, Loss};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::{Encode, WritePlan};
use weighbridge_core::tensor::{DType, Order};
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, Setting, WriteFormat,
};
use weighbridge_io::source::SourceRef;

/// word2vec format.
#[derive(Debug)]
pub struct Word2Vec;

static INFO: FormatInfo = FormatInfo {
    id: "word2vec",
    title: "words and vectors, as word2vec and gensim write them",
    coverage: Coverage {
        name: "word2vec, GloVe",
        read: "text and binary; GloVe: text without the first line",
        written: "yes, except GloVe",
        not_read: "",
    },
    extensions: &[("vec", "vectors"), ("w2v", "vectors")],
    dtypes: DTYPES,
    order: Some(Order::Row),
    settings: &[
        Setting { name: "form", values: "text or binary", what: "form of the vectors (default text)" },
        Setting {
            name: "floats",
            values: "shortest or upstream",
            what: "in text, the shortest decimal of each float (default), or %.9f",
        },
    ],
};

impl Format for Word2Vec {
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

impl Detect for Word2Vec {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        let whole = head.len() as u64 == source.len();
        read::form(head, source, &Limits::default()).is_some() || read::is_headless(head, whole)
    }

    fn is_detected_by_extension(&self) -> bool {
        true
    }

    fn shares_extensions(&self) -> bool {
        true
    }
}

impl ReadFormat for Word2Vec {
    fn open(&self, source: SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&source, options)
    }
}

impl WriteFormat for Word2Vec {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != "vectors") {
            let error = Error::usage("unknown-kind", "unknown kind for word2vec");
            return Err(error.expected("vectors").found(kind));
        }
        let floats = floats(options)?;
        let binary = match options.setting("form") {
            None | Some("text") => false,
            Some("binary") => true,
            Some(other) => {
                let error = Error::usage("bad-setting", "unknown form of word2vec");
                return Err(error.expected("text or binary").found(other));
            }
        };
        let encoder = |table: Table| -> Result<Arc<dyn Encode>> {
            if table.columns == 0 {
                return Err(
                    Error::mismatch("no-columns", "the table has no columns").on_tensor(table.entry.name())
                );
            }
            let names = if table.entry.row_names.is_some() { FirstField::Name } else { FirstField::Number };
            let text = TextTable { table, separator: b' ', floats, names, header: true };
            if !binary {
                return Ok(Arc::new(text));
            }
            if text.table.entry.dtype() != DType::F32 {
                return Err(Error::mismatch("table-dtype", "the binary form holds f32 only")
                    .on_tensor(text.table.entry.name())
                    .found(text.table.entry.dtype())
                    .hint(text.table.entry.f32_hint()));
            }
            Ok(Arc::new(binary::BinaryTable(text)))
        };
        let form = Form {
            info: &INFO,
            kind: "vectors",
            extension: "vec",
            carries: false,
            plain: options.plain,
            encoder: &encoder,
        };
        let mut plan = plan(checkpoint, &form)?;
        let nameless = checkpoint.tensors.iter().filter(|t| {
            t.row_names.is_none() && !t.role.is_state() && Table::new(t).is_some_and(|t| t.columns > 0)
        });
        let detail = "the rows have no names; row numbers are written";
        plan.losses.extend(nameless.map(|t| Loss::new("names-made", t.name(), detail)));
        Ok(plan)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Column
    }
}

impl Salvage for Word2Vec {
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

impl DeepCheck for Word2Vec {
    fn outline(&self, source: &SourceRef, _: &Limits) -> Result<Outline> {
        read::outline(source)
    }
}
