//! Byte order conversion.

use super::Endian;

impl Endian {
    /// Reverses the bytes of every unit of `unit` bytes in place. A unit of 1 changes nothing; a remainder shorter than a unit
    /// stays unchanged.
    pub fn swap_bytes(bytes: &mut [u8], unit: usize) {
        match unit {
            0 | 1 => {}
            2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|c| c.reverse()),
            4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|c| c.reverse()),
            8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|c| c.reverse()),
            other => bytes.chunks_exact_mut(other).for_each(<[u8]>::reverse),
        }
    }
}
