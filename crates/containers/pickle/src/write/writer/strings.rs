//! Numbers, text and bytes.

use super::super::super::graph::{Blob, Location, Stored, Text};
use super::super::{Part, opcode as op, unchanged, unsupported};
use super::{Special, Writer};
use weighbridge_core::error::Result;

impl Writer<'_> {
    pub(super) fn int(&mut self, n: i64) -> Result<()> {
        if let Ok(n) = u8::try_from(n) {
            self.out.bytes(&[op::BININT1, n]);
        } else if let Ok(n) = u16::try_from(n) {
            let [low, high] = n.to_le_bytes();
            self.out.bytes(&[op::BININT2, low, high]);
        } else if let Ok(n) = i32::try_from(n) {
            self.out.bytes(&[op::BININT]);
            self.out.bytes(&n.to_le_bytes());
        } else {
            // The fewest bytes that keep number and sign.
            let bytes = n.to_le_bytes();
            let sign = if n < 0 { 0xff } else { 0 };
            let mut len = bytes.len();
            while len > 1 && bytes[len - 1] == sign && (bytes[len - 2] >= 0x80) == (n < 0) {
                len -= 1;
            }
            self.long(&bytes[..len])?;
        }
        Ok(())
    }

    pub(super) fn long(&mut self, bytes: &[u8]) -> Result<()> {
        if let Ok(len) = u8::try_from(bytes.len()) {
            self.out.bytes(&[op::LONG1, len]);
        } else {
            let len =
                i32::try_from(bytes.len()).map_err(|_| unsupported("the integer has too many bytes"))?;
            self.out.bytes(&[op::LONG4]);
            self.out.bytes(&len.to_le_bytes());
        }
        self.out.bytes(bytes);
        Ok(())
    }

    /// Writes a string with the shortest opcode that can hold its length; 0 means that the opcode does not exist.
    pub(super) fn string(&mut self, [short, normal, long]: [u8; 3], data: Part, len: u64) -> Result<()> {
        let mut header = Vec::with_capacity(9);
        match (u8::try_from(len), u32::try_from(len)) {
            (Ok(len), _) if short != 0 => header.extend([short, len]),
            (_, Ok(len)) => {
                header.push(normal);
                header.extend(len.to_le_bytes());
            }
            _ if long != 0 => {
                header.push(long);
                header.extend(len.to_le_bytes());
            }
            _ => {
                return Err(unsupported("strings of 4 GiB and more need protocol 4")
                    .found(format_args!("{len} bytes")));
            }
        }
        self.out.string(&header, data, len);
        Ok(())
    }

    pub(super) fn unicode(&mut self, data: Part, len: u64) -> Result<()> {
        let codes = if self.protocol >= 4 {
            [op::SHORT_BINUNICODE, op::BINUNICODE, op::BINUNICODE8]
        } else {
            [0, op::BINUNICODE, 0]
        };
        self.string(codes, data, len)
    }

    pub(super) fn literal_text(&mut self, text: &str) -> Result<()> {
        self.unicode(Part::Literal(text.as_bytes().to_vec()), text.len() as u64)
    }

    pub(super) fn text(&mut self, text: &Text) -> Result<()> {
        if let Some(text) = &text.short {
            return self.literal_text(text);
        }
        let (part, len) = unchanged(&text.place, Stored::Utf8)?;
        self.unicode(part, len)
    }

    /// Writes the text whose code points are the bytes at a location.
    pub(super) fn latin1_text(&mut self, place: &Location) -> Result<()> {
        let encoded_len = (self.latin1_len)(place)?;
        let part = match *place {
            Location::Payload { key, .. } => Part::Latin1 { key, encoded_len },
            Location::Source(span) if span.stored == Stored::Raw => Part::CopyLatin1 { span, encoded_len },
            _ => return Err(unsupported("long text with escapes cannot be rewritten")),
        };
        self.unicode(part, encoded_len)
    }

    /// Writes a Python 2 string: as bytes in protocol 2, as text in later protocols.
    pub(super) fn byte_string(&mut self, text: &Text) -> Result<()> {
        if self.protocol >= 3 {
            return match &text.short {
                Some(text) => self.literal_text(text),
                None => self.latin1_text(&text.place),
            };
        }
        let (part, len) = match &text.short {
            Some(text) => {
                let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
                let bytes = bytes.ok_or_else(|| unsupported("the string is not Latin-1"))?;
                let len = bytes.len() as u64;
                (Part::Literal(bytes), len)
            }
            None => unchanged(&text.place, Stored::Raw)?,
        };
        if i32::try_from(len).is_err() {
            return Err(unsupported("a Python 2 string exceeds 2 GiB").found(format_args!("{len} bytes")));
        }
        self.string([op::SHORT_BINSTRING, op::BINSTRING, 0], part, len)
    }

    pub(super) fn blob(&mut self, blob: &Blob) -> Result<()> {
        if self.protocol >= 3 {
            let (part, len) = match &blob.short {
                Some(bytes) => (Part::Literal(bytes.to_vec()), bytes.len() as u64),
                None => unchanged(&blob.place, Stored::Raw)?,
            };
            let long = if self.protocol >= 4 { op::BINBYTES8 } else { 0 };
            return self.string([op::SHORT_BINBYTES, op::BINBYTES, long], part, len);
        }
        // Protocol 2 has no bytes type: it stores text and a call that encodes it.
        if blob.is_empty() {
            self.special_global("builtins", "bytes")?;
            self.out.bytes(&[op::EMPTY_TUPLE, op::REDUCE]);
            return Ok(());
        }
        self.special_global("_codecs", "encode")?;
        match blob.short.as_deref() {
            Some(&[byte]) => self.char(byte)?,
            Some(bytes) => {
                let text: String = bytes.iter().copied().map(char::from).collect();
                self.literal_text(&text)?;
                self.next_place()?;
            }
            None => {
                self.latin1_text(&blob.place)?;
                self.next_place()?;
            }
        }
        self.special(Special::Latin1, |this| this.literal_text("latin1"))?;
        self.out.bytes(&[op::TUPLE2]);
        self.next_place()?;
        self.out.bytes(&[op::REDUCE]);
        Ok(())
    }

    /// Writes the text of one Latin-1 character, a shared object in Python.
    pub(super) fn char(&mut self, byte: u8) -> Result<()> {
        let text = char::from(byte).to_string();
        match self.graph.chars.get(&byte) {
            Some(&id) => match self.place(id) {
                Some(place) => self.get(place),
                None => {
                    self.literal_text(&text)?;
                    self.put(id)?;
                }
            },
            None => self.special(Special::Char(byte), |this| this.literal_text(&text))?,
        }
        Ok(())
    }
}
