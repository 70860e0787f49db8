//! The few things of protobuf's wire form that a tensor desc needs.

/// The longest tag or length, in bytes: both have 32 bits.
const SHORT_VARINT: usize = 5;
/// The longest varint, in bytes: 64 bits, 7 in each byte.
const LONG_VARINT: usize = 10;
/// How deep groups of unknown fields may nest: what protobuf's own parsers allow.
const DEEPEST: usize = 100;

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field<'a> {
    /// Its number.
    pub(super) number: u32,
    /// What it holds.
    pub(super) payload: Payload<'a>,
    /// All its bytes, the tag among them.
    pub(super) raw: &'a [u8],
}

/// What a field holds.
#[derive(Debug)]
pub(super) enum Payload<'a> {
    /// A varint.
    Varint(u64),
    /// Bytes behind their length: a string, a message, packed numbers.
    Bytes(&'a [u8]),
    /// A fixed number or a group: nothing that a desc has.
    Other,
}

/// Why bytes are no message, and where in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// Offset in the bytes.
    pub(super) at: usize,
    /// For people.
    pub(super) what: &'static str,
}

/// Reads the fields of a message from front to back.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The next field, or `None` behind the last one.
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
            4 => return Err(Fault { at: start, what: "a group ends that did not begin" }),
            _ => self.payload(wire_type)?,
        };
        let raw = self.bytes.get(start..self.position).unwrap_or(&[]);
        Ok(Some(Field { number, payload, raw }))
    }

    /// How many bytes were read.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// The next varint, or `None` at the end: for packed numbers.
    pub(super) fn next_varint(&mut self) -> Result<Option<u64>, Fault> {
        if self.position == self.bytes.len() { Ok(None) } else { self.varint(LONG_VARINT).map(Some) }
    }

    /// Field number and wire type.
    fn tag(&mut self) -> Result<(u32, u64), Fault> {
        let at = self.position;
        let tag = self.varint(SHORT_VARINT)?;
        match u32::try_from(tag >> 3) {
            Ok(number) if number > 0 && tag <= u64::from(u32::MAX) => Ok((number, tag & 7)),
            _ => Err(Fault { at, what: "there is no such field number" }),
        }
    }

    /// Anything but a group.
    fn payload(&mut self, wire_type: u64) -> Result<Payload<'a>, Fault> {
        Ok(match wire_type {
            0 => Payload::Varint(self.varint(LONG_VARINT)?),
            1 => {
                self.take(8)?;
                Payload::Other
            }
            2 => {
                let at = self.position;
                let len = self.varint(SHORT_VARINT)?;
                let len = usize::try_from(len).map_err(|_| Fault { at, what: "a length is too large" })?;
                Payload::Bytes(self.take(len)?)
            }
            5 => {
                self.take(4)?;
                Payload::Other
            }
            _ => return Err(Fault { at: self.position, what: "there is no such wire type" }),
        })
    }

    /// Goes behind the end of the group `number`, whose beginning was read.
    fn group(&mut self, number: u32) -> Result<(), Fault> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let at = self.position;
            match self.tag()? {
                (number, 3) if open.len() < DEEPEST => open.push(number),
                (_, 3) => return Err(Fault { at, what: "groups nest too deep" }),
                (number, 4) if number == innermost => {
                    open.pop();
                }
                (_, 4) => return Err(Fault { at, what: "another group ends than the one that began" }),
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

    /// A varint of at most `most` bytes. Bits beyond the 64th are dropped, as protobuf does.
    fn varint(&mut self, most: usize) -> Result<u64, Fault> {
        let at = self.position;
        let mut value = 0u64;
        for place in 0..most {
            let byte = match self.bytes.get(at + place) {
                Some(&byte) => byte,
                None => return Err(Fault { at, what: "a varint ends too soon" }),
            };
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.position = at + place + 1;
                return Ok(value);
            }
        }
        Err(Fault { at, what: "a varint does not end" })
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
    fn varints_go_there_and_back() {
        for value in [0, 1, 127, 128, 300, 20_000, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut fields = Fields::new(&bytes);
            assert_eq!(fields.next_varint(), Ok(Some(value)));
            assert_eq!(fields.next_varint(), Ok(None));
            bytes.pop();
            assert!(bytes.is_empty() || Fields::new(&bytes).next_varint().is_err());
        }
        assert_eq!(Fields::new(&[0xff; 11]).next_varint().unwrap_err().what, "a varint does not end");
        let overlong = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
        assert_eq!(Fields::new(&overlong).next_varint(), Ok(Some(1 << 63)));
    }

    #[test]
    fn groups_end_where_they_must() {
        // Field 4: a group that holds a varint and a group; then field 1.
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
        assert_eq!(Fields::new(&[0x23; 200]).next().unwrap_err().what, "groups nest too deep");
    }
}
