//! One file a verb.

pub(crate) mod checkpoint;
pub(crate) mod convert;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod edit;
pub(crate) mod evaluate;
pub(crate) mod generate;
pub(crate) mod import;
#[cfg(feature = "usearch")]
pub(crate) mod index;
pub(crate) mod info;
pub(crate) mod ls;
pub(crate) mod merge;
pub(crate) mod neighbors;
pub(crate) mod program;
pub(crate) mod rank;
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod seal;
pub(crate) mod shard;
pub(crate) mod show;
pub(crate) mod stats;
pub(crate) mod verify;
