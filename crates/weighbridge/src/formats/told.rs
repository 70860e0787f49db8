//! Files of which the content tells nothing: whole numbers between tabs could be anybody's. There the
//! extension counts, with a note. Who looks for code that would run does not ask here: a pickle can
//! be plain text, and go by any name.

use super::{ALL, Format, OpenOptions, by_extension, by_id, detect, head_of, tsv, unknown, word2vec};
use crate::checkpoint::Note;
use crate::error::Result;
use crate::source::SourceRef;
use std::path::Path;

/// Formats of text that the extension tells where the content does not.
static TOLD_BY_EXTENSION: &[&dyn Format] = &[&tsv::Tsv, &word2vec::Word2Vec];

/// The format of a source, and a note where only its `name` tells it.
///
/// # Errors
/// What [`by_id`] says of the format that is asked for, and what [`detect`] says.
pub(super) fn format_of(
    source: &SourceRef,
    name: Option<&Path>,
    options: &OpenOptions,
) -> Result<(&'static dyn Format, Option<Note>)> {
    if let Some(id) = &options.format {
        return by_id(id).map(|format| (format, None));
    }
    detect(source).map(|format| (format, None)).or_else(|error| {
        let format = name.filter(|_| error.code() == "unknown-format").and_then(|name| told(source, name));
        let Some(format) = format else { return Err(error) };
        let text = format!("the content could be of any format: the extension says {}", format.facts().id);
        Ok((format, Some(Note::new("told-by-extension", text))))
    })
}

/// The format of text that the extension of `name` means, where `source` begins as text does.
fn told(source: &SourceRef, name: &Path) -> Option<&'static dyn Format> {
    let (format, _) = by_extension(name).ok()?;
    let id = format.facts().id;
    let format = TOLD_BY_EXTENSION.iter().copied().find(|own| own.facts().id == id)?;
    let head = head_of(source).ok()?;
    let text = match std::str::from_utf8(&head) {
        Ok(text) => text,
        // A character that the end of the head cuts in two.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let is_printed = |c: char| !c.is_control() || matches!(c, '\t' | '\r' | '\n');
    (!unknown::is_known(&head) && text.chars().all(is_printed)).then_some(format)
}

/// The format of a source that is damaged: by its content, by what is left of its beginning, or by its
/// `name`.
///
/// # Errors
/// As [`format_of`].
pub(super) fn format_of_damaged(
    source: &SourceRef,
    name: Option<&Path>,
    options: &OpenOptions,
) -> Result<&'static dyn Format> {
    let error = match format_of(source, name, options) {
        Ok((format, _)) => return Ok(format),
        Err(error) => error,
    };
    let head = head_of(source)?;
    let left = ALL.iter().copied().find(|format| format.recognises_damaged(&head, source));
    let named = || name.and_then(|name| by_extension(name).ok()).map(|(format, _)| format);
    left.or_else(named).ok_or(error)
}
