//! Reader: from the files of all ranks to the index.

use super::flat::{Flat, Line, Ranges, bad};
use super::model::{MODULE, ModelPart};
use super::optimizer::{RankPart, Slot};
use super::place::Place;
use super::{CHECKPOINT, INFO};
use crate::walk::Walk;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Distinct, Name, Note, Role, StateOf, TensorEntry, TensorPath, Value,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::{Order, Shape};
use weighbridge_core::text::escape;
use weighbridge_core::{Budget, NoteCode};
use weighbridge_format::OpenOptions;
use weighbridge_format::overlap::OverlapBudget;
use weighbridge_io::source::{RangeSource, SourceRef};
use weighbridge_pickle::{Cost, ObjectId};
use weighbridge_torch_archive::{self as torch, Saved};

/// Opens the checkpoint.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`]: `deepspeed-files` for missing files, `deepspeed-ranks` for files of different
/// checkpoints, `deepspeed-form`; errors of the files.
pub(super) fn open(place: &Place<'_>, label: &str, options: &OpenOptions) -> Result<Checkpoint> {
    let budget = Budget::new(place.len()?, &options.limits);
    let mut checkpoint = Checkpoint::new(INFO.id, CHECKPOINT, label);
    checkpoint.files.extend(place.latest.clone());
    let mut reader = Reader {
        place,
        options,
        budget,
        checkpoint,
        names: Distinct::default(),
        masters: HashSet::new(),
        repeated: OverlapBudget::default(),
        checked: HashSet::new(),
        scalars: HashSet::new(),
        kept: Vec::new(),
        values: Vec::new(),
    };
    reader.read()?;
    Ok(reader.checkpoint)
}

/// Joined state of a parameter: one line for each rank, or one for all of them.
struct State<'a> {
    name: &'a str,
    lines: Vec<Line>,
}

struct Reader<'a> {
    place: &'a Place<'a>,
    options: &'a OpenOptions,
    /// Budget of the joined index.
    budget: Budget,
    checkpoint: Checkpoint,
    names: Distinct,
    /// Names of the joined parameters.
    masters: HashSet<String>,
    /// Bytes that the flat tensors read.
    repeated: OverlapBudget,
    /// Storages whose checksum a tensor has: file and offset.
    checked: HashSet<(String, u64)>,
    /// States with one element that a parameter has already.
    scalars: HashSet<*const Slot>,
    /// Tensors of the files of the optimizer that are not joined, and the values of rank 0.
    kept: Vec<TensorEntry>,
    values: Vec<(String, Value)>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<()> {
        let name = match self.place.is_partitioned {
            true => "zero_pp_rank_0_mp_rank_00_model_states.pt",
            false => "mp_rank_00_model_states.pt",
        };
        let name = self.place.models.get(&0).map_or(name, String::as_str);
        let source = self.place.open(name)?;
        let saved = self.saved(&source)?;
        let mut model = self.part(&saved, &source)?;
        let groups = model.groups.take();
        if self.place.optimizers.is_empty() && groups.is_some() {
            return Err(self.without_optimizers(name));
        }
        let mut is_apart = false;
        let mut ranks: Vec<RankPart> = Vec::new();
        for (&rank, name) in &self.place.optimizers {
            if rank != ranks.len() {
                return Err(self.missing(name, ranks.len()));
            }
            let part = self.optimizer(rank, name, ranks.first())?;
            is_apart |= part.is_apart;
            ranks.push(part);
        }
        std::mem::take(&mut self.repeated)
            .check("torch-repeated", &self.options.limits)
            .map_err(|error| error.in_file(self.place.label("")))?;
        let stage = ranks.first().and_then(|part| part.stage);
        let fragments = self.other_models(&model, ranks.len(), stage == Some(3))?;
        if let Some(first) = ranks.first() {
            let expected = first.ranks;
            if expected != ranks.len() as u64 {
                let last = self.place.optimizers.get(&(ranks.len() - 1)).map_or("", String::as_str);
                return Err(match expected > ranks.len() as u64 {
                    true => self.missing(last, ranks.len()),
                    false => Error::corrupt(
                        "deepspeed-files",
                        "the folder has files of more ranks than the checkpoint",
                    )
                    .in_file(self.place.label(last))
                    .expected(format_args!("{expected} files *_optim_states.pt"))
                    .found(ranks.len())
                    .hint("the files of an earlier checkpoint with more ranks may be left: move them away"),
                });
            }
            let groups = groups.ok_or_else(|| bad("`param_shapes` is missing").in_file(source.label()))?;
            match stage {
                Some(3) => self.partitioned(&groups, &ranks)?,
                _ => self.flattened(&groups, &ranks)?,
            }
        }
        self.frozen(&saved, &model, fragments)?;
        self.shared(&model)?;
        self.rest(&saved, &mut model, stage)?;
        for entry in std::mem::take(&mut self.kept) {
            self.push(entry)?;
        }
        if is_apart {
            let text = "optimizer state in another form than one element for each parameter element is listed as in the files";
            self.checkpoint.notes.push(Note::new(NoteCode::NotJoined, text));
        }
        Ok(())
    }

    /// Error for a checkpoint without the files of its optimizer.
    fn without_optimizers(&self, name: &str) -> Error {
        if self.place.is_universal() {
            return Error::unsupported(
                "deepspeed-parallel",
                "universal checkpoints of DeepSpeed are not joined",
            )
            .in_file(self.place.label(name))
            .hint("the folder `zero` has one file for each parameter: give the path of one of them");
        }
        self.place.missing("zero_pp_rank_0_mp_rank_00_optim_states.pt").hint(format_args!(
            "without the fp32 weights of all ranks, open the 16-bit weights alone: {}",
            self.place.label(name)
        ))
    }

    /// Error for a missing rank; `like` is the name of another one.
    fn missing(&self, like: &str, rank: usize) -> Error {
        let prefix = like.find("zero_pp_rank_").map_or("", |at| &like[..at]);
        self.place.missing(&format!("{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))
    }

    fn saved(&mut self, source: &SourceRef) -> Result<Saved> {
        // Each file has a budget of its own, and is closed before the next one.
        let limits = Limits { budget: None, ..self.options.limits.clone() };
        let saved = torch::read(source, &limits)?;
        if let Some(rest) = saved.archive_rest() {
            rest.settle(self.options.lenient, source.label(), &mut self.checkpoint.notes)?;
        }
        if self.checkpoint.notes.first().is_none_or(|note| note.code != NoteCode::RunsCode) {
            self.checkpoint.warn_of_code(saved.warning());
        }
        self.checkpoint.files.push(source.clone());
        Ok(saved)
    }

    fn part(&self, saved: &Saved, source: &SourceRef) -> Result<ModelPart> {
        ModelPart::of(saved, &self.options.limits).map_err(|error| error.in_file(source.label()))
    }

    /// Reads the file of a rank with its part of the optimizer.
    fn optimizer(&mut self, rank: usize, name: &str, first: Option<&RankPart>) -> Result<RankPart> {
        let source = self.place.open(name)?;
        let saved = self.saved(&source)?;
        let mut part = RankPart::of(&saved, &self.budget).map_err(|error| error.in_file(source.label()))?;
        if let Some(first) = first {
            compare(first, &part).map_err(|error| error.in_file(source.label()))?;
        }
        let states = part.slots.iter().flatten().filter_map(|(_, slot)| match slot {
            Slot::Flat(flat) => Some(flat),
            _ => None,
        });
        part.groups.iter().chain(states).for_each(|flat| flat.count_bytes(rank, &mut self.repeated));
        let mut used = std::mem::take(&mut part.used);
        // The same values are in the file with the model.
        let graph = saved.graph();
        used.extend(
            ["ds_config", "ds_version"]
                .into_iter()
                .filter_map(|key| super::optimizer::find(graph, saved.root(), key)),
        );
        let stage = part.stage;
        self.walk(&saved, used, rank)?;
        if let (0, Some(stage)) = (rank, stage) {
            self.values.push(("optimizer_state_dict.zero_stage".to_owned(), Value::I64(stage)));
        }
        Ok(part)
    }

    /// Lists the remaining tensors of a file; of rank 0, also the values.
    fn walk(&mut self, saved: &Saved, used: HashSet<ObjectId>, rank: usize) -> Result<()> {
        let prefix = [Name::from(format!("rank_{rank}").as_str())];
        let path = if rank == 0 { &[][..] } else { &prefix[..] };
        let containers = self.checkpoint.containers.take();
        let (mut own, mut overlaps) =
            Walk::new(saved, self.options).within(path, containers).without(used).run()?;
        overlaps.mark(&mut own);
        self.checkpoint.containers = own.containers;
        if rank == 0 {
            self.values.extend(own.metadata.iter().map(|(key, value)| (key.to_owned(), value.clone())));
            self.checkpoint.notes.extend(own.notes);
        } else {
            let is_new = |note: &Note| note.skipped.is_some();
            self.checkpoint.notes.extend(own.notes.into_iter().filter(is_new));
        }
        for mut entry in own.tensors {
            if !entry.role.is_state() {
                entry.role = Role::Other;
            }
            self.kept.push(entry);
        }
        Ok(())
    }

    /// Reads the files of the other ranks with the model. Returns the parts of the parameters that are not trained, by name.
    fn other_models(
        &mut self,
        first: &ModelPart,
        ranks: usize,
        is_partitioned: bool,
    ) -> Result<HashMap<String, Vec<Flat>>> {
        let mut fragments: HashMap<String, Vec<Flat>> = HashMap::new();
        if !is_partitioned {
            return Ok(fragments);
        }
        for rank in 1..ranks {
            let Some(name) = self.place.models.get(&rank) else {
                return Err(self.place.missing(&format!("zero_pp_rank_{rank}_mp_rank_00_model_states.pt")));
            };
            let source = self.place.open(name)?;
            let saved = self.saved(&source)?;
            let mut part = self.part(&saved, &source)?;
            if part.steps != first.steps {
                return Err(differ("global_steps", first.steps, part.steps).in_file(source.label()));
            }
            for (name, _, fragment) in &part.frozen {
                self.budget.take_memory(Cost::entry(false) + Cost::text(name.len() as u64))?;
                if let Some(flat) = Flat::of(&saved, *fragment)? {
                    fragments.entry(name.clone()).or_default().push(flat);
                }
            }
            part.used.extend(empty(&saved, &part.module)?);
            self.walk(&saved, part.used, rank)?;
        }
        Ok(fragments)
    }

    /// Joins the parameters of stages 1 and 2: the parts of a group follow one another.
    fn flattened(&mut self, groups: &[Vec<(String, Shape)>], ranks: &[RankPart]) -> Result<()> {
        let Some(first) = ranks.first() else { return Ok(()) };
        if groups.len() != first.groups.len() {
            return Err(bad("the groups of parameters differ from the flat tensors")
                .in_file(self.first_label())
                .expected(groups.len())
                .found(first.groups.len()));
        }
        for (number, parameters) in groups.iter().enumerate() {
            let parts = || ranks.iter().filter_map(|part| part.groups.get(number));
            let line = Line::of(parts()).ok_or_else(|| {
                bad("the parts of a group have different dtypes").in_file(self.first_label())
            })?;
            let gaps = first.gaps.as_ref().and_then(|gaps| gaps.get(number));
            if gaps.is_some_and(|gaps| gaps.len() != parameters.len()) {
                return Err(bad("`param_alignment_paddings` does not match the parameters")
                    .in_file(self.first_label()));
            }
            let align = 2 * ranks.len() as u64;
            let end = line_end(parameters, gaps);
            if end > line.count || end.div_ceil(align) != line.count.div_ceil(align) {
                return Err(self.wrong_length(end, line.count));
            }
            let mut states = Vec::new();
            for (name, slot) in first.slots.get(number).into_iter().flatten() {
                if !matches!(slot, Slot::Flat(_)) {
                    continue;
                }
                let flats: Vec<&Flat> = ranks.iter().filter_map(|part| part.flat(number, name)).collect();
                // Only the last part of the weights may be shorter, without its padding.
                let aligned = flats
                    .iter()
                    .zip(parts())
                    .take(ranks.len() - 1)
                    .all(|(flat, own)| flat.count == own.count);
                match Line::of(flats).filter(|line| aligned && line.count >= end) {
                    Some(line) => states.push(State { name, lines: vec![line] }),
                    None => {
                        return Err(bad("the optimizer state does not match the weights")
                            .in_file(self.first_label())
                            .found(escape(name)));
                    }
                }
            }
            let mut at = 0;
            for (place, (name, shape)) in parameters.iter().enumerate() {
                let count = shape.elements().unwrap_or(u64::MAX);
                let range = |line: &Line, budget: &Budget| -> Result<Ranges> {
                    let mut ranges = Ranges::default();
                    line.ranges(at, count, budget, &mut ranges)?;
                    Ok(ranges)
                };
                let own = range(&line, &self.budget)?;
                let mut all = Vec::new();
                for state in &states {
                    let Some(line) = state.lines.first() else { continue };
                    all.push((state.name, line, range(line, &self.budget)?));
                }
                self.parameter(name, shape, (&line, own), all, first.slots.get(number))?;
                at += count + gaps.and_then(|gaps| gaps.get(place)).copied().unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Joins the parameters of stage 3: each is split over the ranks.
    fn partitioned(&mut self, groups: &[Vec<(String, Shape)>], ranks: &[RankPart]) -> Result<()> {
        let Some(first) = ranks.first() else { return Ok(()) };
        let different =
            || bad("the flat tensors of the ranks have different dtypes").in_file(self.first_label());
        let lines: Vec<Line> = match first.groups.is_empty() {
            true => Vec::new(),
            false => ranks
                .iter()
                .map(|part| Line::of(&part.groups))
                .collect::<Option<_>>()
                .ok_or_else(different)?,
        };
        let mut states = Vec::new();
        let mut known = HashSet::new();
        for (name, slot) in first.slots.iter().flatten() {
            if !matches!(slot, Slot::Flat(_)) || !known.insert(name) {
                continue;
            }
            // A state that some flat tensors lack has no parts for the parameters in them.
            let of_rank = |part: &RankPart| {
                let flats: Option<Vec<&Flat>> =
                    (0..part.groups.len()).map(|number| part.flat(number, name)).collect();
                let line = Line::of(flats?)?;
                let same = (0..part.groups.len()).all(|number| {
                    part.flat(number, name).map(|flat| flat.count)
                        == part.groups.get(number).map(|flat| flat.count)
                });
                same.then_some(line)
            };
            match ranks.iter().map(of_rank).collect::<Option<Vec<Line>>>() {
                Some(lines) => states.push(State { name, lines }),
                None => {
                    return Err(bad("the optimizer state does not match the weights")
                        .in_file(self.first_label())
                        .found(escape(name)));
                }
            }
        }
        let world = ranks.len() as u64;
        let parameters = || groups.iter().flatten();
        let total = parameters().fold(0u64, |sum, (_, shape)| {
            sum.saturating_add(shape.elements().unwrap_or(u64::MAX).div_ceil(world))
        });
        if let Some(line) = lines.iter().find(|line| line.count != total) {
            return Err(self.wrong_length(total, line.count));
        }
        let mut at = 0;
        // Parameters are in the flat tensors in order, so that the state of a flat tensor belongs to a run of parameters.
        let (mut flat, mut flat_end) = (0, first.groups.first().map_or(0, |flat| flat.count));
        for (name, shape) in parameters() {
            let count = shape.elements().unwrap_or(u64::MAX);
            let own = count.div_ceil(world);
            while at >= flat_end && flat + 1 < first.groups.len() {
                flat += 1;
                flat_end += first.groups.get(flat).map_or(0, |flat| flat.count);
            }
            let range = |lines: &[Line], budget: &Budget| -> Result<Ranges> {
                let mut ranges = Ranges::default();
                let mut left = count;
                for line in lines {
                    let take = own.min(left);
                    line.ranges(at, take, budget, &mut ranges)?;
                    left -= take;
                }
                Ok(ranges)
            };
            let mut all = Vec::new();
            for state in &states {
                let Some(line) = state.lines.first() else { continue };
                all.push((state.name, line, range(&state.lines, &self.budget)?));
            }
            if let Some(line) = lines.first() {
                let ranges = range(&lines, &self.budget)?;
                self.parameter(name, shape, (line, ranges), all, first.slots.get(flat))?;
            }
            at += own;
        }
        Ok(())
    }

    /// Adds a joined parameter with its state.
    fn parameter(
        &mut self,
        name: &str,
        shape: &Shape,
        (line, ranges): (&Line, Ranges),
        states: Vec<(&str, &Line, Ranges)>,
        slots: Option<&Vec<(String, Slot)>>,
    ) -> Result<()> {
        let path = TensorPath::from_dotted(name);
        let entry = line.tensor(path.clone(), Role::Parameter, shape.clone(), ranges, self.place_label())?;
        self.masters.insert(name.to_owned());
        self.push(entry)?;
        for (slot, line, ranges) in states {
            let role = Role::OptimizerState { slot: Name::from(slot) };
            let label = format!("{} {}", self.place_label(), slot);
            let entry = line.tensor(path.clone(), role, shape.clone(), ranges, &label)?;
            self.push(entry)?;
        }
        for (slot, state) in slots.into_iter().flatten() {
            if let Slot::Scalar(first) = state {
                let role = Role::OptimizerState { slot: Name::from(slot.as_str()) };
                let mut entry = TensorEntry { path: path.clone(), role, ..(**first).clone() };
                // Each parameter has a value of its own, as in optimizers of PyTorch, and not one tied to others.
                if !self.scalars.insert(std::ptr::from_ref(state)) {
                    for extent in &mut entry.extents {
                        let source = RangeSource::new(extent.source.clone(), extent.offset, extent.len)?;
                        (extent.source, extent.offset, extent.check) = (Arc::new(source), 0, None);
                    }
                }
                self.push(entry)?;
            }
        }
        Ok(())
    }

    /// Adds the parameters that are not trained.
    fn frozen(
        &mut self,
        saved: &Saved,
        model: &ModelPart,
        mut others: HashMap<String, Vec<Flat>>,
    ) -> Result<()> {
        for (name, shape, fragment) in &model.frozen {
            let path = TensorPath::from_dotted(name);
            let fault = |text: &str| bad(text).in_file(self.first_label()).on_tensor(escape(name));
            let entry = if self.place.is_partitioned {
                let first = Flat::of(saved, *fragment)?
                    .ok_or_else(|| fault("the part of a parameter is not a flat tensor"))?;
                let parts: Vec<Flat> =
                    std::iter::once(first).chain(others.remove(name).unwrap_or_default()).collect();
                let ranks = 1 + self.place.models.keys().filter(|&&rank| rank > 0).count();
                let line = Line::of(&parts)
                    .ok_or_else(|| fault("the parts of a parameter have different dtypes"))?;
                let count = shape.elements().unwrap_or(u64::MAX);
                if line.count < count || parts.len() != ranks {
                    return Err(fault("the parts of a parameter are shorter than its shape")
                        .expected(count)
                        .found(line.count));
                }
                let mut ranges = Ranges::default();
                line.ranges(0, count, &self.budget, &mut ranges)?;
                line.tensor(path, Role::Parameter, shape.clone(), ranges, self.place_label())?
            } else {
                let entry =
                    saved.tensor(*fragment, path)?.ok_or_else(|| fault("a parameter is not a tensor"))?;
                if entry.shape != *shape {
                    return Err(fault("a parameter differs from its shape")
                        .expected(shape)
                        .found(&entry.shape));
                }
                entry
            };
            self.masters.insert(name.clone());
            self.push(entry)?;
        }
        Ok(())
    }

    /// Adds the other names of parameters.
    fn shared(&mut self, model: &ModelPart) -> Result<()> {
        let places: HashMap<String, usize> = match model.shared.is_empty() {
            true => HashMap::new(),
            false => self
                .checkpoint
                .tensors
                .iter()
                .enumerate()
                .map(|(place, entry)| (entry.text(), place))
                .collect(),
        };
        for (name, of) in &model.shared {
            let Some(first) = places.get(of).and_then(|&place| self.checkpoint.tensors.get(place)) else {
                continue;
            };
            let mut entry = TensorEntry { path: TensorPath::from_dotted(name), ..first.clone() };
            entry.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(of.clone()));
            // A few bytes of the file repeat a whole parameter.
            self.budget.take_memory(Cost::entry(true) + Cost::attributes(of.len() as u64))?;
            self.masters.insert(name.clone());
            self.push(entry)?;
        }
        Ok(())
    }

    /// Adds the remaining content of the file with the model: buffers, 16-bit weights, values.
    fn rest(&mut self, saved: &Saved, model: &mut ModelPart, stage: Option<i64>) -> Result<()> {
        let mut used = std::mem::take(&mut model.used);
        if stage == Some(3) {
            used.extend(empty(saved, &model.module)?);
        }
        let containers = self.checkpoint.containers.take();
        let (mut own, mut overlaps) =
            Walk::new(saved, self.options).within(&[], containers).without(used).run()?;
        overlaps.mark(&mut own);
        self.checkpoint.containers = own.containers;
        self.checkpoint.notes.extend(own.notes);
        let versions = format!("{MODULE}.{}", crate::VERSIONS);
        for (key, value) in own.metadata.iter() {
            let key = if key == versions { crate::VERSIONS } else { key };
            self.checkpoint.metadata.set(key, value.clone());
        }
        for (key, value) in std::mem::take(&mut self.values) {
            self.checkpoint.metadata.set(key, value);
        }
        let frozen: HashMap<String, TensorEntry> = match model.frozen.is_empty() {
            true => HashMap::new(),
            false => self.checkpoint.tensors.iter().map(|entry| (entry.text(), entry.clone())).collect(),
        };
        // The weights have their own names, unless those are of joined ones.
        let own_name = |name: &str, masters: &HashSet<String>| {
            let rest = name.strip_prefix(MODULE)?.strip_prefix('.')?;
            (!masters.contains(rest)).then(|| rest.to_owned())
        };
        let mut has_groups = false;
        for mut entry in own.tensors {
            let text = entry.text();
            has_groups |= text.starts_with("optimizer.fp32_groups");
            if let Some(name) = own_name(&text, &self.masters) {
                entry.path = TensorPath::new(entry.path.parts().get(1..).unwrap_or_default().to_vec());
                if model.buffers.contains(&name) {
                    entry.role = Role::Buffer;
                }
            } else if let Some(name) = text.strip_prefix(MODULE).and_then(|rest| rest.strip_prefix('.')) {
                // The same bytes are listed under the name of the parameter.
                if frozen.get(name).is_some_and(|first| first.same_bytes(&entry)) {
                    continue;
                }
                entry.role = Role::Other;
            } else if entry.role == Role::Parameter {
                entry.role = Role::Other;
            }
            if let Role::OptimizerPart { of: Some(of) } = &entry.role
                && let Some(name) = own_name(&of.name, &self.masters)
            {
                let of = StateOf { name, guessed: of.guessed };
                entry.role = Role::OptimizerPart { of: Some(Box::new(of)) };
            }
            if let Some(name) =
                entry.text_attribute(Attributes::ALIAS_OF).and_then(|of| own_name(of, &self.masters))
            {
                entry.attributes.insert(Attributes::ALIAS_OF.to_owned(), Value::Text(name));
            }
            self.push(entry)?;
        }
        if has_groups {
            let text = "fp32 weights of the optimizer are listed as in the file: without ZeRO, it does not name their parameters";
            self.checkpoint.notes.push(Note::new(NoteCode::NotJoined, text));
        }
        Ok(())
    }

    /// Adds a tensor under a unique name.
    fn push(&mut self, mut entry: TensorEntry) -> Result<()> {
        let limits = &self.options.limits;
        Limits::check("tensors", "tensors", self.checkpoint.tensors.len() as u64 + 1, limits.tensors)?;
        let (parts, bytes) = (entry.path.parts().len(), entry.path.byte_len() as u64);
        self.budget.take_memory(
            Cost::entry(false) + Cost::name(parts, bytes) + Cost::dimensions(entry.shape.rank()),
        )?;
        // One tensor of a storage has its checksum: verifying reads the whole storage.
        for extent in &mut entry.extents {
            let source = &extent.source;
            extent.check = extent
                .check
                .take()
                .filter(|check| self.checked.insert((source.label().to_owned(), check.offset)));
        }
        self.checkpoint.notes.extend(self.names.add(&mut entry));
        self.checkpoint.tensors.push(entry);
        Ok(())
    }

    fn wrong_length(&self, expected: u64, found: u64) -> Error {
        bad("the flat tensors do not have the elements of the parameters")
            .in_file(self.first_label())
            .expected(format_args!("{expected} elements, without padding"))
            .found(found)
            .hint("the files may be of different checkpoints")
    }

    /// Label of the first file with the optimizer.
    fn first_label(&self) -> String {
        self.place.label(self.place.optimizers.get(&0).map_or("", String::as_str))
    }

    /// Label of joined bytes.
    fn place_label(&self) -> &str {
        &self.checkpoint.label
    }
}

impl RankPart {
    /// Returns a state with an element for each element of a flat tensor.
    fn flat(&self, number: usize, name: &str) -> Option<&Flat> {
        match self.slot(number, name)? {
            Slot::Flat(flat) => Some(flat),
            _ => None,
        }
    }

    fn slot(&self, number: usize, name: &str) -> Option<&Slot> {
        let slots = self.slots.get(number)?;
        slots.iter().find(|(own, _)| own == name).map(|(_, slot)| slot)
    }
}

/// Returns the tensors without elements: with stage 3, they stand for parameters that are split.
fn empty(saved: &Saved, module: &[(String, ObjectId)]) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    for &(_, id) in module {
        if saved.tensor(id, TensorPath::value())?.is_some_and(|entry| entry.shape.dims() == [0]) {
            found.push(id);
        }
    }
    Ok(found)
}

/// Elements of parameters, with the gaps after them.
fn line_end(parameters: &[(String, Shape)], gaps: Option<&Vec<u64>>) -> u64 {
    let counts = parameters.iter().map(|(_, shape)| shape.elements().unwrap_or(u64::MAX));
    let gaps = gaps.into_iter().flatten().copied();
    counts.chain(gaps).fold(0, u64::saturating_add)
}

fn differ(what: &str, expected: impl std::fmt::Debug, found: impl std::fmt::Debug) -> Error {
    Error::corrupt(
        "deepspeed-ranks",
        format!("{what} differs from that of rank 0: the files are of different checkpoints"),
    )
    .expected(format_args!("{expected:?}"))
    .found(format_args!("{found:?}"))
    .hint("copy all files of one step")
}

/// Compares the part of a rank with that of rank 0.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `deepspeed-ranks`, for parts of different checkpoints.
fn compare(first: &RankPart, part: &RankPart) -> Result<()> {
    if (first.stage, first.ranks) != (part.stage, part.ranks) {
        return Err(differ(
            "the stage or the number of ranks",
            (first.stage, first.ranks),
            (part.stage, part.ranks),
        ));
    }
    if first.groups.len() != part.groups.len() {
        return Err(differ("the number of flat tensors", first.groups.len(), part.groups.len()));
    }
    let counts = |part: &RankPart| part.slots.iter().map(Vec::len).collect::<Vec<_>>();
    if counts(first) != counts(part) {
        return Err(differ("the number of optimizer states", counts(first), counts(part)));
    }
    for (number, slots) in first.slots.iter().enumerate() {
        for (name, slot) in slots {
            let own = part.slot(number, name);
            let same = match (slot, own) {
                (Slot::Flat(a), Some(Slot::Flat(b))) => a.dtype == b.dtype,
                (Slot::Number(a), Some(Slot::Number(b))) => a == b,
                (Slot::Scalar(a), Some(Slot::Scalar(b))) => {
                    let (a, b) = (a.read_tensor(Order::Row)?, b.read_tensor(Order::Row)?);
                    if a != b {
                        return Err(differ(
                            &format!("optimizer state `{}`", escape(name)),
                            Name::hex(&a),
                            Name::hex(&b),
                        ));
                    }
                    true
                }
                _ => false,
            };
            if !same {
                return Err(differ(
                    &format!("optimizer state `{}`", escape(name)),
                    slot.as_str(),
                    own.map_or("missing", Slot::as_str),
                ));
            }
        }
    }
    Ok(())
}
