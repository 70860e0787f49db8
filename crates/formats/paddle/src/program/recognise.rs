//! Detection of programs by their content.

use super::check;

/// True if `head`, the first bytes of a file of `len` bytes, begins a program in protobuf. 4096
/// bytes are sufficient.
pub fn looks_like(head: &[u8], len: u64) -> bool {
    usize::try_from(len).is_ok_and(|len| check::plausible(head, len.max(head.len())))
}

/// True if `head`, the first bytes of a file, begins a program in protobuf's text format: a field of a
/// program with a brace, after whitespace and comments (`#` to the end of the line).
pub(crate) fn looks_like_text(head: &[u8]) -> bool {
    let mut rest = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    while rest.first() == Some(&b'#') {
        let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        rest = rest.get(end..).unwrap_or_default().trim_ascii_start();
    }
    let fields: [&[u8]; 4] = [b"blocks", b"version", b"op_version_map", b"op_compatible_map"];
    fields.iter().any(|field| {
        let Some(rest) = rest.strip_prefix(*field) else { return false };
        let rest = rest.trim_ascii_start();
        let rest = rest.strip_prefix(b":").unwrap_or(rest).trim_ascii_start();
        matches!(rest.first(), Some(b'{' | b'<' | b'['))
    })
}
