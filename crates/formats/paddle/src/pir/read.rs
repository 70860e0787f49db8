//! Conversion of JSON to a program model.

use super::json::{Document, Item, Kind};
use super::model::{Attr, Block, Model, Named, Op, Value};
use super::values::{attribute, type_of};
use super::words::{DATA, FEED, FETCH, PARAMETER, SET_PARAMETER, SHADOW_OUTPUT, SHORT_PARAMETER, full};
use std::collections::HashSet;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::topology::{Attribute, AttributeValue};

/// Names of the flags in the short form of a parameter, in their order.
const FLAGS: [&str; 3] = ["is_distributed", "is_parameter", "need_clip"];

/// Reads a program.
///
/// # Errors
/// See [`super::PirProgram::parse`].
pub(super) fn read(bytes: &[u8], limits: &Limits) -> Result<Model> {
    let document = Document::parse(bytes)?;
    let root = document.root();
    let [base, program] = root.fields("the file", ["base_code", "program"])?;
    let base = base.ok_or_else(|| not_pir(root))?;
    let [magic, version, trainable] = base.fields("base_code", ["magic", "version", "trainable"])?;
    let magic = magic.ok_or_else(|| not_pir(base))?;
    if magic.text("the magic word")? != "pir" {
        return Err(not_pir(magic).found(magic.shown()));
    }
    let version = version.ok_or_else(|| base.missing("base_code", "version"))?;
    let version = version.integer().ok_or_else(|| version.wrong("the version", "an integer"))?;
    let trainable = match trainable {
        Some(flag) => flag.truth().ok_or_else(|| flag.wrong("trainable", "true or false"))?,
        None => false,
    };
    let program = program.ok_or_else(|| root.missing("the file", "program"))?;
    let [regions] = program.fields("the program", ["regions"])?;
    let regions = regions.ok_or_else(|| program.missing("the program", "regions"))?;
    let mut all = list(Some(regions), "the regions of the program")?;
    let (Some(region), None) = (all.next(), all.next()) else {
        return Err(regions.wrong("the list of regions", "exactly one region"));
    };
    let mut reader = Reader { limits, blocks: Vec::new(), ids: HashSet::new(), names: 0 };
    reader.region(region, None)?;
    if reader.blocks.is_empty() {
        return Err(region.wrong("the region of the program", "at least one block"));
    }
    Ok(Model { version, trainable, blocks: reader.blocks })
}

fn not_pir(item: Item<'_>) -> Error {
    Error::unsupported("not-pir", "the JSON file is not a Paddle 3 program")
        .at(item.offset())
        .expected("base_code with the magic word \"pir\"")
}

/// Returns the elements of an array; empty if it is absent or null.
fn list<'d>(item: Option<Item<'d>>, what: &str) -> Result<super::json::Children<'d>> {
    match item {
        Some(item) if !matches!(item.kind(), Kind::Array | Kind::Null) => Err(item.wrong(what, "an array")),
        Some(item) => Ok(item.elements()),
        None => Ok(super::json::Children::none()),
    }
}

struct Reader<'l> {
    limits: &'l Limits,
    blocks: Vec<Block>,
    /// Ids in use: ids are unique within the file.
    ids: HashSet<i64>,
    /// Number of named tensors.
    names: u64,
}

impl Reader<'_> {
    /// Reads the blocks of a region; returns their indices. Regions nest no deeper than JSON does.
    fn region(&mut self, region: Item<'_>, parent: Option<usize>) -> Result<Vec<usize>> {
        let [blocks] = region.fields("a region", ["blocks"])?;
        let mut places = Vec::new();
        for block in list(blocks, "the blocks of a region")? {
            let place = self.blocks.len();
            places.push(place);
            self.blocks.push(Block { parent, ..Block::default() });
            self.block(block, place)?;
        }
        Ok(places)
    }

    fn block(&mut self, block: Item<'_>, place: usize) -> Result<()> {
        let [arguments, named, ops] = block.fields("a block", ["args", "kwargs", "ops"])?;
        for argument in list(arguments, "arguments of a block")?.chain(list(named, "arguments of a block")?) {
            let value = self.value(argument, "an argument of a block")?;
            self.blocks[place].arguments.push(value);
        }
        let ops = ops.ok_or_else(|| block.missing("a block", "ops"))?;
        self.blocks[place].list = ops.span();
        for op in list(Some(ops), "the operators of a block")? {
            let op = self.op(op, place)?;
            self.blocks[place].operators.push(op);
        }
        Ok(())
    }

    /// Reads an id and a type. A duplicate id would make the file ambiguous.
    fn value(&mut self, item: Item<'_>, what: &str) -> Result<Value> {
        let [short, long, kind] = item.fields(what, ["%", "#", "TT"])?;
        let id = id_of(item, short.or(long), what)?;
        if id != 0 && !self.ids.insert(id) {
            return Err(Error::corrupt("duplicate-value", "duplicate value id").at(item.offset()).found(id));
        }
        let kind = kind.ok_or_else(|| item.missing(what, "TT"))?;
        let text = kind.span();
        Ok(Value { id, kind: type_of(kind, self.limits)?, text, persistable: None, stop_gradient: false })
    }

    fn op(&mut self, item: Item<'_>, block: usize) -> Result<Op> {
        const WHAT: &str = "an operator";
        let keys = ["#", "A", "I", "O", "OA", "DA", "QA", "regions"];
        let [name, attributes, operands, results, flags, spread, quantised, regions] =
            item.fields(WHAT, keys)?;
        let name = name.ok_or_else(|| item.missing(WHAT, "#"))?.text("the name of an operator")?;
        let mut op = Op {
            name: full(&name).into_owned(),
            attributes: Vec::new(),
            operands: Vec::new(),
            results: Vec::new(),
            blocks: Vec::new(),
            named: None,
            lists: Vec::new(),
            span: item.span(),
        };
        for operand in list(operands, "the operands of an operator")? {
            let [short, long] = operand.fields("an operand", ["%", "#"])?;
            op.operands.push(id_of(operand, short.or(long), "an operand")?);
        }
        if name == SHORT_PARAMETER {
            let result = results.ok_or_else(|| item.missing("a parameter", "O"))?;
            op.results.push(self.value(result, "the result of a parameter")?);
            let attributes = attributes.ok_or_else(|| item.missing("a parameter", "A"))?;
            parameter(&mut op, attributes, flags)?;
        } else {
            for result in list(results, "the results of an operator")? {
                op.results.push(self.value(result, "a result")?);
            }
            attribute_list(&mut op, attributes)?;
            attribute_list(&mut op, flags)?;
            named(&mut op, attributes)?;
        }
        attribute_list(&mut op, spread)?;
        attribute_list(&mut op, quantised)?;
        result_flags(&mut op);
        self.check_name(&op)?;
        for region in list(regions, "the regions of an operator")? {
            op.blocks.extend(self.region(region, Some(block))?);
        }
        Ok(op)
    }

    fn check_name(&mut self, op: &Op) -> Result<()> {
        let Some(named) = &op.named else { return Ok(()) };
        let at = |e: Error| e.at(named.span.start as u64);
        Limits::check("bytes in a name", "name_bytes", named.name.len() as u64, self.limits.name_bytes)
            .map_err(at)?;
        self.names += 1;
        Limits::check("tensors", "tensors", self.names, self.limits.tensors).map_err(at)
    }
}

fn id_of(item: Item<'_>, id: Option<Item<'_>>, what: &str) -> Result<i64> {
    let id = id.ok_or_else(|| item.missing(what, "%"))?;
    id.integer().ok_or_else(|| id.wrong("the id of a value", "a 64-bit integer"))
}

/// Reads a list of `{"N": name, "AT": value}`.
fn attribute_list(op: &mut Op, item: Option<Item<'_>>) -> Result<()> {
    let Some(item) = item else { return Ok(()) };
    let list_number = op.lists.len();
    op.lists.push(item.span());
    for element in list(Some(item), "the attributes of an operator")? {
        let [name, value] = element.fields("an attribute", ["N", "AT"])?;
        let name =
            name.ok_or_else(|| element.missing("an attribute", "N"))?.text("the name of an attribute")?;
        // An attribute without a value counts as removed.
        let (kind, value) = value.map_or(Ok((String::new(), AttributeValue::None)), attribute)?;
        let attribute = Attribute { name: name.into_owned(), kind, value };
        op.attributes.push(Attr { attribute, list: list_number, span: element.span() });
    }
    Ok(())
}

/// Reads the short form of a parameter: `A` is `[is_distributed, is_parameter, need_clip, name]`,
/// `OA` is `[persistable, stop_gradient, trainable]` or absent.
fn parameter(op: &mut Op, attributes: Item<'_>, flags: Option<Item<'_>>) -> Result<()> {
    let items: Vec<_> =
        list(Some(attributes), "the attributes of a parameter")?.take(FLAGS.len() + 2).collect();
    let [first @ .., name] = items.as_slice() else {
        return Err(attributes.wrong("a parameter", "four attributes"));
    };
    if first.len() != FLAGS.len() {
        return Err(attributes.wrong("a parameter", "four attributes"));
    }
    let number = op.lists.len();
    op.lists.push(attributes.span());
    let flag = |op: &mut Op, name: &str, item: &Item<'_>, list: usize| {
        let value = item.truth().ok_or_else(|| item.wrong("a flag of a parameter", "0 or 1"))?;
        let attribute =
            Attribute { name: name.into(), kind: "a_bool".into(), value: AttributeValue::Bool(value) };
        op.attributes.push(Attr { attribute, list, span: item.span() });
        Ok::<_, Error>(value)
    };
    for (flag_name, item) in FLAGS.iter().zip(first) {
        flag(op, flag_name, item, number)?;
    }
    let text = name.text("the name of a parameter")?.into_owned();
    let value = AttributeValue::Text(text.clone());
    let attribute = Attribute { name: "parameter_name".into(), kind: "a_str".into(), value };
    op.attributes.push(Attr { attribute, list: number, span: name.span() });
    op.named = Some(Named { name: text, span: name.span(), declares: true });
    let Some(flags) = flags.filter(|f| f.kind() != Kind::Null) else { return Ok(()) };
    let mut values = list(Some(flags), "the flags of a parameter")?;
    let (Some(persistable), Some(stop_gradient), Some(trainable), None) =
        (values.next(), values.next(), values.next(), values.next())
    else {
        return Err(flags.wrong("the flags of a parameter", "three flags"));
    };
    op.lists.push(flags.span());
    let persistable = flag(op, "persistable", &persistable, number + 1)?;
    let stop_gradient = flag(op, "stop_gradient", &stop_gradient, number + 1)?;
    flag(op, "trainable", &trainable, number + 1)?;
    if let Some(result) = op.results.first_mut() {
        result.persistable = Some(persistable);
        result.stop_gradient = stop_gradient;
    }
    Ok(())
}

/// Finds the tensor name in an operator of the general form.
fn named(op: &mut Op, attributes: Option<Item<'_>>) -> Result<()> {
    let (key, declares) = match op.name.as_str() {
        PARAMETER => ("parameter_name", true),
        DATA | FEED | FETCH => ("name", true),
        SET_PARAMETER => ("parameter_name", false),
        SHADOW_OUTPUT => ("output_name", false),
        _ => return Ok(()),
    };
    for element in list(attributes, "the attributes of an operator")? {
        let [Some(name), Some(value)] = element.fields("an attribute", ["N", "AT"])? else { continue };
        if name.text("the name of an attribute")? != key {
            continue;
        }
        let [data] = value.fields("an attribute", ["D"])?;
        let data = data.ok_or_else(|| value.missing("an attribute", "D"))?;
        let name = data.text("the name of a tensor")?.into_owned();
        op.named = Some(Named { name, span: data.span(), declares });
    }
    Ok(())
}

/// Assigns lists of flags, one flag for each result, to the results.
fn result_flags(op: &mut Op) {
    let Op { attributes, results, .. } = op;
    let find =
        |name: &str| match attributes.iter().find(|a| a.attribute.name == name).map(|a| &a.attribute.value) {
            Some(AttributeValue::List(list)) => list.as_slice(),
            _ => &[],
        };
    let (persistable, stop_gradient) = (find("persistable"), find("stop_gradient"));
    let flag = |list: &[AttributeValue], position: usize| match list.get(position) {
        Some(AttributeValue::Bool(flag)) => Some(*flag),
        _ => None,
    };
    for (position, result) in results.iter_mut().enumerate() {
        result.persistable = flag(persistable, position).or(result.persistable);
        result.stop_gradient = flag(stop_gradient, position).unwrap_or(result.stop_gradient);
    }
}
