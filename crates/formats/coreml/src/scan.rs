//! Scan of models: layers and models whose code the application must supply, and models in other files.

use crate::{graph, read};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Checkpoint, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::topology::{AttributeValue, Operator};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;

/// Maximum number of findings of one kind.
const MAX_LISTED: usize = 20;

/// Scans a model. Files of weights are numbers, and are not needed.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    match read::program(source, options) {
        Ok(checkpoint) => Ok(found(&checkpoint)),
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

fn found(checkpoint: &Checkpoint) -> Scan {
    let mut scan = Scan::of_notes(checkpoint);
    let own = checkpoint.topology.as_deref().filter(|topology| topology.form == graph::FORM);
    let mut counts: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
    for operator in own.iter().flat_map(|topology| topology.operators()) {
        if let Some(code) = code(operator) {
            *counts.entry((code, name(operator).to_owned())).or_default() += 1;
        }
    }
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for ((code, name), count) in counts {
        let seen = listed.entry(code).or_default();
        *seen += 1;
        if *seen > MAX_LISTED {
            continue;
        }
        let name = escape_text(&name);
        let times = if count == 1 { String::new() } else { format!(" ({count} operators)") };
        scan.push(
            code,
            match code {
                "reads-files" => format!("the model loads another model, {name}, when it is loaded"),
                _ => {
                    format!("class {name}{times} is not one of Core ML: the application must supply its code")
                }
            },
        );
    }
    scan
}

/// Returns the code of the finding for an operator.
fn code(operator: &Operator) -> Option<&'static str> {
    match operator.kind.as_str() {
        "custom" | "customModel" | "custom_layer" => Some("custom-operators"),
        "linkedModel" => Some("reads-files"),
        _ => None,
    }
}

/// Returns the name of the class, or of the file, that an operator needs.
fn name(operator: &Operator) -> &str {
    let keys = ["className", "class_name", "linkedModelFile.linkedModelFileName.defaultValue"];
    let found = keys.iter().find_map(|key| match operator.attribute(key) {
        Some(AttributeValue::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    found.unwrap_or(&operator.kind)
}
