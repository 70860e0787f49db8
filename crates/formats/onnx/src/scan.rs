//! Scan of a model: files and libraries that loading it would need.

use crate::external::Place as Outside;
use crate::graph::{self, Content};
use crate::skeleton::Skeleton;
use std::collections::BTreeSet;
use weighbridge_core::checkpoint::{Checkpoint, TensorEntry, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Encoding, Shape};
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;
use weighbridge_scan::leads_out;

/// Maximum number of names in a finding of one kind.
const MAX_LISTED: usize = 20;
/// Beginnings of domains whose operators ONNX Runtime has itself.
const BUILT_IN: [&str; 4] = ["ai.onnx", "com.microsoft", "com.ms", "org.pytorch.aten"];

/// Scans a model for paths outside its folder, and for operators of other libraries. ONNX itself has no code.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    let limits = options.limits.with_budget_of(source);
    let read = Skeleton::read(source, &limits, false)
        .and_then(|skeleton| graph::parse(&skeleton.bytes, &limits.budget_of(source)));
    match read {
        Ok(content) => Ok(found(&content, source)),
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

fn found(content: &Content, source: &SourceRef) -> Scan {
    let mut scan = Scan::default();
    let mut checkpoint = Checkpoint::new("onnx", crate::MODEL, source.label());
    // Only their names matter here.
    let named = content.tensors.iter().map(|one| one.path.clone());
    let entry = |path| TensorEntry::dense(path, DType::U8, Shape::from([0]), source, 0, Encoding::ROW).ok();
    checkpoint.tensors = named.filter_map(entry).collect();
    scan.judge_names(&checkpoint);
    let mut outside: BTreeSet<String> = BTreeSet::new();
    for one in content.tensors.iter().filter(|one| one.header.is_external) {
        if let Ok(place) = Outside::of(&one.header)
            && leads_out(&place.location)
        {
            outside.insert(place.location);
        }
    }
    for location in outside.iter().take(MAX_LISTED) {
        let text = format!(
            "the elements of tensors are read from {}, a file outside the folder of the model",
            escape_text(location)
        );
        scan.push("name-leads-out", text);
    }
    let functions: BTreeSet<String> = content.functions.iter().cloned().collect();
    let mut domains: BTreeSet<String> = BTreeSet::new();
    for operator in content.topology.operators() {
        if let Some((domain, _)) = operator.kind.rsplit_once(':')
            && !functions.contains(&operator.kind)
            && !is_built_in(domain)
        {
            domains.insert(domain.to_owned());
        }
    }
    for domain in domains.iter().take(MAX_LISTED) {
        let text = format!(
            "operators of the domain {} need a library that the program must load",
            weighbridge_core::text::quoted(domain)
        );
        scan.push("custom-operators", text);
    }
    scan
}

/// Returns true for a domain of ONNX or ONNX Runtime.
fn is_built_in(domain: &str) -> bool {
    BUILT_IN
        .iter()
        .any(|own| domain == *own || domain.strip_prefix(own).is_some_and(|rest| rest.starts_with('.')))
        && domain != "ai.onnx.contrib"
}
