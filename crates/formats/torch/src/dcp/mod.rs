//! Distributed checkpoints of `torch.distributed.checkpoint`: a folder with the parts that each rank wrote.
//!
//! ```text
//! .metadata         pickle: tensors with their chunks, values, and their byte ranges in the data files
//! __0_0.distcp      data of rank 0: consecutive archives of torch.save, one for each chunk or value
//! __1_0.distcp      data of rank 1
//! meta.pt           only of PyTorch Lightning: a file of torch.save with steps, hyper parameters and callbacks
//! weighbridge.json  data of Weighbridge that torch has no place for; only where needed
//! ```
//!
//! A tensor is listed once, with an extent for each chunk. Names are the flat names of the checkpoint, such as
//! `optim.state.fc.weight.exp_avg`. Plain values become metadata. Tensors in other values are listed, too.
//!
//! The output has the data of one rank. Values that were not changed are copied as they are, and so is the nesting of names.

mod archives;
mod metadata;
mod read;
#[cfg(feature = "scan")]
mod scan;
mod state;
#[cfg(test)]
mod tests;
mod write;

use metadata::is_metadata;
use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::WritePlan;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, PlanOptions, ReadFormat,
    RowNameSupport, Salvage, WriteFormat,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderItem, FolderRef, SourceRef};

/// Distributed checkpoints of PyTorch.
#[derive(Debug)]
pub struct Dcp;

/// Kind of every checkpoint.
const CHECKPOINT: &str = "checkpoint";
/// File with the tensors and their byte ranges.
const METADATA_FILE: &str = ".metadata";
/// File with the data of the only rank of a written checkpoint.
const DATA_FILE: &str = "__0_0.distcp";
/// End of the names of data files.
const DATA_END: &str = ".distcp";
/// File of PyTorch Lightning with everything but weights and optimizer.
const LIGHTNING_FILE: &str = "meta.pt";
/// File of Weighbridge.
const INDEX_FILE: &str = "weighbridge.json";

static INFO: FormatInfo = FormatInfo {
    id: "dcp",
    title: "PyTorch distributed checkpoint (torch.distributed.checkpoint)",
    coverage: Coverage {
        name: "PyTorch distributed",
        read: "folders of `torch.distributed.checkpoint` of any number of ranks",
        written: "as one rank",
        not_read: "compressed chunks, metadata of single ranks",
    },
    extensions: &[],
    dtypes: &super::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Dcp {
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

    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        Some(self)
    }
}

/// Returns true for the beginning of a metadata file.
fn has_metadata(source: &SourceRef) -> Result<bool> {
    let mut head = [0; 512];
    let count = usize::try_from(source.len()).unwrap_or(head.len()).min(head.len());
    source.read_at(0, &mut head[..count])?;
    Ok(is_metadata(&head[..count]))
}

/// Error for a single file of a checkpoint.
fn alone(source: &SourceRef) -> Result<Checkpoint> {
    let what = match has_metadata(source)? {
        true => "the metadata of a distributed checkpoint cannot be opened without their folder",
        false => "a data file of a distributed checkpoint cannot be opened alone",
    };
    Err(Error::usage("torch-distributed", what)
        .in_file(source.label())
        .hint("open the folder of the checkpoint; its file .metadata must be there"))
}

impl Detect for Dcp {
    fn recognises(&self, head: &[u8], source: &SourceRef) -> bool {
        is_metadata(head) || (source.label().ends_with(DATA_END) && head.starts_with(b"PK\x03\x04"))
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        // The metadata files of Paddle have a number before the dot.
        let is_data = |item: &FolderItem| item.name.as_os_str().to_string_lossy().ends_with(DATA_END);
        matches!(folder.open(Path::new(METADATA_FILE)), Ok(Some(_)))
            && folder.list(1).is_ok_and(|items| items.iter().any(is_data))
    }
}

impl ReadFormat for Dcp {
    fn open(&self, source: SourceRef, _: &OpenOptions) -> Result<Checkpoint> {
        alone(&source)
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        match has_metadata(&source)? {
            true => read::open(folder, name.parent().unwrap_or(Path::new("")), source.label(), options),
            false => alone(&source),
        }
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(folder, Path::new(""), folder.label(), options)
    }
}

impl WriteFormat for Dcp {
    fn plan(&self, checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
        write::plan(checkpoint, options)
    }

    fn labels_in(&self) -> RowNameSupport {
        RowNameSupport::Tensors
    }
}

impl Salvage for Dcp {
    /// Opens the tensors with intact archives: a missing or truncated data file does not hide the others.
    fn salvage(&self, place: &Input<'_>, _: &Error, options: &OpenOptions) -> Result<Option<Checkpoint>> {
        match *place {
            Input::Folder(folder) => self.open_folder(folder, options).map(Some),
            Input::Beside(source, folder, name) => {
                self.open_beside(source.clone(), folder, name, options).map(Some)
            }
            Input::Alone(_) => Ok(None),
        }
    }
}

impl DeepCheck for Dcp {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        if has_metadata(source)? {
            return Ok(Outline::whole(source.len(), "metadata"));
        }
        match source.label().ends_with(INDEX_FILE) {
            true => weighbridge_format::outline::text(source, "metadata of Weighbridge"),
            false => archives::outline(source, limits),
        }
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Dcp {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        scan::scan(source, options)
    }
}
