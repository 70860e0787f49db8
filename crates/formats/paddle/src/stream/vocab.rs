//! The stream of a Vocab: words with their numbers, as the tokenizer of Paddle 2.2 and later uses.

use super::header::{array, need};
use std::collections::HashSet;
use weighbridge_core::checkpoint::Name;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::FileBuilder;
use weighbridge_io::source::Cursor;

/// The bytes of a word that has none: its length and its number.
const SHORTEST_WORD: u64 = 8 + 4;

/// Words and numbers, in the order of the file, and where they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocab {
    /// The words, mostly UTF-8, each with its number.
    pub words: Vec<(Name, i32)>,
    /// Where the stream begins, in bytes from the start of the source.
    pub stream_offset: u64,
    /// How long it is, in bytes.
    pub stream_bytes: u64,
}

/// Reads the stream that begins at the cursor, which stands behind it afterwards. It has no
/// version and no mark: that it is a Vocab, the program says.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `truncated-header` where the file ends too soon, `vocab-too-long` for
/// more words, or a longer word, than it has room for. [`weighbridge_core::Kind::Limit`] for words beyond the
/// limits: each below `name_bytes`, all together below `header_bytes`.
pub fn read(cursor: &mut Cursor, limits: &Limits) -> Result<Vocab> {
    read_words(cursor, limits, |_, _| true).map_err(|e| e.in_file(cursor.source().label()))
}

/// As [`read`], only where the stream looks like a Vocab: it has words, and all of them are
/// different, not empty, of UTF-8 without control characters, with numbers from 0 on. So a file
/// of other content is almost never taken for one.
pub(super) fn read_plausible(cursor: &mut Cursor, limits: &Limits) -> Option<Vocab> {
    let mut seen = HashSet::new();
    let plausible = |word: &Name, id: i32| {
        let printable = word.as_str().is_some_and(|w| !w.is_empty() && !w.chars().any(char::is_control));
        printable && id >= 0 && seen.insert(word.clone())
    };
    let vocab = read_words(cursor, limits, plausible).ok()?;
    (!vocab.words.is_empty()).then_some(vocab)
}

/// Reads words as long as `accept` takes them.
fn read_words(
    cursor: &mut Cursor,
    limits: &Limits,
    mut accept: impl FnMut(&Name, i32) -> bool,
) -> Result<Vocab> {
    let start = cursor.position();
    let count = u64::from_le_bytes(array(cursor, "the number of words")?);
    let most = cursor.remaining() / SHORTEST_WORD;
    if count > most {
        return Err(Error::corrupt("vocab-too-long", "there are more words than the file has room for")
            .at(start)
            .expected(format_args!("at most {most}"))
            .found(count)
            .hint("the file is cut short, or this is no Vocab"));
    }
    let mut words = Vec::new();
    for _ in 0..count {
        let at = cursor.position();
        let len = u64::from_le_bytes(array(cursor, "the length of a word")?);
        if len > cursor.remaining() {
            return Err(Error::corrupt("vocab-too-long", "a word is longer than the rest of the file")
                .at(at)
                .expected(format_args!("at most {} bytes", cursor.remaining()))
                .found(format_args!("{len} bytes"))
                .hint("the file is cut short, or this is no Vocab"));
        }
        Limits::check("bytes in a word", "name_bytes", len, limits.name_bytes).map_err(|e| e.at(at))?;
        need(cursor, len + 4, "a word and its number")?;
        let word = Name::new(cursor.bytes(len, "a word")?);
        let id = i32::from_le_bytes(array(cursor, "the number of a word")?);
        let spent = cursor.position() - start;
        Limits::check("bytes of words", "header_bytes", spent, limits.header_bytes).map_err(|e| e.at(at))?;
        if !accept(&word, id) {
            return Err(Error::corrupt("not-a-vocab", "this is no word of a Vocab").at(at));
        }
        words.push((word, id));
    }
    Ok(Vocab { words, stream_offset: start, stream_bytes: cursor.position() - start })
}

/// Appends the stream of `words`, in their order.
pub fn write(file: &mut FileBuilder, words: &[(Name, i32)]) {
    let mut out = (words.len() as u64).to_le_bytes().to_vec();
    for (word, id) in words {
        out.extend_from_slice(&(word.as_bytes().len() as u64).to_le_bytes());
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    file.literal(out);
}
