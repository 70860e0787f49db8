//! Untrusted flatbuffers: footers and messages of Arrow, and the Arrow schema in Parquet files. Their tables
//! refer to each other, and many may refer to one: it would be read, and copied, once per reference.

use crate::table::pipe::{RawPair, guarded};
use arrow_ipc::{Footer, Message, Schema};
use flatbuffers::{ErrorTraceDetail, InvalidFlatbuffer, VerifierOptions};
use std::ops::Range;
use weighbridge_core::error::{Error, Result};

/// Maximum average number of visits per byte. Writers share only vtables, which are visited
/// with each table; a vtable is up to three times as long as its table.
const MAX_VISITS: usize = 8;
/// Minimum average bytes of a table, its fields, and the references to it, without sharing. A field
/// of a schema is two tables of at least 36 bytes together.
const MIN_TABLE_BYTES: usize = 12;
/// Additional allowance in bytes: short flatbuffers are mostly shared vtables.
const FREE_BYTES: usize = 4096;

fn bounds(len: usize) -> VerifierOptions {
    VerifierOptions {
        max_apparent_size: len.saturating_mul(MAX_VISITS).max(FREE_BYTES),
        max_tables: (len / MIN_TABLE_BYTES).max(FREE_BYTES / MIN_TABLE_BYTES),
        ..VerifierOptions::default()
    }
}

/// Parses the footer of a file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `shared-structure` for excessive sharing, `not-understood`.
pub(crate) fn footer(bytes: &[u8]) -> Result<Footer<'_>> {
    let footer = arrow_ipc::root_as_footer_with_opts(&bounds(bytes.len()), bytes);
    understood("the footer", footer)
}

/// Parses the header of a message.
///
/// # Errors
/// Like [`footer`].
pub(crate) fn message<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Message<'a>> {
    let message = arrow_ipc::root_as_message_with_opts(&bounds(bytes.len()), bytes);
    understood(what, message)
}

/// Offset of a message behind an optional marker and length.
pub(crate) fn start_of(message: &[u8]) -> usize {
    if message.len() > 8 && message.starts_with(&[0xff; 4]) { 8 } else { 0 }
}

/// Maximum number of metadata texts that are not UTF-8; each costs another pass. Long footers allow fewer.
const MAX_ODD_TEXTS: usize = 64;
const ODD_BYTES: usize = 64 << 20;
/// Byte that replaces each non-ASCII byte of a text that is not UTF-8.
pub(crate) const SUBSTITUTE: u8 = 0x1a;

/// Metadata text that is not UTF-8: its range, and its bytes.
pub(crate) type OddText = (Range<usize>, Vec<u8>);

/// Replaces the metadata keys and values of a footer that are not UTF-8, and returns the originals. Arrow's own
/// libraries treat them as bytes; the library used here requires UTF-8.
pub(crate) fn readable_footer(bytes: &mut [u8]) -> Vec<OddText> {
    readable(bytes, |bounds, bytes| arrow_ipc::root_as_footer_with_opts(bounds, bytes).err())
}

/// Like [`readable_footer`], for a message.
pub(crate) fn readable_message(bytes: &mut [u8]) -> Vec<OddText> {
    readable(bytes, |bounds, bytes| arrow_ipc::root_as_message_with_opts(bounds, bytes).err())
}

fn readable(
    bytes: &mut [u8],
    wrong: impl Fn(&VerifierOptions, &[u8]) -> Option<InvalidFlatbuffer>,
) -> Vec<OddText> {
    let mut odd = Vec::new();
    for _ in 0..(ODD_BYTES / bytes.len().max(1)).clamp(1, MAX_ODD_TEXTS) {
        let Some(InvalidFlatbuffer::Utf8Error { range, error_trace, .. }) =
            wrong(&bounds(bytes.len()), bytes)
        else {
            break;
        };
        let Some(text) = bytes.get_mut(range.clone()).filter(|_| is_metadata(error_trace.as_ref())) else {
            break;
        };
        odd.push((range, text.to_vec()));
        substitute(text);
    }
    odd
}

/// Metadata pairs of a schema in file order, with the original texts that were replaced in `bytes`.
pub(crate) fn raw_pairs(schema: Schema<'_>, bytes: &[u8], odd: &[OddText]) -> Vec<RawPair> {
    let start = bytes.as_ptr().addr();
    let own = |text: &str| {
        let at = text.as_ptr().addr().wrapping_sub(start);
        let own = odd.iter().find(|(range, _)| range.start == at).map(|(_, own)| own.as_slice());
        own.unwrap_or(text.as_bytes()).to_vec()
    };
    let pairs = schema.custom_metadata().into_iter().flatten();
    pairs.map(|pair| (own(pair.key().unwrap_or_default()), own(pair.value().unwrap_or_default()))).collect()
}

/// Turns any bytes into text of the same length.
pub(crate) fn substitute(text: &mut [u8]) {
    text.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = SUBSTITUTE);
}

fn is_metadata(trace: &[ErrorTraceDetail]) -> bool {
    let named = |detail: &ErrorTraceDetail| matches!(detail, ErrorTraceDetail::TableField { field_name, .. } if field_name == "custom_metadata");
    trace.iter().any(named)
}

fn understood<T>(what: &'static str, read: std::result::Result<T, InvalidFlatbuffer>) -> Result<T> {
    match read {
        Err(InvalidFlatbuffer::ApparentSizeTooLarge | InvalidFlatbuffer::TooManyTables) => {
            Err(Error::corrupt("shared-structure", format!("{what} refers to the same bytes too often"))
                .expected("names and fields with separate bytes"))
        }
        Err(InvalidFlatbuffer::Utf8Error { error_trace, .. }) if is_metadata(error_trace.as_ref()) => {
            Err(Error::unsupported(
                "metadata-bytes",
                format!("{what} has too many metadata texts that are not UTF-8"),
            ))
        }
        read => guarded(what, || read),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use arrow_ipc::writer::FileWriter;
    use arrow_schema::{DataType, Field, Schema};

    /// Half of the visit bound, and a third less than the table bound.
    fn well_within(footer: &[u8]) -> bool {
        let options = VerifierOptions {
            max_apparent_size: footer.len() * MAX_VISITS / 2,
            max_tables: footer.len() / (MIN_TABLE_BYTES * 3 / 2),
            ..VerifierOptions::default()
        };
        arrow_ipc::root_as_footer_with_opts(&options, footer).is_ok()
    }

    fn footer_of(file: &[u8]) -> &[u8] {
        let tail = file.len() - 10;
        let len = u32::from_le_bytes(file[tail..tail + 4].try_into().unwrap());
        &file[tail - usize::try_from(len).unwrap()..tail]
    }

    #[test]
    fn footers_of_real_files_are_far_below_the_bounds() {
        let golden = weighbridge_testkit::testdata("tables");
        let folder = std::fs::read_dir(golden).unwrap();
        let paths = folder.map(|entry| entry.unwrap().path());
        let mut seen = 0;
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "arrow")) {
            let mut footer = footer_of(&std::fs::read(&path).unwrap()).to_vec();
            // Texts that are not UTF-8 are replaced first.
            readable_footer(&mut footer);
            assert!(well_within(&footer), "{}", path.display());
            seen += 1;
        }
        assert!(seen > 3);
    }

    /// Fields with the shortest possible names, which take the fewest bytes: plain, and in lists.
    #[test]
    fn footers_of_wide_tables_are_far_below_the_bounds() {
        for of in [DataType::Utf8, DataType::Float32, DataType::new_list(DataType::Float64, true)] {
            let fields: Vec<_> = (0..5000).map(|_| Field::new("", of.clone(), true)).collect();
            let mut file = Vec::new();
            FileWriter::try_new(&mut file, &Schema::new(fields)).unwrap().finish().unwrap();
            let footer = footer_of(&file);
            assert!(well_within(footer), "{of}: {} bytes", footer.len());
            super::footer(footer).unwrap();
        }
    }
}
