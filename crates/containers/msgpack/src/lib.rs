//! MessagePack: headers of objects, read one by one and written in their shortest form.
//!
//! ```text
//! nil c0   false c2   true c3   float32 ca   float64 cb
//! uint   00-7f | cc n | cd nn | ce nnnn | cf nnnnnnnn        int   e0-ff | d0 n | d1 nn | d2 nnnn | d3 nnnnnnnn
//! str    a0-bf | d9 n | da nn | db nnnn                      bin   c4 n | c5 nn | c6 nnnn
//! array  90-9f | dc nn | dd nnnn                             map   80-8f | de nn | df nnnn
//! ext    d4 d5 d6 d7 d8 (1 2 4 8 16 bytes) | c7 n | c8 nn | c9 nnnn, each followed by the type
//! ```
//!
//! Numbers are big-endian. The bytes of strings, bins and extensions follow their header and are skipped or read by the caller.

#![doc = include_str!("../README.md")]

mod read;
mod write;

pub use read::{Item, Reader, marker_name};
pub use write::{put_ext, put_f32, put_f64, put_int, put_length, put_uint};

/// Encoding of the length of a variable-length type.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Name with an article, for errors: `a string`.
    pub name: &'static str,
    /// Marker with a length from 0 to the given maximum in its low bits.
    fix: Option<(u8, u8)>,
    /// Markers with the number of length bytes that follow, shortest first.
    wide: &'static [(u8, usize)],
}

/// Strings.
pub const STR: Family =
    Family { name: "a string", fix: Some((0xa0, 31)), wide: &[(0xd9, 1), (0xda, 2), (0xdb, 4)] };
/// Bytes.
pub const BIN: Family = Family { name: "a bin", fix: None, wide: &[(0xc4, 1), (0xc5, 2), (0xc6, 4)] };
/// Arrays; the length counts items.
pub const ARRAY: Family = Family { name: "an array", fix: Some((0x90, 15)), wide: &[(0xdc, 2), (0xdd, 4)] };
/// Maps; the length counts pairs.
pub const MAP: Family = Family { name: "a map", fix: Some((0x80, 15)), wide: &[(0xde, 2), (0xdf, 4)] };
