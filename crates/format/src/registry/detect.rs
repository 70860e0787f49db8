//! Format detection by content, then by a file beside, then by file extension, with a note. Tables of numbers have no distinctive
//! content. Scans for code do not use this module: a pickle can be plain text with any name.

use super::{Registry, head_of};
use crate::{Format, OpenOptions, unknown};
use std::path::Path;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::Note;
use weighbridge_core::error::Result;
use weighbridge_io::source::{FolderRef, SourceRef};

/// Returns the format of a source, with a note if it was detected by its name only. `around` is its folder with its name in it.
///
/// # Errors
/// As [`Registry::by_id`] for the requested format, and as [`Registry::detect`].
pub(super) fn format_of(
    registry: &Registry,
    source: &SourceRef,
    around: Option<(&FolderRef, &Path)>,
    options: &OpenOptions,
) -> Result<(&'static dyn Format, Option<Note>)> {
    if let Some(id) = &options.format {
        return registry.by_id(id).map(|format| (format, None));
    }
    registry.detect(source).map(|format| (format, None)).or_else(|error| {
        let is_unknown = error.code() == ErrorCode::UnknownFormat;
        if let Some((folder, name)) = around
            && (is_unknown || error.code() == ErrorCode::EmptyFile)
            && let Some(format) = registry.iter().find(|format| format.recognises_beside(folder, name))
        {
            return Ok((format, None));
        }
        let named = around.filter(|_| is_unknown);
        let format = named.and_then(|(_, name)| detect_format(registry, source, name));
        let Some(format) = format else { return Err(error) };
        let text = format!("format {} detected by the file extension only", format.info().id);
        Ok((format, Some(Note::new("told-by-extension", text))))
    })
}

/// Returns the format for the extension of `name`, if it is detected by extension and `source` begins as text.
fn detect_format(registry: &Registry, source: &SourceRef, name: &Path) -> Option<&'static dyn Format> {
    let (format, _) = registry.by_extension(name).ok()?;
    if !format.is_detected_by_extension() {
        return None;
    }
    let head = head_of(source).ok()?;
    let text = match std::str::from_utf8(&head) {
        Ok(text) => text,
        // The head may end within a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let is_printed = |c: char| !c.is_control() || matches!(c, '\t' | '\r' | '\n');
    (!unknown::is_known(&head) && text.chars().all(is_printed)).then_some(format)
}

/// Returns true for a table that only the extension of its `name` reveals: each line at its beginning is a name and numbers, or one
/// number. A single column of integers may be labels for other data.
pub(super) fn is_table_by_extension(registry: &Registry, source: &SourceRef, name: &Path) -> bool {
    if detect_format(registry, source, name).is_none() {
        return false;
    }
    let Ok(head) = head_of(source) else { return false };
    let text = String::from_utf8_lossy(&head);
    let whole = head.len() as u64 == source.len();
    // The last line may be truncated.
    let complete = if whole { &*text } else { text.rsplit_once('\n').map_or("", |(lines, _)| lines) };
    let mut float = false;
    let mut is_row = |line: &str| {
        let separator = if line.contains('\t') { '\t' } else { ' ' };
        let mut fields = line.trim_end().split(separator);
        let first = fields.next().unwrap_or_default();
        let mut numbers = fields.peekable();
        if numbers.peek().is_none() {
            float |= first.contains('.');
            return first.parse::<f64>().is_ok();
        }
        float = true;
        numbers.all(|field| field.parse::<f64>().is_ok())
    };
    complete.lines().all(&mut is_row) && float
}

/// Returns the format of a damaged source: by its content, by its damaged beginning, or by its name.
///
/// # Errors
/// As [`format_of`].
pub(super) fn format_of_damaged(
    registry: &Registry,
    source: &SourceRef,
    around: Option<(&FolderRef, &Path)>,
    options: &OpenOptions,
) -> Result<&'static dyn Format> {
    let error = match format_of(registry, source, around, options) {
        Ok((format, _)) => return Ok(format),
        Err(error) => error,
    };
    let head = head_of(source)?;
    let left = registry
        .iter()
        .find(|format| format.salvager().is_some_and(|own| own.recognises_damaged(&head, source)));
    let named = || around.and_then(|(_, name)| registry.by_extension(name).ok()).map(|(format, _)| format);
    left.or_else(named).ok_or(error)
}
