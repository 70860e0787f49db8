//! Rows of a table as a search compares them.

use super::scores::{Comparator, Scorer, Table, Workers, each_block, trained_space};
use weighbridge_core::checkpoint::{Checkpoint, TensorEntry};
use weighbridge_core::error::Result;
use weighbridge_io::engine::Progress;

/// Rows of a table as `f32`: those of PyTorch-BigGraph as trained, with their global embedding, others as stored.
#[derive(Debug, Clone)]
pub struct ComparedRows {
    table: Table,
    trained: Option<Scorer>,
}

impl ComparedRows {
    /// Prepares the rows of a table.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Mismatch`], `not-a-table`; [`weighbridge_core::Kind::Unsupported`]: `not-numbers`,
    /// `comparator`; and errors of reading the global embedding.
    pub fn new(checkpoint: &Checkpoint, table: &TensorEntry) -> Result<Self> {
        Ok(match trained_space(checkpoint, table)? {
            Some((table, scorer)) => Self { table, trained: Some(scorer) },
            None => Self { table: Table::new(table)?, trained: None },
        })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.table.rows()
    }

    /// Returns the number of elements of a row, without its bias.
    pub fn columns(&self) -> usize {
        self.table.columns() - usize::from(self.has_bias())
    }

    /// Returns the trained comparator, if known.
    pub fn comparator(&self) -> Option<Comparator> {
        self.trained.map(|scorer| scorer.comparator)
    }

    /// Returns true if the first column is a bias, which is added to scores and not compared.
    pub fn has_bias(&self) -> bool {
        self.trained.is_some_and(|scorer| scorer.bias)
    }

    /// Returns the bytes of the table in memory.
    pub fn bytes(&self) -> u64 {
        self.rows().saturating_mul(self.table.row_bytes())
    }

    /// Passes each row, without its bias, to `work`, from this number of threads; 0 is one a processor. The table is read once,
    /// in blocks.
    ///
    /// # Errors
    /// Errors of reading and of `work`; [`weighbridge_core::Kind::Cancelled`].
    pub fn each(
        &self,
        threads: usize,
        progress: &dyn Progress,
        work: impl Fn(u64, &[f32]) -> Result<()> + Sync,
    ) -> Result<()> {
        let bias = usize::from(self.has_bias());
        let block = |(): &mut (), first: u64, values: Vec<f32>| {
            let rows = values.chunks_exact(self.table.columns());
            (first..)
                .zip(rows)
                .try_for_each(|(row, values)| work(row, values.get(bias..).unwrap_or_default()))
        };
        each_block(&self.table, 0..self.rows(), Workers { threads, progress }, block).map(|_| ())
    }
}
