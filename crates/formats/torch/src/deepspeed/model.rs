//! File with the model: its 16-bit weights, and the names and shapes of the parameters in the flat tensors.
//!
//! ```text
//! module                  state_dict() of the model; with stage 3, parameters without elements
//! param_shapes            [{name: torch.Size}, ...]: the parameters of each group in the order of the flat tensors; None without ZeRO
//! shared_params           {name: name of the parameter with its elements}
//! frozen_param_shapes     {name: torch.Size}: parameters that are not trained
//! frozen_param_fragments  {name: tensor}: their elements; with stage 3, flat and the part of this rank
//! buffer_names            [name, ...]
//! global_steps, ds_config, ..., and the values of the user
//! ```

use super::flat::bad;
use super::optimizer::find;
use std::collections::HashSet;
use weighbridge_core::error::Result;
use weighbridge_core::limits::Limits;
use weighbridge_core::tensor::Shape;
use weighbridge_core::text::escape;
use weighbridge_pickle::{Cost, Graph, ObjectId};
use weighbridge_torch_archive::Saved;

/// Key of the weights.
pub(super) const MODULE: &str = "module";

/// Names and shapes in a file with the model.
#[derive(Debug, Default)]
pub(super) struct ModelPart {
    /// Parameters of each group; `None` without ZeRO.
    pub(super) groups: Option<Vec<Vec<(String, Shape)>>>,
    /// Parameters that are not trained, with their elements.
    pub(super) frozen: Vec<(String, Shape, ObjectId)>,
    /// Names, and the parameters with their elements.
    pub(super) shared: Vec<(String, String)>,
    pub(super) buffers: HashSet<String>,
    pub(super) steps: Option<i64>,
    /// Tensors of `module` by name.
    pub(super) module: Vec<(String, ObjectId)>,
    /// Objects that this part replaces.
    pub(super) used: HashSet<ObjectId>,
}

impl ModelPart {
    /// Reads the names and shapes.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`], `deepspeed-form`, for content of another form; [`weighbridge_core::Kind::Limit`].
    pub(super) fn of(saved: &Saved, limits: &Limits) -> Result<Self> {
        let reader = Reader { saved, graph: saved.graph(), limits };
        let (graph, root) = (saved.graph(), saved.root());
        let module = find(graph, root, MODULE)
            .and_then(|id| graph.pairs(id))
            .ok_or_else(|| bad("the file has no dict `module`"))?;
        let field = |name: &str| find(graph, root, name).filter(|&id| id != ObjectId::NONE);
        let mut part = Self { steps: field("global_steps").and_then(|id| graph.int(id)), ..Self::default() };
        for &(key, value) in module {
            if saved.is_tensor(value) {
                part.module.push((reader.name(key)?, value));
            }
        }
        if let Some(shapes) = field("param_shapes") {
            // Early releases have one group without a list.
            let groups = graph.sequence(shapes).unwrap_or(std::slice::from_ref(&shapes));
            part.groups = Some(groups.iter().map(|&group| reader.shapes(group)).collect::<Result<_>>()?);
        }
        if let (Some(shapes), Some(fragments)) =
            (field("frozen_param_shapes"), field("frozen_param_fragments"))
        {
            let pairs =
                graph.pairs(fragments).ok_or_else(|| bad("`frozen_param_fragments` is not a dict"))?;
            let known: std::collections::HashMap<&str, ObjectId> =
                pairs.iter().filter_map(|&(key, value)| Some((graph.text(key)?, value))).collect();
            for (name, shape) in reader.shapes(shapes)? {
                let fragment = known.get(name.as_str()).copied().ok_or_else(|| {
                    bad("a parameter that is not trained has no elements").on_tensor(escape(&name))
                })?;
                part.used.insert(fragment);
                part.frozen.push((name, shape, fragment));
            }
        }
        for &(key, value) in field("shared_params").and_then(|id| graph.pairs(id)).unwrap_or_default() {
            part.shared.push((reader.name(key)?, reader.name(value)?));
        }
        for &name in field("buffer_names").and_then(|id| graph.sequence(id)).unwrap_or_default() {
            part.buffers.insert(reader.name(name)?);
        }
        for name in ["param_shapes", "frozen_param_shapes", "shared_params", "buffer_names"] {
            part.used.extend(field(name));
        }
        // Empty dicts would become metadata.
        if part.frozen.is_empty() {
            part.used.extend(field("frozen_param_fragments"));
        }
        Ok(part)
    }
}

struct Reader<'a> {
    saved: &'a Saved,
    graph: &'a Graph,
    limits: &'a Limits,
}

impl Reader<'_> {
    fn shapes(&self, id: ObjectId) -> Result<Vec<(String, Shape)>> {
        let pairs = self.graph.pairs(id).ok_or_else(|| bad("the shapes of parameters are not a dict"))?;
        Limits::check("tensors", "tensors", pairs.len() as u64, self.limits.tensors)?;
        pairs.iter().map(|&(key, value)| Ok((self.name(key)?, self.shape(value)?))).collect()
    }

    /// Reads a `torch.Size`, tuple or list of non-negative integers.
    fn shape(&self, id: ObjectId) -> Result<Shape> {
        let items = match self.graph.call(id) {
            Some((("torch", "Size"), &[items])) => self.graph.sequence(items),
            _ => self.graph.sequence(id),
        };
        let wrong = || bad("a shape is not a list of non-negative integers");
        let items = items.ok_or_else(wrong)?;
        Limits::check("dimensions", "dimensions", items.len() as u64, self.limits.dimensions)?;
        self.saved.budget().take_memory(Cost::dimensions(items.len()))?;
        let number = |&id: &ObjectId| u64::try_from(self.graph.int(id)?).ok();
        let dims: Option<Vec<u64>> = items.iter().map(number).collect();
        let shape = Shape::new(dims.ok_or_else(wrong)?);
        match shape.elements() {
            Some(_) => Ok(shape),
            None => Err(bad("the number of elements of a shape exceeds 2^64")),
        }
    }

    fn name(&self, id: ObjectId) -> Result<String> {
        let text = self.saved.text(id)?.ok_or_else(|| bad("a name is not text in UTF-8"))?;
        let len = text.len() as u64;
        Limits::check("bytes in a name", "name_bytes", len, self.limits.name_bytes)?;
        let parts = text.matches('.').count() + 1;
        Limits::check("parts in a name", "path_parts", parts as u64, self.limits.path_parts)?;
        self.saved.budget().take_work(Cost::VISIT)?;
        self.saved.budget().take_memory(Cost::name(parts, len))?;
        Ok(text)
    }
}
