//! Text from files, made safe to show; numbers that JSON lacks.

mod near;

pub use near::near;

use serde_json::{Value as Json, json};
use std::fmt::Display;
use std::path::Path;

/// `text` with everything escaped that could move the cursor, hide, or reorder what a terminal
/// shows: control characters, and the invisible and direction-changing ones of Unicode.
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

/// True for control characters, and the invisible and direction-changing ones of Unicode.
pub fn is_escaped(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text of a path: as it is, or where it is not UTF-8 with `\xNN` for each byte that is no part of a character, and for
/// each backslash.
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

/// A number and what it counts: `1 tensor`, `2 tensors`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    let noun = if count == N::from(1) { one } else { many };
    format!("{count} {noun}")
}

/// The first `shown` of `names`, and how many more there are: `a, b and 3 more`. Who calls escapes names from files.
pub fn first_and_more<T: AsRef<str>>(names: impl IntoIterator<Item = T>, shown: usize) -> String {
    let mut names = names.into_iter();
    let mut text = String::new();
    for (place, name) in names.by_ref().take(shown).enumerate() {
        text.push_str(if place > 0 { ", " } else { "" });
        text.push_str(name.as_ref());
    }
    and_more(text, names.count() as u64)
}

/// The names in `text`, and how many `more` there are: of what is counted and not listed.
pub fn and_more(text: String, more: u64) -> String {
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// The longest text, in bytes, that an error or a finding quotes from a file.
const QUOTED: usize = 1000;

/// `text`, or where it is longer than an error or a finding may quote, its beginning and how much more there is.
pub(crate) fn brief(mut text: String) -> String {
    if text.len() > QUOTED {
        let (end, more) = cut(&text);
        text.truncate(end);
        text.push_str(&more);
        text.shrink_to_fit();
    }
    text
}

/// [`escape`]s a name from a file, of a long one its beginning.
pub fn quoted(text: &str) -> String {
    if text.len() <= QUOTED {
        return escape(text);
    }
    let (end, more) = cut(text);
    escape(text.get(..end).unwrap_or_default()) + &more
}

/// Where to cut a long text, and what to say there.
fn cut(text: &str) -> (usize, String) {
    let end = (0..=QUOTED).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    (end, format!("... ({} bytes more)", text.len() - end))
}

/// A real number in JSON; `"NaN"`, `"Infinity"` and `"-Infinity"`, which JSON lacks, are strings.
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
    fn some_are_named_and_the_others_counted() {
        let told = |names: &[&str]| first_and_more(names, 2);
        assert_eq!(
            [told(&[]), told(&["a"]), told(&["a", "b"]), told(&["a", "b", "c", "d"])],
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
    fn long_texts_are_quoted_in_part() {
        let exact = "a".repeat(QUOTED);
        assert_eq!((brief(exact.clone()), quoted(&exact)), (exact.clone(), exact));
        let long = format!("{}ä{}", "a".repeat(QUOTED - 1), "b".repeat(QUOTED));
        let told = format!("{}... ({} bytes more)", "a".repeat(QUOTED - 1), QUOTED + 2);
        assert_eq!((brief(long.clone()), quoted(&long)), (told.clone(), told));
    }
}
