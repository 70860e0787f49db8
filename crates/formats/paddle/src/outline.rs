//! What stands around the tensors: programs, pickles, the heads of streams.

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
        // A message of protobuf ends where its file does.
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

/// The heads of all streams, as far as they can be read; what follows is nobody's.
fn streams(source: &SourceRef, kind: StreamKind, limits: &Limits) -> Result<Outline> {
    let mut outline = Outline::new(Gaps::Forbidden);
    let mut cursor = Cursor::new(source.clone(), 0);
    let path = TensorPath::value();
    match kind {
        StreamKind::SelectedRows => {
            let header = selected_rows::read(&mut cursor, &path, limits)?.header;
            head_of(&mut outline, &header, "head of selected rows");
        }
        StreamKind::DesignNote => {
            let header = unshipped::design_note::read(&mut cursor, &path, limits)?.header;
            head_of(&mut outline, &header, "head of a tensor");
            let end = header.data_offset + header.data_bytes;
            outline.header(end, cursor.position().saturating_sub(end), "LoD of a tensor");
        }
        StreamKind::SizePrefixed => {
            while cursor.remaining() > 0 {
                let at = cursor.position();
                let Ok(()) = cursor.skip(8, "a size") else { break };
                let Ok(header) = combined::hop(&mut cursor, limits) else { break };
                outline.header(at, 8, "size of a stream");
                head_of(&mut outline, &header, "head of a tensor");
            }
        }
        StreamKind::Dense | StreamKind::Combined | StreamKind::Vocab | StreamKind::VocabCombined => {
            mixed(&mut outline, source, limits)?;
        }
    }
    Ok(outline)
}

/// Dense tensors and words, one behind the other.
fn mixed(outline: &mut Outline, source: &SourceRef, limits: &Limits) -> Result<()> {
    let kinds = combined::kinds(source, limits);
    let mut kinds = kinds.into_iter().flatten();
    let mut cursor = Cursor::new(source.clone(), 0);
    while cursor.remaining() > 0 {
        match kinds.next() {
            Some(Kind::Vocab) => {
                let words = vocab::read(&mut cursor, limits)?;
                outline.header(words.stream_offset, words.stream_bytes, "words");
            }
            // Where the kinds cannot be told, tensors are read as far as there are some.
            Some(Kind::Dense) | None => {
                let Ok(header) = combined::hop(&mut cursor, limits) else { break };
                head_of(outline, &header, "head of a tensor");
            }
        }
    }
    Ok(())
}

fn head_of(outline: &mut Outline, header: &Header, what: &'static str) {
    outline.header(header.stream_offset, header.data_offset.saturating_sub(header.stream_offset), what);
}
