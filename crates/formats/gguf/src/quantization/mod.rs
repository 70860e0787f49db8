//! Element types: their numbers, names, blocks, and the values of quantized blocks.

mod codebook;
mod grids;
mod legacy;
mod superblock;

use weighbridge_core::tensor::DType;

/// Decoder of one block: the values of its elements.
pub(crate) type Decode = fn(block: &[u8], out: &mut [f32]);

/// Maximum number of elements in a block.
pub(crate) const MAX_BLOCK: usize = 256;

/// Element type of GGUF.
#[derive(Debug)]
pub(crate) struct ElementType {
    /// Number in files.
    pub(crate) id: u32,
    /// Name, as in ggml.
    pub(crate) name: &'static str,
    /// Storage of the elements.
    pub(crate) layout: Layout,
}

/// Storage of elements.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Layout {
    /// Single elements.
    Plain(DType),
    /// Blocks of elements along the last dimension.
    Blocks(Blocks),
}

/// Blocks of a quantized type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    /// Elements of a block.
    pub(crate) elements: u64,
    /// Bytes of a block.
    pub(crate) bytes: u64,
    /// Decoder; `None` for types that the package `gguf` does not dequantize.
    pub(crate) decode: Option<Decode>,
}

const fn plain(id: u32, name: &'static str, dtype: DType) -> ElementType {
    ElementType { id, name, layout: Layout::Plain(dtype) }
}

const fn blocks(
    id: u32,
    name: &'static str,
    elements: u64,
    bytes: u64,
    decode: Option<Decode>,
) -> ElementType {
    ElementType { id, name, layout: Layout::Blocks(Blocks { elements, bytes, decode }) }
}

/// All types of the package `gguf` 0.19.
pub(crate) static TYPES: [ElementType; 34] = [
    plain(0, "F32", DType::F32),
    plain(1, "F16", DType::F16),
    blocks(2, "Q4_0", 32, 18, Some(legacy::q4_0)),
    blocks(3, "Q4_1", 32, 20, Some(legacy::q4_1)),
    blocks(6, "Q5_0", 32, 22, Some(legacy::q5_0)),
    blocks(7, "Q5_1", 32, 24, Some(legacy::q5_1)),
    blocks(8, "Q8_0", 32, 34, Some(legacy::q8_0)),
    blocks(9, "Q8_1", 32, 40, None),
    blocks(10, "Q2_K", 256, 84, Some(superblock::q2_k)),
    blocks(11, "Q3_K", 256, 110, Some(superblock::q3_k)),
    blocks(12, "Q4_K", 256, 144, Some(superblock::q4_k)),
    blocks(13, "Q5_K", 256, 176, Some(superblock::q5_k)),
    blocks(14, "Q6_K", 256, 210, Some(superblock::q6_k)),
    blocks(15, "Q8_K", 256, 292, None),
    blocks(16, "IQ2_XXS", 256, 66, Some(codebook::iq2_xxs)),
    blocks(17, "IQ2_XS", 256, 74, Some(codebook::iq2_xs)),
    blocks(18, "IQ3_XXS", 256, 98, Some(codebook::iq3_xxs)),
    blocks(19, "IQ1_S", 256, 50, Some(codebook::iq1_s)),
    blocks(20, "IQ4_NL", 32, 18, Some(legacy::iq4_nl)),
    blocks(21, "IQ3_S", 256, 110, Some(codebook::iq3_s)),
    blocks(22, "IQ2_S", 256, 82, Some(codebook::iq2_s)),
    blocks(23, "IQ4_XS", 256, 136, Some(superblock::iq4_xs)),
    plain(24, "I8", DType::I8),
    plain(25, "I16", DType::I16),
    plain(26, "I32", DType::I32),
    plain(27, "I64", DType::I64),
    plain(28, "F64", DType::F64),
    blocks(29, "IQ1_M", 256, 56, Some(codebook::iq1_m)),
    plain(30, "BF16", DType::BF16),
    blocks(34, "TQ1_0", 256, 54, Some(superblock::tq1_0)),
    blocks(35, "TQ2_0", 256, 66, Some(superblock::tq2_0)),
    blocks(39, "MXFP4", 32, 17, Some(legacy::mxfp4)),
    blocks(40, "NVFP4", 64, 36, Some(legacy::nvfp4)),
    blocks(41, "Q1_0", 128, 18, None),
];

/// Numbers of types that ggml had once, with their names.
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl ElementType {
    /// Returns the type of that number.
    pub(crate) fn of_id(id: u32) -> Option<&'static Self> {
        TYPES.iter().find(|kind| kind.id == id)
    }

    /// Returns the quantized type of that name.
    pub(crate) fn quantized(name: &str) -> Option<(&'static Self, Blocks)> {
        let kind = TYPES.iter().find(|kind| kind.name == name)?;
        match kind.layout {
            Layout::Blocks(blocks) => Some((kind, blocks)),
            Layout::Plain(_) => None,
        }
    }

    /// Returns the type of single elements of `dtype`.
    pub(crate) fn plain(dtype: DType) -> Option<&'static Self> {
        TYPES.iter().find(|kind| matches!(kind.layout, Layout::Plain(own) if own == dtype))
    }

    /// Returns the description of an unknown number.
    pub(crate) fn unknown(id: u32) -> String {
        match REMOVED.iter().find(|(removed, _)| *removed == id) {
            Some((_, name)) => format!("type {name}, which ggml no longer has"),
            None => format!("unknown type {id}"),
        }
    }
}

/// Returns the value of a binary16 at `at`.
fn half(block: &[u8], at: usize) -> f32 {
    half::f16::from_bits(u16_at(block, at)).to_f32()
}

fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Returns the nibble of a byte: the low one for 0, the high one for 1.
fn nibble(byte: u8, which: usize) -> u8 {
    (byte >> (4 * which)) & 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_sorted_and_blocks_fit_the_buffer() {
        assert!(TYPES.windows(2).all(|pair| pair[0].id < pair[1].id));
        for kind in &TYPES {
            if let Layout::Blocks(Blocks { elements, bytes, decode }) = kind.layout {
                assert!(elements <= MAX_BLOCK as u64);
                // Any bits decode without a panic.
                for byte in [0, 0x7f, 0xff] {
                    let block = vec![byte; usize::try_from(bytes).unwrap()];
                    let mut out = vec![0.0; usize::try_from(elements).unwrap()];
                    if let Some(decode) = decode {
                        decode(&block, &mut out);
                    }
                }
            }
        }
    }
}
