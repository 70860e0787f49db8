//! The filter scale-offset: differences from the minimum, in as few bits as the largest needs.

use super::bits::Bits;

/// Length of the header: bits of a number, bytes of the minimum, the minimum, padding.
const HEADER_LEN: usize = 21;
/// Index of the fill value among the parameters.
const FILL_INDEX: usize = 8;

/// Class of the numbers.
enum Class {
    Integer,
    /// Floats that were multiplied by this factor and rounded.
    Float(f64),
}

/// Unpacks `packed` to at most `most` bytes; `None` where it is damaged, or uses a mode that the HDF5 library does not
/// support either.
pub(super) fn unpack(packed: Vec<u8>, parameters: &[u32], most: usize) -> Option<Vec<u8>> {
    let parameters: &[u32; 20] = parameters.try_into().ok()?;
    let [way, factor, count, class, size, sign, order, has_fill, ..] = *parameters;
    let (count, size) = (usize::try_from(count).ok()?, usize::try_from(size).ok()?);
    let width = u32::try_from(size.checked_mul(8)?).ok()?;
    let class = match (class, way) {
        // Full width: the elements are not packed.
        (0, 2) if factor == width => return Some(packed),
        (0, 2) if [1, 2, 4, 8].contains(&size) && sign < 2 => Class::Integer,
        (1, 0) if [4, 8].contains(&size) => Class::Float(10f64.powi(factor.cast_signed())),
        _ => return None,
    };
    let (head, numbers) = packed.split_at_checked(HEADER_LEN)?;
    let bits = u32::from_le_bytes(*head.first_chunk()?);
    let mut least = [0; 8];
    let len = usize::from(head[4]).min(8);
    least[..len].copy_from_slice(&head[5..5 + len]);
    let least = u64::from_le_bytes(least);
    let all = count.checked_mul(size).filter(|&all| all <= most && bits <= width && order < 2)?;
    let mut bytes = vec![0; all];
    if bits == width {
        bytes.copy_from_slice(numbers.get(..all)?);
    } else {
        // All bits set mean the fill value.
        let mark = (1u64 << bits) - 1;
        let fill: Vec<u8> = parameters[FILL_INDEX..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let unpacked = |number| match number == mark && has_fill != 0 {
            true => fill.first_chunk().copied(),
            false => Some(class.number(number, least, size)),
        };
        if bits == 0 {
            // All numbers are equal. A few bytes can claim gigabytes of them, and unpacking each alone is slower.
            let same = unpacked(0)?;
            bytes.chunks_exact_mut(size).for_each(|place| place.copy_from_slice(&same[..size]));
        } else {
            let mut numbers = Bits::new(numbers);
            for place in bytes.chunks_exact_mut(size) {
                let high = u64::from(numbers.take(bits.saturating_sub(32))?);
                let number = high << 32 | u64::from(numbers.take(bits.min(32))?);
                place.copy_from_slice(&unpacked(number)?[..size]);
            }
        }
    }
    if order == 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Some(bytes)
}

impl Class {
    /// Encodes a number of `size` bytes, little-endian.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
    fn number(&self, number: u64, least: u64, size: usize) -> [u8; 8] {
        match self {
            // Signed or not: the bits of the sum are the same.
            Self::Integer => number.wrapping_add(least).to_le_bytes(),
            Self::Float(scale) if size == 4 => {
                let number = f64::from((number as u32).cast_signed()) / scale;
                let sum = number as f32 + f32::from_bits(least as u32);
                u64::from(sum.to_bits()).to_le_bytes()
            }
            Self::Float(scale) => {
                let number = number.cast_signed() as f64 / scale;
                (number + f64::from_bits(least)).to_le_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(way: u32, factor: i32, class: u32, size: u32, fill: Option<u32>) -> Vec<u32> {
        let mut all = vec![way, factor.cast_unsigned(), 3, class, size, 1, 0, u32::from(fill.is_some())];
        all.extend([fill.unwrap_or(0); 12]);
        all
    }

    fn packed(bits: u32, least: [u8; 8], numbers: &[u8]) -> Vec<u8> {
        [&bits.to_le_bytes()[..], &[8], &least, &[0; 8], numbers].concat()
    }

    #[test]
    fn unpacks_differences_from_the_minimum() {
        let least = (-3i64).to_le_bytes();
        let integers = packed(3, least, &[0b0001_0111, 0b1000_0000]);
        let plain = unpack(integers.clone(), &parameters(2, 0, 0, 2, None), 6).unwrap();
        assert_eq!(plain, [(-3i16).to_le_bytes(), 2i16.to_le_bytes(), 4i16.to_le_bytes()].concat());
        let filled = unpack(integers.clone(), &parameters(2, 0, 0, 2, Some(99)), 6).unwrap();
        assert_eq!(filled[4..], 99i16.to_le_bytes());
        assert_eq!(unpack(integers, &parameters(2, 0, 0, 2, None), 5), None);
        let mut least = [0; 8];
        least[..4].copy_from_slice(&1.5f32.to_le_bytes());
        let floats = packed(8, least, &[0, 25, 100]);
        let read = unpack(floats, &parameters(0, 2, 1, 4, None), 12).unwrap();
        assert_eq!(read, [1.5f32, 1.75, 2.5].map(f32::to_le_bytes).concat());
        // With 0 bits, every number is the smallest, or the fill value.
        let same = packed(0, 7u64.to_le_bytes(), &[]);
        assert_eq!(unpack(same.clone(), &parameters(2, 0, 0, 2, None), 6).unwrap(), [7, 0, 7, 0, 7, 0]);
        assert_eq!(unpack(same, &parameters(2, 0, 0, 2, Some(9)), 6).unwrap(), [9, 0, 9, 0, 9, 0]);
    }
}
