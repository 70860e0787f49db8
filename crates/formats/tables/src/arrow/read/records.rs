//! Columns of record batches as records, also those with dictionaries.

use super::{File, RangeOf, buffers_of};
use crate::records::{NextBatch, Sections, longest};
use crate::table::columns::{Layout, Vector};
use crate::table::pipe::guarded;
use crate::table::{COPIES, flat};
use arrow_buffer::Buffer;
use arrow_ipc::Block;
use arrow_ipc::reader::FileDecoder;
use arrow_schema::{ArrowError, SchemaRef};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_io::source::{SourceRef, read_vec};

/// Record batches read as records.
#[derive(Debug)]
pub(crate) struct ArrowSections {
    file: File,
    /// Decoder of the selected columns, with their dictionaries.
    decoder: FileDecoder,
}

impl ArrowSections {
    /// Opens a file.
    pub(crate) fn open(source: &SourceRef, limits: &Limits) -> Result<(SchemaRef, Self)> {
        let file = File::read(source, limits)?;
        let decoder = FileDecoder::new(file.decoded.clone(), file.version);
        Ok((file.schema.clone(), Self { file, decoder }))
    }

    /// Reads the dictionaries of the selected columns: the first one of each, and its extensions.
    fn read_dictionaries(&mut self, columns: &[usize]) -> Result<()> {
        let file = &self.file;
        let ids = columns.iter().filter_map(|column| file.dictionary_ids.get(*column).copied().flatten());
        let ids: Vec<i64> = ids.collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut claimed = 0u64;
        for block in &file.dictionaries {
            let (offset, head, len) = file.place(block)?;
            if !ids.contains(&file.check_dictionary(block, &mut claimed).map_err(|e| e.at(offset))?) {
                continue;
            }
            let body = RangeOf { start: offset, len };
            let bytes = Buffer::from_vec(read_vec(&*file.source, body.start, body.len)?);
            // Kept until the file is closed; a dictionary that is not compressed refers to these bytes.
            file.budget.take_memory(len - head).map_err(|e| e.at(offset))?;
            guarded("a dictionary", || self.decoder.read_dictionary(block, &bytes))
                .map_err(|e| e.at(offset))?;
        }
        Ok(())
    }
}

impl File {
    /// Fails if a dictionary declares more bytes than the limits allow, all of them together. Returns its id.
    fn check_dictionary(&self, block: &Block, claimed: &mut u64) -> Result<i64> {
        let (offset, head, len) = self.place(block)?;
        let bytes = read_vec(&*self.source, offset, head)?;
        let what = "the header of a dictionary";
        let skip = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
        let message = flat::message(what, bytes.get(skip..).unwrap_or_default())?;
        let (id, data) = guarded(what, || {
            let batch = message.header_as_dictionary_batch();
            let batch = batch.and_then(|batch| Some((batch.id(), batch.data()?)));
            batch.ok_or_else(|| ArrowError::ParseError("no dictionary".to_owned()))
        })?;
        let buffers = buffers_of(&data)?;
        let body = RangeOf { start: offset + head, len: len - head };
        if data.compression().is_some() {
            let claims = self.claims(body, &buffers, &[], &[])?.unpacked;
            *claimed = claimed.saturating_add(claims);
            let what = "the declared sizes of all dictionaries are";
            self.limits.check_expansion(what, *claimed, self.source.len())?;
            self.budget.take_memory(claims.saturating_mul(COPIES))?;
            return Ok(id);
        }
        let together = buffers.iter().fold(0u64, |sum, (_, len)| sum.saturating_add(*len));
        if together > body.len {
            return Err(Error::corrupt(
                "overlapping-buffers",
                "the buffers of a dictionary are larger than its body",
            )
            .expected(format_args!("at most {} bytes", body.len))
            .found(together));
        }
        Ok(id)
    }
}

impl Sections for ArrowSections {
    fn select(&mut self, columns: Vec<usize>) -> Result<Vec<u64>> {
        self.file.check_overlap()?;
        let layout = Layout { dtype: DType::U8, vector: Vector::Plain(columns.clone()), names: None };
        let heads = self.file.heads(&layout, |_| false)?;
        self.read_dictionaries(&columns)?;
        let empty = FileDecoder::new(self.file.decoded.clone(), self.file.version);
        self.decoder = std::mem::replace(&mut self.decoder, empty).with_projection(columns);
        Ok(heads.iter().map(|head| head.rows).collect())
    }

    fn open(&self, section: usize, skip: u64) -> Result<(u64, NextBatch<'_>)> {
        let batch = self.file.decode(section, &self.decoder)?;
        let texts = batch.columns().iter().fold(0u64, |sum, column| sum.saturating_add(longest(column)));
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(batch.num_rows());
        let mut batch = Some(batch.slice(skip, batch.num_rows() - skip)).filter(|batch| batch.num_rows() > 0);
        Ok((texts, Box::new(move || Ok(batch.take()))))
    }
}
