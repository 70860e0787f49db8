//! Bytes as Latin-1 text in UTF-8: each byte becomes the code point of its value. Python's pickle protocol 2
//! stores the elements of arrays in this way.

use super::default_threads;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::read::Scratch;
use weighbridge_core::tensor::{Blocks, Order, Region};

/// Memory of each worker for measuring text, in bytes.
const MEASURE_MEMORY: u64 = 16 << 20;

/// Measures the text of the elements of `entry`, dense in `order`: the length in bytes of each of the
/// [`Blocks::latin1`], for
/// [`FileBuilder::latin1`](weighbridge_core::plan::FileBuilder::latin1). Reads the tensor once, in parallel
/// where its sources allow, with 16 MiB of memory for each processor.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`] for elements smaller than a byte; and errors of the sources.
pub fn latin1_lengths(entry: &TensorEntry, order: Order) -> Result<Vec<u64>> {
    let blocks = Blocks::latin1(entry, order)?;
    let queue = Mutex::new(blocks.enumerate());
    let found: Mutex<Result<Vec<(usize, u64)>>> = Mutex::new(Ok(Vec::new()));
    let stop = AtomicBool::new(false);
    let work = || {
        let (mut scratch, mut bytes) = (Scratch::default(), Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let Some((number, block)) = queue.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                return;
            };
            let measured = parts(entry, &block, order, MEASURE_MEMORY).try_fold(0, |sum, part| {
                bytes.clear();
                entry.read_into(&part, order, &mut scratch, &mut bytes)?;
                Ok(sum + encoded_len(&bytes))
            });
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            match (measured, &mut *found) {
                (Ok(len), Ok(lengths)) => lengths.push((number, len)),
                (Err(error), Ok(_)) => {
                    stop.store(true, Ordering::Relaxed);
                    *found = Err(error);
                }
                (_, Err(_)) => {}
            }
        }
    };
    let one = entry.extents.iter().any(|extent| extent.source.is_sequential()) || entry.bytes() < 1 << 20;
    std::thread::scope(|scope| {
        for _ in 1..if one { 1 } else { default_threads() } {
            scope.spawn(work);
        }
        work();
    });
    let mut lengths = found.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    lengths.sort_unstable();
    Ok(lengths.into_iter().map(|(_, len)| len).collect())
}

/// Splits a box whose elements are consecutive in `order` into consecutive boxes, so that reading one and
/// encoding its text takes at most `memory` bytes.
pub(super) fn parts(
    entry: &TensorEntry,
    region: &Region,
    order: Order,
    memory: u64,
) -> impl Iterator<Item = Region> {
    let result = entry.dtype().size().unwrap_or(1) as u64;
    let stored = entry.stored.size().unwrap_or(1) as u64;
    // The elements as read, reordered and cast, and text of twice as many bytes.
    let each = 2 * stored + 3 * result;
    let start = region.start.clone();
    Region::blocks(&region.shape(), order, memory / each).map(move |mut part| {
        part.start.iter_mut().zip(&start).for_each(|(within, corner)| *within += corner);
        part
    })
}

/// Length of the text of `bytes`.
fn encoded_len(bytes: &[u8]) -> u64 {
    // The sum of a chunk fits in a byte, so that many are added in one instruction.
    let high = |some: &[u8]| u64::from(some.iter().map(|b| b >> 7).sum::<u8>());
    bytes.len() as u64 + bytes.chunks(128).map(high).sum::<u64>()
}

/// Appends the text of `bytes`.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut at = out.len();
    // Space for the longest text, and for bytes written beyond the end and overwritten.
    out.resize(at + 2 * bytes.len() + 16, 0);
    let (words, rest) = bytes.as_chunks::<8>();
    let all = words.iter().map(<[u8; 8]>::as_slice).chain([rest]);
    for word in all {
        let Some(window) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<16>) else { break };
        let mut place = 0;
        for &byte in word {
            // No branch, as elements are unpredictable. The second byte is always written, and
            // overwritten where it is not needed.
            let high = byte >> 7;
            window[place & 15] = if high == 0 { byte } else { 0xc0 | byte >> 6 };
            window[(place + 1) & 15] = 0x80 | byte & 0x3f;
            place += 1 + usize::from(high);
        }
        at += place;
    }
    out.truncate(at);
}

/// Error for a tensor whose elements changed after they were measured.
pub(super) fn changed(entry: &TensorEntry) -> Error {
    Error::mismatch("changed-meanwhile", "the elements changed while the tensor was written")
        .on_tensor(entry.name())
        .hint("the input file was modified; run the command again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|&b| char::from(b)).collect()
    }

    #[test]
    fn encoded_text_is_utf8() {
        let all: Vec<u8> = (0..=255).collect();
        let noise: Vec<u8> = (0..5000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for bytes in [&all[..], &noise, &[0xff; 100], &[0; 100], &[]] {
            for from in 0..bytes.len().min(9) {
                for to in (from..bytes.len()).step_by(if bytes.len() > 300 { 997 } else { 1 }) {
                    let part = &bytes[from..to];
                    let mut out = b"before".to_vec();
                    encode(part, &mut out);
                    assert_eq!(&out[6..], text(part).as_bytes());
                    assert_eq!(encoded_len(part), text(part).len() as u64);
                }
            }
        }
    }
}
