//! Stream of a vocabulary: words with their numbers, as in the tokenizer of Paddle 2.2 and later.

use super::header::{array, need};
use std::collections::HashSet;
use weighbridge_core::checkpoint::Name;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_io::source::Cursor;

/// Length in bytes of an empty word: its length and its number.
const MIN_WORD_LEN: u64 = 8 + 4;

/// Words with numbers in file order, and their byte range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocab {
    /// Words, mostly UTF-8, each with its number.
    pub words: Vec<(Name, i32)>,
    /// Offset of the stream in bytes from the start of the source.
    pub stream_offset: u64,
    /// Length of the stream in bytes.
    pub stream_bytes: u64,
}

/// Reads the stream at the cursor and moves the cursor to its end. The stream has no version and no magic bytes:
/// only the program identifies it as a vocabulary.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `truncated-header` if the file ends too soon, `vocab-too-long` if the
/// words exceed the file. [`weighbridge_core::Kind::Limit`] for words beyond the
/// limits: each at most `name_bytes`, all together at most `header_bytes`.
pub fn read(cursor: &mut Cursor, limits: &Limits) -> Result<Vocab> {
    read_words(cursor, limits, |_, _| true).map_err(|e| e.in_file(cursor.source().label()))
}

/// Same as [`read`], but only for plausible vocabularies: at least one word, and all words distinct, not empty, and of
/// UTF-8 without control characters, with numbers from 0. Other content is almost never accepted.
pub(super) fn read_plausible(cursor: &mut Cursor, limits: &Limits) -> Option<Vocab> {
    let mut seen = HashSet::new();
    let plausible = |word: &Name, id: i32| {
        let printable = word.as_str().is_some_and(|w| !w.is_empty() && !w.chars().any(char::is_control));
        printable && id >= 0 && seen.insert(word.clone())
    };
    let vocab = read_words(cursor, limits, plausible).ok()?;
    (!vocab.words.is_empty()).then_some(vocab)
}

/// Reads words while `accept` returns true.
fn read_words(
    cursor: &mut Cursor,
    limits: &Limits,
    mut accept: impl FnMut(&Name, i32) -> bool,
) -> Result<Vocab> {
    let start = cursor.position();
    let count = u64::from_le_bytes(array(cursor, "the number of words")?);
    let most = cursor.remaining() / MIN_WORD_LEN;
    if count > most {
        return Err(Error::corrupt("vocab-too-long", "the words exceed the file")
            .at(start)
            .expected(format_args!("at most {most}"))
            .found(count)
            .hint("the file is truncated, or is not a vocabulary"));
    }
    let mut words = Vec::new();
    for _ in 0..count {
        let at = cursor.position();
        let len = u64::from_le_bytes(array(cursor, "the length of a word")?);
        if len > cursor.remaining() {
            return Err(Error::corrupt("vocab-too-long", "a word exceeds the file")
                .at(at)
                .expected(format_args!("at most {} bytes", cursor.remaining()))
                .found(format_args!("{len} bytes"))
                .hint("the file is truncated, or is not a vocabulary"));
        }
        Limits::check("bytes in a word", "name_bytes", len, limits.name_bytes).map_err(|e| e.at(at))?;
        need(cursor, len + 4, "a word and its number")?;
        let word = Name::new(cursor.bytes(len, "a word")?);
        let id = i32::from_le_bytes(array(cursor, "the number of a word")?);
        let spent = cursor.position() - start;
        Limits::check("bytes of words", "header_bytes", spent, limits.header_bytes).map_err(|e| e.at(at))?;
        if !accept(&word, id) {
            return Err(Error::corrupt("not-a-vocab", "the word is not plausible in a vocabulary").at(at));
        }
        words.push((word, id));
    }
    Ok(Vocab { words, stream_offset: start, stream_bytes: cursor.position() - start })
}

/// Appends the stream of `words` in their order.
pub fn write(file: &mut FileBuilder, words: &[(Name, i32)]) {
    let mut out = (words.len() as u64).to_le_bytes().to_vec();
    for (word, id) in words {
        out.extend_from_slice(&(word.as_bytes().len() as u64).to_le_bytes());
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    file.literal(out);
}
