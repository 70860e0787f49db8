//! Checkpoints of Orbax: a folder with a tree of arrays, each stored in Zarr.
//!
//! ```text
//! _METADATA                   the tree as JSON: the keys of every leaf, and its type
//! manifest.ocdbt, d/, ocdbt.process_0/    one key-value store of all arrays: OCDBT
//! NAME/.zarray, NAME/0.0      or a folder per array, with a file per chunk
//! checkpoint                  the tree in MessagePack, with small arrays, in old checkpoints
//! _strings.json, _sharding, array_metadatas/, _CHECKPOINT_METADATA, commit_success.txt
//! ```
//!
//! The name of an array is its keys, joined by dots; its metadata is the key `NAME/.zarray` or `NAME/zarr.json`, its chunks are keys such as
//! `NAME/0.1` and `NAME/c/0/1`. A step is a folder of trees (`default`), a directory of checkpoints is a folder of steps.

mod chunks;
mod fields;
mod layout;
mod metadata;
mod ocdbt;
mod open;
mod outline;
mod stored;
mod zarr;

use crate::dtypes;
use layout::Layout;
use std::path::Path;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::Checkpoint;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Order;
use weighbridge_format::{
    Coverage, DeepCheck, Detect, Format, FormatInfo, Input, OpenOptions, ReadFormat, Salvage,
};
#[cfg(feature = "scan")]
use weighbridge_format::{Scan, ScanCode};
use weighbridge_io::source::{FolderRef, SourceRef, read_vec};

/// The format of Orbax, read-only.
#[derive(Debug)]
pub struct Orbax;

/// Kind of a checkpoint.
const KIND: &str = "checkpoint";

static INFO: FormatInfo = FormatInfo {
    id: "orbax",
    title: "Orbax checkpoint (OCDBT or Zarr)",
    coverage: Coverage {
        name: "Orbax",
        read: "folders in OCDBT and Zarr 2 and 3, steps",
        written: "",
        not_read: "blosc, arrays of text",
    },
    extensions: &[],
    dtypes: &dtypes::DTYPES,
    order: Some(Order::Row),
    settings: &[],
};

impl Format for Orbax {
    fn info(&self) -> &'static FormatInfo {
        &INFO
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

impl Detect for Orbax {
    /// Accepts the manifest of a store; its folder is the checkpoint.
    fn recognises(&self, head: &[u8], _: &SourceRef) -> bool {
        head.starts_with(&ocdbt::MANIFEST_MAGIC)
    }

    fn recognises_folder(&self, folder: &FolderRef) -> bool {
        // Opening reports several steps as an error.
        layout::layout(folder).is_ok_and(|layout| layout != Layout::None)
    }
}

impl ReadFormat for Orbax {
    fn open(&self, source: SourceRef, _: &OpenOptions) -> Result<Checkpoint> {
        Err(Error::usage("list-alone", "a manifest of Orbax cannot be opened without its folder")
            .in_file(source.label())
            .hint("open the folder of the checkpoint"))
    }

    fn open_beside(
        &self,
        source: SourceRef,
        folder: &FolderRef,
        name: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        match name.parent() {
            Some(around) if name.file_name().is_some_and(|name| name == ocdbt::MANIFEST) => {
                open::trees(folder, folder.label(), &[around.to_owned()], options)
            }
            _ => self.open(source, options),
        }
    }

    fn open_folder(&self, folder: &FolderRef, options: &OpenOptions) -> Result<Checkpoint> {
        match layout::layout(folder)? {
            Layout::One(tree) => open::trees(folder, folder.label(), &[tree], options),
            Layout::Items(items) => open::trees(folder, folder.label(), &items, options),
            Layout::Steps(steps) => Err(layout::several(folder, &steps)),
            Layout::None => Err(Error::usage("no-model", "the folder is not a checkpoint of Orbax")
                .in_file(folder.label())
                .expected("_METADATA, manifest.ocdbt, or a folder of a step with one of them")),
        }
    }
}

impl Salvage for Orbax {
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

impl DeepCheck for Orbax {
    fn outline(&self, source: &SourceRef, limits: &Limits) -> Result<Outline> {
        let len = source.len();
        let head = read_vec(&**source, 0, len.min(4))?;
        if head == ocdbt::MANIFEST_MAGIC {
            return Ok(Outline::whole(len, "manifest"));
        }
        if head.first() == Some(&b'{')
            && weighbridge_format::outline::text(source, "JSON")?.parts.iter().any(|part| part.len == len)
        {
            return Ok(Outline::whole(len, "JSON"));
        }
        if crate::tree::is_tree(source) {
            return crate::read::outline(source, limits);
        }
        if len <= open::MAX_MARKER && source.label().ends_with(open::MARKER) {
            return weighbridge_format::outline::text(source, "marker");
        }
        let mut outline = Outline::new(Gaps::Forbidden);
        outline::data(source, limits, &mut outline)?;
        Ok(outline)
    }
}

#[cfg(feature = "scan")]
impl ScanCode for Orbax {
    /// Orbax executes nothing from a checkpoint. The files of a folder are opened as a whole; a single file has no names of tensors.
    fn scan(&self, _: &SourceRef, _: &OpenOptions) -> Result<Scan> {
        Ok(Scan::default())
    }
}
