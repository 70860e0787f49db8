//! Validation before decoding: one traversal of the bytes along the schema.
//!
//! The decoder reports that the bytes are invalid; this check reports the fault and its offset. It also compares
//! counts and lengths with the file and the limits before anything is built. It does not allocate memory.

use super::schema::{BLOCK, Bound, Field, Kind, Message, PROGRAM};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

/// Maximum nesting of groups in unknown fields.
const MAX_GROUP_DEPTH: u32 = 50;
/// Maximum number of unknown fields. The decoder needs 40 bytes for a field of two bytes.
pub(super) const MAX_UNKNOWN_FIELDS: usize = 1_000_000;

/// Checks a whole program. `placed`: true if errors report offsets in `bytes`.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for bytes that are not a program message, or lack a required field;
/// [`weighbridge_core::Kind::Limit`].
pub(super) fn check(bytes: &[u8], limits: &Limits, placed: bool) -> Result<()> {
    let mut walk = Walk::new(bytes, bytes.len(), limits, placed);
    match walk.message(&PROGRAM, 0, bytes.len()) {
        Ok(()) => Ok(()),
        Err(Stop::Bad(error)) => Err(error),
        Err(Stop::HeadEnds) => Err(truncated()),
    }
}

/// True if `head`, the beginning of a file of `len` bytes, can be the beginning of a program: it begins with a
/// block, follows the schema to its end, and contains a field that only blocks have.
pub(super) fn plausible(head: &[u8], len: usize) -> bool {
    if head.first() != Some(&0x0a) {
        return false;
    }
    let limits = Limits::default();
    let mut walk = Walk::new(head, len, &limits, false);
    let stop = walk.message(&PROGRAM, 0, len);
    matches!(stop, Ok(()) | Err(Stop::HeadEnds)) && walk.block_fields >= 2
}

fn truncated() -> Error {
    Error::corrupt("truncated", "the program is truncated")
        .hint("the file is truncated or is not a program; download it again")
}

/// Reason for the early end of a traversal.
enum Stop {
    /// The available bytes end here; the following bytes are unknown.
    HeadEnds,
    Bad(Error),
}

struct Walk<'a> {
    /// Available bytes: the whole file or its beginning.
    bytes: &'a [u8],
    /// Length of the whole file.
    len: usize,
    limits: &'a Limits,
    placed: bool,
    variables: u64,
    unknown: usize,
    /// Number of block fields seen.
    block_fields: u64,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], len: usize, limits: &'a Limits, placed: bool) -> Self {
        Self { bytes, len, limits, placed, variables: 0, unknown: 0, block_fields: 0 }
    }

    /// Checks the message in the bytes `at..end`.
    fn message(&mut self, schema: &'static Message, mut at: usize, end: usize) -> Result<(), Stop> {
        let start = at;
        // All field numbers of the schema are below 32.
        let mut seen = 0_u32;
        let mut dimensions = 0_u64;
        while at < end {
            let place = at;
            let (number, wire) = self.tag(&mut at, end)?;
            let Some(field) = schema.fields.iter().find(|f| f.number == number) else {
                self.unknown += 1;
                if self.unknown > MAX_UNKNOWN_FIELDS {
                    let error = Error::limit("limit", "the program has too many unknown fields")
                        .expected(format_args!("at most {MAX_UNKNOWN_FIELDS}"));
                    return Err(Stop::Bad(self.place(error, place)));
                }
                self.skip(number, wire, &mut at, end, place, 0)?;
                continue;
            };
            seen |= 1 << number;
            self.known(schema, field, wire, &mut at, end, place, &mut dimensions)?;
            if std::ptr::eq(schema, &BLOCK) {
                self.block_fields += 1;
            }
        }
        match schema.fields.iter().find(|f| f.required && seen & (1 << f.number) == 0) {
            None => Ok(()),
            Some(missing) => {
                let text = format!("a {} lacks its required field `{}`", schema.name, missing.name);
                Err(self.bad(start, "missing-field", text))
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one loop, split for reading")]
    fn known(
        &mut self,
        schema: &Message,
        field: &Field,
        wire: u8,
        at: &mut usize,
        end: usize,
        place: usize,
        dimensions: &mut u64,
    ) -> Result<(), Stop> {
        let before = *at;
        match (field.kind, wire) {
            (Kind::Varint | Kind::Varints, 0) => {
                self.varint(at, end)?;
            }
            (Kind::Fixed32 | Kind::Fixed32s, 5) => self.advance(at, 4, end)?,
            (Kind::Fixed64 | Kind::Fixed64s, 1) => self.advance(at, 8, end)?,
            (Kind::Varints | Kind::Fixed32s | Kind::Fixed64s | Kind::Bytes, 2) => {
                let length = self.length(at, end)?;
                *at += length;
            }
            (Kind::Message(inner), 2) => {
                let length = self.length(at, end)?;
                if field.bound == Bound::Variable {
                    self.variables += 1;
                    self.limit("variables", "tensors", self.variables, self.limits.tensors, place)?;
                }
                self.message(inner, *at, *at + length)?;
                *at += length;
            }
            _ => {
                let text = format!("the field `{}` of a {} has the wrong wire type", field.name, schema.name);
                return Err(self.bad(place, "wrong-wire-type", text));
            }
        }
        match field.bound {
            Bound::Name => {
                let length = (*at - before) as u64;
                self.limit("bytes of a name", "name_bytes", length, self.limits.name_bytes, place)
            }
            Bound::Dimension => {
                // A packed dimension takes at least one byte, and the length takes one.
                *dimensions += if wire == 0 { 1 } else { (*at - before) as u64 };
                self.limit("dimensions", "dimensions", *dimensions, self.limits.dimensions, place)
            }
            Bound::None | Bound::Variable => Ok(()),
        }
    }

    /// Skips an unknown field.
    fn skip(
        &mut self,
        number: u32,
        wire: u8,
        at: &mut usize,
        end: usize,
        place: usize,
        depth: u32,
    ) -> Result<(), Stop> {
        match wire {
            0 => self.varint(at, end).map(|_| ()),
            1 => self.advance(at, 8, end),
            2 => {
                let length = self.length(at, end)?;
                *at += length;
                Ok(())
            }
            3 if depth < MAX_GROUP_DEPTH => loop {
                let inside = *at;
                let (inner, wire) = self.tag(at, end)?;
                if wire == 4 {
                    if inner == number {
                        return Ok(());
                    }
                    return Err(self.bad(inside, "bad-group", "group end without a matching start"));
                }
                self.unknown += 1;
                self.skip(inner, wire, at, end, inside, depth + 1)?;
            },
            3 => Err(self.bad(place, "nested-too-deep", "groups are nested too deeply")),
            5 => self.advance(at, 4, end),
            _ => Err(self.bad(place, "wrong-wire-type", format!("a field has the invalid wire type {wire}"))),
        }
    }

    fn tag(&self, at: &mut usize, end: usize) -> Result<(u32, u8), Stop> {
        let place = *at;
        let tag = self.varint(at, end)?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n));
        match number {
            Some(number) => Ok((number, (tag & 7) as u8)),
            None => Err(self.bad(place, "bad-field-number", "invalid field number")),
        }
    }

    /// Reads a length that must not exceed `end`.
    fn length(&self, at: &mut usize, end: usize) -> Result<usize, Stop> {
        let place = *at;
        let claim = self.varint(at, end)?;
        let left = end.saturating_sub(*at);
        match usize::try_from(claim).ok().filter(|&n| n <= left) {
            Some(length) => Ok(length),
            None => {
                let error = truncated()
                    .expected(format_args!("{claim} bytes"))
                    .found(format_args!("{left} bytes to the end of the enclosing message"));
                Err(Stop::Bad(self.place(error, place)))
            }
        }
    }

    fn advance(&self, at: &mut usize, by: usize, end: usize) -> Result<(), Stop> {
        if by > end.saturating_sub(*at) {
            return Err(Stop::Bad(self.place(truncated(), *at)));
        }
        *at += by;
        Ok(())
    }

    fn varint(&self, at: &mut usize, end: usize) -> Result<u64, Stop> {
        let place = *at;
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            if *at >= end {
                return Err(Stop::Bad(self.place(truncated(), place)));
            }
            let Some(&byte) = self.bytes.get(*at) else {
                return Err(if *at < self.len {
                    Stop::HeadEnds
                } else {
                    Stop::Bad(self.place(truncated(), place))
                });
            };
            *at += 1;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.bad(place, "bad-varint", "a varint exceeds 64 bits"))
    }

    fn limit(
        &self,
        what: &str,
        field: &'static str,
        claim: u64,
        limit: u64,
        place: usize,
    ) -> Result<(), Stop> {
        Limits::check(what, field, claim, limit).map_err(|error| Stop::Bad(self.place(error, place)))
    }

    fn bad(&self, place: usize, code: &'static str, text: impl Into<String>) -> Stop {
        Stop::Bad(self.place(Error::corrupt(code, text), place))
    }

    fn place(&self, error: Error, place: usize) -> Error {
        if self.placed { error.at(place as u64) } else { error }
    }
}
