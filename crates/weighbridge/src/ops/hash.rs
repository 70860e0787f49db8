//! SHA-256 of the elements of tensors: equal tensors have equal hashes in every format.

use super::parallel;
use crate::checkpoint::{Checkpoint, TensorEntry};
use crate::error::{Error, Result};
use crate::source::to_usize;
use crate::tensor::Order;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Block size where the file has the order of the hash.
const BLOCK: u64 = 4 << 20;
/// Block size where the file has the other order: large enough for long runs in the file.
const REORDERED_BLOCK: u64 = 32 << 20;
/// Block size where, in addition, each block means reading the source from its beginning.
const RESCANNED_BLOCK: u64 = 256 << 20;

/// Returns the SHA-256 of the elements of `entry`, as 64 lower-case hexadecimal digits. The elements are hashed as
/// little-endian bytes in row-major order of the logical shape, in the type [`TensorEntry::dtype`].
///
/// Memory is bounded: about 8 MiB; 64 MiB for a column-major tensor; 512 MiB for a column-major tensor in a source that can
/// only be read forwards.
///
/// # Errors
/// [`crate::Kind::Unsupported`] for packed types that are not one row-major extent, [`crate::Kind::Corrupt`] where the bytes
/// do not match the checksum of the file, and errors of the sources.
pub fn sha256(entry: &TensorEntry) -> Result<String> {
    let mut hasher = Sha256::new();
    for_each_chunk(entry, &mut |bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(hex(&hasher.finalize()))
}

/// Passes the bytes that [`sha256`] hashes to `take`, from front to back, in blocks. The checksums of the file are verified
/// first.
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

/// Returns [`sha256`] of every tensor, in order, computed by `threads` threads (0: one per processor). Tensors in one source
/// that can only be read forwards are read by one thread, in order.
///
/// # Errors
/// As [`sha256`], for the first tensor that fails.
pub fn sha256_all(checkpoint: &Checkpoint, threads: usize) -> Result<Vec<String>> {
    let tensors: Vec<&TensorEntry> = checkpoint.tensors.iter().collect();
    Ok(sha256_each(&tensors, threads, &Err)?.into_iter().flatten().collect())
}

/// Returns [`sha256`] of each of `tensors`, as [`sha256_all`]; `None` where it failed and `failed` returned `Ok`.
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

/// Returns the indices of tensors that one worker reads in turn: all tensors in one source that can only be read forwards
/// form one job, every other tensor its own.
pub(super) fn jobs<'a>(tensors: impl Iterator<Item = &'a TensorEntry>) -> Vec<Vec<usize>> {
    let mut jobs: Vec<Vec<usize>> = Vec::new();
    let mut sequential: HashMap<usize, usize> = HashMap::new();
    for (number, entry) in tensors.enumerate() {
        let stream = entry.extents.iter().map(|p| &p.source).find(|source| source.is_sequential());
        // Sources are identified by address.
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

/// Passes elements of less than a byte to `take`: whole bytes, in the order of the file.
fn packed(entry: &TensorEntry, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let as_it_is = entry.single_extent().filter(|extent| {
        let row_major = extent.encoding.order == Order::Row || entry.shape.is_order_free();
        row_major && entry.cast.is_none() && entry.shape.bytes(entry.stored) == Some(extent.len)
    });
    let Some(extent) = as_it_is else {
        return Err(Error::unsupported(
            "packed-reorder",
            format!("elements of type {} are packed into shared bytes and cannot be reordered", entry.stored),
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
