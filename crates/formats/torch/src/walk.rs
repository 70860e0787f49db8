//! Walk over the objects of a file, with bounds on everything that a file can make large.

mod attributed;
mod composite;
mod kinds;
mod state;
mod tensors;

use super::{OBJECT, STATE_DICT, VERSIONS};
use attributed::Attributed;
use composite::Composites;
use kinds::Kinds;
use state::{Form, Optimizers};
use std::collections::{HashMap, HashSet};
pub(super) use tensors::Overlaps;
use tensors::TensorTable;
use weighbridge_core::checkpoint::{
    Checkpoint, Container, Containers, Damage, Name, Note, Origin, Role, TensorPath, Value,
};
use weighbridge_core::error::{Error, Kind, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::text::counted;
use weighbridge_core::{Budget, phrase};
use weighbridge_format::OpenOptions;
use weighbridge_pickle::{Cost, Object, ObjectId, Reach, Reduced};
use weighbridge_torch_archive::Saved;

/// State of a walk: current position and results.
pub(super) struct Walk<'a> {
    saved: &'a Saved,
    options: &'a OpenOptions,
    /// Objects that the walk omits; the caller lists their content.
    omitted: HashSet<ObjectId>,
    checkpoint: Checkpoint,
    reach: Reach,
    places: TensorTable,
    path: Vec<Name>,
    role: Role,
    budget: &'a Budget,
    /// Objects of classes, from which only tensors are kept, with their counts.
    unknown: Kinds,
    /// Skipped objects without tensors.
    inert: Kinds,
    /// Number of tensors outside of the index; each has a note.
    skipped: u64,
    /// Composite tensors, listed as several.
    composites: Composites,
    duplicate_keys: u64,
    /// Tensors whose attributes are not walked yet.
    attributed: Vec<Attributed>,
    optimizers: Optimizers,
    containers: Containers,
    /// Bytes already charged for the containers.
    charged: u64,
}

/// Displayed name of these path parts.
fn name_of(path: &[Name]) -> String {
    TensorPath::new(path.to_vec()).to_text()
}

impl<'a> Walk<'a> {
    pub(super) fn new(saved: &'a Saved, options: &'a OpenOptions) -> Self {
        let reach = Reach::of(saved.graph(), |id| saved.is_tensor(id));
        Self {
            saved,
            options,
            omitted: HashSet::new(),
            checkpoint: Checkpoint::new("torch", OBJECT, saved.source().label()),
            reach,
            places: TensorTable::default(),
            path: Vec::new(),
            role: Role::Parameter,
            budget: saved.budget(),
            unknown: Kinds::default(),
            inert: Kinds::default(),
            skipped: 0,
            composites: Composites::default(),
            duplicate_keys: 0,
            attributed: Vec::new(),
            optimizers: Optimizers::default(),
            containers: Containers::default(),
            charged: 0,
        }
    }

    /// Starts at `path`, the name of the object in a larger checkpoint, and continues its containers.
    pub(super) fn within(mut self, path: &[Name], containers: Option<Box<Containers>>) -> Self {
        self.path = path.to_vec();
        self.containers = containers.map(|containers| *containers).unwrap_or_default();
        self.charged = self.containers.bytes();
        self
    }

    /// Omits these objects. The caller lists their content.
    pub(super) fn without(mut self, objects: HashSet<ObjectId>) -> Self {
        self.omitted = objects;
        self
    }

    /// Runs the walk. Returns the index, and the overlaps to mark in it.
    pub(super) fn run(mut self) -> Result<(Checkpoint, Overlaps)> {
        let (graph, root) = (self.saved.graph(), self.saved.root());
        let tensors = |pairs: &[(ObjectId, ObjectId)]| {
            pairs.iter().all(|&(key, value)| {
                graph.text(key).is_some()
                    && self.saved.is_tensor(value)
                    && !self.saved.is_array(value)
                    && self.saved.states(value).is_empty()
            })
        };
        if graph.pairs(root).is_some_and(tensors) {
            self.checkpoint.kind = STATE_DICT;
        } else {
            // Bridges keep the origin, so that a later conversion reports the lost structure.
            self.checkpoint.origin = Some(Origin { format: "torch".to_owned(), kind: OBJECT.to_owned() });
        }
        self.node(root, 0)?;
        self.attributes_of_tensors()?;
        self.checkpoint.containers = Some(Box::new(std::mem::take(&mut self.containers)));
        let overlaps = self
            .places
            .finish(&mut self.checkpoint, &self.options.limits)
            .map_err(|error| error.in_file(self.saved.source().label()))?;
        // In a damaged file the order of the remaining tensors is unreliable.
        if self.checkpoint.damage.is_none() {
            self.optimizers.assign(graph, &mut self.checkpoint, self.budget);
        }
        if self.duplicate_keys > 0 {
            let keys = counted(self.duplicate_keys, "duplicate dict key", "duplicate dict keys");
            let text = format!("{keys}: the last value counts, as in Python");
            self.checkpoint.notes.push(Note::new("duplicate-key", text));
        }
        self.composites.finish(&mut self.checkpoint);
        let notes = [
            ("unknown-class", self.unknown, ": only the tensors in it are read"),
            ("unknown-class", self.inert, ": not read"),
        ];
        for (code, kinds, what) in notes {
            kinds.add_notes(self.saved, code, what, &mut self.checkpoint);
        }
        Ok((self.checkpoint, overlaps))
    }

    /// Charges a visit: shared objects are visited repeatedly, and nested lists of them multiply.
    fn visit(&mut self) -> Result<()> {
        self.budget.take_work(Cost::VISIT)
    }

    /// Counts a skipped object; one that contains tensors counts as a skipped tensor.
    fn inert(&mut self, what: &str, id: ObjectId) -> Result<()> {
        if self.reach.holds_tensor(id) || matches!(self.saved.graph().object(id), Object::PersistentId(_)) {
            self.budget.take_memory(Cost::entry(false) + Cost::name(self.path.len(), 0))?;
            return self.skip(what);
        }
        self.inert.count(what);
        Ok(())
    }

    /// Notes a skipped tensor at the current path. The caller has charged its entry.
    fn skip(&mut self, reason: &str) -> Result<()> {
        let name = match self.path.is_empty() {
            true => TensorPath::value().to_text(),
            false => name_of(&self.path),
        };
        self.take_name((name.len() + reason.len()) as u64)?;
        self.skipped += 1;
        let note = Note::skipped_tensor(name, reason).of_state(self.role.is_state());
        self.checkpoint.notes.push(note);
        Ok(())
    }

    fn node(&mut self, id: ObjectId, depth: usize) -> Result<()> {
        self.visit()?;
        let graph = self.saved.graph();
        if self.omitted.contains(&id) {
            return Ok(());
        }
        if depth > Budget::DEPTH {
            return self.inert("value nested too deeply", id);
        }
        if let Some(sparse) = self.saved.sparse(id) {
            return self.sparse(&sparse, depth);
        }
        if self.saved.is_tensor(id) {
            self.tensor(id, depth)?;
            return match self.saved.quantizer(id) {
                Some(quantizer) => self.quantizer(&quantizer, depth),
                None => Ok(()),
            };
        }
        if !self.reach.holds_tensor(id) {
            let first = self.containers.next_value();
            match self.saved.plain_in(id, &mut self.containers) {
                Ok(Some(value)) => {
                    let key = self.keep(value)?;
                    self.containers.name_values(first, &key);
                    self.charge_containers();
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Limit => return self.skip_value(&error),
                Err(error) => return Err(error),
            }
        }
        if let Some(pairs) = graph.pairs(id) {
            if let Some(kind) = self.saved.kind_of(pairs) {
                self.record_container(kind);
            }
            if pairs.iter().any(|&(key, _)| graph.text(key).is_some_and(|key| key.contains('.'))) {
                self.containers.add_dotted(|| name_of(&self.path));
                self.charge_containers();
            }
            self.dict(pairs, depth)?;
            return match graph.made(id).and_then(Reduced::state) {
                Some(state) => self.versions(state),
                None => Ok(()),
            };
        }
        match graph.object(id) {
            Object::List(items) => {
                self.record_container(Container::List);
                self.items(items, depth)
            }
            Object::Tuple(items) => {
                self.record_container(Container::Tuple);
                self.items(items, depth)
            }
            Object::Reduced(made) => self.made(id, made, depth),
            Object::Global { .. } | Object::PersistentId(_) if self.saved.class(id).is_some() => {
                self.unknown.count_class(id, true);
                Ok(())
            }
            Object::PersistentId(_) => self.inert("storage without a tensor", id),
            Object::Global { .. } => {
                self.unknown.count_class(id, true);
                Ok(())
            }
            _ => self.inert("value of an unsupported type", id),
        }
    }

    fn tensor(&mut self, id: ObjectId, depth: usize) -> Result<()> {
        let limits = &self.options.limits;
        let count = self.checkpoint.tensors.len() as u64 + self.skipped + 1;
        Limits::check("tensors", "tensors", count, limits.tensors)?;
        Limits::check("parts in a name", "path_parts", self.path.len() as u64, limits.path_parts)?;
        // Charge first: two bytes of a pickle can repeat a tensor.
        let again = self.places.has(id);
        self.budget.take_memory(Cost::entry(again) + Cost::name(self.path.len(), 0))?;
        let path = match self.path.is_empty() {
            true => {
                // Distinguishes a lone tensor from one named `value` in a dict.
                self.record_container(Container::Bare);
                TensorPath::value()
            }
            false => TensorPath::new(self.path.clone()),
        };
        let bytes = path.byte_len() as u64;
        Limits::check("bytes in a name", "name_bytes", bytes, limits.name_bytes)?;
        self.take_name(bytes)?;
        match self.saved.tensor(id, path) {
            Ok(Some(mut entry)) => {
                entry.role = self.role.clone();
                self.budget.take_memory(Cost::dimensions(entry.shape.rank()))?;
                // A tensor that overlaps another one gets the storage key as an attribute.
                let storage = self.saved.storage_key(id).unwrap_or_default();
                self.budget.take_memory(storage.len() as u64)?;
                self.places.add(&mut self.checkpoint, entry, id, &storage);
                if !again {
                    self.note_attributes(id, depth)?;
                }
                let Some(entry) = self.checkpoint.tensors.last() else { return Ok(()) };
                if entry.attributes.is_empty() {
                    return Ok(());
                }
                // Class and alias name may be longer than the name of the tensor.
                let texts = entry.attributes.values().map(|value| match value {
                    Value::Text(text) => text.len() as u64,
                    _ => 0,
                });
                self.budget.take_memory(Cost::attributes(texts.sum()))
            }
            Ok(None) => Ok(()),
            Err(error) if error.kind() == Kind::Unsupported => {
                self.skip(error.found_text().unwrap_or("unknown kind of tensor"))
            }
            Err(error) if self.options.salvage && Damage::is(&error) => {
                let path = error.tensor().map_or_else(|| "value".to_owned(), str::to_owned);
                self.checkpoint.lose(path, &error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Charges the text of a name.
    fn take_name(&mut self, bytes: u64) -> Result<()> {
        self.budget.take_memory(Cost::text(bytes))
    }

    /// Keeps a plain value as metadata under the current path; returns its key.
    fn keep(&mut self, value: Value) -> Result<String> {
        let key = match self.path.is_empty() {
            true => "value".to_owned(),
            false => name_of(&self.path),
        };
        if self.path.is_empty() && value == Value::Map(Vec::new()) {
            return Ok(key);
        }
        self.take_name(key.len() as u64)?;
        self.budget.take_memory(Cost::CONTAINER)?;
        self.places.keep(key.clone(), value);
        Ok(key)
    }

    /// Records the container at the current path.
    fn record_container(&mut self, kind: Container) {
        self.containers.add(|| name_of(&self.path), kind);
        self.charge_containers();
    }

    /// Charges the memory of the recorded containers. Once the budget is spent, no more are recorded; the file stays readable.
    fn charge_containers(&mut self) {
        let bytes = self.containers.bytes();
        if self.budget.take_memory(bytes.saturating_sub(self.charged)).is_err() {
            self.containers.set_more();
        }
        self.charged = bytes;
    }

    /// Notes a plain value that exceeds a limit; the tensors stay readable.
    fn skip_value(&mut self, error: &Error) -> Result<()> {
        let name = TensorPath::new(self.path.clone()).to_text();
        self.take_name(name.len() as u64)?;
        let hint = error.hint_phrase().map(|hint| phrase!["; ", hint]).unwrap_or_default();
        let text =
            phrase!["value ", weighbridge_core::text::quoted(&name), " omitted: ", error.message(), hint];
        self.checkpoint.notes.push(Note::omission("value-left-out", text));
        Ok(())
    }

    /// Reads the module versions from the attributes of a state dict.
    fn versions(&mut self, state: ObjectId) -> Result<()> {
        let graph = self.saved.graph();
        for &(key, value) in graph.pairs(state).unwrap_or_default() {
            self.visit()?;
            match graph.text(key) {
                Some(VERSIONS) => {
                    let Some(value) = self.saved.plain(value)? else {
                        self.inert("module versions of an unsupported form", value)?;
                        continue;
                    };
                    self.path.push(Name::from(VERSIONS));
                    self.keep(value)?;
                    self.path.pop();
                }
                _ => self.inert("attribute of a dict", value)?,
            }
        }
        Ok(())
    }

    fn dict(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Result<()> {
        let members = self.members(pairs)?;
        let has = |wanted: &str| members.iter().any(|(key, _)| key == wanted);
        let like = has("state") && has("param_groups");
        let graph = self.saved.graph();
        let form = Form::of(graph, &members, self.budget);
        let (outer, height) = (self.role.clone(), self.path.len());
        let first = self.checkpoint.tensors.len();
        let mut own = 0;
        for (key, value) in members {
            self.role = match form {
                _ if outer.is_state() => outer.clone(),
                Some(form) if form.has(value) => Role::OptimizerPart { of: None },
                // Optimizer state in a form of its own, or next to such state.
                _ if like => Role::Other,
                _ => outer.clone(),
            };
            let before = self.checkpoint.tensors.len();
            self.below(&key, value, depth)?;
            if self.saved.is_tensor(value) {
                own += self.checkpoint.tensors.len() - before;
            }
        }
        self.role = outer;
        let tensors = first..self.checkpoint.tensors.len();
        if let Some(form) = form {
            self.optimizers.add(form, tensors, height);
        } else if own == tensors.len() && !self.role.is_state() {
            self.optimizers.add_model(tensors, height);
        }
        Ok(())
    }

    /// Pairs of a dict with text or number keys. Of duplicate keys the last value counts, at the position
    /// of the first, as in Python.
    fn members(&mut self, pairs: &[(ObjectId, ObjectId)]) -> Result<Vec<(String, ObjectId)>> {
        let graph = self.saved.graph();
        let mut places: HashMap<(String, bool), usize> = HashMap::with_capacity(pairs.len());
        let mut members: Vec<(String, ObjectId)> = Vec::with_capacity(pairs.len());
        for &(key, value) in pairs {
            self.visit()?;
            let (text, number) = match graph.object(key) {
                Object::Int(n) => (n.to_string(), true),
                _ => match self.saved.plain(key)? {
                    Some(Value::Text(text)) => (text, false),
                    _ => {
                        self.inert("dict entry whose key is neither text nor integer", value)?;
                        continue;
                    }
                },
            };
            match places.get(&(text.clone(), number)) {
                Some(&place) => {
                    self.duplicate_keys += 1;
                    if let Some(member) = members.get_mut(place) {
                        member.1 = value;
                    }
                }
                None => {
                    places.insert((text.clone(), number), members.len());
                    members.push((text, value));
                }
            }
        }
        Ok(members)
    }

    fn items(&mut self, items: &[ObjectId], depth: usize) -> Result<()> {
        for (place, &item) in items.iter().enumerate() {
            self.below(&place.to_string(), item, depth)?;
        }
        Ok(())
    }

    fn below(&mut self, key: &str, id: ObjectId, depth: usize) -> Result<()> {
        let height = self.path.len();
        self.path.extend(key.split('.').map(Name::from));
        self.node(id, depth + 1)?;
        self.path.truncate(height);
        Ok(())
    }

    /// Walks an object of a class; keeps only its tensors.
    fn made(&mut self, id: ObjectId, made: &Reduced, depth: usize) -> Result<()> {
        let graph = self.saved.graph();
        self.unknown.count_class(made.callable, false);
        if let Some((module, name)) = self.saved.class(made.callable) {
            self.record_container(Container::Class(format!("{module}.{name}").into()));
        }
        if !self.reach.holds_tensor(id) {
            return Ok(());
        }
        let args = std::iter::once(made.args).chain(made.kwargs);
        for state in args.chain(made.states.iter().copied()) {
            self.visit()?;
            // Arguments are named by position. With slots, the state is a pair of dicts.
            let parts = match graph.tuple(state) {
                Some(parts) => parts,
                None => std::slice::from_ref(&state),
            };
            for (place, &part) in parts.iter().enumerate() {
                self.visit()?;
                if !self.reach.holds_tensor(part) {
                    continue;
                }
                match graph.pairs(part) {
                    Some(pairs) => self.attributes(pairs, depth)?,
                    None => self.below(&place.to_string(), part, depth)?,
                }
            }
        }
        let mut pairs = Vec::new();
        for &(key, value) in &made.pairs {
            self.visit()?;
            if self.reach.holds_tensor(value) {
                pairs.push((key, value));
            }
        }
        self.dict(&pairs, depth)?;
        let mut items = Vec::new();
        for &item in &made.items {
            self.visit()?;
            if self.reach.holds_tensor(item) {
                items.push(item);
            }
        }
        self.items(&items, depth)
    }

    /// Walks the attributes of an object that contain tensors. A module keeps them in nested dicts, whose
    /// names are not part of its state dict names.
    fn attributes(&mut self, pairs: &[(ObjectId, ObjectId)], depth: usize) -> Result<()> {
        let graph = self.saved.graph();
        let members = self.members(pairs)?;
        let is_module = members.iter().any(|(key, _)| key == "_modules");
        for (key, value) in members {
            if !self.reach.holds_tensor(value) {
                continue;
            }
            match (key.as_str(), graph.pairs(value)) {
                ("_parameters" | "_modules", Some(inner)) if is_module => self.dict(inner, depth + 1)?,
                ("_buffers", Some(inner)) if is_module => {
                    let outer = std::mem::replace(&mut self.role, Role::Buffer);
                    self.dict(inner, depth + 1)?;
                    self.role = outer;
                }
                _ => self.below(&key, value, depth)?,
            }
        }
        Ok(())
    }
}
