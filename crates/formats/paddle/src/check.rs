//! What only this format knows to be wrong.

use super::{Kind, VOCAB};
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Checkpoint, Value};
use weighbridge_core::error::Result;
use weighbridge_core::finding::{Finding, Severity};
use weighbridge_core::phrase::Opt;
use weighbridge_core::topology::VariableKind;
use weighbridge_core::{NoteCode, phrase};

/// Checks an opened checkpoint beyond what holds for every format.
pub(super) fn check(checkpoint: &Checkpoint) -> Result<Vec<Finding>> {
    let mut findings = unreadable(checkpoint);
    match Kind::from_word(checkpoint.kind) {
        Some(Kind::Combined | Kind::Inference) => findings.extend(combined(checkpoint)),
        Some(Kind::Separate) if checkpoint.topology.is_none() => findings.push(Finding::unchecked(
            "no-program",
            "there is no program to hold the tensors against: some may be missing",
        )),
        Some(Kind::Separate | Kind::Vocab) => findings.extend(words(checkpoint)),
        // A program alone: that its words are elsewhere is no fault of it.
        Some(Kind::Program | Kind::Pir) => {
            findings.extend(
                words(checkpoint).into_iter().map(|f| Finding { severity: Severity::Unchecked, ..f }),
            );
        }
        _ => {}
    }
    Ok(findings)
}

/// Forms of stream that are read here, and by no Paddle.
fn unreadable(checkpoint: &Checkpoint) -> Vec<Finding> {
    let unshipped = checkpoint
        .notes
        .iter()
        .filter(|note| matches!(note.code, NoteCode::SizePrefixed | NoteCode::DesignNote));
    unshipped
        .map(|note| {
            Finding::error(
                note.code,
                "Paddle cannot read this file: it has a form that was only ever planned",
            )
            .hint("converted to its own kind, it becomes what Paddle reads")
        })
        .collect()
}

/// A combined file against its program: Paddle wants exactly as many streams.
fn combined(checkpoint: &Checkpoint) -> Vec<Finding> {
    let Some(topology) = &checkpoint.topology else {
        return vec![
            Finding::unchecked(
                "no-program",
                "the file holds no names and there is no program: names, shapes and the number of tensors \
                 cannot be checked",
            )
            .hint(phrase![Opt::Program.any("FILE"), " names the program"]),
        ];
    };
    let parameters = topology.parameters();
    let wanted = parameters.iter().filter(|v| v.kind != VariableKind::Vocab).count();
    let found = checkpoint.tensors.len();
    let mut findings = words(checkpoint);
    if found > wanted {
        let text = format!("the file holds {found} tensors, {} more than the program has", found - wanted);
        findings.push(
            Finding::error("extra-tensors", text)
                .hint("Paddle refuses it: \"Not allowed to load partial data via load_combine_op\""),
        );
    } else if found < wanted {
        let text = format!("the file holds {found} tensors, {} fewer than the program has", wanted - found);
        findings.push(
            Finding::error("missing-tensors", text)
                .hint("the file is cut short at a tensor's end, or belongs to another program"),
        );
    }
    findings
}

/// Vocabularies against the program.
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
            Finding::error("missing-parameter", "the program needs these words, and they are not there")
                .on_tensor(weighbridge_core::text::escape(&v.name))
        })
        .collect()
}
