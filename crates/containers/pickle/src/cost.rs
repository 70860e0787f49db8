//! Estimates in bytes of the values and tensors that are made of a pickle. They are taken from the budget of the file before the
//! value is made, each time: two bytes of a pickle refer to an object once more.

/// Estimates in bytes.
#[derive(Debug)]
pub struct Cost;

impl Cost {
    /// Work for an object that is met.
    pub const VISIT: u64 = 32;
    /// A plain value.
    pub const VALUE: u64 = 64;
    /// A row of a table, a pair of a dict, an empty list.
    pub const ITEM: u64 = 160;
    /// A map that stands for an object, with the keys in it, or with the key that leads to it.
    pub const CONTAINER: u64 = 480;
    /// A dimension of a tensor: shape, region and strides, in the index and in the plan of a conversion.
    const DIMENSION: u64 = 48;

    /// Copies of a byte of text: as a key, as a value, in tables, printed.
    const TEXT: u64 = 3;
    /// A tensor without its name.
    const ENTRY: u64 = 400;
    /// A tensor that was met before. What the objects of others took is free when the file is converted; this one has none.
    const AGAIN: u64 = 3_100;
    /// A part of a name: one letter takes as much as 16.
    const PART: u64 = 40;
    /// The table of what else is said of a tensor.
    const ATTRIBUTES: u64 = 400;

    /// Text of so many bytes.
    pub fn text(len: u64) -> u64 {
        len.saturating_mul(Self::TEXT)
    }

    /// A tensor without its name and its dimensions; `again` where it was met before.
    pub fn entry(again: bool) -> u64 {
        if again { Self::AGAIN } else { Self::ENTRY }
    }

    /// A name of so many parts and bytes.
    pub fn name(parts: usize, len: u64) -> u64 {
        Self::PART.saturating_mul(parts as u64).saturating_add(Self::text(len))
    }

    /// The dimensions of a tensor.
    pub fn dimensions(rank: usize) -> u64 {
        Self::DIMENSION.saturating_mul(rank as u64)
    }

    /// Attributes of a tensor that have text of so many bytes.
    pub fn attributes(len: u64) -> u64 {
        Self::text(len).saturating_add(Self::ATTRIBUTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weighbridge_core::{Budget, Limits};

    #[test]
    fn what_is_left_is_taken_once() {
        let budget = Budget::new(0, &Limits::default());
        let all = budget.memory_left();
        let tensor = Cost::entry(true) + Cost::name(3, 20) + Cost::dimensions(2) + Cost::attributes(7);
        budget.take_memory(tensor).unwrap();
        assert_eq!(all - budget.memory_left(), tensor);
        assert!(tensor > Cost::entry(false) + Cost::name(3, 20) + Cost::dimensions(2) + Cost::attributes(7));
        // What did not fit took nothing.
        assert_eq!(budget.take_memory(all).unwrap_err().code().as_str(), "limit");
        assert_eq!(all - budget.memory_left(), tensor);
    }
}
