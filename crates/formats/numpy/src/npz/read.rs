//! Reader: archive to checkpoint.

use super::{METADATA, SUFFIX};
use crate::npy::{self, Header};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{Checkpoint, Metadata, Note, TensorEntry, TensorPath, Value, escape_text};
use weighbridge_core::checksum::{Check, ChecksumKind};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{Cursor, SourceRef, read_vec};
use weighbridge_zip::{Member, Method, read_with_rest};

/// Maximum number of skipped members that are named; more are counted.
const MAX_NAMED: usize = 100;
/// Maximum total length of the headers of deflated arrays: this multiple of the archive, plus a constant. A kilobyte can
/// inflate to a mebibyte of blanks.
const MAX_HEADERS_RATIO: u64 = 16;
const HEADERS_ALLOWANCE: u64 = 4 << 20;
/// Maximum length of metadata, as a multiple of the archive. JSON deflates to about a tenth, a
/// decompression bomb to a thousandth, and parsing takes a multiple of its length in memory.
const MAX_METADATA_RATIO: u64 = 64;
/// Maximum length of metadata that is longer than the archive: several copies are in memory while it is read.
const MAX_INFLATED_METADATA: u64 = 8 << 20;

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let (members, rest) = read_with_rest(source, &options.limits)?;
    let mut checkpoint = index(source, &members, options, |_, error| Err(error))?;
    if let Some(rest) = rest {
        rest.settle(options.lenient, source.label(), &mut checkpoint.notes)?;
    }
    Ok(checkpoint)
}

/// Reads the index of these members. `failed` handles the error of an unreadable member.
pub(super) fn index(
    source: &SourceRef,
    members: &[Member],
    options: &OpenOptions,
    mut failed: impl FnMut(&Member, Error) -> Result<()>,
) -> Result<Checkpoint> {
    let mut reader = Reader {
        source,
        options,
        stored: Cursor::new(source.clone(), 0),
        headers: source.len().saturating_mul(MAX_HEADERS_RATIO).saturating_add(HEADERS_ALLOWANCE),
        checkpoint: Checkpoint::new("npz", "archive", source.label()),
        unread: Vec::new(),
        metadata: None,
    };
    // Members are read in file order; the index has the order of the directory.
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&i| members[i].data_offset);
    let mut found: Vec<(usize, TensorEntry)> = Vec::new();
    for i in order {
        match reader.member(&members[i]) {
            Ok(entry) => found.extend(entry.map(|entry| (i, entry))),
            Err(error) => failed(&members[i], error.on_tensor(escape_text(&members[i].name)))?,
        }
    }
    found.sort_by_key(|&(i, _)| i);
    let stem = |i: usize| members[i].name.strip_suffix(SUFFIX).unwrap_or_default().to_owned();
    let names: Vec<String> = found.iter().map(|&(i, _)| stem(i)).collect();
    reader.checkpoint.tensors = found.into_iter().map(|(_, entry)| entry).collect();
    Ok(reader.finish(&names))
}

struct Reader<'a> {
    source: &'a SourceRef,
    options: &'a OpenOptions,
    /// Cursor over the headers of stored arrays.
    stored: Cursor,
    /// Remaining length of headers of deflated arrays.
    headers: u64,
    checkpoint: Checkpoint,
    unread: Vec<String>,
    metadata: Option<Vec<u8>>,
}

impl Reader<'_> {
    /// Returns the tensor of a member; `None` for metadata, and for other members, which are noted.
    fn member(&mut self, member: &Member) -> Result<Option<TensorEntry>> {
        let Some(stem) = member.name.strip_suffix(SUFFIX) else {
            // numpy returns the raw bytes of such a member.
            self.unread.push(format!("{}: member skipped, not an array", escape_text(&member.name)));
            return Ok(None);
        };
        match self.array(member, stem) {
            Ok(entry) if stem == METADATA && entry.stored == DType::U8 && entry.shape.rank() == 1 => {
                self.read_metadata(&entry)?;
                Ok(None)
            }
            Ok(entry) => Ok(Some(entry)),
            // numpy returns the raw bytes of such a member, though its name is that of an array.
            Err(error)
                if error.kind() == Kind::Unsupported
                    || (self.options.lenient && error.code() == ErrorCode::NpyMagic) =>
            {
                let found = error.found_text().map(|f| format!(" ({f})")).unwrap_or_default();
                let reason = format!("{}{found}", error.message());
                let name = TensorPath::from_dotted(stem).to_text();
                self.checkpoint.notes.push(Note::skipped_tensor(name, reason));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn array(&mut self, member: &Member, stem: &str) -> Result<TensorEntry> {
        let path = TensorPath::from_dotted(stem);
        Limits::check(
            "parts in a name",
            "path_parts",
            path.parts().len() as u64,
            self.options.limits.path_parts,
        )?;
        let (limits, lenient) = (&self.options.limits, self.options.lenient);
        let (source, start, header);
        if member.method == Method::Stored {
            // Members do not overlap and come in the order of the file; a header ends before its member.
            let hop = member.data_offset.saturating_sub(self.stored.position());
            self.stored.skip(hop, "the members of the archive")?;
            header = Header::read(&mut self.stored, member.len, limits)?;
            (source, start) = (self.source.clone(), member.data_offset);
        } else {
            // A separate source, dropped at once: a large archive would otherwise keep an inflater for
            // each member.
            let mut peek = Cursor::new(member.open(self.source)?, 0);
            let read = Header::read(&mut peek, member.len, limits);
            self.headers = self.headers.checked_sub(peek.position()).ok_or_else(|| {
                Error::limit(
                    "npy-header-length",
                    "the headers of the deflated arrays are too long for the archive",
                )
                .expected(format_args!(
                    "at most {MAX_HEADERS_RATIO} times the archive plus {HEADERS_ALLOWANCE} bytes"
                ))
                .hint("save the arrays again with numpy, which writes short headers")
            })?;
            header = read?;
            (source, start) = (member.open(self.source)?, 0);
        }
        let notes = &mut self.checkpoint.notes;
        let mut entry = npy::entry(&header, path, &source, start, member.len, lenient, notes)?;
        if member.method == Method::Stored {
            // The checksum of a deflated member is checked during inflation.
            let check =
                Check::new(&source, member.data_offset, member.len, ChecksumKind::Crc32, member.crc32);
            entry.extents.iter_mut().for_each(|extent| extent.check = Some(check.clone()));
        }
        Ok(entry)
    }

    fn read_metadata(&mut self, entry: &TensorEntry) -> Result<()> {
        let limit = self.options.limits.header_bytes;
        Limits::check("bytes of metadata", "header_bytes", entry.bytes(), limit)?;
        let most = MAX_INFLATED_METADATA.max(self.source.len());
        if entry.bytes() / MAX_METADATA_RATIO > self.source.len() || entry.bytes() > most {
            let text = format!(
                "{METADATA}: metadata skipped, {} bytes exceed the limit for this archive",
                entry.bytes()
            );
            self.checkpoint.notes.push(Note::omission("metadata-unreadable", text));
            return Ok(());
        }
        if let Some(extent) = entry.single_extent() {
            self.metadata = Some(read_vec(&*extent.source, extent.offset, extent.len)?);
        }
        Ok(())
    }

    /// Adds metadata and notes after all tensors. `names` are those of the tensors.
    fn finish(self, names: &[String]) -> Checkpoint {
        let Self { mut checkpoint, unread, metadata, .. } = self;
        if let Some(bytes) = metadata {
            let (metadata, index, odd) = parse_metadata(&bytes);
            checkpoint.metadata = metadata;
            if let Some(odd) = odd {
                checkpoint.notes.push(Note::omission("metadata-unreadable", format!("{METADATA}: {odd}")));
            }
            if let Some(index) = index {
                checkpoint.restore_bridge_index(names, &index);
            }
        }
        let more = unread.len().saturating_sub(MAX_NAMED);
        for text in unread.into_iter().take(MAX_NAMED) {
            checkpoint.notes.push(Note::omission("unread-member", text));
        }
        if more > 0 {
            checkpoint.notes.push(Note::omission("unread-member", format!("{more} more members skipped")));
        }
        checkpoint
    }
}

/// Returns the text metadata, the bridge metadata, and a description of ignored content.
fn parse_metadata(bytes: &[u8]) -> (Metadata, Option<String>, Option<&'static str>) {
    // Values stay raw text unless they are strings: a parsed tree of numbers is many times as
    // large as its text.
    let Ok(map) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(bytes) else {
        return (Metadata::default(), None, Some("metadata ignored, not a JSON object"));
    };
    let (mut index, mut odd, mut pairs) = (None, None, Vec::new());
    for (key, value) in map {
        match serde_json::from_str::<String>(value.get()) {
            Ok(text) if key == Metadata::INDEX_KEY => index = Some(text),
            Ok(text) => pairs.push((key, Value::Text(text))),
            Err(_) => odd = Some("metadata values that are not strings are ignored"),
        }
    }
    (pairs.into_iter().collect(), index, odd)
}
