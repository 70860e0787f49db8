//! Plans of models: opened ones with their changes, and exports of programs.

use crate::rewrite::{self, Rewritten, Storage};
use crate::{EXTERNAL, MODEL, OPSET, encode, export, graph, show};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_core::plan::{FileBuilder, PlannedFile, WritePlan};
use weighbridge_core::topology::Topology;
use weighbridge_format::PlanOptions;

/// Name of the model in a folder with external data.
const MODEL_FILE: &str = "model.onnx";
/// Name of the file of external data.
const DATA_FILE: &str = "model.onnx.data";

/// Plans a model with the program of the checkpoint.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    options.check(&crate::INFO)?;
    if let Some(kind) = options.kind.as_deref().filter(|kind| *kind != MODEL) {
        return Err(Error::usage("unknown-kind", "unknown kind for onnx").expected(MODEL).found(kind));
    }
    let Some(topology) = checkpoint.topology.as_deref() else {
        return Err(Error::unsupported(
            "no-program",
            "an ONNX model is a graph, and the source has no program",
        )
        .hint("tensors alone make no graph: convert a Paddle model with its program (.pdmodel or .json), or an ONNX model"));
    };
    let storage = match options.setting(EXTERNAL) {
        Some("yes") => Storage::External,
        Some("no") => Storage::Inside,
        None => Storage::AsOpened,
        Some(other) => {
            return Err(Error::usage("bad-setting", "the setting external_data is yes or no").found(other));
        }
    };
    match topology.form == graph::FORM {
        true => opened(checkpoint, topology, options, storage),
        false => exported(checkpoint, topology, options, storage),
    }
}

/// Plans an opened model.
fn opened(
    checkpoint: &Checkpoint,
    topology: &Topology,
    options: &PlanOptions,
    storage: Storage,
) -> Result<WritePlan> {
    if let Some(opset) = options.setting(OPSET) {
        return Err(Error::usage("bad-setting", "the operators of an ONNX model keep their version")
            .found(format_args!("{OPSET}={opset}"))
            .hint("this setting is for exports of Paddle programs"));
    }
    let mut written = rewrite::rewrite(checkpoint, topology, storage, DATA_FILE)?;
    if written.message.len() > encode::MAX_MESSAGE && storage != Storage::External {
        if storage == Storage::Inside {
            return Err(too_large(written.message.len()));
        }
        written = rewrite::rewrite(checkpoint, topology, Storage::External, DATA_FILE)?;
    }
    let Rewritten { message, files: mut data, mut losses } = written;
    // Text stays in the model; other parts outside the index are lost.
    let kept = |note: &&Note| note.skipped.is_none();
    losses.extend(checkpoint.left_out().filter(kept).map(Note::loss));
    let is_folder = storage == Storage::External || !data.is_empty();
    let mut file = FileBuilder::new(if is_folder { MODEL_FILE } else { "" });
    message.write(&mut file)?;
    if let Some(taken) = data.iter().find(|other| other.name == MODEL_FILE) {
        return Err(Error::unsupported(
            "name-collision",
            "the file of external data has the name of the model",
        )
        .found(&taken.name)
        .hint(phrase!["store the tensors in the model: ", Opt::Set.pair(EXTERNAL, "no")]));
    }
    let mut files: Vec<PlannedFile> = vec![file.finish()];
    files.append(&mut data);
    Ok(WritePlan { format: "onnx", kind: MODEL, files, losses })
}

fn too_large(found: u64) -> Error {
    Error::unsupported("too-large", "a model in one file is limited to 2 GB").found(found).hint(phrase![
        "omit ",
        Opt::Set.pair(EXTERNAL, "no"),
        ": large tensors are then stored in a file beside the model, and the target is a folder"
    ])
}

/// Plans the export of a program with its parameters.
fn exported(
    checkpoint: &Checkpoint,
    topology: &Topology,
    options: &PlanOptions,
    storage: Storage,
) -> Result<WritePlan> {
    let opset = match options.setting(OPSET) {
        None => export::OPSET,
        Some(text) => text.parse().ok().filter(|v| export::OPSETS.contains(v)).ok_or_else(|| {
            Error::usage("bad-setting", "the version of the operators is not supported")
                .expected(format_args!("{} to {}", export::OPSETS.start(), export::OPSETS.end()))
                .found(text)
        })?,
    };
    let model = export::export(checkpoint, topology, opset)?;
    let mut losses: Vec<Loss> = checkpoint.left_out().map(Note::loss).collect();
    losses.extend(unused(checkpoint, &model));
    let whole = encode::model(&model, None)?;
    let is_large = whole.len() > encode::MAX_MESSAGE;
    let external = match storage {
        Storage::External => true,
        Storage::Inside if is_large => return Err(too_large(whole.len())),
        Storage::Inside => false,
        Storage::AsOpened => is_large,
    };
    let files = if external {
        let data = FileBuilder::new(DATA_FILE);
        let mut external = encode::External { file: DATA_FILE.to_owned(), data };
        let message = encode::model(&model, Some(&mut external))?;
        let mut file = FileBuilder::new(MODEL_FILE);
        file.describe(show::graph(&model.graph));
        message.write(&mut file)?;
        vec![file.finish(), external.data.finish()]
    } else {
        let mut file = FileBuilder::new("");
        file.describe(show::graph(&model.graph));
        whole.write(&mut file)?;
        vec![file.finish()]
    };
    Ok(WritePlan { format: "onnx", kind: MODEL, files, losses })
}

/// Returns a loss for each tensor that the graph does not use: state of the optimizer, parameters of the loss.
fn unused<'a>(
    checkpoint: &'a Checkpoint,
    model: &'a crate::model::Model,
) -> impl Iterator<Item = Loss> + use<'a> {
    use crate::model::InitializerData;
    let stored: std::collections::HashSet<String> = model
        .graph
        .initializers
        .iter()
        .filter_map(|initializer| match &initializer.data {
            InitializerData::Entry(entry) => Some(entry.name()),
            InitializerData::Constant(_) => None,
        })
        .collect();
    let lost = move |entry: &&weighbridge_core::checkpoint::TensorEntry| !stored.contains(&entry.name());
    checkpoint.tensors.iter().filter(lost).map(|entry| {
        Loss::new(
            "not-in-graph",
            entry.name(),
            "not in the graph: no operator that leads to an output uses it",
        )
    })
}
