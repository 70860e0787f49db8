//! Scan of parameters and symbols: operators that need code outside MXNet.

use crate::{read, symbol};
use std::collections::BTreeSet;
use weighbridge_core::checkpoint::{Checkpoint, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::topology::{AttributeValue, Topology};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;

/// Operators that the program defines: in Python, and in C or another language.
const CUSTOM: [&str; 4] = ["Custom", "_Native", "_NDArray", "_CustomSubgraphOp"];
/// Maximum number of names in findings.
const MAX_LISTED: usize = 20;

/// Scans a file. Parameters are numbers; a symbol can name operators of the program that loads it.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    match read::open(source, None, options, None) {
        Ok(checkpoint) => Ok(found(&checkpoint)),
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

fn found(checkpoint: &Checkpoint) -> Scan {
    let mut scan = Scan::of_notes(checkpoint);
    if let Some(topology) = checkpoint.topology.as_deref().filter(|topology| topology.form == symbol::FORM) {
        for name in custom(topology).into_iter().take(MAX_LISTED) {
            let text = format!(
                "the custom operator {} is defined by the program that loads the model, in Python or in a library",
                escape_text(&name)
            );
            scan.push("custom-operators", text);
        }
    }
    scan
}

/// Returns the names of custom operators.
fn custom(topology: &Topology) -> BTreeSet<String> {
    let operators = topology.operators().filter(|operator| CUSTOM.contains(&operator.kind.as_str()));
    let name = |operator: &weighbridge_core::topology::Operator| match operator.attribute("op_type") {
        Some(AttributeValue::Text(name)) => name.clone(),
        _ => operator.kind.clone(),
    };
    operators.map(name).collect()
}
