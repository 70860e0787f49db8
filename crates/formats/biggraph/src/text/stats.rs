//! `training_stats.json`: one JSON object per line, appended during training.

use super::json::{self, Json};
use std::collections::HashSet;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_io::source::{SourceRef, to_usize};

/// Bytes read at once.
const READ_BYTES: u64 = 1 << 20;
/// Maximum number of lines compared to find duplicates; about 100 MB of memory.
const MAX_REMEMBERED: usize = 1_000_000;
/// Maximum number of findings listed one by one.
const MAX_FINDINGS: usize = 20;

/// Line of training statistics.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatsLine {
    /// Epoch.
    pub epoch: u64,
    /// Edge path.
    pub path: u64,
    /// Chunk.
    pub chunk: u64,
    /// Number of buckets trained before this one, over all iterations.
    pub index: u64,
    /// Bucket (left, right); `None` in a line with the evaluation averages of an iteration.
    pub bucket: Option<(u64, u64)>,
    /// Averages of the line by name (`stats`, `eval_stats_before`, `eval_stats_after`,
    /// `eval_stats_chunk_avg`).
    pub stats: Vec<(String, Averages)>,
}

/// Averages over edges.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Averages {
    /// Number of edges.
    pub count: u64,
    /// Metrics in file order; they can be NaN or infinite.
    pub metrics: Vec<(String, f64)>,
}

/// Summary of a whole file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StatsSummary {
    /// Number of lines.
    pub lines: u64,
    /// Lines that repeat an earlier iteration and bucket: a run that ended between writing them and
    /// updating the version wrote them again when resumed.
    pub repeated: u64,
    /// Last line of a bucket.
    pub last: Option<StatsLine>,
    /// Faults and oddities.
    pub findings: Vec<Finding>,
}

/// Parses one line. Its keys and values must be upstream's, in any order;
/// further keys are ignored.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `not-json`, or `stats-line` if a key is missing or has a wrong type.
pub(crate) fn parse_stats_line(line: &str) -> Result<StatsLine> {
    let json = json::parse(line)?;
    let number = |key: &str| match json.get(key) {
        Some(Json::Int(digits)) => digits.parse::<u64>().map_err(|_| wrong(key, "a number from 0 on")),
        _ => Err(wrong(key, "a number")),
    };
    let average = json.get("eval_stats_chunk_avg").is_some();
    let bucket = if average { None } else { Some((number("lhs_partition")?, number("rhs_partition")?)) };
    let mut stats = Vec::new();
    for key in ["stats", "eval_stats_before", "eval_stats_after", "eval_stats_chunk_avg"] {
        match json.get(key) {
            Some(value) => stats.push((key.to_owned(), averages(key, value)?)),
            None if key == "stats" && !average => return Err(wrong(key, "count and metrics")),
            None => {}
        }
    }
    Ok(StatsLine {
        epoch: number("epoch_idx")?,
        path: number("edge_path_idx")?,
        chunk: number("edge_chunk_idx")?,
        index: number("index")?,
        bucket,
        stats,
    })
}

fn wrong(key: &str, expected: &str) -> Error {
    Error::corrupt("stats-line", format!("invalid {key} in a line of training statistics")).expected(expected)
}

fn averages(key: &str, json: &Json) -> Result<Averages> {
    let wrong = || wrong(key, "an object of count and metrics, and nothing else");
    let Json::Object(pairs) = json else { return Err(wrong()) };
    let (Some(Json::Int(count)), Some(Json::Object(metrics))) = (json.get("count"), json.get("metrics"))
    else {
        return Err(wrong());
    };
    if pairs.len() != 2 {
        return Err(wrong());
    }
    let metric = |(name, value): &(String, Json)| match value {
        Json::Float(x) => Ok((name.clone(), *x)),
        Json::Int(digits) => Ok((name.clone(), digits.parse().map_err(|_| wrong())?)),
        _ => Err(wrong()),
    };
    Ok(Averages {
        count: count.parse().map_err(|_| wrong())?,
        metrics: metrics.iter().map(metric).collect::<Result<_>>()?,
    })
}

/// Reads all lines in order, in bounded memory; `take` receives each with its
/// offset. Like upstream, rejects blank lines, and accepts a last line without a line end.
///
/// # Errors
/// [`weighbridge_core::Kind::Limit`] for a line longer than [`Limits::header_bytes`], and the errors of the source.
pub(crate) fn read_stats(
    source: &SourceRef,
    limits: &Limits,
    take: &mut dyn FnMut(u64, Result<StatsLine>),
) -> Result<()> {
    let mut rest: Vec<u8> = Vec::new();
    // Bytes of `rest` searched without finding a line end.
    let mut seen = 0;
    let mut start = 0;
    let mut at = 0;
    while at < source.len() {
        let len = (source.len() - at).min(READ_BYTES);
        let old = rest.len();
        rest.resize(old + to_usize(len)?, 0);
        source.read_at(at, &mut rest[old..])?;
        at += len;
        let mut done = 0;
        while let Some(end) = memchr::memchr(b'\n', &rest[seen.max(done)..]).map(|i| i + seen.max(done)) {
            take(start + done as u64, line(&rest[done..end]));
            done = end + 1;
        }
        rest.drain(..done);
        start += done as u64;
        seen = rest.len();
        Limits::check("bytes in a line", "header_bytes", rest.len() as u64, limits.header_bytes)
            .map_err(|e| e.in_file(source.label()).at(start))?;
    }
    if !rest.is_empty() {
        take(start, line(&rest));
    }
    Ok(())
}

fn line(bytes: &[u8]) -> Result<StatsLine> {
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("the text", "UTF-8"))?;
    parse_stats_line(text)
}

/// Checks a whole file: validates every line and counts repeated ones.
///
/// # Errors
/// Like [`read_stats`].
pub(crate) fn summarise_stats(source: &SourceRef, limits: &Limits) -> Result<StatsSummary> {
    let mut summary = StatsSummary::default();
    let mut places = HashSet::new();
    let mut bad = 0u64;
    let file = source.label();
    read_stats(source, limits, &mut |offset, line| {
        summary.lines += 1;
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                bad += 1;
                // The offset within the line locates the fault, if known.
                let at = offset + error.offset().unwrap_or(0);
                if summary.findings.len() < MAX_FINDINGS
                    && let Some(finding) = Finding::from_error(&error)
                {
                    let line = summary.lines;
                    let text = weighbridge_core::phrase![format_args!("line {line}: "), finding.text];
                    summary.findings.push(Finding { text, ..finding }.in_file(file).at(at));
                }
                return;
            }
        };
        let place = (line.epoch, line.path, line.chunk, line.bucket);
        if places.contains(&place) {
            summary.repeated += 1;
        } else if places.len() < MAX_REMEMBERED {
            places.insert(place);
        }
        if line.bucket.is_some() {
            summary.last = Some(line);
        }
    })?;
    let listed = summary.findings.len() as u64;
    if bad > listed {
        let text = format!("{} further lines are invalid", bad - listed);
        summary.findings.push(Finding::error("stats-line", text).in_file(file));
    }
    if summary.repeated > 0 {
        let text = format!("{} duplicate lines: an iteration was trained again", summary.repeated);
        summary.findings.push(
            Finding::note("repeated-stats", text)
                .in_file(file)
                .hint("use the later lines: the run ended before its version was complete, and was resumed"),
        );
    }
    if places.len() == MAX_REMEMBERED {
        let text = "too many lines to check all of them for duplicates";
        summary.findings.push(Finding::unchecked("stats-not-compared", text).in_file(file));
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::finding::Severity;
    use weighbridge_io::source::MemorySource;

    const BUCKET: &str = r#"{"lhs_partition": 3, "rhs_partition": 2, "index": 9, "stats": {"count": 28, "metrics": {"loss": NaN, "reg": 0.0, "violators_lhs": Infinity}}, "eval_stats_before": {"count": 0, "metrics": {}}, "epoch_idx": 1, "edge_path_idx": 0, "edge_chunk_idx": 4}"#;
    const AVERAGE: &str = r#"{"epoch_idx": 0, "edge_path_idx": 0, "edge_chunk_idx": 0, "index": 0, "eval_stats_chunk_avg": {"count": 26, "metrics": {"loss": 393, "auc": 0.5}}}"#;

    fn summary(text: &str) -> StatsSummary {
        let source: SourceRef = Arc::new(MemorySource::new("stats", text.into()));
        summarise_stats(&source, &Limits::default()).unwrap()
    }

    #[test]
    fn parses_both_kinds_of_lines() {
        let line = parse_stats_line(BUCKET).unwrap();
        assert_eq!((line.epoch, line.path, line.chunk, line.index, line.bucket), (1, 0, 4, 9, Some((3, 2))));
        assert_eq!(line.stats[0].1.count, 28);
        assert!(line.stats[0].1.metrics[0].1.is_nan() && line.stats[0].1.metrics[2].1.is_infinite());
        assert_eq!(line.stats[1], ("eval_stats_before".into(), Averages { count: 0, metrics: vec![] }));
        let line = parse_stats_line(AVERAGE).unwrap();
        assert_eq!((line.bucket, line.stats.len()), (None, 1));
        assert_eq!(line.stats[0].1.metrics[0], ("loss".into(), 393.0));
    }

    #[test]
    fn rejects_invalid_lines() {
        for (from, to) in [
            ("\"index\": 9", "\"index\": -1"),
            ("\"index\": 9, ", ""),
            ("\"lhs_partition\": 3", "\"lhs_partition\": 3.0"),
            ("\"count\": 28", "\"count\": null"),
            ("\"count\": 28", "\"count\": 28, \"more\": 1"),
            ("\"reg\": 0.0", "\"reg\": \"x\""),
            ("\"stats\"", "\"statistics\""),
        ] {
            let line = BUCKET.replacen(from, to, 1);
            assert_ne!(line, BUCKET);
            assert_eq!(parse_stats_line(&line).unwrap_err().code().as_str(), "stats-line", "{line}");
        }
        assert_eq!(parse_stats_line("").unwrap_err().code().as_str(), "not-json");
    }

    #[test]
    fn summarizes_a_file() {
        let found = summary(&format!("{BUCKET}\n{AVERAGE}\n{BUCKET}"));
        assert_eq!((found.lines, found.repeated), (3, 1));
        assert_eq!(found.last.unwrap().index, 9);
        let codes: Vec<_> = found.findings.iter().map(|f| (f.code.as_str(), f.severity)).collect();
        assert_eq!(codes, [("repeated-stats", Severity::Note)]);
        let found = summary(&format!("{AVERAGE}\nx\n\n{BUCKET}\n"));
        let places: Vec<_> = found.findings.iter().map(|f| (f.code.as_str(), f.offset)).collect();
        let first = AVERAGE.len() as u64 + 1;
        assert_eq!(places, [("not-json", Some(first)), ("not-json", Some(first + 2))]);
        assert_eq!((found.lines, found.repeated), (4, 0));
        assert_eq!(summary("x\n".repeat(100).as_str()).findings.len(), MAX_FINDINGS + 1);
        assert_eq!(summary(""), StatsSummary::default());
    }

    #[test]
    fn rejects_an_overlong_line() {
        let source: SourceRef = Arc::new(MemorySource::new("stats", vec![b'x'; 3 << 20]));
        let limits = Limits { header_bytes: 1 << 20, ..Limits::default() };
        assert_eq!(summarise_stats(&source, &limits).unwrap_err().code().as_str(), "limit");
    }

    #[test]
    fn reads_lines_across_window_boundaries() {
        let many = format!("{BUCKET}\n").repeat(10_000);
        let found = summary(&many);
        assert_eq!((found.lines, found.repeated, found.findings.len()), (10_000, 9_999, 1));
    }
}
