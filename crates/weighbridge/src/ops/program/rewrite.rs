//! Display of a program, or changes to it, written together with its parameters.

use crate::checkpoint::{Checkpoint, Loss};
use crate::engine::{LocalSink, RunOptions};
use crate::error::Result;
use crate::formats::paddle::{self, Strip, StripReport};
use crate::formats::{OpenOptions, registry};
use crate::ops::{ConvertOptions, Inputs, plan_checkpoint, save};
use crate::phrase::{Face, Worded};
use crate::plan::{FileBuilder, WritePlan};
use crate::source::real_path;
use crate::text::path_text;
use crate::topology::Topology;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Text form of a complete program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Blocks, variables and operators, one line each.
    List,
    /// A graph for Graphviz.
    Dot,
    /// The text form of protobuf.
    Text,
    /// Operator types: count, and whether they can be exported to ONNX.
    #[cfg(feature = "onnx")]
    Operators,
}

impl Form {
    /// Returns the program in this form.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for a program without that form.
    pub fn of(self, topology: &Topology) -> Result<String> {
        match self {
            Self::List => Ok(super::listing(topology)),
            Self::Dot => Ok(super::to_dot(topology)),
            Self::Text => paddle::Program::of(topology)?.to_text(),
            #[cfg(feature = "onnx")]
            Self::Operators => Ok(super::operators::operators(topology)),
        }
    }
}

/// Returns the document of the program of `checkpoint`: `path`, `format`, `kind`, `summary`, `program`, and `text` in `form`.
///
/// # Errors
/// As [`super::of`] and [`Form::of`].
pub fn document(checkpoint: &Checkpoint, form: Option<Form>) -> Result<Json> {
    let topology = super::of(checkpoint)?;
    let mut document = json!({
        "path": checkpoint.label,
        "format": checkpoint.format,
        "kind": checkpoint.kind,
        "summary": super::summary(topology).to_json(),
        "program": super::to_json(topology),
    });
    if let Some(form) = form {
        document["text"] = json!(form.of(topology)?);
    }
    Ok(document)
}

/// Options of [`rewrite`].
#[derive(Debug, Clone, Default)]
pub struct RewriteOptions {
    /// New names of variables.
    pub names: BTreeMap<String, String>,
    /// The parts to remove.
    pub strip: Strip,
    /// Write only the changed program in this form, without the model.
    pub form: Option<Form>,
    /// Values of the format's settings, by name.
    pub settings: Vec<(String, String)>,
    /// Replace the target if it exists.
    pub force: bool,
    /// The options with which the source was opened.
    pub open: OpenOptions,
    /// Threads, memory and progress.
    pub run: RunOptions,
}

/// Program and model that [`rewrite`] changed and wrote.
#[derive(Debug)]
pub struct Rewritten {
    /// The target.
    pub target: String,
    /// The plan of all files.
    pub plan: WritePlan,
    /// Total bytes of all files.
    pub bytes: u64,
    /// The removed parts; `None` where only the program was written as text.
    pub removed: Option<Removed>,
}

/// Parts removed from a model and its program.
#[derive(Debug, Clone, Default)]
pub struct Removed {
    /// The parts of the program.
    pub program: StripReport,
    /// The number of tensors.
    pub tensors: usize,
}

impl Rewritten {
    /// Returns `path`, `format`, `kind`, `bytes`, and for a model `files`, `removed` and `losses`.
    pub fn to_json(&self) -> Json {
        let mut json = json!({
            "path": self.target, "format": self.plan.format, "kind": self.plan.kind, "bytes": self.bytes,
        });
        if let Some(Removed { program, tensors }) = &self.removed {
            json["files"] =
                self.plan.files.iter().map(|f| json!({ "name": f.name, "bytes": f.len })).collect::<Json>();
            json["removed"] = json!({
                "attributes": program.attributes,
                "attribute_bytes": program.attribute_bytes,
                "operators": program.operators,
                "variables": program.variables,
                "tensors": tensors,
            });
            json["losses"] = self.plan.losses.iter().map(Loss::to_json).collect::<Json>();
        }
        json
    }
}

impl Worded for Rewritten {
    fn word(&mut self, face: Face<'_>) {
        self.plan.word(face);
    }
}

/// Changes the program of `checkpoint`, which was opened at `source`, and writes it to `target` with its parameters.
///
/// # Errors
/// Errors of changing, planning and writing; [`crate::Kind::Mismatch`] where there is no program.
pub fn rewrite(
    checkpoint: &mut Checkpoint,
    source: &Path,
    target: &Path,
    options: &RewriteOptions,
) -> Result<Rewritten> {
    LocalSink::check(target, options.force)?;
    super::of(checkpoint)?;
    let inputs = Inputs::of(checkpoint, target).and_named(&options.open)?;
    let tensors = checkpoint.tensors.len();
    if !options.names.is_empty() {
        paddle::rename(checkpoint, &options.names)?;
    }
    let what = &options.strip;
    let report = if what.is_nothing() { StripReport::default() } else { paddle::strip(checkpoint, what)? };
    let removed = tensors - checkpoint.tensors.len();
    if let Some(form) = options.form {
        let mut file = FileBuilder::new("");
        file.literal(form.of(super::of(checkpoint)?)?);
        let plan =
            WritePlan { format: "text", kind: "program", files: vec![file.finish()], losses: Vec::new() };
        inputs.check_apart(target)?;
        let written = save(&plan, target, options.force, &RunOptions::default())?;
        return Ok(Rewritten { target: path_text(target), plan, bytes: written.bytes, removed: None });
    }
    // The name of the target decides whether only the program is written.
    let kind = registry()
        .by_extension(target)
        .ok()
        .map(|(_, kind)| kind.to_owned())
        .or_else(|| alone(checkpoint, target));
    let kind = kind.or_else(|| for_inference(checkpoint, what));
    let writing = ConvertOptions {
        settings: options.settings.clone(),
        force: options.force,
        run: options.run.clone(),
        ..ConvertOptions::default()
    };
    let plan = plan_checkpoint(checkpoint.clone(), registry().by_id(checkpoint.format)?, kind, &writing)?;
    // A program may replace itself where the files beside it still fit.
    let fits = options.names.is_empty() && removed == 0 && report.variables.is_empty();
    if !fits || real_path(source) != real_path(target) {
        inputs.check(source, target, &plan)?;
    }
    let written = save(&plan, target, options.force, &writing.run)?;
    let removed = Some(Removed { program: report, tensors: removed });
    Ok(Rewritten { target: path_text(target), plan, bytes: written.bytes, removed })
}

/// Returns the kind of a program alone: for a checkpoint without tensors, or a target that ends in `.json`.
fn alone(checkpoint: &Checkpoint, target: &Path) -> Option<String> {
    let json = target.extension().is_some_and(|e| e == "json");
    let lone = matches!(checkpoint.kind, "program" | "pir");
    let pir = checkpoint.topology.as_ref().is_some_and(|t| t.form == paddle::Paddle::FORM_PIR);
    (lone || json).then(|| if pir { "pir" } else { "program" }.to_owned())
}

/// Returns the kind `inference` for a model with outputs whose training parts were removed.
fn for_inference(checkpoint: &Checkpoint, what: &Strip) -> Option<String> {
    let outputs = checkpoint.topology.as_ref().is_some_and(|t| !t.fetches.is_empty());
    (what.training && outputs && checkpoint.kind == "training").then(|| "inference".to_owned())
}
