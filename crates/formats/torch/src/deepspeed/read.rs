//! Reader: from the files of all ranks to the index.

use super::flat::{Flat, Line, Ranges, bad};
use super::model::{MODULE, ModelPart};
use super::optimizer::{OwnSlot, RankPart, Slot, settle};
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
use weighbridge_core::tensor::Shape;
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
        if self.place.optimizers.is_empty() && model.groups.is_some() {
            return Err(self.without_optimizers(name));
        }
        let mut ranks: Vec<RankPart> = Vec::new();
        for (&rank, name) in &self.place.optimizers {
            if rank != ranks.len() {
                return Err(self.missing(name, ranks.len()));
            }
            let part = self.optimizer(rank, name, ranks.first())?;
            ranks.push(part);
        }
        std::mem::take(&mut self.repeated)
            .check("torch-repeated", &self.options.limits)
            .map_err(|error| error.in_file(self.place.label("")))?;
        let stage = ranks.first().and_then(|part| part.stage);
        let groups = model.groups.as_deref().unwrap_or_default();
        let is_in_runs = stage != Some(3) || in_runs(groups, &ranks);
        settle(&mut ranks, is_in_runs)?;
        let place = self.place;
        for (part, (&rank, name)) in ranks.iter_mut().zip(&place.optimizers) {
            self.list(rank, name, part)?;
        }
        if let (Some(first), true, Some((&last, name))) =
            (ranks.first(), self.place.is_partitioned, self.place.models.last_key_value())
            && last as u64 >= first.ranks
        {
            return Err(self.surplus(name, first.ranks, "model", last as u64 + 1));
        }
        let fragments = self.other_models(&model, ranks.len(), stage == Some(3))?;
        if let Some(first) = ranks.first() {
            let expected = first.ranks;
            if expected != ranks.len() as u64 {
                let last = self.place.optimizers.get(&(ranks.len() - 1)).map_or("", String::as_str);
                return Err(match expected > ranks.len() as u64 {
                    true => self.missing(last, ranks.len()),
                    false => self.surplus(last, expected, "optim", ranks.len() as u64),
                });
            }
            let groups = model.groups.as_deref();
            let groups = groups.ok_or_else(|| bad("`param_shapes` is missing").in_file(source.label()))?;
            match stage {
                Some(3) => self.partitioned(groups, &ranks)?,
                _ => self.flattened(groups, &ranks)?,
            }
        }
        self.frozen(&saved, &model, fragments)?;
        self.shared(&model)?;
        self.rest(&saved, &mut model, stage)?;
        for entry in std::mem::take(&mut self.kept) {
            self.budget.give_memory(cost(&entry));
            self.push(entry)?;
        }
        if ranks.iter().any(|part| part.is_apart) {
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
        let error = self.place.missing("zero_pp_rank_0_mp_rank_00_optim_states.pt");
        match self.place.is_partitioned {
            true => error,
            false => error.hint_instead(format_args!(
                "copy the whole folder; without the fp32 weights of all ranks, open the 16-bit weights alone: {}",
                self.place.label(name)
            )),
        }
    }

    /// Error for files of more ranks than the checkpoint has.
    fn surplus(&self, name: &str, expected: u64, kind: &str, found: u64) -> Error {
        Error::corrupt("deepspeed-files", "the folder has files of more ranks than the checkpoint")
            .in_file(self.place.label(name))
            .expected(format_args!("{expected} files *_{kind}_states.pt"))
            .found(found)
            .hint("the files of an earlier checkpoint with more ranks may be left: move them away")
    }

    /// Error for a missing rank; `like` is the name of another one.
    fn missing(&self, like: &str, rank: usize) -> Error {
        let prefix = like.find("zero_pp_rank_").map_or("", |at| &like[..at]);
        self.place.missing(&format!("{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"))
    }

    /// Parses a file.
    fn parse(&self, source: &SourceRef) -> Result<Saved> {
        // Each file has a budget of its own, and is closed before the next one.
        let limits = Limits { budget: None, ..self.options.limits.clone() };
        let saved = torch::read(source, &limits)?;
        // What many small files take together is that of one file of their length.
        let (all, left) = (Budget::new(source.len(), &limits), saved.budget());
        let memory = all.memory_left().saturating_sub(left.memory_left());
        let work = all.work_left().saturating_sub(left.work_left());
        self.budget.take_work(memory.saturating_add(work))?;
        Ok(saved)
    }

    fn saved(&mut self, source: &SourceRef) -> Result<Saved> {
        let saved = self.parse(source)?;
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
        let part = RankPart::of(&saved, &self.budget).map_err(|error| error.in_file(source.label()))?;
        if let Some(first) = first {
            compare(first, &part).map_err(|error| error.in_file(source.label()))?;
        }
        let states = part.slots.iter().flatten().filter_map(|own| match &own.slot {
            Slot::Flat(flat) => Some(flat),
            _ => None,
        });
        part.groups.iter().chain(states).for_each(|flat| flat.count_bytes(rank, &mut self.repeated));
        Ok(part)
    }

    /// Lists the content of the file of a rank that is not joined. The file is read again: which states are joined depends on those of all
    /// ranks.
    fn list(&mut self, rank: usize, name: &str, part: &mut RankPart) -> Result<()> {
        let saved = self.parse(&self.place.open(name)?)?;
        let mut used = std::mem::take(&mut part.used);
        // The same values are in the file with the model.
        let graph = saved.graph();
        used.extend(
            ["ds_config", "ds_version"]
                .into_iter()
                .filter_map(|key| super::optimizer::find(graph, saved.root(), key)),
        );
        self.walk(&saved, used, rank)?;
        if let (0, Some(stage)) = (rank, part.stage) {
            self.values.push(("optimizer_state_dict.zero_stage".to_owned(), Value::I64(stage)));
        }
        Ok(())
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
            for note in own.notes.into_iter().filter(|note| note.skipped.is_some()) {
                self.budget.take_memory(Cost::entry(false))?;
                self.checkpoint.notes.push(note);
            }
        }
        for mut entry in own.tensors {
            if !entry.role.is_state() {
                entry.role = Role::Other;
            }
            self.budget.take_memory(cost(&entry) + Cost::entry(true))?;
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
            let split = empty(&saved, &part)?.0;
            part.used.extend(split);
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
            for OwnSlot { name, slot, .. } in first.slots.get(number).into_iter().flatten() {
                if !matches!(slot, Slot::Flat(_)) {
                    continue;
                }
                let flats: Vec<Flat> = ranks.iter().filter_map(|part| part.flat(number, name)).collect();
                match Line::of(&flats).filter(|own| own.count == line.count) {
                    Some(line) => states.push(State { name, lines: vec![line] }),
                    None => return Err(self.wrong_state(name)),
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
        // States of each flat tensor.
        let mut states: Vec<Vec<State<'_>>> = Vec::new();
        for (number, slots) in first.slots.iter().enumerate() {
            let mut own = Vec::new();
            for OwnSlot { name, slot, .. } in slots {
                if !matches!(slot, Slot::Flat(_)) {
                    continue;
                }
                let of_rank = |part: &RankPart| Line::of(&part.flat(number, name));
                let lines = ranks.iter().map(of_rank).collect::<Option<Vec<Line>>>();
                own.push(State { name, lines: lines.ok_or_else(|| self.wrong_state(name))? });
            }
            states.push(own);
        }
        let world = ranks.len() as u64;
        let parameters = || groups.iter().flatten();
        let total = parameters().fold(0u64, |sum, (_, shape)| {
            sum.saturating_add(shape.elements().unwrap_or(u64::MAX).div_ceil(world))
        });
        let is_offloaded = |part: &RankPart| part.groups.iter().all(|flat| flat.count == 0);
        let has_offloaded = |part: &RankPart| part.groups.iter().any(|flat| flat.count == 0);
        let is_short = lines.iter().any(|line| line.count < total);
        if total > 0 && (ranks.iter().all(is_offloaded) || is_short && ranks.iter().any(has_offloaded)) {
            return Err(Error::unsupported(
                "deepspeed-form",
                "the fp32 weights are not in the file: the optimizer was offloaded",
            )
            .in_file(self.first_label())
            .hint("they are in the folder `offloaded_tensors/`, in another form: save without offloading to NVMe"));
        }
        if let Some(line) = lines.iter().find(|line| line.count != total) {
            return Err(self.wrong_length(total, line.count));
        }
        let mut at = 0;
        // Parameters are in the flat tensors in order, so that the state of a flat tensor belongs to a run of parameters.
        let (mut flat, mut flat_start) = (0, 0);
        let mut flat_end = first.groups.first().map_or(0, |flat| flat.count);
        for (name, shape) in parameters() {
            let count = shape.elements().unwrap_or(u64::MAX);
            let own = count.div_ceil(world);
            while at >= flat_end && flat + 1 < first.groups.len() {
                flat += 1;
                flat_start = flat_end;
                flat_end += first.groups.get(flat).map_or(0, |flat| flat.count);
            }
            let range = |lines: &[Line], at: u64, budget: &Budget| -> Result<Ranges> {
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
            for state in states.get(flat).into_iter().flatten() {
                let Some(line) = state.lines.first() else { continue };
                all.push((state.name, line, range(&state.lines, at - flat_start, &self.budget)?));
            }
            if let Some(line) = lines.first() {
                let ranges = range(&lines, at, &self.budget)?;
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
        slots: Option<&Vec<OwnSlot>>,
    ) -> Result<()> {
        let path = TensorPath::from_dotted(name);
        let label = self.place_label().to_owned();
        let entry = line.tensor(path.clone(), Role::Parameter, shape.clone(), ranges, &label)?;
        self.masters.insert(name.to_owned());
        self.push(entry)?;
        for (slot, line, ranges) in states {
            let role = Role::OptimizerState { slot: Name::from(slot) };
            let label = format!("{label} {slot}");
            let entry = line.tensor(path.clone(), role, shape.clone(), ranges, &label)?;
            self.push(entry)?;
        }
        for OwnSlot { name, slot: state, .. } in slots.into_iter().flatten() {
            if let Slot::Scalar(first) = state {
                let role = Role::OptimizerState { slot: Name::from(name.as_str()) };
                let mut entry = TensorEntry { path: path.clone(), role, ..(**first).clone() };
                // Each parameter has a value of its own, as in optimizers of PyTorch, and not one tied to others.
                if !self.scalars.insert(std::ptr::from_ref(state)) {
                    for extent in &mut entry.extents {
                        let source = RangeSource::new(extent.source.clone(), extent.offset, extent.len)?;
                        (extent.source, extent.offset) = (Arc::new(source), 0);
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
                let label = self.place_label().to_owned();
                line.tensor(path, Role::Parameter, shape.clone(), ranges, &label)?
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
            // Parameters without elements have the same address.
            if self.masters.contains(name) {
                continue;
            }
            let Some(first) = places.get(of).and_then(|&place| self.checkpoint.tensors.get(place)) else {
                self.note(format!(
                    "`{}` shares the elements of `{}`, which is not in the files",
                    escape(name),
                    escape(of)
                ))?;
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
            let (split, others) = empty(saved, model)?;
            used.extend(split);
            for name in others {
                self.note(format!("`{}` has no elements in the files", escape(name)))?;
            }
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

    /// Adds a note about something that is not joined.
    fn note(&mut self, text: String) -> Result<()> {
        self.budget.take_memory(Cost::VALUE + Cost::text(text.len() as u64))?;
        self.checkpoint.notes.push(Note::new(NoteCode::NotJoined, text));
        Ok(())
    }

    /// Adds a tensor under a unique name.
    fn push(&mut self, mut entry: TensorEntry) -> Result<()> {
        let limits = &self.options.limits;
        Limits::check("tensors", "tensors", self.checkpoint.tensors.len() as u64 + 1, limits.tensors)?;
        self.budget.take_memory(cost(&entry))?;
        self.checkpoint.notes.extend(self.names.add(&mut entry));
        self.checkpoint.tensors.push(entry);
        Ok(())
    }

    fn wrong_state(&self, name: &str) -> Error {
        bad("the optimizer state does not match the weights").in_file(self.first_label()).found(escape(name))
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

/// Returns the tensors without elements that stand for split parameters, and the names of the other empty ones, except buffers.
fn empty<'a>(saved: &Saved, part: &'a ModelPart) -> Result<(Vec<ObjectId>, Vec<&'a str>)> {
    let listed = part.groups.iter().flatten().flatten().map(|(name, _)| name);
    let frozen = part.frozen.iter().map(|(name, ..)| name);
    let shared = part.shared.iter().map(|(name, _)| name);
    let known: HashSet<&String> = listed.chain(frozen).chain(shared).collect();
    let (mut split, mut others) = (Vec::new(), Vec::new());
    for (name, id) in &part.module {
        if part.buffers.contains(name)
            || saved.tensor(*id, TensorPath::value())?.is_none_or(|entry| entry.shape.dims() != [0])
        {
            continue;
        }
        match known.contains(name) {
            true => split.push(*id),
            false => others.push(name.as_str()),
        }
    }
    Ok((split, others))
}

/// Memory of an entry of the index.
fn cost(entry: &TensorEntry) -> u64 {
    let (parts, bytes) = (entry.path.parts().len(), entry.path.byte_len() as u64);
    Cost::entry(false) + Cost::name(parts, bytes) + Cost::dimensions(entry.shape.rank())
}

/// Returns true if each flat tensor of stage 3 has the parts of whole parameters, the same ones in each rank.
fn in_runs(groups: &[Vec<(String, Shape)>], ranks: &[RankPart]) -> bool {
    let world = (ranks.len() as u64).max(1);
    let sums = |counts: &mut dyn Iterator<Item = u64>| -> Vec<u64> {
        let add = |at: &mut u64, count: u64| {
            *at = at.saturating_add(count);
            Some(*at)
        };
        counts.scan(0, add).collect()
    };
    let parameters = groups.iter().flatten();
    let ends = sums(&mut parameters.map(|(_, shape)| shape.elements().unwrap_or(u64::MAX).div_ceil(world)));
    let ends: HashSet<u64> = ends.into_iter().chain([0]).collect();
    let mut of_ranks = ranks.iter().map(|part| sums(&mut part.groups.iter().map(|flat| flat.count)));
    let Some(first) = of_ranks.next() else { return true };
    first.iter().all(|end| ends.contains(end)) && of_ranks.all(|own| own == first)
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

/// State with the number of steps.
const STEP: &str = "step";

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
    // Other states may differ: they are joined where they match.
    for number in 0..first.slots.len().max(part.slots.len()) {
        let (slot, own) = (first.slot(number, STEP), part.slot(number, STEP));
        let found = |slot: Option<&Slot>| slot.map_or(Ok("missing".to_owned()), Slot::text);
        let same = match (slot, own) {
            (Some(slot), Some(own)) => slot.is_like(own)?,
            (slot, own) => slot.is_none() && own.is_none(),
        };
        if !same {
            return Err(differ("the optimizer state `step`", found(slot)?, found(own)?));
        }
    }
    Ok(())
}
