//! Scan of networks: layers in Python.

use crate::{network, read};
use std::collections::BTreeSet;
use weighbridge_core::checkpoint::{Checkpoint, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::topology::{AttributeValue, Operator};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;

/// Type of a layer in Python.
const PYTHON: &str = "Python";
/// Maximum number of findings.
const MAX_LISTED: usize = 20;

/// Scans a file for layers that import and call Python.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    match read::open(source, None, options, None) {
        Ok(checkpoint) => Ok(found(&checkpoint)),
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

fn found(checkpoint: &Checkpoint) -> Scan {
    let mut scan = Scan::of_notes(checkpoint);
    let own = checkpoint.topology.as_deref().filter(|topology| topology.form == network::FORM);
    let layers: BTreeSet<String> = own
        .iter()
        .flat_map(|topology| topology.operators())
        .filter(|layer| layer.kind == PYTHON)
        .map(target)
        .collect();
    for name in layers.into_iter().take(MAX_LISTED) {
        scan.push(
            "runs-python",
            format!("a layer imports and calls the Python class {}", escape_text(&name)),
        );
    }
    scan
}

/// Returns the class of a layer: its module and its name.
fn target(layer: &Operator) -> String {
    let text = |key: &str| match layer.attribute(key) {
        Some(AttributeValue::Text(text)) => text.clone(),
        _ => "?".to_owned(),
    };
    format!("{}.{}", text("python_param.module"), text("python_param.layer"))
}
