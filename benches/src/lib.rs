//! Shared helpers of the benchmarks: input files, and timing in pairs.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "benchmarks make their own files")]

use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes a primitiv model of `count` parameters of shape [rows, columns], filled with noise.
///
/// # Errors
/// Errors of the file system.
pub fn write_primitiv_model(path: &Path, count: u32, rows: u32, columns: u32) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let word = |n: u32| [&[0xce], n.to_be_bytes().as_slice()].concat();
    for n in [0, 1, 0x300, count] {
        out.write_all(&word(n))?;
    }
    let mut block = vec![0u8; 1 << 20];
    noise(&mut block);
    for i in 0..count {
        let name = format!("layer{i:06}");
        out.write_all(&[0x91, 0xab])?;
        out.write_all(name.as_bytes())?;
        out.write_all(&[0x92])?;
        for n in [rows, columns, 1] {
            out.write_all(&word(n))?;
        }
        let mut left = u64::from(rows) * u64::from(columns) * 4;
        out.write_all(&[0xc6])?;
        out.write_all(&u32::try_from(left).map_err(std::io::Error::other)?.to_be_bytes())?;
        while left > 0 {
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            out.write_all(&block[..step])?;
            left -= step as u64;
        }
        out.write_all(&word(0))?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()
}

/// Fills `bytes` with floats that are neither NaN nor denormal.
fn noise(bytes: &mut [u8]) {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for word in bytes.as_chunks_mut::<4>().0 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let bits = 0x3f80_0000 | (u32::try_from(x >> 41).unwrap_or(0) & 0x007f_ffff);
        *word = bits.to_le_bytes();
    }
}

/// Times of two jobs, run in turn.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Times of the first job.
    pub ours: Vec<Duration>,
    /// Times of the second job.
    pub theirs: Vec<Duration>,
}

impl Pair {
    /// Runs `ours` and `theirs` in turn: one warm-up run and `runs` timed runs.
    pub fn time(runs: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> Self {
        let clock = |work: &mut dyn FnMut()| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        };
        let mut pair = Self { ours: Vec::new(), theirs: Vec::new() };
        for run in 0..=runs {
            let (a, b) = (clock(&mut ours), clock(&mut theirs));
            if run > 0 {
                pair.ours.push(a);
                pair.theirs.push(b);
            }
        }
        pair
    }

    /// Returns the median of the ratios first / second.
    pub fn ratio(&self) -> f64 {
        let ratios = self.ours.iter().zip(&self.theirs).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64());
        median(ratios.collect())
    }

    /// Returns the medians of both jobs, in seconds.
    pub fn medians(&self) -> (f64, f64) {
        let seconds = |times: &[Duration]| median(times.iter().map(Duration::as_secs_f64).collect());
        (seconds(&self.ours), seconds(&self.theirs))
    }
}

/// Returns the median; NaN for an empty list.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
