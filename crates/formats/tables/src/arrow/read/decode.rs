//! Decoding of a batch on access: elements and row names.

use super::File;
use crate::table::Decoder;
use crate::table::columns::Layout;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checkpoint::{RowNameList, RowNames, check_count};
use weighbridge_core::error::Result;
use weighbridge_io::source::SourceRef;

/// Decoder of the elements of a batch.
#[derive(Debug)]
pub(super) struct Batches {
    pub(super) file: Arc<File>,
    pub(super) layout: Layout,
    pub(super) width: u64,
}

impl Decoder for Batches {
    fn decode(&self, block: usize) -> Result<Vec<u8>> {
        let batch = self.file.batch(block, self.layout.elements())?;
        let mut out = Vec::new();
        self.layout.rows(&batch, self.width, &mut out)?;
        Ok(out)
    }
}

/// Row names in a column of all batches.
#[derive(Debug)]
pub(super) struct BatchNames {
    pub(super) file: Arc<File>,
    pub(super) place: usize,
    pub(super) rows: u64,
    pub(super) kept: Mutex<Option<Arc<RowNameList>>>,
}

impl RowNames for BatchNames {
    fn label(&self) -> &str {
        self.file.source.label()
    }
    fn read(&self) -> Result<Arc<RowNameList>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = &*kept {
            return Ok(list.clone());
        }
        let mut list = RowNameList::new();
        for number in 0..self.file.blocks.len() {
            self.append(number, &mut list, 0)?;
        }
        check_count(self, list.len() as u64, self.rows)?;
        let list = Arc::new(list);
        *kept = Some(list.clone());
        Ok(list)
    }
    fn each(&self, take: &mut dyn FnMut(&RowNameList) -> Result<()>) -> Result<()> {
        let (mut list, mut count, mut spent) = (RowNameList::new(), 0, 0u64);
        for number in 0..self.file.blocks.len() {
            self.append(number, &mut list, spent)?;
            count += list.len() as u64;
            spent = spent.saturating_add(list.bytes());
            take(&list)?;
            list.clear();
        }
        check_count(self, count, self.rows)
    }
    fn sources(&self) -> Vec<SourceRef> {
        vec![self.file.source.clone()]
    }
}

impl BatchNames {
    /// Appends the names of a batch; `spent` is the number of bytes of names not in the list.
    fn append(&self, number: usize, list: &mut RowNameList, spent: u64) -> Result<()> {
        let most = RowNameList::most(self.file.source.len(), &self.file.limits).saturating_sub(spent);
        let batch = self.file.batch(number, vec![self.place])?;
        Layout::names(&batch, list, most).map_err(|e| e.in_file(self.label()))
    }
}
