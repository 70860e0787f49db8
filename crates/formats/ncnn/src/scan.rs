//! Scan of networks: layers of the application.

use crate::{network, read, types};
use std::collections::BTreeMap;
use weighbridge_core::checkpoint::escape_text;
use weighbridge_core::error::Result;
use weighbridge_core::text::counted;
use weighbridge_format::{OpenOptions, Scan};
use weighbridge_io::source::SourceRef;

/// Maximum number of types that are listed.
const MAX_LISTED: usize = 20;

/// Scans a network. Its weights are numbers, and are not needed.
pub(crate) fn scan(source: &SourceRef, options: &OpenOptions) -> Result<Scan> {
    match kinds(source, options) {
        Ok(kinds) => {
            let mut scan = Scan::default();
            let more = kinds.len().saturating_sub(MAX_LISTED);
            for (kind, count) in kinds.into_iter().take(MAX_LISTED) {
                let times = if count == 1 { String::new() } else { format!(" ({count} operators)") };
                let text = "is not one of ncnn: the application must supply its code";
                scan.push("custom-operators", format!("operator {}{times} {text}", escape_text(&kind)));
            }
            if more > 0 {
                let types = counted(
                    more as u64,
                    "more type of operators is not one",
                    "more types of operators are not those",
                );
                let text = format!("{types} of ncnn: the application must supply the code");
                scan.push("custom-operators", text);
            }
            Ok(scan)
        }
        Err(error) => Scan::of_error(error.in_file(source.label())),
    }
}

/// Returns the types of layers that are not those of ncnn, with their counts.
fn kinds(source: &SourceRef, options: &OpenOptions) -> Result<BTreeMap<String, u64>> {
    let limits = options.limits.with_budget_of(source);
    let bytes = read::bytes_of(source, &limits)?;
    let mut kinds = BTreeMap::new();
    for layer in network::read(&bytes, &limits.budget_of(source))?.layers {
        if !types::is_known(&layer.kind) {
            *kinds.entry(layer.kind).or_default() += 1;
        }
    }
    Ok(kinds)
}
