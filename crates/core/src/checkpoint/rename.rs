//! Renames of tensors. Optimizer state and references from other tensors follow.

use super::{Attributes, Checkpoint, Loss, Modules, Note, Role, TensorEntry, TensorPath, Value};
use crate::error::{Error, Result};
use crate::phrase;
use crate::phrase::Job;
use std::collections::HashMap;

/// Anchored rename rule: the path `from`, and every path below it, moves to `to`. Parts match as a whole, so `enc=encoder` does
/// not match `encoder2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// Old path.
    pub from: TensorPath,
    /// New path.
    pub to: TensorPath,
}

impl Rename {
    /// Parses `OLD=NEW`; each side is a dotted name or a JSON array of parts. An empty side is the root: `=model` moves all
    /// tensors below `model`, `model=` removes that level.
    ///
    /// # Errors
    /// [`crate::Kind::Usage`] without `=`.
    pub fn parse(rule: &str) -> Result<Self> {
        match rule.split_once('=') {
            Some((from, to)) => Ok(Self::new(from, to)),
            None => Err(Error::usage("bad-rename", "the rename is not of the form OLD=NEW").found(rule)),
        }
    }

    /// Creates the rule of these two sides, as in [`parse`](Self::parse).
    ///
    /// A trailing dot is a separator if the other side is empty or has one too: `=model.` is equal to `=model`. For an empty
    /// part, write a JSON array: `["model",""]`.
    pub fn new(from: &str, to: &str) -> Self {
        let (from, to) = match (from.strip_suffix('.'), to.strip_suffix('.')) {
            (Some(from), Some(to)) if !from.is_empty() && !to.is_empty() => (from, to),
            (Some(from), None) if !from.is_empty() && to.is_empty() => (from, to),
            (None, Some(to)) if from.is_empty() && !to.is_empty() => (from, to),
            _ => (from, to),
        };
        let side = |text: &str| if text.is_empty() { TensorPath::default() } else { TensorPath::parse(text) };
        Self { from: side(from), to: side(to) }
    }

    /// Returns the new path of `path`; `None` if the rule does not match it.
    pub fn apply(&self, path: &TensorPath) -> Option<TensorPath> {
        let rest = path.starts_with(&self.from).then(|| &path.parts()[self.from.parts().len()..])?;
        Some(TensorPath::new([self.to.parts(), rest].concat()))
    }
}

impl Checkpoint {
    /// Applies to every path the first rule that matches it. References that cannot follow are noted as omissions.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`]: `no-match` if a rule matches no path, `name-collision` if two tensors would have the same
    /// path, `empty-path` if one would have none.
    pub fn rename(&mut self, rules: &[Rename]) -> Result<()> {
        let (_, losses) = self.rename_found(rules, false)?;
        let notes = losses
            .into_iter()
            .map(|loss| Note::omission(loss.code, phrase![loss.subject, ": ", loss.detail]));
        self.notes.extend(notes);
        Ok(())
    }

    /// Renames tensors, as [`rename`](Self::rename). Returns the indices of unmatched rules, which are an error unless `lenient`,
    /// and losses for references that cannot follow.
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub fn rename_found(&mut self, rules: &[Rename], lenient: bool) -> Result<(Vec<usize>, Vec<Loss>)> {
        let mut used = vec![false; rules.len()];
        let hits = self.tensors.iter().map(|tensor| {
            let (place, path) =
                rules.iter().enumerate().find_map(|(i, r)| Some((i, r.apply(&tensor.path)?)))?;
            used[place] = true;
            Some(path)
        });
        let paths: Vec<Option<TensorPath>> = hits.collect();
        self.check_named(&paths)?;
        let unused: Vec<usize> = (0..used.len()).filter(|&place| !used[place]).collect();
        if let Some(&unused) = unused.first().filter(|_| !lenient) {
            return Err(Error::mismatch("no-match", "the rename matches no tensor")
                .in_file(&self.label)
                .found(format_args!("{}={}", rules[unused].from, rules[unused].to))
                .hint(phrase![
                    "a rename takes a whole name or its leading parts; ",
                    Job::Edit.brief(),
                    " also renames by patterns"
                ]));
        }
        let modules = Modules::of(self);
        self.set_paths(paths)?;
        let losses = modules.map_or_else(Vec::new, |modules| modules.follow_renamed(self));
        Ok((unused, losses))
    }

    /// Sets the path of every tensor to the one at its index in `paths`; `None` keeps it. All or nothing.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`]: `name-collision`, with the current names of both, if two tensors would have the same path;
    /// `empty-path` if one would have none.
    pub fn set_paths(&mut self, paths: Vec<Option<TensorPath>>) -> Result<()> {
        self.check_named(&paths)?;
        self.check_apart(&paths)?;
        let partitioned = self.metadata.get("partitions").is_some();
        // References to tensors by name follow, if there are any.
        let speaks = |tensor: &TensorEntry| {
            tensor.attributes.contains_key(Attributes::ALIAS_OF) || tensor.role.state_of().is_some()
        };
        let spoken_of = self.tensors.iter().any(speaks);
        let mut texts: HashMap<String, Option<String>> = HashMap::new();
        for (tensor, path) in self.tensors.iter_mut().zip(paths) {
            let Some(path) = path.filter(|path| *path != tensor.path) else { continue };
            let before = spoken_of.then(|| tensor.text());
            // The program and the partitions in the metadata refer to the old name.
            let told = self.topology.is_some() && !tensor.attributes.contains_key(Attributes::VARIABLE_NAME);
            if told || partitioned && matches!(tensor.role, Role::Embedding | Role::Names) {
                let old = Value::Text(tensor.path.to_text());
                tensor.attributes.entry(Attributes::RENAMED_FROM.to_owned()).or_insert(old);
            }
            tensor.path = path;
            // A display name of two tensors is ambiguous.
            if let Some(before) = before {
                let after = tensor.text();
                texts.entry(before).and_modify(|known| *known = None).or_insert(Some(after));
            }
        }
        for tensor in &mut self.tensors {
            if let Some(of) = tensor.text_attribute(Attributes::ALIAS_OF)
                && let Some(Some(after)) = texts.get(of)
            {
                tensor.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(after.clone()));
            }
            if let Role::OptimizerPart { of } = &mut tensor.role
                && let Some(Some(after)) = of.as_ref().and_then(|of| texts.get(&of.name))
                && let Some(of) = of
            {
                of.name.clone_from(after);
            }
        }
        Ok(())
    }

    fn check_named(&self, paths: &[Option<TensorPath>]) -> Result<()> {
        let nameless = |path: &Option<TensorPath>| path.as_ref().is_some_and(|path| path.parts().is_empty());
        match self.tensors.iter().zip(paths).find(|(_, path)| nameless(path)) {
            Some((tensor, _)) => {
                Err(Error::mismatch("empty-path", "the rename leaves the tensor without a name")
                    .in_file(&self.label)
                    .on_tensor(tensor.name()))
            }
            None => Ok(()),
        }
    }

    /// Fails if two tensors would have the same path and slot.
    fn check_apart(&self, paths: &[Option<TensorPath>]) -> Result<()> {
        let mut seen = HashMap::with_capacity(self.tensors.len());
        for (tensor, path) in self.tensors.iter().zip(paths) {
            let path = path.as_ref().unwrap_or(&tensor.path);
            if let Some(other) = seen.insert((path, tensor.role.slot()), tensor) {
                return Err(both(path, tensor, other).in_file(&self.label));
            }
        }
        Ok(())
    }
}

fn both(path: &TensorPath, tensor: &TensorEntry, other: &TensorEntry) -> Error {
    let error = Error::mismatch("name-collision", "two tensors would have the same name").on_tensor(path);
    match (other.name(), tensor.name()) {
        (a, b) if a == b => error,
        (a, b) => error.found(format_args!("{a} and {b}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Name;
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Shape};
    use std::sync::Arc;

    fn checkpoint(names: &[&str]) -> Checkpoint {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 4]));
        let entry = |name: &&str| {
            let path = TensorPath::from_dotted(name);
            TensorEntry::dense(path, DType::F32, Shape::from([1]), &source, 0, Encoding::ROW).unwrap()
        };
        let mut checkpoint = Checkpoint::new("torch", "state_dict", "m");
        checkpoint.tensors = names.iter().map(entry).collect();
        checkpoint
    }

    #[test]
    fn trailing_dots_are_separators() {
        for (with, without) in [("=net.", "=net"), ("net.=", "net="), ("a.b.=c.", "a.b=c")] {
            assert_eq!(Rename::parse(with).unwrap(), Rename::parse(without).unwrap(), "{with}");
        }
        // A single name may end in a dot; so may a JSON array.
        for (rule, to) in [("a=b.", ["b", ""]), (r#"=["b",""]"#, ["b", ""]), ("=.", ["", ""])] {
            assert_eq!(Rename::parse(rule).unwrap().to, TensorPath::new(to.map(Name::from)), "{rule}");
        }
    }

    #[test]
    fn aliases_follow_renames() {
        let mut c = checkpoint(&["embed", "head"]);
        c.tensors[1].attributes.insert(Attributes::ALIAS_OF.into(), Value::Text("embed".into()));
        c.rename(&[Rename::parse("embed=tok.embed").unwrap()]).unwrap();
        assert_eq!(c.tensors[1].text_attribute(Attributes::ALIAS_OF), Some("tok.embed"));
    }

    #[test]
    fn collisions_name_both_and_change_nothing() {
        let mut c = checkpoint(&["a.w", "b.w", "c"]);
        let error = c.rename(&[Rename::parse("a=x").unwrap(), Rename::parse("b=x").unwrap()]).unwrap_err();
        assert_eq!(
            (error.code().as_str(), error.tensor(), error.found_text()),
            ("name-collision", Some("x.w"), Some("a.w and b.w"))
        );
        let names: Vec<_> = c.tensors.iter().map(TensorEntry::name).collect();
        assert_eq!(names, ["a.w", "b.w", "c"]);
        // Swapped names do not collide.
        c.rename(&[Rename::parse("a=b").unwrap(), Rename::parse("b=a").unwrap()]).unwrap();
        assert_eq!(c.tensors[0].name(), "b.w");
    }
}
