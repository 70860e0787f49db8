//! Memory estimates for the values and tensors made from a pickle. They are charged to the budget of the file before each value
//! is made, also for repeated objects: a second reference to an object takes only two bytes of the pickle.

/// Estimates in bytes.
#[derive(Debug)]
pub struct Cost;

impl Cost {
    /// Work per visited object.
    pub const VISIT: u64 = 32;
    /// A plain value.
    pub const VALUE: u64 = 64;
    /// A row of a table, a pair of a dict, an empty list.
    pub const ITEM: u64 = 160;
    /// A map that represents an object, with its keys, or with the key of the map itself.
    pub const CONTAINER: u64 = 480;
    /// A dimension of a tensor: shape, region and strides, in the index and in a conversion plan.
    const DIMENSION: u64 = 48;

    /// Copies of each byte of text: as key, as value, in tables, in output.
    const TEXT: u64 = 3;
    /// A tensor without its name.
    const ENTRY: u64 = 400;
    /// A repeated tensor. For other tensors a conversion reuses the memory of their pickle objects; a repeated one has none.
    const REPEATED_ENTRY: u64 = 3_100;
    /// A part of a name, at least 16 bytes of text.
    const PART: u64 = 40;
    /// The attribute table of a tensor.
    const ATTRIBUTES: u64 = 400;

    /// Text of `len` bytes.
    pub fn text(len: u64) -> u64 {
        len.saturating_mul(Self::TEXT)
    }

    /// A tensor without its name and dimensions; `again` for a repeated one.
    pub fn entry(again: bool) -> u64 {
        if again { Self::REPEATED_ENTRY } else { Self::ENTRY }
    }

    /// A name of `parts` parts and `len` bytes.
    pub fn name(parts: usize, len: u64) -> u64 {
        Self::PART.saturating_mul(parts as u64).saturating_add(Self::text(len))
    }

    /// The dimensions of a tensor.
    pub fn dimensions(rank: usize) -> u64 {
        Self::DIMENSION.saturating_mul(rank as u64)
    }

    /// Attributes of a tensor with `len` bytes of text.
    pub fn attributes(len: u64) -> u64 {
        Self::text(len).saturating_add(Self::ATTRIBUTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::{Budget, Limits};

    #[test]
    fn a_refused_estimate_takes_nothing_from_the_budget() {
        let budget = Budget::new(0, &Limits::default());
        let all = budget.memory_left();
        let tensor = Cost::entry(true) + Cost::name(3, 20) + Cost::dimensions(2) + Cost::attributes(7);
        budget.take_memory(tensor).unwrap();
        assert_eq!(all - budget.memory_left(), tensor);
        assert!(tensor > Cost::entry(false) + Cost::name(3, 20) + Cost::dimensions(2) + Cost::attributes(7));
        // The refused amount was not taken.
        assert_eq!(budget.take_memory(all).unwrap_err().code().as_str(), "limit");
        assert_eq!(all - budget.memory_left(), tensor);
    }
}
