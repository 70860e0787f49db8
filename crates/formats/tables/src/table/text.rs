//! Encoding of a table as text.

use super::Table;
use super::digits::{Floats, push_row, usual_len};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{Encode, Output};
use weighbridge_format::PlanOptions;
use weighbridge_io::source::{SourceRef, to_usize};

/// First field of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstField {
    /// Row name.
    Name,
    /// Row number, counted from 0.
    Number,
    /// No such field.
    None,
}

/// Table written as lines.
#[derive(Debug)]
pub(crate) struct TextTable {
    /// The rows.
    pub table: Table,
    /// Separator of fields.
    pub separator: u8,
    /// Decimal form of floats.
    pub floats: Floats,
    /// First field of a row.
    pub names: FirstField,
    /// True where the first line has the numbers of rows and columns.
    pub header: bool,
}

/// Parses the setting `floats`.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for an unknown value.
pub(crate) fn floats(options: &PlanOptions) -> Result<Floats> {
    match options.setting("floats") {
        None | Some("shortest") => Ok(Floats::Shortest),
        Some("upstream") => Ok(Floats::Fixed9),
        Some(other) => Err(Error::usage("bad-setting", "unknown form of floats")
            .expected("shortest or upstream")
            .found(other)),
    }
}

impl TextTable {
    pub(crate) fn check_name<'a>(&self, row: u64, name: &'a str) -> Result<&'a str> {
        let separates = |b: u8| b == self.separator || b == b'\n' || b == b'\r';
        // Readers of word vectors treat any blank as the end of the word.
        let blank = self.separator == b' ' && name.contains(char::is_whitespace);
        if blank || name.bytes().any(separates) {
            return Err(Error::mismatch("name-separates", "the row name contains a separator")
                .on_tensor(self.table.entry.name())
                .found(format_args!("{name:?} in row {row}"))
                .hint("write parquet or arrow instead; their row names may be any text"));
        }
        // Detection does not accept a file with control characters at its start as text.
        let is_word = self.separator == b' ';
        if name.chars().any(|c| c.is_ascii_control() || is_word && c.is_control()) {
            return Err(Error::mismatch("name-control", "the row name contains a control character")
                .on_tensor(self.table.entry.name())
                .found(format_args!("{name:?} in row {row}"))
                .hint("write parquet or arrow instead; their row names may be any text"));
        }
        if name.is_empty() && self.separator == b' ' {
            return Err(Error::mismatch("name-empty", "the row name is empty")
                .on_tensor(self.table.entry.name())
                .found(format_args!("row {row}")));
        }
        Ok(name)
    }
}

impl Encode for TextTable {
    fn describe(&self) -> String {
        let floats = if self.floats == Floats::Fixed9 { ", %.9f" } else { "" };
        format!("{} as text{floats}", self.table.describe())
    }

    fn estimate(&self) -> u64 {
        let number = usual_len(self.table.entry.dtype(), self.floats);
        let name = if self.names == FirstField::None { 0 } else { 10 };
        self.table.columns.saturating_mul(number).saturating_add(name).saturating_mul(self.table.rows)
    }

    fn tensors(&self) -> Vec<&TensorEntry> {
        vec![&self.table.entry]
    }

    fn other_sources(&self) -> Vec<SourceRef> {
        self.table.name_sources()
    }

    fn encode(&self, out: &mut dyn Output) -> Result<()> {
        let (table, dtype) = (&self.table, self.table.entry.dtype());
        let row_names = if self.names == FirstField::Name { table.names()? } else { None };
        if self.header {
            out.write(format!("{} {}\n", table.rows, table.columns).as_bytes())?;
        }
        // Memory for the elements, for reading them, and for their text.
        let element = 3 * dtype.size().unwrap_or(1) as u64 + usual_len(dtype, self.floats);
        let each = table.columns.saturating_mul(element).saturating_add(64);
        let at_once = table.rows_at_once(each, out);
        let row_bytes = to_usize(table.row_bytes())?;
        out.blocks(table.rows.div_ceil(at_once), &|block, elements, text| {
            let rows = block * at_once..table.rows.min((block + 1) * at_once);
            let mut bytes = Vec::new();
            table.read(&rows, elements, &mut bytes)?;
            let mut rest = bytes.as_slice();
            for row in rows {
                let (now, later) = rest.split_at(row_bytes.min(rest.len()));
                rest = later;
                match &row_names {
                    Some(row_names) => {
                        let name = row_names.get(to_usize(row)?).unwrap_or_default();
                        text.extend_from_slice(self.check_name(row, name)?.as_bytes());
                    }
                    None if self.names == FirstField::Number => {
                        text.extend_from_slice(row.to_string().as_bytes())
                    }
                    None => {}
                }
                push_row(now, dtype, self.floats, self.separator, self.names == FirstField::None, text)?;
                text.push(b'\n');
            }
            Ok(())
        })
    }
}
