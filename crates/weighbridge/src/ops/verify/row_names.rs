//! Check of row names: readability, and their number.

use crate::checkpoint::{RowNames, RowNamesRef, TensorEntry, check_count};
use crate::error::Result;
use crate::finding::Finding;
use crate::ops::parallel;
use crate::text::counted;
use std::collections::HashSet;
use std::sync::Arc;
use weighbridge_core::phrase::Opt;
use weighbridge_core::{ErrorCode, phrase};

/// Row names of up to this total size are always read; more of them together with the values.
const ALWAYS_READ_BYTES: u64 = 16 << 20;

/// Row names of one table.
struct Job<'a> {
    table: &'a TensorEntry,
    row_names: &'a RowNamesRef,
}

/// Reads the row names of `tables`, each list once: short lists, lists of tables for which `is_read` is true, and all lists if
/// `all` is true. `None` where there are none.
///
/// # Errors
/// [`crate::Kind::Io`] where they cannot be read.
pub(super) fn row_names(
    tables: &[&TensorEntry],
    all: bool,
    is_read: impl Fn(&TensorEntry) -> bool,
    threads: usize,
) -> Result<Option<Vec<Finding>>> {
    let mut seen = HashSet::new();
    let named = tables.iter().filter_map(|&table| Some(Job { table, row_names: table.row_names.as_ref()? }));
    let named: Vec<Job> = named.filter(|job| seen.insert(Arc::as_ptr(job.row_names).cast::<()>())).collect();
    if named.is_empty() {
        return Ok(None);
    }
    let (mut budget, count) = (ALWAYS_READ_BYTES, named.len());
    let wanted = named.into_iter().filter(|job| {
        let bytes = bytes(&**job.row_names);
        let fits = bytes <= budget;
        budget -= if fits { bytes } else { 0 };
        all || fits || is_read(job.table)
    });
    let wanted: Vec<Job> = wanted.collect();
    let unread = count - wanted.len();
    let workers = parallel::workers(threads, wanted.len() as u64);
    let look = |found: &mut Vec<(usize, Finding)>, number: usize, job: Job| {
        // Checksum errors were reported before.
        if let Err(error) = whole(&job)
            && error.code() != ErrorCode::CrcMismatch
        {
            let finding = super::finding(error)?;
            found.push((number, finding.on_tensor(job.table.name())));
        }
        Ok(())
    };
    let mut found: Vec<_> =
        parallel::each(wanted.into_iter(), workers, look)?.into_iter().flatten().collect();
    found.sort_by_key(|(number, _)| *number);
    let mut findings: Vec<_> = found.into_iter().map(|(_, finding)| finding).collect();
    if unread > 0 {
        let of = counted(unread, "table was", "tables were");
        let text = format!("the row names of {of} not read");
        findings.push(Finding::note("names-not-read", text).hint(phrase![Opt::Values, " reads them too"]));
    }
    Ok(Some(findings))
}

/// Returns an upper bound of their size in files.
fn bytes(labels: &dyn RowNames) -> u64 {
    let kept = labels.tensors();
    if kept.is_empty() {
        labels.sources().iter().map(|source| source.len()).fold(0, u64::saturating_add)
    } else {
        kept.iter().map(|tensor| tensor.bytes()).fold(0, u64::saturating_add)
    }
}

fn whole(job: &Job) -> Result<()> {
    let mut names = 0;
    job.row_names.each(&mut |part| {
        names += part.len() as u64;
        Ok(())
    })?;
    check_count(&**job.row_names, names, job.table.shape.dims().first().copied().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)]

    use super::super::{VerifyOptions, verify, verify_checkpoint};
    use crate::checkpoint::{Checkpoint, MemoryRowNames, RowNameList, RowNames};
    use crate::error::{Error, Result};
    use crate::finding::Verdict;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::DType;
    use std::sync::Arc;

    /// Names that cannot be read, in a file of so many bytes.
    #[derive(Debug)]
    struct Bad(usize);

    impl RowNames for Bad {
        fn label(&self) -> &'static str {
            "names"
        }
        fn read(&self) -> Result<Arc<RowNameList>> {
            Err(Error::corrupt("bad-names", "they are no names"))
        }
        fn sources(&self) -> Vec<SourceRef> {
            vec![Arc::new(MemorySource::new("names", vec![0; self.0]))]
        }
    }

    #[test]
    fn short_lists_are_read_always_and_all_with_the_values() {
        let reported = |labels: Arc<dyn RowNames>, values: bool| {
            let source: SourceRef = Arc::new(MemorySource::new("m", vec![1; 8]));
            let mut table = crate::check::testing::tensor("t", DType::U8, &[4, 2], &source, 0);
            table.row_names = Some(labels);
            let mut checkpoint = Checkpoint::new("none", "none", "m");
            // A list of two tables is reported once.
            checkpoint.tensors = vec![table.clone(), table];
            let report =
                verify_checkpoint(&checkpoint, &VerifyOptions { values, ..VerifyOptions::default() })
                    .unwrap();
            assert!(report.checked.contains(&"row-names"));
            let found = report.findings.iter().map(|f| f.code.as_str());
            found.filter(|code| code.contains("names")).map(str::to_owned).collect::<Vec<_>>()
        };
        let names = |names: &[&str]| MemoryRowNames::shared("n", names.iter().copied().collect());
        let none = [""; 0];
        assert_eq!(reported(names(&["a", "b", "c", "d"]), false), none);
        assert_eq!(reported(names(&["a", "b", "c"]), false), ["names-differ"]);
        assert_eq!(reported(Arc::new(Bad(1000)), false), ["bad-names"]);
        assert_eq!(reported(Arc::new(Bad((16 << 20) + 1)), false), ["names-not-read"]);
        assert_eq!(reported(Arc::new(Bad((16 << 20) + 1)), true), ["bad-names"]);
    }

    #[test]
    fn damaged_names_are_not_sound_in_any_form() {
        let dir = tempfile::tempdir().unwrap();
        let golden = weighbridge_testkit::testdata("tables/export_std.tsv");
        let first =
            crate::formats::open(&golden).unwrap().tensors[0].row_names.clone().unwrap().read().unwrap();
        let name = first.get(0).unwrap().as_bytes();
        for target in ["a.safetensors", "a.npz", "a.pt", "a.h5", "a.arrow", "a.tsv", "a.vec"] {
            let path = dir.path().join(target);
            let options = crate::ops::ConvertOptions::default();
            crate::ops::convert(&golden, &path, &options).unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            // Not UTF-8 any more.
            let at = bytes.windows(name.len()).rposition(|part| part == name).unwrap();
            bytes[at] = 0xff;
            std::fs::write(&path, bytes).unwrap();
            let report = verify(&path, &VerifyOptions::default()).unwrap();
            assert_ne!(report.verdict, Verdict::Sound, "{target}: {:?}", report.findings);
        }
    }
}
