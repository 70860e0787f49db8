//! Folders with one malformed file among valid ones.

use super::Outcome;
use super::open::examine;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use weighbridge::formats::{OpenOptions, registry};
use weighbridge::source::{FolderRef, MemoryFolder};

/// Small folders, one of each kind.
pub(super) const FOLDERS: &[&str] = &[
    "biggraph/set1/ckpt_dyn_affine",
    "biggraph/set1/init_v0_f64",
    "tensorflow/good/partitioned",
    "dcp/good/t22_columns",
    "dcp/good/t215_values",
    "deepspeed/good/d14_z2_bf16_3",
    "deepspeed/good/d19_lightning_fsdp_2",
];

/// Checkpoints of Orbax: one store, and folders of arrays in both versions of Zarr.
pub(super) const ORBAX: &[&str] =
    &["orbax/good/small", "orbax/good/aggregate", "orbax/good/small_zarr3_folders"];

/// Steps of DeepSpeed: both forms of flat tensors, with several groups, frozen and shared parameters.
pub(super) const DEEPSPEED: &[&str] =
    &["deepspeed/good/d19_z2_f16_2/global_step2", "deepspeed/good/d19_z3_f16_2/global_step2"];

/// Files of a folder and its folders: name and content.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// Returns the files of each folder of a target.
fn folders(target: &str) -> &'static Vec<Files> {
    static ALL: OnceLock<[Vec<Files>; 3]> = OnceLock::new();
    let [any, orbax, deepspeed] = ALL.get_or_init(|| {
        let one = |folder: &&str| {
            let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "testdata", folder].iter().collect();
            let (mut files, mut open) = (Vec::new(), vec![root.clone()]);
            while let Some(path) = open.pop() {
                match path.is_dir() {
                    true => open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
                    false => files.push(path),
                }
            }
            files.sort();
            let name = |path: &PathBuf| path.strip_prefix(&root).unwrap().to_owned();
            files.iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect()
        };
        [FOLDERS, ORBAX, DEEPSPEED].map(|folders| folders.iter().map(one).collect())
    });
    match target {
        "orbax" => orbax,
        "deepspeed" => deepspeed,
        _ => any,
    }
}

/// Replaces one file of a folder by the input; the input determines the file.
pub(super) fn run(target: &'static str, bytes: &[u8]) -> Outcome {
    let files = folders(target);
    // Equal inputs replace the same file.
    let sum =
        bytes.iter().fold(bytes.len(), |sum, &byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    let folder = &files[sum % files.len()];
    let place = sum / files.len() % folder.len();
    let mut memory = MemoryFolder::new("input");
    for (number, (name, good)) in folder.iter().enumerate() {
        memory = memory.with(name, if number == place { bytes.to_vec() } else { good.clone() });
    }
    let memory: FolderRef = Arc::new(memory);
    for lenient in [false, true] {
        match registry().open_folder(&memory, &OpenOptions { lenient, ..OpenOptions::default() }) {
            Ok(checkpoint) => {
                examine(&checkpoint);
                return if lenient { Outcome::OpenedLeniently } else { Outcome::Opened };
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    Outcome::Refused
}
