//! Scan of models: operators that are not part of TensorFlow Lite.

use crate::{graph, read};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::{Checkpoint, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::topology::{AttributeValue, Operator};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;
use weighbridge_scan::{graph_effect, graph_operator};

/// Maximum number of findings of one kind.
const MAX_LISTED: usize = 20;
/// Operator that calls a function of another library.
const CALL: &str = "STABLEHLO_CUSTOM_CALL";
/// Beginning of the names of operators of TensorFlow.
const FLEX: &str = "Flex";
/// Operators with a name that the runtime has itself.
const BUILT_IN: [&str; 4] = ["AudioSpectrogram", "Mfcc", "NumericVerify", "TFLite_Detection_PostProcess"];

/// Scans a file for operators with effects outside of the model, and for those of other libraries.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    match read::open(source, options, None) {
        Ok(checkpoint) => Ok(found(&checkpoint)),
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

fn found(checkpoint: &Checkpoint) -> Scan {
    let mut scan = Scan::of_notes(checkpoint);
    let own = checkpoint.topology.as_deref().filter(|topology| topology.form == graph::FORM);
    let mut counts: BTreeMap<(&'static str, &str), u64> = BTreeMap::new();
    for operator in own.iter().flat_map(|topology| topology.operators()) {
        if let Some(code) = code(operator) {
            *counts.entry((code, &operator.kind)).or_default() += 1;
        }
    }
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for ((code, kind), count) in counts {
        let seen = listed.entry(code).or_default();
        *seen += 1;
        if *seen > MAX_LISTED {
            continue;
        }
        let times = if count == 1 { String::new() } else { format!(" ({count} operators)") };
        let effect = graph_effect(code)
            .unwrap_or("is not one of TensorFlow Lite: it needs a library that the program must load");
        scan.push(code, format!("operator {}{times} {effect}", escape_text(kind)));
    }
    scan
}

/// Returns the code of the finding for an operator.
fn code(operator: &Operator) -> Option<&'static str> {
    let is_custom = operator.attribute(graph::IS_CUSTOM).is_some();
    match operator.kind.strip_prefix(FLEX).filter(|_| is_custom) {
        // The runtime has the operators of TensorFlow itself if they are linked to it.
        Some("PrintV2") if !names_a_file(operator) => None,
        Some(name) => graph_operator(name),
        None => {
            let is_other = is_custom && !BUILT_IN.contains(&operator.kind.as_str());
            (is_other || operator.kind == CALL).then_some("custom-operators")
        }
    }
}

/// Returns true for an operator whose options name a file to print to.
fn names_a_file(operator: &Operator) -> bool {
    let marker = b"file:";
    match operator.attribute("custom_options") {
        Some(AttributeValue::Bytes(bytes)) => bytes.windows(marker.len()).any(|part| part == marker),
        _ => false,
    }
}
