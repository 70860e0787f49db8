//! Scan of binary columns, which may hold pickled objects and never become a table: each value is scanned.
//! Also of text columns, which may hold a pickle of an old protocol, as in HDF5 texts.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::escape;
use weighbridge_io::source::{MemorySource, SourceRef};
use weighbridge_scan::{AssumedType, Beginning, Class, Scan, embedded, may_import};

/// Work per value besides its bytes; per text; and per text that is parsed as a pickle.
const WORK_PER_VALUE: u64 = 16;
const WORK_PER_TEXT: u64 = 4;
const WORK_PER_PICKLE: u64 = 1024;
/// Number of passes over a value.
const PASSES: u64 = 2;
/// Number of copies of a value that waits to be scanned.
const COPIES: u64 = 4;

/// Scanner of the values of binary and text columns.
#[derive(Debug)]
pub(crate) struct Binaries<'a> {
    /// Indexes of the binary columns, and of the text columns if requested.
    pub columns: Vec<usize>,
    names: Vec<String>,
    /// True for text columns, in the same order.
    texts: Vec<bool>,
    source: &'a SourceRef,
    limits: &'a Limits,
    budget: Budget,
    /// Number of scanned rows of each column.
    rows: Vec<u64>,
}

impl<'a> Binaries<'a> {
    /// Selects the binary columns of a schema, with `texts` also text columns. Nested columns of these types are reported.
    pub(crate) fn of(
        schema: &Schema,
        texts: bool,
        source: &'a SourceRef,
        (limits, budget): (&'a Limits, &Budget),
        scan: &mut Scan,
    ) -> Self {
        let (mut columns, mut names, mut are_texts) = (Vec::new(), Vec::new(), Vec::new());
        for (place, field) in schema.fields().iter().enumerate() {
            let of = field.data_type();
            if is_bytes(of) || (texts && is_text(of)) {
                columns.push(place);
                names.push(escape(field.name()));
                are_texts.push(is_text(of));
            } else {
                let name = escape(field.name());
                let mut omit = |what: &str| {
                    let text = format!("column-omitted: nested {what} of the column {name} were not scanned");
                    scan.push("left-out", text);
                };
                if holds(of, is_bytes) {
                    omit("bytes");
                } else if texts && holds(of, is_text) {
                    omit("texts");
                }
            }
        }
        let rows = vec![0; columns.len()];
        Self { columns, names, texts: are_texts, source, limits, budget: budget.clone(), rows }
    }

    /// Scans the next rows of some columns, from column `first` on.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] if the values are many times as long as the file.
    pub(crate) fn look(&mut self, first: usize, batch: &RecordBatch, scan: &mut Scan) -> Result<()> {
        for (number, column) in (first..self.columns.len()).zip(batch.columns()) {
            self.column(number, &**column, scan)?;
        }
        Ok(())
    }

    /// Reports that a column could not be scanned.
    ///
    /// # Errors
    /// The error itself, if it is unrelated to the file.
    pub(crate) fn refused(&self, number: Option<usize>, error: Error, scan: &mut Scan) -> Result<()> {
        match number.and_then(|number| self.names.get(number)) {
            Some(name) => scan.push_error(error.within(format_args!("the column {name}"))),
            None => scan.push_error(error.within("the columns of bytes and texts")),
        }
    }

    fn column(&mut self, number: usize, column: &dyn Array, scan: &mut Scan) -> Result<()> {
        if let Some(values) = column.as_binary_opt::<i32>() {
            self.values(number, values.iter(), scan)
        } else if let Some(values) = column.as_binary_opt::<i64>() {
            self.values(number, values.iter(), scan)
        } else if let Some(values) = column.as_binary_view_opt() {
            self.values(number, values.iter(), scan)
        } else if let Some(values) = column.as_fixed_size_binary_opt() {
            self.values(number, values.iter(), scan)
        } else if let Some(values) = column.as_string_opt::<i32>() {
            self.values(number, values.iter().map(|text| text.map(str::as_bytes)), scan)
        } else if let Some(values) = column.as_string_opt::<i64>() {
            self.values(number, values.iter().map(|text| text.map(str::as_bytes)), scan)
        } else if let Some(values) = column.as_string_view_opt() {
            self.values(number, values.iter().map(|text| text.map(str::as_bytes)), scan)
        } else {
            Err(Error::corrupt("another-column", "the column type differs from the schema"))
        }
    }

    fn values<'v>(
        &mut self,
        number: usize,
        values: impl Iterator<Item = Option<&'v [u8]>>,
        scan: &mut Scan,
    ) -> Result<()> {
        for value in values {
            let bytes = value.unwrap_or_default();
            if self.texts[number] {
                let rows = self.rows[number];
                if let Some(own) = self.text(bytes)? {
                    scan.absorb(own, Some(&format!("{}[{rows}]", self.names[number])));
                }
                self.rows[number] += 1;
                continue;
            }
            // All values may be the same bytes.
            self.budget.take_work((bytes.len() as u64 + WORK_PER_VALUE).saturating_mul(PASSES))?;
            if bytes.len() > 1 {
                self.value(number, bytes, scan);
            }
            self.rows[number] += 1;
        }
        Ok(())
    }

    /// Scans a text; returns the findings if it is a pickle.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] if the texts are many times as long as the file.
    pub(crate) fn text(&mut self, text: &[u8]) -> Result<Option<Scan>> {
        let may_import = may_import(text);
        let cost = text.len() as u64 + if may_import { WORK_PER_PICKLE } else { WORK_PER_TEXT };
        self.budget.take_work(cost)?;
        if !may_import {
            return Ok(None);
        }
        let source: SourceRef = Arc::new(MemorySource::new(self.source.label(), text.to_vec()));
        let mut own = Scan::default();
        // Texts that could not be parsed are reported, too.
        Ok((embedded(&source, self.limits, &mut own) || !own.findings.is_empty()).then_some(own))
    }

    fn value(&mut self, number: usize, bytes: &[u8], scan: &mut Scan) {
        // Two magic bytes occur by chance: gzip has a third, and flags of five bits. Pickles are detected otherwise.
        let by_chance = bytes.starts_with(b"\x1f\x8b") && !matches!(bytes, [_, _, 8, 0..=31, ..]);
        let known = Beginning::of(bytes).filter(|known| {
            !by_chance && known.what != "a pickle" && matches!(known.class, Class::Objects | Class::Packed)
        });
        let imports = may_import(bytes);
        if known.is_none() && !imports {
            return;
        }
        let place = format!("{}[{}]", self.names[number], self.rows[number]);
        let source = || Arc::new(MemorySource::new(self.source.label(), bytes.to_vec())) as SourceRef;
        let mut own = Scan::default();
        if imports && (embedded(&source(), self.limits, &mut own) || !own.findings.is_empty()) {
            scan.absorb(own, Some(&place));
        }
        if known.is_some() {
            match self.budget.take_memory((bytes.len() as u64).saturating_mul(COPIES)) {
                Ok(()) => scan.look_into(place, source(), AssumedType::File),
                Err(_) => {
                    let mut own = Scan::default();
                    own.push("nested-too-deep", "further embedded files in the values were not scanned");
                    scan.absorb(own, Some(&self.names[number]));
                }
            }
        }
    }
}

fn is_bytes(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    )
}

fn is_text(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// True for a type with nested columns that match.
fn holds(of: &DataType, what: fn(&DataType) -> bool) -> bool {
    let mut open = vec![of];
    while let Some(of) = open.pop() {
        match of {
            DataType::List(inner)
            | DataType::LargeList(inner)
            | DataType::ListView(inner)
            | DataType::LargeListView(inner)
            | DataType::FixedSizeList(inner, _)
            | DataType::Map(inner, _) => open.push(inner.data_type()),
            DataType::Struct(fields) => open.extend(fields.iter().map(|field| field.data_type())),
            DataType::Union(fields, _) => open.extend(fields.iter().map(|(_, field)| field.data_type())),
            DataType::RunEndEncoded(_, values) => open.push(values.data_type()),
            DataType::Dictionary(_, values) => open.push(values),
            of if what(of) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{
        ArrayRef, BinaryArray, FixedSizeBinaryArray, LargeStringArray, StringArray, StringViewArray,
    };
    use arrow_schema::Field;

    const CALL: &[u8] = b"cos\ngetcwd\n)R.";

    fn scan_column(field: Field, column: ArrayRef) -> (Scan, Result<()>) {
        let schema = Arc::new(Schema::new(vec![field]));
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 10]));
        let (limits, mut scan) = (Limits::default(), Scan::default());
        let mut binaries =
            Binaries::of(&schema, true, &source, (&limits, &limits.budget_for(source.len())), &mut scan);
        let batch = RecordBatch::try_new(schema.clone(), vec![column]).unwrap();
        let result = if binaries.columns.is_empty() { Ok(()) } else { binaries.look(0, &batch, &mut scan) };
        (scan, result)
    }

    #[test]
    fn scans_every_value() {
        let column = BinaryArray::from(vec![Some(&b"harmless"[..]), None, Some(CALL)]);
        let (scan, result) = scan_column(Field::new("b", DataType::Binary, true), Arc::new(column));
        result.unwrap();
        assert_eq!(scan.imports[0].member.as_deref(), Some("b[2]"));
        let column = FixedSizeBinaryArray::try_from_iter([CALL, &[7; 14]].into_iter()).unwrap();
        let (scan, result) =
            scan_column(Field::new("b", DataType::FixedSizeBinary(14), true), Arc::new(column));
        result.unwrap();
        assert_eq!(scan.imports.len(), 1);
    }

    #[test]
    fn reports_nested_binary_columns() {
        let bytes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Binary));
        let list = DataType::List(Arc::new(Field::new("item", bytes, true)));
        assert!(holds(&list, is_bytes) && !holds(&DataType::Utf8, is_bytes));
        let column = arrow_array::new_empty_array(&list);
        let (scan, _) = scan_column(Field::new("l", list, true), column);
        assert_eq!(scan.findings[0].code.as_str(), "left-out");
    }

    #[test]
    fn scans_every_text() {
        let call = std::str::from_utf8(CALL).unwrap();
        let texts = [Some("harmless"), None, Some("This is\na text\n"), Some(call)];
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from_iter(texts)),
            Arc::new(LargeStringArray::from_iter(texts)),
            Arc::new(StringViewArray::from_iter(texts)),
        ];
        for column in columns {
            let (scan, result) = scan_column(Field::new("t", column.data_type().clone(), true), column);
            result.unwrap();
            assert_eq!(scan.imports[0].member.as_deref(), Some("t[3]"));
        }
        let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let (scan, _) =
            scan_column(Field::new("w", words.clone(), true), arrow_array::new_empty_array(&words));
        assert_eq!(scan.findings[0].code.as_str(), "left-out");
        let long = "x".repeat(1 << 20);
        let column = StringArray::from(vec![long.as_str(); 130]);
        let (_, result) = scan_column(Field::new("t", DataType::Utf8, true), Arc::new(column));
        assert_eq!(result.unwrap_err().code().as_str(), "limit");
    }

    #[test]
    fn limits_the_scan_of_repeated_values() {
        let long = vec![7; 1 << 20];
        let column = BinaryArray::from(vec![long.as_slice(); 70]);
        let (_, result) = scan_column(Field::new("b", DataType::Binary, true), Arc::new(column));
        assert_eq!(result.unwrap_err().code().as_str(), "limit");
    }
}
