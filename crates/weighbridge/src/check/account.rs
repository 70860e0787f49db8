//! The account of a file: what every byte of it is for, and which bytes serve two tensors.

use crate::checkpoint::{Checkpoint, STORAGE, TensorEntry};
use crate::error::Result;
use crate::finding::Finding;
use crate::source::{SourceRef, read_vec};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes between tensors are looked at up to this number, to tell padding: a page.
const MOST_PADDING: u64 = 4096;
/// Sources within sources are followed so far.
const MOST_LEVELS: usize = 16;

/// What a range of a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Elements of a tensor, as they are or in an encoded form.
    Tensor,
    /// What describes the tensors.
    Header,
    /// Zeros that only keep a distance.
    Padding,
    /// Header or a part that was not read: the index says that something was left out.
    Unknown,
}

impl Use {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Header => "header",
            Self::Padding => "padding",
            Self::Unknown => "unknown",
        }
    }
}

/// A range of a file and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What they are for.
    pub used: Use,
    /// The first tensor whose bytes they are, as displayed.
    pub tensor: Option<String>,
}

/// What every byte of a file is for. The spans are in order, do not overlap, and fill the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The file.
    pub file: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its ranges.
    pub spans: Vec<Span>,
}

impl Account {
    /// The account of a file that holds no tensor.
    pub fn without_tensors(file: impl Into<String>, bytes: u64, used: Use) -> Self {
        let whole = Span { offset: 0, len: bytes, used, tensor: None };
        Self { file: file.into(), bytes, spans: if bytes > 0 { vec![whole] } else { Vec::new() } }
    }

    /// The bytes that are for that.
    pub fn bytes_of(&self, used: Use) -> u64 {
        self.spans.iter().filter(|s| s.used == used).map(|s| s.len).sum()
    }

    /// `{"path", "bytes", "tensor_bytes", "header_bytes", "padding_bytes", "unknown_bytes"}`, and
    /// with `spans` also `"ranges"`, each `{"offset", "bytes", "use", "tensor"}`.
    pub fn to_json(&self, spans: bool) -> Json {
        let mut json = json!({
            "path": self.file,
            "bytes": self.bytes,
            "tensor_bytes": self.bytes_of(Use::Tensor),
            "header_bytes": self.bytes_of(Use::Header),
            "padding_bytes": self.bytes_of(Use::Padding),
            "unknown_bytes": self.bytes_of(Use::Unknown),
        });
        if spans {
            let one = |s: &Span| json!({ "offset": s.offset, "bytes": s.len, "use": s.used.as_str(), "tensor": s.tensor });
            json["ranges"] = self.spans.iter().map(one).collect();
        }
        json
    }
}

/// The bytes of a piece in the outermost source that holds them.
struct Place<'a> {
    source: &'a SourceRef,
    start: u64,
    end: u64,
    /// The tensor.
    entry: &'a TensorEntry,
}

/// Where the bytes of all tensors are, by source, in the order of first appearance. With
/// `through_encodings` also behind encodings, where only the range as a whole is known.
fn places(tensors: &[TensorEntry], through_encodings: bool) -> Vec<Vec<Place<'_>>> {
    let mut by_source: HashMap<usize, usize> = HashMap::new();
    let mut lists: Vec<Vec<Place>> = Vec::new();
    for entry in tensors {
        for piece in &entry.pieces {
            let (mut source, mut start, mut len) = (&piece.source, piece.offset, piece.len);
            for _ in 0..MOST_LEVELS {
                match source.within() {
                    Some(within) if within.encoded && through_encodings => {
                        (source, start, len) = (within.source, within.offset, within.len);
                    }
                    Some(within) if !within.encoded => {
                        (source, start) = (within.source, within.offset.saturating_add(start));
                    }
                    _ => break,
                }
            }
            let key = Arc::as_ptr(source).cast::<()>().addr();
            let place = *by_source.entry(key).or_insert(lists.len());
            if place == lists.len() {
                lists.push(Vec::new());
            }
            let end = start.saturating_add(len).min(source.len());
            lists[place].push(Place { source, start: start.min(end), end, entry });
        }
    }
    for list in &mut lists {
        // Stable: of equal ranges the first tensor stays first.
        list.sort_by_key(|p| (p.start, p.end));
    }
    lists
}

/// The accounts of the files behind `checkpoint`, as its tensors tell it. Short stretches between
/// tensors are read, to tell padding.
///
/// # Errors
/// [`crate::Kind::Io`] where these cannot be read.
pub fn accounts(checkpoint: &Checkpoint) -> Result<Vec<Account>> {
    let rest = if checkpoint.notes.iter().any(|n| n.omission) { Use::Unknown } else { Use::Header };
    places(&checkpoint.tensors, true).iter().filter_map(|list| account(list, rest)).collect()
}

fn account(list: &[Place], rest: Use) -> Option<Result<Account>> {
    let source = list.first()?.source;
    let (mut spans, mut at) = (Vec::new(), 0);
    for place in list {
        if place.start > at {
            match gap(source, at, place.start, rest) {
                Ok(span) => spans.push(span),
                Err(error) => return Some(Err(error)),
            }
        }
        if place.end > at.max(place.start) {
            let offset = at.max(place.start);
            let tensor = Some(place.entry.name());
            spans.push(Span { offset, len: place.end - offset, used: Use::Tensor, tensor });
        }
        at = at.max(place.end).max(place.start);
    }
    if source.len() > at {
        match gap(source, at, source.len(), rest) {
            Ok(span) => spans.push(span),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Account { file: source.label().to_owned(), bytes: source.len(), spans }))
}

/// The bytes `from .. to`, which no tensor has.
fn gap(source: &SourceRef, from: u64, to: u64, rest: Use) -> Result<Span> {
    let len = to - from;
    // What the file begins with is never padding.
    let zeros = from > 0 && len <= MOST_PADDING && read_vec(&**source, from, len)?.iter().all(|&b| b == 0);
    Ok(Span { offset: from, len, used: if zeros { Use::Padding } else { rest }, tensor: None })
}

/// Bytes that more than one tensor has: `tensors-overlap` where two have a part of them in common;
/// one remark, `shared-bytes`, where some have exactly the same ones, which is how a tensor with
/// two names is kept. With `views`, tensors of one storage may overlap, as PyTorch has them.
pub fn shared_bytes(tensors: &[TensorEntry], views: bool) -> Vec<Finding> {
    let (mut findings, mut shared) = (Vec::new(), Vec::new());
    for list in places(tensors, false) {
        let mut last: Option<&Place> = None;
        for place in list.iter().filter(|p| p.end > p.start) {
            match last {
                Some(before) if place.start < before.end => {
                    let same = (place.start, place.end) == (before.start, before.end);
                    if same || (views && of_one_storage(before.entry, place.entry)) {
                        shared.push(place.entry.text());
                    } else {
                        let text = format!("its bytes are in part those of {}", before.entry.name());
                        findings.push(
                            Finding::error("tensors-overlap", text)
                                .in_file(place.source.label())
                                .at(place.start)
                                .on_tensor(place.entry.name()),
                        );
                    }
                    if place.end > before.end {
                        last = Some(place);
                    }
                }
                _ => last = Some(place),
            }
        }
    }
    if !shared.is_empty() {
        let names = super::listed(shared.iter().map(String::as_str));
        let text = format!("{} tensors have the bytes of another one: {names}", shared.len());
        findings.push(Finding::note("shared-bytes", text));
    }
    findings
}

/// True for views of one storage, which may overlap: PyTorch keeps them so. In another file the
/// attribute only says what the tensors once were.
fn of_one_storage(a: &TensorEntry, b: &TensorEntry) -> bool {
    a.text_attribute(STORAGE).is_some_and(|storage| b.text_attribute(STORAGE) == Some(storage))
}

#[cfg(test)]
mod tests {
    use super::super::testing::tensor;
    use super::*;
    use crate::checkpoint::Note;
    use crate::source::{MemorySource, RangeSource};
    use crate::tensor::DType;

    #[test]
    fn every_byte_is_accounted_for() {
        let mut bytes = vec![7; 64];
        bytes[24..32].fill(0);
        let memory: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let range: SourceRef = Arc::new(RangeSource::new(memory.clone(), 32, 16).unwrap());
        let mut checkpoint = Checkpoint::new("x", "y", "m");
        checkpoint.tensors =
            vec![tensor("b", DType::U8, &[16], &range, 0), tensor("a", DType::U8, &[16], &memory, 8)];
        let account = accounts(&checkpoint).unwrap().remove(0);
        let spans: Vec<_> =
            account.spans.iter().map(|s| (s.offset, s.len, s.used.as_str(), s.tensor.as_deref())).collect();
        assert_eq!(
            spans,
            [
                (0, 8, "header", None),
                (8, 16, "tensor", Some("a")),
                (24, 8, "padding", None),
                (32, 16, "tensor", Some("b")),
                (48, 16, "header", None)
            ]
        );
        let json = account.to_json(true);
        assert_eq!((&json["tensor_bytes"], &json["header_bytes"]), (&json!(32), &json!(24)));
        assert_eq!(json["ranges"][2], json!({"offset": 24, "bytes": 8, "use": "padding", "tensor": null}));
        checkpoint.notes.push(Note::omission("left-out", "x"));
        assert_eq!(accounts(&checkpoint).unwrap()[0].bytes_of(Use::Unknown), 24);
    }

    #[test]
    fn overlaps_are_wrong_and_aliases_are_not() {
        let memory: SourceRef = Arc::new(MemorySource::new("m", vec![1; 64]));
        let at = |name: &str, offset, len| tensor(name, DType::U8, &[len], &memory, offset);
        assert_eq!(shared_bytes(&[at("a", 0, 8), at("b", 8, 8), at("none", 4, 0)], false), []);
        let alias = shared_bytes(&[at("a", 0, 8), at("b", 0, 8)], false);
        assert_eq!((alias.len(), alias[0].code), (1, "shared-bytes"));
        // The long one covers both of those behind it.
        let wrong = shared_bytes(&[at("long", 0, 40), at("b", 4, 4), at("c", 30, 8), at("d", 40, 1)], false);
        let found: Vec<_> = wrong.iter().map(|f| (f.code, f.tensor.as_deref())).collect();
        assert_eq!(found, [("tensors-overlap", Some("b")), ("tensors-overlap", Some("c"))]);
        let doubled = accounts(&Checkpoint {
            tensors: vec![at("long", 0, 40), at("b", 4, 4), at("c", 30, 20)],
            ..Checkpoint::default()
        });
        assert_eq!(doubled.unwrap()[0].bytes_of(Use::Tensor), 50);
    }
}
