//! What a file is when it is none of ours: the likely cause, for the error.

use weighbridge_core::error::{Error, Kind};
use weighbridge_core::limits::Limits;
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_io::source::SourceRef;
use weighbridge_zip as zip;

/// Beginnings of files that people mistake for models, or that are models of other families.
const KNOWN: &[(&[u8], &str)] = &[
    (
        b"version https://git-lfs",
        "this looks like a Git LFS pointer: run `git lfs pull` to fetch the real file",
    ),
    (b"PK\x03\x04", "this is a zip archive, but neither one of numpy arrays nor one of PyTorch"),
    (b"PK\x05\x06", "this is an empty zip archive"),
    (b"\x1f\x8b", "this is compressed with gzip: unpack it first"),
    (b"\xfd7zXZ", "this is compressed with xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "this is compressed with zstd: unpack it first"),
    (b"BZh", "this is compressed with bzip2: unpack it first"),
    (b"GGUF", "this is a GGUF file"),
    (b"\x80\x02", "this is a Python pickle, but none that PyTorch or Paddle writes"),
    (b"\x80\x03", "this is a Python pickle"),
    (b"\x80\x04", "this is a Python pickle"),
    (b"\x80\x05", "this is a Python pickle"),
    (b"<!DOCTYPE", "this is a web page: the download was probably an error page"),
    (b"<html", "this is a web page: the download was probably an error page"),
    (b"#!", "this is a script"),
    (b"\x7fELF", "this is a program"),
    (b"{", "this is JSON or a text that begins with a brace"),
];

/// The fewest bytes that tell random ones from others.
const ENOUGH: usize = 256;

/// True where all values of a byte are about as frequent as chance makes them: encrypted or
/// compressed data. The chi-squared statistic of such bytes is about 255, give or take 23; that of
/// text, code, numbers and base64 is more than twice as large from [`ENOUGH`] bytes on, and grows
/// with their number.
fn looks_random(bytes: &[u8]) -> bool {
    if bytes.len() < ENOUGH {
        return false;
    }
    let mut counts = [0u64; 256];
    for &byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    let len = bytes.len() as u64;
    let squares: u64 = counts.iter().map(|count| count * count).sum();
    (squares * 256 / len).saturating_sub(len) < 400 + len / 2
}

/// The error for a file whose name says what it is, and whose bytes look random; `None` where they do not.
pub fn encrypted(head: &[u8], source: &SourceRef, what: &str) -> Option<Error> {
    looks_random(head).then(|| {
        Error::unsupported("encrypted", format!("this file is no {what}, and its bytes look random"))
            .in_file(source.label())
            .at(0)
            .hint(
                "Paddle's AES encryption leaves no mark: decrypt the file first, if it is encrypted; compressed data \
                 looks the same",
            )
    })
}

/// True where the beginning is that of something else, so that no extension can be right.
pub fn is_known(head: &[u8]) -> bool {
    KNOWN.iter().any(|(magic, _)| head.starts_with(magic))
}

/// What is wrong with a file that has no byte, where its format takes none.
fn empty(source: &SourceRef) -> Error {
    Error::corrupt("empty-file", "the file is empty")
        .in_file(source.label())
        .hint("the write that made it may have failed: look for another copy")
}

/// The error of a format that was named; of an empty file it is the same in each.
pub(crate) fn or_empty(error: Error, source: &SourceRef) -> Error {
    let about_bytes = matches!(error.kind(), Kind::Corrupt | Kind::Unsupported);
    if about_bytes && source.is_empty() { empty(source).at(0) } else { error }
}

/// The error for a file that no format recognises.
pub fn explain(head: &[u8], source: &SourceRef) -> Error {
    let error = Error::unsupported("unknown-format", "this file is of no format that is known here")
        .in_file(source.label())
        .at(0);
    if head.is_empty() {
        return empty(source);
    }
    let is_zip = head.starts_with(b"PK\x03\x04");
    if is_zip
        && let Err(error) = zip::read_directory(source, &Limits::default())
        && error.kind() == Kind::Unsupported
    {
        return error;
    }
    if is_zip && !zip::has_member(source, &Limits::default(), |_| true) {
        return Error::corrupt("truncated", "this zip archive ends early: its directory is not there")
            .in_file(source.label())
            .hint("the copy or download may have been cut short: get the file again");
    }
    let shown = &head[..head.len().min(16)];
    let error = error.found(shown.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "));
    if let Some((_, hint)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        return error.hint(*hint);
    }
    if looks_random(head) {
        return error.hint(
            "its bytes look random: it may be encrypted, since Paddle's AES encryption leaves no mark and such a \
             file must be decrypted first; compressed data looks the same",
        );
    }
    if head.iter().all(|&b| b == 0) {
        return error.hint("the file begins with zeros only: it may be damaged or was never filled");
    }
    error.hint(phrase![
        "if you know the format, name it with ",
        Opt::From.any("FORMAT"),
        " to learn what is wrong"
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_io::source::MemorySource;

    fn hint(bytes: Vec<u8>) -> String {
        let head = bytes.clone();
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        explain(&head, &source).hint_text().unwrap().to_owned()
    }

    /// Bytes of a small generator, whose upper bits are as good as random.
    fn random(count: usize) -> Vec<u8> {
        let mut state = 1u64;
        let step = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn random_bytes_may_be_encrypted() {
        for count in [256, 300, 1000, 4096] {
            assert!(hint(random(count)).contains("AES"), "{count}");
        }
        assert!(!hint(random(255)).contains("AES"), "too few bytes to tell");
    }

    #[test]
    fn other_bytes_do_not_look_random() {
        let text = include_bytes!("unknown.rs");
        let base64 = random(4096).iter().map(|b| b'0' + (b & 63)).collect::<Vec<_>>();
        let floats = (0u16..1024).flat_map(|i| (f32::from(i).sin() * 0.1).to_le_bytes()).collect::<Vec<_>>();
        for bytes in [&text[..], &base64, &floats] {
            for count in [256, 300, 1000, 4096] {
                assert!(!hint(bytes[..count.min(bytes.len())].to_vec()).contains("AES"), "{count}");
            }
        }
    }
}
