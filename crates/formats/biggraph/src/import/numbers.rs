//! Columns of numbers in the files of the work folder: each number has as few bytes as the largest one needs.

/// Returns the bytes of a number below `count`: 1 to 4.
pub(super) fn width_of(count: u64) -> usize {
    match count {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        0x1_0001..=0x100_0000 => 3,
        _ => 4,
    }
}

/// Returns the largest number of `width` bytes.
pub(super) fn largest(width: usize) -> u32 {
    match width {
        1 => 0xff,
        2 => 0xffff,
        3 => 0xff_ffff,
        _ => u32::MAX,
    }
}

/// Appends numbers of `width` bytes to a file.
pub(super) fn append(file: &mut Vec<u8>, width: usize, numbers: impl ExactSizeIterator<Item = u32>) {
    let start = file.len();
    file.resize(start + numbers.len() * width, 0);
    put(&mut file[start..], width, numbers.enumerate());
}

/// Writes numbers of `width` bytes at their places in a column.
pub(super) fn put(column: &mut [u8], width: usize, numbers: impl Iterator<Item = (usize, u32)>) {
    // The compiler makes a loop for each width: a copy of any length would be a call for each number.
    match width {
        1 => put_as::<1>(column, numbers),
        2 => put_as::<2>(column, numbers),
        3 => put_as::<3>(column, numbers),
        _ => put_as::<4>(column, numbers),
    }
}

fn put_as<const WIDTH: usize>(column: &mut [u8], numbers: impl Iterator<Item = (usize, u32)>) {
    let column = column.as_chunks_mut::<WIDTH>().0;
    for (place, number) in numbers {
        if let (Some(bytes), Some(own)) = (column.get_mut(place), number.to_le_bytes().first_chunk()) {
            *bytes = *own;
        }
    }
}

/// Reads a column of numbers of `width` bytes into `numbers`, whose memory is used again.
pub(super) fn read(column: &[u8], width: usize, numbers: &mut Vec<u32>) {
    numbers.clear();
    match width {
        1 => numbers.extend(column.iter().map(|byte| u32::from(*byte))),
        2 => numbers.extend(column.as_chunks().0.iter().map(|b| u32::from(u16::from_le_bytes(*b)))),
        3 => numbers.extend(column.as_chunks().0.iter().map(|[a, b, c]| u32::from_le_bytes([*a, *b, *c, 0]))),
        _ => numbers.extend(column.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_width_are_read_back() {
        for (largest, width) in [
            (0xff, 1),
            (0x100, 2),
            (0xffff, 2),
            (0x1_0000, 3),
            (0xff_ffff, 3),
            (0x100_0000, 4),
            (u32::MAX, 4),
        ] {
            assert_eq!(width_of(u64::from(largest) + 1), width);
            let (mut file, mut found) = (vec![7], Vec::new());
            append(&mut file, width, [0, 1, largest].into_iter());
            assert!(largest <= super::largest(width));
            assert_eq!(file.len(), 1 + 3 * width);
            read(&file[1..], width, &mut found);
            assert_eq!(found, [0, 1, largest]);
        }
    }
}
