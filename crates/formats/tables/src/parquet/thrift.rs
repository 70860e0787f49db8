//! Thrift compact protocol of page headers and the footer, parsed exactly as the library does
//! afterwards: the library reads a field by its expected type, whatever its header declares.
//!
//! ```text
//! structure  fields, then 0
//! field      distance from the id before (4 bits; 0: the id follows as a number), type (4 bits), value
//! number     zigzag, 7 bits a byte, the lowest first
//! list       count (4 bits; 15: it follows), type of the elements (4 bits), elements
//! ```

use weighbridge_core::budget::Budget;

/// Reason why a structure was not read.
pub(super) enum Stop {
    /// It continues beyond these bytes.
    Truncated,
    /// Not a structure.
    Malformed,
    /// Nested too deeply.
    TooDeep,
    /// A list of booleans, or of more fixed-length values than there are bytes. The library
    /// skips as many as declared, without missing their bytes.
    Unbounded,
    /// A field with another type than expected: the library would misread the bytes behind it.
    Mistyped,
    /// A required field is missing.
    Missing,
    /// A page header with the structure of another page type.
    WrongPageType,
}

/// Type of a structure. Source: parquet.thrift of the Parquet format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Structure {
    /// `PageHeader`.
    Head,
    /// `DataPageHeader`.
    Data,
    /// `DataPageHeaderV2`.
    SecondData,
    /// `DictionaryPageHeader`.
    Dictionary,
    /// `Statistics`.
    Statistics,
    /// `FileMetaData`.
    Footer,
    /// `SchemaElement`.
    Schema,
    /// `LogicalType`.
    Logical,
    /// `DecimalType`.
    Decimal,
    /// `TimeType`, `TimestampType`.
    Time,
    /// `TimeUnit`, `ColumnOrder`: one of several structures without fields.
    Choice,
    /// `IntType`, `VariantType`.
    Integer,
    /// `GeometryType`, `GeographyType`.
    Geometry,
    /// `RowGroup`.
    Group,
    /// `SortingColumn`.
    Sorting,
    /// `ColumnChunk`.
    Chunk,
    /// `ColumnMetaData`.
    Column,
    /// `PageEncodingStats`.
    Encodings,
    /// `SizeStatistics`.
    Sizes,
    /// `GeospatialStatistics`.
    Places,
    /// `BoundingBox`.
    Corners,
    /// `KeyValue`.
    KeyValue,
    /// `ColumnCryptoMetaData`: the column is encrypted. Its fields are skipped.
    Crypto,
    /// Any other: its fields are skipped.
    Other,
}

/// Expected type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Byte,
    Short,
    Number,
    Long,
    Double,
    Text,
    /// A list of structures.
    List(Structure),
    /// A list of values of this type.
    Values(u8),
    Of(Structure),
}

impl Structure {
    /// Expected type of a field; `None` where it is skipped.
    fn field(self, id: i16) -> Option<Kind> {
        use Kind::{Bool, Byte, Double, List, Long, Number, Of, Short, Text, Values};
        use Structure as S;
        Some(match (self, id) {
            (S::Head, 1..=4)
            | (S::Data, 1..=4)
            | (S::SecondData, 1..=6)
            | (S::Dictionary, 1..=2)
            | (S::Footer, 1)
            | (S::Schema, 1..=3 | 5..=9)
            | (S::Decimal, 1..=2)
            | (S::Geometry, 2)
            | (S::Sorting, 1)
            | (S::Chunk, 5 | 7)
            | (S::Column, 1 | 4 | 15)
            | (S::Encodings, 1..=3) => Number,
            (S::Statistics, 3 | 4)
            | (S::Footer, 3)
            | (S::Group, 2 | 3 | 5 | 6)
            | (S::Chunk, 2 | 4 | 6)
            | (S::Column, 5..=7 | 9..=11 | 14)
            | (S::Sizes, 1) => Long,
            (S::Group, 7) => Short,
            (S::SecondData, 7)
            | (S::Dictionary, 3)
            | (S::Statistics, 7 | 8)
            | (S::Time, 1)
            | (S::Integer, 2)
            | (S::Sorting, 2 | 3) => Bool,
            (S::Statistics, 1 | 2 | 5 | 6)
            | (S::Footer, 6)
            | (S::Schema, 4)
            | (S::Geometry, 1)
            | (S::Chunk, 1 | 9)
            | (S::KeyValue, 1 | 2) => Text,
            (S::Integer, 1) => Byte,
            (S::Corners, 1..=8) => Double,
            (S::Head, 5) => Of(S::Data),
            (S::Head, 7) => Of(S::Dictionary),
            (S::Head, 8) => Of(S::SecondData),
            (S::Data, 5) | (S::SecondData, 8) | (S::Column, 12) => Of(S::Statistics),
            (S::Schema, 10) => Of(S::Logical),
            (S::Logical, 5) => Of(S::Decimal),
            (S::Logical, 7 | 8) => Of(S::Time),
            (S::Logical, 10 | 16) => Of(S::Integer),
            (S::Logical, 17 | 18) => Of(S::Geometry),
            (S::Time, 2) => Of(S::Choice),
            (S::Head, 6) | (S::Logical, _) | (S::Choice, _) => Of(S::Other),
            (S::Chunk, 3) => Of(S::Column),
            (S::Chunk, 8) => Of(S::Crypto),
            (S::Column, 16) => Of(S::Sizes),
            (S::Column, 17) => Of(S::Places),
            (S::Places, 1) => Of(S::Corners),
            (S::Footer, 2) => List(S::Schema),
            (S::Footer, 4) => List(S::Group),
            (S::Footer, 5) => List(S::KeyValue),
            (S::Footer, 7) => List(S::Choice),
            (S::Group, 1) => List(S::Chunk),
            (S::Group, 4) => List(S::Sorting),
            (S::Column, 13) => List(S::Encodings),
            (S::Column, 2) | (S::Places, 2) => Values(5),
            (S::Column, 3) => Values(8),
            (S::Sizes, 2 | 3) => Values(6),
            _ => return None,
        })
    }

    /// Required fields: one bit per id.
    fn required(self) -> u32 {
        let ids: &[u32] = match self {
            Self::Head => &[1, 2, 3],
            Self::Data | Self::Footer => &[1, 2, 3, 4],
            Self::SecondData => &[1, 2, 3, 4, 5, 6],
            Self::Dictionary | Self::Decimal | Self::Time | Self::Integer => &[1, 2],
            Self::Schema => &[4],
            Self::Group | Self::Sorting | Self::Encodings => &[1, 2, 3],
            Self::Chunk => &[2],
            Self::Column => &[1, 2, 3, 4, 5, 6, 7, 9],
            Self::KeyValue => &[1],
            _ => &[],
        };
        ids.iter().fold(0, |all, id| all | 1 << id)
    }

    /// True where the library skips its fields.
    fn is_skipped(self) -> bool {
        matches!(self, Self::Other | Self::Crypto)
    }
}

impl Kind {
    /// True where a value of type `wire` is read as this type.
    fn fits(self, wire: u8) -> bool {
        match self {
            Self::Bool => matches!(wire, 1 | 2),
            Self::Byte => wire == 3,
            Self::Short => wire == 4,
            Self::Number => wire == 5,
            Self::Long => wire == 6,
            Self::Double => wire == 7,
            Self::Text => wire == 8,
            Self::List(_) | Self::Values(_) => matches!(wire, 9 | 10),
            Self::Of(_) => wire == 12,
        }
    }
}

/// Event in a structure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A field that is an integer: its id and value.
    Number(i16, i64),
    /// A field that is a text: its id, end offset and length in bytes.
    Text(i16, usize, u64),
    /// The offset of the header of a field of the wrong type, the last field of its structure.
    Foreign(usize),
    /// The end of the structure.
    End,
}

/// Callback for events and the structures they occur in.
type OnEvent<'a> = dyn FnMut(Structure, Event) + 'a;

/// Cursor over bytes.
pub(super) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    /// Number of bytes read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Reads a structure and everything inside it; `on_event` receives the events.
    pub(super) fn structure(&mut self, structure: Structure, on_event: &mut OnEvent<'_>) -> Result<(), Stop> {
        self.fields(structure, 0, on_event)
    }

    fn fields(&mut self, structure: Structure, depth: usize, on_event: &mut OnEvent<'_>) -> Result<(), Stop> {
        if depth > Budget::DEPTH {
            return Err(Stop::TooDeep);
        }
        let mut id = 0i16;
        let mut missing = structure.required();
        loop {
            let head = self.byte()?;
            let (step, wire) = (head >> 4, head & 15);
            if wire == 0 {
                on_event(structure, Event::End);
                return if missing == 0 { Ok(()) } else { Err(Stop::Missing) };
            }
            id = match step {
                0 => low_id(self.zigzag()?),
                // A skipped structure does not add its ids up.
                step if structure.is_skipped() => i16::from(step),
                step => id.checked_add(i16::from(step)).ok_or(Stop::Malformed)?,
            };
            let kind = structure.field(id);
            if kind.is_some_and(|kind| !kind.fits(wire)) {
                // The filter of a column is newer than some writers, which stored another field with its id.
                let at = self.at - 1;
                if (structure, id, step) != (Structure::Column, 15, step.clamp(1, 9)) {
                    return Err(Stop::Mistyped);
                }
                self.skip(wire, Structure::Other, depth, on_event)?;
                if self.all.get(self.at) != Some(&0) {
                    return Err(Stop::Mistyped);
                }
                on_event(structure, Event::Foreign(at));
                continue;
            }
            missing &= !1u32.checked_shl(u32::try_from(id).unwrap_or(u32::MAX)).unwrap_or(0);
            match (wire, kind) {
                // The value of a boolean is in its header.
                (1 | 2, _) => {}
                (4..=6, _) => on_event(structure, Event::Number(id, self.zigzag()?)),
                (8, Some(Kind::Text)) => {
                    let len = self.varint()?;
                    self.advance(len)?;
                    on_event(structure, Event::Text(id, self.at, len));
                }
                (_, Some(Kind::List(within))) => {
                    self.elements_are(12)?;
                    self.skip(wire, within, depth, on_event)?;
                }
                (_, Some(Kind::Values(of))) => {
                    self.elements_are(of)?;
                    self.skip(wire, Structure::Other, depth, on_event)?;
                }
                (_, Some(Kind::Of(within))) => self.skip(wire, within, depth, on_event)?,
                _ => self.skip(wire, Structure::Other, depth, on_event)?,
            }
        }
    }

    /// Fails if the next list has elements of another type.
    fn elements_are(&self, wire: u8) -> Result<(), Stop> {
        let head = *self.all.get(self.at).ok_or(Stop::Truncated)?;
        if head & 15 == wire || head >> 4 == 0 { Ok(()) } else { Err(Stop::Mistyped) }
    }

    /// Skips a value that is not a number of a field. `structure` is its type, or the type of its elements.
    fn skip(
        &mut self,
        wire: u8,
        structure: Structure,
        depth: usize,
        on_event: &mut OnEvent<'_>,
    ) -> Result<(), Stop> {
        if depth > Budget::DEPTH {
            return Err(Stop::TooDeep);
        }
        match wire {
            // A boolean in a map has no byte, like one in a list.
            1 | 2 => Ok(()),
            3 => self.advance(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.advance(8),
            8 => {
                let len = self.varint()?;
                self.advance(len)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                if let Some(size) = fixed(head & 15) {
                    return self.skip_all(count, size);
                }
                // Every value has a byte, so that this loop ends.
                (0..count).try_for_each(|_| self.skip(head & 15, structure, depth + 1, on_event))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                if let (Some(key), Some(value)) = (fixed(kinds >> 4), fixed(kinds & 15)) {
                    return self.skip_all(count, key + value);
                }
                (0..count).try_for_each(|_| {
                    self.skip(kinds >> 4, Structure::Other, depth + 1, on_event)?;
                    self.skip(kinds & 15, Structure::Other, depth + 1, on_event)
                })
            }
            12 => self.fields(structure, depth + 1, on_event),
            13 => self.advance(16),
            _ => Err(Stop::Malformed),
        }
    }

    /// Skips `count` values of `size` bytes each.
    fn skip_all(&mut self, count: u64, size: u64) -> Result<(), Stop> {
        let len = count.checked_mul(size).ok_or(Stop::Unbounded)?;
        match self.advance(len) {
            Ok(()) if size > 0 || count == 0 => Ok(()),
            _ => Err(Stop::Unbounded),
        }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.all.get(self.at).ok_or(Stop::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn advance(&mut self, count: u64) -> Result<(), Stop> {
        let count = usize::try_from(count).map_err(|_| Stop::Truncated)?;
        self.at = self.at.checked_add(count).filter(|&at| at <= self.all.len()).ok_or(Stop::Truncated)?;
        Ok(())
    }

    /// Number of up to ten bytes.
    fn varint(&mut self) -> Result<u64, Stop> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
            if shift > 63 {
                return Err(Stop::Malformed);
            }
        }
    }

    fn zigzag(&mut self) -> Result<i64, Stop> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// Fixed size in bytes of a value of this type, as the library skips
/// it: a boolean in a list has none.
fn fixed(kind: u8) -> Option<u64> {
    match kind {
        1 | 2 => Some(0),
        7 => Some(8),
        13 => Some(16),
        _ => None,
    }
}

/// The low 32 bits, which the library uses of a number.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn low(value: i64) -> i32 {
    value as i32
}

/// The low 16 bits.
#[allow(clippy::cast_possible_truncation)]
fn low_id(value: i64) -> i16 {
    value as i16
}
