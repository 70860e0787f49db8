//! Keys of slices: name and range of a part of a variable, in an encoding that sorts like its content.

/// Range of a slice along a dimension: begin and length; `None` for all of it.
pub(crate) type Range = Option<(i64, i64)>;

/// Returns the key of a slice of the variable `name`.
pub(crate) fn slice_key(name: &[u8], ranges: &[Range]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 4 + 4 * ranges.len());
    number(&mut key, 0);
    for &byte in name {
        match byte {
            0 => key.extend([0, 0xff]),
            0xff => key.extend([0xff, 0]),
            byte => key.push(byte),
        }
    }
    key.extend([0, 1]);
    number(&mut key, ranges.len() as u64);
    for range in ranges {
        let (begin, len) = range.unwrap_or((0, -1));
        signed(&mut key, begin);
        signed(&mut key, len);
    }
    key
}

/// Appends a number as its length and its bytes, the highest one first.
fn number(key: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let len = (64 - value.leading_zeros()).div_ceil(8);
    key.extend(len.to_le_bytes().first());
    key.extend(&bytes[8 - len as usize..]);
}

/// Appends a signed number. The number of leading ones (for negative numbers, zeros) is its length in bytes.
fn signed(key: &mut Vec<u8>, value: i64) {
    let magnitude = if value < 0 { !value } else { value };
    let bits = 64 - magnitude.leading_zeros();
    let len = bits as usize / 7 + 1;
    let sign = if value < 0 { 0xff } else { 0 };
    let mut bytes = [sign; 10];
    bytes[2..].copy_from_slice(&value.to_be_bytes());
    let own = &mut bytes[10 - len..];
    for place in 0..len {
        own[place / 8] ^= 0x80 >> (place % 8);
    }
    key.extend_from_slice(own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_numbers_sort_and_have_the_known_bytes() {
        let encoded = |value| {
            let mut key = Vec::new();
            signed(&mut key, value);
            key
        };
        assert_eq!(encoded(0), [0x80]);
        assert_eq!(encoded(-1), [0x7f]);
        assert_eq!(encoded(63), [0xbf]);
        assert_eq!(encoded(64), [0xc0, 0x40]);
        assert_eq!(encoded(-64), [0x40]);
        assert_eq!(encoded(-65), [0x3f, 0xbf]);
        let values = [
            i64::MIN,
            -1 << 40,
            -8193,
            -8192,
            -65,
            -64,
            -1,
            0,
            63,
            64,
            8191,
            8192,
            1 << 55,
            1 << 56,
            i64::MAX,
        ];
        assert!(values.map(encoded).is_sorted());
    }

    #[test]
    fn names_are_escaped() {
        let key = slice_key(b"a\x00\xff", &[Some((0, 3)), None]);
        assert_eq!(key, [0, b'a', 0, 0xff, 0xff, 0, 0, 1, 1, 2, 0x80, 0x83, 0x80, 0x7f]);
    }
}
