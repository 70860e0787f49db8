//! What is fed.

mod detect;
mod folder;
mod open;
mod pickle;
mod plan;

use crate::seeds::{Seed, seeds};

/// What became of an input that did no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was taken for what it seems to be.
    Opened,
    /// It was taken where rules may be broken.
    OpenedLeniently,
    /// It was refused with an error.
    Refused,
}

/// Something that takes any bytes.
pub struct Target {
    /// Its name: of a format, the id.
    pub name: &'static str,
    /// The folders of `testdata` whose files are damaged.
    pub folders: &'static [&'static str],
    /// Their extensions, where others stand beside them.
    pub extensions: &'static [&'static str],
    /// How much of a campaign it gets, beside the others.
    pub share: u64,
    /// Panics where something is wrong that is not a panic already.
    run: fn(&'static str, &[u8]) -> Outcome,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// Feeds it.
    ///
    /// # Panics
    /// Where something is wrong.
    pub fn feed(&self, bytes: &[u8]) -> Outcome {
        (self.run)(self.name, bytes)
    }

    /// The good files that are damaged.
    pub fn seeds(&self) -> Vec<Seed> {
        seeds(self.folders, self.extensions)
    }
}

const ALL: &[&str] = &[
    "primitiv/good",
    "safetensors/good",
    "npy/good",
    "npz/good",
    "torch/good",
    "hdf5/good",
    "biggraph/alt",
    "paddle/good",
    "pickle/good",
    "tables",
];

const fn format(
    name: &'static str,
    folders: &'static [&'static str],
    extensions: &'static [&'static str],
    share: u64,
) -> Target {
    Target { name, folders, extensions, share, run: open::run }
}

/// All targets.
pub static TARGETS: &[Target] = &[
    format("primitiv", &["primitiv/good"], &[], 2),
    format("safetensors", &["safetensors/good"], &[], 2),
    format("npy", &["npy/good", "cast"], &["npy"], 1),
    format("npz", &["npz/good"], &[], 2),
    format("torch", &["torch/good"], &[], 3),
    format("hdf5", &["hdf5/good", "hdf5/small"], &[], 2),
    format("biggraph", &["biggraph/alt", "biggraph/text"], &["h5", "hdf5"], 1),
    format("paddle", &["paddle/good"], &[], 4),
    format("parquet", &["tables"], &["parquet"], 1),
    format("arrow", &["tables"], &["arrow"], 1),
    format("tsv", &["tables"], &["tsv"], 1),
    format("word2vec", &["tables"], &["vec", "bin"], 1),
    Target { name: "folder", folders: folder::FOLDERS, extensions: &[], share: 1, run: folder::run },
    Target { name: "detect", folders: ALL, extensions: &[], share: 2, run: detect::run },
    Target {
        name: "pickle",
        folders: &["pickle/good", "paddle/good"],
        extensions: &[],
        share: 2,
        run: pickle::run,
    },
    Target { name: "plan", folders: &["npy/good", "pickle/good"], extensions: &[], share: 1, run: plan::run },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
