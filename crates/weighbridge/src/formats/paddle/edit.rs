//! Changes of a program together with its parameters.

use super::any_program::Program;
use super::{Strip, StripReport};
use crate::check::variable_names;
use crate::checkpoint::{Checkpoint, TensorPath, VARIABLE_NAME, Value};
use crate::error::{Error, Result};
use crate::text::escape;
use crate::topology::Topology;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The program of a checkpoint.
fn program(checkpoint: &Checkpoint) -> Result<(Program, Arc<Topology>)> {
    let topology = checkpoint.topology.clone().ok_or_else(|| {
        Error::mismatch("no-program", "there is no program to change")
            .in_file(&checkpoint.label)
            .hint("--program FILE names it, where it does not stand beside the parameters")
    })?;
    Ok((Program::of(&topology)?, topology))
}

/// Takes parts out of the program of `checkpoint`, and with them the tensors that it then no longer
/// declares.
///
/// # Errors
/// [`crate::Kind::Mismatch`], `no-program`; what [`Program::strip`] says. The checkpoint is then as
/// it was.
pub fn strip(checkpoint: &mut Checkpoint, what: &Strip) -> Result<StripReport> {
    let (mut program, before) = program(checkpoint)?;
    let report = program.strip(what)?;
    let after = program.topology();
    let declared = |topology: &Topology| -> HashSet<String> {
        topology.parameters().iter().map(|v| v.name.clone()).collect()
    };
    let (had, has) = (declared(&before), declared(&after));
    let names = variable_names(&before, &checkpoint.tensors);
    let mut names = names.iter();
    // What the program never knew is none of its business.
    checkpoint.tensors.retain(|_| names.next().is_none_or(|name| has.contains(name) || !had.contains(name)));
    checkpoint.topology = Some(Arc::new(after));
    Ok(report)
}

/// Renames variables of the program of `checkpoint` and the tensors that they are. In a combined
/// file the order of the tensors changes with the names.
///
/// # Errors
/// [`crate::Kind::Mismatch`]: `no-program`; `no-such-variable` for a name that the program does not
/// have; a new name that is taken. The checkpoint is then as it was.
pub fn rename(checkpoint: &mut Checkpoint, names: &BTreeMap<String, String>) -> Result<()> {
    let (mut program, before) = program(checkpoint)?;
    let known: HashSet<&str> =
        before.blocks.iter().flat_map(|b| &b.variables).map(|v| v.name.as_str()).collect();
    if let Some(name) = names.keys().find(|name| !known.contains(name.as_str())) {
        return Err(Error::mismatch("no-such-variable", "the program has no variable of this name")
            .in_file(&checkpoint.label)
            .found(escape(name)));
    }
    program.rename(names)?;
    let own = variable_names(&before, &checkpoint.tensors);
    for (tensor, old) in checkpoint.tensors.iter_mut().zip(own) {
        let Some(new) = names.get(&old) else { continue };
        if tensor.attributes.contains_key(VARIABLE_NAME) {
            tensor.attributes.insert(VARIABLE_NAME.to_owned(), Value::Text(new.clone()));
        } else if tensor.role.slot().is_none() {
            tensor.path = TensorPath::from_dotted(new);
        }
    }
    checkpoint.topology = Some(Arc::new(program.topology()));
    Ok(())
}
