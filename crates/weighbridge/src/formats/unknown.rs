//! What a file is when it is none of ours: the likely cause, for the error.

use crate::error::Error;
use crate::source::SourceRef;

/// Beginnings of files that people mistake for models, or that are models of other families.
const KNOWN: &[(&[u8], &str)] = &[
    (
        b"version https://git-lfs",
        "this looks like a Git LFS pointer: run `git lfs pull` to fetch the real file",
    ),
    (b"PK\x03\x04", "this is a zip archive, but not one of numpy arrays: is it a PyTorch file?"),
    (b"PK\x05\x06", "this is an empty zip archive"),
    (b"\x89HDF\r\n\x1a\n", "this is an HDF5 file"),
    (b"\x1f\x8b", "this is compressed with gzip: unpack it first"),
    (b"\xfd7zXZ", "this is compressed with xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "this is compressed with zstd: unpack it first"),
    (b"BZh", "this is compressed with bzip2: unpack it first"),
    (b"GGUF", "this is a GGUF file"),
    (b"\x80\x02", "this is a Python pickle: is it an old PyTorch file or a Paddle state?"),
    (b"\x80\x03", "this is a Python pickle"),
    (b"\x80\x04", "this is a Python pickle"),
    (b"\x80\x05", "this is a Python pickle"),
    (b"PAR1", "this is a Parquet file"),
    (b"ARROW1", "this is an Arrow file"),
    (b"<!DOCTYPE", "this is a web page: the download was probably an error page"),
    (b"<html", "this is a web page: the download was probably an error page"),
    (b"#!", "this is a script"),
    (b"\x7fELF", "this is a program"),
    (b"{", "this is JSON or a text that begins with a brace"),
];

/// The error for a file that no format recognises.
pub(super) fn explain(head: &[u8], source: &SourceRef) -> Error {
    let error = Error::unsupported("unknown-format", "this file is of no format that is known here")
        .in_file(source.label())
        .at(0);
    if head.is_empty() {
        return Error::corrupt("empty-file", "the file is empty")
            .in_file(source.label())
            .hint("the write that made it may have failed: look for another copy");
    }
    let shown = &head[..head.len().min(16)];
    let error = error.found(shown.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "));
    if let Some((_, hint)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        return error.hint(hint);
    }
    if head.iter().all(|&b| b == 0) {
        return error.hint("the file begins with zeros only: it may be damaged or was never filled");
    }
    error.hint("if you know the format, name it with --from FORMAT to learn what is wrong")
}
