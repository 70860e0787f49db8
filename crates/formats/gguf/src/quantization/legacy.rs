//! Types with blocks of 32 and 64 elements.
//!
//! Operations are in the order of the Python package `gguf`, so that results have the same bits.

use super::{half, nibble, u32_at};

/// Values of 4-bit codes of the non-linear types.
pub(super) const NON_LINEAR: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Doubled values of 4-bit floats (e2m1).
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Codes of 32 elements: the low nibbles of 16 bytes, then the high ones.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    (0..2).flat_map(move |which| bytes[..16].iter().map(move |&byte| nibble(byte, which)))
}

/// Codes of 5 bits: nibbles, and their fifth bits.
fn five_bits<'a>(bytes: &'a [u8], high: u32) -> impl Iterator<Item = u8> + 'a {
    nibbles(bytes).enumerate().map(move |(i, low)| low | if high >> i & 1 == 1 { 16 } else { 0 })
}

pub(super) fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (x, q) in out.iter_mut().zip(nibbles(&block[2..])) {
        *x = d * (f32::from(q) - 8.0);
    }
}

pub(super) fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (x, q) in out.iter_mut().zip(nibbles(&block[4..])) {
        *x = d * f32::from(q) + m;
    }
}

pub(super) fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (x, q) in out.iter_mut().zip(five_bits(&block[6..], u32_at(block, 2))) {
        *x = d * (f32::from(q) - 16.0);
    }
}

pub(super) fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (x, q) in out.iter_mut().zip(five_bits(&block[8..], u32_at(block, 4))) {
        *x = d * f32::from(q) + m;
    }
}

pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (x, &q) in out.iter_mut().zip(&block[2..]) {
        *x = f32::from(q.cast_signed()) * d;
    }
}

pub(super) fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (x, q) in out.iter_mut().zip(nibbles(&block[2..])) {
        *x = d * f32::from(NON_LINEAR[usize::from(q)]);
    }
}

pub(super) fn mxfp4(block: &[u8], out: &mut [f32]) {
    // Half of the scale: the values are doubled.
    let exponent = u32::from(block[0]);
    let d = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
    for (x, q) in out.iter_mut().zip(nibbles(&block[1..])) {
        *x = d * f32::from(E2M1[usize::from(q)]);
    }
}

pub(super) fn nvfp4(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = block.split_at(4);
    for ((out, &scale), codes) in out.chunks_exact_mut(16).zip(scales).zip(codes.chunks_exact(8)) {
        let d = ue4m3(scale);
        for (i, x) in out.iter_mut().enumerate() {
            *x = d * f32::from(E2M1[usize::from(nibble(codes[i % 8], i / 8))]);
        }
    }
}

/// Half of a scale without sign: 4 exponent and 3 fraction bits.
fn ue4m3(byte: u8) -> f32 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    match (byte, exponent) {
        (0 | 0x7f, _) => 0.0,
        (_, 0) => fraction * 2f32.powi(-9) * 0.5,
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7) * 0.5,
    }
}
