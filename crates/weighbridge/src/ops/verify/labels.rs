//! The names of rows: whether they can be read, and are as many as the rows.

use crate::checkpoint::{Labels, LabelsRef, TensorEntry, check_count};
use crate::error::Result;
use crate::finding::Finding;
use crate::ops::parallel;
use crate::text::counted;
use std::collections::HashSet;
use std::sync::Arc;

/// Names of so many bytes together are read whoever asks; more of them with the values.
const FREE: u64 = 16 << 20;

/// The names of one table.
struct Job<'a> {
    table: &'a TensorEntry,
    labels: &'a LabelsRef,
}

/// Reads the names of the rows of `tables`, each list once: those that are few, those of tables of which
/// `is_read` says that they are read anyway, and where `all` is true all of them. `None` where there are none.
///
/// # Errors
/// [`crate::Kind::Io`] where they cannot be read.
pub(super) fn labels(
    tables: &[&TensorEntry],
    all: bool,
    is_read: impl Fn(&TensorEntry) -> bool,
    threads: usize,
) -> Result<Option<Vec<Finding>>> {
    let mut seen = HashSet::new();
    let named = tables.iter().filter_map(|&table| Some(Job { table, labels: table.labels.as_ref()? }));
    let named: Vec<Job> = named.filter(|job| seen.insert(Arc::as_ptr(job.labels).cast::<()>())).collect();
    if named.is_empty() {
        return Ok(None);
    }
    let (mut free, count) = (FREE, named.len());
    let wanted = named.into_iter().filter(|job| {
        let bytes = bytes(&**job.labels);
        let fits = bytes <= free;
        free -= if fits { bytes } else { 0 };
        all || fits || is_read(job.table)
    });
    let wanted: Vec<Job> = wanted.collect();
    let unread = count - wanted.len();
    let workers = parallel::workers(threads, wanted.len() as u64);
    let look = |found: &mut Vec<(usize, Finding)>, number: usize, job: Job| {
        // The checksum was met before, and is no news.
        if let Err(error) = whole(&job)
            && error.code() != "crc-mismatch"
        {
            let finding = super::finding(error)?;
            found.push((number, finding.on_tensor(job.table.name())));
        }
        Ok(())
    };
    let mut found: Vec<_> = parallel::each(wanted.into_iter(), workers, look)?.into_iter().flatten().collect();
    found.sort_by_key(|(number, _)| *number);
    let mut findings: Vec<_> = found.into_iter().map(|(_, finding)| finding).collect();
    if unread > 0 {
        let of = counted(unread, "table was", "tables were");
        let text = format!("the names of the rows of {of} not read");
        findings.push(Finding::note("names-not-read", text).hint("--values reads them too"));
    }
    Ok(Some(findings))
}

/// How many bytes of files they stand in, at most.
fn bytes(labels: &dyn Labels) -> u64 {
    let kept = labels.tensors();
    if kept.is_empty() {
        labels.sources().iter().map(|source| source.len()).fold(0, u64::saturating_add)
    } else {
        kept.iter().map(|tensor| tensor.bytes()).fold(0, u64::saturating_add)
    }
}

fn whole(job: &Job) -> Result<()> {
    let mut names = 0;
    job.labels.each(&mut |part| {
        names += part.len() as u64;
        Ok(())
    })?;
    check_count(&**job.labels, names, job.table.shape.dims().first().copied().unwrap_or(1))
}
