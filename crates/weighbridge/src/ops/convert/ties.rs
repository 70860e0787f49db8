//! Tensors that share bytes in the source and are stored separately in the output.

use crate::checkpoint::{Attributes, Checkpoint, Loss, TensorEntry, Value, escape_text};
use crate::formats::{self};
use crate::plan::{Content, WritePlan};
use crate::text::counted;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Tensors of a checkpoint that share bytes, collected before planning for a format without shared storage.
pub(super) struct Ties {
    /// By first name: all names of the same elements.
    names: BTreeMap<String, Vec<String>>,
    /// By file and storage: its views, each with different elements.
    views: BTreeMap<(String, String), Vec<String>>,
}

impl Ties {
    /// Collects the tensors of `checkpoint` that share bytes. Removes attributes that will not hold for the output: views of one
    /// storage always, equal elements unless `supported`.
    pub(super) fn take(checkpoint: &mut Checkpoint, supported: bool) -> Self {
        let mut ties = Self { names: BTreeMap::new(), views: BTreeMap::new() };
        // In other formats the attributes belong to the user, who may choose any name.
        if formats::shares_storage(checkpoint.format) {
            for tensor in &mut checkpoint.tensors {
                let Some(Value::Text(storage)) = tensor.attributes.remove(Attributes::STORAGE) else {
                    continue;
                };
                let file = tensor.extents.first().map_or_else(String::new, |p| p.source.label().to_owned());
                ties.views.entry((file, storage)).or_default().push(tensor.name());
            }
        }
        for (place, of) in tied(checkpoint) {
            let tensor = &mut checkpoint.tensors[place];
            ties.names.entry(of).or_default().push(tensor.name());
            if !supported {
                tensor.attributes.remove(Attributes::ALIAS_OF);
            }
        }
        ties
    }

    /// Returns the losses for tensors that are written several times.
    pub(super) fn not_held(&self, plan: &WritePlan) -> Vec<Loss> {
        if self.names.is_empty() && self.views.is_empty() {
            return Vec::new();
        }
        let written = written(plan);
        let tied = self.names.iter().filter_map(|(first, others)| {
            let detail = "they share storage; the output stores";
            loss(&written, std::iter::once(first).chain(others), detail)
        });
        let views = self.views.values().filter_map(|views| {
            let detail = "they are views of one storage; the output stores";
            loss(&written, views.iter(), detail)
        });
        tied.chain(views).collect()
    }
}

/// Returns the indices of tensors that share the bytes of another one, with the displayed name of that one.
fn tied(checkpoint: &Checkpoint) -> Vec<(usize, String)> {
    let tensors = &checkpoint.tensors;
    let aliases: Vec<(usize, &TensorEntry, String)> = tensors
        .iter()
        .enumerate()
        .filter_map(|(place, tensor)| {
            Some((place, tensor, tensor.text_attribute(Attributes::ALIAS_OF)?.to_owned()))
        })
        .collect();
    let wanted: HashSet<&str> = aliases.iter().map(|(.., of)| of.as_str()).collect();
    let named: HashMap<String, &TensorEntry> = match wanted.len() {
        0 => HashMap::new(),
        _ => tensors
            .iter()
            .map(|tensor| (tensor.text(), tensor))
            .filter(|(name, _)| wanted.contains(&**name))
            .collect(),
    };
    let shares = |tensor, of: &str| named.get(of).is_some_and(|first| first.same_bytes(tensor));
    aliases
        .iter()
        .filter(|(_, tensor, of)| shares(tensor, of))
        .map(|(place, _, of)| (*place, escape_text(of)))
        .collect()
}

/// Returns the displayed names of the tensors whose elements the plan writes.
fn written(plan: &WritePlan) -> HashSet<String> {
    let mut written = HashSet::new();
    for segment in plan.files.iter().flat_map(|file| &file.segments) {
        match &segment.content {
            Content::Copy { tensor, .. } => written.insert(tensor.clone()),
            Content::Tensor { entry, .. } | Content::Latin1 { entry, .. } => written.insert(entry.name()),
            Content::Literal(_) | Content::Padding(_) | Content::Crc32(_) => continue,
        };
    }
    written
}

fn loss<'a>(
    written: &HashSet<String>,
    names: impl Iterator<Item = &'a String>,
    detail: &str,
) -> Option<Loss> {
    let apart: Vec<&String> = names.filter(|name| written.contains(*name)).collect();
    let subject = match apart.as_slice() {
        [] | [_] => return None,
        [first, second] => format!("{first} and {second}"),
        [first, others @ ..] => {
            format!("{first} and {}", counted(others.len(), "other tensor", "other tensors"))
        }
    };
    Some(Loss::new("tie-not-held", subject, format!("{detail} {} copies", apart.len())))
}
