//! Format-specific checks.

use super::{Kind, VOCAB};
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::Result;
use weighbridge_core::finding::{Finding, Severity};
use weighbridge_core::phrase::Opt;
use weighbridge_core::topology::VariableKind;
use weighbridge_core::{NoteCode, phrase};

/// Runs the checks of this format on an opened checkpoint.
pub(super) fn check(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let mut findings = unreadable(checkpoint);
    match Kind::from_word(checkpoint.kind) {
        Some(Kind::Combined | Kind::Inference) => findings.extend(combined(checkpoint)),
        Some(Kind::Separate) if checkpoint.topology.is_none() => findings
            .push(Finding::unchecked("no-program", "missing tensors cannot be detected without a program")),
        Some(Kind::Separate | Kind::Vocab) => findings.extend(words(checkpoint)),
        // A program file alone: vocabularies in another file are not an error.
        Some(Kind::Program | Kind::Pir) => {
            findings.extend(
                words(checkpoint).into_iter().map(|f| Finding { severity: Severity::Unchecked, ..f }),
            );
        }
        _ => {}
    }
    Ok(findings)
}

/// Reports stream forms that Weighbridge supports and Paddle does not.
fn unreadable(checkpoint: &Checkpoint) -> Vec<Finding> {
    let unshipped = checkpoint
        .notes
        .iter()
        .filter(|note| matches!(note.code, NoteCode::SizePrefixed | NoteCode::DesignNote));
    unshipped
        .map(|note| {
            Finding::error(note.code, "Paddle cannot read this file: its stream form was never released")
                .hint("convert the file to its own kind to make it readable")
        })
        .collect()
}

/// Compares a combined file with its program: Paddle requires the same number of streams.
fn combined(checkpoint: &Checkpoint) -> Vec<Finding> {
    let Some(topology) = &checkpoint.topology else {
        return vec![
            Finding::unchecked(
                "no-program",
                "names, shapes and the number of tensors cannot be checked without a program",
            )
            .hint(phrase!["give the program with ", Opt::Program.any("FILE")]),
        ];
    };
    let parameters = topology.parameters();
    let wanted = parameters.iter().filter(|v| v.kind != VariableKind::Vocab).count();
    let found = checkpoint.tensors.len();
    let mut findings = words(checkpoint);
    if found > wanted {
        let text = format!("the file has {found} tensors, {} more than the program", found - wanted);
        findings.push(
            Finding::error("extra-tensors", text)
                .hint("use the program that was saved with this file; Paddle rejects it with \"Not allowed to load partial data via load_combine_op\""),
        );
    } else if found < wanted {
        let text = format!("the file has {found} tensors, {} fewer than the program", wanted - found);
        findings.push(Finding::error("missing-tensors", text).hint(
            "the file is truncated or belongs to another program; download it again, or use its own program",
        ));
    }
    findings
}

/// Compares vocabularies with the program.
fn words(checkpoint: &Checkpoint) -> Vec<Finding> {
    let Some(topology) = &checkpoint.topology else { return Vec::new() };
    let parameters = topology.parameters();
    let wanted = parameters.iter().filter(|v| v.kind == VariableKind::Vocab);
    let have: HashSet<&[u8]> = match checkpoint.metadata.get(VOCAB) {
        Some(Value::Map(all)) => all.iter().map(|(own, _)| own.as_bytes()).collect(),
        _ => HashSet::new(),
    };
    wanted
        .filter(|v| !have.contains(v.name.as_bytes()))
        .map(|v| {
            Finding::error("missing-parameter", "the vocabulary required by the program is missing")
                .on_tensor(weighbridge_core::text::escape(&v.name))
        })
        .collect()
}
