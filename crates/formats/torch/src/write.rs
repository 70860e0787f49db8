//! Writer: from the index to a plan.

use super::composite::{Composite, Composites, IndexedQuantizer};
use super::{METADATA, STATE_DICT, VERSIONS, metadata, was_object};
use std::collections::HashMap;
use std::sync::Arc;
use weighbridge_core::checkpoint::{Attributes, Checkpoint, Loss, Metadata, TensorEntry, Value, escape_text};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::plan::WritePlan;
use weighbridge_core::text::first_and_more;
use weighbridge_format::PlanOptions;
use weighbridge_pickle::ObjectId;
use weighbridge_torch_archive::{Quantizer, SavedBuilder, Sparse, is_recent};

/// Maximum number of dropped values that are named; more are counted.
const MAX_NAMED: usize = 10;

/// Plans a flat state dict.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`] for tensors that torch cannot hold: `no-such-dtype`, `shape-overflow`;
/// [`weighbridge_core::Kind::Usage`] for any kind other than `state_dict`.
pub(super) fn plan(checkpoint: &Checkpoint, options: &PlanOptions) -> Result<WritePlan> {
    if let Some(kind) = options.kind.as_deref().filter(|&kind| kind != STATE_DICT) {
        return Err(Error::usage("unknown-kind", "torch files of this kind cannot be written")
            .expected(STATE_DICT)
            .found(kind));
    }
    let names = checkpoint.bridge_names(|name| name, &[]);
    let mut losses = checkpoint.left_behind();
    losses.extend(checkpoint.renamed_losses(&names));
    if was_object(checkpoint) {
        // `format` is the mark that safetensors files have.
        let others =
            |key: &&str| ![Metadata::MODULE_VERSIONS, Metadata::SALVAGED_KEY, "format"].contains(key);
        let keys = checkpoint.metadata.iter().map(|(key, _)| key).filter(others);
        let without = first_and_more(keys.map(|key| format!("`{}`", escape_text(key))), MAX_NAMED);
        let kept = match without.is_empty() {
            true => " is".to_owned(),
            false => format!(" and the metadata {without} are"),
        };
        let detail = format!(
            "torch.load will return the new file as a flat dict of tensors; the nesting of the original{kept} in the new file too, but only Weighbridge reads them"
        );
        losses.push(Loss::new("structure-dropped", &checkpoint.label, detail));
    }
    let mut builder = SavedBuilder::new();
    let mut first = First::new();
    let mut pairs = Vec::with_capacity(names.len());
    let composites = Composites::of(checkpoint, &names)?;
    losses.extend(composites.losses.iter().cloned());
    for (place, (entry, name)) in checkpoint.tensors.iter().zip(&names).enumerate() {
        if is_recent(entry.dtype()) {
            let detail = format!("torch before version 2.3 cannot load dtype {}", entry.dtype());
            losses.push(Loss::new("recent-dtype", entry.name(), detail));
        }
        if composites.parts.contains(&place) {
            continue;
        }
        let mut part = |place: &usize| {
            let entry = &checkpoint.tensors[*place];
            let id = builder.part(entry, shared(&first, entry))?;
            first.entry(entry.text()).or_insert((entry, id));
            Result::Ok(id)
        };
        let (name, id) = match composites.whole.get(&place) {
            None => {
                let id = match shared(&first, entry) {
                    Some(of) => builder.alias(entry, of)?,
                    None => builder.tensor(entry)?,
                };
                first.entry(entry.text()).or_insert((entry, id));
                (name, id)
            }
            Some(Composite::Sparse { name, sparse, indices }) => {
                let places = indices.iter().zip(&sparse.indices);
                let indices = places.map(|(place, (name, _))| Ok((*name, part(place)?)));
                let indices = indices.collect::<Result<Vec<_>>>()?;
                let values = part(&place)?;
                (name, builder.sparse(&Sparse { indices, values, ..sparse.clone() })?)
            }
            Some(Composite::Quantized { scheme, quantizer }) => {
                let quantizer = match quantizer {
                    IndexedQuantizer::Tensor { scale, zero_point } => {
                        Quantizer::Tensor { scale: *scale, zero_point: *zero_point }
                    }
                    IndexedQuantizer::Channel { scale, zero_point, axis } => {
                        let (scales, zero_points) = (part(scale)?, part(zero_point)?);
                        Quantizer::Channel { scales, zero_points, axis: *axis }
                    }
                };
                let of = shared(&first, entry);
                let id = builder.quantized(entry, of, scheme, &quantizer)?;
                first.entry(entry.text()).or_insert((entry, id));
                (name, id)
            }
        };
        pairs.push((builder.builder_mut().text(name)?, id));
    }
    let root = builder.builder_mut().ordered_dict(&pairs)?;
    let own = checkpoint.metadata.get(VERSIONS).filter(|own| matches!(own, Value::Map(_)));
    // Any other map is torch's own under this key, unless it comes from another format.
    let other = own.filter(|_| ["torch", "merged"].contains(&checkpoint.format)).cloned();
    // Also after another format: torch treats a module without a version as an old one.
    if let Some(versions) = checkpoint.metadata.joined_versions(&mut losses).or(other) {
        let versions = builder.value(&versions)?;
        let b = builder.builder_mut();
        let key = b.interned(VERSIONS)?;
        let state = b.dict(vec![(key, versions)])?;
        b.build(root, state)?;
    }
    let carried = metadata::encode(checkpoint, &names, &mut losses);
    if let Some(json) = options.own_entry(carried, &checkpoint.label, &mut losses) {
        builder.member(METADATA, json.into_bytes());
    }
    let file = builder.finish(root, "")?;
    Ok(WritePlan { format: "torch", kind: STATE_DICT, files: vec![file], losses })
}

/// Written tensors by name.
type First<'a> = HashMap<String, (&'a TensorEntry, ObjectId)>;

/// Returns the written tensor that `entry` shares its bytes with.
fn shared(first: &First<'_>, entry: &TensorEntry) -> Option<ObjectId> {
    let &(other, id) = first.get(entry.text_attribute(Attributes::ALIAS_OF)?)?;
    same_bytes(entry, other).then_some(id)
}

/// Returns true if both are the same byte range with the same interpretation.
fn same_bytes(a: &TensorEntry, b: &TensorEntry) -> bool {
    let (Some(p), Some(q)) = (a.single_extent(), b.single_extent()) else { return false };
    let alike = |e: &TensorEntry| (e.stored, e.cast, e.shape.clone());
    Arc::ptr_eq(&p.source, &q.source)
        && (p.offset, p.len, p.encoding) == (q.offset, q.len, q.encoding)
        && alike(a) == alike(b)
}
