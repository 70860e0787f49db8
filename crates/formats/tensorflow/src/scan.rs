//! Scan of graphs: operators that run code, or read and write files.

use crate::place::FileType;
use crate::program;
use crate::wire::{Fields, Value};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::{AttributeValue, Operator};
use weighbridge_format::{HEAD, OpenOptions, Scan};
use weighbridge_io::source::{SourceRef, read_vec};
use weighbridge_scan::{Beginning, graph_effect, graph_operator};

/// Maximum number of operators named in findings of one kind.
const MAX_LISTED: usize = 20;
/// Names of the operators of TensorFlow 2.21, a line each.
const BUILT_IN: &str = include_str!("operators.txt");

/// Scans a file. Checkpoints have no code.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    let is_saved = match FileType::of(&head, source) {
        Some(FileType::Saved) => true,
        Some(FileType::Graph) => false,
        Some(FileType::SavedText) => {
            let mut scan = Scan::default();
            scan.push("left-out", "the graphs are in text form, which is not read");
            return Ok(scan);
        }
        Some(FileType::Keras) => {
            let mut scan = Scan::default();
            keras(source, options, &mut scan)?;
            return Ok(scan);
        }
        Some(FileType::Index | FileType::State) => return Ok(Scan::default()),
        None => {
            let error = Error::corrupt(
                "not-a-model",
                "the file is not an index of a checkpoint, a SavedModel or a graph of TensorFlow",
            );
            return Scan::of_error(error.in_file(source.label()));
        }
    };
    let limits = options.limits.with_budget_of(source);
    match program::read(source, is_saved, &limits, &limits.budget_of(source), false) {
        Ok(program) => {
            let functions: HashSet<&str> =
                program.graph.functions.iter().map(|(name, _)| name.as_str()).collect();
            let operators = program.graph.blocks.iter().flat_map(|block| &block.operators);
            let mut scan = Scan::default();
            judge(operators.filter(|operator| !functions.contains(operator.kind.as_str())), &mut scan);
            if program.other_graphs > 0 {
                scan.push(
                    "left-out",
                    format!("{} other graphs of the SavedModel were not scanned", program.other_graphs),
                );
            }
            Ok(scan)
        }
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

fn judge<'a>(operators: impl Iterator<Item = &'a Operator>, scan: &mut Scan) {
    let built_in: HashSet<&str> = BUILT_IN.lines().collect();
    let mut counts: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
    for operator in operators {
        let kind = operator.kind.as_str();
        let code = match graph_operator(kind) {
            Some(_) if writes_to_screen(operator) => continue,
            Some(code) => code,
            // Operators of the runtime itself begin with an underscore.
            None if !built_in.contains(kind) && !kind.starts_with('_') => "custom-operators",
            None => continue,
        };
        *counts.entry((code, kind.to_owned())).or_default() += 1;
    }
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for ((code, kind), count) in &counts {
        let seen = listed.entry(code).or_default();
        *seen += 1;
        if *seen > MAX_LISTED {
            continue;
        }
        let times = if *count == 1 { String::new() } else { format!(" ({count} operators)") };
        let effect = graph_effect(code)
            .unwrap_or("is not one of TensorFlow: it needs a library that the program must load");
        scan.push(code, format!("operator {}{times} {effect}", escape_text(kind)));
    }
}

/// Returns true for an operator that prints to the standard streams, not to a file.
fn writes_to_screen(operator: &Operator) -> bool {
    let to_file =
        |value: &AttributeValue| matches!(value, AttributeValue::Text(text) if text.starts_with("file:"));
    operator.kind == "PrintV2" && !operator.attribute("output_stream").is_some_and(to_file)
}

/// Scans the configurations of layers: JSON texts in a protobuf message.
fn keras(source: &SourceRef, options: &OpenOptions, scan: &mut Scan) -> Result<()> {
    let limits = options.limits.with_budget_of(source);
    limits.budget_of(source).take_memory(2 * source.len())?;
    let bytes = read_vec(&**source, 0, source.len())?;
    let mut read = || -> Result<()> {
        for field in Fields::of(&bytes) {
            let field = field?;
            let (1, Value::Bytes(node)) = (field.number, field.value) else { continue };
            for field in Fields::of(node) {
                let field = field?;
                // Field 5 is the configuration of an object.
                if field.number == 5 {
                    weighbridge_scan::keras(&field.text().unwrap_or_default(), &limits, scan);
                }
            }
        }
        Ok(())
    };
    match read() {
        Ok(()) => Ok(()),
        Err(error) => scan.push_error(error.in_file(source.label())),
    }
}

/// Returns true for a data file whose beginning is not that of another file type: numbers, whose index names their dtypes.
pub(crate) fn is_plain(name: &Path, source: &SourceRef) -> Result<bool> {
    let name = name.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_data = name.rsplit_once(".data-").is_some_and(|(_, rest)| rest.contains("-of-"));
    if name == crate::saved::FINGERPRINT {
        return Ok(true);
    }
    if !is_data {
        return Ok(false);
    }
    let head = read_vec(&**source, 0, source.len().min(HEAD as u64))?;
    Ok(Beginning::of(&head).is_none())
}
