//! Flatbuffers of strangers: footers and messages of Arrow, and the schema of Arrow that Parquet carries. Their tables
//! point to each other, and many may point to one: it would be read, and copied, as often.

use crate::table::pipe::{RawPair, guarded};
use arrow_ipc::{Footer, Message, Schema};
use flatbuffers::{ErrorTraceDetail, InvalidFlatbuffer, VerifierOptions};
use std::ops::Range;
use weighbridge_core::error::{Error, Result};

/// Bytes may be met so many times on average. Writers share what says where the fields of a table are, and no more:
/// that is met with each table, which is up to three times its own length.
const MET: usize = 8;
/// The shortest table, its fields, and what points to it take so many bytes on average, where none is shared. A field
/// of a schema is two tables of at least 36 bytes together.
const TABLE: usize = 12;
/// What is free: short ones are mostly what is shared.
const FREE: usize = 4096;

fn bounds(len: usize) -> VerifierOptions {
    VerifierOptions {
        max_apparent_size: len.saturating_mul(MET).max(FREE),
        max_tables: (len / TABLE).max(FREE / TABLE),
        ..VerifierOptions::default()
    }
}

/// The footer of a file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `shared-structure` where it says the same again and again, `not-understood`.
pub(crate) fn footer(bytes: &[u8]) -> Result<Footer<'_>> {
    let footer = arrow_ipc::root_as_footer_with_opts(&bounds(bytes.len()), bytes);
    understood("the footer", footer)
}

/// The head of a message.
///
/// # Errors
/// As [`footer`].
pub(crate) fn message<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Message<'a>> {
    let message = arrow_ipc::root_as_message_with_opts(&bounds(bytes.len()), bytes);
    understood(what, message)
}

/// Where a message begins: a marker and a length may stand before it.
pub(crate) fn start_of(message: &[u8]) -> usize {
    if message.len() > 8 && message.starts_with(&[0xff; 4]) { 8 } else { 0 }
}

/// Texts of metadata that are bytes: so many are put aside, each after one more look at all. Of long footers fewer.
const ODD: usize = 64;
const ODD_BYTES: usize = 64 << 20;
/// What stands in the place of each byte that is not ASCII of such a text.
pub(crate) const SUBSTITUTE: u8 = 0x1a;

/// A text of metadata that is not UTF-8: where it stands, and its bytes.
pub(crate) type OddText = (Range<usize>, Vec<u8>);

/// Keys and values of metadata are bytes to Arrow's own libraries, and text to the reader that comes after this one: takes
/// those that are no text out of a footer.
pub(crate) fn readable_footer(bytes: &mut [u8]) -> Vec<OddText> {
    readable(bytes, |bounds, bytes| arrow_ipc::root_as_footer_with_opts(bounds, bytes).err())
}

/// As [`readable_footer`], out of a message.
pub(crate) fn readable_message(bytes: &mut [u8]) -> Vec<OddText> {
    readable(bytes, |bounds, bytes| arrow_ipc::root_as_message_with_opts(bounds, bytes).err())
}

fn readable(
    bytes: &mut [u8],
    wrong: impl Fn(&VerifierOptions, &[u8]) -> Option<InvalidFlatbuffer>,
) -> Vec<OddText> {
    let mut odd = Vec::new();
    for _ in 0..(ODD_BYTES / bytes.len().max(1)).clamp(1, ODD) {
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

/// The pairs of the metadata of a schema in the order of the file, as they were before texts were taken out of `bytes`.
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

/// Makes any bytes a text of the same length.
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
            Err(Error::corrupt("shared-structure", format!("{what} says the same things again and again"))
                .expected("names and fields that each have bytes of their own"))
        }
        Err(InvalidFlatbuffer::Utf8Error { error_trace, .. }) if is_metadata(error_trace.as_ref()) => {
            Err(Error::unsupported("metadata-bytes", format!("{what} has many texts that are not UTF-8")))
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

    /// Half of what there is to meet, and a third less than there is of tables.
    fn well_within(footer: &[u8]) -> bool {
        let options = VerifierOptions {
            max_apparent_size: footer.len() * MET / 2,
            max_tables: footer.len() / (TABLE * 3 / 2),
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
    fn honest_footers_are_far_from_the_bounds() {
        let golden = weighbridge_testkit::testdata("tables");
        let folder = std::fs::read_dir(golden).unwrap();
        let paths = folder.map(|entry| entry.unwrap().path());
        let mut seen = 0;
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "arrow")) {
            let mut footer = footer_of(&std::fs::read(&path).unwrap()).to_vec();
            // What is no text is taken out before.
            readable_footer(&mut footer);
            assert!(well_within(&footer), "{}", path.display());
            seen += 1;
        }
        assert!(seen > 3);
    }

    /// Fields with names as short as can be, which take least: plain, and in lists.
    #[test]
    fn wide_tables_are_far_from_the_bounds() {
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
