//! zip archives: the container of npz files and of PyTorch's files.
//!
//! ```text
//! local header   PK\3\4  version flags method time date crc sizes name extra   30 bytes + name + extra
//! data           uncompressed (stored) or a raw deflate stream
//! [descriptor]   crc and sizes again, where the writer could not seek back
//! ... repeated for each member, gaps allowed ...
//! directory      PK\1\2  the same fields again, and the offset of the local header, 46 bytes + ...
//! [zip64 end]    PK\6\6 and its locator PK\6\7, where a number needs more than 32 or 16 bits
//! end            PK\5\6  count, size and offset of the directory, comment
//! ```
//!
//! Every field is stored twice, and programs differ in which copy they use: an archive can show one
//! content to a scanner and another to the program that loads it. [`read_directory`] therefore refuses
//! archives whose copies differ and archives that can be read in two ways. It also refuses bytes after the
//! end; [`read_with_rest`] returns them for lenient readers.
//!
//! This crate reads the directory itself and does not use the `zip` crate, which searches for another end
//! record when the last one does not fit, guesses an offset for archives after other bytes, and leaves the
//! local headers to the caller. This crate must refuse such archives. Tests compare both.
//!
//! # An example
//!
//! ```
//! # fn main() -> weighbridge_core::Result<()> {
//! use std::sync::Arc;
//! use weighbridge_core::limits::Limits;
//! use weighbridge_core::source::{MemorySource, SourceRef};
//! use weighbridge_zip::read_directory;
//!
//! // An archive without members; with one byte more it is ambiguous, so the strict reader refuses it.
//! let mut empty = b"PK\x05\x06".to_vec();
//! empty.resize(22, 0);
//! let source: SourceRef = Arc::new(MemorySource::new("empty.zip", empty.clone()));
//! assert_eq!(read_directory(&source, &Limits::default())?.len(), 0);
//! empty.push(0);
//! let longer: SourceRef = Arc::new(MemorySource::new("longer.zip", empty));
//! assert!(read_directory(&longer, &Limits::default()).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! See also: `weighbridge-numpy` and `weighbridge-torch-archive` read and write arrays and storages in archives.

mod inflate;
mod read;
mod salvage;
mod survey;
#[cfg(test)]
mod tests;
mod unpacked;
mod write;

pub use inflate::InflateSource;
pub use read::{Member, Method, Rest, first_member, has_member, outline, read_directory, read_with_rest};
pub use salvage::{Recovered, salvage};
pub use survey::readings;
pub use survey::{Found, Oddity, Survey, survey};
pub use unpacked::Unpacked;
pub use write::ZipBuilder;

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR64: [u8; 4] = *b"PK\x06\x07";
/// Optional signature of the descriptor after the data of a member.
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";

/// Bytes of a local header before its name.
const LOCAL_LEN: u64 = 30;
/// Bytes of a directory entry before its name.
const CENTRAL_LEN: u64 = 46;
/// Bytes of an end record before its comment.
const END_SIZE: usize = 22;
const END_LEN: u64 = END_SIZE as u64;
/// Bytes from the end that are searched for an end record: the longest comment and one byte more, as in Python.
const TAIL_LEN: u64 = END_LEN + MAX16 + 1;
/// Longest descriptor: signature, CRC-32, two 64-bit lengths.
const DESCRIPTOR_LEN: u64 = 24;
/// Bytes of the locator of the zip64 end record.
const LOCATOR64_LEN: u64 = 20;
/// Bytes of a zip64 end record without extensions.
const END64_LEN: u64 = 56;

/// Greatest compression ratio of deflate: 258 bytes for 2 bits.
const DEFLATE_RATIO: u64 = 1032;

/// Value of a 32-bit field that is stored in the zip64 record instead.
const MAX32: u64 = 0xffff_ffff;
/// Value of a 16-bit field that is stored in the zip64 record instead.
const MAX16: u64 = 0xffff;

/// Extra field: sizes and offsets of 64 bits.
const EXTRA_ZIP64: u16 = 0x0001;
/// Extra field: the name in UTF-8, with the CRC-32 of the name that it replaces.
const EXTRA_UNICODE_PATH: u16 = 0x7075;
/// Extra field: padding that aligns the data to a power of two.
const EXTRA_ALIGNMENT: u16 = 0xd935;

/// Flag: the name is UTF-8; without it, the name is in code page 437.
const FLAG_UTF8: u16 = 1 << 11;
