//! Tensor streams: the content of Paddle's parameter files.
//!
//! All integers are little-endian. There is no alignment or padding. A stream does not store its length.
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
//! A file contains one stream and is named after the variable; or it contains dense streams end to end
//! ([`combined`]), sorted by the bytes of their names. The names are stored in the program and not in the file.
//! Until Paddle 2.4, vocabularies could occur among the tensors.
//!
//! [`detect`] distinguishes the kinds of file. Readers skip the elements. Reading and writing preserve every byte,
//! also of files that Paddle itself did not write.

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
