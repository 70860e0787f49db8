//! Scan for code that BigGraph would run on loading: the optimizer state is a pickle.

use super::layout::FileName;
use super::read;
use super::text::json;
use std::path::Path;
use weighbridge_core::error::{Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::{SourceRef, read_vec};

/// True for a file with the name of a BigGraph text file and printable content: upstream parses
/// these files as numbers or JSON, and runs nothing. Files above the size limit are not checked.
///
/// # Errors
/// [`weighbridge_core::Kind::Io`].
pub(super) fn is_text(name: &Path, source: &SourceRef, limits: &Limits) -> Result<bool> {
    let known = name.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
    let by_name = matches!(
        known,
        Some(
            FileName::EntityCount { .. }
                | FileName::EntityNames { .. }
                | FileName::RelationCount
                | FileName::RelationNames
                | FileName::Version
                | FileName::Stats
        )
    );
    if !by_name || source.len() > limits.header_bytes {
        return Ok(false);
    }
    let bytes = read_vec(&**source, 0, source.len())?;
    let is_printed = |c: char| !c.is_control() || c.is_ascii_whitespace();
    Ok(std::str::from_utf8(&bytes).is_ok_and(|text| text.chars().all(is_printed)))
}

/// Scans one file. A configuration is text without code.
pub(super) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let lenient = OpenOptions { lenient: true, ..options.clone() };
    let opened = match read::open(source, &lenient) {
        Ok(opened) => opened,
        Err(error) => return Scan::of_error(error),
    };
    let mut scan = Scan::default();
    if opened.kind == "config" {
        let bytes = read_vec(&**source, 0, source.len())?;
        let text = String::from_utf8_lossy(&bytes);
        // The value limit of configurations applies here too.
        if let Err(error) = json::parse(&text)
            && error.kind() == Kind::Limit
        {
            scan.push("left-out", format!("config: {}", error.message()));
            return Ok(scan);
        }
        if !weighbridge_scan::config(&text, &options.limits, &mut scan) {
            scan.push("left-out", "config: the configuration is not JSON");
        }
        return Ok(scan);
    }
    // Upstream unpickles the optimizer state without restrictions.
    weighbridge_scan::hdf5(source, &[&read::STATE], &options.limits, &mut scan)?;
    scan.judge_names(&opened);
    Ok(scan)
}

#[cfg(test)]
mod tests {
    use super::is_text;
    use std::path::Path;
    use std::sync::Arc;
    use weighbridge_core::limits::Limits;
    use weighbridge_io::source::{MemorySource, SourceRef};

    #[test]
    fn detects_text_files_by_name_and_content() {
        let is = |name: &str, bytes: &[u8]| {
            let source: SourceRef = Arc::new(MemorySource::new(name, bytes.to_vec()));
            is_text(Path::new(name), &source, &Limits::default()).unwrap()
        };
        assert!(is("checkpoint_version.txt", b"6\n") && is("a/entity_names_user_0.json", b"[\"\xc3\xbc\"]"));
        assert!(is("entity_count_user_0.txt", b"") && is("training_stats.json", b"{}\n"));
        assert!(!is("checkpoint_version.txt", b"\x80\x04N."), "a pickle");
        assert!(!is("checkpoint_version.txt", b"1\0") && !is("evil.txt", b"1\n"));
    }
}
