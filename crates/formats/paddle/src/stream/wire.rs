//! Subset of the protobuf wire format for tensor descs.

/// Maximum length of a tag or length in bytes: both have 32 bits.
const MAX_VARINT32_LEN: usize = 5;
/// Maximum length of a varint in bytes: 64 bits, 7 in each byte.
const MAX_VARINT64_LEN: usize = 10;
/// Maximum nesting of groups in unknown fields, as in protobuf's own parsers.
const MAX_GROUP_DEPTH: usize = 100;

/// Field of a message.
#[derive(Debug)]
pub(super) struct Field<'a> {
    /// Field number.
    pub(super) number: u32,
    /// Content of the field.
    pub(super) payload: Payload<'a>,
    /// All bytes of the field, including the tag.
    pub(super) raw: &'a [u8],
}

/// Content of a field.
#[derive(Debug)]
pub(super) enum Payload<'a> {
    /// Varint.
    Varint(u64),
    /// Length-prefixed bytes: a string, a message, packed integers.
    Bytes(&'a [u8]),
    /// Fixed-size number or group; a desc has neither.
    Other,
}

/// Decoding error with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// Offset in the bytes.
    pub(super) at: usize,
    /// Description for error messages.
    pub(super) what: &'static str,
}

/// Iterator over the fields of a message.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the next field, or `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, Fault> {
        if self.position == self.bytes.len() {
            return Ok(None);
        }
        let start = self.position;
        let (number, wire_type) = self.tag()?;
        let payload = match wire_type {
            3 => {
                self.group(number)?;
                Payload::Other
            }
            4 => return Err(Fault { at: start, what: "group end without a group start" }),
            _ => self.payload(wire_type)?,
        };
        let raw = self.bytes.get(start..self.position).unwrap_or(&[]);
        Ok(Some(Field { number, payload, raw }))
    }

    /// Returns the number of bytes read.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Returns the next varint of packed integers, or `None` at the end.
    pub(super) fn next_varint(&mut self) -> Result<Option<u64>, Fault> {
        if self.position == self.bytes.len() { Ok(None) } else { self.varint(MAX_VARINT64_LEN).map(Some) }
    }

    /// Reads field number and wire type.
    fn tag(&mut self) -> Result<(u32, u64), Fault> {
        let at = self.position;
        let tag = self.varint(MAX_VARINT32_LEN)?;
        match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 && tag <= u64::from(u32::MAX) => Ok((number, tag & 7)),
            _ => Err(Fault { at, what: "invalid field number" }),
        }
    }

    /// Reads any field content except a group.
    fn payload(&mut self, wire_type: u64) -> Result<Payload<'a>, Fault> {
        Ok(match wire_type {
            0 => Payload::Varint(self.varint(MAX_VARINT64_LEN)?),
            1 => {
                self.take(8)?;
                Payload::Other
            }
            2 => {
                let at = self.position;
                let len = self.varint(MAX_VARINT32_LEN)?;
                let len = usize::try_from(len)
                    .map_err(|_| Fault { at, what: "a length exceeds the address space" })?;
                Payload::Bytes(self.take(len)?)
            }
            5 => {
                self.take(4)?;
                Payload::Other
            }
            _ => return Err(Fault { at: self.position, what: "invalid wire type" }),
        })
    }

    /// Skips to the end of the group `number`, whose start was read.
    fn group(&mut self, number: u32) -> Result<(), Fault> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let at = self.position;
            match self.tag()? {
                (number, 3) if open.len() < MAX_GROUP_DEPTH => open.push(number),
                (_, 3) => return Err(Fault { at, what: "groups are nested too deeply" }),
                (number, 4) if number == innermost => {
                    open.pop();
                }
                (_, 4) => return Err(Fault { at, what: "group end does not match the group start" }),
                (_, wire_type) => {
                    self.payload(wire_type)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let at = self.position;
        let taken = at.checked_add(len).and_then(|end| self.bytes.get(at..end));
        let taken = taken.ok_or(Fault { at, what: "a field is longer than the message" })?;
        self.position += len;
        Ok(taken)
    }

    /// Reads a varint of at most `most` bytes. Bits beyond the 64th are dropped, as in protobuf.
    fn varint(&mut self, most: usize) -> Result<u64, Fault> {
        let at = self.position;
        let mut value = 0u64;
        for place in 0..most {
            let byte = match self.bytes.get(at + place) {
                Some(&byte) => byte,
                None => return Err(Fault { at, what: "truncated varint" }),
            };
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.position = at + place + 1;
                return Ok(value);
            }
        }
        Err(Fault { at, what: "a varint exceeds its maximum length" })
    }
}

/// Appends a varint in its shortest form.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let [low, ..] = (value & 0x7f).to_le_bytes();
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_varints() {
        for value in [0, 1, 127, 128, 300, 20_000, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut fields = Fields::new(&bytes);
            assert_eq!(fields.next_varint(), Ok(Some(value)));
            assert_eq!(fields.next_varint(), Ok(None));
            bytes.pop();
            assert!(bytes.is_empty() || Fields::new(&bytes).next_varint().is_err());
        }
        assert_eq!(
            Fields::new(&[0xff; 11]).next_varint().unwrap_err().what,
            "a varint exceeds its maximum length"
        );
        let overlong = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
        assert_eq!(Fields::new(&overlong).next_varint(), Ok(Some(1 << 63)));
    }

    #[test]
    fn rejects_unbalanced_groups() {
        // Field 4: a group that contains a varint and a group; then field 1.
        let good = [0x23, 0x08, 0x07, 0x2b, 0x2c, 0x24, 0x08, 0x05];
        let mut fields = Fields::new(&good);
        let group = fields.next().unwrap().unwrap();
        assert_eq!((group.number, group.raw), (4, &good[..6]));
        let field = fields.next().unwrap().unwrap();
        assert!(matches!(field, Field { number: 1, payload: Payload::Varint(5), .. }));
        assert!(fields.next().unwrap().is_none());
        for bad in [&[0x23u8, 0x2c][..], &[0x24], &[0x23], &[0x00, 0x00], &[0x0e], &[0x0f], &[0x12, 5, 1]] {
            assert!(Fields::new(bad).next().is_err(), "{bad:?}");
        }
        assert_eq!(Fields::new(&[0x23; 200]).next().unwrap_err().what, "groups are nested too deeply");
    }
}
