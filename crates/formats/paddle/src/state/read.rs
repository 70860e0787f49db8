//! Conversion of pickle objects to a checkpoint.

use super::arrays::{Array, Found};
use super::slots::{MASTER_WEIGHTS, Scope};
use super::structure::{self, Form, marked};
use super::walk::{Member, TensorProps, Walk};
use super::{KIND, NAME_TABLE, NUMPY, PROTOCOL, PYTHON2, RESERVED, STRUCTURE, TABLE, canonical, split};
use std::collections::{HashMap, HashSet};
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Name, Note, Origin, PICKLE, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::phrase;
use weighbridge_core::phrase::Opt;
use weighbridge_format::OpenOptions;
use weighbridge_io::source::SourceRef;
use weighbridge_pickle::{self as pickle, Cost, Cut, Object, ObjectId, Options, Pickle};

/// Reads a pickled state: the opcodes of the pickle, but not the tensor elements.
///
/// # Errors
/// Errors of the pickle reader for a malformed pickle or array; [`weighbridge_core::Kind::Corrupt`],
/// `split-parameter`; [`weighbridge_core::Kind::Limit`] if limits are exceeded.
pub(in super::super) fn read(source: &SourceRef, options: &OpenOptions) -> Result<Checkpoint> {
    let bounds = Options::with_limits(options.limits.with_budget_of(source));
    let cut = match options.salvage {
        true => pickle::read_cut(source, 0, &bounds)?,
        false => {
            let pickle =
                pickle::read(source, 0, &bounds).map_err(|error| joblib_error(source, &bounds, error))?;
            Cut { pickle, error: None, key: None }
        }
    };
    let pickle = cut.pickle;
    let mut walk = Walk::new(&pickle, source, options, &bounds);
    let root = match pickle.graph.object(pickle.root) {
        Object::Dict(pairs) => root_dict(&mut walk, pairs)?,
        _ => walk.lone(pickle.root)?,
    };
    let mut checkpoint = walk.finish()?;
    checkpoint.origin = Some(Origin { format: "paddle".into(), kind: KIND.into() });
    checkpoint.files.push(source.clone());
    checkpoint.warn_of_code(pickle.warning());
    if !is_of_paddle(source, &pickle, &checkpoint) {
        checkpoint.kind = PICKLE;
    }
    set_pickle_metadata(&mut checkpoint, &pickle);
    if let Some(error) = &cut.error {
        report_truncation(&mut checkpoint, error, cut.key);
    } else if pickle.end < source.len() {
        let text = format!("{} bytes after the pickle were ignored, as in Paddle", source.len() - pickle.end);
        checkpoint.notes.push(Note::omission("trailing-bytes", text));
    }
    if canonical(&checkpoint) != root {
        checkpoint.metadata.set(STRUCTURE, root);
    }
    Ok(checkpoint)
}

/// Returns the error of a malformed pickle. A joblib dump contains raw array bytes between its opcodes.
fn joblib_error(source: &SourceRef, bounds: &Options, error: Error) -> Error {
    let arrays = Options { arrays: true, ..bounds.clone() };
    let is_dump = pickle::read(source, 0, &arrays).is_ok();
    if !is_dump {
        return error;
    }
    Error::unsupported(
        "joblib",
        "the file is a joblib dump: arrays are stored between the opcodes of the pickle",
    )
    .in_file(source.label())
    .hint(phrase!["use ", Opt::From.with("joblib")])
}

/// True if Paddle wrote the pickle, by its file name, an import, a key of Paddle, or a tensor in Paddle's form.
fn is_of_paddle(source: &SourceRef, pickle: &Pickle, checkpoint: &Checkpoint) -> bool {
    let file = source.label().rsplit(['/', '\\']).next().unwrap_or_default();
    let mut extensions = file.split('.').skip(1);
    let extension = extensions.any(|part| part.starts_with("pd") || matches!(part, "distcp" | "metadata"));
    let imports =
        || pickle.global_names().iter().any(|(module, _)| module.split('.').next() == Some("paddle"));
    let keys = || {
        let pairs = pickle.graph.pairs(pickle.root).unwrap_or_default();
        pairs.iter().any(|&(key, _)| matches!(pickle.graph.text(key), Some(TABLE | split::INFO)))
    };
    let named =
        || checkpoint.tensors.iter().any(|tensor| tensor.attributes.contains_key(Attributes::VARIABLE_NAME));
    extension || imports() || keys() || named()
}

/// Reports the losses of a truncated state. The description of split parameters is at the end, so a part is
/// distinguished from a parameter by its name only.
fn report_truncation(checkpoint: &mut Checkpoint, error: &Error, key: Option<String>) {
    let parts: Vec<String> =
        checkpoint.tensors.iter().map(|t| t.text()).filter(|name| name.contains(split::INFIX)).collect();
    checkpoint.tensors.retain(|tensor| !tensor.text().contains(split::INFIX));
    checkpoint.damage_mut(error);
    for name in parts {
        let error = Error::corrupt("split-parameter", "the other parts of the split parameter are lost");
        checkpoint.lose(name, &error);
    }
    checkpoint.lose(key.as_deref().unwrap_or("(tensors after the damage)"), error);
}

/// Returns the arrays of a dict by their keys, without name analysis: the content of a shard.
///
/// # Errors
/// Same as [`read`].
pub(super) fn arrays(source: &SourceRef, options: &OpenOptions) -> Result<HashMap<String, Array>> {
    let bounds = Options::with_limits(options.limits.with_budget_of(source));
    let pickle = pickle::read(source, 0, &bounds)?;
    let budget = pickle.budget();
    let mut all = HashMap::new();
    for &(key, value) in pickle.graph.pairs(pickle.root).unwrap_or_default() {
        if let Some(key) = pickle.graph.text(key)
            && let Some(Found::Tensor(_, _, array)) =
                super::arrays::find(&pickle.graph, value, source, &bounds)?
        {
            // Many keys may share one array.
            budget.take_memory(Cost::entry(false) + Cost::dimensions(array.shape.rank()))?;
            budget.take_memory(Cost::text(key.len() as u64))?;
            all.insert(key.to_owned(), array);
        }
    }
    Ok(all)
}

/// Stores the properties of the pickle in the metadata.
fn set_pickle_metadata(checkpoint: &mut Checkpoint, pickle: &Pickle) {
    checkpoint.metadata.set(PROTOCOL, Value::U32(pickle.protocol.into()));
    let era = pickle.global_names().iter().find_map(|(module, _)| {
        let new = module.starts_with("numpy._core.");
        (new || module.starts_with("numpy.core.")).then_some(if new { 2 } else { 1 })
    });
    let mut classes = pickle.global_names().into_iter();
    if let Some((module, name)) =
        classes.find(|(module, name)| module.starts_with("numpy") && *name == "memmap")
    {
        let text = format!("arrays of class {module}.{name} are read and written as plain arrays");
        checkpoint.notes.push(Note::new("array-class", text));
    }
    if let Some(era) = era {
        checkpoint.metadata.set(NUMPY, Value::U32(era));
    }
    if pickle.graph.iter().any(|(_, object)| matches!(object, Object::ByteString(_))) {
        checkpoint.metadata.set(PYTHON2, Value::Bool(true));
    }
}

/// Table of names of a state dict: pairs of key and name, as stored.
type Table<'a> = Vec<(&'a str, &'a str)>;

/// Reads a root dict: the only place of a table of names and of split parameters.
fn root_dict(walk: &mut Walk<'_>, pairs: &[(ObjectId, ObjectId)]) -> Result<Value> {
    let graph = walk.graph();
    let values: HashMap<&str, ObjectId> =
        pairs.iter().filter_map(|&(key, value)| Some((graph.text(key)?, value))).collect();
    let table: Option<Table<'_>> = values.get(TABLE).and_then(|&id| {
        let text = |&(key, name): &(ObjectId, ObjectId)| Some((graph.text(key)?, graph.text(name)?));
        graph.pairs(id)?.iter().map(text).collect()
    });
    let joined = match values.get(split::INFO) {
        Some(&info) => split::join(graph, info, &values, walk.bounds())?,
        None => Vec::new(),
    };
    let hidden: HashSet<&str> = joined.iter().flat_map(|j| &j.parts).map(String::as_str).collect();
    let hide = |key: &str| hidden.contains(key) || (key == split::INFO && !joined.is_empty());
    let mut members = walk.members(pairs, &hide)?;
    let split = !joined.is_empty();
    for one in &joined {
        let found = Found::Tensor(Form::Array, None, one.array.clone());
        members.push(Member::new(one.key.clone(), found));
    }
    if split && let Some(table) = &table {
        sort_by_table(&mut members, table);
    }
    let names: HashMap<&str, &str> = table.iter().flatten().copied().collect();
    let items = dict(walk, members, &names, table.as_deref())?;
    Ok(structure::dict(items, false))
}

/// Moves split parameters to their positions in the table of names.
fn sort_by_table(members: &mut [Member], table: &[(&str, &str)]) {
    let places: HashMap<&str, usize> =
        table.iter().enumerate().map(|(place, &(key, _))| (key, place)).collect();
    let place = |member: &Member| match (member.found.as_deref(), member.text()) {
        (Some(_), Some(key)) => places.get(key).copied(),
        _ => Some(usize::MAX),
    };
    if members.iter().all(|member| place(member).is_some()) {
        members.sort_by_key(place);
    }
}

/// Returns the items of the root. Values without tensors are moved to the metadata.
fn dict(
    walk: &mut Walk<'_>,
    members: Vec<Member>,
    names: &HashMap<&str, &str>,
    table: Option<&[(&str, &str)]>,
) -> Result<Vec<(Value, Value)>> {
    let keys: Vec<String> = tensor_keys(&members);
    let mut items = walk.dict(members, names, 1)?;
    for (key, value) in &mut items {
        let Value::Text(key) = key else { continue };
        if let (TABLE, Some(table)) = (key.as_str(), table) {
            *value = table_value(walk, table, &keys)?;
            walk.checkpoint.metadata.set(NAME_TABLE, Value::Bool(true));
        } else if structure::is_free_of_tensors(value)
            && !key.starts_with(RESERVED)
            && walk.checkpoint.metadata.get(key).is_none()
        {
            let kept = std::mem::replace(value, marked(structure::METADATA, Value::Text(key.clone())));
            walk.checkpoint.metadata.set(key.clone(), kept);
        }
    }
    if walk.checkpoint.metadata.get(NAME_TABLE).is_none() {
        walk.checkpoint.metadata.set(NAME_TABLE, Value::Bool(false));
    }
    Ok(items)
}

fn tensor_keys(members: &[Member]) -> Vec<String> {
    let tensor = |m: &&Member| matches!(m.found.as_deref(), Some(Found::Tensor(..)));
    members.iter().filter(tensor).filter_map(|m| m.text().map(str::to_owned)).collect()
}

/// Returns the table of names: null if it lists all tensors in order, else its rows.
fn table_value(walk: &mut Walk<'_>, table: &[(&str, &str)], keys: &[String]) -> Result<Value> {
    if table.iter().map(|(key, _)| *key).eq(keys.iter().map(String::as_str)) {
        return Ok(marked(structure::NAMES, Value::Null));
    }
    for (key, name) in table {
        walk.budget.take_memory(Cost::ITEM)?;
        walk.budget.take_memory(Cost::text(key.len() as u64))?;
        walk.budget.take_memory(Cost::text(name.len() as u64))?;
    }
    let known: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let text = |text: &str| Value::Text(text.to_owned());
    let row = |&(key, name): &(&str, &str)| {
        if known.contains(key) { text(key) } else { Value::List(vec![text(key), text(name)]) }
    };
    Ok(marked(structure::NAMES, Value::List(table.iter().map(row).collect())))
}

/// Returns the variable name of a member, if it is a tensor with a name of its own or in the table.
fn variable_of<'a>(member: &'a Member, names: &HashMap<&str, &'a str>) -> Option<&'a str> {
    match (member.found.as_deref(), member.text()) {
        (Some(Found::Tensor(_, Some(name), _)), _) => Some(name),
        (Some(Found::Tensor(..)), Some(key)) => names.get(key).copied(),
        _ => None,
    }
}

/// Parameters of a dict as optimizer state refers to them.
struct Owners<'a> {
    scope: Scope<'a>,
    /// Keys by variable name.
    keys: HashMap<String, String>,
}

impl Owners<'_> {
    /// Returns the key of the parameter with a variable name; `None` if the key equals the name, or there is none.
    fn key_of(&self, variable: &str) -> Option<&str> {
        if self.scope.has(variable) { None } else { self.keys.get(variable).map(String::as_str) }
    }
}

impl Walk<'_> {
    /// Returns the items of a dict with the given members. `names` are the entries of the table of names.
    pub(super) fn dict(
        &mut self,
        members: Vec<Member>,
        names: &HashMap<&str, &str>,
        depth: usize,
    ) -> Result<Vec<(Value, Value)>> {
        let keys: Vec<(String, bool)> = members
            .iter()
            .filter_map(|m| {
                Some((m.text()?.to_owned(), matches!(m.found.as_deref(), Some(Found::Tensor(..)))))
            })
            .collect();
        let of = |tensors: bool| keys.iter().filter(move |(_, t)| *t == tensors).map(|(key, _)| key.as_str());
        let variables = members.iter().filter_map(|member| variable_of(member, names));
        let scope = Scope::new(of(true), of(false), variables);
        let has_state =
            || of(true).any(|key| scope.owner(key).is_some()) || of(false).any(|key| key == MASTER_WEIGHTS);
        let owners =
            Owners { keys: if has_state() { self.keys_of(&members, names)? } else { HashMap::new() }, scope };
        let mut items = Vec::with_capacity(members.len());
        for member in members {
            let key = member.key.clone();
            let value = self.member(member, &owners, names, depth)?;
            items.push((key, value));
        }
        let held = owners.keys.iter().map(|(variable, key)| Cost::ITEM + (variable.len() + key.len()) as u64);
        self.budget.give_memory(held.sum());
        Ok(items)
    }

    /// Returns keys of tensors by variable name, if the two differ; the first of several with the same name.
    fn keys_of(
        &mut self,
        members: &[Member],
        names: &HashMap<&str, &str>,
    ) -> Result<HashMap<String, String>> {
        let mut keys: HashMap<String, String> = HashMap::new();
        for member in members {
            if let (Some(variable), Some(key)) = (variable_of(member, names), member.text())
                && variable != key
                && !keys.contains_key(variable)
            {
                self.budget.take_memory(Cost::ITEM + (variable.len() + key.len()) as u64)?;
                keys.insert(variable.to_owned(), key.to_owned());
            }
        }
        Ok(keys)
    }

    fn member(
        &mut self,
        member: Member,
        owners: &Owners<'_>,
        names: &HashMap<&str, &str>,
        depth: usize,
    ) -> Result<Value> {
        let key = super::walk::key_text(&member.key);
        let (height, notes) = (self.path.len(), self.checkpoint.notes.len());
        let value = match (member.found.map(|found| *found), member.value) {
            (Some(Found::Tensor(form, name, array)), id) => {
                let table_name = names.get(key.as_str()).copied();
                let name = name.or_else(|| table_name.map(str::to_owned));
                // Optimizer state has no second name.
                let own = name.as_deref().is_none_or(|name| name == key);
                let owner = if own { owners.scope.owner(&key) } else { None };
                let slot = owner.map(|(_, slot)| Name::from(slot));
                let role = owners.scope.role(&key, own);
                let parameter = owner.and_then(|(param, _)| Some((param, owners.key_of(param)?)));
                self.push(match (parameter, owner) {
                    (Some((_, key)), _) => key,
                    (None, Some((param, _))) => param,
                    (None, None) => &key,
                });
                let parameter = parameter.map(|(param, _)| param);
                self.tensor(form, array, TensorProps { key: &key, name, slot, parameter, role, id })?
            }
            (Some(Found::Inert(what)), _) => {
                self.push(&key);
                self.inert(&what)?
            }
            (None, Some(id)) if key == MASTER_WEIGHTS && self.is_dict_of_tensors(id)? => {
                self.master_weights(id, owners, depth)?
            }
            // The table of names is added at the end.
            (None, Some(_)) if key == TABLE && !names.is_empty() => Value::Null,
            (None, Some(id)) => {
                self.push(&key);
                self.node(id, depth)?
            }
            (None, None) => Value::Null,
        };
        for note in self.checkpoint.notes[notes..].iter_mut().filter(|_| owners.scope.whole) {
            *note = note.clone().of_state(true);
        }
        self.path.truncate(height);
        Ok(value)
    }

    /// Reads full-precision copies of parameters, each stored under the name of its parameter.
    fn master_weights(&mut self, id: ObjectId, owners: &Owners<'_>, depth: usize) -> Result<Value> {
        self.deeper(depth)?;
        let pairs = self.graph().pairs(id).unwrap_or_default();
        let mut items = Vec::new();
        for member in self.members(pairs, &|_| false)? {
            let Some(Found::Tensor(form, name, array)) = member.found.map(|found| *found) else { continue };
            let key = super::walk::key_text(&member.key);
            let height = self.path.len();
            let parameter = owners.key_of(&key).map(|parameter| (key.as_str(), parameter));
            self.push(parameter.map_or(&key, |(_, parameter)| parameter));
            let spot = TensorProps {
                key: &key,
                name,
                slot: Some(Name::from(MASTER_WEIGHTS)),
                parameter: parameter.map(|(variable, _)| variable),
                role: None,
                id: member.value,
            };
            let value = self.tensor(form, array, spot)?;
            self.path.truncate(height);
            items.push((member.key, value));
        }
        Ok(structure::dict(items, self.is_ordered(id)))
    }
}
