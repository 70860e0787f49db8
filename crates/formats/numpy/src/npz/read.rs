//! From bytes to the index.

use super::{METADATA, SUFFIX};
use crate::npy::{self, Header};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use weighbridge_core::ErrorCode;
use weighbridge_core::checkpoint::{
    Check, Checkpoint, Metadata, Note, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::DType;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::{Cursor, SourceRef, read_vec};
use weighbridge_zip::{Member, Method, read_with_rest};

/// Members that are not read are named one by one up to this number, then counted.
const NAMED: usize = 100;
/// Headers of deflated arrays may be this many times as long as the whole archive, all together, and this much longer: one
/// may be a thousand bytes and become a mebibyte of blanks.
const HEADERS: u64 = 16;
const HEADERS_FREE: u64 = 4 << 20;
/// Metadata may be this many times as long as the whole archive. JSON packs to a tenth or so, a
/// bomb to a thousandth, and understanding it takes a multiple of its length in memory.
const MOST_INFLATED: u64 = 64;
/// Metadata that is longer than the whole file may have so many bytes: it is held several times while it is read.
const LONGEST_INFLATED: u64 = 8 << 20;

pub(super) fn open(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let (members, rest) = read_with_rest(source, &options.limits)?;
    let mut checkpoint = index(source, &members, options, |_, error| Err(error))?;
    if let Some(rest) = rest {
        rest.settle(options.lenient, source.label(), &mut checkpoint.notes)?;
    }
    Ok(checkpoint)
}

/// The index of these members. `failed` decides what becomes of one that cannot be read.
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
        headers: source.len().saturating_mul(HEADERS).saturating_add(HEADERS_FREE),
        checkpoint: Checkpoint::new("npz", "archive", source.label()),
        unread: Vec::new(),
        metadata: None,
    };
    // In the order of the file, so that reading goes forwards; the index has that of the directory.
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
    /// Goes through the headers of stored arrays.
    stored: Cursor,
    /// Bytes that headers of deflated arrays may still have.
    headers: u64,
    checkpoint: Checkpoint,
    unread: Vec<String>,
    metadata: Option<Vec<u8>>,
}

impl Reader<'_> {
    /// The tensor of a member; `None` for metadata, and for what is no tensor, which is noted.
    fn member(&mut self, member: &Member) -> Result<Option<TensorEntry>> {
        let Some(stem) = member.name.strip_suffix(SUFFIX) else {
            // numpy's own reader gives the bytes of such a member as they are.
            self.unread.push(format!("{}: not an array", escape_text(&member.name)));
            return Ok(None);
        };
        match self.array(member, stem) {
            Ok(entry) if stem == METADATA && entry.stored == DType::U8 && entry.shape.rank() == 1 => {
                self.read_metadata(&entry)?;
                Ok(None)
            }
            Ok(entry) => Ok(Some(entry)),
            // numpy gives the bytes of a member that is no array; by its name it should be one.
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
            // Read through a source of its own, which is then let go together with its inflater: a
            // large archive would else hold one for each member.
            let mut peek = Cursor::new(member.open(self.source)?, 0);
            let read = Header::read(&mut peek, member.len, limits);
            self.headers = self.headers.checked_sub(peek.position()).ok_or_else(|| {
                Error::limit(
                    "npy-header-length",
                    "the headers of deflated arrays are many times as long as the archive",
                )
                .expected(format_args!("at most {HEADERS} times the archive and {HEADERS_FREE} bytes"))
                .hint("numpy fills a header up to a few hundred bytes: save the arrays anew")
            })?;
            header = read?;
            (source, start) = (member.open(self.source)?, 0);
        }
        let notes = &mut self.checkpoint.notes;
        let mut entry = npy::entry(&header, path, &source, start, member.len, lenient, notes)?;
        if member.method == Method::Stored {
            // A deflated member is held against its checksum while it is inflated.
            let check = Check { offset: member.data_offset, len: member.len, crc32: member.crc32 };
            entry.extents.iter_mut().for_each(|extent| extent.check = Some(Box::new(check)));
        }
        Ok(entry)
    }

    fn read_metadata(&mut self, entry: &TensorEntry) -> Result<()> {
        let limit = self.options.limits.header_bytes;
        Limits::check("bytes of metadata", "header_bytes", entry.bytes(), limit)?;
        let most = LONGEST_INFLATED.max(self.source.len());
        if entry.bytes() / MOST_INFLATED > self.source.len() || entry.bytes() > most {
            let text = format!("{METADATA}: {} bytes are more than such an archive can say", entry.bytes());
            self.checkpoint.notes.push(Note::omission("metadata-unreadable", text));
            return Ok(());
        }
        if let Some(extent) = entry.single_extent() {
            self.metadata = Some(read_vec(&*extent.source, extent.offset, extent.len)?);
        }
        Ok(())
    }

    /// Brings in metadata and notes, when all tensors are there. `names` are those of the tensors.
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
        let more = unread.len().saturating_sub(NAMED);
        for text in unread.into_iter().take(NAMED) {
            checkpoint.notes.push(Note::omission("unread-member", text));
        }
        if more > 0 {
            checkpoint.notes.push(Note::omission("unread-member", format!("and {more} more members")));
        }
        checkpoint
    }
}

/// The text metadata, the carried index, and what could not be understood.
fn parse_metadata(bytes: &[u8]) -> (Metadata, Option<String>, Option<&'static str>) {
    // Values stay text until they are seen to be strings: a tree of numbers would be many times as
    // large as its text.
    let Ok(map) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(bytes) else {
        return (Metadata::default(), None, Some("this is not a JSON object; it is ignored"));
    };
    let (mut index, mut odd, mut pairs) = (None, None, Vec::new());
    for (key, value) in map {
        match serde_json::from_str::<String>(value.get()) {
            Ok(text) if key == Metadata::INDEX_KEY => index = Some(text),
            Ok(text) => pairs.push((key, Value::Text(text))),
            Err(_) => odd = Some("values that are not strings are ignored"),
        }
    }
    (pairs.into_iter().collect(), index, odd)
}
