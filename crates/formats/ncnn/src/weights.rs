//! Weights that the layers of each type load, in their order.

use crate::network::Layer;
use crate::types;
use weighbridge_core::checkpoint::Role;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::text::quoted;

/// Number of the scales of a layer whose scales are an input.
const FROM_INPUT: i32 = -233;

/// Elements of weights are fewer, so that their bytes are within 64 bits.
const MOST: u64 = u64::MAX / 8;

/// Weights that a layer loads.
#[derive(Debug)]
pub(crate) struct Load {
    /// Name in the layer.
    pub(crate) name: &'static [&'static str],
    /// Sizes of the dimensions.
    pub(crate) dims: Vec<u64>,
    /// Storage.
    pub(crate) storage: Storage,
    /// Role.
    pub(crate) role: Role,
    /// Scheme of integers.
    pub(crate) scheme: Option<Scheme>,
    /// Dtype and shape of integers that are packed into bytes.
    pub(crate) packed: Option<(&'static str, Vec<u64>)>,
}

/// Storage of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// A word before the elements states their type.
    Word,
    /// Floats of 32 bits.
    Floats,
    /// Integers of 8 bits.
    Bytes,
}

/// Scheme of integers: each is its value times a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scheme {
    /// Name.
    pub(crate) name: &'static str,
    /// Dimension of the scales.
    pub(crate) axis: Option<i64>,
}

const BY_TENSOR: Scheme = Scheme { name: "per_tensor_divided", axis: None };
const BY_BLOCK: Scheme = Scheme { name: "blockwise_divided", axis: None };

const fn by_channel(axis: i64) -> Scheme {
    Scheme { name: "per_channel_divided", axis: Some(axis) }
}

/// Returns the weights of a layer; `None` for a layer of another library, whose weights are unknown.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`], `bad-number` or `shape-overflow`; [`weighbridge_core::Kind::Unsupported`], `not-understood`.
pub(crate) fn of_layer(layer: &Layer) -> Result<Option<Vec<Load>>> {
    if !types::is_known(&layer.kind) {
        return Ok(None);
    }
    let mut loads = Loads { layer, list: Vec::new() };
    loads.read()?;
    for load in &loads.list {
        let count = load.dims.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        match count {
            Some(0) => {
                return Err(Error::corrupt("bad-number", "a layer states that its weights have no elements")
                    .at(layer.at)
                    .expected("a size above 0")
                    .found(shown(layer)));
            }
            // ncnn counts in 32 bits; the wider range is that of all formats.
            Some(1..MOST) => {}
            _ => {
                return Err(Error::corrupt("shape-overflow", "the weights of a layer exceed 2^64 bytes")
                    .at(layer.at)
                    .found(shown(layer)));
            }
        }
    }
    Ok(Some(loads.list))
}

/// Returns type and name of a layer, for messages.
pub(crate) fn shown(layer: &Layer) -> String {
    format!("{} {}", quoted(&layer.kind), quoted(&layer.name))
}

struct Loads<'a> {
    layer: &'a Layer,
    list: Vec<Load>,
}

impl Loads<'_> {
    fn add(&mut self, name: Part, dims: Vec<u64>, storage: Storage) -> &mut Load {
        self.list.push(Load { name, dims, storage, role: Role::Parameter, scheme: None, packed: None });
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    fn flagged(&mut self, name: Part, dims: Vec<u64>) -> &mut Load {
        self.add(name, dims, Storage::Word)
    }

    fn raw(&mut self, name: Part, dims: Vec<u64>) -> &mut Load {
        self.add(name, dims, Storage::Floats)
    }

    fn int(&self, key: i32) -> i32 {
        self.layer.int(key, 0)
    }

    /// Returns a size, or a default.
    fn size_or(&self, key: i32, default: u64) -> Result<u64> {
        let Some(param) = self.layer.param(key) else { return Ok(default) };
        u64::try_from(param.int()).map_err(|_| {
            Error::corrupt("bad-number", format!("the parameter {key} of a layer is negative"))
                .at(self.layer.at)
                .expected("a size")
                .found(format_args!("{} in {}", param.int(), shown(self.layer)))
        })
    }

    fn size(&self, key: i32) -> Result<u64> {
        self.size_or(key, 0)
    }

    /// Divides a number of elements, as ncnn does, without a remainder.
    fn divided(&self, count: u64, by: &[u64]) -> Result<u64> {
        let by = by.iter().try_fold(1u64, |all, &size| all.checked_mul(size)).filter(|&by| by > 0);
        let quotient = by.map(|by| count / by);
        quotient.ok_or_else(|| {
            Error::corrupt("bad-number", "a layer states that its weights have no elements")
                .at(self.layer.at)
                .expected("a size above 0")
                .found(shown(self.layer))
        })
    }

    fn bias(&mut self, outputs: u64, key: i32) {
        if self.int(key) != 0 {
            self.raw(&["bias"], vec![outputs]);
        }
    }

    fn read(&mut self) -> Result<()> {
        match self.layer.kind.as_str() {
            "BatchNorm" => {
                let channels = self.size(0)?;
                self.raw(&["slope"], vec![channels]);
                self.raw(&["mean"], vec![channels]).role = Role::Buffer;
                self.raw(&["var"], vec![channels]).role = Role::Buffer;
                self.raw(&["bias"], vec![channels]);
            }
            "Bias" => {
                let size = self.size(0)?;
                self.raw(&["bias"], vec![size]);
            }
            "Convolution1D" | "ConvolutionDepthWise1D" => self.convolution(1, Some(19))?,
            "Convolution" | "ConvolutionDepthWise" => self.convolution(2, Some(19))?,
            "DeformableConv2D" => self.convolution(2, None)?,
            "Deconvolution1D" | "DeconvolutionDepthWise1D" => self.convolution(1, Some(28))?,
            "Deconvolution" | "DeconvolutionDepthWise" => self.convolution(2, Some(28))?,
            "Convolution3D" | "ConvolutionDepthWise3D" | "Deconvolution3D" | "DeconvolutionDepthWise3D" => {
                self.convolution(3, None)?;
            }
            "InnerProduct" => {
                let (outputs, count) = (self.size(0)?, self.size(2)?);
                let scheme = (self.int(8) != 0).then(|| by_channel(0));
                self.flagged(&["weight"], matrix(outputs, count)).scheme = scheme;
                self.bias(outputs, 1);
                if scheme.is_some() {
                    self.raw(&["weight", "scale"], vec![outputs]);
                    self.raw(&["input_scale"], vec![1]);
                }
            }
            "Embed" => {
                let (outputs, count) = (self.size(0)?, self.size(3)?);
                let rows = self.divided(count, &[outputs])?;
                let scheme = (self.int(18) != 0).then_some(BY_TENSOR);
                let dims =
                    if rows.checked_mul(outputs) == Some(count) { vec![rows, outputs] } else { vec![count] };
                self.flagged(&["weight"], dims).scheme = scheme;
                self.bias(outputs, 2);
                if scheme.is_some() {
                    self.raw(&["weight", "scale"], vec![1]);
                }
            }
            "LSTM" | "GRU" | "RNN" => self.recurrent()?,
            "MultiHeadAttention" => self.attention()?,
            "Gemm" => self.gemm()?,
            "MemoryData" => self.memory_data()?,
            "Scale" if self.int(0) == FROM_INPUT => {}
            "Scale" => {
                let size = self.size(0)?;
                self.raw(&["scale"], vec![size]);
                self.bias(size, 1);
            }
            "PReLU" => {
                let size = self.size(0)?;
                self.raw(&["slope"], vec![size]);
            }
            "Normalize" => {
                let size = self.size(3)?;
                self.raw(&["scale"], vec![size]);
            }
            "Padding" if self.int(6) == 0 => {}
            "Padding" => {
                let size = self.size(6)?;
                self.raw(&["per_channel_pad"], vec![size]);
            }
            "GroupNorm" => self.norm(1, 3, true)?,
            "InstanceNorm" | "LayerNorm" => self.norm(0, 2, true)?,
            "RMSNorm" => self.norm(0, 2, false)?,
            "Quantize" => {
                let size = self.size_or(0, 1)?;
                self.raw(&["scale"], vec![size]);
            }
            "Dequantize" => {
                let (scales, biases) = (self.size_or(0, 1)?, self.size(1)?);
                self.raw(&["scale"], vec![scales]);
                if biases > 0 {
                    self.raw(&["bias"], vec![biases]);
                }
            }
            "Requantize" => {
                let (from, to, biases) = (self.size_or(0, 1)?, self.size_or(1, 1)?, self.size(2)?);
                self.raw(&["scale_in"], vec![from]);
                self.raw(&["scale_out"], vec![to]);
                if biases > 0 {
                    self.raw(&["bias"], vec![biases]);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn norm(&mut self, size: i32, affine: i32, has_beta: bool) -> Result<()> {
        if self.layer.int(affine, 1) != 0 {
            let size = self.size(size)?;
            self.raw(&["gamma"], vec![size]);
            if has_beta {
                self.raw(&["beta"], vec![size]);
            }
        }
        Ok(())
    }

    /// Adds the filters of a convolution with 1 to 3 dimensions. `dynamic` is the key that makes them an input.
    fn convolution(&mut self, rank: usize, dynamic: Option<i32>) -> Result<()> {
        if dynamic.is_some_and(|key| self.int(key) != 0) {
            return Ok(());
        }
        let (outputs, count, width) = (self.size(0)?, self.size(6)?, self.size(1)?);
        let mut window = vec![width];
        if rank > 1 {
            window.insert(0, self.size_or(11, width)?);
        }
        if rank > 2 {
            window.insert(0, self.size_or(21, width)?);
        }
        let one = window.iter().try_fold(outputs, |all, &size| all.checked_mul(size)).filter(|&one| one > 0);
        let dims = match one {
            Some(one) if count % one == 0 => [&[outputs, count / one], &*window].concat(),
            _ => vec![count],
        };
        let term = match self.layer.kind.as_str() {
            "Convolution" | "ConvolutionDepthWise" => self.int(8),
            _ => 0,
        };
        let is_depth_wise = self.layer.kind == "ConvolutionDepthWise";
        let scales = match term {
            0 => None,
            1 | 101 if is_depth_wise => Some(self.size_or(7, 1)?),
            2 | 102 if is_depth_wise => Some(1),
            _ if is_depth_wise => return Err(self.unknown("8", term, "0, 1, 2, 101 or 102")),
            _ => Some(outputs),
        };
        let scheme = scales.map(|scales| match scales {
            _ if scales == outputs => by_channel(0),
            1 => BY_TENSOR,
            _ => BY_BLOCK,
        });
        self.flagged(&["weight"], dims).scheme = scheme;
        self.bias(outputs, 5);
        if let Some(scales) = scales {
            self.raw(&["weight", "scale"], vec![scales]);
            self.raw(&["input_scale"], vec![1]);
        }
        if term > 100 {
            self.raw(&["output_scale"], vec![1]);
        }
        Ok(())
    }

    fn recurrent(&mut self) -> Result<()> {
        let (outputs, count) = (self.size(0)?, self.size(1)?);
        let directions = if self.int(2) == 2 { 2 } else { 1 };
        let kind = self.layer.kind.as_str();
        let hidden = if kind == "LSTM" { self.size_or(3, outputs)? } else { outputs };
        let (gates, biases) = match kind {
            "LSTM" => (4, 4),
            "GRU" => (3, 4),
            _ => (1, 1),
        };
        let inputs = self.divided(count, &[directions, hidden, gates])?;
        let rows = hidden.saturating_mul(gates);
        let scheme = (self.int(8) != 0).then_some(BY_BLOCK);
        self.flagged(&["weight_xc"], vec![directions, rows, inputs]).scheme = scheme;
        self.flagged(&["bias_c"], vec![directions, biases, hidden]);
        self.flagged(&["weight_hc"], vec![directions, rows, outputs]).scheme = scheme;
        if outputs != hidden {
            self.flagged(&["weight_hr"], vec![directions, outputs, hidden]);
        }
        if scheme.is_some() {
            self.raw(&["weight_xc", "scale"], vec![directions, rows]);
            self.raw(&["weight_hc", "scale"], vec![directions, rows]);
        }
        Ok(())
    }

    fn attention(&mut self) -> Result<()> {
        let (embed, count) = (self.size(0)?, self.size(2)?);
        let query = self.divided(count, &[embed])?;
        let (key, value) = (self.size_or(3, embed)?, self.size_or(4, embed)?);
        let term = Term::of(self)?;
        let parts: [(Part, Part, u64, u64); 4] = [
            (&["q_weight"], &["q_bias"], embed, query),
            (&["k_weight"], &["k_bias"], embed, key),
            (&["v_weight"], &["v_bias"], embed, value),
            (&["out_weight"], &["out_bias"], query, embed),
        ];
        for (number, (weight, bias, rows, columns)) in parts.into_iter().enumerate() {
            match term {
                Term::Blocks { bits, .. } => self.packed(weight, rows, columns, bits),
                Term::Bytes => {
                    let scheme = if number == 3 { BY_TENSOR } else { by_channel(0) };
                    self.flagged(weight, vec![rows, columns]).scheme = Some(scheme);
                }
                Term::None => {
                    self.flagged(weight, vec![rows, columns]);
                }
            }
            self.raw(bias, vec![rows]);
        }
        let scales: [Part; 4] = [
            &["q_weight", "scale"],
            &["k_weight", "scale"],
            &["v_weight", "scale"],
            &["out_weight", "scale"],
        ];
        let inputs: [Part; 4] = [
            &["q_weight", "input_scale"],
            &["k_weight", "input_scale"],
            &["v_weight", "input_scale"],
            &["out_weight", "input_scale"],
        ];
        match term {
            Term::None => {}
            Term::Bytes => {
                for (number, name) in scales.into_iter().enumerate() {
                    self.raw(name, vec![if number == 3 { 1 } else { embed }]);
                }
            }
            Term::Blocks { block, has_inputs, .. } => {
                for (name, (_, _, rows, columns)) in scales.into_iter().zip(parts) {
                    self.raw(name, vec![rows, columns.div_ceil(block)]);
                }
                if has_inputs {
                    for (name, (_, _, _, columns)) in inputs.into_iter().zip(parts) {
                        self.raw(name, vec![columns]);
                    }
                }
            }
        }
        Ok(())
    }

    fn gemm(&mut self) -> Result<()> {
        let (m, n, k) = (self.size(7)?, self.size(8)?, self.size(9)?);
        let [is_left_turned, is_right_turned] = [2, 3].map(|key| self.int(key) != 0);
        let [has_left, has_right, has_addend] = [4, 5, 6].map(|key| self.int(key) == 1);
        let term = Term::of(self)?;
        let is_bytes = term == Term::Bytes;
        if has_left {
            let dims = if is_left_turned { vec![k, m] } else { vec![m, k] };
            self.flagged(&["A"], dims).scheme = is_bytes.then(|| by_channel(i64::from(is_left_turned)));
        }
        if has_right {
            match (is_right_turned, term) {
                (true, Term::Blocks { bits, .. }) => self.packed(&["B"], n, k, bits),
                (true, _) => self.flagged(&["B"], vec![n, k]).scheme = is_bytes.then_some(BY_TENSOR),
                (false, _) => self.flagged(&["B"], vec![k, n]).scheme = is_bytes.then_some(BY_TENSOR),
            }
        }
        let broadcast = self.int(10);
        if has_addend && broadcast != -1 {
            let dims = match broadcast {
                0 => vec![1],
                1 => vec![m],
                2 => vec![m, 1],
                3 => vec![m, n],
                4 => vec![1, n],
                _ => return Err(self.unknown("10", broadcast, "-1 to 4")),
            };
            self.flagged(&["C"], dims);
        }
        match term {
            Term::None => {}
            Term::Bytes => {
                if has_left {
                    self.raw(&["A", "scale"], vec![m]);
                }
                if has_right {
                    self.raw(&["B", "scale"], vec![1]);
                }
            }
            Term::Blocks { block, has_inputs, .. } => {
                self.raw(&["B", "scale"], vec![n, k.div_ceil(block)]);
                if has_inputs {
                    self.raw(&["B", "input_scale"], vec![k]);
                }
            }
        }
        Ok(())
    }

    /// Adds a matrix of integers whose rows are packed into bytes.
    fn packed(&mut self, name: Part, rows: u64, columns: u64, bits: u64) {
        let bytes = columns.saturating_mul(bits).div_ceil(8);
        let load = self.add(name, vec![rows, bytes], Storage::Bytes);
        load.scheme = Some(BY_BLOCK);
        load.packed = match bits {
            4 => Some(("i4", vec![rows, columns])),
            6 => Some(("i6", vec![rows, columns])),
            _ => None,
        };
    }

    fn memory_data(&mut self) -> Result<()> {
        let [w, h, d, c] = [self.size(0)?, self.size(1)?, self.size(11)?, self.size(2)?];
        let dims = match (w, h, d, c) {
            (0, 0, 0, 0) => return Ok(()),
            (_, _, 1.., _) => vec![c, d, h, w],
            (_, _, 0, 1..) => vec![c, h, w],
            (_, 1.., 0, 0) => vec![h, w],
            (_, 0, 0, 0) => vec![w],
        };
        match self.layer.int(21, 1) {
            0 => self.flagged(&["data"], dims),
            1 => self.raw(&["data"], dims),
            3 | 4 | 6 | 8 => self.add(&["data"], dims, Storage::Bytes),
            other => return Err(self.unknown("21", other, "0, 1, 3, 4, 6 or 8")),
        };
        Ok(())
    }

    fn unknown(&self, key: &str, value: i32, expected: &str) -> Error {
        Error::unsupported(
            "not-understood",
            format!("the value of the parameter {key} of a layer is unknown"),
        )
        .at(self.layer.at)
        .expected(expected)
        .found(format_args!("{value} in {}", shown(self.layer)))
    }
}

/// Name of weights.
type Part = &'static [&'static str];

/// Quantization of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    None,
    /// Integers of 8 bits with one scale, or one for each row.
    Bytes,
    /// Integers of some bits with a scale for each block of a row, and a factor for each input.
    Blocks {
        bits: u64,
        block: u64,
        has_inputs: bool,
    },
}

impl Term {
    fn of(loads: &Loads<'_>) -> Result<Self> {
        let term = loads.int(18);
        // Bits, form and length of the blocks are its digits.
        let block = match term % 10 {
            0 => 32,
            1 => 64,
            _ => 128,
        };
        match (term / 100, term % 100 / 10, term % 10) {
            _ if term == 0 => Ok(Self::None),
            (bits @ (4 | 6 | 8), form @ 0..=1, 0..=2) => {
                Ok(Self::Blocks { bits: bits.cast_unsigned().into(), block, has_inputs: form == 1 })
            }
            _ if matches!(term, 4..=6 | 400..) => Err(loads.unknown("18", term, "a quantization of ncnn")),
            _ => Ok(Self::Bytes),
        }
    }
}

/// Returns the shape of a matrix with this number of rows; of one dimension if the elements do not fill it.
fn matrix(rows: u64, count: u64) -> Vec<u64> {
    if rows > 0 && count.is_multiple_of(rows) { vec![rows, count / rows] } else { vec![count] }
}
