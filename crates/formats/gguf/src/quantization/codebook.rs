//! Types whose codes are entries of a codebook.
//!
//! Operations are in the order of the Python package `gguf`, so that results have the same bits.

use super::grids::{
    IQ1, IQ1_VALUES, IQ2_S, IQ2_VALUES, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_S_VALUES, IQ3_XXS, IQ3_XXS_VALUES,
};
use super::{half, nibble, u16_at, u32_at};

/// Shift of a value of IQ1 types.
const DELTA: f32 = 0.125;

/// Returns value `i` of an entry with 2 bits for each.
fn of_four(values: &[f32; 4], entry: u16, i: usize) -> f32 {
    values[usize::from(entry >> (2 * i) & 3)]
}

/// Returns value `i` of an entry with 3 bits for each.
fn of_eight(values: &[f32; 8], entry: u16, i: usize) -> f32 {
    values[usize::from(entry >> (3 * i) & 7)]
}

/// Returns the sign of element `i`: bit `i` is 1 for a negative one.
fn sign(bits: u8, i: usize) -> f32 {
    if bits >> i & 1 == 1 { -1.0 } else { 1.0 }
}

/// Returns the signs of 8 elements from 7 bits: the number of negative ones is even.
fn even(bits: u32) -> u8 {
    let [bits, ..] = (bits & 0x7f).to_le_bytes();
    if bits.count_ones() % 2 == 1 { bits | 0x80 } else { bits }
}

/// Returns the entry of a codebook at `low`, with `high` as the bits from 8 on.
fn entry<const N: usize>(book: &[u16; N], low: u8, high: usize) -> u16 {
    book[(usize::from(low) | high << 8) % N]
}

pub(super) fn iq2_xxs(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let codes = &block[2 + 8 * group..];
        let word = u32_at(codes, 4);
        let [.., scale] = (word >> 4).to_le_bytes();
        let db = d * (0.5 + f32::from(scale)) * 0.25;
        for (i, x) in out.iter_mut().enumerate() {
            let grid = of_four(&IQ2_VALUES, entry(&IQ2_XXS, codes[i / 8], 0), i % 8);
            *x = db * grid * sign(even(word >> (7 * (i / 8))), i % 8);
        }
    }
}

pub(super) fn iq2_xs(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, x) in out.iter_mut().enumerate() {
        let db = d * (0.5 + f32::from(nibble(block[66 + i / 32], i % 32 / 16))) * 0.25;
        let code = u16_at(block, 2 + 2 * (i / 8));
        let grid = of_four(&IQ2_VALUES, IQ2_XS[usize::from(code & 511)], i % 8);
        *x = db * grid * sign(even(u32::from(code >> 9)), i % 8);
    }
}

pub(super) fn iq2_s(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    let (codes, signs, high, scales) = (&block[2..34], &block[34..66], &block[66..74], &block[74..]);
    for (i, x) in out.iter_mut().enumerate() {
        let at = i / 8;
        let db = d * (0.5 + f32::from(nibble(scales[i / 32], i % 32 / 16))) * 0.25;
        let high = usize::from(high[at / 4] >> (2 * (at % 4)) & 3);
        let grid = of_four(&IQ2_VALUES, entry(&IQ2_S, codes[at], high), i % 8);
        *x = db * grid * sign(signs[at], i % 8);
    }
}

pub(super) fn iq3_xxs(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, x) in out.iter_mut().enumerate() {
        let word = u32_at(block, 66 + 4 * (i / 32));
        let [.., scale] = (word >> 4).to_le_bytes();
        let db = d * (0.5 + f32::from(scale)) * 0.5;
        let grid = of_eight(&IQ3_XXS_VALUES, entry(&IQ3_XXS, block[2 + i / 4], 0), i % 4);
        *x = db * grid * sign(even(word >> (7 * (i % 32 / 8))), i % 8);
    }
}

pub(super) fn iq3_s(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    let (codes, high, signs, scales) = (&block[2..66], &block[66..74], &block[74..106], &block[106..]);
    for (i, x) in out.iter_mut().enumerate() {
        let at = i / 4;
        let db = d * f32::from(1 + 2 * nibble(scales[i / 64], i % 64 / 32));
        let high = usize::from(high[at / 8] >> (at % 8) & 1);
        let grid = of_eight(&IQ3_S_VALUES, entry(&IQ3_S, codes[at], high), i % 4);
        *x = db * grid * sign(signs[i / 8], i % 8);
    }
}

pub(super) fn iq1_s(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (i, x) in out.iter_mut().enumerate() {
        let (at, word) = (i / 8, u16_at(block, 34 + 2 * (i / 32)));
        let dl = d * f32::from(2 * (word >> 12 & 7) + 1);
        let delta = if word & 0x8000 == 0 { DELTA } else { -DELTA };
        let high = usize::from(word >> (3 * (at % 4)) & 7);
        let grid = of_four(&IQ1_VALUES, entry(&IQ1, block[2 + at], high), i % 8);
        *x = dl * (grid + delta);
    }
}

pub(super) fn iq1_m(block: &[u8], out: &mut [f32]) {
    let (codes, high, scales) = (&block[..32], &block[32..48], &block[48..]);
    // The scale of the block is in the upper 4 bits of each word.
    let bits = (0..4).fold(0, |bits, i| bits | (u16_at(scales, 2 * i) & 0xf000) >> (12 - 4 * i));
    let d = half::f16::from_bits(bits).to_f32();
    for (i, x) in out.iter_mut().enumerate() {
        let at = i / 8;
        let scale = u16_at(scales, 2 * (i / 64)) >> (3 * (i % 64 / 16)) & 7;
        let dl = d * f32::from(2 * scale + 1);
        let bits = nibble(high[at / 2], at % 2);
        let delta = if bits & 8 == 0 { DELTA } else { -DELTA };
        let grid = of_four(&IQ1_VALUES, entry(&IQ1, codes[at], usize::from(bits & 7)), i % 8);
        *x = dl * (grid + delta);
    }
}
