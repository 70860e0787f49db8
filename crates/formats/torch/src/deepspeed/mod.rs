//! Checkpoints of DeepSpeed: a folder with the parts that each rank wrote, joined as one model.
//!
//! ```text
//! latest                                              name of the newest checkpoint
//! global_step5/mp_rank_00_model_states.pt             16-bit weights, names and shapes; with stage 3, one file for each rank:
//!              zero_pp_rank_1_mp_rank_00_model_states.pt
//! global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt   part of rank 0 of the fp32 weights and of the optimizer state
//! zero_to_fp32.py                                     script of DeepSpeed that joins the fp32 weights
//! ```
//!
//! The strategy of PyTorch Lightning writes the same files into a folder named `checkpoint`, with its own values.
//!
//! A parameter is one tensor over byte ranges of all ranks; so is each state of the optimizer, under the name of its parameter.
//! The 16-bit weights of a joined parameter are listed below `module`. Other tensors have the names of their file.

mod flat;
mod model;
mod optimizer;
mod place;
mod read;
#[cfg(test)]
mod tests;

use place::{LATEST, Place, tag_of};
use std::path::Path;
use weighbridge_core::check::Outline;
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::checksum::{Check, ChecksumKind};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_format::{Coverage, DeepCheck, Detect, Format, FormatInfo, OpenOptions, ReadFormat};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef};

/// Checkpoints of DeepSpeed.
#[derive(Debug)]
pub struct DeepSpeed;

/// Kind of every checkpoint.
const CHECKPOINT: &str = "checkpoint";

static INFO: FormatInfo = FormatInfo {
    id: "deepspeed",
    title: "DeepSpeed checkpoint (ZeRO stages 0 to 3)",
    coverage: Coverage {
        name: "DeepSpeed",
        read: "folders of ZeRO stages 0 to 3 of any number of ranks, joined to fp32 weights and optimizer state; those of PyTorch Lightning",
        written: "",
        not_read: "model and pipeline parallelism, experts, universal checkpoints",
    },
    extensions: &[],
    dtypes: &super::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for DeepSpeed {
    fn info(&self) -> &'static FormatInfo {
        &INFO
    }

    fn checker(&self) -> Option<&dyn DeepCheck> {
        Some(self)
    }

    #[cfg(feature = "scan")]
    fn scanner(&self) -> Option<&dyn ScanCode> {
        Some(self)
    }
}

/// Returns true for the file with the name of the newest checkpoint, by its own name and content.
fn is_latest(source: &SourceRef) -> bool {
    let name = Path::new(source.label()).file_name();
    name.is_some_and(|name| name == LATEST)
        && matches!(tag_of(source), Ok(Some(tag)) if !tag.contains(char::is_whitespace))
}

impl Detect for DeepSpeed {
    fn recognises(&self, _: &[u8], source: &SourceRef) -> bool {
        is_latest(source)
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        place::recognises_folder(folder)
    }
}

impl ReadFormat for DeepSpeed {
    fn open(&self, source: SourceRef, _: &OpenOptions) -> Result<Checkpoint> {
        Err(Error::usage(
            "not-a-checkpoint",
            "a file of a DeepSpeed checkpoint cannot be opened as one without its folder",
        )
        .in_file(source.label())
        .hint("give the path of the folder"))
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        if !is_latest(&source) {
            return self.open(source, options);
        }
        let label = source.label().to_owned();
        read::open(
            &Place::of_latest(folder, name.parent().unwrap_or(Path::new("")), source)?,
            &label,
            options,
        )
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        read::open(&Place::of(folder)?, folder.label(), options)
    }
}

impl DeepCheck for DeepSpeed {
    /// Compares the checksums of all storages: joined tensors are parts of several, without a checksum of their own.
    fn check(&self, checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for source in &checkpoint.files {
            let mut head = [0; 2];
            if source.len() < 2 || source.read_at(0, &mut head).is_err() || head != *b"PK" {
                continue;
            }
            let (_, members) = weighbridge_zip::outline(source, &Limits::default())?;
            let stored = members.iter().filter(|member| member.method == weighbridge_zip::Method::Stored);
            for member in stored.filter(|member| member.name.contains("/data/")) {
                let (offset, len, value) = (member.data_offset, member.compressed_len, member.crc32);
                match Check::new(source, offset, len, ChecksumKind::Crc32, value).verify() {
                    Err(error) if error.kind() == Kind::Io => return Err(error),
                    Err(error) => findings.extend(Finding::from_error(&error)),
                    Ok(()) => {}
                }
            }
        }
        Ok(findings)
    }

    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        match is_latest(source) {
            true => weighbridge_format::outline::text(source, "name of the newest checkpoint"),
            false => super::outline::outline(source, limits),
        }
    }
}

#[cfg(feature = "scan")]
impl ScanCode for DeepSpeed {
    fn scan(&self, source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
        match is_latest(source) {
            true => Ok(Scan::default()),
            false => super::scan::scan(source, options),
        }
    }
}
