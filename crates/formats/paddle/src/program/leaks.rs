//! What a program tells about its author's machine.

use super::ProgramDesc;
use super::access::{bytes, shown};
use weighbridge_core::text::escape;

/// How many lines of a leak are shown.
const SAMPLE: usize = 3;
/// The longest line shown, in characters.
const LINE: usize = 200;

/// An attribute that holds paths or lines of source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    /// Place of the block.
    pub block: usize,
    /// Place of the operator in its block.
    pub operator: usize,
    /// The operator's type.
    pub kind: String,
    /// The attribute's name.
    pub attribute: String,
    /// How many lines it holds.
    pub lines: u64,
    /// How many bytes of text it holds.
    pub bytes: u64,
    /// The first lines that look like source, cut and escaped; at most three.
    pub sample: Vec<String>,
}

impl ProgramDesc {
    /// The attributes that hold paths of source files or lines of source code: `op_callstack`, which
    /// Paddle fills unless it is told otherwise, and any other text that looks like it.
    /// [`strip`](Self::strip) takes out `op_callstack` only; the others may mean something.
    pub fn source_leaks(&self) -> Vec<Leak> {
        let mut leaks = Vec::new();
        for (block, desc) in self.message.blocks.iter().enumerate() {
            for (operator, op) in desc.ops.iter().enumerate() {
                for attr in &op.attrs {
                    let callstack = bytes(&attr.name) == super::strip::CALLSTACK;
                    let texts = || attr.s.iter().chain(&attr.strings);
                    let total: usize = texts().map(Vec::len).sum();
                    let telling = || texts().flat_map(|t| t.split(|&b| b == b'\n')).filter(|l| is_source(l));
                    if total == 0 || !(callstack || telling().next().is_some()) {
                        continue;
                    }
                    leaks.push(Leak {
                        block,
                        operator,
                        kind: shown(bytes(&op.r#type)).into_owned(),
                        attribute: shown(bytes(&attr.name)).into_owned(),
                        lines: texts().map(|t| t.split(|&b| b == b'\n').count() as u64).sum(),
                        bytes: total as u64,
                        sample: telling().take(SAMPLE).map(line).collect(),
                    });
                }
            }
        }
        leaks
    }
}

fn line(text: &[u8]) -> String {
    let text = shown(text.trim_ascii());
    escape(&text.chars().take(LINE).collect::<String>())
}

/// True for a line that names a source file or a home: `File "…", line 3`, `/home/…`, `C:\Users\…`.
pub(crate) fn is_source(line: &[u8]) -> bool {
    const SIGNS: [&[u8]; 8] =
        [b"File \"", b".py\"", b".py:", b"/home/", b"/Users/", b"/root/", b":\\Users\\", b"-packages/"];
    line.ends_with(b".py") || SIGNS.iter().any(|sign| line.windows(sign.len()).any(|part| part == *sign))
}
