//! Tensors as streams of bytes: what Paddle's parameter files are made of.
//!
//! All numbers are little-endian; nothing is aligned or padded; no stream says how long it is.
//!
//! ```text
//! dense tensor                          selected rows                     Vocab
//! u32  stream version = 0               u32  stream version = 0           u64  words
//! u64  LoD levels                       u64  rows                         per word:
//! per level:                            i64  numbers of the rows []         u64  bytes
//!   u64  bytes (8 for each offset)      i64  height                         UTF-8
//!   u64  offsets []                                                         i32  number
//! u32  tensor version = 0               u32  tensor version = 0
//! i32  bytes of the desc                i32  bytes of the desc
//! desc, a protobuf message              desc
//! elements, row-major                   elements
//!
//! 00000000  0000000000000000  00000000  06000000  08 05 10 02 10 03   24 bytes: a [2, 3] of f32
//! version   no LoD            version   6 bytes   FP32   2     3
//! ```
//!
//! A file holds one stream, named after the variable; or dense streams end to end
//! ([`combined`]), in the order of the bytes of their names, which stand in the program and not
//! in the file. Until Paddle 2.4, Vocabs could stand among them.
//!
//! [`detect`] tells the kinds of file apart. Readers hop over the elements; what they give is
//! written again byte for byte, also where another hand than Paddle's wrote it.

pub mod combined;
pub mod dense;
pub mod desc;
mod detect;
mod header;
pub mod lod;
pub mod selected_rows;
#[cfg(test)]
mod tests;
pub mod unshipped;
pub mod vocab;
mod wire;

pub use combined::{Kind, Salvage, Stream, Wanted};
pub use desc::TensorDesc;
pub use detect::{StreamKind, detect};
pub use header::{Dense, Header};
pub use vocab::Vocab;
