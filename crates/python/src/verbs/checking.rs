//! `verify`, `scan`, `diff` and `seal`: integrity, safety, differences, and checksum manifests.

use super::given::Given;
use super::{Answer, answer, encoded, worded};
use crate::wording::words;
use crate::work::Interrupted::{IsLeft, Stops};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use weighbridge::engine::LocalSink;
use weighbridge::finding::Verdict;
use weighbridge::json::tree;
use weighbridge::ops::diff::{DiffOptions, Tolerance, diff as compare};
use weighbridge::ops::edit::read_rules;
use weighbridge::ops::scan::{Rule, ScanReport, sarif_of_all, scan as scan_file};
use weighbridge::ops::seal::{Manifest, SealOptions, seal as hash, verify_sealed};
use weighbridge::ops::several::{Counts, Worst, of_all, unread};
use weighbridge::ops::values;
use weighbridge::ops::verify::{VerifyOptions, verify as check};
use weighbridge::phrase::Worded;
use weighbridge::text::path_text;
use weighbridge::{Error, Result};

/// Document for one path, or a list for several, with the exit code of the worst. With several paths, an unreadable one does
/// not stop the others: its error is also added to `failed`.
fn check_each(
    verb: &'static str,
    paths: &[PathBuf],
    failed: &mut Vec<(PathBuf, Error)>,
    mut check: impl FnMut(&Path) -> Result<(Json, Verdict)>,
) -> Result<(Json, u8)> {
    if let [path] = paths {
        let (document, verdict) = check(path)?;
        return Ok((document, Worst::from(verdict).code()));
    }
    let (mut documents, mut counts) = (Vec::new(), Counts::default());
    for path in paths {
        let checked = check(path).map_err(|error| error.worded(&words(Some(verb))));
        counts.add(&checked.as_ref().map(|(_, verdict)| *verdict))?;
        documents.push(match checked {
            Ok((document, _)) => document,
            Err(error) => {
                let document = unread(&path_text(path), &error);
                failed.push((path.clone(), error.in_file(path_text(path))));
                document
            }
        });
    }
    Ok((of_all(documents), counts.worst(paths.len()).code()))
}

/// Checks the integrity of files.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn verify<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "verify", given);
    let (paths, opening) = (given.several("paths")?, given.opening()?);
    given.requires("tensors_only", "manifest")?;
    let (values, deny_nonfinite) = (given.flag("values")?, given.flag("deny_nonfinite")?);
    let (account, threads) = (given.flag("account")?, given.threads()?);
    let (manifest, tensors_only) = (given.path("manifest")?, given.flag("tensors_only")?);
    answer(&given, progress, IsLeft, move |watcher| {
        let options = VerifyOptions { open: opening.options()?, values, deny_nonfinite, threads };
        let several =
            Error::usage("several-paths", "a manifest covers one file or folder, but several are named");
        if manifest.is_some() && paths.len() > 1 {
            let hint = "verify each with its own manifest, or seal and verify their folder";
            return Err(several.found(paths.len()).hint(hint));
        }
        let (document, code) = check_each("verify", &paths, &mut Vec::new(), |path| {
            let (report, sealed) = match &manifest {
                Some(manifest) => {
                    let (report, checked) =
                        verify_sealed(path, manifest, &options, tensors_only, watcher.clone())?;
                    (report, Some(checked))
                }
                None => (check(path, &options)?, None),
            };
            let report = worded("verify", report);
            Ok((tree(&report.as_json_with(account, sealed.as_ref())), report.verdict))
        })?;
        encoded(&document, code)
    })
}

/// Finds code that loading a file elsewhere would run.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn scan<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "scan", given);
    let (paths, opening, sarif) = (given.several("paths")?, given.opening()?, given.flag("sarif")?);
    let deny = given.listed("deny", values::category)?;
    answer(&given, None, IsLeft, move |_| {
        let options = opening.options()?;
        let (mut reports, mut failed): (Vec<ScanReport>, _) = (Vec::new(), Vec::new());
        let (mut document, code) = check_each("scan", &paths, &mut failed, |path| {
            let mut report = worded("scan", scan_file(path, &options)?);
            report.deny(&deny);
            let answer = (report.to_json(), report.verdict);
            if sarif {
                reports.push(report);
            }
            Ok(answer)
        })?;
        if sarif {
            document["sarif"] = match reports.as_slice() {
                [report] if failed.is_empty() => report.to_sarif(),
                reports => sarif_of_all(reports, &failed),
            };
        }
        encoded(&document, code)
    })
}

/// Rules of `scan`.
#[pyfunction]
pub(crate) fn scan_rules(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    crate::values::json(py, &Rule::ALL.iter().map(Rule::to_json).collect::<Json>())
}

/// Compares two files: differences and their size.
#[pyfunction]
#[pyo3(signature = (**given))]
pub(crate) fn diff<'py>(py: Python<'py>, given: Option<&Bound<'py, PyDict>>) -> Answer<'py> {
    let given = Given::new(py, "diff", given);
    let (left, right) = (given.needed("left")?, given.needed("right")?);
    given.excludes("metadata", &["no_metadata"])?;
    given.excludes("names_only", &["atol", "rtol"])?;
    let (opening, opening_right) = (given.opening()?, given.opening_right()?);
    let mut options = DiffOptions::default();
    options.select = given.texts("select")?;
    options.drop = given.texts("drop")?;
    options.lenient_rules = given.flag("lenient_rules")?;
    options.rename = given.texts("rename")?;
    options.rename_regex = given.texts("rename_regex")?;
    options.ignore_dtype = given.flag("ignore_dtype")?;
    options.no_state = given.flag("no_state")?;
    options.no_metadata = given.flag("no_metadata")?;
    options.metadata = given.flag("metadata")?;
    options.names_only = given.flag("names_only")?;
    options.threads = given.threads()?;
    options.memory = given.size("memory")?;
    options.tolerance = tolerance(&given)?;
    let (rules, all, markdown) = (given.paths("rules")?, given.flag("all")?, given.flag("markdown")?);
    answer(&given, None, IsLeft, move |_| {
        options.left = opening.options()?;
        options.right = opening_right.options()?;
        for file in &rules {
            options.rules.extend(read_rules(file)?);
        }
        let report = worded("diff", compare(&left, &right, &options)?);
        let worst = match (report.is_different(), report.is_same()) {
            (true, _) => Worst::Unsound,
            (_, false) => Worst::CouldNotTell,
            _ => Worst::Sound,
        };
        encoded(&report.as_json_with(all, markdown), worst.code())
    })
}

fn tolerance(given: &Given<'_>) -> PyResult<Option<Tolerance>> {
    let one = |name: &'static str| {
        let value: Option<f64> = given.number(name, ..)?;
        match value.filter(|x| x.is_nan() || *x < 0.0) {
            Some(bad) => {
                let error = Error::usage("bad-tolerance", format!("{name} must be 0 or more"));
                Err(given.raise(error.found(bad)))
            }
            None => Ok(value),
        }
    };
    let (atol, rtol) = (one("atol")?, one("rtol")?);
    let asked = atol.is_some() || rtol.is_some();
    Ok(asked.then(|| Tolerance { absolute: atol.unwrap_or(0.0), relative: rtol.unwrap_or(0.0) }))
}

/// Writes a manifest of the hashes of files and tensors.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn seal<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "seal", given);
    let (path, opening, output) = (given.needed("path")?, given.opening()?, given.path("output")?);
    let mut options = SealOptions::default();
    options.algorithms = given.parsed("algorithms", values::algorithms)?.unwrap_or(options.algorithms);
    options.files_only = given.flag("files_only")?;
    options.allow_symlinks = given.flag("allow_symlinks")?;
    options.threads = given.threads()?;
    let force = given.flag("force")?;
    answer(&given, progress, Stops, move |watcher| {
        let target = match output {
            Some(output) => output,
            None => Manifest::default_path(&path)?,
        };
        options.open = opening.options()?;
        // Fails before any reading.
        LocalSink::check(&target, force)?;
        options.target = Some(target.clone());
        options.progress = watcher.clone();
        let algorithms = options.algorithms;
        let sealed = worded("seal", hash(&path, &options)?);
        drop(options);
        sealed.save(&target, force)?;
        let code = u8::from(sealed.is_of_damaged());
        encoded(&sealed.to_json(&path, &target, algorithms), code)
    })
}
