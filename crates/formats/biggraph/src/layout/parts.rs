//! Distribution of rows over partitions.

use std::ops::Range;

/// First row of partition `part` of `rows` rows in `parts` partitions:
/// ceil(part * rows / parts). For `part == parts` that is `rows`.
///
/// Upstream computes this in floating point, with the same result where its import succeeds.
pub(crate) fn part_start(part: u64, rows: u64, parts: u64) -> u64 {
    let parts = u128::from(parts.max(1));
    let start = (u128::from(part) * u128::from(rows)).div_ceil(parts);
    // More than all rows only for a partition that does not exist.
    u64::try_from(start).unwrap_or(rows).min(rows)
}

/// Rows of each partition, in order. Allocates nothing, whatever the number.
pub(crate) fn split(rows: u64, parts: u64) -> impl Iterator<Item = Range<u64>> {
    (0..parts).map(move |part| part_start(part, rows, parts)..part_start(part.saturating_add(1), rows, parts))
}

/// Row count of each partition, in order.
pub(crate) fn split_counts(rows: u64, parts: u64) -> impl Iterator<Item = u64> {
    split(rows, parts).map(|range| range.end - range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_the_computed_partition() {
        for rows in (0..200).chain([1000, 9973]) {
            for parts in (1..40).chain([97, 500]) {
                let ranges: Vec<_> = split(rows, parts).collect();
                assert_eq!(ranges.len() as u64, parts);
                assert_eq!(ranges.first().unwrap().start, 0);
                assert_eq!(ranges.last().unwrap().end, rows);
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                // Row r belongs to partition floor(r * parts / rows).
                for (part, range) in ranges.into_iter().enumerate() {
                    for row in range {
                        assert_eq!(row * parts / rows, part as u64, "{row} {rows} {parts}");
                    }
                }
            }
        }
        assert_eq!(split_counts(14, 4).collect::<Vec<_>>(), [4, 3, 4, 3]);
        assert_eq!(split(5, 0).count(), 0);
    }

    #[test]
    fn splits_row_counts_beyond_float_precision() {
        // Python: n = 2**64 - 1; p = 1000003; -(-(p - 1) * n // p) and (n - 1) * p // n.
        let n = u64::MAX;
        assert_eq!(part_start(1_000_002, n, 1_000_003), 18_446_725_627_020_817_972);
        assert_eq!(part_start(1_000_003, n, 1_000_003), n);
        assert_eq!(part_start(u64::MAX, u64::MAX, 1), u64::MAX);
    }
}
