//! Outline of a file, and checks of a model.

use crate::header::Header;
use crate::quantization::ElementType;
use crate::read;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{Checkpoint, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum bytes of padding that are compared with zero.
const MAX_PADDING: u64 = 1 << 20;
/// Bytes of a tensor name in ggml, with the final zero.
const MAX_NAME: usize = 64;
/// Maximum number of dimensions in ggml.
const MAX_DIMENSIONS: usize = 4;

/// Returns the ranges of a file without elements.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let header = Header::read(source, limits)?;
    let mut outline = Outline::new(Gaps::Zeros(header.alignment - 1));
    outline.header(0, header.end, "GGUF header");
    let mut end = header.end;
    let mut begins: Vec<u64> = header.tensors.iter().map(|t| header.data.saturating_add(t.offset)).collect();
    begins.sort_unstable();
    for described in &header.tensors {
        let begin = header.data.saturating_add(described.offset);
        let len = match ElementType::of_id(described.kind) {
            Some(_) => read::bytes_of(described).unwrap_or(0),
            None => {
                // Up to the next tensor: the length of an unknown type is unknown.
                let next = begins.get(begins.partition_point(|&other| other <= begin)).copied();
                let len = next.unwrap_or(source.len()).saturating_sub(begin);
                outline.unread(begin, len, "elements of a tensor that is not listed");
                len
            }
        };
        if len > 0 {
            end = end.max(begin.saturating_add(len));
        }
    }
    // The last tensor is padded, too.
    let rest = source.len().saturating_sub(end);
    if rest < header.alignment && rest <= MAX_PADDING && source.len().is_multiple_of(header.alignment) {
        let is_zero = read_vec(&**source, source.len() - rest, rest)?.iter().all(|&byte| byte == 0);
        if is_zero {
            outline.padding(source.len() - rest, rest, "padding of the last tensor");
        }
    }
    Ok(outline)
}

/// Checks rules of the loader of llama.cpp that opening does not need.
pub(crate) fn check(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for source in &checkpoint.files {
        let header = Header::read(source, &Limits::default())?;
        let mut expected = 0u64;
        for described in &header.tensors {
            let finding = |code: &'static str, text: String| {
                let at = header.data.saturating_add(described.offset);
                Finding::error(code, text)
                    .on_tensor(escape_text(&described.name))
                    .in_file(source.label())
                    .at(at)
            };
            if described.name.len() >= MAX_NAME {
                let text = format!(
                    "the name has {} bytes; llama.cpp loads up to {}",
                    described.name.len(),
                    MAX_NAME - 1
                );
                findings.push(finding("name-too-long", text));
            }
            if described.dims.len() > MAX_DIMENSIONS {
                let text =
                    format!("{} dimensions; llama.cpp loads up to {MAX_DIMENSIONS}", described.dims.len());
                findings.push(finding("too-many-dimensions", text));
            }
            if described.offset != expected {
                let text = format!(
                    "the elements begin at {} of the data; llama.cpp expects {expected}, behind the tensor before",
                    described.offset
                );
                findings.push(finding("data-misplaced", text));
            }
            let Some(len) = read::bytes_of(described) else { break };
            expected = described
                .offset
                .saturating_add(len)
                .checked_next_multiple_of(header.alignment)
                .unwrap_or(u64::MAX);
        }
    }
    Ok(findings)
}
