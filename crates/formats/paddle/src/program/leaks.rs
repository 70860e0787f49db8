//! Source paths and source code in a program, which disclose details of its author's machine.

use super::ProgramDesc;
use super::access::{bytes, shown};
use weighbridge_core::text::escape;

/// Maximum number of lines shown for a leak.
const MAX_SAMPLE_LINES: usize = 3;
/// Maximum length of a shown line in characters.
const MAX_LINE_LEN: usize = 200;

/// Attribute that contains paths or lines of source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    /// Index of the block.
    pub block: usize,
    /// Index of the operator in its block.
    pub operator: usize,
    /// Type of the operator.
    pub kind: String,
    /// Name of the attribute.
    pub attribute: String,
    /// Number of lines.
    pub lines: u64,
    /// Length of the text in bytes.
    pub bytes: u64,
    /// First lines that resemble source, shortened and escaped; at most three.
    pub sample: Vec<String>,
}

impl ProgramDesc {
    /// Lists attributes with paths of source files or lines of source code: `op_callstack`, which Paddle fills by
    /// default, and other text that resembles source code.
    /// [`strip`](Self::strip) removes `op_callstack` only; other attributes may be needed.
    pub fn source_leaks(&self) -> Vec<Leak> {
        let mut leaks = Vec::new();
        for (block, desc) in self.message.blocks.iter().enumerate() {
            for (operator, op) in desc.ops.iter().enumerate() {
                for attr in &op.attrs {
                    let callstack = bytes(&attr.name) == super::strip::CALLSTACK;
                    let texts = || attr.s.iter().chain(&attr.strings);
                    let total: usize = texts().map(Vec::len).sum();
                    let source_lines =
                        || texts().flat_map(|t| t.split(|&b| b == b'\n')).filter(|l| is_source(l));
                    if total == 0 || !(callstack || source_lines().next().is_some()) {
                        continue;
                    }
                    leaks.push(Leak {
                        block,
                        operator,
                        kind: shown(bytes(&op.r#type)).into_owned(),
                        attribute: shown(bytes(&attr.name)).into_owned(),
                        lines: texts().map(|t| t.split(|&b| b == b'\n').count() as u64).sum(),
                        bytes: total as u64,
                        sample: source_lines().take(MAX_SAMPLE_LINES).map(line).collect(),
                    });
                }
            }
        }
        leaks
    }
}

fn line(text: &[u8]) -> String {
    let text = shown(text.trim_ascii());
    escape(&text.chars().take(MAX_LINE_LEN).collect::<String>())
}

/// True for a line with a source file or a home directory: `File "…", line 3`, `/home/…`, `C:\Users\…`.
pub(crate) fn is_source(line: &[u8]) -> bool {
    const SIGNS: [&[u8]; 8] =
        [b"File \"", b".py\"", b".py:", b"/home/", b"/Users/", b"/root/", b":\\Users\\", b"-packages/"];
    line.ends_with(b".py") || SIGNS.iter().any(|sign| line.windows(sign.len()).any(|part| part == *sign))
}
