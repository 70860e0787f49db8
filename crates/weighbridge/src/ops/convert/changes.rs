//! Changes of an index between opening and planning, as a list of transforms.

use crate::checkpoint::{Checkpoint, IndexTransform, Modules, Note, Rename, Selection, TransformReport};
use crate::error::{Error, Result};
use crate::ops::edit;
use crate::tensor::{Cast, DType, Rounding};
use std::sync::Arc;
use weighbridge_core::phrase::Opt;
use weighbridge_core::{LossCode, phrase};

/// Changes of the index, in the order in which they are applied.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Changes that formats supply, such as rows for new entities.
    pub first: Vec<Arc<dyn IndexTransform>>,
    /// Patterns of tensors to keep; all if empty.
    pub select: Vec<String>,
    /// Patterns of tensors to leave out.
    pub drop: Vec<String>,
    /// Leave out optimizer state.
    pub no_state: bool,
    /// Rules of the [grammar of edits](super::super::edit); they come before all that follows.
    pub rules: Vec<edit::Rule>,
    /// Go on where one of these rules or one of `rename` fits nothing, and note it.
    pub lenient_rules: bool,
    /// Rules `OLD=NEW`.
    pub rename: Vec<String>,
    /// Cast floating-point tensors to this type.
    pub cast: Option<DType>,
    /// How that cast rounds.
    pub rounding: Rounding,
    /// Keep the bytes of column-major tensors as they are and reverse their dimensions.
    pub reverse_dims: bool,
}

impl Changes {
    /// The changes as values, in order.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] for patterns and rules that mean nothing, and for a rounding without a cast.
    pub fn transforms(&self) -> Result<Vec<Arc<dyn IndexTransform>>> {
        let mut list = self.first.clone();
        let selection = Selection::new(&self.select, &self.drop)?;
        list.push(Arc::new(Keep { selection, no_state: self.no_state }));
        list.push(Arc::new(ApplyRules { rules: self.rules.clone(), lenient: self.lenient_rules }));
        let rules = self.rename.iter().map(|rule| Rename::parse(rule)).collect::<Result<_>>()?;
        list.push(Arc::new(RenameTensors { rules, texts: self.rename.clone(), lenient: self.lenient_rules }));
        match self.cast {
            Some(to) => list.push(Arc::new(CastFloats(Cast { to, rounding: self.rounding }))),
            None if self.rounding != Rounding::default() => {
                return Err(Error::usage("rounding-without-cast", "nothing is cast, so nothing is rounded")
                    .hint(phrase!["add ", Opt::Cast.with("f16"), " or ", Opt::Cast.with("bf16")]));
            }
            None => {}
        }
        if self.reverse_dims {
            list.push(Arc::new(ReverseDims));
        }
        Ok(list)
    }

    /// Applies the changes.
    ///
    /// # Errors
    /// As [`transforms`](Self::transforms), and what the transforms say.
    pub fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        self.transforms()?.iter().try_for_each(|transform| transform.apply(checkpoint, report))
    }
}

/// Leaves out what is not selected, and optimizer state where that is not wanted.
#[derive(Debug)]
struct Keep {
    selection: Selection,
    no_state: bool,
}

impl IndexTransform for Keep {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        let modules = Modules::of(checkpoint);
        checkpoint.select(&self.selection)?;
        if self.no_state {
            checkpoint.drop_state();
        }
        report.losses.extend(modules.into_iter().flat_map(|modules| modules.follow_left_out(checkpoint)));
        report.notes.extend(checkpoint.settle_aliases());
        Ok(())
    }
}

/// Applies rules of the grammar of edits.
#[derive(Debug)]
struct ApplyRules {
    rules: Vec<edit::Rule>,
    lenient: bool,
}

impl IndexTransform for ApplyRules {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        let applied = edit::apply(checkpoint, &self.rules, self.lenient)?;
        report.notes.extend(applied.notes);
        report.losses.extend(applied.losses);
        Ok(())
    }
}

/// Renames tensors by rules `OLD=NEW`.
#[derive(Debug)]
struct RenameTensors {
    rules: Vec<Rename>,
    /// As they were written.
    texts: Vec<String>,
    lenient: bool,
}

impl IndexTransform for RenameTensors {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        let (unused, unfollowed) = checkpoint.rename_found(&self.rules, self.lenient)?;
        report.losses.extend(unfollowed);
        for rule in unused.into_iter().filter_map(|unused| self.texts.get(unused)) {
            report.notes.push(Note::new("rule-unused", format!("rename {rule}: it fits no tensor")));
        }
        Ok(())
    }
}

/// Casts all floating-point tensors.
#[derive(Debug)]
struct CastFloats(Cast);

impl IndexTransform for CastFloats {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        // All that was cast by rules is cast anew.
        report.losses.retain(|loss| loss.code != LossCode::Rounding);
        report.losses.extend(checkpoint.cast_floats(self.0)?);
        report.notes.extend(checkpoint.settle_aliases());
        Ok(())
    }
}

/// Reverses the dimensions of column-major tensors, whose bytes stay.
#[derive(Debug)]
struct ReverseDims;

impl IndexTransform for ReverseDims {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        report.losses.extend(checkpoint.reverse_dims()?);
        Ok(())
    }
}
