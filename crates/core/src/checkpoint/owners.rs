//! Parameters of optimizer state, if the path of the state is not enough.

use super::{Attributes, Checkpoint, TensorEntry, TensorPath, Value};
use std::collections::{HashMap, HashSet};

/// Maximum number of trailing parts of a path looked up as a variable name: `linear_0.w_0` has two.
const MAX_PARTS: usize = 16;
/// Maximum number of candidate parameters of state. With more, the parameter is unknown.
const MAX_OWNERS: usize = 16;

impl Checkpoint {
    /// Returns, for each tensor, the indices of the parameters that it may be state of. Empty for non-state and unknown
    /// parameters; several if they share the variable name that the state has for its parameter.
    ///
    /// The parameter is the one that the state names, or the one of the same path, with all others of the same variable name. If
    /// there is none, the path of state in a dict of its own may end in the variable name. Aliases of the first parameter are not
    /// listed.
    pub fn state_owners(&self) -> Vec<Vec<usize>> {
        let mut owners = vec![Vec::new(); self.tensors.len()];
        if !self.tensors.iter().any(|tensor| tensor.role.is_state()) {
            return owners;
        }
        let mut names = Names::default();
        for (place, tensor) in self.tensors.iter().enumerate().filter(|(_, tensor)| !tensor.role.is_state()) {
            names.paths.entry(&tensor.path).or_default().push(place);
            names.texts.entry(tensor.text()).or_default().push(place);
            let variable = tensor.text_attribute(Attributes::VARIABLE_NAME).map(str::to_owned);
            let is_variable = || tensor.attributes.contains_key(Attributes::STRUCTURED_NAME);
            if let Some(variable) = variable.or_else(|| is_variable().then(|| tensor.path.to_text())) {
                let (first, places) =
                    names.variables.entry(variable).or_insert_with(|| (tensor.text(), Vec::new()));
                if tensor.text_attribute(Attributes::ALIAS_OF) != Some(first) {
                    places.push(place);
                }
            }
        }
        for (state, of) in self.tensors.iter().zip(&mut owners).filter(|(state, _)| state.role.is_state()) {
            *of = match state.role.state_of() {
                Some(of) => few(names.texts.get(&of.name)),
                None if state.role.slot().is_none() => Vec::new(),
                None => {
                    let mut places = few(names.paths.get(&state.path));
                    let called = names.called(state, places.is_empty());
                    self.add_likely(&mut places, state, called);
                    places
                }
            };
        }
        owners
    }

    /// Adds those of `called` that can be the parameter of `state`: their shapes must be compatible.
    fn add_likely(&self, places: &mut Vec<usize>, state: &TensorEntry, called: &[usize]) {
        if places.len().saturating_add(called.len()) > MAX_OWNERS {
            places.clear();
            return;
        }
        let fits = |place: &usize| {
            let entry = self.tensors.get(*place);
            entry.is_some_and(|entry| state.elements() <= 1 || entry.shape == state.shape)
        };
        let more: Vec<usize> = called.iter().copied().filter(|p| !places.contains(p)).collect();
        places.extend(more.iter().filter(|place| fits(place)));
    }

    /// Sets the path of state to that of its parameter, if its current path is the variable name of the parameter. Of several
    /// parameters with that name, the first one counts. The name is kept as [`Attributes::PARAMETER_VARIABLE`].
    pub fn attach_state(&mut self) {
        if self.tensors.iter().any(|tensor| tensor.role.slot().is_some()) {
            let mut parameters = Parameters::default();
            parameters.add(self);
            parameters.attach(self);
        }
    }

    /// Attaches state, as [`Checkpoint::attach_state`], for each of `sources`. The parameter may be in another source, if all
    /// sources with that parameter have the same path for it.
    pub fn attach_state_among(sources: &mut [Checkpoint]) {
        sources.iter_mut().for_each(Checkpoint::attach_state);
        if sources.len() > 1
            && sources.iter().flat_map(|one| &one.tensors).any(|one| one.role.slot().is_some())
        {
            let mut parameters = Parameters::default();
            sources.iter().for_each(|source| parameters.add(source));
            sources.iter_mut().for_each(|source| parameters.attach(source));
        }
    }
}

/// Paths of parameters.
#[derive(Default)]
struct Parameters {
    paths: HashSet<TensorPath>,
    /// By variable name; `None` if ambiguous.
    variables: HashMap<String, Option<TensorPath>>,
}

impl Parameters {
    /// Adds the parameters of `source`. The first of a name counts; a different one in another source makes it ambiguous.
    fn add(&mut self, source: &Checkpoint) {
        let mut met: HashSet<&str> = HashSet::new();
        for tensor in source.tensors.iter().filter(|tensor| !tensor.role.is_state()) {
            self.paths.insert(tensor.path.clone());
            let variable = tensor.text_attribute(Attributes::VARIABLE_NAME);
            let Some(variable) = variable.filter(|variable| met.insert(variable)) else { continue };
            match self.variables.get_mut(variable) {
                None => _ = self.variables.insert(variable.to_owned(), Some(tensor.path.clone())),
                Some(known) if known.as_ref() != Some(&tensor.path) => *known = None,
                Some(_) => {}
            }
        }
    }

    fn attach(&self, checkpoint: &mut Checkpoint) {
        let mut taken: HashSet<String> = checkpoint.tensors.iter().map(TensorEntry::text).collect();
        let mut texts: HashMap<String, String> = HashMap::new();
        for state in &mut checkpoint.tensors {
            let Some(slot) = state.role.slot().filter(|_| !self.paths.contains(&state.path)) else {
                continue;
            };
            let variable = state.path.to_text();
            let Some(Some(path)) = self.variables.get(&variable) else { continue };
            if taken.insert(format!("{}/{}", path.to_text(), slot.to_text())) {
                let before = state.text();
                state.path = path.clone();
                state.attributes.insert(Attributes::PARAMETER_VARIABLE.to_owned(), Value::Text(variable));
                texts.insert(before, state.text());
            }
        }
        // Aliases may refer to renamed tensors.
        for tensor in &mut checkpoint.tensors {
            if let Some(after) = tensor.text_attribute(Attributes::ALIAS_OF).and_then(|of| texts.get(of)) {
                tensor.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(after.clone()));
            }
        }
    }
}

/// Returns the indices, unless there are too many.
fn few(places: Option<&Vec<usize>>) -> Vec<usize> {
    places.filter(|places| places.len() <= MAX_OWNERS).cloned().unwrap_or_default()
}

/// Parameters by all names that state may use for them.
#[derive(Default)]
struct Names<'a> {
    paths: HashMap<&'a TensorPath, Vec<usize>>,
    texts: HashMap<String, Vec<usize>>,
    /// With the name of the first: its aliases are not separate parameters.
    variables: HashMap<String, (String, Vec<usize>)>,
}

impl Names<'_> {
    /// Returns the parameters with the variable name that `state` has for its parameter. If `ends`, the longest name that the path
    /// of `state` ends in.
    fn called(&self, state: &TensorEntry, ends: bool) -> &[usize] {
        let found = |name: &str| self.variables.get(name).map(|(_, places)| places.as_slice());
        if let Some(places) = state.text_attribute(Attributes::PARAMETER_VARIABLE).and_then(found) {
            return places;
        }
        let path = state.path.to_text();
        let dots = path.rmatch_indices('.').take(if ends { MAX_PARTS } else { 0 });
        let mut names: Vec<&str> = dots.filter_map(|(dot, _)| path.get(dot + 1..)).collect();
        names.push(&path);
        names.into_iter().rev().find_map(found).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Name, Role};
    use crate::source::{MemorySource, SourceRef};
    use crate::tensor::{DType, Encoding, Shape};
    use std::sync::Arc;

    fn checkpoint(entries: &[(&str, Option<&str>, &[u64])]) -> Checkpoint {
        let source: SourceRef = Arc::new(MemorySource::new("m", vec![0; 256]));
        let mut c = Checkpoint::new("paddle", "state", "m");
        for (name, slot, dims) in entries {
            let path = TensorPath::from_dotted(name);
            let shape = Shape::new(*dims);
            let mut entry = TensorEntry::dense(path, DType::F32, shape, &source, 0, Encoding::ROW).unwrap();
            if let Some(slot) = slot {
                entry.role = Role::OptimizerState { slot: Name::from(*slot) };
            }
            c.tensors.push(entry);
        }
        c
    }

    fn called(c: &mut Checkpoint, place: usize, variable: &str) {
        c.tensors[place].attributes.insert(Attributes::VARIABLE_NAME.into(), Value::Text(variable.into()));
    }

    fn names(c: &Checkpoint) -> Vec<String> {
        c.tensors.iter().map(TensorEntry::text).collect()
    }

    #[test]
    fn state_is_matched_by_variable_name_at_any_path() {
        let mut c = checkpoint(&[
            ("m.fc.weight", None, &[2, 3]),
            ("o.w_0", Some("m1"), &[2, 3]),
            ("o.w_0", Some("pow"), &[1]),
            ("o.x.w_0", Some("m1"), &[2, 3]),
            ("o.w_0", Some("row"), &[2]),
            ("m.x", None, &[2, 3]),
            ("x", Some("m1"), &[2, 3]),
        ]);
        assert_eq!(c.state_owners(), vec![Vec::<usize>::new(); 7]);
        called(&mut c, 0, "w_0");
        called(&mut c, 5, "x.w_0");
        // By the longest name; state of another shape has no parameter, and a path is not a variable name.
        assert_eq!(c.state_owners(), [vec![], vec![0], vec![0], vec![5], vec![], vec![], vec![]]);
        // The path is now the variable name.
        c.tensors[0].path = TensorPath::from_dotted("w_0");
        let was = c.tensors[0].attributes.remove(Attributes::VARIABLE_NAME).unwrap();
        assert_eq!(c.state_owners()[1], [0; 0]);
        c.tensors[0].attributes.insert(Attributes::STRUCTURED_NAME.into(), was);
        assert_eq!(c.state_owners()[1], [0]);
    }

    #[test]
    fn state_may_belong_to_several_parameters_of_one_name() {
        let mut c = checkpoint(&[
            ("g.weight", None, &[2, 3]),
            ("d.weight", None, &[2, 3]),
            ("e.weight", None, &[4, 3]),
            ("o.w_0", Some("m1"), &[2, 3]),
            ("w_0", Some("m1"), &[2, 3]),
        ]);
        (0..3).for_each(|place| called(&mut c, place, "w_0"));
        assert_eq!(c.state_owners()[3], [0, 1]);
        // Also with the path of the first.
        c.attach_state();
        assert_eq!(names(&c)[3..], ["o.w_0/m1", "g.weight/m1"]);
        assert_eq!(c.tensors[4].text_attribute(Attributes::PARAMETER_VARIABLE), Some("w_0"));
        assert_eq!(c.state_owners()[3..], [[0, 1], [0, 1]]);
        // Aliases count once.
        c.tensors[1].attributes.insert(Attributes::ALIAS_OF.into(), Value::Text("g.weight".into()));
        assert_eq!(c.state_owners()[3..], [[0], [0]]);
    }

    #[test]
    fn thousands_of_equal_names_take_linear_time() {
        let mut c = checkpoint(&vec![("weight", None, &[2, 3][..]); 20_000]);
        (0..20_000).for_each(|place| called(&mut c, place, "w_0"));
        c.tensors.extend(checkpoint(&vec![("o.w_0", Some("m1"), &[2, 3][..]); 20_000]).tensors);
        assert!(c.state_owners().iter().all(Vec::is_empty));
        for tensor in &mut c.tensors[1..20_000] {
            tensor.attributes.insert(Attributes::ALIAS_OF.into(), Value::Text("weight".into()));
        }
        assert_eq!(c.state_owners()[20_000], [0]);
    }

    #[test]
    fn state_finds_its_parameter_in_another_file() {
        let params = |path: &str| {
            let mut c = checkpoint(&[(path, None, &[2])]);
            called(&mut c, 0, "w_0");
            c
        };
        let state = || checkpoint(&[("w_0", Some("m1"), &[2])]);
        let twice = |path: &str, other: &str| {
            let mut c = params(path);
            c.tensors.extend(params(other).tensors);
            c
        };
        for (mut sources, name) in [
            (vec![params("a"), state()], "a/m1"),
            (vec![params("a"), state(), params("a")], "a/m1"),
            // Two parameters of one variable, as in the LSTM of Paddle.
            (vec![twice("a", "b"), state()], "a/m1"),
            // Ambiguous: two different paths.
            (vec![params("a"), state(), params("b")], "w_0/m1"),
            (vec![params("a"), state(), checkpoint(&[("w_0", None, &[2])])], "w_0/m1"),
        ] {
            Checkpoint::attach_state_among(&mut sources);
            assert_eq!(names(&sources[1]), [name]);
        }
    }

    #[test]
    fn attach_state_creates_no_duplicate_names() {
        let mut c = checkpoint(&[
            ("weight", None, &[2, 3]),
            ("weight", Some("m1"), &[2, 3]),
            ("w_0", Some("m1"), &[2, 3]),
            ("w_0", Some("m2"), &[2, 3]),
            ("copy", None, &[2, 3]),
        ]);
        called(&mut c, 0, "w_0");
        c.tensors[4].attributes.insert(Attributes::ALIAS_OF.into(), Value::Text("w_0/m2".into()));
        c.attach_state();
        assert_eq!(names(&c), ["weight", "weight/m1", "w_0/m1", "weight/m2", "copy"]);
        assert_eq!(c.tensors[4].text_attribute(Attributes::ALIAS_OF), Some("weight/m2"));
        // The parameter of the same path is preferred.
        let mut c = checkpoint(&[("weight", None, &[2]), ("w_0", None, &[2]), ("w_0", Some("m1"), &[2])]);
        called(&mut c, 0, "w_0");
        c.attach_state();
        assert_eq!(names(&c)[2], "w_0/m1");
        assert_eq!(c.state_owners()[2], [1, 0]);
    }
}
