//! Layers of a network: their sizes, their parameters in the order of the weights, and the program.

use crate::cfg::Section;
use std::collections::BTreeSet;
use std::sync::Arc;
use weighbridge_core::budget::Budget;
use weighbridge_core::checkpoint::Role;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::topology::{
    Attribute, AttributeValue, Block, Endpoint, Operator, Slot, Topology, Variable, VariableKind,
};

/// Form of a program that is a network of Darknet.
pub(crate) const FORM: &str = "darknet";
/// Name of the input.
const INPUT: &str = "data";
/// Memory of a layer.
const ENTRY: u64 = 1000;

/// Parameter of a layer.
#[derive(Debug)]
pub(crate) struct Parameter {
    /// Name of the layer.
    pub(crate) layer: String,
    /// Name in the layer.
    pub(crate) name: &'static str,
    /// Sizes of the dimensions.
    pub(crate) dims: Vec<u64>,
    /// Role.
    pub(crate) role: Role,
}

/// Network with its parameters in the order of the file.
#[derive(Debug)]
pub(crate) struct Network {
    /// Parameters.
    pub(crate) parameters: Vec<Parameter>,
    /// Program.
    pub(crate) topology: Topology,
}

/// Sizes of the result of a layer.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    w: u64,
    h: u64,
    c: u64,
}

impl Size {
    /// Returns the number of elements. Each size has 32 bits at most.
    fn count(self) -> u64 {
        self.w.saturating_mul(self.h).saturating_mul(self.c)
    }
}

struct Builder<'a> {
    budget: &'a Budget,
    parameters: Vec<Parameter>,
    sizes: Vec<Size>,
    names: Vec<String>,
    block: Block,
}

/// Reads a network.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for malformed options; [`weighbridge_core::Kind::Unsupported`] for layers whose parameters are
/// not read.
pub(crate) fn read(sections: &[Section], bytes: Vec<u8>, budget: &Budget) -> Result<Network> {
    let Some((net, layers)) = sections.split_first().filter(|(net, _)| is_net(&net.kind)) else {
        return Err(Error::corrupt("bad-header", "the first section is not that of the network")
            .at(sections.first().map_or(0, |section| section.at))
            .expected("[net] or [network]"));
    };
    let mut size = Size { w: net.size("width", 0)?, h: net.size("height", 0)?, c: net.size("channels", 0)? };
    let shape = match size.count() {
        0 => {
            let inputs = net.size("inputs", 0)?;
            size = Size { w: 1, h: 1, c: inputs };
            vec![-1, inputs.cast_signed()]
        }
        _ => vec![-1, size.c.cast_signed(), size.h.cast_signed(), size.w.cast_signed()],
    };
    let mut builder = Builder {
        budget,
        parameters: Vec::new(),
        sizes: Vec::new(),
        names: Vec::new(),
        block: Block::default(),
    };
    builder.block.variables.push(variable(INPUT.to_owned(), shape.clone()));
    let mut unread = BTreeSet::new();
    for (number, section) in layers.iter().enumerate() {
        budget.take_memory(ENTRY)?;
        size = builder.layer(number, section, size, &mut unread)?;
        builder.sizes.push(size);
        unread.insert(number);
    }
    let fetches = unread.iter().filter_map(|&number| builder.names.get(number));
    let fetches = fetches.map(|name| Endpoint { name: name.clone(), dtype: None, shape: None }).collect();
    let feed = Endpoint { name: INPUT.to_owned(), dtype: None, shape: Some(shape) };
    let topology = Topology {
        form: FORM,
        writer: None,
        bytes: Arc::from(bytes),
        blocks: vec![builder.block],
        feeds: vec![feed],
        fetches,
        operator_versions: Vec::new(),
    };
    Ok(Network { parameters: builder.parameters, topology })
}

/// Returns true for the section of the whole network.
pub(crate) fn is_net(kind: &str) -> bool {
    matches!(kind, "net" | "network")
}

fn variable(name: String, shape: Vec<i64>) -> Variable {
    Variable {
        name,
        kind: VariableKind::Tensor,
        dtype: None,
        dtype_name: None,
        shape: Some(shape),
        lod_level: 0,
        persistable: false,
        parameter: false,
        stop_gradient: false,
    }
}

/// Returns the usual word of a type of layers that has parameters.
fn word(kind: &str) -> &str {
    match kind {
        "convolutional" => "conv",
        "conn" => "connected",
        other => other,
    }
}

impl Builder<'_> {
    fn layer(
        &mut self,
        number: usize,
        section: &Section,
        size: Size,
        unread: &mut BTreeSet<usize>,
    ) -> Result<Size> {
        let kind = word(&section.kind);
        let name = format!("{kind}_{number}");
        let mut sources: Vec<usize> = number.checked_sub(1).into_iter().collect();
        match kind {
            "route" => sources = section.layers("layers", number)?,
            "shortcut" | "scale_channels" | "sam" => sources.extend(section.layers("from", number)?),
            "implicit" => sources.clear(),
            _ => {}
        }
        for source in &sources {
            unread.remove(source);
        }
        let mut inputs: Vec<String> =
            sources.iter().filter_map(|&source| self.names.get(source)).cloned().collect();
        if number == 0 {
            inputs.push(INPUT.to_owned());
        }
        let first_parameter = self.parameters.len();
        let out = self.size(kind, &name, number, section, size, &sources)?;
        if section.int("dontload", 0)? != 0 {
            self.parameters.truncate(first_parameter);
        }
        let slot = |arguments| vec![Slot { name: String::new(), arguments }];
        let attributes = section.options.iter().map(|(key, value)| Attribute {
            name: key.clone(),
            kind: String::new(),
            value: match (value.parse::<i64>(), value.parse::<f32>()) {
                (Ok(value), _) => AttributeValue::Int(value),
                (_, Ok(value)) => AttributeValue::Float(value),
                _ => AttributeValue::Text(value.clone()),
            },
        });
        self.block.operators.push(Operator {
            kind: section.kind.clone(),
            inputs: slot(inputs),
            outputs: slot(vec![name.clone()]),
            attributes: attributes.collect(),
            blocks: Vec::new(),
        });
        self.names.push(name);
        Ok(out)
    }

    /// Adds the parameters of a layer, and returns the sizes of its result.
    fn size(
        &mut self,
        kind: &str,
        name: &str,
        number: usize,
        section: &Section,
        size: Size,
        sources: &[usize],
    ) -> Result<Size> {
        let other = |place: usize| sources.get(place).and_then(|&source| self.sizes.get(source)).copied();
        Ok(match kind {
            "conv" => self.convolution(name, section, size)?,
            "connected" => {
                let outputs = section.size("output", 1)?;
                self.add(name, "bias", vec![outputs], Role::Parameter)?;
                self.add(name, "weight", vec![outputs, size.count()], Role::Parameter)?;
                if section.int("batch_normalize", 0)? != 0 {
                    self.normalization(name, section, outputs)?;
                }
                Size { w: 1, h: 1, c: outputs }
            }
            "batchnorm" => {
                self.add(name, "bias", vec![size.c], Role::Parameter)?;
                self.normalization(name, section, size.c)?;
                size
            }
            "local" => {
                let (filters, window) = (section.size("filters", 1)?, section.size("size", 1)?);
                let (stride, pad) = (section.size("stride", 1)?, section.size("pad", 0)?);
                // Without padding, the windows are within the image; with it, they are centered on each element.
                let step = |extent: u64| {
                    let extent =
                        if pad == 0 { extent.checked_sub(window)? } else { extent.checked_sub(1)? };
                    extent.checked_div(stride)?.checked_add(1)
                };
                let (Some(w), Some(h)) = (step(size.w), step(size.h)) else {
                    return Err(impossible(section));
                };
                let out = Size { w, h, c: filters };
                self.add(name, "bias", vec![out.count()], Role::Parameter)?;
                let dims = vec![w.saturating_mul(h), filters, size.c, window, window];
                self.add(name, "weight", dims, Role::Parameter)?;
                out
            }
            "shortcut" => {
                let inputs = sources.len() as u64;
                match section.text("weights_type") {
                    None | Some("none") => {}
                    Some("per_feature" | "per_layer") => {
                        self.add(name, "weight", vec![inputs], Role::Parameter)?;
                    }
                    Some("per_channel") => {
                        self.add(name, "weight", vec![inputs, size.c], Role::Parameter)?;
                    }
                    Some(_) => return Err(impossible(section)),
                }
                size
            }
            "implicit" => {
                let (filters, atoms) = (section.size("filters", 128)?, section.size("atoms", 1)?);
                self.add(name, "weight", vec![filters, atoms], Role::Parameter)?;
                Size { w: 1, h: atoms, c: filters }
            }
            "route" => {
                let first = other(0).ok_or_else(|| impossible(section))?;
                let all =
                    (0..sources.len()).filter_map(other).fold(0u64, |sum, size| sum.saturating_add(size.c));
                let groups = section.size("groups", 1)?;
                Size { c: all.checked_div(groups).ok_or_else(|| impossible(section))?, ..first }
            }
            "scale_channels" | "sam" => other(sources.len().saturating_sub(1)).unwrap_or(size),
            "max" | "maxpool" | "local_avg" | "local_avgpool" => {
                let stride = section.size("stride", 1)?;
                let window = section.size("size", stride)?;
                let padding = section.size("padding", window.saturating_sub(1))?;
                let step = |extent: u64, stride: u64| {
                    extent.saturating_add(padding).checked_sub(window)?.checked_div(stride)?.checked_add(1)
                };
                let w = step(size.w, section.size("stride_x", stride)?);
                let h = step(size.h, section.size("stride_y", stride)?);
                match (w, h, section.int("maxpool_depth", 0)?) {
                    (_, _, 1..) => Size { c: section.size("out_channels", 1)?, ..size },
                    (Some(w), Some(h), _) => Size { w, h, c: size.c },
                    _ => return Err(impossible(section)),
                }
            }
            "avg" | "avgpool" => Size { w: 1, h: 1, c: size.c },
            "upsample" => {
                let stride = section.size("stride", 2)?;
                Size { w: size.w.saturating_mul(stride), h: size.h.saturating_mul(stride), c: size.c }
            }
            "reorg" | "reorg3d" => {
                let (stride, reverse) = (section.size("stride", 1)?, section.int("reverse", 0)? != 0);
                let square = stride.saturating_mul(stride);
                let scaled = |extent: u64, factor: u64, up: bool| match up {
                    true => Some(extent.saturating_mul(factor)),
                    false => extent.checked_div(factor),
                };
                let (w, h) = (scaled(size.w, stride, reverse), scaled(size.h, stride, reverse));
                let c = scaled(size.c, square, !reverse);
                let (Some(w), Some(h), Some(c)) = (w, h, c) else { return Err(impossible(section)) };
                Size { w, h, c }
            }
            "crop" => {
                Size { w: section.size("crop_width", 1)?, h: section.size("crop_height", 1)?, c: size.c }
            }
            "activation" | "contrastive" | "cost" | "detection" | "dropout" | "empty" | "Gaussian_yolo"
            | "lrn" | "normalization" | "region" | "silence" | "soft" | "softmax" | "yolo" => size,
            _ => {
                return Err(Error::unsupported("not-understood", "layers of this type are not read")
                    .at(section.at)
                    .found(format_args!("[{}] in line {}, layer {number}", section.kind, section.line)));
            }
        })
    }

    fn convolution(&mut self, name: &str, section: &Section, size: Size) -> Result<Size> {
        for key in ["flipped", "antialiasing"] {
            if section.int(key, 0)? != 0 {
                return Err(Error::unsupported("not-understood", format!("layers with {key} are not read"))
                    .at(section.at)
                    .found(format_args!("{key} in the section of line {}", section.line)));
            }
        }
        let (filters, window) = (section.size("filters", 1)?, section.size("size", 1)?);
        let (groups, stride) = (section.size("groups", 1)?, section.size("stride", 1)?);
        let channels = size.c.checked_div(groups).ok_or_else(|| impossible(section))?;
        let pad = match section.int("pad", 0)? {
            0 => section.size("padding", 0)?,
            _ => window / 2,
        };
        if section.int("share_index", i64::MIN)? == i64::MIN {
            self.add(name, "bias", vec![filters], Role::Parameter)?;
            if section.int("batch_normalize", 0)? != 0 || section.int("cbn", 0)? != 0 {
                self.normalization(name, section, filters)?;
            }
            self.add(name, "weight", vec![filters, channels, window, window], Role::Parameter)?;
        }
        let step = |extent: u64, key: &str| -> Result<u64> {
            let own = section.int(key, -1)?;
            let stride = if own < 1 { stride } else { own.cast_unsigned() };
            let within = extent.saturating_add(2 * pad).checked_sub(window);
            within
                .and_then(|within| within.checked_div(stride))
                .map(|steps| steps.saturating_add(1))
                .ok_or_else(|| impossible(section))
        };
        Ok(Size { w: step(size.w, "stride_x")?, h: step(size.h, "stride_y")?, c: filters })
    }

    fn normalization(&mut self, name: &str, section: &Section, count: u64) -> Result<()> {
        if section.int("dontloadscales", 0)? != 0 {
            return Ok(());
        }
        self.add(name, "scale", vec![count], Role::Parameter)?;
        self.add(name, "mean", vec![count], Role::Buffer)?;
        self.add(name, "variance", vec![count], Role::Buffer)
    }

    fn add(&mut self, layer: &str, name: &'static str, dims: Vec<u64>, role: Role) -> Result<()> {
        self.budget.take_memory(ENTRY)?;
        self.parameters.push(Parameter { layer: layer.to_owned(), name, dims, role });
        Ok(())
    }
}

fn impossible(section: &Section) -> Error {
    Error::corrupt("bad-number", "the options of a layer do not fit the result of the layer before")
        .at(section.at)
        .found(format_args!("[{}] in line {}", weighbridge_core::text::quoted(&section.kind), section.line))
}
