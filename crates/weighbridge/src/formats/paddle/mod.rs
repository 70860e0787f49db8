//! PaddlePaddle: programs, tensor streams and pickles.

mod dtype;
pub mod exec;
pub mod pir;
pub mod program;
pub mod stream;
mod strip;

pub use strip::{Strip, StripReport};
