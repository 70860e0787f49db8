//! `convert`, `edit`, `shard` and `merge`: verbs that write models.

use super::given::{Given, Writing};
use super::{Answer, answer, code_of, encoded, worded};
use crate::work::Interrupted::Stops;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::Path;
use std::sync::Arc;
use weighbridge::OpenOptions;
use weighbridge::engine::patch::{LocalPatchDisk, Patch};
use weighbridge::formats::biggraph::{AddEntities, InitEmbeddings, WithGlobal};
use weighbridge::formats::registry;
use weighbridge::ops::edit::{
    EditOptions, InPlace, Rule, RuleOptions, prepare as prepare_edit, prepare_in_place, read_rules,
    undone_document, write, write_in_place,
};
use weighbridge::ops::merge::{Same, merge as join};
use weighbridge::ops::shard::shard as cut;
use weighbridge::ops::{Changes, ConvertOptions, Written, prepare, save, values};
use weighbridge::tensor::Rounding;
use weighbridge::text::path_text;

impl Writing {
    /// Options of a conversion without changes.
    fn options(self, open: OpenOptions) -> ConvertOptions {
        ConvertOptions {
            open,
            to: self.to,
            kind: self.kind,
            settings: self.settings,
            deny_loss: self.deny_loss,
            force: self.force,
            run: self.run,
            ..ConvertOptions::default()
        }
    }

    /// True if missing tensors do not count as a loss.
    fn is_content(&self) -> bool {
        self.plan || self.allow_loss
    }
}

/// Converts a model to another format.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn convert<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "convert", given);
    let (source, target) = (given.needed("source")?, given.needed("target")?);
    let (opening, writing) = (given.opening()?, given.writing()?);
    let rounding = given.parsed("rounding", values::rounding)?.unwrap_or(Rounding::default());
    if rounding != Rounding::default() && !given.has("cast")? {
        return Err(given.missing("cast"));
    }
    given.requires("repeat", "draw")?;
    let (grow, seed) = (given.pairs("grow")?, given.number("seed", ..)?.unwrap_or(0));
    let (draw, repeat, with_global) =
        (given.flag("draw")?, given.flag("repeat")?, given.flag("with_global")?);
    let (rules, metadata) = (given.paths("rules")?, given.texts("set_metadata")?);
    let mut changes = Changes {
        select: given.texts("select")?,
        drop: given.texts("drop")?,
        no_state: given.flag("no_state")?,
        lenient_rules: given.flag("lenient_rules")?,
        rename: given.texts("rename")?,
        cast: given.parsed("cast", values::cast_target)?,
        rounding,
        reverse_dims: given.flag("reverse_dims")?,
        ..Changes::default()
    };
    let (plain, copy_others) = (given.flag("plain")?, given.flag("copy_others")?);
    let like = given.path("like")?;
    let all_versions = given.one_of("versions", &[("current", false), ("all", true)])?.unwrap_or(false);
    answer(&given, progress, Stops, move |watcher| {
        let open = opening.options()?;
        if draw {
            changes.first.push(Arc::new(InitEmbeddings { seed, repeat }));
        }
        for (entity, file) in &grow {
            changes.first.push(Arc::new(AddEntities::read(entity, Path::new(file), seed, &open.limits)?));
        }
        if with_global {
            changes.first.push(Arc::new(WithGlobal));
        }
        for file in &rules {
            changes.rules.extend(read_rules(file)?);
        }
        if !metadata.is_empty() {
            changes.rules.extend(Rule::parse("set-metadata", &metadata)?);
        }
        let (is_planned, is_content) = (writing.plan, writing.is_content());
        let mut options =
            ConvertOptions { plain, like, copy_others, changes, seed, all_versions, ..writing.options(open) };
        options.run.progress = watcher.clone();
        let (plan, notes) = prepare(&source, &target, &options)
            .map_err(|error| registry().offer_salvage(error, &source, &options.open))?;
        let report = match is_planned {
            true => None,
            false => Some(save(&plan, &target, options.force, &options.run)?),
        };
        drop(options);
        let code = code_of(&plan.losses, is_content);
        encoded(&worded("convert", Written { target: path_text(&target), plan, notes, report }), code)
    })
}

/// Edits names, dtypes, shapes and metadata by rules.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn edit<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "edit", given);
    const CHANGES: [&str; 24] = [
        "rules",
        "keep",
        "drop",
        "no_state",
        "strip_prefix",
        "rename",
        "rename_glob",
        "rename_regex",
        "prefix",
        "transpose",
        "cast",
        "tie",
        "untie",
        "set_metadata",
        "remove_metadata",
        "lenient_rules",
        "to",
        "kind",
        "set",
        "plan",
        "allow_loss",
        "deny_loss",
        "force",
        "no_sync",
    ];
    given.excludes("undo", &["target", "in_place", "forget_undo"])?;
    given.excludes("forget_undo", &["target", "in_place"])?;
    given.excludes("undo", &CHANGES)?;
    given.excludes("forget_undo", &CHANGES)?;
    given.excludes("in_place", &["target", "to", "kind", "force"])?;
    let (source, target) = (given.needed("source")?, given.path("target")?);
    let in_place = given.in_place()?;
    let (is_undone, is_forgotten) = (given.flag("undo")?, given.flag("forget_undo")?);
    if target.is_none() && in_place.is_none() && !is_undone && !is_forgotten {
        return Err(given.missing("target"));
    }
    let (opening, writing) = (given.opening()?, given.writing()?);
    let rules = RuleOptions {
        files: given.paths("rules")?,
        keep: given.texts("keep")?,
        drop: given.texts("drop")?,
        no_state: given.flag("no_state")?,
        strip_prefix: given.texts("strip_prefix")?,
        rename: given.texts("rename")?,
        rename_glob: given.texts("rename_glob")?,
        rename_regex: given.texts("rename_regex")?,
        prefix: given.text("prefix")?,
        transpose: given.texts("transpose")?,
        cast: given.texts("cast")?,
        tie: given.texts("tie")?,
        untie: given.texts("untie")?,
        set_metadata: given.texts("set_metadata")?,
        remove_metadata: given.texts("remove_metadata")?,
    };
    let lenient = given.flag("lenient_rules")?;
    answer(&given, progress, Stops, move |watcher| {
        if is_undone {
            let bytes = Patch::undo(&LocalPatchDisk, &source)?;
            return encoded(&undone_document(&source, "undo", bytes), 0);
        }
        if is_forgotten {
            Patch::forget(&LocalPatchDisk, &source)?;
            return encoded(&undone_document(&source, "forget-undo", 0), 0);
        }
        let (is_planned, is_content, threads) = (writing.plan, writing.is_content(), writing.run.threads);
        let mut options = EditOptions {
            open: opening.options()?,
            rules: rules.rules()?,
            lenient,
            to: writing.to,
            kind: writing.kind,
            settings: writing.settings,
            deny_loss: writing.deny_loss,
            force: writing.force,
            run: writing.run,
        };
        options.run.progress = watcher.clone();
        let (edit, patch) = match (target, in_place) {
            (Some(target), None) => {
                let mut prepared = prepare_edit(&source, &target, &options)?;
                if is_planned {
                    prepared.measure_casts(threads)?;
                } else {
                    write(&mut prepared, &target, &options)?;
                }
                (prepared, None)
            }
            (_, how) => {
                let mut prepared = prepare_in_place(&source, how.unwrap_or(InPlace::Header), &options)?;
                if is_planned {
                    prepared.edit.measure_casts(threads)?;
                } else {
                    write_in_place(&mut prepared, &source, &options)?;
                }
                (prepared.edit, prepared.patch)
            }
        };
        drop(options);
        let report = worded("edit", edit.report);
        let code = code_of(&report.losses, is_content);
        encoded(&report.document(patch.as_ref(), !is_planned), code)
    })
}

/// Splits a model into safetensors shards with an index.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn shard<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "shard", given);
    let (source, target) = (given.needed("source")?, given.needed("target")?);
    let (opening, mut writing) = (given.opening()?, given.writing()?);
    let size = given.text("max_shard_size")?.unwrap_or_else(|| "5GB".to_owned());
    if writing.to.take().is_some_and(|to| to != "safetensors") || writing.kind.is_some() {
        let error = weighbridge::Error::usage("bad-arguments", "shards are always safetensors files");
        return Err(given.raise(error.hint("omit to and kind; use weighbridge.convert for other formats")));
    }
    answer(&given, progress, Stops, move |watcher| {
        let (is_planned, is_content) = (writing.plan, writing.is_content());
        let mut options = writing.options(opening.options()?);
        options.run.progress = watcher.clone();
        let prepared = worded("shard", cut(&source, &target, &size, &options)?);
        let bytes = if is_planned { prepared.plan.bytes() } else { prepared.write(&target, &options)? };
        let code = code_of(&prepared.plan.losses, is_content);
        encoded(&prepared.to_json(&target, !is_planned, bytes), code)
    })
}

/// Joins several files, or the shards of a model, into one.
#[pyfunction]
#[pyo3(signature = (*, progress=None, **given))]
pub(crate) fn merge<'py>(
    py: Python<'py>,
    progress: Option<&Bound<'py, PyAny>>,
    given: Option<&Bound<'py, PyDict>>,
) -> Answer<'py> {
    let given = Given::new(py, "merge", given);
    let (sources, target) = (given.paths("sources")?, given.needed("output")?);
    if sources.is_empty() {
        return Err(given.missing("sources"));
    }
    let (opening, writing) = (given.opening()?, given.writing()?);
    given.excludes("prefer", &["prefix_each"])?;
    let prefer = given.one_of("prefer", &[("first", Same::First), ("last", Same::Last)])?;
    let otherwise = if given.flag("prefix_each")? { Same::Prefix } else { Same::Refuse };
    answer(&given, progress, Stops, move |watcher| {
        let (is_planned, is_content) = (writing.plan, writing.is_content());
        let mut options = writing.options(opening.options()?);
        options.run.progress = watcher.clone();
        let prepared = worded("merge", join(&sources, &target, prefer.unwrap_or(otherwise), &options)?);
        let bytes = match is_planned {
            true => prepared.plan.bytes(),
            false => save(&prepared.plan, &target, options.force, &options.run)?.bytes,
        };
        let code = code_of(&prepared.plan.losses, is_content);
        encoded(&prepared.to_json(&sources, &target, !is_planned, bytes), code)
    })
}
