//! Object headers: the messages of a group, a dataset or a committed datatype.

use super::broken::Broken;
use super::file::File;
use super::sums;
use bytes::Bytes;
use std::collections::HashSet;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

/// Name of these bytes in outlines.
const STRUCTURE: &str = "hdf5 object header";
/// Length of the prefix of a version-1 message, in bytes.
const PREFIX_LEN: u64 = 8;
/// Flags of a message, as in the specification.
const SHARED: u8 = 0x02;
const NEVER_SHARED: u8 = 0x04;
const FAILS_WRITERS: u8 = 0x08;
const MARKS: u8 = 0x10;
const WAS_UNKNOWN: u8 = 0x20;
const SHAREABLE: u8 = 0x40;
const FAILS_ALWAYS: u8 = 0x80;

/// Message types, by their number in the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum MessageType {
    Nothing = 0,
    Dataspace = 1,
    LinkInfo = 2,
    Datatype = 3,
    FillValueOld = 4,
    FillValue = 5,
    Link = 6,
    ExternalFiles = 7,
    Layout = 8,
    GroupInfo = 10,
    FilterPipeline = 11,
    Attribute = 12,
    Comment = 13,
    ModifiedOld = 14,
    Continuation = 16,
    SymbolTable = 17,
    Modified = 18,
    NodeSizes = 19,
    AttributeInfo = 21,
    ReferenceCount = 22,
    FileSpace = 23,
    /// The last type in the specification.
    CacheImage = 24,
}

impl MessageType {
    /// Messages that can be shared between objects.
    const SHAREABLE: [Self; 6] = [
        Self::Dataspace,
        Self::Datatype,
        Self::FillValueOld,
        Self::FillValue,
        Self::FilterPipeline,
        Self::Attribute,
    ];
    /// Messages of any object that readers use.
    const OF_ALL: [Self; 7] = [
        Self::Attribute,
        Self::AttributeInfo,
        Self::Comment,
        Self::Modified,
        Self::ModifiedOld,
        Self::ReferenceCount,
        Self::Datatype,
    ];
    /// Messages of datasets.
    const OF_DATASETS: [Self; 6] = [
        Self::Dataspace,
        Self::FillValue,
        Self::FillValueOld,
        Self::ExternalFiles,
        Self::Layout,
        Self::FilterPipeline,
    ];
    /// Messages of groups.
    const OF_GROUPS: [Self; 4] = [Self::LinkInfo, Self::Link, Self::GroupInfo, Self::SymbolTable];
    /// Messages that may repeat in one object.
    const SEVERAL: [Self; 2] = [Self::Link, Self::Attribute];

    fn is(self, kind: u16) -> bool {
        self as u16 == kind
    }
}

/// Unparsed messages of an object: a damaged message does not affect the others.
pub(super) struct Header {
    /// Chunks of the header, each with the address of its first byte.
    chunks: Vec<(u64, Bytes)>,
    messages: Vec<Message>,
    /// Stated number of messages, if any.
    stated: Option<u64>,
    /// Actual number of messages.
    counted: u64,
}

/// One message.
#[derive(Debug, Clone)]
pub(super) struct Message {
    /// Message type, as in the specification.
    pub(super) kind: u16,
    /// True where it is a reference to a shared message.
    shared: bool,
    chunk: usize,
    range: Range<usize>,
}

/// Bytes of a message, and the address of the first.
pub(super) struct Payload {
    bytes: Bytes,
    range: Range<usize>,
    pub(super) address: u64,
}

impl std::ops::Deref for Payload {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }
}

impl Header {
    /// Reads the header of an object at `address` and all its continuations.
    pub(super) fn read(file: &File, address: u64) -> Result<Self> {
        let header = Self::of_anything(file, address)?;
        header.hide_unread(file);
        Ok(header)
    }

    /// As [`read`](Self::read); a damaged continuation goes to `broken`, and the others are read. Only for groups: a lost
    /// continuation may describe the layout of a dataset.
    pub(super) fn read_parts(file: &File, address: u64, broken: &mut Broken) -> Result<Self> {
        let header = Self::parts(file, address, broken)?;
        header.hide_unread(file);
        Ok(header)
    }

    /// Records, for outlines, the messages that readers ignore: those of a type that does not apply to the object, and
    /// repeated ones.
    fn hide_unread(&self, file: &File) {
        if file.record().is_none() {
            return;
        }
        let own: &[MessageType] = if self.has(MessageType::Dataspace) {
            &MessageType::OF_DATASETS
        } else {
            &MessageType::OF_GROUPS
        };
        let among = |all: &[MessageType], kind: u16| all.iter().any(|about| about.is(kind));
        let mut seen = HashSet::new();
        for Message { kind, chunk, range, .. } in &self.messages {
            let repeated = !among(&MessageType::SEVERAL, *kind) && !seen.insert(*kind);
            if !repeated && (among(&MessageType::OF_ALL, *kind) || among(own, *kind)) {
                continue;
            }
            if let Some((address, bytes)) = self.chunks.get(*chunk)
                && let Some(payload) = bytes.get(range.clone())
            {
                hide(file, address.saturating_add(range.start as u64), payload);
            }
        }
    }

    /// As [`read`](Self::read), also for the superblock extension, which is not an object.
    pub(super) fn of_anything(file: &File, address: u64) -> Result<Self> {
        let mut broken = Broken::default();
        let header = Self::parts(file, address, &mut broken)?;
        broken.into_result().map(|()| header)
    }

    fn parts(file: &File, address: u64, broken: &mut Broken) -> Result<Self> {
        let mut header = Self { chunks: Vec::new(), messages: Vec::new(), stated: None, counted: 0 };
        let start = file.peek(address, 16)?;
        let (mut total, mut seen) = (0u64, HashSet::from([address]));
        let mut next = match start.starts_with(b"OHDR") {
            true => header.first_of_version_2(file, address, &mut total)?,
            false => header.first_of_version_1(file, address, &start, &mut total)?,
        };
        // Depth first; each address once.
        while let Some((at, len, style)) = next.pop() {
            let more = match seen.insert(at) {
                true => header.continued(file, at, len, style, &mut total),
                false => {
                    let text = "HDF5: the object header has a cycle";
                    Err(Error::corrupt("hdf5-corrupt", text).at(at))
                }
            };
            next.extend(broken.part(more)?.unwrap_or_default());
        }
        // Old writers stated more messages than exist.
        if let Some(stated) = header.stated.filter(|&stated| header.counted > stated) {
            let error =
                Error::corrupt("hdf5-corrupt", "HDF5: the object header has more messages than it states");
            let error = error.at(address).expected(stated).found(header.counted);
            broken.part::<()>(Err(error))?;
        }
        Ok(header)
    }

    /// Adds the messages of a continuation; none of them if it is damaged.
    fn continued(
        &mut self,
        file: &File,
        at: u64,
        len: u64,
        style: Style,
        total: &mut u64,
    ) -> Result<Vec<(u64, u64, Style)>> {
        grow(file, total, len)?;
        let bytes = file.bytes_as(STRUCTURE, at, len)?;
        let range = match style {
            Style::One => 0..bytes.len(),
            Style::Two { .. } => 4..sums::checked(&bytes, b"OCHK", "object header continuation", at)?.len(),
        };
        let before = self.messages.len();
        let more = self.messages_of(file, at, bytes, range, style);
        if more.is_err() {
            self.messages.truncate(before);
        }
        more
    }

    fn first_of_version_1(
        &mut self,
        file: &File,
        address: u64,
        start: &[u8],
        total: &mut u64,
    ) -> Result<Vec<(u64, u64, Style)>> {
        let mut reader = file.reader(start);
        if reader.u8()? != 1 {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: the address of an object has no object header",
            )
            .at(address));
        }
        reader.skip(1)?;
        let count = u64::from(reader.u16()?);
        reader.skip(4)?;
        let len = u64::from(reader.u32()?);
        if (count > 0 && len < PREFIX_LEN) || (count == 0 && len > 0) {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: the length of the object header does not fit its number of messages",
            )
            .at(address)
            .found(format_args!("{count} messages in {len} bytes")));
        }
        self.stated = Some(count);
        grow(file, total, len)?;
        let bytes = file.bytes_as(STRUCTURE, address, 16 + len)?;
        let range = 16..bytes.len();
        self.messages_of(file, address, bytes, range, Style::One)
    }

    fn first_of_version_2(
        &mut self,
        file: &File,
        address: u64,
        total: &mut u64,
    ) -> Result<Vec<(u64, u64, Style)>> {
        // Signature, version, flags, then up to 16 + 4 + 8 bytes; a valid file does not end within them.
        let rest =
            file.context.source.len().saturating_sub(address.saturating_add(file.context.superblock.at));
        let start = file.peek(address, rest.min(34))?;
        let mut reader = file.reader(&start);
        reader.skip(4)?;
        let version = reader.u8()?;
        if version != 2 {
            return Err(Error::unsupported(
                "hdf5-unsupported",
                "HDF5: the object header has an unsupported version",
            )
            .at(address)
            .found(version));
        }
        let flags = reader.u8()?;
        if flags & 0x20 != 0 {
            reader.skip(16)?;
        }
        if flags & 0x10 != 0 {
            reader.skip(4)?;
        }
        let len = reader.number(1 << (flags & 3))?;
        let from = reader.at();
        grow(file, total, len)?;
        let bytes = file.bytes(address, len.saturating_add(from as u64 + 4))?;
        let end = sums::checked(&bytes, b"OHDR", "object header", address)?.len();
        let style = Style::Two { ordered: flags & 4 != 0 };
        self.messages_of(file, address, bytes, from..end, style)
    }

    /// Adds the messages of one chunk. Returns the continuations among them.
    fn messages_of(
        &mut self,
        file: &File,
        address: u64,
        bytes: Bytes,
        range: Range<usize>,
        style: Style,
    ) -> Result<Vec<(u64, u64, Style)>> {
        let mut more = Vec::new();
        let mut reader = file.reader(&bytes[..range.end]);
        reader.skip(range.start)?;
        let chunk = self.chunks.len();
        while reader.left() >= style.prefix_len() {
            let (kind, len, flags);
            match style {
                Style::One => {
                    (kind, len, flags) = (reader.u16()?, reader.u16()?, reader.u8()?);
                    reader.skip(3)?;
                }
                Style::Two { ordered } => {
                    (kind, len, flags) = (u16::from(reader.u8()?), reader.u16()?, reader.u8()?);
                    reader.skip(if ordered { 2 } else { 0 })?;
                }
            }
            let at = reader.at();
            let payload = reader.take(usize::from(len))?;
            self.counted += 1;
            self.check(kind, flags, payload, style).map_err(|error| error.at(address + at as u64))?;
            match kind {
                kind if MessageType::Nothing.is(kind) => {
                    hide(file, address.saturating_add(at as u64), payload)
                }
                kind if MessageType::Continuation.is(kind) => {
                    let mut payload = file.reader(payload);
                    let (to, len) = (payload.offset()?, payload.length()?);
                    if len == 0 {
                        let text = "HDF5: a continuation of the object header is empty";
                        return Err(Error::corrupt("hdf5-corrupt", text).at(address + at as u64));
                    }
                    more.push((to, len, style));
                }
                _ => self.messages.push(Message {
                    kind,
                    shared: flags & 2 != 0,
                    chunk,
                    range: at..at + usize::from(len),
                }),
            }
        }
        if matches!(style, Style::One) && reader.left() > 0 {
            let text = "HDF5: the object header has bytes behind its last message";
            return Err(Error::corrupt("hdf5-corrupt", text).at(address).found(reader.left()));
        }
        self.chunks.push((address, bytes));
        Ok(more)
    }

    /// Checks a message of any type as the HDF5 library does.
    fn check(&self, kind: u16, flags: u8, payload: &[u8], style: Style) -> Result<()> {
        let bad = |text: &str| Err(Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).found(kind));
        let both = |pair: u8| flags & pair == pair;
        let is_known = kind <= MessageType::CacheImage as u16;
        let is_shareable = MessageType::SHAREABLE.iter().any(|about| about.is(kind));
        if flags & (SHARED | SHAREABLE) != 0 && is_known && !is_shareable {
            return bad("an object header message of a type that cannot be shared is flagged as shared");
        }
        let is_first = matches!(style, Style::One);
        if is_first && !payload.len().is_multiple_of(8) {
            return bad("the length of an object header message is not a multiple of 8");
        }
        if both(SHARED | NEVER_SHARED)
            || both(WAS_UNKNOWN | FAILS_WRITERS)
            || flags & (WAS_UNKNOWN | MARKS) == WAS_UNKNOWN
        {
            return bad("the flags of an object header message contradict each other");
        }
        if !is_known && flags & FAILS_ALWAYS != 0 {
            return bad("an object header message of an unknown type is flagged as required");
        }
        if is_first && MessageType::ReferenceCount.is(kind) {
            return bad("a version-1 object header has a reference count message");
        }
        if flags & SHARED != 0 {
            return Ok(());
        }
        match kind {
            kind if MessageType::Modified.is(kind) && payload.first() != Some(&1) => {
                bad("a modification time message has an unknown version")
            }
            kind if MessageType::ModifiedOld.is(kind)
                && !payload.get(..14).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit)) =>
            {
                bad("a modification time message is not a date")
            }
            _ => Ok(()),
        }
    }

    /// Messages of a type.
    pub(super) fn all(&self, about: MessageType) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| about.is(message.kind))
    }

    /// True where a message of the type exists.
    pub(super) fn has(&self, about: MessageType) -> bool {
        self.all(about).next().is_some()
    }

    /// Bytes of the first message of a type, if any.
    pub(super) fn first(&self, file: &File, about: MessageType) -> Result<Option<Payload>> {
        self.all(about).next().map(|message| self.payload(file, message)).transpose()
    }

    /// Bytes of a message; a reference to a shared message is resolved.
    pub(super) fn payload(&self, file: &File, message: &Message) -> Result<Payload> {
        let Some((address, bytes)) = self.chunks.get(message.chunk) else {
            return Err(Error::corrupt("hdf5-corrupt", "HDF5: an object header message has no bytes"));
        };
        let payload = Payload {
            bytes: bytes.clone(),
            range: message.range.clone(),
            address: address + message.range.start as u64,
        };
        if message.shared {
            return follow(file, message.kind, &payload);
        }
        Ok(payload)
    }
}

/// Version of the message format.
#[derive(Clone, Copy)]
enum Style {
    One,
    Two { ordered: bool },
}

impl Style {
    /// Length of the prefix of a message, in bytes.
    fn prefix_len(self) -> usize {
        match self {
            Self::One => 8,
            Self::Two { ordered: false } => 4,
            Self::Two { ordered: true } => 6,
        }
    }
}

/// Resolves `reference` to a message of the type `kind`.
pub(super) fn follow(file: &File, kind: u16, reference: &[u8]) -> Result<Payload> {
    let mut reader = file.reader(reference);
    let place = (reader.u8()?, reader.u8()?);
    match place {
        (1, _) => {
            // Six reserved bytes; then a symbol table entry: offset of the name, address of the object.
            reader.skip(6)?;
            reader.length()?;
        }
        (2, 0 | 2) | (3, 2) => {}
        (3, 1) => return Err(shared_messages()),
        (version, place) => {
            let text = "HDF5: a reference to a shared message has an unknown type";
            let found = format_args!("version {version}, type {place}");
            return Err(Error::corrupt("hdf5-corrupt", text).found(found));
        }
    }
    let address = reader.offset()?;
    let header = Header::read(file, address)?;
    // A reference to a reference is not followed, which prevents cycles.
    let target = header.messages.iter().find(|message| message.kind == kind && !message.shared).cloned();
    match target {
        Some(target) => header.payload(file, &target),
        None => {
            let text = "HDF5: the object header does not contain the shared message";
            Err(Error::corrupt("hdf5-corrupt", text).at(address))
        }
    }
}

/// Error of a message in the shared message table.
pub(super) fn shared_messages() -> Error {
    Error::unsupported("hdf5-shared-messages", "HDF5: messages in the shared message table are not supported")
}

/// Records an ignored message that is not zero, if reads are recorded.
fn hide(file: &File, address: u64, payload: &[u8]) {
    if let Some(record) = file.record().filter(|_| payload.iter().any(|&byte| byte != 0)) {
        record.hide(address, payload.len() as u64);
    }
}

/// Compares the length of a header with the limit and with the file: its parts stay in memory, and small messages
/// become larger structures.
fn grow(file: &File, total: &mut u64, len: u64) -> Result<()> {
    *total = total.saturating_add(len);
    let (limit, own) = (file.context.limits.header_bytes, file.context.source.len());
    Limits::check("bytes in an object header", "header_bytes", *total, limit)?;
    // A single part that exceeds the file is reported where it is read.
    if *total > own && len <= own {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: the parts of the object header overlap")
            .expected(format_args!("at most {own} bytes, the length of the file"))
            .found(format_args!("{total} bytes")));
    }
    Ok(())
}
