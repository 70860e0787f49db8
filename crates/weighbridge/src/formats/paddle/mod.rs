//! PaddlePaddle: programs, tensor streams and pickles.

mod dtype;
pub mod pir;
pub mod program;
mod state;
pub mod stream;
mod strip;

pub use strip::{Strip, StripReport};
