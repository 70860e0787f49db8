//! Changes of an index: selections, casts and reversed dimensions. No bytes move. Optimizer state with the path of its
//! parameter follows the parameter; state with its own path, as in checkpoints of PyTorch, is selected by that path.

use super::pattern::{Budget, Pattern};
use super::{Attributes, Checkpoint, Loss, Note, TensorEntry, Value};
use crate::ErrorCode;
use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::Opt;
use crate::tensor::{Cast, DType, Encoding, Order, Shape};
use crate::text::quoted;
use std::collections::{BTreeMap, HashSet};

/// Attribute of a tensor with dimensions reversed to keep its bytes unchanged. Its value is true, or the batch of the tensor.
const REVERSED: &str = "reversed";
/// Attribute of a tensor whose last dimension is a batch.
const BATCH: &str = "batch";

/// Selection of tensors: those that match a `select` pattern (all, if there is none) and no `drop` pattern. Patterns are globs
/// over displayed names: `*` matches any characters.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    select: Vec<(String, Pattern)>,
    drop: Vec<(String, Pattern)>,
}

impl Selection {
    /// Compiles the patterns.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] for an invalid glob; [`crate::Kind::Limit`], `too-many-patterns`.
    pub fn new(select: &[String], drop: &[String]) -> Result<Self> {
        Self::within(select, drop, &Budget::default())
    }

    /// Compiles the patterns, as [`new`](Self::new), within a `budget` shared by all patterns of a job.
    pub fn within(select: &[String], drop: &[String], budget: &Budget) -> Result<Self> {
        let compile = |patterns: &[String]| -> Result<Vec<_>> {
            patterns.iter().map(|p| Ok((p.clone(), Pattern::glob(p, budget)?))).collect()
        };
        Ok(Self { select: compile(select)?, drop: compile(drop)? })
    }

    /// Fails if a pattern matches no tensor of any of `checkpoints`.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`], code `no-match`.
    pub fn check_matched(&self, checkpoints: &[&Checkpoint]) -> Result<()> {
        for (text, pattern) in self.select.iter().chain(&self.drop) {
            let mut tensors = checkpoints.iter().flat_map(|checkpoint| &checkpoint.tensors);
            let mut skipped = checkpoints.iter().flat_map(|checkpoint| &checkpoint.notes);
            if !tensors.any(|tensor| matches(pattern, tensor))
                && !skipped.any(|note| is_skipped(pattern, note))
            {
                // Two checkpoints are compared after their renames.
                let renamed = match checkpoints {
                    [_, _] => phrase!["patterns apply to the names after ", Opt::Rename, "; "],
                    _ => "".into(),
                };
                let error =
                    Error::mismatch("no-match", "the pattern matches no tensor").found(text).hint(phrase![
                        renamed,
                        "a pattern must match the whole name: `conv*` matches names that begin with conv, `*weight` names that end with weight"
                    ]);
                return Err(match checkpoints {
                    [one] => error.in_file(&one.label),
                    [a, b] => error.expected(format_args!("a tensor of {} or of {}", a.label, b.label)),
                    _ => error,
                });
            }
        }
        Ok(())
    }

    /// Returns false for a note on a skipped tensor that is not selected, or is dropped; true for all others.
    pub(crate) fn keeps_note(&self, note: &Note) -> bool {
        self.selects_note(note) && !self.drops_note(note)
    }

    /// Returns false for a note on a skipped tensor that no `select` pattern matches; true for all others.
    pub fn selects_note(&self, note: &Note) -> bool {
        note.skipped.is_none()
            || self.select.is_empty()
            || self.select.iter().any(|(_, pattern)| is_skipped(pattern, note))
    }

    /// Returns true for a note on a skipped tensor that a `drop` pattern matches.
    fn drops_note(&self, note: &Note) -> bool {
        self.drop.iter().any(|(_, pattern)| is_skipped(pattern, note))
    }

    /// Returns true for the name of a tensor that is selected and not dropped.
    fn keeps_name(&self, name: &str) -> bool {
        self.selects_name(name) && !self.drop.iter().any(|(_, pattern)| pattern.is_match(name))
    }

    /// Returns true for a name that a `select` pattern matches, and for all names if there are no such patterns.
    pub fn selects_name(&self, name: &str) -> bool {
        self.select.is_empty() || self.select.iter().any(|(_, pattern)| pattern.is_match(name))
    }

    /// Returns true for a tensor that is selected and not dropped.
    pub(crate) fn keeps(&self, tensor: &TensorEntry) -> bool {
        self.selects(tensor) && !self.drops(tensor)
    }

    /// Returns true for a tensor that a `select` pattern matches, and for all tensors if there are no such patterns.
    pub fn selects(&self, tensor: &TensorEntry) -> bool {
        self.select.is_empty() || self.select.iter().any(|(_, pattern)| matches(pattern, tensor))
    }

    /// Returns true for a tensor that a `drop` pattern matches.
    pub fn drops(&self, tensor: &TensorEntry) -> bool {
        self.drop.iter().any(|(_, pattern)| matches(pattern, tensor))
    }
}

/// Returns true for a note on a skipped tensor that the pattern matches.
fn is_skipped(pattern: &Pattern, note: &Note) -> bool {
    note.skipped.as_ref().is_some_and(|tensor| pattern.is_match(&tensor.name))
}

fn matches(pattern: &Pattern, tensor: &TensorEntry) -> bool {
    let also = [Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME]
        .into_iter()
        .filter_map(|key| tensor.text_attribute(key));
    pattern.is_match(&tensor.path.to_text())
        || pattern.is_match(&tensor.text())
        || also.into_iter().any(|name| pattern.is_match(name))
}

impl DType {
    /// Returns the detail of the loss `rounding`.
    pub fn rounding_detail(self, cast: Cast) -> String {
        let how = if cast.to.is_float() { "rounded" } else { "truncated towards zero" };
        format!("{self} values are {how} to {cast}")
    }
}

impl Checkpoint {
    /// Keeps the selected tensors, the notes on selected skipped tensors, and the selected ones of the lost tensors.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`] if a pattern matches nothing: it is most likely a typo.
    pub fn select(&mut self, selection: &Selection) -> Result<()> {
        selection.check_matched(&[self])?;
        let before = self.tensors.len();
        self.tensors.retain(|tensor| selection.keeps(tensor));
        self.notes.retain(|note| selection.keeps_note(note));
        if let Some(damage) = &mut self.damage {
            // A lost tensor has no other name than its path.
            let by_path = self.tensors.iter().all(|tensor| selection.keeps_name(&tensor.text()));
            damage.keep_lost([before, self.tensors.len()], |name| !by_path || selection.keeps_name(name));
        }
        Ok(())
    }

    /// Returns the tensor of that name, as [`tensor`](Self::tensor) finds it, or else the tensors that match it as a pattern.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor); [`crate::Kind::Mismatch`], `no-match`, for a pattern that matches none.
    pub fn tensors_like(&self, text: &str) -> Result<Vec<&TensorEntry>> {
        let unknown = match self.tensor(text) {
            Ok(tensor) => return Ok(vec![tensor]),
            Err(error) if error.code() == ErrorCode::NoSuchTensor && text.contains(['*', '?', '[', '{']) => {
                error
            }
            Err(error) => return Err(error),
        };
        // A single bracket may also begin a slice.
        let Ok(selection) = Selection::new(&[text.to_owned()], &[]) else { return Err(unknown) };
        let found: Vec<&TensorEntry> = self.tensors.iter().filter(|tensor| selection.keeps(tensor)).collect();
        if found.is_empty() {
            let is_pattern = text.contains(['*', '?']);
            return Err(selection.check_matched(&[self]).err().filter(|_| is_pattern).unwrap_or(unknown));
        }
        Ok(found)
    }

    /// Removes all optimizer state.
    pub fn drop_state(&mut self) {
        let before = self.tensors.len();
        self.tensors.retain(|t| !t.role.is_state());
        if let Some(damage) = &mut self.damage {
            damage.keep_lost([before, self.tensors.len()], |_| true);
        }
        self.notes.retain(|note| !note.is_of_state());
    }

    /// Fails if two tensors have the same path and slot.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`], code `name-collision`.
    pub fn check_unique(&self) -> Result<()> {
        let mut seen = HashSet::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            if !seen.insert((&tensor.path, tensor.role.slot())) {
                return Err(Error::mismatch("name-collision", "duplicate tensor name")
                    .in_file(&self.label)
                    .on_tensor(tensor.name()));
            }
        }
        Ok(())
    }

    /// Sets the cast of every floating-point tensor to dtype `to`, which may include a rounding mode. Other tensors stay. Returns
    /// a loss for each tensor whose values may change.
    ///
    /// # Errors
    /// [`crate::Kind::Unsupported`] for a target or source dtype that cannot be cast.
    pub fn cast_floats(&mut self, to: impl Into<Cast>) -> Result<Vec<Loss>> {
        let cast = to.into();
        let to = cast.to;
        let mut losses = Vec::new();
        for tensor in self.tensors.iter_mut().filter(|t| t.stored.is_float()) {
            if tensor.stored == to {
                tensor.cast = None;
                continue;
            }
            if !tensor.stored.cast_is_supported(to) {
                return Err(Error::unsupported(
                    "no-such-cast",
                    format!("cannot cast {} to {to}", tensor.stored),
                )
                .on_tensor(tensor.name())
                .hint(format_args!("cast from floats of 8 bits or more to {}", DType::CAST_NAMES)));
            }
            if !tensor.stored.cast_is_exact(to) {
                let detail = tensor.stored.rounding_detail(cast);
                losses.push(Loss::new("rounding", tensor.name(), detail));
            }
            tensor.cast = Some(cast);
        }
        Ok(losses)
    }

    /// Reinterprets every column-major tensor as a row-major tensor with reversed dimensions. The bytes stay, element (i, j)
    /// becomes element (j, i), and the tensor is marked. Returns a loss, `state-not-transposed`, for each parameter whose
    /// optimizer state has another storage order, or is unknown.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`], code `no-match`, if no tensor is column-major.
    pub fn reverse_dims(&mut self) -> Result<Vec<Loss>> {
        if !self.tensors.is_empty() && self.tensors.iter().all(|t| t.order() == Order::Row) {
            return Err(Error::mismatch("no-match", "no tensor is column-major").in_file(&self.label));
        }
        let losses = self.state_in_another_order();
        for tensor in self.tensors.iter_mut().filter(|t| t.order() == Order::Column) {
            turn(tensor, Order::Row);
            // The batch is now the first dimension, which contradicts the attribute.
            let batch = tensor.attributes.remove(BATCH).unwrap_or(Value::Bool(true));
            tensor.attributes.insert(REVERSED.into(), batch);
        }
        Ok(losses)
    }

    /// Returns the losses of a reversal after which a parameter and its state have different layouts.
    fn state_in_another_order(&self) -> Vec<Loss> {
        let is_column = |tensor: &TensorEntry| tensor.order() == Order::Column;
        let matters = |tensor: &TensorEntry| tensor.shape.rank() > 1 && tensor.elements() > 1;
        let mut lost: BTreeMap<usize, String> = BTreeMap::new();
        let mut known: HashSet<usize> = HashSet::new();
        let mut stray = None;
        let owners = self.state_owners();
        for (state, of) in self.tensors.iter().zip(&owners).filter(|(t, _)| t.role.is_state() && matters(t)) {
            known.extend(of);
            let others = of.iter().filter(|&&place| {
                self.tensors.get(place).is_some_and(|t| matters(t) && is_column(t) != is_column(state))
            });
            others.for_each(|&place| _ = lost.entry(place).or_insert_with(|| quoted(&state.text())));
            stray = stray.or_else(|| (of.is_empty() && !is_column(state)).then_some(state));
        }
        if let Some(stray) = stray.map(|stray| quoted(&stray.text())) {
            let parameters = self.tensors.iter().enumerate().filter(|(place, tensor)| {
                !known.contains(place) && !tensor.role.is_state() && matters(tensor) && is_column(tensor)
            });
            parameters.for_each(|(place, _)| _ = lost.entry(place).or_insert_with(|| stray.clone()));
        }
        let name = |place: &usize| self.tensors.get(*place).map(TensorEntry::name).unwrap_or_default();
        let lost = lost.iter().map(|(place, state)| {
            let detail = format!(
                "{state} may be its optimizer state and has the other storage order; only one of them is reversed"
            );
            Loss::new("state-not-transposed", name(place), detail)
        });
        lost.collect()
    }

    /// Reverts [`reverse_dims`](Self::reverse_dims) for each tensor marked by it.
    pub fn restore_dims(&mut self) {
        for tensor in &mut self.tensors {
            let rows = tensor.extents.iter().all(|p| p.encoding.order == Order::Row);
            if rows && let Some(batch) = tensor.attributes.remove(REVERSED) {
                turn(tensor, Order::Column);
                if batch != Value::Bool(true) {
                    tensor.attributes.insert(BATCH.into(), batch);
                }
            }
        }
    }
}

fn turn(tensor: &mut TensorEntry, order: Order) {
    tensor.shape = Shape::reversed(&tensor.shape);
    for extent in &mut tensor.extents {
        extent.part.iter_mut().for_each(|part| part.reverse());
        extent.encoding = Encoding { order, ..extent.encoding };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Name, Rename, Role, TensorPath};
    use crate::source::{MemorySource, SourceRef};
    use std::sync::Arc;

    fn checkpoint() -> Checkpoint {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 24]));
        let entry = |path: &[&str], slot: Option<&str>| {
            let path = TensorPath::new(path.iter().map(|&p| Name::from(p)).collect::<Vec<_>>());
            let mut entry =
                TensorEntry::dense(path, DType::F32, Shape::from([2, 3]), &source, 0, Encoding::COLUMN)
                    .unwrap();
            if let Some(slot) = slot {
                entry.role = Role::OptimizerState { slot: slot.into() };
            }
            entry
        };
        let mut checkpoint = Checkpoint::new("primitiv", "model", "m");
        checkpoint.tensors = vec![
            entry(&["enc", "w"], None),
            entry(&["enc", "w"], Some("Adam.m1")),
            entry(&["encoder", "w"], None),
        ];
        checkpoint
    }

    fn names(checkpoint: &Checkpoint) -> Vec<String> {
        checkpoint.tensors.iter().map(TensorEntry::name).collect()
    }

    #[test]
    fn state_follows_its_parameter() {
        let mut c = checkpoint();
        c.rename(&[Rename::parse("enc=decoder.x").unwrap()]).unwrap();
        assert_eq!(names(&c), ["decoder.x.w", "decoder.x.w/Adam.m1", "encoder.w"]);
        let mut c = checkpoint();
        c.select(&Selection::new(&["enc.*".into()], &[]).unwrap()).unwrap();
        assert_eq!(names(&c), ["enc.w", "enc.w/Adam.m1"]);
        let mut c = checkpoint();
        c.select(&Selection::new(&[], &["enc.w".into()]).unwrap()).unwrap();
        assert_eq!(names(&c), ["encoder.w"]);
        let mut c = checkpoint();
        c.drop_state();
        assert_eq!(names(&c), ["enc.w", "encoder.w"]);
    }

    #[test]
    fn tensors_like_prefers_names_to_patterns() {
        let c = checkpoint();
        let found = |text: &str| -> Result<Vec<String>> {
            Ok(c.tensors_like(text)?.into_iter().map(TensorEntry::name).collect())
        };
        assert_eq!(found("enc.w").unwrap(), ["enc.w"]);
        assert_eq!(found("enc.*").unwrap(), ["enc.w", "enc.w/Adam.m1"]);
        assert_eq!(found("{enc,encoder}.w").unwrap(), ["enc.w", "enc.w/Adam.m1", "encoder.w"]);
        let code = |text: &str| found(text).unwrap_err().code().as_str();
        assert_eq!(
            (code("x*"), code("enc.v"), code("enc.v[0]")),
            ("no-match", "no-such-tensor", "no-such-tensor")
        );
        assert_eq!(code("enc.w[0"), "no-such-tensor");
    }

    #[test]
    fn unknown_names_suggest_similar_ones() {
        let c = checkpoint();
        let hint = |name: &str| c.tensor(name).unwrap_err().hint_text().unwrap().to_owned();
        assert_eq!(hint("encodr.w"), "did you mean `encoder.w`, `enc.w`?");
        assert_eq!(hint("w/adam"), "did you mean `enc.w/Adam.m1`?");
        assert_eq!(hint("decoder.net.w"), "did you mean `enc.w`, `enc.w/Adam.m1`, `encoder.w`?");
        assert_eq!(hint("zzz"), "no name is similar; the first tensors are enc.w, enc.w/Adam.m1, encoder.w");
        let mut one = c.clone();
        one.tensors.truncate(1);
        assert_eq!(one.tensor("zzz").unwrap_err().hint_text(), Some("the only tensor is `enc.w`"));
        assert!(hint("enc.*").starts_with("give one name, not a pattern"), "{}", hint("enc.*"));
        assert_eq!(hint("enc.w[0][1]"), "use one pair of brackets: [0,1]");
        assert_eq!(hint("[0]"), "give a name before the brackets; the file has 3 tensors");
        assert_eq!(hint("[\"enc\""), "the path is not a JSON array of texts, such as [\"fc1\",\"w\"]");
        let empty = Checkpoint::new("npz", "archive", "m");
        assert_eq!(empty.tensor("w").unwrap_err().hint_text(), Some("the file has no tensors"));
    }

    #[test]
    fn rejects_renames_that_match_nothing_or_collide() {
        let code =
            |rule: &str| checkpoint().rename(&[Rename::parse(rule).unwrap()]).unwrap_err().code().as_str();
        assert_eq!(code("en=x"), "no-match");
        assert_eq!(code("enc=encoder"), "name-collision");
        assert_eq!(code("enc.w="), "empty-path");
        assert!(Rename::parse("enc").is_err());
        let nothing = Selection::new(&["nothing*".into()], &[]).unwrap();
        assert_eq!(checkpoint().select(&nothing).unwrap_err().code().as_str(), "no-match");
    }

    #[test]
    fn renames_add_and_remove_a_root_level() {
        let mut c = checkpoint();
        c.rename(&[Rename::parse("=net").unwrap()]).unwrap();
        assert_eq!(names(&c)[0], "net.enc.w");
        c.rename(&[Rename::parse("net=").unwrap()]).unwrap();
        assert_eq!(names(&c), names(&checkpoint()));
    }

    #[test]
    fn restore_dims_reverts_reverse_dims() {
        let mut c = checkpoint();
        c.reverse_dims().unwrap();
        assert_eq!(c.tensors[0].shape, Shape::from([3, 2]));
        assert_eq!(c.tensors[0].order(), Order::Row);
        c.restore_dims();
        assert_eq!(c.tensors[0].shape, Shape::from([2, 3]));
        assert_eq!(c.tensors[0].order(), Order::Column);
        assert!(c.tensors[0].attributes.is_empty());
    }

    #[test]
    fn reversal_reports_state_in_another_order() {
        let lost = |change: &dyn Fn(&mut Checkpoint)| -> Vec<String> {
            let mut c = checkpoint();
            change(&mut c);
            c.reverse_dims().unwrap().into_iter().map(|loss| loss.subject).collect()
        };
        assert_eq!(lost(&|_| ()), [""; 0]);
        assert_eq!(lost(&|c| turn(&mut c.tensors[1], Order::Row)), ["enc.w"]);
        assert_eq!(lost(&|c| turn(&mut c.tensors[0], Order::Row)), ["enc.w"]);
        // State of an unknown parameter.
        let stray = |c: &mut Checkpoint| c.tensors[1].role = Role::OptimizerPart { of: None };
        assert_eq!(lost(&stray), [""; 0]);
        assert_eq!(
            lost(&|c| {
                stray(c);
                turn(&mut c.tensors[1], Order::Row);
            }),
            ["enc.w", "encoder.w"]
        );
    }

    #[test]
    fn casts_report_losses() {
        let mut c = checkpoint();
        assert_eq!(c.cast_floats(DType::F64).unwrap(), []);
        assert_eq!(c.tensors[0].bytes(), 48);
        assert_eq!(c.cast_floats(DType::F16).unwrap().len(), 3);
        assert_eq!(c.cast_floats(DType::F32).unwrap(), []);
        assert_eq!(c.tensors[0].cast, None);
        assert_eq!(c.cast_floats(DType::I16).unwrap_err().code().as_str(), "no-such-cast");
    }
}
