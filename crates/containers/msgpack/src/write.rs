//! Headers in their shortest form, as the usual libraries write them.

use super::Family;

/// Appends the shortest header of that family for `len`.
pub fn put_length(out: &mut Vec<u8>, family: Family, len: u32) {
    let bytes = len.to_be_bytes();
    if let Some((base, most)) = family.fix
        && len <= u32::from(most)
    {
        out.push(base | bytes[3]);
        return;
    }
    for &(marker, width) in family.wide {
        let (high, low) = bytes.split_at(bytes.len() - width);
        if high.iter().all(|&byte| byte == 0) {
            out.push(marker);
            out.extend_from_slice(low);
            return;
        }
    }
}

/// Appends the header of an extension of `len` bytes.
pub fn put_ext(out: &mut Vec<u8>, kind: i8, len: u32) {
    match len {
        1 | 2 | 4 | 8 | 16 => out.push(0xd4 + len.trailing_zeros().to_le_bytes()[0]),
        _ => put_wide(out, [0xc7, 0xc8, 0xc9, 0xc9], len.into()),
    }
    out.extend_from_slice(&kind.to_be_bytes());
}

/// Appends an integer of at least 0.
pub fn put_uint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x80 => out.push(value.to_le_bytes()[0]),
        _ => put_wide(out, [0xcc, 0xcd, 0xce, 0xcf], value),
    }
}

/// Appends an integer.
pub fn put_int(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = u64::try_from(value) {
        return put_uint(out, value);
    }
    let bytes = value.to_be_bytes();
    if value >= -32 {
        return out.push(bytes[7]);
    }
    let (marker, width) = if i8::try_from(value).is_ok() {
        (0xd0, 1)
    } else if i16::try_from(value).is_ok() {
        (0xd1, 2)
    } else if i32::try_from(value).is_ok() {
        (0xd2, 4)
    } else {
        (0xd3, 8)
    };
    out.push(marker);
    out.extend_from_slice(&bytes[8 - width..]);
}

/// Appends the bits of a float32.
pub fn put_f32(out: &mut Vec<u8>, bits: u32) {
    out.push(0xca);
    out.extend_from_slice(&bits.to_be_bytes());
}

/// Appends the bits of a float64.
pub fn put_f64(out: &mut Vec<u8>, bits: u64) {
    out.push(0xcb);
    out.extend_from_slice(&bits.to_be_bytes());
}

/// Appends a number in 1, 2, 4 or 8 bytes, after the marker for that width.
fn put_wide(out: &mut Vec<u8>, markers: [u8; 4], value: u64) {
    let place = match value {
        ..=0xff => 0,
        0x100..=0xffff => 1,
        0x1_0000..=0xffff_ffff => 2,
        _ => 3,
    };
    out.push(markers[place]);
    out.extend_from_slice(&value.to_be_bytes()[8 - (1 << place)..]);
}
