//! SHA-256 of the elements of tensors: equal tensors have equal hashes in every format.

use super::parallel;
use crate::checkpoint::{Checkpoint, TensorEntry};
use crate::error::{Error, Result};
use crate::source::to_usize;
use crate::tensor::Order;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Bytes of a block where the file has the order of the hash.
const BLOCK: u64 = 4 << 20;
/// Bytes of a block where it has the other order: long enough runs are left in the file.
const REORDERED_BLOCK: u64 = 32 << 20;
/// Bytes of a block where, besides, each block means reading the source from its beginning.
const RESCANNED_BLOCK: u64 = 256 << 20;

/// The SHA-256, as 64 lower-case hexadecimal digits, of the elements of `entry` as little-endian
/// bytes in row-major order of the logical shape, in the type [`TensorEntry::dtype`].
///
/// Memory is bounded: some 8 MiB, some 64 MiB where the tensor is stored column-major, and some
/// 512 MiB where it is so in a source that can only be read forwards.
///
/// # Errors
/// [`crate::Kind::Unsupported`] for packed types that are not row-major in one piece,
/// [`crate::Kind::Corrupt`] where the bytes do not fit the file's own checksum, and what the
/// sources say.
pub fn sha256(entry: &TensorEntry) -> Result<String> {
    let mut hasher = Sha256::new();
    for_each_chunk(entry, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(hex(&hasher.finalize()))
}

/// Gives the bytes that [`sha256`] hashes to `take`, from front to back, in blocks. What the file's own
/// checksums say is looked at first.
pub(super) fn for_each_chunk(entry: &TensorEntry, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    entry.verify_tensor()?;
    if entry.dtype().size().is_none() {
        return packed(entry, take).map_err(|e| e.on_tensor(entry.name()));
    }
    let reordered = entry.order() != Order::Row && !entry.shape.is_order_free();
    let block = match (reordered, is_sequential(entry)) {
        (false, _) => BLOCK,
        (true, false) => REORDERED_BLOCK,
        (true, true) => RESCANNED_BLOCK,
    };
    parallel::row_major(entry, block, take)
}

/// [`sha256`] of every tensor, in order, by `threads` threads (0: one a processor). Tensors in one
/// source that can only be read forwards are read by one thread, in order.
///
/// # Errors
/// As [`sha256`], for the first tensor that fails.
pub fn sha256_all(checkpoint: &Checkpoint, threads: usize) -> Result<Vec<String>> {
    let tensors: Vec<&TensorEntry> = checkpoint.tensors.iter().collect();
    Ok(sha256_each(&tensors, threads, &Err)?.into_iter().flatten().collect())
}

/// [`sha256`] of each of `tensors`, as [`sha256_all`]; none where that failed and `failed` goes on.
pub(super) fn sha256_each(
    tensors: &[&TensorEntry],
    threads: usize,
    failed: &(dyn Fn(Error) -> Result<()> + Sync),
) -> Result<Vec<Option<String>>> {
    let jobs = jobs(tensors.iter().copied());
    let workers = parallel::workers(threads, jobs.len() as u64);
    let found = parallel::each(jobs.into_iter(), workers, |found: &mut Vec<(usize, String)>, _, job| {
        for number in job {
            let Some(entry) = tensors.get(number) else { continue };
            match sha256(entry) {
                Ok(hash) => found.push((number, hash)),
                Err(error) => failed(error)?,
            }
        }
        Ok(())
    })?;
    let mut hashes = vec![None; tensors.len()];
    for (number, hash) in found.into_iter().flatten() {
        if let Some(place) = hashes.get_mut(number) {
            *place = Some(hash);
        }
    }
    Ok(hashes)
}

/// The places of tensors that one worker reads, one after the other: those in one source that can only
/// be read forwards are one job, each other one stands alone.
pub(super) fn jobs<'a>(tensors: impl Iterator<Item = &'a TensorEntry>) -> Vec<Vec<usize>> {
    let mut jobs: Vec<Vec<usize>> = Vec::new();
    let mut sequential: HashMap<usize, usize> = HashMap::new();
    for (number, entry) in tensors.enumerate() {
        let stream = entry.extents.iter().map(|p| &p.source).find(|source| source.is_sequential());
        // By the address of the source.
        let job = match stream.map(|source| std::sync::Arc::as_ptr(source).cast::<()>().addr()) {
            Some(address) => *sequential.entry(address).or_insert(jobs.len()),
            None => jobs.len(),
        };
        match jobs.get_mut(job) {
            Some(tensors) => tensors.push(number),
            None => jobs.push(vec![number]),
        }
    }
    jobs
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_sequential(entry: &TensorEntry) -> bool {
    entry.extents.iter().any(|extent| extent.source.is_sequential())
}

/// Elements of less than a byte: whole bytes, as they lie.
fn packed(entry: &TensorEntry, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let as_it_is = entry.single_extent().filter(|extent| {
        let row_major = extent.encoding.order == Order::Row || entry.shape.is_order_free();
        row_major && entry.cast.is_none() && entry.shape.bytes(entry.stored) == Some(extent.len)
    });
    let Some(extent) = as_it_is else {
        return Err(Error::unsupported(
            "packed-reorder",
            format!("elements of type {} share bytes and cannot be brought into order", entry.stored),
        ));
    };
    let mut buffer = vec![0; to_usize(BLOCK.min(extent.len))?];
    let mut done = 0;
    while done < extent.len {
        let step = to_usize(BLOCK.min(extent.len - done))?;
        extent.source.read_at(extent.offset + done, &mut buffer[..step])?;
        take(&buffer[..step])?;
        done += step as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
