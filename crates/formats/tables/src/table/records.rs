//! Records, such as edges by name: the plan of their file, and their encoding as text or as batches.
//!
//! Text has one line per row, fields separated by tabs, without a header. Text with a tab, a line end or another control
//! character, and empty text, is rejected.

use super::Form;
use super::columns::arrow_type;
use super::digits::{Floats, push_row, usual_len};
use super::pipe::{Pipe, guarded};
use arrow_array::{ArrayRef, RecordBatch, StringArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Cells, Checkpoint, Loss, RecordColumn, RecordsRef, TensorEntry, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{Elements, Encode, Output, PlannedFile, WritePlan};
use weighbridge_core::tensor::DType;
use weighbridge_format::PlanOptions;
use weighbridge_io::source::{SourceRef, to_usize};

/// Default memory for the text of records, in bytes.
const DEFAULT_MEMORY: u64 = 256 << 20;
/// Maximum number of rows read together.
const MAX_ROWS: u64 = 1 << 16;
/// Typical bytes of a field of text.
const USUAL_TEXT: u64 = 12;

/// Plans the file of a checkpoint that is read as records; `None` for any other.
///
/// # Errors
/// Errors of [`AsRecords::records`](weighbridge_core::checkpoint::AsRecords::records);
/// [`weighbridge_core::Kind::Mismatch`], `table-dtype`, for a dtype that the format cannot hold.
pub(crate) fn plan(
    checkpoint: &Checkpoint,
    form: &Form<'_>,
    options: &PlanOptions,
    encoder: impl FnOnce(RecordsRef) -> Result<Arc<dyn Encode>>,
) -> Result<Option<WritePlan>> {
    let Some(view) = &checkpoint.records else { return Ok(None) };
    let memory = options.memory.unwrap_or(DEFAULT_MEMORY);
    let Some((records, mut losses)) = view.records(checkpoint, memory)? else { return Ok(None) };
    if let Some(dtype) =
        records.columns().iter().filter_map(|c| c.dtype).find(|d| !form.info.dtypes.contains(d))
    {
        return Err(Error::mismatch("table-dtype", format!("{} cannot hold dtype {dtype}", form.info.id)));
    }
    losses.extend(checkpoint.left_behind());
    losses.extend(checkpoint.metadata.iter().map(|(key, _)| {
        let detail = "metadata dropped: the table has no place for it";
        Loss::new("metadata-dropped", escape_text(key), detail)
    }));
    let files = vec![PlannedFile::streamed("", encoder(records)?)];
    Ok(Some(WritePlan { format: form.info.id, kind: form.kind, files, losses }))
}

/// Records written as lines.
#[derive(Debug)]
pub(crate) struct TextRecords {
    pub records: RecordsRef,
    pub floats: Floats,
}

impl Encode for TextRecords {
    fn describe(&self) -> String {
        format!("{} as text", self.records.describe())
    }

    fn estimate(&self) -> u64 {
        estimate(&self.records)
    }

    fn tensors(&self) -> Vec<&TensorEntry> {
        self.records.tensors()
    }

    fn other_sources(&self) -> Vec<SourceRef> {
        self.records.sources()
    }

    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        let columns = self.records.columns();
        for (number, rows) in self.records.sections().into_iter().enumerate().filter(|(_, rows)| *rows > 0) {
            let section = self.records.open(number)?;
            // The cells, and their text.
            let each = section.row_bytes().saturating_mul(2).saturating_add(64);
            let at_once = (out.share() / 2 / each).clamp(1, MAX_ROWS);
            out.blocks(rows.div_ceil(at_once), &|block, elements, text| {
                let range = block * at_once..rows.min((block + 1) * at_once);
                let count = to_usize(range.end - range.start)?;
                let mut cells = Cells::of(columns);
                section.read(range, elements, &mut cells)?;
                (0..count).try_for_each(|row| self.push_line(row, &cells, text))
            })?;
        }
        Ok(())
    }
}

impl TextRecords {
    fn push_line(&self, row: usize, cells: &[Cells], text: &mut Vec<u8>) -> Result<()> {
        for (place, (column, cells)) in self.records.columns().iter().zip(cells).enumerate() {
            if place > 0 {
                text.push(b'\t');
            }
            match (cells, column.dtype) {
                (Cells::Numbers(bytes), Some(dtype)) => {
                    let size = dtype.size().unwrap_or(1);
                    let element = bytes.get(row * size..(row + 1) * size).unwrap_or_default();
                    push_row(element, dtype, self.floats, b'\t', true, text)?;
                }
                (Cells::Text(list), _) => {
                    let name = list.get(row).unwrap_or_default();
                    text.extend_from_slice(check(name, column)?.as_bytes());
                }
                (Cells::Numbers(_), None) => {}
            }
        }
        text.push(b'\n');
        Ok(())
    }
}

/// Rejects text that an importer of edge lists would not read as one field.
fn check<'a>(name: &'a str, column: &RecordColumn) -> Result<&'a str> {
    // Printable ASCII is the usual case.
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(name);
    }
    let hint = "write parquet or arrow instead; their names may be any text";
    let fail = |code: &'static str, text: &str| {
        Err(Error::mismatch(code, format!("a name in the column {} {text}", column.name))
            .found(format_args!("{name:?}"))
            .hint(hint))
    };
    if name.is_empty() {
        fail("name-empty", "is empty")
    } else if name.contains(['\t', '\n', '\r']) {
        fail("name-separates", "contains a tab or a line end")
    } else if name.contains(|c: char| c.is_ascii_control()) {
        fail("name-control", "contains a control character")
    } else {
        Ok(name)
    }
}

/// Approximate size of the file in bytes.
pub(crate) fn estimate(records: &RecordsRef) -> u64 {
    let field = |column: &RecordColumn| match column.dtype {
        Some(dtype) => usual_len(dtype, Floats::Shortest) / 2,
        None => USUAL_TEXT,
    };
    let rows = records.sections().into_iter().fold(0u64, u64::saturating_add);
    records.columns().iter().map(field).sum::<u64>().saturating_mul(rows)
}

/// Schema of the columns.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for a dtype that Arrow does not have.
pub(crate) fn schema(records: &RecordsRef) -> Result<SchemaRef> {
    let field = |column: &RecordColumn| Ok(Field::new(&column.name, arrow_of(column.dtype)?, false));
    let fields = records.columns().iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

fn arrow_of(dtype: Option<DType>) -> Result<DataType> {
    let Some(dtype) = dtype else { return Ok(DataType::Utf8) };
    arrow_type(dtype)
        .ok_or_else(|| Error::mismatch("table-dtype", "a column cannot hold this dtype").found(dtype))
}

/// Passes all records to `write` as record batches of about `bytes` bytes, and the bytes in `pipe` to `out`. The batches do not
/// depend on the memory budget, so that the output is deterministic.
///
/// # Errors
/// Errors of the records and of `write`.
pub(crate) fn batches(
    records: &RecordsRef,
    schema: &SchemaRef,
    bytes: u64,
    pipe: &Pipe,
    out: &mut dyn Output,
    write: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let mut cells = Cells::of(records.columns());
    let mut count = 0u64;
    let mut flush = |cells: &mut Vec<Cells>, count: &mut u64, out: &mut dyn Output| {
        if *count > 0 {
            write(&batch(records, schema, cells, to_usize(*count)?)?)?;
            pipe.drain(out)?;
            cells.iter_mut().for_each(Cells::clear);
            *count = 0;
        }
        Ok(())
    };
    for (number, rows) in records.sections().into_iter().enumerate().filter(|(_, rows)| *rows > 0) {
        let section = records.open(number)?;
        let at_once = (bytes / section.row_bytes().max(1)).clamp(1, MAX_ROWS);
        let mut start = 0;
        while start < rows {
            let end = rows.min(start + at_once.min(MAX_ROWS - count));
            section.read(start..end, out as &mut dyn Elements, &mut cells)?;
            count += end - start;
            start = end;
            if count >= MAX_ROWS || cells.iter().map(Cells::bytes).sum::<u64>() >= bytes {
                flush(&mut cells, &mut count, out)?;
            }
        }
    }
    flush(&mut cells, &mut count, out)
}

/// Builds a record batch.
fn batch(records: &RecordsRef, schema: &SchemaRef, cells: &[Cells], count: usize) -> Result<RecordBatch> {
    let column = |(column, cells): (&RecordColumn, &Cells)| -> Result<ArrayRef> {
        match cells {
            Cells::Text(list) => Ok(Arc::new(StringArray::from_iter_values(list.iter()))),
            Cells::Numbers(bytes) => {
                let of = arrow_of(column.dtype)?;
                guarded("the records", || {
                    let data = ArrayData::builder(of)
                        .len(count)
                        .add_buffer(Buffer::from_slice_ref(bytes.as_slice()))
                        .align_buffers(true)
                        .build()?;
                    Ok::<_, arrow_schema::ArrowError>(make_array(data))
                })
            }
        }
    };
    let columns = records.columns().iter().zip(cells).map(column).collect::<Result<Vec<_>>>()?;
    guarded("the records", || RecordBatch::try_new(schema.clone(), columns))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Array, RecordBatch};
    use arrow_schema::DataType;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::fs::File;
    use std::path::Path;
    use weighbridge::ops::{ConvertOptions, convert};
    use weighbridge_testkit::testdata;

    fn rows(batches: &[RecordBatch]) -> String {
        let mut text = String::new();
        for batch in batches {
            for row in 0..batch.num_rows() {
                let field = |column: &dyn Array| match column.data_type() {
                    DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
                    DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
                    other => panic!("{other}"),
                };
                let fields: Vec<String> = batch.columns().iter().map(|column| field(column)).collect();
                text.push_str(&fields.join("\t"));
                text.push('\n');
            }
        }
        text
    }

    /// Batches of an Arrow or a Parquet file, and their columns.
    fn read(path: &Path) -> (Vec<RecordBatch>, Vec<String>) {
        let file = File::open(path).unwrap();
        let batches: Vec<RecordBatch> = match path.extension().unwrap() == "arrow" {
            true => arrow_ipc::reader::FileReader::try_new(file, None).unwrap().map(Result::unwrap).collect(),
            false => {
                let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
                reader.map(Result::unwrap).collect()
            }
        };
        let fields = batches[0].schema();
        let fields = fields.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect();
        (batches, fields)
    }

    #[test]
    fn batches_hold_the_rows_of_the_text() {
        let folder = tempfile::tempdir().unwrap();
        // Edges and their entities in one folder.
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        for part in ["entities", "train"] {
            for file in std::fs::read_dir(testdata("biggraph/set1/dyn").join(part)).unwrap() {
                let file = file.unwrap();
                std::fs::write(data.join(file.file_name()), std::fs::read(file.path()).unwrap()).unwrap();
            }
        }
        for (source, columns) in [
            (data, vec!["lhs Utf8", "rel Utf8", "rhs Utf8"]),
            (
                testdata("biggraph/set1/weighted/edges"),
                vec!["lhs Int64", "rel Int64", "rhs Int64", "weight Int64"],
            ),
        ] {
            let target = |name: &str| folder.path().join(name);
            let options = ConvertOptions { force: true, ..ConvertOptions::default() };
            convert(&source, target("edges.tsv"), &options).unwrap();
            let text = std::fs::read_to_string(target("edges.tsv")).unwrap();
            assert!(text.lines().count() > 200);
            for name in ["edges.arrow", "edges.parquet", "zstd.parquet"] {
                let mut options = options.clone();
                if name.starts_with("zstd") {
                    options.settings.push(("compression".to_owned(), "zstd".to_owned()));
                }
                convert(&source, target(name), &options).unwrap();
                let (batches, fields) = read(&target(name));
                assert_eq!(fields, columns, "{name}");
                assert!(rows(&batches) == text, "{name}");
            }
        }
    }
}
