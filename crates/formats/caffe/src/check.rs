//! Outline of a file, and checks of weights against their network.

use crate::walk::{self, Message, Run};
use crate::{NETWORK, STATE, network, read, schema};
use std::collections::HashSet;
use weighbridge_core::check::{Gaps, Outline};
use weighbridge_core::checkpoint::{Checkpoint, Name, escape_text};
use weighbridge_core::error::Result;
use weighbridge_core::finding::Finding;
use weighbridge_core::limits::Limits;
use weighbridge_core::text::quoted;
use weighbridge_core::topology::AttributeValue;
use weighbridge_io::source::{SourceRef, read_vec};

/// Maximum number of findings of one kind.
const MAX_FINDINGS: usize = 20;

/// Returns the ranges of a file without elements.
pub(crate) fn outline(source: &SourceRef, limits: &Limits) -> Result<Outline> {
    let head = read_vec(&**source, 0, source.len().min(4096))?;
    let message = match read::kind(&head, source) {
        Some(NETWORK) => return weighbridge_format::outline::text(source, "network"),
        Some(STATE) => Message::State,
        _ => Message::Net,
    };
    let content = walk::read(source, message, &limits.with_budget_of(source), false)?;
    let what = if message == Message::State { "training state" } else { "network" };
    let mut outline = Outline::new(Gaps::Forbidden);
    let blobs = content.layers.iter().flat_map(|layer| &layer.blobs).chain(&content.blobs);
    let runs: Vec<&Run> = blobs.flat_map(|blob| &blob.runs).filter(|run| run.len > 0).collect();
    let mut at = 0;
    for run in runs {
        outline.header(at, run.at.saturating_sub(at), what);
        if run.tagged {
            outline.unread(run.at, run.len, "elements with a tag each");
        }
        at = run.at.saturating_add(run.len);
    }
    outline.header(at, source.len().saturating_sub(at), what);
    Ok(outline)
}

/// Finds layers of the network without blobs.
pub(crate) fn check(checkpoint: &Checkpoint) -> Vec<Finding> {
    let own = checkpoint.topology.as_deref().filter(|topology| topology.form == network::FORM);
    let Some(topology) = own.filter(|_| !checkpoint.tensors.is_empty() && checkpoint.damage.is_none()) else {
        return Vec::new();
    };
    let stored: HashSet<String> = checkpoint
        .tensors
        .iter()
        .filter_map(|tensor| tensor.path.parts().first().map(Name::to_text))
        .collect();
    let skipped: HashSet<&str> = checkpoint
        .notes
        .iter()
        .filter_map(|note| note.skipped.as_deref())
        .filter_map(|tensor| tensor.name.rsplit_once('.').map(|(layer, _)| layer))
        .collect();
    let mut findings = Vec::new();
    for operator in topology.operators() {
        let Some(AttributeValue::Text(name)) = operator.attribute("name") else { continue };
        let needs = !schema::blobs(&operator.kind, 0).is_empty();
        if needs
            && !stored.contains(name)
            && !skipped.contains(name.as_str())
            && findings.len() < MAX_FINDINGS
        {
            let text = format!(
                "the network has a layer of type {}, and the file has no blobs for it",
                quoted(&operator.kind)
            );
            findings.push(Finding::error("missing-parameter", text).on_tensor(escape_text(name)));
        }
    }
    findings
}
