//! Tensors with several names: structured names and variable names.

use super::{Checkpoint, Name, Note, Role, TensorEntry, TensorPath, Value};
use crate::checkpoint::Attributes;
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};

impl Attributes {
    /// Attribute with the name of a tensor in the structure of the source code, such as `conv1.weight`, if its path differs.
    pub const STRUCTURED_NAME: &'static str = "structured_name";

    /// Attribute with the name of a tensor as a variable of its program, such as `conv2d_0.w_0`, if its path differs.
    pub const VARIABLE_NAME: &'static str = "variable_name";

    /// Attribute of optimizer state with the variable name of its parameter, if the path differs.
    pub const PARAMETER_VARIABLE: &'static str = "parameter_variable";

    /// Attribute with the name of a tensor before it was renamed, if its program or the metadata refer to that name.
    pub const RENAMED_FROM: &'static str = "renamed_from";

    /// Attribute of a tensor that shares part of its bytes with another one: the storage of both views.
    pub const STORAGE: &'static str = "storage";

    /// Attribute of a tensor that shares all of its bytes with another one: the name of that one, as returned by
    /// [`TensorEntry::text`].
    pub const ALIAS_OF: &'static str = "alias_of";
}

/// Set of used tensor names, which makes duplicates unique.
#[derive(Debug, Default)]
pub struct Distinct {
    texts: HashSet<String>,
    /// Next suffix to try for each duplicated name.
    free: HashMap<String, usize>,
}

impl Distinct {
    /// Returns true if a tensor has that name.
    pub fn is_taken(&self, name: &str) -> bool {
        self.texts.contains(name)
    }

    /// Adds the name of a tensor. A duplicate (keys with dots can look like nested keys) gets a suffix, with a note that states
    /// the new name.
    pub fn add(&mut self, entry: &mut TensorEntry) -> Option<Note> {
        if self.texts.insert(entry.text()) {
            return None;
        }
        let mut parts = entry.path.parts().to_vec();
        let last = parts.pop().map(|last| last.to_text()).unwrap_or_default();
        // Continue after the last suffix of this name: all lower ones are used.
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
        let text = format!("duplicate tensor name; the second tensor is named {}", entry.name());
        Some(Note::new("name-collision", text))
    }
}

impl TensorEntry {
    /// Returns true if `name` is an alternative name of the tensor.
    pub(super) fn goes_by(&self, name: &str) -> bool {
        [Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME]
            .iter()
            .any(|key| self.text_attribute(key) == Some(name))
    }

    /// Returns the text of an attribute.
    pub fn text_attribute(&self, key: &str) -> Option<&str> {
        match self.attributes.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
}

impl Checkpoint {
    /// Renames every tensor with the attribute `wanted` to that name, and keeps the previous path as the attribute `kept`. State
    /// follows its parameter. Tensors without the attribute stay unchanged, with a note.
    ///
    /// # Errors
    /// [`crate::Kind::Mismatch`]: `no-such-names` if no tensor has the attribute; `name-collision` if two tensors would have the
    /// same name.
    pub fn use_names(&mut self, wanted: &str, kept: &'static str) -> Result<()> {
        let mut map = HashMap::<TensorPath, TensorPath>::new();
        for tensor in self.tensors.iter().filter(|t| t.role.slot().is_none()) {
            if let Some(name) = tensor.text_attribute(wanted) {
                map.insert(tensor.path.clone(), TensorPath::from_dotted(name));
            }
        }
        let plain = || self.tensors.iter().filter(|t| t.role.slot().is_none());
        let knows = |t: &TensorEntry| t.attributes.contains_key(wanted) || t.attributes.contains_key(kept);
        // If there are variable names only, nothing needs to be done.
        let variables = wanted == Attributes::VARIABLE_NAME && !plain().any(knows);
        if variables {
            return Ok(());
        }
        if plain().next().is_some() && !plain().any(knows) {
            let what = wanted.replace('_', " ");
            return Err(Error::mismatch("no-such-names", format!("no tensor has a {what}"))
                .in_file(&self.label)
                .hint(match wanted == Attributes::STRUCTURED_NAME {
                    true => "structured names are stored in x.pdiparams.info or in a .pdparams file; a program has only variable names",
                    false => "variable names are stored in the program or in a .pdparams file",
                }));
        }
        let mut without = 0u64;
        let mut renamed = HashMap::<String, String>::new();
        for tensor in &mut self.tensors {
            // State follows its parameter, unless it has a name of its own.
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
                    renamed.insert(old.to_text(), tensor.path.to_text());
                }
                // A tensor with a name of the other kind already uses a name of this kind.
                // Optimizer state is named after its parameter, or not at all.
                None if tensor.role.is_state() => {}
                None => without += u64::from(!tensor.attributes.contains_key(kept)),
            }
        }
        for tensor in &mut self.tensors {
            if let Role::OptimizerPart { of: Some(of) } = &mut tensor.role
                && let Some(name) = renamed.get(&of.name)
            {
                of.name.clone_from(name);
            }
        }
        if without > 0 {
            let wanted = wanted.replace('_', " ");
            let text = match without {
                1 => format!("1 tensor has no {wanted} and keeps its name"),
                _ => format!("{without} tensors have no {wanted} and keep their names"),
            };
            self.notes.push(Note::new("names-missing", text));
        }
        self.check_unique()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Name;
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
    fn use_names_can_be_reverted() {
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
    fn state_of_a_renamed_parameter_follows() {
        let mut c = checkpoint();
        let of = crate::checkpoint::StateOf { name: "conv2d_0.w_0".into(), guessed: false };
        c.tensors[2].role = Role::OptimizerPart { of: Some(Box::new(of)) };
        c.use_names(Attributes::STRUCTURED_NAME, Attributes::VARIABLE_NAME).unwrap();
        assert_eq!(c.tensors[2].role.state_of().unwrap().name, "conv1.weight");
    }

    #[test]
    fn rejects_name_collisions() {
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
