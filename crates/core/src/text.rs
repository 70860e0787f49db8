//! Escaping and truncation of text from untrusted files; non-finite numbers in JSON.

mod near;

pub use near::near;

use serde_json::{Value as Json, json};
use std::fmt::Display;
use std::path::Path;

/// Escapes characters that could move the cursor of a terminal, or hide or reorder text. These are control characters, and the
/// invisible and direction-changing ones of Unicode.
pub fn escape(text: &str) -> String {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return text.to_owned();
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            c if is_escaped(c) => safe.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

/// Returns true for control characters, and for invisible and direction-changing characters of Unicode.
pub fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a path as text. If it is not UTF-8, each invalid byte and each backslash becomes `\xNN`.
pub fn path_text(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return text.to_owned();
    }
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\x5c"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Formats a number with its noun: `1 tensor`, `2 tensors`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    let noun = if count == N::from(1) { one } else { many };
    format!("{count} {noun}")
}

/// Formats the first `shown` of `names`, and the count of the rest: `a, b and 3 more`. The caller escapes names from files.
pub fn first_and_more<T: AsRef<str>>(names: impl IntoIterator<Item = T>, shown: usize) -> String {
    let mut names = names.into_iter();
    let mut text = String::new();
    for (place, name) in names.by_ref().take(shown).enumerate() {
        text.push_str(if place > 0 { ", " } else { "" });
        text.push_str(name.as_ref());
    }
    and_more(text, names.count() as u64)
}

/// Appends the count of unlisted names to `text`: `a, b and 3 more`.
pub fn and_more(text: String, more: u64) -> String {
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// Maximum bytes of text that an error or a finding quotes from a file.
const MAX_QUOTED: usize = 1000;

/// Truncates a text longer than an error or a finding may quote, and appends the number of omitted bytes.
pub(crate) fn brief(mut text: String) -> String {
    if text.len() > MAX_QUOTED {
        let (end, more) = cut(&text);
        text.truncate(end);
        text.push_str(&more);
        text.shrink_to_fit();
    }
    text
}

/// Escapes a name from a file, as [`escape`], and truncates a long one.
pub fn quoted(text: &str) -> String {
    if text.len() <= MAX_QUOTED {
        return escape(text);
    }
    let (end, more) = cut(text);
    escape(text.get(..end).unwrap_or_default()) + &more
}

/// Byte at which to truncate a long text, and the suffix to append.
fn cut(text: &str) -> (usize, String) {
    let end = (0..=MAX_QUOTED).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    (end, format!("... ({} bytes more)", text.len() - end))
}

/// Returns a real number as JSON; non-finite numbers are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.
pub fn json_number(x: f64) -> Json {
    if x.is_finite() {
        json!(x)
    } else if x.is_nan() {
        json!("NaN")
    } else if x > 0.0 {
        json!("Infinity")
    } else {
        json!("-Infinity")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_counted() {
        let text = |names: &[&str]| first_and_more(names, 2);
        assert_eq!(
            [text(&[]), text(&["a"]), text(&["a", "b"]), text(&["a", "b", "c", "d"])],
            ["", "a", "a, b", "a, b and 2 more"]
        );
    }

    #[cfg(unix)]
    #[test]
    fn paths_that_are_not_utf8_keep_their_bytes() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let text = |bytes: &[u8]| path_text(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(text("gr\u{fc}n\\xff.npy".as_bytes()), "gr\u{fc}n\\xff.npy");
        assert_eq!(text(b"a/\xff\\b.npy"), "a/\\xff\\x5cb.npy");
    }

    #[test]
    fn long_texts_are_truncated() {
        let exact = "a".repeat(MAX_QUOTED);
        assert_eq!((brief(exact.clone()), quoted(&exact)), (exact.clone(), exact));
        let long = format!("{}ä{}", "a".repeat(MAX_QUOTED - 1), "b".repeat(MAX_QUOTED));
        let truncated = format!("{}... ({} bytes more)", "a".repeat(MAX_QUOTED - 1), MAX_QUOTED + 2);
        assert_eq!((brief(long.clone()), quoted(&long)), (truncated.clone(), truncated));
    }
}
