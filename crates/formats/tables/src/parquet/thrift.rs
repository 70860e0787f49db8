//! Thrift's compact form, as the heads of pages and the footer have it, read just as the reader does that
//! comes after this one: it takes a field for what its place asks for, whatever its head says.
//!
//! ```text
//! structure  fields, then 0
//! field      distance from the id before (4 bits; 0: the id follows as a number), type (4 bits), value
//! number     zigzag, 7 bits a byte, the lowest first
//! list       count (4 bits; 15: it follows), type of the elements (4 bits), elements
//! ```

use weighbridge_core::budget::Budget;

/// Why a structure was not read.
pub(super) enum Stop {
    /// It goes on behind these bytes.
    End,
    /// This is no structure.
    Wrong,
    /// Structures stand within each other without end.
    Deep,
    /// A list of truths, or of more values of fixed length than there are bytes. The reader that comes
    /// after this one passes over as many as are claimed, without missing their bytes.
    Endless,
    /// A field of another type than its place asks for: the reader that comes after this one would take the bytes behind it
    /// for something else.
    Mistyped,
    /// A field that the structure must have is not there.
    Missing,
    /// The head of a page with the structure of another kind of page.
    Twofold,
}

/// What a structure is. Source: parquet.thrift of the Parquet format.
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
    /// `ColumnCryptoMetaData`: the column is encrypted. Its fields are passed over.
    Crypto,
    /// Any other: its fields are passed over.
    Other,
}

/// What a field is for.
#[derive(Clone, Copy)]
enum Kind {
    Truth,
    Byte,
    Short,
    Number,
    Long,
    Double,
    Text,
    /// A list, and what its elements are.
    List(Structure),
    /// A list of values of that type.
    Values(u8),
    Of(Structure),
}

impl Structure {
    /// What a field is taken for; `None` where it is passed over.
    fn field(self, id: i16) -> Option<Kind> {
        use Kind::{Byte, Double, List, Long, Number, Of, Short, Text, Truth, Values};
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
            | (S::Sorting, 2 | 3) => Truth,
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

    /// The fields that it must have: a bit of each id.
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

    /// True where the reader that comes after this one passes over its fields.
    fn is_passed_over(self) -> bool {
        matches!(self, Self::Other | Self::Crypto)
    }
}

impl Kind {
    /// True where a value of type `wire` is read so.
    fn fits(self, wire: u8) -> bool {
        match self {
            Self::Truth => matches!(wire, 1 | 2),
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

/// What is met in a structure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Met {
    /// A field that is a whole number.
    Number(i16, i64),
    /// A field that is a text: where it ends, and of how many bytes it is.
    Text(i16, usize, u64),
    /// The head of a field of another type than its place asks for, the last of its structure: where it is.
    Foreign(usize),
    /// Its end.
    End,
}

/// Is told what is met, and in which structure.
type Watch<'a> = dyn FnMut(Structure, Met) + 'a;

/// Bytes that are read from front to back.
pub(super) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    /// Bytes that were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Reads a structure and all within it; `watch` is told of what is met.
    pub(super) fn structure(&mut self, structure: Structure, watch: &mut Watch<'_>) -> Result<(), Stop> {
        self.fields(structure, 0, watch)
    }

    fn fields(&mut self, structure: Structure, depth: usize, watch: &mut Watch<'_>) -> Result<(), Stop> {
        if depth > Budget::DEPTH {
            return Err(Stop::Deep);
        }
        let mut id = 0i16;
        let mut missing = structure.required();
        loop {
            let head = self.byte()?;
            let (step, wire) = (head >> 4, head & 15);
            if wire == 0 {
                watch(structure, Met::End);
                return if missing == 0 { Ok(()) } else { Err(Stop::Missing) };
            }
            id = match step {
                0 => low_id(self.zigzag()?),
                // Who passes over a structure does not add its ids up.
                step if structure.is_passed_over() => i16::from(step),
                step => id.checked_add(i16::from(step)).ok_or(Stop::Wrong)?,
            };
            let kind = structure.field(id);
            if kind.is_some_and(|kind| !kind.fits(wire)) {
                // The filter of a column is newer than some writers, which had another field in its place.
                let at = self.at - 1;
                if (structure, id, step) != (Structure::Column, 15, step.clamp(1, 9)) {
                    return Err(Stop::Mistyped);
                }
                self.skip(wire, Structure::Other, depth, watch)?;
                if self.all.get(self.at) != Some(&0) {
                    return Err(Stop::Mistyped);
                }
                watch(structure, Met::Foreign(at));
                continue;
            }
            missing &= !1u32.checked_shl(u32::try_from(id).unwrap_or(u32::MAX)).unwrap_or(0);
            match (wire, kind) {
                // The value of a truth stands in its head.
                (1 | 2, _) => {}
                (4..=6, _) => watch(structure, Met::Number(id, self.zigzag()?)),
                (8, Some(Kind::Text)) => {
                    let len = self.varint()?;
                    self.pass(len)?;
                    watch(structure, Met::Text(id, self.at, len));
                }
                (_, Some(Kind::List(within))) => {
                    self.elements_are(12)?;
                    self.skip(wire, within, depth, watch)?;
                }
                (_, Some(Kind::Values(of))) => {
                    self.elements_are(of)?;
                    self.skip(wire, Structure::Other, depth, watch)?;
                }
                (_, Some(Kind::Of(within))) => self.skip(wire, within, depth, watch)?,
                _ => self.skip(wire, Structure::Other, depth, watch)?,
            }
        }
    }

    /// Fails where the list that comes next has elements, and of another type.
    fn elements_are(&self, wire: u8) -> Result<(), Stop> {
        let head = *self.all.get(self.at).ok_or(Stop::End)?;
        if head & 15 == wire || head >> 4 == 0 { Ok(()) } else { Err(Stop::Mistyped) }
    }

    /// Passes over a value that is no number of a field. `structure` is what it is, or what its elements are.
    fn skip(
        &mut self,
        wire: u8,
        structure: Structure,
        depth: usize,
        watch: &mut Watch<'_>,
    ) -> Result<(), Stop> {
        if depth > Budget::DEPTH {
            return Err(Stop::Deep);
        }
        match wire {
            // A truth within a map has no byte, as one in a list.
            1 | 2 => Ok(()),
            3 => self.pass(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.pass(8),
            8 => {
                let len = self.varint()?;
                self.pass(len)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                if let Some(size) = fixed(head & 15) {
                    return self.pass_all(count, size);
                }
                // Every value has a byte, so that these come to an end.
                (0..count).try_for_each(|_| self.skip(head & 15, structure, depth + 1, watch))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                if let (Some(key), Some(value)) = (fixed(kinds >> 4), fixed(kinds & 15)) {
                    return self.pass_all(count, key + value);
                }
                (0..count).try_for_each(|_| {
                    self.skip(kinds >> 4, Structure::Other, depth + 1, watch)?;
                    self.skip(kinds & 15, Structure::Other, depth + 1, watch)
                })
            }
            12 => self.fields(structure, depth + 1, watch),
            13 => self.pass(16),
            _ => Err(Stop::Wrong),
        }
    }

    /// Passes over `count` values of `size` bytes each.
    fn pass_all(&mut self, count: u64, size: u64) -> Result<(), Stop> {
        let len = count.checked_mul(size).ok_or(Stop::Endless)?;
        match self.pass(len) {
            Ok(()) if size > 0 || count == 0 => Ok(()),
            _ => Err(Stop::Endless),
        }
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.all.get(self.at).ok_or(Stop::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn pass(&mut self, count: u64) -> Result<(), Stop> {
        let count = usize::try_from(count).map_err(|_| Stop::End)?;
        self.at = self.at.checked_add(count).filter(|&at| at <= self.all.len()).ok_or(Stop::End)?;
        Ok(())
    }

    /// A number of up to ten bytes.
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
                return Err(Stop::Wrong);
            }
        }
    }

    fn zigzag(&mut self) -> Result<i64, Stop> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// The bytes of a value of that kind, where all have the same, as the reader that comes after this one takes
/// them: a truth in a list has none.
fn fixed(kind: u8) -> Option<u64> {
    match kind {
        1 | 2 => Some(0),
        7 => Some(8),
        13 => Some(16),
        _ => None,
    }
}

/// The low 32 bits, which whoever reads the structure takes of a number.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn low(value: i64) -> i32 {
    value as i32
}

/// The low 16 bits.
#[allow(clippy::cast_possible_truncation)]
fn low_id(value: i64) -> i16 {
    value as i16
}
