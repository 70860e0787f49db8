//! Tensors that go by several names: which one is their path.

use super::{Checkpoint, Name, Note, TensorEntry, TensorPath, Value};
use crate::checkpoint::Attributes;
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};

impl Attributes {
    /// The attribute that holds the name of a tensor in the structure of the source code, such as
    /// `conv1.weight`, where its path is another.
    pub const STRUCTURED_NAME: &'static str = "structured_name";

    /// The attribute that holds the name of a tensor as a variable of its program, such as
    /// `conv2d_0.w_0`, where its path is another.
    pub const VARIABLE_NAME: &'static str = "variable_name";

    /// The attribute of an optimizer's tensor that holds the name of its parameter as a variable, where
    /// the path is another.
    pub const PARAMETER_VARIABLE: &'static str = "parameter_variable";

    /// The attribute that holds the name that a tensor had before it was renamed, where its program or the
    /// metadata know it by that.
    pub const RENAMED_FROM: &'static str = "renamed_from";

    /// The attribute of a tensor that shares a part of its bytes with another one: what they are both
    /// views of.
    pub const STORAGE: &'static str = "storage";

    /// The attribute of a tensor that has its bytes in common with another one: that one's name, as
    /// [`TensorEntry::text`] gives it.
    pub const ALIAS_OF: &'static str = "alias_of";
}

/// The names that tensors have so far, where each is to have its own.
#[derive(Debug, Default)]
pub struct Distinct {
    texts: HashSet<String>,
    /// Of each name that was met twice, the number from which on a free one is sought.
    free: HashMap<String, usize>,
}

impl Distinct {
    /// True where a tensor has that name.
    pub fn is_taken(&self, name: &str) -> bool {
        self.texts.contains(name)
    }

    /// Makes the name of a tensor the only one of its kind, as keys with dots can look like keys within keys. The note
    /// says which name it has, where it is another one.
    pub fn add(&mut self, entry: &mut TensorEntry) -> Option<Note> {
        if self.texts.insert(entry.text()) {
            return None;
        }
        let mut parts = entry.path.parts().to_vec();
        let last = parts.pop().map(|last| last.to_text()).unwrap_or_default();
        // From where the last of this name was found: what was taken then is taken still.
        let taken = self.texts.len();
        let count = self.free.entry(entry.text()).or_default();
        *count = taken.max(*count);
        loop {
            let mut parts = parts.clone();
            parts.push(Name::from(format!("{last}~{count}").as_str()));
            *count += 1;
            entry.path = TensorPath::new(parts);
            if self.texts.insert(entry.text()) {
                break;
            }
        }
        let text = format!("two tensors would be called alike; one is called {} instead", entry.name());
        Some(Note::new("name-collision", text))
    }
}

impl TensorEntry {
    /// True where `name` is another name that the tensor has.
    pub(super) fn goes_by(&self, name: &str) -> bool {
        [Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME]
            .iter()
            .any(|key| self.text_attribute(key) == Some(name))
    }

    /// The text of an attribute.
    pub fn text_attribute(&self, key: &str) -> Option<&str> {
        match self.attributes.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
}

impl Checkpoint {
    /// Gives every tensor that has the attribute `wanted` that name as its path, and keeps the
    /// path it had as the attribute `kept`. State goes with its parameter. Tensors without the
    /// attribute stay as they are, with a note.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`]: `no-such-names` where no tensor has such a name; `name-collision`
    /// where two tensors would have one name.
    pub fn use_names(&mut self, wanted: &str, kept: &'static str) -> Result<()> {
        let mut map = HashMap::<TensorPath, TensorPath>::new();
        for tensor in self.tensors.iter().filter(|t| t.role.slot().is_none()) {
            if let Some(name) = tensor.text_attribute(wanted) {
                map.insert(tensor.path.clone(), TensorPath::from_dotted(name));
            }
        }
        let plain = || self.tensors.iter().filter(|t| t.role.slot().is_none());
        let knows = |t: &TensorEntry| t.attributes.contains_key(wanted) || t.attributes.contains_key(kept);
        // Names of variables may be all that there is; then nothing is to be done.
        let variables = wanted == Attributes::VARIABLE_NAME && !plain().any(knows);
        if variables {
            return Ok(());
        }
        if plain().next().is_some() && !plain().any(knows) {
            let what = wanted.replace('_', " ");
            return Err(Error::mismatch("no-such-names", format!("no tensor has a {what}"))
                .in_file(&self.label)
                .hint(
                    "structured names stand in x.pdiparams.info or in a .pdparams; variables have them in their program",
                ));
        }
        let mut without = 0u64;
        for tensor in &mut self.tensors {
            // State goes by its parameter; a name of its own is another matter.
            if tensor.role.slot().is_some() {
                if let Some(path) = map.get(&tensor.path) {
                    let old = std::mem::replace(&mut tensor.path, path.clone());
                    if kept == Attributes::VARIABLE_NAME {
                        tensor
                            .attributes
                            .insert(Attributes::PARAMETER_VARIABLE.to_owned(), Value::Text(old.to_text()));
                    } else {
                        tensor.attributes.remove(Attributes::PARAMETER_VARIABLE);
                    }
                }
                continue;
            }
            match tensor.text_attribute(wanted).map(TensorPath::from_dotted) {
                Some(path) => {
                    let old = std::mem::replace(&mut tensor.path, path);
                    tensor.attributes.remove(wanted);
                    tensor.attributes.insert(kept.to_owned(), Value::Text(old.to_text()));
                }
                // It goes by such a name already where it keeps one of the other kind.
                None => without += u64::from(!tensor.attributes.contains_key(kept)),
            }
        }
        if without > 0 {
            let wanted = wanted.replace('_', " ");
            let text = match without {
                1 => format!("1 tensor has no {wanted} and keeps the name it has"),
                _ => format!("{without} tensors have no {wanted} and keep the name they have"),
            };
            self.notes.push(Note::new("names-missing", text));
        }
        self.check_unique()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Name, Role};
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Shape};
    use std::sync::Arc;

    fn checkpoint() -> Checkpoint {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 64]));
        let entry = |path: &str| {
            let path = TensorPath::from_dotted(path);
            TensorEntry::dense(path, DType::F32, Shape::new([2]), &source, 0, Encoding::ROW).unwrap()
        };
        let mut c = Checkpoint::new("paddle", "combined", "m");
        c.tensors = vec![entry("conv2d_0.w_0"), entry("conv2d_0.w_0"), entry("lone")];
        c.tensors[0]
            .attributes
            .insert(Attributes::STRUCTURED_NAME.into(), Value::Text("conv1.weight".into()));
        c.tensors[1].role = Role::OptimizerState { slot: Name::from("moment1_0") };
        c
    }

    #[test]
    fn names_go_there_and_back_with_state() {
        let mut c = checkpoint();
        c.use_names(Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME).unwrap();
        let names: Vec<_> = c.tensors.iter().map(TensorEntry::text).collect();
        assert_eq!(names, ["conv1.weight", "conv1.weight/moment1_0", "lone"]);
        assert_eq!(c.tensors[0].text_attribute(Attributes::VARIABLE_NAME), Some("conv2d_0.w_0"));
        assert_eq!(c.notes[0].code.as_str(), "names-missing");
        c.use_names(Attributes::VARIABLE_NAME, Attributes::STRUCTURED_NAME).unwrap();
        let names: Vec<_> = c.tensors.iter().map(TensorEntry::text).collect();
        assert_eq!(names, ["conv2d_0.w_0", "conv2d_0.w_0/moment1_0", "lone"]);
    }

    #[test]
    fn collisions_are_refused() {
        let mut c = checkpoint();
        c.tensors[2]
            .attributes
            .insert(Attributes::STRUCTURED_NAME.into(), Value::Text("conv1.weight".into()));
        assert_eq!(
            c.use_names(Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME).unwrap_err().code().as_str(),
            "name-collision"
        );
    }
}
