//! The engine: the one place that moves tensor bytes, for every format.

mod read;

pub use read::{read_region, read_tensor};
