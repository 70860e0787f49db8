//! Dtypes, shapes, storage orders, casts and layout changes of tensors in memory.
//!
//! Independent of files. Bytes are little-endian unless an [`Encoding`] states otherwise.

mod cast;
mod dtype;
mod element;
mod float16;
mod region;
mod rounding;
mod shape;
mod strided;
mod swap;

pub use cast::{CastReport, cast};
pub use dtype::DType;
pub use element::Element;
pub use float16::{bf16, f16};
pub use region::{Blocks, Region};
pub use rounding::{Cast, Rounding};
pub use shape::{Encoding, Endian, Order, Shape};
pub use strided::{copy_strided, relayout};
