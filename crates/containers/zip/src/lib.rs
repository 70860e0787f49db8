//! zip archives: the container of npz files and of PyTorch's files.
//!
//! ```text
//! local header   PK\3\4  version flags method time date crc sizes name extra   30 bytes + name + extra
//! data           as it is (stored) or a raw deflate stream
//! [descriptor]   crc and sizes again, where the writer could not go back
//! ... one of these for each member, gaps allowed ...
//! directory      PK\1\2  the same facts once more, and the offset of the local header, 46 bytes + ...
//! [zip64 end]    PK\6\6 and its locator PK\6\7, where a number needs more than 32 or 16 bits
//! end            PK\5\6  count, size and offset of the directory, comment
//! ```
//!
//! Every fact stands twice, and programs differ in which one they believe: so an archive can show
//! one content to a scanner and another to the program that loads it. [`read_directory`] therefore
//! refuses whatever is not the same in both places, and whatever can be read in two ways. Bytes behind the end
//! are refused by it, too; [`read_with_rest`] tells them, for who reads leniently.
//!
//! The directory is read by code of this crate and not by the `zip` crate. That one looks for
//! another end record when the last one does not fit, guesses an offset for archives behind other
//! bytes, and leaves the local headers to the caller: the very latitude that is to be refused here.
//! Tests hold both against each other.
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
//! // An archive without members; one byte more could be read in two ways.
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
//! See also: `weighbridge-numpy` and `weighbridge-torch-archive` put arrays and storages into archives.

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
/// What the record of lengths behind the data of a member may begin with.
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";

/// Bytes of a local header before its name.
const LOCAL_LEN: u64 = 30;
/// Bytes of an entry of the directory before its name.
const CENTRAL_LEN: u64 = 46;
/// Bytes of an end record before its comment.
const END_SIZE: usize = 22;
const END_LEN: u64 = END_SIZE as u64;
/// Bytes from the end in which an end record is looked for: the longest comment, and one byte more, as Python has it.
const TAIL_LEN: u64 = END_LEN + MAX16 + 1;
/// The longest descriptor: mark, checksum, two lengths of 64 bits.
const DESCRIPTOR_LEN: u64 = 24;
/// Bytes of the record that says where the zip64 end record is.
const LOCATOR64_LEN: u64 = 20;
/// Bytes of a zip64 end record without extensions.
const END64_LEN: u64 = 56;

/// The most bytes that one byte of a deflate stream can become: 258 bytes for 2 bits.
const DEFLATE_RATIO: u64 = 1032;

/// The number that says: see the zip64 record.
const MAX32: u64 = 0xffff_ffff;
const MAX16: u64 = 0xffff;

/// Extra field: sizes and offsets of 64 bits.
const EXTRA_ZIP64: u16 = 0x0001;
/// The name once more, in UTF-8, with the CRC-32 of the name that it stands for.
const EXTRA_UNICODE_PATH: u16 = 0x7075;
/// Extra field: padding that brings the data to a multiple of some power of two.
const EXTRA_ALIGNMENT: u16 = 0xd935;

/// The name is UTF-8; without it, it is in code page 437.
const FLAG_UTF8: u16 = 1 << 11;
