//! Tensors as such: element types, shapes, orders, and the moving and casting of elements.
//!
//! Nothing here knows of files. Bytes are little-endian unless an [`Encoding`] says otherwise.

mod cast;
mod dtype;
mod element;
mod float16;
mod region;
mod rounding;
mod shape;
mod strided;
mod swap;

pub use cast::{CAST_NAMES, CAST_TARGETS, CastReport, cast, cast_is_exact, cast_is_supported};
pub use dtype::DType;
pub use element::{Element, element_at};
pub use float16::{bf16, f16};
pub use region::{Blocks, Region};
pub use rounding::{Cast, Rounding};
pub use shape::{Encoding, Endian, Order, Shape};
pub use strided::dense_strides;
pub use strided::{copy_strided, relayout};
pub use swap::swap_bytes;
