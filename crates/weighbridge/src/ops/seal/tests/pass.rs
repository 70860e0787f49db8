//! The one pass: every byte once, whatever the threads.

use crate::checksum::ChecksumKind;
use crate::engine::Progress;
use crate::error::{Error, Kind, Result};
use crate::ops::seal::block::{BLOCK, Stretch, UNIT};
use crate::ops::seal::digest::{Algorithms, Hashers};
use crate::ops::seal::pass::{From, Job, run};
use crate::source::{CountingSource, MemorySource, Source, SourceRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Counted {
    bytes: AtomicU64,
    most: u64,
}

impl Progress for Counted {
    fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    fn stopped(&self) -> bool {
        self.most > 0 && self.bytes.load(Ordering::Relaxed) > self.most
    }
}

fn bytes(len: u64) -> Vec<u8> {
    let mut state = len | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    (0..len).map(|_| next()).collect()
}

fn job(bytes: &[u8], whole: Algorithms, ranges: &[(u64, u64)]) -> (Job, Arc<CountingSource>) {
    let memory: SourceRef = Arc::new(MemorySource::new("m", bytes.to_vec()));
    let source = Arc::new(CountingSource::new(memory));
    let mut stretches: Vec<Stretch> = ranges
        .iter()
        .map(|&(start, end)| Stretch { start, end, hashes: Algorithms::BOTH, crc: Some(ChecksumKind::Crc32) })
        .collect();
    stretches.sort_by_key(|s| (s.start, s.end));
    (Job { from: From::Source(source.clone()), len: bytes.len() as u64, whole, stretches }, source)
}

#[test]
fn all_hashes_of_all_stretches() {
    let lengths = [0, 1, 1024, UNIT, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 12_345];
    let none = Algorithms::NONE;
    for threads in [1, 2, 8] {
        let (mut jobs, mut inputs) = (Vec::new(), Vec::new());
        for len in lengths {
            let mut ranges = Vec::new();
            for (start, end) in [(0, len), (1, len), (7, 8), (1023, 2050), (500, BLOCK + 500), (BLOCK, len)] {
                if start < end && end <= len {
                    ranges.push((start, end));
                }
            }
            for whole in [Algorithms::BOTH, none] {
                let bytes = bytes(len);
                jobs.push(job(&bytes, whole, &ranges));
                inputs.push(bytes);
            }
        }
        let (jobs, sources): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        let progress = Counted::default();
        let found = run(&jobs, threads, &progress).unwrap();
        for (((job, bytes), found), source) in jobs.iter().zip(&inputs).zip(&found).zip(&sources) {
            let direct = |bytes: &[u8], wanted| {
                let mut hashers = Hashers::new(wanted);
                hashers.update(bytes);
                hashers.finish()
            };
            assert_eq!(found.whole, direct(bytes, job.whole));
            assert_eq!(found.stretches.len(), job.stretches.len());
            for (stretch, found) in job.stretches.iter().zip(&found.stretches) {
                let range = usize::try_from(stretch.start).unwrap()..usize::try_from(stretch.end).unwrap();
                let part = &bytes[range];
                assert_eq!(found.digests, direct(part, Algorithms::BOTH), "{stretch:?}");
                assert_eq!(found.crc, Some(crc32fast::hash(part)), "{stretch:?}");
            }
            // Once, and what lies behind a block where units cross its end.
            let most = job.len + (job.len / BLOCK) * UNIT;
            assert!(source.bytes_read() <= most, "{} of {}", source.bytes_read(), job.len);
        }
    }
}

#[test]
fn only_requested_ranges_are_read() {
    let bytes = bytes(8 * BLOCK);
    let (job, source) = job(&bytes, Algorithms::NONE, &[(5 * BLOCK + 7, 5 * BLOCK + 99)]);
    let found = run(&[job], 2, &Counted::default()).unwrap();
    let digests = found[0].stretches[0].digests;
    assert!(digests.sha256.is_some() && digests.blake3.is_some());
    assert_eq!(source.bytes_read(), BLOCK);
}

#[derive(Debug)]
struct Failing(u64);

impl Source for Failing {
    fn len(&self) -> u64 {
        20 * BLOCK
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(7);
        if offset < self.0 { Ok(()) } else { Err(Error::new(Kind::Io, "io", "the disk is gone").at(offset)) }
    }
    fn label(&self) -> &str {
        "failing"
    }
}

#[test]
fn read_errors_and_cancellation_end_the_pass() {
    for threads in [1, 8] {
        for fails_at in [0, 9 * BLOCK, 19 * BLOCK] {
            let (good, _) = job(&bytes(3 * BLOCK), Algorithms::BOTH, &[]);
            let bad = Job {
                from: From::Source(Arc::new(Failing(fails_at))),
                len: 20 * BLOCK,
                whole: Algorithms::BOTH,
                stretches: Vec::new(),
            };
            let error = run(&[good.clone(), bad, good], threads, &Counted::default()).unwrap_err();
            assert_eq!((error.kind(), error.code().as_str()), (Kind::Io, "io"));
            assert!(error.offset() >= Some(fails_at));
        }
        let (job, _) = job(&bytes(9 * BLOCK), Algorithms::BOTH, &[]);
        let progress = Counted { most: 2 * BLOCK, ..Counted::default() };
        assert_eq!(run(&[job], threads, &progress).unwrap_err().kind(), Kind::Cancelled);
    }
    assert!(run(&[], 8, &Counted::default()).unwrap().is_empty());
}
