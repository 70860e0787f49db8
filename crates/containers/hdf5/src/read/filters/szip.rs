//! The filter szip: numbers, or the differences between them, in the codes of CCSDS 121.0-B.
//!
//! A chunk is its length (four bytes) and the codes. A line of pixels is a run of blocks. Each block begins with the id of
//! its coding: uncompressed, split (a count of zeros, then the low bits), pairs (second extension), or zero blocks.
//! In difference mode the first number of a line is a reference sample. Pixels of 32 and 64 bits are
//! split into byte planes: the first byte of each, then the second of each, and so on.

use super::bits::Bits;

/// Options: most significant byte first; difference mode.
const BIG_ENDIAN: u32 = 16;
const DIFFERENCES: u32 = 32;
/// Limits of the format: pixels in a block, blocks in a line.
const MAX_PIXELS: u32 = 32;
const MAX_BLOCKS: u32 = 4096;
/// Number of blocks in a segment, within which zero blocks are counted.
const SEGMENT: usize = 64;
/// Count that means the rest of the segment.
const REST: u64 = 5;
/// Exclusive maximum of the sum of a pair.
const PAIRS: u64 = 13;

/// Unpacks `packed` to at most `most` bytes; `None` where it is damaged.
pub(super) fn unpack(packed: &[u8], parameters: &[u32], most: usize) -> Option<Vec<u8>> {
    let &[options, block, pixel_bits, line] = parameters else { return None };
    let (len, codes) = packed.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok().filter(|&len| len <= most)?;
    let fits = (1..=MAX_PIXELS).contains(&block) && line > 0 && line.div_ceil(block) <= MAX_BLOCKS;
    if !fits || !matches!(pixel_bits, 1..=32 | 64) {
        return None;
    }
    let planes =
        if pixel_bits >= 32 && pixel_bits % 32 == 0 { usize::try_from(pixel_bits / 8).ok()? } else { 1 };
    let bits = if planes > 1 { 8 } else { pixel_bits };
    let size = match bits {
        ..=8 => 1,
        9..=16 => 2,
        _ => 4,
    };
    if len % (size * planes) != 0 {
        return None;
    }
    let (block, line) = (usize::try_from(block).ok()?, usize::try_from(line).ok()?);
    let mut lines = Lines {
        codes: Bits::new(codes),
        bits,
        id_bits: if bits > 16 {
            5
        } else if bits > 8 {
            4
        } else {
            3
        },
        block,
        differences: options & DIFFERENCES != 0,
        numbers: vec![0; line.div_ceil(block) * block],
    };
    let mut bytes = vec![0; len];
    for part in bytes.chunks_mut(line * size) {
        // The last block of a line is padded; the last line may be shorter.
        let whole = part.len() == line * size;
        let filled = lines.next(if whole { lines.numbers.len() } else { part.len() / size })?;
        if lines.differences {
            sum_up(&mut lines.numbers[..filled], u32::MAX >> (32 - bits));
        }
        for (place, number) in part.chunks_exact_mut(size).zip(&lines.numbers) {
            match options & BIG_ENDIAN != 0 {
                true => place.copy_from_slice(&number.to_be_bytes()[4 - size..]),
                false => place.copy_from_slice(&number.to_le_bytes()[..size]),
            }
        }
    }
    if planes == 1 {
        return Some(bytes);
    }
    let pixels = len / planes;
    Some((0..len).map(|at| bytes[at % planes * pixels + at / planes]).collect())
}

/// Decoder of consecutive lines of numbers.
struct Lines<'a> {
    codes: Bits<'a>,
    /// Bits of a number, and of the id of a coding.
    bits: u32,
    id_bits: u32,
    /// Numbers in a block.
    block: usize,
    differences: bool,
    /// Numbers of the current line.
    numbers: Vec<u32>,
}

impl Lines<'_> {
    /// Reads blocks of the next line until at least `wanted` numbers are decoded. Returns their number.
    fn next(&mut self, wanted: usize) -> Option<usize> {
        let mut at = 0;
        while at < wanted {
            let mut end = at + self.block;
            let id = self.codes.take(self.id_bits)?;
            let in_pairs = id == 0 && self.codes.take(1)? == 1;
            let is_uncompressed = id + 1 == 1 << self.id_bits;
            let mut from = at;
            if at == 0 && self.differences && !is_uncompressed {
                *self.numbers.first_mut()? = self.codes.take(self.bits)?;
                from = 1;
            }
            if id == 0 && !in_pairs {
                end = at.checked_add(self.zeros(at / self.block)?.checked_mul(self.block)?)?;
            }
            let numbers = self.numbers.get_mut(from..end)?;
            if is_uncompressed {
                for number in numbers {
                    *number = self.codes.take(self.bits)?;
                }
            } else if in_pairs {
                let mut second = None;
                for (number, place) in numbers.iter_mut().zip(from - at..) {
                    // The reference sample replaces the first number of a pair.
                    *number = match second.take() {
                        Some(second) => second,
                        None => {
                            let pair = pair(self.codes.zeros()?)?;
                            second = (place % 2 == 0).then_some(pair.1);
                            if place % 2 == 0 { pair.0 } else { pair.1 }
                        }
                    };
                }
            } else if id == 0 {
                numbers.fill(0);
            } else {
                let low = Some(id - 1).filter(|&low| low < self.bits)?;
                let most = u64::from(u32::MAX >> (32 - self.bits));
                for number in numbers.iter_mut() {
                    let high = self.codes.zeros()?.checked_shl(low)? & most;
                    *number = u32::try_from(high).ok()?;
                }
                for number in numbers {
                    *number |= self.codes.take(low)?;
                }
            }
            at = end;
        }
        Some(at)
    }

    /// Counts the zero blocks from `block` of the line on.
    fn zeros(&mut self, block: usize) -> Option<usize> {
        match self.codes.zeros()? + 1 {
            REST => {
                Some((self.numbers.len() / self.block).saturating_sub(block).min(SEGMENT - block % SEGMENT))
            }
            count if count > REST => usize::try_from(count - 1).ok(),
            count => usize::try_from(count).ok(),
        }
    }
}

/// Decodes a pair: codes are ordered by the sum, then by the second number.
fn pair(code: u64) -> Option<(u32, u32)> {
    let mut first = 0;
    for sum in 0..PAIRS {
        if code <= first + sum {
            let second = u32::try_from(code - first).ok()?;
            return Some((u32::try_from(sum).ok()? - second, second));
        }
        first += sum + 1;
    }
    None
}

/// Turns the first number and the differences behind it into numbers up to `most`. Differences are mapped to unsigned
/// numbers: both signs alternate while both are possible, then the possible sign follows.
fn sum_up(numbers: &mut [u32], most: u32) {
    let Some((&mut first, rest)) = numbers.split_first_mut() else { return };
    let mut last = first;
    for number in rest {
        let (half, is_low) = (number.div_ceil(2), last <= most / 2);
        let room = if is_low { last } else { most - last };
        last = match half <= room {
            true if *number % 2 == 1 => last - half,
            true => last + half,
            false if is_low => *number & most,
            false => most.saturating_sub(*number),
        };
        *number = last;
    }
}
