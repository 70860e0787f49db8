//! The account of a file: what every byte of it is for, and which bytes serve two tensors.

use super::content_kind::{content_kind, first_not_zero};
use super::file_extents::FileExtents;
use super::outline::{Gaps, Outline, Part};
use crate::checkpoint::TensorEntry;
use crate::error::Result;
use crate::finding::Finding;
use crate::json::{rows, tree};
use crate::source::SourceRef;
use crate::text::{counted, quoted};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

/// What the names of rows are called that are kept as tensors.
const NAMES: &str = "names of rows";

/// What a range of a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Elements of a tensor, as they are or in an encoded form.
    Tensor,
    /// What describes the tensors, and other content that the format has a place for.
    Header,
    /// Bytes that only keep a distance: zeros mostly, blanks in some headers.
    Padding,
    /// What nothing in the file claims, or what was not read.
    Unknown,
}

impl Use {
    /// All uses, in the order in which they are told.
    pub const ALL: [Self; 4] = [Self::Tensor, Self::Header, Self::Padding, Self::Unknown];

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
    /// What they are, in a few words: `elements`, `npy header`, `zeros`.
    pub what: Cow<'static, str>,
    /// The first tensor whose bytes they are, as displayed; of a long name its beginning. A tensor may be in any number of
    /// ranges, which share it.
    pub tensor: Option<Arc<str>>,
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
    /// The account of a file that is one thing from front to back.
    pub fn whole(file: impl Into<String>, bytes: u64, used: Use, what: impl Into<Cow<'static, str>>) -> Self {
        let whole = Span { offset: 0, len: bytes, used, what: what.into(), tensor: None };
        Self { file: file.into(), bytes, spans: if bytes > 0 { vec![whole] } else { Vec::new() } }
    }

    /// The bytes that are for that. Those of all uses together are the length of the file.
    pub fn bytes_of(&self, used: Use) -> u64 {
        self.spans.iter().filter(|s| s.used == used).map(|s| s.len).sum()
    }

    /// `{"path", "bytes", "tensor_bytes", "header_bytes", "padding_bytes", "unknown_bytes"}`, and
    /// with `spans` also `"ranges"`, each `{"offset", "bytes", "use", "what", "tensor"}`. As a tree;
    /// [`Account::as_json`] takes no memory.
    pub fn to_json(&self, spans: bool) -> Json {
        tree(&self.as_json(spans))
    }

    /// As [`Account::to_json`], made as it is written.
    pub fn as_json(&self, spans: bool) -> impl Serialize + '_ {
        let one = |s: &Span| json!({ "offset": s.offset, "bytes": s.len, "use": s.used.as_str(), "what": s.what, "tensor": s.tensor.as_deref() });
        Document {
            path: &self.file,
            bytes: self.bytes,
            tensor_bytes: self.bytes_of(Use::Tensor),
            header_bytes: self.bytes_of(Use::Header),
            padding_bytes: self.bytes_of(Use::Padding),
            unknown_bytes: self.bytes_of(Use::Unknown),
            ranges: spans.then(|| rows(&self.spans, one)),
        }
    }
}

/// The document of an account.
#[derive(Serialize)]
struct Document<'a, Ranges: Serialize> {
    path: &'a str,
    bytes: u64,
    tensor_bytes: u64,
    header_bytes: u64,
    padding_bytes: u64,
    unknown_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<Ranges>,
}

/// The account of one file. Stretches that nothing claims are read up to their first byte that is not
/// zero.
///
/// # Errors
/// [`crate::Kind::Io`] where they cannot be read.
pub fn account(held: &FileExtents<'_>, outline: &Outline) -> Result<(Account, Vec<Finding>)> {
    let (source, len) = (&held.source, held.source.len());
    let parts = outline.disjoint(len);
    let encoded = held.places.iter().find(|p| p.encoded && !p.names).map(|p| p.entry);
    let (names, spans, findings) = (HashMap::new(), Vec::new(), Vec::new());
    let mut sums = Sums { source, outline, parts, next: 0, encoded, names, spans, findings };
    let mut at = 0;
    for place in held.places.iter().filter(|p| !(outline.elements && p.encoded)) {
        if place.start > at {
            sums.between(at, place.start)?;
        }
        if place.end > at.max(place.start) {
            let offset = at.max(place.start);
            let (used, what) = match (place.names, place.encoded) {
                (true, _) => (Use::Header, NAMES),
                (false, true) => (Use::Tensor, "encoded elements"),
                (false, false) => (Use::Tensor, "elements"),
            };
            sums.push(offset, place.end - offset, used, what.into(), Some(place.entry));
        }
        at = at.max(place.end).max(place.start);
    }
    if len > at {
        sums.between(at, len)?;
    }
    let Sums { spans, mut findings, .. } = sums;
    findings.extend(outline.findings.iter().cloned());
    let findings = findings.into_iter().map(|f| if f.file.is_some() { f } else { f.in_file(source.label()) });
    let account = Account { file: source.label().to_owned(), bytes: len, spans };
    Ok((account, findings.collect()))
}

/// An account that is being made.
struct Sums<'a> {
    source: &'a SourceRef,
    outline: &'a Outline,
    /// In order, without overlap.
    parts: Vec<Part>,
    /// The first part that is not behind us.
    next: usize,
    /// The tensor whose elements are encoded.
    encoded: Option<&'a TensorEntry>,
    /// What each tensor is called.
    names: HashMap<*const TensorEntry, Arc<str>>,
    spans: Vec<Span>,
    findings: Vec<Finding>,
}

impl<'a> Sums<'a> {
    fn push(
        &mut self,
        offset: u64,
        len: u64,
        used: Use,
        what: Cow<'static, str>,
        entry: Option<&'a TensorEntry>,
    ) {
        let entry = entry.or(self.encoded.filter(|_| used == Use::Tensor));
        let name = |entry: &TensorEntry| Arc::from(quoted(&entry.text()));
        let tensor =
            entry.map(|entry| self.names.entry(ptr::from_ref(entry)).or_insert_with(|| name(entry)).clone());
        // Names that were cut may be those of two tensors.
        let is_same = |a: &Arc<str>, b: &Arc<str>| Arc::ptr_eq(a, b);
        if let Some(last) = self.spans.last_mut()
            && used != Use::Unknown
            && (last.used, &last.what) == (used, &what)
            && (last.tensor.is_none() && tensor.is_none()
                || last.tensor.as_ref().zip(tensor.as_ref()).is_some_and(|(a, b)| is_same(a, b)))
        {
            last.len += len;
            return;
        }
        self.spans.push(Span { offset, len, used, what, tensor });
    }

    /// The bytes `from .. to`, which no tensor has: parts, and what is between these.
    fn between(&mut self, from: u64, to: u64) -> Result<()> {
        let mut at = from;
        while let Some(part) = self.parts.get(self.next).filter(|_| at < to) {
            let end = part.offset.saturating_add(part.len);
            if end <= at {
                self.next += 1;
                continue;
            }
            if part.offset >= to {
                break;
            }
            let (start, stop) = (part.offset.max(at), end.min(to));
            let (used, what, told) = (part.used, part.what.clone(), part.told);
            if start > at {
                self.gap(at, start)?;
            }
            if used == Use::Unknown && !told {
                let looks = content_kind(&**self.source, start, stop - start)?;
                let text = format!("{} bytes as {what}, which look like {looks}", stop - start);
                self.findings.push(Finding::unchecked("hidden-bytes", text).at(start));
            }
            self.push(start, stop - start, used, what, None);
            at = stop;
        }
        if to > at { self.gap(at, to) } else { Ok(()) }
    }

    /// The bytes `from .. to`, which nothing claims.
    fn gap(&mut self, from: u64, to: u64) -> Result<()> {
        let (len, end) = (to - from, self.source.len());
        let may_be = match self.outline.gaps {
            // What the file begins with is never padding.
            Gaps::Zeros(most) => from > 0 && to < end && len <= most,
            Gaps::Free => from > 0,
            Gaps::Forbidden => false,
        };
        if may_be && first_not_zero(&**self.source, from, to)? == to {
            self.push(from, len, Use::Padding, "zeros".into(), None);
            return Ok(());
        }
        let looks = content_kind(&**self.source, from, len)?;
        self.push(from, len, Use::Unknown, format!("looks like {looks}").into(), None);
        let bytes = counted(len, "byte", "bytes");
        let (code, place) = match (from, to) {
            (0, to) if to == end => ("hidden-bytes", "are of no use that is known here"),
            (0, _) => ("hidden-bytes", "stand in front of all that the format knows"),
            (_, to) if to == end => ("trailing-bytes", "follow the end of all that the format knows"),
            _ => ("hidden-bytes", "stand between the parts of the file"),
        };
        let text = format!("{bytes} {place}; they look like {looks}");
        self.findings.push(Finding::unchecked(code, text).at(from));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_extents::held;
    use super::super::testing::tensor;
    use super::*;
    use crate::source::{MemorySource, RangeSource};
    use crate::tensor::DType;

    fn spans(account: &Account) -> Vec<(u64, u64, &'static str, &str, Option<&str>)> {
        let one = |s: &'_ Span| (s.offset, s.len, s.used.as_str());
        let mut all = Vec::new();
        for span in &account.spans {
            let (offset, len, used) = one(span);
            all.push((offset, len, used, &*span.what, span.tensor.as_deref()));
        }
        all
    }

    #[test]
    fn every_byte_is_accounted_for() {
        let mut bytes = vec![7; 64];
        bytes[24..32].fill(0);
        let memory: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let range: SourceRef = Arc::new(RangeSource::new(memory.clone(), 32, 16).unwrap());
        let tensors = [tensor("b", DType::U8, &[16], &range, 0), tensor("a", DType::U8, &[16], &memory, 8)];
        let held = held(&tensors, std::slice::from_ref(&memory));
        assert_eq!(held.len(), 1);
        let mut outline = Outline::new(Gaps::Zeros(8));
        outline.header(0, 4, "mark");
        outline.header(4, 30, "all around");
        let (account, findings) = account(&held[0], &outline).unwrap();
        assert_eq!(
            spans(&account),
            [
                (0, 4, "header", "mark", None),
                (4, 4, "header", "all around", None),
                (8, 16, "tensor", "elements", Some("a")),
                (24, 8, "header", "all around", None),
                (32, 16, "tensor", "elements", Some("b")),
                (48, 16, "unknown", "looks like one byte again and again", None)
            ]
        );
        let told: Vec<_> = findings.iter().map(|f| (f.code.as_str(), f.offset, f.file.as_deref())).collect();
        assert_eq!(told, [("trailing-bytes", Some(48), Some("m"))]);
        let json = account.to_json(true);
        assert_eq!((&json["tensor_bytes"], &json["header_bytes"]), (&json!(32), &json!(16)));
        let range = json!({"offset": 0, "bytes": 4, "use": "header", "what": "mark", "tensor": null});
        assert_eq!(json["ranges"][0], range);
    }

    /// Bytes between parts of a tensor make a range of each part: they have no name of their own, and no more of a long one
    /// than is told of it.
    #[test]
    fn a_long_name_is_there_once_and_in_part() {
        let memory: SourceRef = Arc::new(MemorySource::new("m", vec![1; 64]));
        let parts: Vec<_> = (0..16).map(|at| (memory.clone(), at * 4, 2)).collect();
        let joined: SourceRef = Arc::new(crate::source::ConcatSource::new("joined", parts).unwrap());
        let long = "a".repeat(5000);
        let tensors = [tensor(&long, DType::U8, &[32], &joined, 0)];
        let (account, _) = account(&held(&tensors, &[])[0], &Outline::new(Gaps::Forbidden)).unwrap();
        let named: Vec<&Arc<str>> = account.spans.iter().filter_map(|span| span.tensor.as_ref()).collect();
        assert_eq!(named.len(), 16);
        assert!(named.iter().all(|name| Arc::ptr_eq(name, named[0])));
        assert!(named[0].len() < 1100 && named[0].ends_with("... (4000 bytes more)"), "{}", named[0]);
    }

    #[test]
    fn zeros_are_padding_where_the_format_has_them() {
        let mut bytes = vec![0; 64];
        bytes[..4].fill(1);
        let memory: SourceRef = Arc::new(MemorySource::new("m", bytes));
        let tensors = [tensor("a", DType::U8, &[16], &memory, 12), tensor("b", DType::U8, &[8], &memory, 44)];
        let of = |gaps: Gaps| {
            let mut outline = Outline::new(gaps);
            outline.header(0, 4, "mark");
            let (account, findings) = account(&held(&tensors, &[])[0], &outline).unwrap();
            let sums = Use::ALL.map(|used| account.bytes_of(used));
            assert_eq!(sums.iter().sum::<u64>(), 64);
            (sums, findings.iter().map(|f| f.code.as_str()).collect::<Vec<_>>())
        };
        assert_eq!(of(Gaps::Free), ([24, 4, 36, 0], vec![]));
        assert_eq!(of(Gaps::Zeros(16)), ([24, 4, 24, 12], vec!["trailing-bytes"]));
        assert_eq!(of(Gaps::Zeros(8)), ([24, 4, 8, 28], vec!["hidden-bytes", "trailing-bytes"]));
        assert_eq!(of(Gaps::Forbidden).0, [24, 4, 0, 36]);
    }

    #[test]
    fn parts_say_where_encoded_elements_are() {
        let memory: SourceRef = Arc::new(MemorySource::new("m", vec![1; 32]));
        let parts = vec![(memory.clone(), 8, 8), (memory.clone(), 20, 8)];
        let joined: SourceRef = Arc::new(crate::source::ConcatSource::new("joined", parts).unwrap());
        let tensors = [tensor("a", DType::U8, &[16], &joined, 0)];
        let mut outline = Outline::new(Gaps::Forbidden);
        outline.header(0, 8, "mark");
        outline.hidden(16, 2, "a comment");
        outline.unread(18, 2, "another member");
        outline.header(28, 4, "end");
        let (found, findings) = account(&held(&tensors, &[])[0], &outline).unwrap();
        let mine = Some("a");
        let expected = [
            (0, 8, "header", "mark", None),
            (8, 8, "tensor", "encoded elements", mine),
            (16, 2, "unknown", "a comment", None),
            (18, 2, "unknown", "another member", None),
            (20, 8, "tensor", "encoded elements", mine),
            (28, 4, "header", "end", None),
        ];
        assert_eq!(spans(&found), expected);
        assert_eq!(
            findings.iter().map(|f| (f.code.as_str(), f.offset)).collect::<Vec<_>>(),
            [("hidden-bytes", Some(16))]
        );
        outline.elements = true;
        outline.elements(20, 4, "page");
        let (found, _) = account(&held(&tensors, &[])[0], &outline).unwrap();
        assert_eq!(spans(&found)[4], (20, 4, "tensor", "page", mine));
        assert_eq!(found.bytes_of(Use::Tensor), 4);
    }

    #[test]
    fn bytes_of_two_tensors_count_once() {
        let memory: SourceRef = Arc::new(MemorySource::new("m", vec![1; 64]));
        let at = |name: &str, offset, len| tensor(name, DType::U8, &[len], &memory, offset);
        let doubled = [at("long", 0, 40), at("b", 4, 4), at("c", 30, 20)];
        let (account, _) = account(&held(&doubled, &[])[0], &Outline::default()).unwrap();
        assert_eq!((account.bytes_of(Use::Tensor), account.bytes_of(Use::Unknown)), (50, 14));
    }
}
