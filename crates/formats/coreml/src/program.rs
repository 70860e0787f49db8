//! ML programs: functions of operations with their constants.

use crate::dtype::{self, STRING, Stored};
use crate::graph::{self, Builder};
use crate::read::{Described, Index, Place, below, incomplete};
use crate::tree::{Message, Range};
use weighbridge_core::checkpoint::{Note, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::text::counted;
use weighbridge_core::topology::{Attribute, AttributeValue, Operator, Slot};

/// Name of the function that runs unless another one is chosen.
const MAIN: &str = "main";
/// Beginning of the operations whose results are computed when a program is loaded: weights in a compressed form.
const CONSTANT: &str = "constexpr_";
/// Values of these operations with the elements. Others are their scales, tables and shapes.
const ELEMENTS: [&str; 6] = ["val", "quantized_data", "indices", "nonzero_data", "source_val", "data"];

/// Lists the constants of a program, and adds its functions.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for constants that do not match their types; [`weighbridge_core::Kind::Limit`].
pub(crate) fn read<'a>(
    program: &Message<'a>,
    path: &TensorPath,
    index: &mut Index<'a>,
    builder: &mut Builder<'a>,
    block: usize,
) -> Result<()> {
    let root = index.file.root();
    let default =
        root.message("description").map_or("", |description| description.text("defaultFunctionName"));
    let default = if default.is_empty() { MAIN } else { default };
    let mut functions: Vec<(&str, Message<'a>)> = Vec::new();
    for entry in program.messages("functions") {
        index.file.budget.take_memory(64)?;
        functions.extend(entry.message("value").map(|function| (entry.text("key"), function)));
    }
    // The first block is the main one. The order of a map has no meaning.
    functions.sort_by_key(|(name, _)| (*name != default, *name));
    let mut walk = Walk { index, builder, sparse: 0 };
    let mut free = Some(block);
    for (place, (name, function)) in functions.iter().enumerate() {
        let own = if place == 0 { path.clone() } else { below(path, name) };
        walk.function(function, &own, &mut free)?;
    }
    if walk.sparse > 0 {
        let count = counted(walk.sparse, "sparse tensor is", "sparse tensors are");
        let text = format!("{count} listed as values, mask and shape");
        index.checkpoint.notes.push(Note::new("sparse-as-parts", text));
    }
    Ok(())
}

struct Walk<'w, 'a> {
    index: &'w mut Index<'a>,
    builder: &'w mut Builder<'a>,
    sparse: u64,
}

impl<'a> Walk<'_, 'a> {
    /// Reads a function: the block for its set of operations, and those for others.
    fn function(
        &mut self,
        function: &Message<'a>,
        path: &TensorPath,
        free: &mut Option<usize>,
    ) -> Result<()> {
        let opset = function.text("opset");
        let mut blocks: Vec<(&str, Message<'a>)> = Vec::new();
        for entry in function.messages("block_specializations") {
            self.index.file.budget.take_memory(64)?;
            blocks.extend(entry.message("value").map(|block| (entry.text("key"), block)));
        }
        blocks.sort_by_key(|(name, _)| (*name != opset, *name));
        for (place, (name, message)) in blocks.iter().enumerate() {
            let block = match free.take() {
                Some(block) => block,
                None => self.builder.block(None)?,
            };
            for input in function.messages("inputs") {
                self.builder.declare(block, graph::typed(&input)?)?;
                if block > 0 {
                    self.builder.argument(block, input.text("name"))?;
                }
            }
            let own = if place == 0 { path.clone() } else { below(path, name) };
            self.block(message, &own, block)?;
        }
        Ok(())
    }

    fn block(&mut self, message: &Message<'a>, path: &TensorPath, block: usize) -> Result<()> {
        for input in message.messages("inputs") {
            self.builder.argument(block, input.text("name"))?;
            self.builder.declare(block, graph::typed(&input)?)?;
        }
        for operation in message.messages("operations") {
            self.operation(&operation, path, block)?;
        }
        Ok(())
    }

    fn operation(&mut self, operation: &Message<'a>, path: &TensorPath, block: usize) -> Result<()> {
        let kind = operation.text("type");
        let output = operation.messages("outputs").next().map_or("", |output| output.text("name"));
        self.index.file.budget.take_work(64 + (output.len() + path.byte_len()) as u64)?;
        let own = below(path, if output.is_empty() { kind } else { output });
        let mut operator = Operator { kind: kind.to_owned(), ..Operator::default() };
        let mut values: Vec<(&'a str, Message<'a>)> = Vec::new();
        for entry in operation.messages("inputs") {
            let bindings = entry.message("value");
            let bindings = || bindings.into_iter().flat_map(|argument| argument.messages("arguments"));
            let names = bindings().map(|binding| binding.text("name")).filter(|name| !name.is_empty());
            let slot: Slot = self.builder.slot(entry.text("key"), names)?;
            // A value in place of a name.
            for value in bindings().filter_map(|binding| binding.message("value")) {
                self.index.file.budget.take_memory(64)?;
                values.push((entry.text("key"), value));
            }
            operator.inputs.push(slot);
        }
        for entry in operation.messages("attributes") {
            if let Some(value) = entry.message("value") {
                self.index.file.budget.take_memory(64)?;
                values.push((entry.text("key"), value));
            }
        }
        let names = operation.messages("outputs").map(|output| output.text("name"));
        operator.outputs.push(self.builder.slot("", names)?);
        let mut has_tensor = false;
        let scheme = scheme(kind, &values);
        for (key, value) in &values {
            let is_elements = ELEMENTS.contains(key) && (kind == "const" || kind.starts_with(CONSTANT));
            let path = if is_elements { own.clone() } else { below(&own, key) };
            if value.is_cut() {
                self.index.checkpoint.lose(&path, &incomplete(value.at()));
                continue;
            }
            let scheme = scheme.filter(|(own, _)| own.contains(key)).map(|(_, scheme)| scheme);
            match self.value(value, path, scheme)? {
                Some(value) => {
                    self.index.file.budget.take_memory(200 + key.len() as u64)?;
                    operator.attributes.push(Attribute {
                        name: (*key).to_owned(),
                        kind: String::new(),
                        value,
                    });
                }
                None => has_tensor = true,
            }
        }
        self.sparse += u64::from(kind.starts_with(CONSTANT) && kind.contains("sparse") && has_tensor);
        for output in operation.messages("outputs") {
            let mut variable = graph::typed(&output)?;
            variable.persistable = kind == "const" && has_tensor;
            self.builder.declare(block, variable)?;
        }
        for inner in operation.messages("blocks") {
            let number = self.builder.block(Some(block))?;
            operator.blocks.push(number);
            self.block(&inner, path, number)?;
        }
        self.builder.operator(block, operator)
    }

    /// Lists a value that is a tensor. Returns one that is text.
    fn value(
        &mut self,
        value: &Message<'a>,
        path: TensorPath,
        scheme: Option<Scheme>,
    ) -> Result<Option<AttributeValue>> {
        let immediate = value.message("immediateValue");
        let kind = value.message("type");
        let Some(tensor_type) = kind.and_then(|kind| kind.message("tensorType")) else {
            let is_text = kind
                .and_then(|kind| kind.message("listType")?.message("type")?.message("tensorType"))
                .is_some_and(|item| item.number("dataType") == STRING);
            if let Some(list) = immediate.and_then(|own| own.message("list")).filter(|_| is_text) {
                let items = list.messages("values").filter_map(|item| item.message("immediateValue"));
                let mut texts = Vec::new();
                for item in items.filter_map(|item| item.message("tensor")) {
                    texts.extend(self.texts(&item)?);
                }
                return Ok(Some(AttributeValue::List(texts)));
            }
            let word = kind.and_then(|kind| kind.fields().map(|(field, _)| field.name).last());
            let reason = format!("has the type {}, which is not read", word.unwrap_or("unknown"));
            self.index.skip(&path, &reason, std::iter::once(value.range()))?;
            return Ok(None);
        };
        let number = tensor_type.number("dataType");
        let tensor = immediate.and_then(|immediate| immediate.message("tensor"));
        if number == STRING {
            let mut texts = match &tensor {
                Some(tensor) => self.texts(tensor)?,
                None => Vec::new(),
            };
            return Ok(Some(match (texts.len(), tensor_type.messages("dimensions").next()) {
                (1, None) => texts.pop().unwrap_or(AttributeValue::None),
                _ => AttributeValue::List(texts),
            }));
        }
        let Some(stored) = dtype::of_number(number) else {
            let reason = format!("has the unknown dtype {number}");
            self.index.skip(&path, &reason, std::iter::once(value.range()))?;
            return Ok(None);
        };
        let mut dims = Vec::new();
        for dimension in tensor_type.messages("dimensions") {
            self.index.file.budget.take_memory(8)?;
            let size = dimension.message("constant").map(|constant| constant.number("size"));
            dims.push(size.ok_or_else(|| {
                Error::corrupt("no-shape", "a dimension of a constant has no size")
                    .at(dimension.at())
                    .on_tensor(&path)
            })?);
        }
        let place = match (value.message("blobFileValue"), tensor) {
            (Some(blob), _) => {
                let name = blob.text("fileName");
                self.index.file.budget.take_memory(name.len() as u64)?;
                Place::Blob(name.to_owned(), blob.number("offset"))
            }
            (None, Some(tensor)) => match elements(&tensor, stored) {
                Some(place) => place,
                None => {
                    let reason = "has its elements in a form that is not read";
                    self.index.skip(&path, reason, std::iter::once(value.range()))?;
                    return Ok(None);
                }
            },
            (None, None) => Place::Ranges(Vec::new()),
        };
        let described =
            Described { path, stored, dims: Some(dims), place, at: value.at(), role: None, scheme };
        self.index.add(described)?;
        Ok(None)
    }

    fn texts(&mut self, tensor: &Message<'a>) -> Result<Vec<AttributeValue>> {
        let mut texts = Vec::new();
        for text in tensor.messages("strings").flat_map(|strings| strings.texts("values")) {
            self.index.file.budget.take_memory(64 + text.len() as u64)?;
            texts.push(AttributeValue::Text(text.to_owned()));
        }
        Ok(texts)
    }
}

/// Returns the place of immediate elements; `None` for a form that does not match the dtype.
fn elements(tensor: &Message<'_>, stored: Stored) -> Option<Place> {
    let (form, inner) = tensor
        .fields()
        .filter_map(|(field, value)| match value {
            crate::tree::Plain::Message(inner) => Some((field.name, inner)),
            _ => None,
        })
        .last()?;
    if inner.has_loose_numbers("values") {
        return None;
    }
    let ranges: Vec<Range> = inner.ranges("values").filter(|range| range.len > 0).collect();
    let is_integer = matches!(
        stored,
        Stored::Plain(
            DType::I8
                | DType::I16
                | DType::I32
                | DType::I64
                | DType::U8
                | DType::U16
                | DType::U32
                | DType::U64
        )
    );
    match (form, stored) {
        ("floats", Stored::Plain(DType::F32)) | ("doubles", Stored::Plain(DType::F64)) => {
            Some(Place::Ranges(ranges))
        }
        // Bytes of a field that occurs twice replace the first ones.
        ("bytes", _) => Some(Place::Ranges(ranges.last().copied().into_iter().collect())),
        ("ints" | "longInts", _) if is_integer => Some(Place::Integers(ranges)),
        ("bools", Stored::Plain(DType::Bool)) => Some(Place::Integers(ranges)),
        _ => None,
    }
}

/// Scheme of a compressed constant, with the axis of its channels.
type Scheme = (&'static str, Option<i64>);

/// Returns the names of values with compressed elements, and their scheme.
fn scheme(kind: &str, values: &[(&str, Message<'_>)]) -> Option<(&'static [&'static str], Scheme)> {
    let find = |wanted: &str| values.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value);
    Some(match kind {
        "constexpr_affine_dequantize" => {
            let rank = |key| {
                let kind = find(key)?.message("type")?.message("tensorType")?;
                Some(kind.messages("dimensions").count())
            };
            // One scale for all, or one for each index along the axis.
            let is_scalar = rank("scale").unwrap_or(0) == 0 && rank("zero_point").unwrap_or(0) == 0;
            let axis = || {
                let tensor = find("axis")?.message("immediateValue")?.message("tensor")?;
                let numbers = tensor.message("ints")?.numbers("values").ok()?;
                Some(numbers.first()?.cast_signed())
            };
            let scheme = if is_scalar { ("per_tensor_affine", None) } else { ("per_channel_affine", axis()) };
            (&["quantized_data"], scheme)
        }
        "constexpr_blockwise_shift_scale" | "constexpr_sparse_blockwise_shift_scale" => {
            (&["data", "nonzero_data"], ("blockwise_affine", None))
        }
        "constexpr_lut_to_dense" | "constexpr_lut_to_sparse" => {
            (&["indices", "indices_nonzero_data"], ("lookup_table", None))
        }
        _ => return None,
    })
}
