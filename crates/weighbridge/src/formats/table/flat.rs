//! Flatbuffers of strangers: footers and messages of Arrow, and the schema of Arrow that Parquet carries. Their tables
//! point to each other, and many may point to one: it would be read, and copied, as often.

use crate::error::{Error, Result};
use crate::formats::table::pipe::guarded;
use arrow_ipc::{Footer, Message};
use flatbuffers::{InvalidFlatbuffer, VerifierOptions};

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
/// [`crate::Kind::Corrupt`]: `shared-structure` where it says the same again and again, `not-understood`.
pub(in crate::formats) fn footer(bytes: &[u8]) -> Result<Footer<'_>> {
    let footer = arrow_ipc::root_as_footer_with_opts(&bounds(bytes.len()), bytes);
    understood("the footer", footer)
}

/// The head of a message.
///
/// # Errors
/// As [`footer`].
pub(in crate::formats) fn message<'a>(what: &'static str, bytes: &'a [u8]) -> Result<Message<'a>> {
    let message = arrow_ipc::root_as_message_with_opts(&bounds(bytes.len()), bytes);
    understood(what, message)
}

fn understood<T>(what: &'static str, read: std::result::Result<T, InvalidFlatbuffer>) -> Result<T> {
    match read {
        Err(InvalidFlatbuffer::ApparentSizeTooLarge | InvalidFlatbuffer::TooManyTables) => {
            Err(Error::corrupt("shared-structure", format!("{what} says the same things again and again"))
                .expected("names and fields that each have bytes of their own"))
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
        let golden = [env!("CARGO_MANIFEST_DIR"), "..", "..", "testdata", "tables"];
        let folder = std::fs::read_dir(golden.iter().collect::<std::path::PathBuf>()).unwrap();
        let paths = folder.map(|entry| entry.unwrap().path());
        let mut seen = 0;
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "arrow")) {
            assert!(well_within(footer_of(&std::fs::read(&path).unwrap())), "{}", path.display());
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
