//! Tables of a FlatBuffer, read from a source where they are needed.
//!
//! ```text
//! offset of the root table (4 bytes), "TFL3"
//! table    distance to its vtable (4 bytes, signed, backwards), fields
//! vtable   length of the vtable, length of the table, place of each field in the table; 2 bytes each
//! list     count (4 bytes), numbers or offsets; a text has a zero after its bytes
//! ```
//!
//! Offsets to texts, lists and tables are 4 bytes, unsigned, and count from their own place.

use crate::schema::{Field, Kind, Scalar, Schema};
use std::cell::RefCell;
use std::collections::HashMap;
use weighbridge_core::budget::Budget;
use weighbridge_core::error::{Error, Result};
use weighbridge_io::source::{SourceRef, check_range, read_vec};

/// Bytes read at once.
const PAGE: u64 = 4096;

/// FlatBuffer of a source.
#[derive(Debug)]
pub(crate) struct File {
    /// Source.
    pub(crate) source: SourceRef,
    /// Budget.
    pub(crate) budget: Budget,
    /// Schema.
    pub(crate) schema: Schema,
    pages: RefCell<HashMap<u64, Vec<u8>>>,
}

/// Table of a FlatBuffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    /// File.
    pub(crate) file: &'a File,
    /// Name of its type.
    pub(crate) kind: &'static str,
    /// Offset.
    pub(crate) at: u64,
    /// Offset and length of the vtable.
    pub(crate) vtable: (u64, u64),
    /// Length.
    pub(crate) len: u64,
}

/// List of a FlatBuffer: place of the first item, and count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    /// Offset of the first item. The count precedes it.
    pub(crate) at: u64,
    /// Number of items.
    pub(crate) count: u64,
}

/// Number of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// Integer; one of 64 bits without a sign keeps its bits.
    Int(i64),
    /// Float.
    Float(f32),
}

impl File {
    /// Creates a reader. Pages that are read are charged to `budget`.
    pub(crate) fn new(source: &SourceRef, budget: &Budget) -> Self {
        Self {
            source: source.clone(),
            budget: budget.clone(),
            schema: Schema::new(),
            pages: RefCell::default(),
        }
    }

    /// Returns the root table, of a type.
    pub(crate) fn root(&self, kind: &'static str) -> Result<Table<'_>> {
        self.table(self.target(0)?, kind)
    }

    fn array<const N: usize>(&self, at: u64) -> Result<[u8; N]> {
        check_range(&*self.source, at, N as u64).map_err(|error| error.at(at))?;
        let mut out = [0; N];
        let mut pages = self.pages.borrow_mut();
        for (at, byte) in (at..).zip(&mut out) {
            let number = at / PAGE;
            let page = match pages.entry(number) {
                std::collections::hash_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    let start = number * PAGE;
                    let len = PAGE.min(self.source.len().saturating_sub(start));
                    self.budget.take_memory(len)?;
                    place.insert(read_vec(&*self.source, start, len)?)
                }
            };
            *byte = usize::try_from(at % PAGE).ok().and_then(|at| page.get(at)).copied().unwrap_or(0);
        }
        Ok(out)
    }

    fn u16(&self, at: u64) -> Result<u64> {
        self.array(at).map(u16::from_le_bytes).map(u64::from)
    }

    fn u32(&self, at: u64) -> Result<u64> {
        self.array(at).map(u32::from_le_bytes).map(u64::from)
    }

    /// Returns the number at an offset.
    pub(crate) fn number(&self, at: u64, scalar: Scalar) -> Result<Number> {
        Ok(Number::Int(match scalar {
            Scalar::Bool | Scalar::U8 => self.array(at).map(u8::from_le_bytes)?.into(),
            Scalar::I8 => self.array(at).map(i8::from_le_bytes)?.into(),
            Scalar::U16 => self.array(at).map(u16::from_le_bytes)?.into(),
            Scalar::I32 => self.array(at).map(i32::from_le_bytes)?.into(),
            Scalar::U32 => self.array(at).map(u32::from_le_bytes)?.into(),
            Scalar::I64 | Scalar::U64 => self.array(at).map(i64::from_le_bytes)?,
            Scalar::F32 => return self.array(at).map(f32::from_le_bytes).map(Number::Float),
        }))
    }

    /// Returns the place that an offset leads to.
    pub(crate) fn target(&self, at: u64) -> Result<u64> {
        let offset = self.u32(at)?;
        if offset == 0 {
            return Err(Error::corrupt("bad-offsets", "an offset is zero")
                .at(at)
                .expected("4 or more")
                .found(0));
        }
        let target = at.saturating_add(offset);
        check_range(&*self.source, target, 4).map_err(|error| error.at(at))?;
        Ok(target)
    }

    /// Returns the table at an offset.
    pub(crate) fn table(&self, at: u64, kind: &'static str) -> Result<Table<'_>> {
        let distance = self.array(at).map(i32::from_le_bytes)?;
        let bad = |text: &str| Error::corrupt("bad-offsets", text).at(at);
        let vtable = i64::try_from(at).ok().and_then(|at| at.checked_sub(i64::from(distance)));
        let vtable = vtable.and_then(|at| u64::try_from(at).ok());
        let vtable = vtable.ok_or_else(|| bad("the vtable of a table is before the file").found(distance))?;
        let (bytes, len) = (self.u16(vtable)?, self.u16(vtable.saturating_add(2))?);
        if bytes < 4 || !bytes.is_multiple_of(2) || len < 4 {
            return Err(bad("the vtable of a table is malformed")
                .expected("an even length of 4 or more, and a table of 4 bytes or more")
                .found(format_args!("a length of {bytes}, and a table of {len} bytes")));
        }
        for (at, len) in [(vtable, bytes), (at, len)] {
            check_range(&*self.source, at, len).map_err(|error| error.at(at))?;
        }
        Ok(Table { file: self, kind, at, vtable: (vtable, bytes), len })
    }

    /// Returns the list whose count is at an offset.
    pub(crate) fn list(&self, at: u64, width: u64) -> Result<List> {
        let count = self.u32(at)?;
        check_range(&*self.source, at + 4, count.saturating_mul(width)).map_err(|error| error.at(at))?;
        Ok(List { at: at + 4, count })
    }

    /// Returns bytes, charged to the budget.
    pub(crate) fn bytes(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        self.budget.take_memory(len)?;
        read_vec(&*self.source, at, len).map_err(|error| error.at(at))
    }
}

impl<'a> Table<'a> {
    /// Returns the field of that name in the schema.
    fn known(&self, name: &str) -> Option<&'a Field> {
        self.file.schema.fields(self.kind).iter().find(|field| field.name == name)
    }

    /// Returns the offset of a field in the file; `None` if it is not stored.
    pub(crate) fn place(&self, slot: u16, width: u64) -> Result<Option<u64>> {
        let entry = 4 + 2 * u64::from(slot);
        if entry + 2 > self.vtable.1 {
            return Ok(None);
        }
        let place = self.file.u16(self.vtable.0 + entry)?;
        if place == 0 {
            return Ok(None);
        }
        if place < 4 || place + width > self.len {
            return Err(Error::corrupt("bad-offsets", "a field is outside of its table")
                .at(self.vtable.0 + entry)
                .expected(format_args!("4 to {}", self.len.saturating_sub(width)))
                .found(place));
        }
        Ok(Some(self.at + place))
    }

    /// Returns the place that the offset in a field leads to.
    fn reference(&self, name: &str) -> Result<Option<u64>> {
        let Some(field) = self.known(name) else { return Ok(None) };
        self.place(field.slot, 4)?.map(|at| self.file.target(at)).transpose()
    }

    /// Returns the number of a field, or its default.
    pub(crate) fn number(&self, field: &Field, scalar: Scalar) -> Result<Number> {
        match self.place(field.slot, scalar.width())? {
            Some(at) => self.file.number(at, scalar),
            None if scalar == Scalar::F32 => Ok(Number::Float(0.0)),
            None => Ok(Number::Int(field.default)),
        }
    }

    /// Returns the integer of a field, or its default.
    pub(crate) fn int(&self, name: &str) -> Result<i64> {
        let Some(field) = self.known(name) else { return Ok(0) };
        let (Kind::Scalar(scalar) | Kind::Enum(_, scalar)) = field.kind else { return Ok(0) };
        match self.number(field, scalar)? {
            Number::Int(value) => Ok(value),
            Number::Float(_) => Ok(0),
        }
    }

    /// Returns the integer of a field that has no sign.
    pub(crate) fn uint(&self, name: &str) -> Result<u64> {
        self.int(name).map(i64::cast_unsigned)
    }

    /// Returns the bytes of a text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(at) = self.reference(name)? else { return Ok(None) };
        let list = self.file.list(at, 1)?;
        self.file.bytes(list.at, list.count).map(Some)
    }

    /// Returns a table in a field.
    pub(crate) fn table(&self, name: &str) -> Result<Option<Self>> {
        let Some(Field { kind: Kind::Table(kind), .. }) = self.known(name) else { return Ok(None) };
        self.reference(name)?.map(|at| self.file.table(at, kind)).transpose()
    }

    /// Returns a table of one of several types: the number of the type, and the table if the type is known.
    pub(crate) fn union(&self, name: &str) -> Result<Option<(u8, Option<Self>)>> {
        let Some(field) = self.known(name) else { return Ok(None) };
        let Kind::Union(union) = field.kind else { return Ok(None) };
        let number = match self.place(field.slot.saturating_sub(1), 1)? {
            Some(at) => self.file.array(at).map(u8::from_le_bytes)?,
            None => 0,
        };
        let Some(at) = self.reference(name)?.filter(|_| number > 0) else { return Ok(None) };
        let member = self.file.schema.member(union, number);
        Ok(Some((number, member.map(|kind| self.file.table(at, kind)).transpose()?)))
    }

    /// Returns a list in a field, with the type of its items.
    pub(crate) fn list(&self, name: &str) -> Result<Option<(List, &'a Kind)>> {
        let Some(Field { kind: Kind::List(item), .. }) = self.known(name) else { return Ok(None) };
        let width = match **item {
            Kind::Scalar(scalar) | Kind::Enum(_, scalar) => scalar.width(),
            _ => 4,
        };
        let Some(at) = self.reference(name)? else { return Ok(None) };
        self.file.list(at, width).map(|list| Some((list, &**item)))
    }

    /// Returns the tables of a list.
    pub(crate) fn tables(&self, name: &str) -> Result<Tables<'a>> {
        let empty = List { at: 0, count: 0 };
        Ok(match self.list(name)? {
            Some((list, &Kind::Table(kind))) => Tables { file: self.file, kind, list },
            _ => Tables { file: self.file, kind: "", list: empty },
        })
    }

    /// Returns the integers of a list.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        let Some((list, &Kind::Scalar(scalar))) = self.list(name)? else { return Ok(Vec::new()) };
        self.file.budget.take_memory(list.count.saturating_mul(8))?;
        let mut out = Vec::new();
        for place in 0..list.count {
            if let Number::Int(value) = self.file.number(list.at + place * scalar.width(), scalar)? {
                out.push(value);
            }
        }
        Ok(out)
    }
}

/// Tables of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables<'a> {
    file: &'a File,
    kind: &'static str,
    list: List,
}

impl<'a> Tables<'a> {
    /// Returns the number of tables.
    pub(crate) fn len(&self) -> u64 {
        self.list.count
    }

    /// Returns a table; `None` for a number beyond the end.
    pub(crate) fn get(&self, number: u64) -> Result<Option<Table<'a>>> {
        if number >= self.list.count {
            return Ok(None);
        }
        let at = self.file.target(self.list.at + 4 * number)?;
        self.file.table(at, self.kind).map(Some)
    }

    /// Returns all tables in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Table<'a>>> + use<'a> {
        let tables = *self;
        (0..self.list.count).filter_map(move |number| tables.get(number).transpose())
    }
}
