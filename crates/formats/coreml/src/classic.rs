//! Models that are not networks or programs: lists of numbers, and pipelines of other models.

use crate::describe;
use crate::dtype::Stored;
use crate::graph::{self, Builder};
use crate::read::{self, Described, Index, Place, below, incomplete, model_type};
use crate::schema::Kind;
use crate::tree::{Message, Plain, Range};
use std::collections::HashMap;
use weighbridge_core::checkpoint::TensorPath;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::Operator;

/// Lists the numbers of a model, and adds it as an operator to a block.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed lists; [`weighbridge_core::Kind::Limit`].
pub(crate) fn read<'a>(
    kind: &str,
    model: &Message<'a>,
    content: &Message<'a>,
    path: &TensorPath,
    index: &mut Index<'a>,
    builder: &mut Builder<'a>,
    block: usize,
) -> Result<()> {
    if let Some(pipeline) = pipeline(content) {
        return steps(&pipeline, path, index, builder, block);
    }
    let mut operator = operator(kind, model, builder)?;
    graph::attributes(content, "", &mut operator.attributes)?;
    builder.operator(block, operator)?;
    numbers(content, path, index)
}

fn pipeline<'a>(content: &Message<'a>) -> Option<Message<'a>> {
    if content.name() == "Pipeline" { Some(*content) } else { content.message("pipeline") }
}

fn operator<'a>(kind: &str, model: &Message<'a>, builder: &Builder<'a>) -> Result<Operator> {
    let [inputs, outputs] =
        ["input", "output"].map(|list| describe::ports(model, list).map(|feature| feature.text("name")));
    Ok(Operator {
        kind: kind.to_owned(),
        inputs: vec![builder.slot("", inputs)?],
        outputs: vec![builder.slot("", outputs)?],
        ..Operator::default()
    })
}

/// Reads the models of a pipeline, each with a block of its own.
fn steps<'a>(
    pipeline: &Message<'a>,
    path: &TensorPath,
    index: &mut Index<'a>,
    builder: &mut Builder<'a>,
    block: usize,
) -> Result<()> {
    let mut names = pipeline.texts("names");
    for (number, model) in pipeline.messages("models").enumerate() {
        let name = match names.next().filter(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            // The names follow the models.
            None if pipeline.is_cut() => {
                let path = below(path, &format!("model_{number}"));
                index.checkpoint.lose(&path, &incomplete(model.at()));
                continue;
            }
            None => format!("model_{number}"),
        };
        index.file.budget.take_work(64 + (name.len() + path.byte_len()) as u64)?;
        let kind = model_type(&model).map_or("unknown", |(kind, _)| kind);
        let mut operator = operator(kind, &model, builder)?;
        let inner = builder.block(Some(block))?;
        operator.blocks.push(inner);
        builder.operator(block, operator)?;
        builder.ports(inner, &model)?;
        read::model(&model, &below(path, &name), index, builder, Some(inner))?;
    }
    Ok(())
}

/// Lists the floats of a message: each list as a tensor, and lists of equal lengths as the rows of one.
fn numbers(message: &Message<'_>, path: &TensorPath, index: &mut Index<'_>) -> Result<()> {
    let mut lists: HashMap<u32, Vec<Message<'_>>> = HashMap::new();
    let mut order: Vec<(u32, &'static str)> = Vec::new();
    let mut opaque: HashMap<u32, u64> = HashMap::new();
    for (field, value) in message.fields() {
        index.file.budget.take_memory(40)?;
        index.file.budget.take_work(64 + path.byte_len() as u64)?;
        let own = below(path, field.name);
        match (value, field.kind) {
            (Plain::Message(inner), _) if field.is_list => {
                lists.entry(field.number).or_insert_with(|| {
                    order.push((field.number, field.name));
                    Vec::new()
                });
                if let Some(all) = lists.get_mut(&field.number) {
                    all.push(inner);
                }
            }
            (Plain::Message(inner), _) => numbers(&inner, &own, index)?,
            (Plain::Range(range), Kind::Float | Kind::Double) => {
                let dtype = if field.kind == Kind::Float { DType::F32 } else { DType::F64 };
                index.add(list(own, dtype, None, vec![range], message.at()))?;
            }
            (Plain::Range(_), Kind::Message(_)) => *opaque.entry(field.number).or_default() += 1,
            (Plain::Range(range), Kind::Bytes) => {
                index.skip(
                    &own,
                    "is data of a form of its own, which is not read",
                    std::iter::once(range),
                )?;
            }
            (Plain::Number(_), Kind::Float | Kind::Double) if field.is_list => {
                index.skip(&own, "has a field for each element, which is not read", std::iter::empty())?;
            }
            _ => {}
        }
    }
    for (number, name) in order {
        let all = lists.remove(&number).unwrap_or_default();
        rows(&all, message.is_cut(), &below(path, name), index)?;
    }
    for field in message.file.schema.fields(message.name()) {
        if let Some(count) = opaque.get(&field.number) {
            let reason = format!("has {count} nodes or entries, which are not read");
            index.skip(&below(path, field.name), &reason, message.ranges(field.name))?;
        }
    }
    Ok(())
}

/// Lists messages of a list. Those of an incomplete list are lost.
fn rows(all: &[Message<'_>], is_cut: bool, path: &TensorPath, index: &mut Index<'_>) -> Result<()> {
    if is_cut {
        let at = all.first().map_or(0, Message::at);
        index.checkpoint.lose(path, &incomplete(at));
        return Ok(());
    }
    let only: Option<Vec<(DType, Range)>> = all.iter().map(only_list).collect();
    let only = only.filter(|only| {
        let first = only.first().map(|(dtype, range)| (*dtype, range.len));
        only.iter().all(|(dtype, range)| Some((*dtype, range.len)) == first)
    });
    if let Some(only) = only
        && let (Some(&(dtype, first)), Some(message)) = (only.first(), all.first())
    {
        index.file.budget.take_memory(128 * only.len() as u64)?;
        let row = first.len / dtype.size().unwrap_or(1) as u64;
        let ranges = only.iter().map(|(_, range)| *range).collect();
        return index.add(list(
            path.clone(),
            dtype,
            Some(vec![only.len() as u64, row]),
            ranges,
            message.at(),
        ));
    }
    for (place, message) in all.iter().enumerate() {
        index.file.budget.take_work(64 + path.byte_len() as u64)?;
        numbers(message, &below(path, &place.to_string()), index)?;
    }
    Ok(())
}

/// Returns the only field of a message, if it is a list of floats.
fn only_list(message: &Message<'_>) -> Option<(DType, Range)> {
    let mut fields = message.fields();
    let (field, value) = fields.next()?;
    let dtype = match field.kind {
        Kind::Float => DType::F32,
        Kind::Double => DType::F64,
        _ => return None,
    };
    match value {
        Plain::Range(range) if fields.next().is_none() => Some((dtype, range)),
        _ => None,
    }
}

fn list(path: TensorPath, dtype: DType, dims: Option<Vec<u64>>, ranges: Vec<Range>, at: u64) -> Described {
    let (stored, place) = (Stored::Plain(dtype), Place::Ranges(ranges));
    Described { path, stored, dims, place, at, role: None, scheme: None }
}
