//! Account of a file: the use of every byte.

use super::content_kind::{UNRECOGNIZED, ZEROS, content_kind, first_not_zero};
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

/// Place of unclaimed bytes at the end of a file, in findings.
const AFTER_LAST_PART: &str = "after the last known part of the file";
/// Description of row names that are stored as a tensor.
const NAMES: &str = "row names";

/// Use of a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Elements of a tensor, plain or encoded.
    Tensor,
    /// Descriptions of tensors, and other content defined by the format.
    Header,
    /// Padding: usually zeros, blanks in some headers.
    Padding,
    /// Bytes outside the format, or not read.
    Unknown,
}

impl Use {
    /// All uses, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Tensor, Self::Header, Self::Padding, Self::Unknown];

    /// Returns the use as written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Header => "header",
            Self::Padding => "padding",
            Self::Unknown => "unknown",
        }
    }
}

/// Range of a file with its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Use of the bytes.
    pub used: Use,
    /// Description in a few words: `elements`, `npy header`, `zeros`.
    pub what: Cow<'static, str>,
    /// Display name of the first tensor with these bytes; long names are truncated. Ranges of one tensor share the allocation.
    pub tensor: Option<Arc<str>>,
}

/// Use of every byte of a file. The spans are in order, do not overlap, and fill the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// File.
    pub file: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Ranges.
    pub spans: Vec<Span>,
}

impl Account {
    /// Place of unclaimed bytes at the end of a file, in findings.
    pub const AFTER_LAST_PART: &str = AFTER_LAST_PART;

    /// Creates the account of a file with a single range.
    pub fn whole(file: impl Into<String>, bytes: u64, used: Use, what: impl Into<Cow<'static, str>>) -> Self {
        let whole = Span { offset: 0, len: bytes, used, what: what.into(), tensor: None };
        Self { file: file.into(), bytes, spans: if bytes > 0 { vec![whole] } else { Vec::new() } }
    }

    /// Returns the number of bytes of a use. The sum over all uses is the length of the file.
    pub fn bytes_of(&self, used: Use) -> u64 {
        self.spans.iter().filter(|s| s.used == used).map(|s| s.len).sum()
    }

    /// Returns a JSON tree: `{"path", "bytes", "tensor_bytes", "header_bytes", "padding_bytes", "unknown_bytes"}`, and with
    /// `spans` also `"ranges"`, each `{"offset", "bytes", "use", "what", "tensor"}`. [`Account::as_json`] avoids the tree.
    pub fn to_json(&self, spans: bool) -> Json {
        tree(&self.as_json(spans))
    }

    /// Returns the document of [`Account::to_json`], serialized without a tree in memory.
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

/// JSON document of an account.
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

/// Computes the account of one file. Unclaimed ranges are read up to their first nonzero byte.
///
/// # Errors
/// [`crate::Kind::Io`] if they cannot be read.
pub fn account(file: &FileExtents<'_>, outline: &Outline) -> Result<(Account, Vec<Finding>)> {
    let (source, len) = (&file.source, file.source.len());
    let parts = outline.disjoint(len);
    let encoded = file.extents.iter().find(|p| p.encoded && !p.names).map(|p| p.entry);
    let (names, spans, findings) = (HashMap::new(), Vec::new(), Vec::new());
    let mut sums = Sums { source, outline, parts, next: 0, encoded, names, spans, findings };
    let mut at = 0;
    for extent in file.extents.iter().filter(|p| !(outline.elements && p.encoded)) {
        if extent.start > at {
            sums.between(at, extent.start)?;
        }
        if extent.end > at.max(extent.start) {
            let offset = at.max(extent.start);
            let (used, what) = match (extent.names, extent.encoded) {
                (true, _) => (Use::Header, NAMES),
                (false, true) => (Use::Tensor, "encoded elements"),
                (false, false) => (Use::Tensor, "elements"),
            };
            sums.push(offset, extent.end - offset, used, what.into(), Some(extent.entry));
        }
        at = at.max(extent.end).max(extent.start);
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

/// Account under construction.
struct Sums<'a> {
    source: &'a SourceRef,
    outline: &'a Outline,
    /// Parts in order, without overlap.
    parts: Vec<Part>,
    /// Index of the first part not yet processed.
    next: usize,
    /// Tensor of the encoded elements.
    encoded: Option<&'a TensorEntry>,
    /// Display names of tensors.
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
        // Truncated names of two tensors may be equal, so the pointers are compared.
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

    /// Accounts for the bytes `from .. to` outside all tensors: parts, and gaps between them.
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
                let kind = content_kind(&**self.source, start, stop - start)?;
                let text = format!("{} bytes as {what}: {kind}", stop - start);
                self.findings.push(Finding::unchecked("hidden-bytes", text).at(start));
            }
            self.push(start, stop - start, used, what, None);
            at = stop;
        }
        if to > at { self.gap(at, to) } else { Ok(()) }
    }

    /// Accounts for the unclaimed bytes `from .. to`.
    fn gap(&mut self, from: u64, to: u64) -> Result<()> {
        let (len, end) = (to - from, self.source.len());
        let may_be = match self.outline.gaps {
            // The beginning of a file is never padding.
            Gaps::Zeros(most) => from > 0 && to < end && len <= most,
            Gaps::Free => from > 0,
            Gaps::Forbidden => false,
        };
        if may_be && first_not_zero(&**self.source, from, to)? == to {
            self.push(from, len, Use::Padding, "zeros".into(), None);
            return Ok(());
        }
        let kind = content_kind(&**self.source, from, len)?;
        // These need no guess.
        let is_certain = matches!(kind, ZEROS | UNRECOGNIZED);
        let what = if is_certain { kind.into() } else { format!("looks like {kind}").into() };
        self.push(from, len, Use::Unknown, what, None);
        let bytes = counted(len, "byte", "bytes");
        let (code, place) = match (from, to) {
            (0, to) if to == end => ("hidden-bytes", "of unknown use"),
            (0, _) => ("hidden-bytes", "before the start of the format"),
            (_, to) if to == end => ("trailing-bytes", AFTER_LAST_PART),
            _ => ("hidden-bytes", "between the parts of the file"),
        };
        let text = match len {
            _ if is_certain => format!("{bytes} {place}: {kind}"),
            1 => format!("{bytes} {place}; it looks like {kind}"),
            _ => format!("{bytes} {place}; they look like {kind}"),
        };
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
                (48, 16, "unknown", "looks like one repeated byte", None)
            ]
        );
        let reported: Vec<_> =
            findings.iter().map(|f| (f.code.as_str(), f.offset, f.file.as_deref())).collect();
        assert_eq!(reported, [("trailing-bytes", Some(48), Some("m"))]);
        let json = account.to_json(true);
        assert_eq!((&json["tensor_bytes"], &json["header_bytes"]), (&json!(32), &json!(16)));
        let range = json!({"offset": 0, "bytes": 4, "use": "header", "what": "mark", "tensor": null});
        assert_eq!(json["ranges"][0], range);
    }

    /// A tensor of many extents has many ranges: they share its name, and a long name is truncated.
    #[test]
    fn long_names_are_truncated_and_shared() {
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
    fn zeros_are_padding_if_the_format_allows_gaps() {
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
    fn parts_locate_encoded_elements() {
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
