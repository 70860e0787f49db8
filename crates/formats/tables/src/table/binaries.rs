//! Columns of bytes, in which people keep pickled objects: no table is made of them, and whoever scans looks at each
//! value. Columns of texts, in which a pickle of an old protocol may be, as in texts of HDF5.

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

/// Work for a value beside its bytes; for a text; and for a text that is followed as a pickle.
const EACH: u64 = 16;
const EACH_TEXT: u64 = 4;
const FOLLOWED: u64 = 1024;
/// A value is looked at this often.
const LOOKS: u64 = 2;
/// Copies of a value that waits to be scanned.
const FOUND: u64 = 4;

/// Looks at the values of columns of bytes and of texts.
#[derive(Debug)]
pub(crate) struct Binaries<'a> {
    /// The columns of bytes, and those of texts that are asked for, by their numbers.
    pub columns: Vec<usize>,
    names: Vec<String>,
    /// Which of them are texts.
    texts: Vec<bool>,
    source: &'a SourceRef,
    limits: &'a Limits,
    budget: Budget,
    /// Rows of each column that were looked at.
    rows: Vec<u64>,
}

impl<'a> Binaries<'a> {
    /// The columns of a schema, with `texts` also those of texts; those with bytes, or such texts, further in are told.
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
                    let text = format!(
                        "column-omitted: the column {name} has {what} further in, which were not looked into"
                    );
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

    /// Looks at the next rows of some of its columns, of which the first is number `first` among them.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] where the values are many times as long as the file.
    pub(crate) fn look(&mut self, first: usize, batch: &RecordBatch, scan: &mut Scan) -> Result<()> {
        for (number, column) in (first..self.columns.len()).zip(batch.columns()) {
            self.column(number, &**column, scan)?;
        }
        Ok(())
    }

    /// Tells that a column could not be looked through.
    ///
    /// # Errors
    /// The error itself, where it is not about the file.
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
            Err(Error::corrupt("another-column", "the data have another type than the schema says"))
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
            // All may be the same bytes.
            self.budget.take_work((bytes.len() as u64 + EACH).saturating_mul(LOOKS))?;
            if bytes.len() > 1 {
                self.value(number, bytes, scan);
            }
            self.rows[number] += 1;
        }
        Ok(())
    }

    /// Looks at a text; what was found where it is a pickle.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Limit`] where the texts are many times as long as the file.
    pub(crate) fn text(&mut self, text: &[u8]) -> Result<Option<Scan>> {
        let may_import = may_import(text);
        let cost = text.len() as u64 + if may_import { FOLLOWED } else { EACH_TEXT };
        self.budget.take_work(cost)?;
        if !may_import {
            return Ok(None);
        }
        let source: SourceRef = Arc::new(MemorySource::new(self.source.label(), text.to_vec()));
        let mut own = Scan::default();
        // What could not be followed is told, too.
        Ok((embedded(&source, self.limits, &mut own) || !own.findings.is_empty()).then_some(own))
    }

    fn value(&mut self, number: usize, bytes: &[u8], scan: &mut Scan) {
        // Two bytes are met by chance: gzip has a third, and flags of five bits. What is a pickle is seen otherwise.
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
            match self.budget.take_memory((bytes.len() as u64).saturating_mul(FOUND)) {
                Ok(()) => scan.look_into(place, source(), AssumedType::File),
                Err(_) => {
                    let mut own = Scan::default();
                    own.push("nested-too-deep", "more files among the values were not looked into");
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

/// True for a type with such columns further in.
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

    fn looked(field: Field, column: ArrayRef) -> (Scan, Result<()>) {
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
    fn every_value_is_looked_at() {
        let column = BinaryArray::from(vec![Some(&b"honest"[..]), None, Some(CALL)]);
        let (scan, result) = looked(Field::new("b", DataType::Binary, true), Arc::new(column));
        result.unwrap();
        assert_eq!(scan.imports[0].member.as_deref(), Some("b[2]"));
        let column = FixedSizeBinaryArray::try_from_iter([CALL, &[7; 14]].into_iter()).unwrap();
        let (scan, result) = looked(Field::new("b", DataType::FixedSizeBinary(14), true), Arc::new(column));
        result.unwrap();
        assert_eq!(scan.imports.len(), 1);
    }

    #[test]
    fn bytes_further_in_are_told() {
        let bytes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Binary));
        let list = DataType::List(Arc::new(Field::new("item", bytes, true)));
        assert!(holds(&list, is_bytes) && !holds(&DataType::Utf8, is_bytes));
        let column = arrow_array::new_empty_array(&list);
        let (scan, _) = looked(Field::new("l", list, true), column);
        assert_eq!(scan.findings[0].code.as_str(), "left-out");
    }

    #[test]
    fn every_text_is_looked_at() {
        let call = std::str::from_utf8(CALL).unwrap();
        let texts = [Some("honest"), None, Some("This is\na text\n"), Some(call)];
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from_iter(texts)),
            Arc::new(LargeStringArray::from_iter(texts)),
            Arc::new(StringViewArray::from_iter(texts)),
        ];
        for column in columns {
            let (scan, result) = looked(Field::new("t", column.data_type().clone(), true), column);
            result.unwrap();
            assert_eq!(scan.imports[0].member.as_deref(), Some("t[3]"));
        }
        let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let (scan, _) = looked(Field::new("w", words.clone(), true), arrow_array::new_empty_array(&words));
        assert_eq!(scan.findings[0].code.as_str(), "left-out");
        let long = "x".repeat(1 << 20);
        let column = StringArray::from(vec![long.as_str(); 130]);
        let (_, result) = looked(Field::new("t", DataType::Utf8, true), Arc::new(column));
        assert_eq!(result.unwrap_err().code().as_str(), "limit");
    }

    #[test]
    fn values_that_multiply_are_not_all_looked_at() {
        let long = vec![7; 1 << 20];
        let column = BinaryArray::from(vec![long.as_slice(); 70]);
        let (_, result) = looked(Field::new("b", DataType::Binary, true), Arc::new(column));
        assert_eq!(result.unwrap_err().code().as_str(), "limit");
    }
}
