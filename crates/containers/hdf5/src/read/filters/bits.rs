//! Bit reader, most significant bit first.

/// Forward reader of bits.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits taken from the bytes; the low `left` of them are unread.
    buffer: u64,
    left: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, buffer: 0, left: 0 }
    }

    fn fill(&mut self) -> Option<()> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        self.buffer = self.buffer << 8 | u64::from(byte);
        self.left += 8;
        Some(())
    }

    /// Returns the next `count` bits, at most 32, as a number; `None` at the end of the bytes.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        while self.left < count {
            self.fill()?;
        }
        self.left -= count;
        let bits = (self.buffer >> self.left) & ((1 << count) - 1);
        u32::try_from(bits).ok()
    }

    /// Counts the zeros before the next one bit, and skips that bit.
    pub(super) fn zeros(&mut self) -> Option<u64> {
        let mut zeros = 0;
        loop {
            if self.left == 0 {
                self.fill()?;
            }
            let bits = self.buffer & ((1 << self.left) - 1);
            if let Some(highest) = bits.checked_ilog2() {
                zeros += u64::from(self.left - 1 - highest);
                self.left = highest;
                return Some(zeros);
            }
            zeros += u64::from(self.left);
            self.left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_most_significant_bit_first() {
        let mut bits = Bits::new(&[0b1010_0000, 0, 0b0001_1111, 0xff, 0xff, 0xff, 0x7f]);
        assert_eq!((bits.take(0), bits.take(3), bits.zeros()), (Some(0), Some(0b101), Some(16)));
        assert_eq!((bits.take(32), bits.zeros(), bits.take(3)), (Some(0xffff_fff7), Some(0), Some(0b111)));
        assert_eq!((bits.take(1), bits.zeros()), (None, None));
    }
}
