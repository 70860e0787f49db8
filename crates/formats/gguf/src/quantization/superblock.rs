//! Types with blocks of 256 elements and integer codes.
//!
//! Operations are in the order of the Python package `gguf`, so that results have the same bits.

use super::legacy::NON_LINEAR;
use super::{half, nibble, u16_at};

/// Returns the 2-bit code of element `i`: 64 bytes, 32 for each half of the block.
fn two_bits(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3
}

/// Returns the nibble of element `i`: 128 bytes, 32 for each 64 elements.
fn four_bits(bytes: &[u8], i: usize) -> u8 {
    nibble(bytes[i / 64 * 32 + i % 32], i % 64 / 32)
}

pub(super) fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = block.split_at(16);
    let (d, dmin) = (half(block, 80), half(block, 82));
    for (i, x) in out.iter_mut().enumerate() {
        let scale = scales[i / 16];
        let (dl, ml) = (d * f32::from(scale & 15), dmin * f32::from(scale >> 4));
        *x = dl * f32::from(two_bits(codes, i)) - ml;
    }
}

pub(super) fn q3_k(block: &[u8], out: &mut [f32]) {
    let (mask, codes, scales, d) = (&block[..32], &block[32..96], &block[96..108], half(block, 108));
    for (i, x) in out.iter_mut().enumerate() {
        let group = i / 16;
        let low = nibble(scales[group % 8], group / 8);
        let high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
        let dl = d * (f32::from(low | high << 4) - 32.0);
        // The offset is 0 where the bit of the mask is 1.
        let offset = if mask[i % 32] >> (i / 32) & 1 == 1 { 0.0 } else { 4.0 };
        *x = dl * (f32::from(two_bits(codes, i)) - offset);
    }
}

/// Returns scale and minimum of a group of 32 elements: 12 bytes with 6 bits each.
fn scale_and_min(scales: &[u8], group: usize) -> (f32, f32) {
    let (d, m, both) = (scales[group % 4], scales[4 + group % 4], scales[8 + group % 4]);
    let (scale, min) = match group < 4 {
        true => (d & 0x3f, m & 0x3f),
        false => (both & 15 | d >> 2 & 0x30, both >> 4 | m >> 2 & 0x30),
    };
    (f32::from(scale), f32::from(min))
}

pub(super) fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    let (scales, codes) = block[4..].split_at(12);
    for (i, x) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, i / 32);
        let (dl, ml) = (d * scale, dmin * min);
        *x = dl * f32::from(four_bits(codes, i)) - ml;
    }
}

pub(super) fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    let (scales, high, codes) = (&block[4..16], &block[16..48], &block[48..]);
    for (i, x) in out.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(scales, i / 32);
        let (dl, ml) = (d * scale, dmin * min);
        let high = high[i % 32] >> (i / 32) & 1;
        *x = dl * f32::from(four_bits(codes, i) | high << 4) - ml;
    }
}

pub(super) fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], half(block, 208));
    for (i, x) in out.iter_mut().enumerate() {
        let dl = d * f32::from(scales[i / 16].cast_signed());
        let low = nibble(low[i / 128 * 64 + i % 64], i % 128 / 64);
        *x = dl * (f32::from(low | two_bits(high, i) << 4) - 32.0);
    }
}

pub(super) fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (d, high) = (half(block, 0), u16_at(block, 2));
    let (low, codes) = (&block[4..8], &block[8..]);
    for (i, x) in out.iter_mut().enumerate() {
        let group = i / 32;
        let high = if high >> (2 * group) & 1 == 1 { 16 } else { 0 }
            | if high >> (2 * group + 1) & 1 == 1 { 32 } else { 0 };
        let dl = d * (f32::from(nibble(low[group / 2], group % 2) | high) - 32.0);
        let code = nibble(codes[group * 16 + i % 16], i % 32 / 16);
        *x = dl * f32::from(NON_LINEAR[usize::from(code)]);
    }
}

/// Factors that move one of five ternary digits of a byte to the top.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

pub(super) fn tq1_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 52);
    for (i, x) in out.iter_mut().enumerate() {
        let (byte, digit) = match i {
            0..160 => (block[i % 32], i / 32),
            160..240 => (block[32 + (i - 160) % 16], (i - 160) / 16),
            _ => (block[48 + (i - 240) % 4], (i - 240) / 4),
        };
        let top = (u16::from(byte.wrapping_mul(POWERS[digit])) * 3) >> 8;
        *x = d * (f32::from(top) - 1.0);
    }
}

pub(super) fn tq2_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 64);
    for (i, x) in out.iter_mut().enumerate() {
        *x = d * (f32::from(two_bits(block, i)) - 1.0);
    }
}
