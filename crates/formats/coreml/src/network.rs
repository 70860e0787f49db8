//! Neural networks: layers with their weights.

use crate::dtype::{self, Stored};
use crate::graph::{self, Builder};
use crate::read::{Described, Index, Place, below, incomplete};
use crate::tree::{Message, Plain};
use std::collections::HashMap;
use weighbridge_core::checkpoint::{Role, TensorPath};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::DType;
use weighbridge_core::topology::{Attribute, AttributeValue, Operator};

/// Kind of a layer whose type is not in the schema.
const UNKNOWN: &str = "unknown";

/// Lists the weights of a network, and adds its layers to a block.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for weights that do not match their layer; [`weighbridge_core::Kind::Limit`].
pub(crate) fn read<'a>(
    network: &Message<'a>,
    path: &TensorPath,
    index: &mut Index<'a>,
    builder: &mut Builder<'a>,
    block: usize,
) -> Result<()> {
    for (number, step) in network.messages("preprocessing").enumerate() {
        preprocessing(&step, number, path, index, builder, block)?;
    }
    for (number, layer) in network.messages("layers").enumerate() {
        let name = match layer.text("name") {
            "" => format!("layer_{number}"),
            name => name.to_owned(),
        };
        let own = below(path, &name);
        let mut operator = Operator {
            kind: UNKNOWN.to_owned(),
            inputs: vec![builder.slot("", layer.texts("input"))?],
            outputs: vec![builder.slot("", layer.texts("output"))?],
            ..Operator::default()
        };
        if !layer.text("name").is_empty() {
            index.file.budget.take_memory(layer.text("name").len() as u64)?;
            operator.attributes.push(attribute("name", AttributeValue::Text(name.clone())));
        }
        if layer.number("isUpdatable") != 0 {
            operator.attributes.push(attribute("isUpdatable", AttributeValue::Bool(true)));
        }
        let content = layer.fields().filter_map(|(field, value)| match value {
            Plain::Message(inner) if inner.name() != "Tensor" => Some((field.name, inner)),
            _ => None,
        });
        if let Some((kind, content)) = content.last() {
            operator.kind = kind.to_owned();
            graph::attributes(&content, "", &mut operator.attributes)?;
            let sizes = content.fields().filter_map(|(field, value)| match value {
                Plain::Number(number) => Some((field.name, number)),
                _ => None,
            });
            let layer = Layer { message: content, sizes: sizes.collect() };
            let mut walk = Walk { layer: &layer, index, builder, block, blocks: Vec::new() };
            walk.message(&content, &own, &[])?;
            operator.blocks = walk.blocks;
        }
        builder.operator(block, operator)?;
    }
    if let Some(update) = network.message("updateParams") {
        let mut operator = Operator { kind: "updateParams".to_owned(), ..Operator::default() };
        graph::attributes(&update, "", &mut operator.attributes)?;
        builder.operator(block, operator)?;
    }
    Ok(())
}

fn attribute(name: &str, value: AttributeValue) -> Attribute {
    Attribute { name: name.to_owned(), kind: String::new(), value }
}

fn preprocessing<'a>(
    step: &Message<'a>,
    number: usize,
    path: &TensorPath,
    index: &mut Index<'a>,
    builder: &mut Builder<'a>,
    block: usize,
) -> Result<()> {
    let feature = step.text("featureName");
    let mut operator = Operator { kind: "preprocessing".to_owned(), ..Operator::default() };
    if !feature.is_empty() {
        operator.inputs.push(builder.slot("", std::iter::once(feature))?);
    }
    graph::attributes(step, "", &mut operator.attributes)?;
    builder.operator(block, operator)?;
    if let Some(mean) = step.message("meanImage") {
        let name = if feature.is_empty() { number.to_string() } else { feature.to_owned() };
        let own = below(&below(&below(path, "preprocessing"), &name), "meanImage");
        index.add(Described {
            path: own,
            stored: Stored::Plain(DType::F32),
            dims: None,
            place: Place::Ranges(mean.ranges("meanImage").collect()),
            at: mean.at(),
            role: None,
            scheme: None,
        })?;
    }
    Ok(())
}

/// Layer with its sizes.
struct Layer<'a> {
    message: Message<'a>,
    sizes: HashMap<&'static str, u64>,
}

impl Layer<'_> {
    fn number(&self, name: &str) -> u64 {
        self.sizes.get(name).copied().unwrap_or(0)
    }

    fn numbers(&self, name: &str) -> Result<Vec<u64>> {
        self.message.numbers(name)
    }
}

/// Walk over the messages of a layer.
struct Walk<'w, 'a> {
    layer: &'w Layer<'a>,
    index: &'w mut Index<'a>,
    builder: &'w mut Builder<'a>,
    block: usize,
    /// Blocks of networks in the layer.
    blocks: Vec<usize>,
}

impl<'a> Walk<'_, 'a> {
    /// Lists the weights in a message. `chain` has the fields that lead to it from the layer.
    fn message(&mut self, message: &Message<'a>, path: &TensorPath, chain: &[&'static str]) -> Result<()> {
        let mut counts: Vec<(u32, usize)> = Vec::new();
        for (field, value) in message.fields() {
            let Plain::Message(inner) = value else { continue };
            let mut own = below(path, field.name);
            if field.is_list {
                let place = match counts.iter_mut().find(|(number, _)| *number == field.number) {
                    Some((_, count)) => {
                        *count += 1;
                        *count
                    }
                    None => {
                        counts.push((field.number, 0));
                        0
                    }
                };
                own = below(&own, &place.to_string());
            }
            self.index.file.budget.take_work(64 + own.byte_len() as u64)?;
            let chain: Vec<&'static str> = chain.iter().copied().chain([field.name]).collect();
            match inner.name() {
                "WeightParams" => self.weights(&inner, own, &chain)?,
                "NeuralNetwork" => {
                    let block = self.builder.block(Some(self.block))?;
                    self.blocks.push(block);
                    read(&inner, &own, self.index, self.builder, block)?;
                }
                _ => self.message(&inner, &own, &chain)?,
            }
        }
        Ok(())
    }

    fn weights(&mut self, weights: &Message<'a>, path: TensorPath, chain: &[&'static str]) -> Result<()> {
        let quantization = weights.message("quantization");
        let bits = quantization.map_or(0, |quantization| quantization.number("numberOfBits"));
        let forms = ["floatValue", "float16Value", "rawValue", "int8RawValue"].map(|form| {
            let ranges: Vec<_> = weights.ranges(form).filter(|range| range.len > 0).collect();
            (form, ranges)
        });
        if weights.has_loose_numbers("floatValue") {
            let reason = "has a field for each element, which is not read";
            return self.index.skip(&path, reason, forms.into_iter().flat_map(|(_, ranges)| ranges));
        }
        let mut stored = forms.into_iter().filter(|(_, ranges)| !ranges.is_empty());
        if weights.is_cut() {
            self.index.checkpoint.lose(&path, &incomplete(weights.at()));
            return Ok(());
        }
        let Some((form, mut ranges)) = stored.next() else { return Ok(()) };
        for (other, ranges) in stored {
            let path = below(&path, other);
            self.index.skip(&path, "is a second form of the same weights", ranges.into_iter())?;
        }
        // Bytes of a field that occurs twice replace the first ones. Lists of numbers are joined.
        if form != "floatValue" {
            ranges.drain(..ranges.len() - 1);
        }
        let kind = match (form, bits) {
            ("floatValue", _) => Stored::Plain(DType::F32),
            ("float16Value", _) => Stored::Plain(DType::F16),
            ("int8RawValue", _) => Stored::Plain(DType::I8),
            (_, 0) => Stored::Plain(DType::U8),
            (_, bits) => dtype::of_bits(bits).ok_or_else(|| {
                Error::corrupt("bad-number", "the number of bits of quantized weights is not from 1 to 8")
                    .at(weights.at())
                    .found(bits)
            })?,
        };
        let is_raw = form == "rawValue" && bits > 0;
        let linear = quantization.and_then(|own| own.message("linearQuantization"));
        let table = quantization.and_then(|own| own.message("lookupTableQuantization"));
        let parts = [(linear, "scale", "scale"), (linear, "bias", "bias"), (table, "floatValue", "table")];
        let scheme = match (is_raw || form == "int8RawValue", linear, table) {
            (true, Some(_), _) => Some(("linear", None)),
            (true, None, Some(_)) => Some(("lookup_table", None)),
            _ => None,
        };
        self.index.add(Described {
            path: path.clone(),
            stored: kind,
            // Bytes without a number of bits are those of a custom layer.
            dims: dims(self.layer, chain)?.filter(|_| form != "rawValue" || bits > 0),
            place: Place::Ranges(ranges),
            at: weights.at(),
            role: None,
            scheme,
        })?;
        for (message, field, name) in parts {
            let Some(message) = message else { continue };
            let ranges: Vec<_> = message.ranges(field).filter(|range| range.len > 0).collect();
            if message.has_loose_numbers(field) {
                let reason = "has a field for each element, which is not read";
                self.index.skip(&below(&path, name), reason, ranges.into_iter())?;
            } else if !ranges.is_empty() {
                self.index.add(Described {
                    path: below(&path, name),
                    stored: Stored::Plain(DType::F32),
                    dims: None,
                    place: Place::Ranges(ranges),
                    at: message.at(),
                    role: Some(Role::Parameter),
                    scheme: None,
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the shape of weights, as the layer states it; `None` for a layer whose weights have one dimension.
fn dims(layer: &Layer<'_>, chain: &[&'static str]) -> Result<Option<Vec<u64>>> {
    let Some(&field) = chain.last() else { return Ok(None) };
    let outputs = layer.number("outputChannels");
    let groups = layer.number("nGroups").max(1);
    let is_transposed = layer.number("isDeconvolution") != 0;
    Ok(match (layer.message.name(), field) {
        ("ConvolutionLayerParams", "weights") => {
            let kernel = layer.number("kernelChannels");
            let mut dims = if is_transposed { vec![kernel, outputs / groups] } else { vec![outputs, kernel] };
            let sizes = layer.numbers("kernelSize")?;
            dims.extend(if sizes.is_empty() { vec![3, 3] } else { sizes });
            Some(dims)
        }
        ("Convolution3DLayerParams", "weights") => {
            let inputs = layer.number("inputChannels");
            let mut dims =
                if is_transposed { vec![inputs, outputs / groups] } else { vec![outputs, inputs / groups] };
            dims.extend(["kernelDepth", "kernelHeight", "kernelWidth"].map(|size| layer.number(size)));
            Some(dims)
        }
        ("InnerProductLayerParams", "weights") => Some(vec![outputs, layer.number("inputChannels")]),
        ("EmbeddingLayerParams", "weights") => Some(vec![outputs, layer.number("inputDim")]),
        ("EmbeddingNDLayerParams", "weights") => {
            Some(vec![layer.number("embeddingSize"), layer.number("vocabSize")])
        }
        // Stored with the columns as rows.
        ("BatchedMatMulLayerParams", "weights") => Some(vec![
            layer.number("weightMatrixSecondDimension"),
            layer.number("weightMatrixFirstDimension"),
        ]),
        ("ScaleLayerParams", "scale") => Some(layer.numbers("shapeScale")?),
        ("ScaleLayerParams", "bias") => Some(layer.numbers("shapeBias")?),
        ("BiasLayerParams", "bias") => Some(layer.numbers("shape")?),
        ("LoadConstantLayerParams" | "LoadConstantNDLayerParams", "data") => Some(layer.numbers("shape")?),
        ("LayerNormalizationLayerParams", "gamma" | "beta") => Some(layer.numbers("normalizedShape")?),
        (_, field) if field.ends_with("RecursionMatrix") || field == "recursionMatrix" => {
            let size = layer.number("outputVectorSize");
            Some(vec![size, size])
        }
        (_, field) if field.ends_with("WeightMatrix") || field == "weightMatrix" => {
            Some(vec![layer.number("outputVectorSize"), layer.number("inputVectorSize")])
        }
        _ => None,
    })
}
