//! Write plans for pickled states.

use super::super::{STOP_GRADIENT, TRAINABLE};
use super::split::MAX_ARRAY_BYTES;
use super::writer::Writer;
use super::{KIND, NUMPY, PROTOCOL, RESERVED, STRUCTURE, canonical, is_state, slots};
use weighbridge_core::checkpoint::{
    Attributes, Checkpoint, Loss, PICKLE, Role, TensorEntry, TensorPath, Value, escape_text,
};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::tensor::DType;
use weighbridge_core::text::counted;
use weighbridge_format::PlanOptions;
use weighbridge_io::engine::latin1_lengths;
use weighbridge_pickle::{Location, NumpyModules, Part, write};

/// Attributes that a state stores in another way, or that follow from loading it.
const PRESERVED: [&str; 3] =
    [Attributes::VARIABLE_NAME, Attributes::PARAMETER_VARIABLE, Attributes::ALIAS_OF];
/// Default protocol of Paddle.
const DEFAULT_PROTOCOL: u8 = 4;

/// Lays out a pickled state, byte for byte as Paddle writes it.
///
/// # Errors
/// [`weighbridge_core::Kind::Usage`] for unknown settings; [`weighbridge_core::Kind::Mismatch`],
/// `no-such-dtype`, for dtypes that numpy lacks, and `name-collision`, for duplicate keys;
/// [`weighbridge_core::Kind::Unsupported`] for values that the protocol cannot store. Protocol 2 reads the
/// sources and returns their errors.
pub(in super::super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    plan_split(checkpoint, options, MAX_ARRAY_BYTES)
}

/// Same as [`plan`], with another maximum length in bytes for arrays in one piece with protocols 2 and 3.
pub(super) fn plan_split(checkpoint: &Checkpoint, options: &PlanOptions, most: u64) -> Result<WritePlan> {
    if let Some(kind) = options.kind.as_deref().filter(|&kind| ![KIND, PICKLE].contains(&kind)) {
        return Err(Error::usage("unknown-kind", "the kind is not a pickled state")
            .expected(KIND)
            .found(kind));
    }
    let protocol = protocol(checkpoint, options)?;
    let modules = modules(checkpoint, options)?;
    let mut losses = losses(checkpoint);
    let structure = match checkpoint.metadata.get(STRUCTURE) {
        Some(structure) => super::extras::with_extras(checkpoint, structure, &mut losses),
        None => canonical(checkpoint),
    };
    losses.extend(super::misread::losses(checkpoint, &structure)?);
    let mut writer = Writer::new(checkpoint, protocol, modules, most, losses);
    let (graph, root) = writer.run(&structure)?;
    let (payloads, losses) = writer.finish();

    let mut lengths: Vec<Option<Vec<u64>>> = vec![None; payloads.len()];
    let mut text_len = |place: &Location| {
        let Location::Payload { key, .. } = *place else { return Err(lost()) };
        let at = usize::try_from(key).map_err(|_| lost())?;
        let (Some((entry, order)), Some(slot)) = (payloads.get(at), lengths.get_mut(at)) else {
            return Err(lost());
        };
        let measured = latin1_lengths(entry, *order)?;
        let sum = measured.iter().sum();
        *slot = Some(measured);
        Ok(sum)
    };
    let parts = write(&graph, root, protocol, &mut text_len)?;
    let mut file = FileBuilder::new("");
    for part in parts {
        let key = match part {
            Part::Literal(bytes) => {
                file.literal(bytes);
                continue;
            }
            Part::Payload { key, .. } | Part::Latin1 { key, .. } => key,
            Part::Copy(_) | Part::CopyLatin1 { .. } => return Err(lost()),
        };
        let at = usize::try_from(key).map_err(|_| lost())?;
        let Some((entry, order)) = payloads.get(at) else { return Err(lost()) };
        match lengths.get(at) {
            Some(Some(lengths)) => file.latin1(entry, *order, lengths)?,
            _ => file.tensor(entry, *order)?,
        }
    }
    Ok(WritePlan { format: "paddle", kind: KIND, files: vec![file.finish()], losses })
}

/// Returns the error for a pickle with unassigned bytes.
fn lost() -> Error {
    Error::usage("pickle-payload", "the pickle refers to bytes that are not in the checkpoint")
}

fn protocol(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<u8> {
    match (options.setting("protocol"), checkpoint.metadata.get(PROTOCOL)) {
        (Some("2"), _) | (None, Some(Value::U32(2))) => Ok(2),
        (Some("3"), _) | (None, Some(Value::U32(3))) => Ok(3),
        (Some("4"), _) | (None, _) => Ok(DEFAULT_PROTOCOL),
        (Some(other), _) => Err(bad_setting("protocol", "2, 3 or 4", other)),
    }
}

fn modules(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<NumpyModules> {
    match (options.setting("numpy"), checkpoint.metadata.get(NUMPY)) {
        (Some("2"), _) | (None, Some(Value::U32(2))) => Ok(NumpyModules::UnderscoreCore),
        (Some("1"), _) | (None, _) => Ok(NumpyModules::Core),
        (Some(other), _) => Err(bad_setting("numpy", "1 or 2", other)),
    }
}

fn bad_setting(name: &str, values: &str, found: &str) -> Error {
    Error::usage("bad-setting", format!("unknown value for the setting `{name}`"))
        .expected(values)
        .found(found)
}

/// Reports properties that a pickled state cannot store.
fn losses(checkpoint: &Checkpoint) -> Vec<Loss> {
    let mut losses = checkpoint.left_behind();
    for entry in &checkpoint.tensors {
        let name = entry.name();
        let lost = |(key, value): &(&String, &Value)| {
            !PRESERVED.contains(&key.as_str()) && default_flag(entry, key) != Some(value)
        };
        for (key, _) in entry.attributes.iter().filter(lost) {
            let detail = match key.as_str() {
                "lod" => "LoD dropped: a pickle stores the elements only".to_owned(),
                key => format!("attribute `{}` dropped: a pickle cannot store it", escape_text(key)),
            };
            losses.push(Loss::new("attribute-dropped", &name, detail));
        }
        match entry.dtype() {
            DType::F8E4M3 | DType::F8E5M2 => {
                losses.push(Loss::new(
                    "dtype-lost",
                    &name,
                    "stored as int8: a pickle has no fp8, and int8 is read back",
                ));
            }
            DType::U16 => {
                losses.push(Loss::new(
                    "dtype-lost",
                    &name,
                    "stored as uint16, which Paddle reads as bfloat16",
                ));
            }
            DType::U32 | DType::U64 => {
                losses.push(Loss::new(
                    "dtype-refused",
                    &name,
                    "Paddle does not support tensors of this dtype",
                ));
            }
            _ => {}
        }
    }
    losses.extend(renamed(checkpoint));
    if !is_state(checkpoint) {
        for (key, _) in checkpoint.metadata.iter() {
            if key != slots::LR_SCHEDULER && !key.starts_with(RESERVED) {
                let detail = "metadata dropped: a state dict would treat the key as a tensor";
                losses.push(Loss::new("metadata-dropped", escape_text(key), detail));
            }
        }
    }
    losses
}

/// Returns the default of an `.info` flag: parameters are trained, buffers are not.
fn default_flag(entry: &TensorEntry, key: &str) -> Option<&'static Value> {
    let is_trained = entry.role != Role::Buffer;
    match key {
        STOP_GRADIENT if is_trained => Some(&Value::Bool(false)),
        STOP_GRADIENT => Some(&Value::Bool(true)),
        TRAINABLE if is_trained => Some(&Value::Bool(true)),
        TRAINABLE => Some(&Value::Bool(false)),
        _ => None,
    }
}

/// Reports names that change: a key is text and is split at its dots.
fn renamed(checkpoint: &Checkpoint) -> Option<Loss> {
    let changes = |path: &TensorPath| TensorPath::from_dotted(&path.to_text()) != *path;
    let mut renamed = checkpoint.tensors.iter().filter(|t| changes(&t.path));
    let first = renamed.next()?;
    let read = TensorPath::from_dotted(&first.path.to_text()).to_json_text();
    let detail = format!("a key is split at its dots: {} is read back as {read}", first.path.to_json_text());
    Some(Loss::new("name-changed", counted(1 + renamed.count(), "tensor", "tensors"), detail))
}
