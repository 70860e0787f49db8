//! Planner: index to bytes, as the original writes them.

use super::entries::{self, Held, HeldParameter};
use super::read::{DIMS, FLOATS, UINTS};
use super::wire::{self, BIN, MAP};
use super::{BATCH, FileKind, INFO, Shape};
use std::collections::HashSet;
use weighbridge_core::checkpoint::{Checkpoint, Loss, Metadata, Name, Note, Role, TensorPath, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::Order;
use weighbridge_format::PlanOptions;

/// Plans one file of the requested kind, or of the kind of origin, or a model.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    let origin = checkpoint.origin.as_ref().filter(|origin| origin.format == INFO.id);
    let word = options.kind.as_deref().or(origin.map(|origin| origin.kind.as_str())).unwrap_or("model");
    let kind = FileKind::from_word(word).ok_or_else(|| {
        Error::usage("unknown-kind", "unknown kind of primitiv file")
            .found(word)
            .hint("use shape, tensor, parameter, model or optimizer")
    })?;
    let mut layout = Layout { file: FileBuilder::new(""), losses: Vec::new() };
    let mut header = Vec::new();
    wire::put_header(&mut header, kind);
    layout.file.literal(header);
    match kind {
        FileKind::Shape => layout.shape(checkpoint)?,
        FileKind::Tensor => {
            let held = entries::only(checkpoint)?;
            layout.drop_name(&held.entry.path);
            layout.tensor(&held)?;
            layout.check_role(&held);
        }
        FileKind::Parameter => {
            let parameter = entries::only_parameter(checkpoint, true)?;
            layout.drop_name(parameter.path());
            layout.parameter(&parameter)?;
        }
        FileKind::Model => layout.model(checkpoint)?,
        FileKind::Optimizer => layout.optimizer(checkpoint)?,
    }
    let kept: &[&str] = match kind {
        FileKind::Shape => &[DIMS, BATCH],
        FileKind::Optimizer => &[UINTS, FLOATS],
        _ => &[],
    };
    for (key, _) in checkpoint.metadata.iter().filter(|(key, _)| !kept.contains(key)) {
        let detail = format!("a primitiv {} file cannot store this metadata", kind.word());
        layout.losses.push(Loss::new(
            "metadata-dropped",
            weighbridge_core::checkpoint::escape_text(key),
            detail,
        ));
    }
    layout.losses.extend(checkpoint.left_out().map(Note::loss));
    let Layout { file, losses } = layout;
    Ok(WritePlan { format: INFO.id, kind: kind.word(), files: vec![file.finish()], losses })
}

/// File in planning, and its losses.
struct Layout {
    file: FileBuilder,
    losses: Vec<Loss>,
}

impl Layout {
    fn uint(&mut self, value: u32) {
        let mut bytes = Vec::with_capacity(5);
        wire::put_uint(&mut bytes, value);
        self.file.literal(bytes);
    }

    fn tensor(&mut self, held: &Held<'_>) -> Result<()> {
        let mut head = Vec::new();
        wire::put_shape(&mut head, &held.shape);
        wire::put_length(&mut head, BIN, held.shape.values().saturating_mul(4));
        self.file.literal(head);
        self.file.tensor(held.entry, Order::Column)?;
        if held.normalised {
            let detail = format!("shape {} stored without trailing dimensions of 1", held.entry.shape);
            self.losses.push(Loss::new("shape-normalised", held.entry.name(), detail));
        }
        for key in held.entry.attributes.keys().filter(|key| *key != BATCH) {
            let detail = format!("attribute `{key}` dropped: primitiv cannot store it");
            self.losses.push(Loss::new("attribute-dropped", held.entry.name(), detail));
        }
        Ok(())
    }

    fn parameter(&mut self, parameter: &HeldParameter<'_>) -> Result<()> {
        self.tensor(&parameter.value)?;
        self.check_role(&parameter.value);
        self.uint(wire::count("stats", parameter.stats.len())?);
        for (slot, held) in &parameter.stats {
            let mut name = Vec::new();
            wire::put_name(&mut name, slot)?;
            self.file.literal(name);
            self.tensor(held)?;
        }
        Ok(())
    }

    fn model(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let parameters = entries::parameters(checkpoint, true)?;
        self.uint(wire::count("parameters", parameters.len())?);
        for parameter in &parameters {
            let mut address = Vec::new();
            put_address(&mut address, parameter.path())?;
            self.file.literal(address);
            self.parameter(parameter)?;
        }
        Ok(())
    }

    fn shape(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let shape = shape_of(&checkpoint.metadata)?;
        let mut body = Vec::new();
        wire::put_shape(&mut body, &shape.0);
        self.file.literal(body);
        if shape.1 {
            let detail = "shape stored without trailing dimensions of 1";
            self.losses.push(Loss::new("shape-normalised", DIMS, detail));
        }
        no_tensors(checkpoint, FileKind::Shape)
    }

    fn optimizer(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let (uints, floats) = settings_of(&checkpoint.metadata)?;
        let mut body = Vec::new();
        put_settings(&mut body, &uints, &floats)?;
        self.file.literal(body);
        no_tensors(checkpoint, FileKind::Optimizer)
    }

    /// Reports a role other than parameter: primitiv reads every tensor of a model as a parameter.
    fn check_role(&mut self, held: &Held<'_>) {
        if held.entry.role != Role::Parameter {
            let detail = format!(
                "role `{}` stored as a parameter: primitiv has no other roles",
                held.entry.role.as_str()
            );
            self.losses.push(Loss::new("role", held.entry.name(), detail));
        }
    }

    /// Reports a dropped name: a file of one object does not store its name.
    fn drop_name(&mut self, path: &TensorPath) {
        if *path != TensorPath::value() {
            self.losses.push(Loss::new(
                "name-dropped",
                path,
                "name dropped: a primitiv file of one object has no name",
            ));
        }
    }
}

fn no_tensors(checkpoint: &Checkpoint, kind: FileKind) -> Result<()> {
    let Some(first) = checkpoint.tensors.first() else { return Ok(()) };
    Err(Error::mismatch(
        "no-room-for-tensors",
        format!("a primitiv {} file cannot store tensors", kind.word()),
    )
    .on_tensor(first.name())
    .hint("write the tensors to a .model file"))
}

/// Appends an address: an array of names.
pub(super) fn put_address(out: &mut Vec<u8>, path: &TensorPath) -> Result<()> {
    if path.parts().is_empty() {
        return Err(Error::mismatch(
            "empty-path",
            "the tensor has no name; a parameter of a model needs one",
        ));
    }
    wire::put_length(out, wire::ARRAY, wire::count("parts of an address", path.parts().len())?);
    path.parts().iter().try_for_each(|part| wire::put_name(out, part))
}

/// Appends the body of an optimizer file.
pub(super) fn put_settings(out: &mut Vec<u8>, uints: &[(Name, u32)], floats: &[(Name, u32)]) -> Result<()> {
    for (list, put) in [(uints, wire::put_uint as fn(&mut Vec<u8>, u32)), (floats, wire::put_float_bits)] {
        wire::put_length(out, MAP, wire::count("settings", list.len())?);
        for (key, value) in list {
            wire::put_name(out, key)?;
            put(out, *value);
        }
    }
    Ok(())
}

/// Reads the shape from the metadata, and whether it has trailing 1s there.
pub(super) fn shape_of(metadata: &Metadata) -> Result<(Shape, bool)> {
    let missing = || {
        Error::mismatch("no-shape", "the input has no shape to write")
            .expected("metadata `dims`, a list of numbers, and `batch`, a number")
            .hint("use a primitiv shape file as the input")
    };
    let Some(Value::List(dims)) = metadata.get(DIMS) else { return Err(missing()) };
    let number = |value: &Value| match value {
        Value::U32(n) => Some(*n),
        _ => None,
    };
    let dims = dims.iter().map(number).collect::<Option<Vec<u32>>>().ok_or_else(missing)?;
    let batch = metadata.get(BATCH).and_then(number).ok_or_else(missing)?;
    let shape = Shape::new(&dims, batch)?;
    let normalised = shape.dims().len() < dims.len();
    Ok((shape, normalised))
}

/// Settings by key, floats as bits.
type Settings = Vec<(Name, u32)>;

/// Reads the settings of an optimizer from the metadata: integers, then floats as bits.
pub(super) fn settings_of(metadata: &Metadata) -> Result<(Settings, Settings)> {
    let uints = settings(metadata, UINTS, "uint32", |value| match value {
        Value::U32(n) => Some(*n),
        _ => None,
    })?;
    let floats = settings(metadata, FLOATS, "float32", |value| match value {
        Value::F32(bits) => Some(*bits),
        _ => None,
    })?;
    Ok((uints, floats))
}

fn settings(
    metadata: &Metadata,
    key: &str,
    dtype: &str,
    value: impl Fn(&Value) -> Option<u32>,
) -> Result<Settings> {
    let Some(Value::Map(pairs)) = metadata.get(key) else {
        return Err(Error::mismatch("no-settings", "the input has no optimizer settings to write")
            .expected(format_args!("metadata `{key}`, names with {dtype} values"))
            .hint("use a primitiv optimizer file as the input"));
    };
    let mut seen = HashSet::with_capacity(pairs.len());
    let pair = |(name, held): &(Name, Value)| {
        let bits = value(held).ok_or_else(|| {
            Error::mismatch("setting-type", format!("the setting `{name}` has the wrong type"))
                .expected(dtype)
                .found(held.to_json())
        })?;
        Ok((name.clone(), bits))
    };
    for (name, _) in pairs {
        if !seen.insert(name) {
            return Err(Error::mismatch("duplicate-key", format!("duplicate setting `{name}`")));
        }
    }
    pairs.iter().map(pair).collect()
}
