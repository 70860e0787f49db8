//! Text from files, made safe to show; numbers that JSON lacks.

mod near;

pub(crate) use near::near;

use serde_json::{Value as Json, json};

/// `text` with everything escaped that could move the cursor, hide, or reorder what a terminal
/// shows: control characters, and the invisible and direction-changing ones of Unicode.
pub fn escape(text: &str) -> String {
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return text.to_owned();
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        let invisible = matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
        match c {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            c if c.is_control() || invisible => safe.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
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
