//! How rows are dealt out to partitions, and edges to chunks.

use std::ops::Range;
use weighbridge_core::error::{Error, Result};

/// The first row of partition `part` where `rows` rows are dealt out to `parts` partitions:
/// ceil(part * rows / parts). For `part == parts` that is `rows`.
///
/// Upstream computes this in floating point, where it works at all with the same result.
pub fn part_start(part: u64, rows: u64, parts: u64) -> u64 {
    let parts = u128::from(parts.max(1));
    let start = (u128::from(part) * u128::from(rows)).div_ceil(parts);
    // More than all rows only where there is no such partition.
    u64::try_from(start).unwrap_or(rows).min(rows)
}

/// The partition of a row: floor(row * parts / rows). 0 where there are no rows.
pub fn part_of_row(row: u64, rows: u64, parts: u64) -> u64 {
    let part = (u128::from(row) * u128::from(parts)).checked_div(u128::from(rows)).unwrap_or(0);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The rows of each partition, in order. Nothing is allocated, however many there are.
pub fn split(rows: u64, parts: u64) -> impl Iterator<Item = Range<u64>> {
    (0..parts).map(move |part| part_start(part, rows, parts)..part_start(part.saturating_add(1), rows, parts))
}

/// The number of rows of each partition, in order.
pub fn split_counts(rows: u64, parts: u64) -> impl Iterator<Item = u64> {
    split(rows, parts).map(|range| range.end - range.start)
}

/// How the edges of a bucket are cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkRule {
    /// Upstream's last state: chunks of ceil(edges / chunks). The last ones may be missing.
    Ceiling,
    /// Release 1.0.0: from floor(k * edges / chunks) to floor((k + 1) * edges / chunks).
    Even,
}

/// The edges of chunk `chunk` of `chunks` of a bucket with `edges` edges.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`], `no-such-chunk`, where there is no such chunk;
/// [`weighbridge_core::Kind::Mismatch`], `chunk-past-the-end`, where chunks of that size are used up before it:
/// upstream fails there.
pub fn edge_chunk(rule: ChunkRule, chunk: u64, chunks: u64, edges: u64) -> Result<Range<u64>> {
    if chunk >= chunks {
        return Err(Error::usage("no-such-chunk", "there is no such chunk of edges")
            .expected(format_args!("less than {chunks}"))
            .found(chunk));
    }
    if rule == ChunkRule::Even {
        let bound = |k: u64| {
            let edge = u128::from(k) * u128::from(edges) / u128::from(chunks);
            u64::try_from(edge).unwrap_or(edges)
        };
        return Ok(bound(chunk)..bound(chunk + 1));
    }
    let size = edges.div_ceil(chunks);
    match chunk.checked_mul(size).filter(|start| *start <= edges) {
        Some(start) => Ok(start..start.saturating_add(size).min(edges)),
        None => Err(Error::mismatch("chunk-past-the-end", "the edges are used up before this chunk")
            .expected(format_args!("at most {} chunks of {size} edges", edges.div_ceil(size.max(1))))
            .found(format_args!("chunk {chunk} of {chunks}, {edges} edges"))
            .hint("train with fewer chunks (num_edge_chunks)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_the_partition_that_holds_it() {
        for rows in (0..200).chain([1000, 9973]) {
            for parts in (1..40).chain([97, 500]) {
                let ranges: Vec<_> = split(rows, parts).collect();
                assert_eq!(ranges.len() as u64, parts);
                assert_eq!(ranges.first().unwrap().start, 0);
                assert_eq!(ranges.last().unwrap().end, rows);
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                for (part, range) in ranges.into_iter().enumerate() {
                    for row in range {
                        assert_eq!(part_of_row(row, rows, parts), part as u64, "{row} {rows} {parts}");
                    }
                }
            }
        }
        assert_eq!(split_counts(14, 4).collect::<Vec<_>>(), [4, 3, 4, 3]);
        assert_eq!(split(5, 0).count(), 0);
    }

    #[test]
    fn partitions_of_numbers_that_no_float_holds() {
        // Python: n = 2**64 - 1; p = 1000003; -(-(p - 1) * n // p) and (n - 1) * p // n.
        let n = u64::MAX;
        assert_eq!(part_start(1_000_002, n, 1_000_003), 18_446_725_627_020_817_972);
        assert_eq!(part_start(1_000_003, n, 1_000_003), n);
        assert_eq!(part_of_row(n - 1, n, 1_000_003), 1_000_002);
        assert_eq!(part_of_row(u64::MAX, 1, u64::MAX), u64::MAX);
        assert_eq!(part_start(u64::MAX, u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn chunks_of_both_rules() {
        let chunks = |rule, n, edges| -> Vec<_> { (0..n).map(|k| edge_chunk(rule, k, n, edges)).collect() };
        let whole =
            |rule, n, edges| -> Vec<_> { chunks(rule, n, edges).into_iter().map(Result::unwrap).collect() };
        assert_eq!(whole(ChunkRule::Ceiling, 3, 37), [0..13, 13..26, 26..37]);
        assert_eq!(whole(ChunkRule::Even, 3, 37), [0..12, 12..24, 24..37]);
        assert_eq!(whole(ChunkRule::Ceiling, 3, 0), [0..0, 0..0, 0..0]);
        assert_eq!(whole(ChunkRule::Ceiling, 5, 12), [0..3, 3..6, 6..9, 9..12, 12..12]);
        // The case that kills upstream: 5 edges in 4 chunks.
        let five = chunks(ChunkRule::Ceiling, 4, 5);
        assert_eq!(five[2].as_ref().unwrap(), &(4..5));
        assert_eq!(five[3].as_ref().unwrap_err().code(), "chunk-past-the-end");
        assert_eq!(edge_chunk(ChunkRule::Even, 3, 3, 1).unwrap_err().code(), "no-such-chunk");
        for n in 1..20 {
            for edges in 0..50 {
                let even = whole(ChunkRule::Even, n, edges);
                assert_eq!((even[0].start, even.last().unwrap().end), (0, edges));
                assert!(even.windows(2).all(|pair| pair[0].end == pair[1].start));
            }
        }
    }
}
