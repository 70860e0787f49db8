//! Header members of an archive: short members with a number or a word.

use weighbridge_core::error::Result;
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum length of a header member; the longest known one is a number of forty digits.
const MAX_LEN: u64 = 64;

/// Returns true if the member `name`, without the folder of the archive, is a header member by name and
/// content: a number, or the byte order as a word.
///
/// # Errors
/// Errors of the source.
pub(super) fn is_header_member(name: &str, bytes: &SourceRef) -> Result<bool> {
    let numbers = ["version", ".data/serialization_id", ".format_version", ".storage_alignment"];
    let is_number = numbers.contains(&name);
    if !(is_number || name == "byteorder") || bytes.len() > MAX_LEN {
        return Ok(false);
    }
    let text = read_vec(&**bytes, 0, bytes.len())?;
    let text = text.trim_ascii_end();
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    Ok(if is_number { digits } else { text == b"little" || text == b"big" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_io::source::MemorySource;

    #[test]
    fn header_members_are_recognized_by_name_and_content() {
        let is = |name: &str, bytes: &[u8]| {
            is_header_member(name, &(Arc::new(MemorySource::new("m", bytes.to_vec())) as SourceRef)).unwrap()
        };
        assert!(is("version", b"3\n") && is("byteorder", b"little") && is("byteorder", b"big"));
        assert!(is(".data/serialization_id", &[b'1'; 40]) && is(".storage_alignment", b"64"));
        assert!(!is("version", b"\x7fELF") && !is("version", b"") && !is("byteorder", b"3"));
        assert!(!is(".data/serialization_id", &[b'1'; 65]) && !is("data.pkl", b"1"));
    }
}
