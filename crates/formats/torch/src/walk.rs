//! The way through the objects, with bounds on all that a file can make large.

mod attributed;
mod composite;
mod kinds;
mod place;
mod state;

use super::{OBJECT, STATE_DICT, VERSIONS};
use attributed::Attributed;
use composite::Composites;
use kinds::Kinds;
pub(super) use place::Overlaps;
use place::Places;
use state::{Form, Optimizers};
use std::collections::HashMap;
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

/// Where a walk stands, and what it has gathered.
pub(super) struct Walk<'a> {
    saved: &'a Saved,
    options: &'a OpenOptions,
    checkpoint: Checkpoint,
    reach: Reach,
    places: Places,
    path: Vec<Name>,
    role: Role,
    budget: &'a Budget,
    /// Objects of classes, of which only tensors are kept, and how often they were met.
    unknown: Kinds,
    /// What is not kept, and holds no tensor.
    inert: Kinds,
    /// Tensors that are not in the index; each is noted.
    skipped: u64,
    /// Tensors that are listed as several.
    composites: Composites,
    doubled: u64,
    /// Tensors whose attributes were not walked yet.
    attributed: Vec<Attributed>,
    optimizers: Optimizers,
    containers: Containers,
    /// Bytes of them that were taken.
    charged: u64,
}

/// The displayed name of these parts.
fn name_of(path: &[Name]) -> String {
    TensorPath::new(path.to_vec()).to_text()
}

impl<'a> Walk<'a> {
    pub(super) fn new(saved: &'a Saved, options: &'a OpenOptions) -> Self {
        let reach = Reach::of(saved.graph(), |id| saved.is_tensor(id));
        Self {
            saved,
            options,
            checkpoint: Checkpoint::new("torch", OBJECT, saved.source().label()),
            reach,
            places: Places::default(),
            path: Vec::new(),
            role: Role::Parameter,
            budget: saved.budget(),
            unknown: Kinds::default(),
            inert: Kinds::default(),
            skipped: 0,
            composites: Composites::default(),
            doubled: 0,
            attributed: Vec::new(),
            optimizers: Optimizers::default(),
            containers: Containers::default(),
            charged: 0,
        }
    }

    /// The index, and what is left to mark in it.
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
            // Carried by bridges, so that what they cannot give back is told.
            self.checkpoint.origin = Some(Origin { format: "torch".to_owned(), kind: OBJECT.to_owned() });
        }
        self.node(root, 0)?;
        self.attributes_of_tensors()?;
        self.checkpoint.containers = Some(Box::new(std::mem::take(&mut self.containers)));
        let overlaps = self
            .places
            .finish(&mut self.checkpoint, &self.options.limits)
            .map_err(|error| error.in_file(self.saved.source().label()))?;
        // Among the tensors that are left of a damaged file the order says less.
        if self.checkpoint.damage.is_none() {
            self.optimizers.assign(graph, &mut self.checkpoint, self.budget);
        }
        if self.doubled > 0 {
            let keys = counted(self.doubled, "key stands", "keys stand");
            let text = format!("{keys} twice in a dict; the last value counts");
            self.checkpoint.notes.push(Note::new("duplicate-key", text));
        }
        self.composites.finish(&mut self.checkpoint);
        let notes = [
            ("unknown-class", self.unknown, "only tensors in it are kept"),
            ("unknown-class", self.inert, "left out"),
        ];
        for (code, kinds, what) in notes {
            kinds.tell(self.saved, code, what, &mut self.checkpoint);
        }
        Ok((self.checkpoint, overlaps))
    }

    /// Counts a visit: shared objects are met again and again, and lists of lists of them grow fast.
    fn visit(&mut self) -> Result<()> {
        self.budget.take_work(Cost::VISIT)
    }

    /// Counts what goes no further; with tensors in it, it is a tensor that is skipped.
    fn inert(&mut self, what: &str, id: ObjectId) -> Result<()> {
        if self.reach.holds_tensor(id) || matches!(self.saved.graph().object(id), Object::PersistentId(_)) {
            self.budget.take_memory(Cost::entry(false) + Cost::name(self.path.len(), 0))?;
            return self.skip(what);
        }
        self.inert.count(what);
        Ok(())
    }

    /// Notes the tensor of this path as one that is not in the index. Its entry was taken from the budget.
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
        if depth > Budget::DEPTH {
            return self.inert("a structure that is nested too deeply", id);
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
                Err(error) if error.kind() == Kind::Limit => return self.leave_out(&error),
                Err(error) => return Err(error),
            }
        }
        if let Some(pairs) = graph.pairs(id) {
            if let Some(kind) = self.saved.kind_of(pairs) {
                self.stands_in(kind);
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
                self.stands_in(Container::List);
                self.items(items, depth)
            }
            Object::Tuple(items) => {
                self.stands_in(Container::Tuple);
                self.items(items, depth)
            }
            Object::Reduced(made) => self.made(id, made, depth),
            Object::Global { .. } | Object::PersistentId(_) if self.saved.class(id).is_some() => {
                self.unknown.count_class(id, true);
                Ok(())
            }
            Object::PersistentId(_) => self.inert("a storage without a tensor", id),
            Object::Global { .. } => {
                self.unknown.count_class(id, true);
                Ok(())
            }
            _ => self.inert("a value that is not plain", id),
        }
    }

    fn tensor(&mut self, id: ObjectId, depth: usize) -> Result<()> {
        let limits = &self.options.limits;
        let count = self.checkpoint.tensors.len() as u64 + self.skipped + 1;
        Limits::check("tensors", "tensors", count, limits.tensors)?;
        Limits::check("parts in a name", "path_parts", self.path.len() as u64, limits.path_parts)?;
        // Before anything is made of it, whatever becomes of it: two bytes are a tensor once more.
        let again = self.places.has(id);
        self.budget.take_memory(Cost::entry(again) + Cost::name(self.path.len(), 0))?;
        let path = match self.path.is_empty() {
            true => {
                // Not the one of this name in a dict.
                self.stands_in(Container::Bare);
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
                // A tensor that overlaps another one says its storage.
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
                // Its class, and the name of the tensor that it is once more, may be longer than its own.
                let texts = entry.attributes.values().map(|value| match value {
                    Value::Text(text) => text.len() as u64,
                    _ => 0,
                });
                self.budget.take_memory(Cost::attributes(texts.sum()))
            }
            Ok(None) => Ok(()),
            Err(error) if error.kind() == Kind::Unsupported => {
                self.skip(error.found_text().unwrap_or("an unknown kind"))
            }
            Err(error) if self.options.salvage && Damage::is(&error) => {
                let path = error.tensor().map_or_else(|| "value".to_owned(), str::to_owned);
                self.checkpoint.lose(path, &error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Counts text that is kept with the name of a tensor or value.
    fn take_name(&mut self, bytes: u64) -> Result<()> {
        self.budget.take_memory(Cost::text(bytes))
    }

    /// A plain value is metadata, under the keys that lead to it; gives these.
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

    /// Tells what the tensors below this place stand in.
    fn stands_in(&mut self, kind: Container) {
        self.containers.add(|| name_of(&self.path), kind);
        self.charge_containers();
    }

    /// Takes the memory of the containers that were told. Where there is none, no more are: no reason to refuse the file.
    fn charge_containers(&mut self) {
        let bytes = self.containers.bytes();
        if self.budget.take_memory(bytes.saturating_sub(self.charged)).is_err() {
            self.containers.set_more();
        }
        self.charged = bytes;
    }

    /// Notes that a plain value takes too much to be kept: no reason to refuse the tensors.
    fn leave_out(&mut self, error: &Error) -> Result<()> {
        let name = TensorPath::new(self.path.clone()).to_text();
        self.take_name(name.len() as u64)?;
        let hint = error.hint_phrase().map(|hint| phrase!["; ", hint]).unwrap_or_default();
        let text = phrase![weighbridge_core::text::quoted(&name), ": ", error.message(), hint];
        self.checkpoint.notes.push(Note::omission("value-left-out", text));
        Ok(())
    }

    /// The versions of modules that a state dict has as an attribute.
    fn versions(&mut self, state: ObjectId) -> Result<()> {
        let graph = self.saved.graph();
        for &(key, value) in graph.pairs(state).unwrap_or_default() {
            self.visit()?;
            match graph.text(key) {
                Some(VERSIONS) => {
                    let Some(value) = self.saved.plain(value)? else {
                        self.inert("the versions of modules", value)?;
                        continue;
                    };
                    self.path.push(Name::from(VERSIONS));
                    self.keep(value)?;
                    self.path.pop();
                }
                _ => self.inert("an attribute of a dict", value)?,
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
                // An optimizer's in a form of its own, or what stands beside one's.
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

    /// The pairs of a dict whose keys are text or numbers. Of a key that comes twice the last value
    /// counts, in the place of the first, as in Python.
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
                        self.inert("a key that is neither text nor a number", value)?;
                        continue;
                    }
                },
            };
            match places.get(&(text.clone(), number)) {
                Some(&place) => {
                    self.doubled += 1;
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

    /// An object of a class: only its tensors are kept.
    fn made(&mut self, id: ObjectId, made: &Reduced, depth: usize) -> Result<()> {
        let graph = self.saved.graph();
        self.unknown.count_class(made.callable, false);
        if let Some((module, name)) = self.saved.class(made.callable) {
            self.stands_in(Container::Class(format!("{module}.{name}").into()));
        }
        if !self.reach.holds_tensor(id) {
            return Ok(());
        }
        let args = std::iter::once(made.args).chain(made.kwargs);
        for state in args.chain(made.states.iter().copied()) {
            self.visit()?;
            // Arguments have no names but their places. With slots, the state is a pair of dicts.
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

    /// The attributes of an object that hold tensors. Those of a module stand in dicts of their own,
    /// whose names its state dict does not have.
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
