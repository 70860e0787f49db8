//! Plans of models.

use crate::{EXTERNAL, MODEL, OPSET, encode, export, show};
use weighbridge_core::checkpoint::{Checkpoint, Loss, Note};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_format::PlanOptions;

/// Name of the model in a folder with external data.
const MODEL_FILE: &str = "model.onnx";
/// Name of the file of external data.
const DATA_FILE: &str = "model.onnx.data";

/// Plans the export of a program with its parameters.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    let Some(topology) = checkpoint.topology.as_deref() else {
        return Err(Error::unsupported(
            "no-program",
            "an ONNX model is a graph, and the source has no program",
        )
        .hint("convert a Paddle model with its program (.pdmodel or .json), or an ONNX model"));
    };
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
    let external = match options.setting(EXTERNAL) {
        Some("yes") => true,
        Some("no") if whole.len() > encode::MAX_MESSAGE => {
            return Err(Error::unsupported("too-large", "a model in one file is limited to 2 GB")
                .found(whole.len())
                .hint(
                    "remove --set external_data=no: large tensors are then stored in a file beside the model",
                ));
        }
        Some("no") => false,
        Some(other) => {
            return Err(Error::usage("bad-setting", "the setting external_data is yes or no").found(other));
        }
        None => whole.len() > encode::MAX_MESSAGE,
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
        Loss::new("not-in-graph", entry.name(), "dropped: no operator that leads to an output uses it")
    })
}
