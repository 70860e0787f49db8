//! Scan of networks: layers of libraries other than OpenVINO.

use crate::{graph, read, xml};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::AttributeValue;
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum number of findings.
const MAX_LISTED: usize = 20;

/// Scans a network. Its constants are numbers, and are not needed.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    match kinds(source, options) {
        Ok(kinds) => {
            let mut scan = Scan::default();
            for (kind, count) in kinds.into_iter().take(MAX_LISTED) {
                let times = if count == 1 { String::new() } else { format!(" ({count} operators)") };
                let text = "is not one of OpenVINO: it needs a library that the program must load";
                scan.push("custom-operators", format!("operator {}{times} {text}", escape_text(&kind)));
            }
            Ok(scan)
        }
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

/// Returns the types of layers outside of the operation sets, with their counts.
fn kinds(source: &SourceRef, options: &OpenOptions) -> Result<BTreeMap<String, u64>> {
    let limits = options.limits.with_budget_of(source);
    let budget = limits.budget_of(source);
    Limits::check("bytes of the network", "header_bytes", source.len(), limits.header_bytes)?;
    let bytes = read_vec(&**source, 0, source.len())?;
    let net = xml::parse(read::text(&bytes)?, &budget)?;
    read::check_version(&net)?;
    let topology = graph::read(&net, Vec::new(), &budget)?.topology;
    let mut kinds = BTreeMap::new();
    for operator in topology.operators() {
        let is_known =
            |value: &AttributeValue| matches!(value, AttributeValue::Text(set) if set.starts_with("opset"));
        if !operator.attribute("version").is_some_and(is_known) {
            *kinds.entry(operator.kind.clone()).or_default() += 1;
        }
    }
    Ok(kinds)
}
