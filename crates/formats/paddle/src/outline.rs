//! File structure outside the tensors: programs, pickles, stream headers.

use super::any_program::Form;
use super::state;
use super::stream::{Header, Kind, StreamKind, combined, detect, selected_rows, unshipped, vocab};
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_format::HEAD;
use weighbridge_io::source::{Cursor, SourceRef};
use weighbridge_pickle as pickle;

pub(super) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let mut head = vec![0; HEAD.min(usize::try_from(source.len()).unwrap_or(HEAD))];
    source.read_at(0, &mut head)?;
    match Form::of(&head, source.len()) {
        // A protobuf message ends with its file.
        Some(Form::Desc) => return Ok(Outline::whole(source.len(), "program (protobuf)")),
        Some(Form::DescText) => return weighbridge_format::outline::text(source, "program (text)"),
        Some(Form::Pir) => return weighbridge_format::outline::text(source, "program (PIR json)"),
        None => {}
    }
    if head.starts_with(&[0x80]) || state::looks_like_pickle(&head, source) {
        let read = pickle::read(source, 0, &pickle::Options::with_limits(limits.clone()))?;
        let mut outline = Outline::new(Gaps::Forbidden);
        outline.header(0, read.end, "pickle");
        return Ok(outline);
    }
    match detect(source, limits) {
        Some(kind) => streams(source, kind, limits),
        None => weighbridge_format::outline::text(source, "text"),
    }
}

/// Outlines the headers of all readable streams; the remaining bytes are not covered.
fn streams(source: &SourceRef, kind: StreamKind, limits: &Limits) -> Result<Outline> {
    let mut outline = Outline::new(Gaps::Forbidden);
    let mut cursor = Cursor::new(source.clone(), 0);
    let path = TensorPath::value();
    match kind {
        StreamKind::SelectedRows => {
            let header = selected_rows::read(&mut cursor, &path, limits)?.header;
            head_of(&mut outline, &header, "header of selected rows");
        }
        StreamKind::DesignNote => {
            let header = unshipped::design_note::read(&mut cursor, &path, limits)?.header;
            head_of(&mut outline, &header, "tensor header");
            let end = header.data_offset + header.data_bytes;
            outline.header(end, cursor.position().saturating_sub(end), "tensor LoD");
        }
        StreamKind::SizePrefixed => {
            while cursor.remaining() > 0 {
                let at = cursor.position();
                let Ok(()) = cursor.skip(8, "a size") else { break };
                let Ok(header) = combined::skip_dense(&mut cursor, limits) else { break };
                outline.header(at, 8, "stream size");
                head_of(&mut outline, &header, "tensor header");
            }
        }
        StreamKind::Dense | StreamKind::Combined | StreamKind::Vocab | StreamKind::VocabCombined => {
            mixed(&mut outline, source, limits)?;
        }
    }
    Ok(outline)
}

/// Outlines dense tensors and vocabularies, end to end.
fn mixed(outline: &mut Outline, source: &SourceRef, limits: &Limits) -> Result<()> {
    let kinds = combined::kinds(source, limits);
    let mut kinds = kinds.into_iter().flatten();
    let mut cursor = Cursor::new(source.clone(), 0);
    while cursor.remaining() > 0 {
        match kinds.next() {
            Some(Kind::Vocab) => {
                let words = vocab::read(&mut cursor, limits)?;
                outline.header(words.stream_offset, words.stream_bytes, "vocabulary");
            }
            // If the kinds are unknown, tensors are read as long as they are valid.
            Some(Kind::Dense) | None => {
                let Ok(header) = combined::skip_dense(&mut cursor, limits) else { break };
                head_of(outline, &header, "tensor header");
            }
        }
    }
    Ok(())
}

fn head_of(outline: &mut Outline, header: &Header, what: &'static str) {
    outline.header(header.stream_offset, header.data_offset.saturating_sub(header.stream_offset), what);
}
