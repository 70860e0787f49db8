//! Changes to an index between opening and planning, as a list of transforms.

use crate::checkpoint::{Checkpoint, IndexTransform, Modules, Note, Rename, Selection, TransformReport};
use crate::error::{Error, Result};
use crate::ops::edit;
use crate::tensor::{Cast, DType, Rounding};
use std::sync::Arc;
use weighbridge_core::phrase::Opt;
use weighbridge_core::{LossCode, phrase};

/// Changes to an index, in order of application.
///
/// ```
/// # fn main() -> weighbridge::Result<()> {
/// # let path = weighbridge_testkit::testdata("primitiv/good/trained/trained_xor_a.model");
/// use weighbridge::checkpoint::TransformReport;
/// use weighbridge::ops::Changes;
///
/// let mut index = weighbridge::open(&path)?.into_index();
/// let changes = Changes { rename: vec!["w1=layer1.weight".to_owned()], ..Changes::default() };
/// changes.apply(&mut index, &mut TransformReport::default())?;
/// assert!(index.tensor("layer1.weight").is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Changes supplied by formats, such as rows for new entities.
    pub first: Vec<Arc<dyn IndexTransform>>,
    /// Patterns of tensors to keep; all if empty.
    pub select: Vec<String>,
    /// Patterns of tensors to drop.
    pub drop: Vec<String>,
    /// Drop optimizer state.
    pub no_state: bool,
    /// Rules of the [edit grammar](super::super::edit), applied before the changes below.
    pub rules: Vec<edit::Rule>,
    /// Note a rule of `rules` or `rename` that matches nothing, instead of failing.
    pub lenient_rules: bool,
    /// Rules `OLD=NEW`.
    pub rename: Vec<String>,
    /// Cast floating-point tensors to this type.
    pub cast: Option<DType>,
    /// Rounding of that cast.
    pub rounding: Rounding,
    /// Keep the bytes of column-major tensors and reverse their dimensions.
    pub reverse_dims: bool,
}

impl Changes {
    /// Returns the changes as transforms, in order.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] for invalid patterns and rules, and for a rounding without a cast.
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
                return Err(Error::usage("rounding-without-cast", "a rounding is set, but no cast")
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
    /// As [`transforms`](Self::transforms), and errors of the transforms.
    pub fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        self.transforms()?.iter().try_for_each(|transform| transform.apply(checkpoint, report))
    }
}

/// Drops unselected tensors, and optimizer state if requested.
#[derive(Debug)]
struct Keep {
    selection: Selection,
    no_state: bool,
}

impl IndexTransform for Keep {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        let modules = Modules::of(checkpoint);
        checkpoint.select(&self.selection).map_err(|error| edit::suggest(error, &[&*checkpoint], false))?;
        if self.no_state {
            checkpoint.drop_state();
        }
        report.losses.extend(modules.into_iter().flat_map(|modules| modules.follow_left_out(checkpoint)));
        report.notes.extend(checkpoint.settle_aliases());
        Ok(())
    }
}

/// Applies rules of the edit grammar.
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
    /// The rules as written.
    texts: Vec<String>,
    lenient: bool,
}

impl IndexTransform for RenameTensors {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        let (unused, unfollowed) = checkpoint
            .rename_found(&self.rules, self.lenient)
            .map_err(|error| edit::suggest(error, &[&*checkpoint], true))?;
        report.losses.extend(unfollowed);
        for rule in unused.into_iter().filter_map(|unused| self.texts.get(unused)) {
            report.notes.push(Note::new("rule-unused", format!("rename {rule}: no tensor matches the rule")));
        }
        Ok(())
    }
}

/// Casts all floating-point tensors.
#[derive(Debug)]
struct CastFloats(Cast);

impl IndexTransform for CastFloats {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        // Every cast by a rule is replaced.
        report.losses.retain(|loss| loss.code != LossCode::Rounding);
        report.losses.extend(checkpoint.cast_floats(self.0)?);
        report.notes.extend(checkpoint.settle_aliases());
        Ok(())
    }
}

/// Reverses the dimensions of column-major tensors; the bytes stay.
#[derive(Debug)]
struct ReverseDims;

impl IndexTransform for ReverseDims {
    fn apply(&self, checkpoint: &mut Checkpoint, report: &mut TransformReport) -> Result<()> {
        report.losses.extend(checkpoint.reverse_dims()?);
        Ok(())
    }
}
