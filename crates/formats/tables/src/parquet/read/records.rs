//! Columns of row groups as records.

use super::{File, NAME_BYTES_AT_ONCE, NAMES_AT_ONCE};
use crate::records::{NextBatch, Sections};
use arrow_schema::{DataType, SchemaRef};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, to_usize};

/// Row groups read as records.
#[derive(Debug)]
pub(crate) struct ParquetSections {
    file: File,
    columns: Vec<usize>,
}

impl ParquetSections {
    /// Opens a file.
    pub(crate) fn open(source: &SourceRef, limits: &Limits) -> Result<(SchemaRef, Self)> {
        let file = File::read(source, limits)?;
        Ok((file.metadata.schema().clone(), Self { file, columns: Vec::new() }))
    }

    /// True for a column of numbers, whose values have a fixed size.
    fn is_number(&self, place: usize) -> bool {
        let field = self.file.metadata.schema().fields().get(place);
        field.is_some_and(|field| {
            field.data_type().is_numeric() && !matches!(field.data_type(), DataType::Dictionary(..))
        })
    }
}

impl Sections for ParquetSections {
    fn select(&mut self, columns: Vec<usize>) -> Result<Vec<u64>> {
        self.columns = columns;
        let groups = self.file.metadata.metadata().row_groups().iter();
        let rows = groups.map(|group| u64::try_from(group.num_rows()));
        rows.collect::<std::result::Result<_, _>>()
            .map_err(|_| Error::corrupt("negative", "a row group has a negative row count"))
    }

    fn open(&self, section: usize, skip: u64) -> Result<(u64, NextBatch<'_>)> {
        let (file, columns) = (&self.file, &self.columns);
        let (mut texts, mut at_once) = (0u64, NAMES_AT_ONCE);
        for &place in columns.iter().filter(|place| !self.is_number(**place)) {
            let (longest, held) = file.longest_text(section, place)?;
            let limit = file.limits.name_bytes;
            Limits::check("bytes of the name of a row", "name_bytes", longest, limit)?;
            texts = texts.saturating_add(longest);
            at_once = at_once.min(NAME_BYTES_AT_ONCE / held.max(1)).max(1);
        }
        let mut rows = file.rows(section, columns.clone(), skip, to_usize(at_once)?)?;
        let next = move || {
            let batch = file.next(&mut rows, section, columns)?;
            Ok(batch.filter(|batch| batch.num_rows() > 0))
        };
        Ok((texts, Box::new(next)))
    }
}
