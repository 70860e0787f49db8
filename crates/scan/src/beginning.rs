//! Detection of file types by their magic bytes.

use weighbridge_io::source::SourceRef;
use weighbridge_zip::readings;

/// Risk class of a file type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Executable, or displayed by a program that runs code in it.
    Program,
    /// Compressed or packed; the content is not scanned.
    Packed,
    /// A format that can contain code or objects: pickle, zip, HDF5.
    Objects,
    /// A format without code.
    Data,
}

/// A known file type with its magic bytes.
#[derive(Debug)]
pub struct Beginning {
    /// Magic bytes.
    magic: &'static [u8],
    /// Offset of the magic bytes.
    at: usize,
    /// Display name of the type, with an article.
    pub what: &'static str,
    /// Risk class.
    pub class: Class,
}

const fn at(at: usize, magic: &'static [u8], class: Class, what: &'static str) -> Beginning {
    Beginning { magic, at, what, class }
}

/// Longer magic bytes come first where one is a prefix of another.
#[rustfmt::skip]
static BEGINNINGS: &[Beginning] = &[
    at(0, b"\x7fELF", Class::Program, "a program for Linux (ELF)"),
    at(0, b"MZ", Class::Program, "a program for Windows (PE)"),
    at(0, b"\xcf\xfa\xed\xfe", Class::Program, "a program for macOS (Mach-O)"),
    at(0, b"\xfe\xed\xfa\xcf", Class::Program, "a program for macOS (Mach-O)"),
    at(0, b"\xca\xfe\xba\xbe", Class::Program, "a Java class file or a program for macOS"),
    at(0, b"\0asm", Class::Program, "a program (WebAssembly)"),
    at(0, b"#!", Class::Program, "a script"),
    at(0, b"<?php", Class::Program, "a script (PHP)"),
    at(0, b"<!DOCTYPE", Class::Program, "a web page"),
    at(0, b"<!doctype", Class::Program, "a web page"),
    at(0, b"<html", Class::Program, "a web page"),
    at(0, b"<script", Class::Program, "a web page"),
    at(0, b"%PDF-", Class::Program, "a PDF document"),
    at(0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Class::Program, "an Office document, which may hold macros"),
    at(0, b"\x1f\x8b", Class::Packed, "a gzip file"),
    at(0, b"BZh", Class::Packed, "a bzip2 file"),
    at(0, b"\xfd7zXZ\0", Class::Packed, "an xz file"),
    at(0, b"\x28\xb5\x2f\xfd", Class::Packed, "a zstd file"),
    at(0, b"\x04\x22\x4d\x18", Class::Packed, "an lz4 file"),
    at(0, b"7z\xbc\xaf\x27\x1c", Class::Packed, "a 7-Zip archive"),
    at(0, b"Rar!\x1a\x07", Class::Packed, "a RAR archive"),
    at(0, b"MSCF", Class::Packed, "a Windows cabinet file"),
    at(0, b"PK\x03\x04", Class::Objects, "a zip archive"),
    at(0, b"PK\x05\x06", Class::Objects, "an empty zip archive"),
    at(0, b"\x89HDF\r\n\x1a\n", Class::Objects, "an HDF5 file"),
    at(0, b"\x93NUMPY", Class::Objects, "a NumPy array"),
    at(0, b"\x80\x02", Class::Objects, "a pickle"),
    at(0, b"\x80\x03", Class::Objects, "a pickle"),
    at(0, b"\x80\x04\x95", Class::Objects, "a pickle"),
    at(0, b"\x80\x05\x95", Class::Objects, "a pickle"),
    at(257, b"ustar", Class::Objects, "a tar archive"),
    at(0, b"PAR1", Class::Data, "a Parquet file"),
    at(0, b"ARROW1", Class::Data, "an Arrow file"),
    at(0, b"GGUF", Class::Data, "a GGUF file"),
    at(0, b"version https://git-lfs", Class::Data, "a Git LFS pointer"),
];

impl Beginning {
    /// Detects the file type from its first bytes; `None` for an unknown type.
    pub fn of(head: &[u8]) -> Option<&'static Self> {
        let fits = |known: &&Self| {
            head.get(known.at..known.at + known.magic.len()).is_some_and(|bytes| bytes == known.magic)
        };
        let known = BEGINNINGS.iter().find(fits)?;
        // Two letters are weak evidence: a program for Windows also has the offset of its header.
        let is_pe = known.magic != b"MZ" || head.get(0x3c..0x40).is_some_and(|at| at != [0; 4]);
        is_pe.then_some(known)
    }
}

/// True where `head` begins with a zip signature.
pub fn begins_as_zip(head: &[u8]) -> bool {
    [b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08"].iter().any(|mark| head.starts_with(*mark))
}

/// A zip archive found from the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Offset of its end record.
    pub at: u64,
    /// Offset of its first byte; `None` where programs differ in it.
    pub begins: Option<u64>,
}

/// Finds a zip archive from the end of `source`, with any bytes before it and up to 64 KiB after it, as some
/// programs do; `None` where there is no archive with members.
pub fn ends_as_zip(source: &SourceRef) -> Option<Ending> {
    let readings = readings(source).ok()?;
    let first = readings.first()?;
    let begins = Some(first.shift).filter(|shift| readings.len() == 1 && *shift <= first.start);
    Some(Ending { at: first.end, begins })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_io::source::MemorySource;

    #[test]
    fn types_are_detected_by_magic_bytes() {
        let class = |head: &[u8]| Beginning::of(head).map(|known| known.class);
        assert_eq!(class(b"\x7fELF\x02"), Some(Class::Program));
        assert_eq!(class(b"MZ are letters"), None);
        assert_eq!(class(&[b"MZ".as_slice(), &[0; 58], &[0x80, 0, 0, 0]].concat()), Some(Class::Program));
        assert_eq!(class(b"\x80\x04\x95"), Some(Class::Objects));
        assert_eq!(class(b""), None);
    }

    #[test]
    fn a_zip_signature_alone_is_not_an_archive() {
        let ends = |bytes: Vec<u8>| ends_as_zip(&(Arc::new(MemorySource::new("m", bytes)) as SourceRef));
        let mut record = b"PK\x05\x06".to_vec();
        record.extend([0; 18]);
        assert_eq!(ends([vec![7; 100], record.clone()].concat()), None);
        let mut whole = b"xxPK\x01\x02".to_vec();
        whole.extend([0; 42]);
        record[12] = 46;
        whole.extend(&record);
        assert_eq!(ends(whole), Some(Ending { at: 48, begins: Some(2) }));
    }
}
