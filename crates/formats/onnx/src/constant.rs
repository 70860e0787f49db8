//! Small tensors with known elements.

use half::{bf16, f16};
use weighbridge_core::error::Error;
use weighbridge_core::tensor::DType;

/// Tensor with known elements, row-major.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Constant {
    /// Dtype.
    pub(crate) dtype: DType,
    /// Sizes of the dimensions.
    pub(crate) shape: Vec<i64>,
    /// Elements.
    pub(crate) data: Data,
}

/// Elements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    /// Integers and booleans (0 and 1).
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f64>),
}

impl Constant {
    /// Creates a tensor of rank 1 of 64-bit integers.
    pub(crate) fn ints(values: &[i64]) -> Self {
        let shape = vec![i64::try_from(values.len()).unwrap_or(i64::MAX)];
        Self { dtype: DType::I64, shape, data: Data::Ints(values.to_vec()) }
    }

    /// Creates a scalar of any real dtype.
    pub(crate) fn scalar(value: f64, dtype: DType) -> Self {
        Self::filled(value, dtype, &[])
    }

    /// Creates a tensor of equal elements.
    pub(crate) fn filled(value: f64, dtype: DType, shape: &[i64]) -> Self {
        let count = shape.iter().try_fold(1i64, |product, size| product.checked_mul(*size));
        let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        Self::of_floats(&vec![value; count], dtype, shape)
    }

    /// Creates a tensor; the elements are converted to the dtype.
    pub(crate) fn of_floats(values: &[f64], dtype: DType, shape: &[i64]) -> Self {
        let data = if dtype.is_float() {
            Data::Floats(values.to_vec())
        } else if dtype == DType::Bool {
            Data::Ints(values.iter().map(|v| i64::from(*v != 0.0)).collect())
        } else {
            #[allow(clippy::cast_possible_truncation)] // As Paddle casts its attributes.
            let ints = values.iter().map(|v| *v as i64).collect();
            Data::Ints(ints)
        };
        Self { dtype, shape: shape.to_vec(), data }
    }

    /// Creates a tensor; the elements are converted to the dtype.
    pub(crate) fn of_ints(values: &[i64], dtype: DType, shape: &[i64]) -> Self {
        #[allow(clippy::cast_precision_loss)] // As a cast of the framework.
        let data = match dtype.is_float() {
            true => Data::Floats(values.iter().map(|v| *v as f64).collect()),
            false if dtype == DType::Bool => Data::Ints(values.iter().map(|v| i64::from(*v != 0)).collect()),
            false => Data::Ints(values.to_vec()),
        };
        Self { dtype, shape: shape.to_vec(), data }
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        match &self.data {
            Data::Ints(values) => values.len(),
            Data::Floats(values) => values.len(),
        }
    }

    /// Returns the elements as integers; `None` for floats.
    pub(crate) fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::Ints(values) => Some(values),
            Data::Floats(_) => None,
        }
    }

    /// Returns the elements as floats.
    pub(crate) fn to_floats(&self) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss)]
        match &self.data {
            Data::Ints(values) => values.iter().map(|v| *v as f64).collect(),
            Data::Floats(values) => values.clone(),
        }
    }

    /// Returns the same elements in another dtype.
    pub(crate) fn cast(&self, dtype: DType) -> Self {
        match &self.data {
            Data::Ints(values) => Self::of_ints(values, dtype, &self.shape),
            Data::Floats(values) => {
                let values: Vec<f64> = values.iter().map(|v| rounded(*v, self.dtype)).collect();
                Self::of_floats(&values, dtype, &self.shape)
            }
        }
    }

    /// Returns the elements, little-endian.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Unsupported`] for a dtype without numbers of this kind.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let size = self.dtype.size().unwrap_or(1);
        let mut out = Vec::with_capacity(self.len().saturating_mul(size));
        #[allow(clippy::cast_possible_truncation)]
        // Floats are rounded to the dtype, integers fit or wrap as in C.
        match &self.data {
            Data::Ints(values) => {
                if self.dtype.is_float() || size > 8 {
                    return Err(unsupported(self.dtype));
                }
                for value in values {
                    out.extend_from_slice(&value.to_le_bytes()[..size]);
                }
            }
            Data::Floats(values) => {
                for value in values {
                    match self.dtype {
                        DType::F32 => out.extend_from_slice(&(*value as f32).to_le_bytes()),
                        DType::F64 => out.extend_from_slice(&value.to_le_bytes()),
                        DType::F16 => out.extend_from_slice(&f16::from_f64(*value).to_le_bytes()),
                        DType::BF16 => out.extend_from_slice(&bf16::from_f64(*value).to_le_bytes()),
                        other => return Err(unsupported(other)),
                    }
                }
            }
        }
        Ok(out)
    }

    /// Reads a tensor from little-endian bytes; `None` for a dtype that constants do not have.
    pub(crate) fn from_bytes(dtype: DType, shape: &[i64], bytes: &[u8]) -> Option<Self> {
        let data = match dtype {
            DType::Bool | DType::U8 => Data::Ints(bytes.iter().map(|b| i64::from(*b)).collect()),
            DType::I8 => Data::Ints(bytes.iter().map(|b| i64::from(b.cast_signed())).collect()),
            DType::I16 => Data::Ints(words(bytes, |w| i64::from(i16::from_le_bytes(w)))),
            DType::U16 => Data::Ints(words(bytes, |w| i64::from(u16::from_le_bytes(w)))),
            DType::I32 => Data::Ints(words(bytes, |w| i64::from(i32::from_le_bytes(w)))),
            DType::U32 => Data::Ints(words(bytes, |w| i64::from(u32::from_le_bytes(w)))),
            DType::I64 | DType::U64 => Data::Ints(words(bytes, i64::from_le_bytes)),
            DType::F16 => Data::Floats(words(bytes, |w| f16::from_le_bytes(w).to_f64())),
            DType::BF16 => Data::Floats(words(bytes, |w| bf16::from_le_bytes(w).to_f64())),
            DType::F32 => Data::Floats(words(bytes, |w| f64::from(f32::from_le_bytes(w)))),
            DType::F64 => Data::Floats(words(bytes, f64::from_le_bytes)),
            _ => return None,
        };
        Some(Self { dtype, shape: shape.to_vec(), data })
    }
}

/// Splits bytes into words of `N` bytes and converts each.
fn words<const N: usize, T>(bytes: &[u8], convert: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|word| convert(*word)).collect()
}

/// Rounds a value to a float dtype.
fn rounded(value: f64, dtype: DType) -> f64 {
    #[allow(clippy::cast_possible_truncation)]
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::BF16 => bf16::from_f64(value).to_f64(),
        _ => value,
    }
}

fn unsupported(dtype: DType) -> Error {
    Error::unsupported("onnx-dtype", "constants of this dtype cannot be written").found(dtype)
}
