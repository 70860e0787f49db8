//! Names of files, partitions, buckets and versions, without file contents.
//!
//! ```text
//! entity folder      entity_count_{type}_{part}.txt   entity_names_{type}_{part}.json
//! edge folder        edges_{l}_{r}.h5                 (while being written: edges_{l}_{r}.tmp.h5)
//! edge folder        edges_{l}_{r}.h5                 (while it is written: edges_{l}_{r}.tmp.h5)
//! checkpoint folder  checkpoint_version.txt  config.json  training_stats.json
//!                    model.v{N}.h5           embeddings_{type}_{part}.v{N}.h5
//!                    epoch_{E}/              links to the files of one version, and its version file
//! ```
//!
//! All numbers are decimal and counted from 0. A type name may contain `_`: the partition follows the last
//! one.

mod listing;
mod names;
mod parts;
mod paths;
mod version;

pub(crate) use listing::{Listing, Orphan, OrphanReason, VersionFiles};
pub use names::FileName;
pub(crate) use names::is_type_name;
pub(crate) use parts::{part_start, split_counts};
pub(crate) use paths::{plain_path, relative_entity_folder};
pub(crate) use version::{EpochPosition, Schedule};
