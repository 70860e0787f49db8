//! Slices as Rust ranges: `(0..3, ..)`, `5`, `(.., -1)`.

use super::{Part, Slice};
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Index or range of a slice. Negative numbers count from the end; a range is clamped to the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick(pub(super) Part);

fn range(from: Option<i64>, to: Option<i64>) -> Pick {
    Pick(Part::Range { from, to, step: 1 })
}

/// Returns the exclusive end after `last`; for -1, the end of the dimension.
fn behind(last: i64) -> Option<i64> {
    if last == -1 { None } else { Some(last.saturating_add(1)) }
}

impl From<i64> for Pick {
    fn from(index: i64) -> Self {
        Self(Part::Index(index))
    }
}

impl From<RangeFull> for Pick {
    fn from(_: RangeFull) -> Self {
        range(None, None)
    }
}

impl From<Range<i64>> for Pick {
    fn from(own: Range<i64>) -> Self {
        range(Some(own.start), Some(own.end))
    }
}

impl From<RangeInclusive<i64>> for Pick {
    fn from(own: RangeInclusive<i64>) -> Self {
        range(Some(*own.start()), behind(*own.end()))
    }
}

impl From<RangeFrom<i64>> for Pick {
    fn from(own: RangeFrom<i64>) -> Self {
        range(Some(own.start), None)
    }
}

impl From<RangeTo<i64>> for Pick {
    fn from(own: RangeTo<i64>) -> Self {
        range(None, Some(own.end))
    }
}

impl From<RangeToInclusive<i64>> for Pick {
    fn from(own: RangeToInclusive<i64>) -> Self {
        range(None, behind(own.end))
    }
}

macro_rules! of_one {
    ($($own:ty),*) => {$(
        impl From<$own> for Slice {
            fn from(own: $own) -> Self {
                Self(vec![Pick::from(own).0])
            }
        }
    )*};
}

of_one!(i64, RangeFull, Range<i64>, RangeInclusive<i64>, RangeFrom<i64>, RangeTo<i64>, RangeToInclusive<i64>);

macro_rules! of_tuple {
    ($($own:ident $place:tt),+) => {
        impl<$($own: Into<Pick>),+> From<($($own,)+)> for Slice {
            fn from(own: ($($own,)+)) -> Self {
                Self(vec![$(own.$place.into().0),+])
            }
        }
    };
}

of_tuple!(A 0);
of_tuple!(A 0, B 1);
of_tuple!(A 0, B 1, C 2);
of_tuple!(A 0, B 1, C 2, D 3);
of_tuple!(A 0, B 1, C 2, D 3, E 4);
of_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_is_written_after_a_name() {
        for (slice, text) in [
            (Slice::from((0..3, ..)), "[0:3, :]"),
            (Slice::from(5), "[5]"),
            (Slice::from((.., -1)), "[:, -1]"),
            (Slice::from((1..=2, ..=-1, ..=3)), "[1:3, :, :4]"),
            (Slice::from((2.., ..4, -3..-1)), "[2:, :4, -3:-1]"),
        ] {
            let shape = crate::tensor::Shape::from([9, 9, 9]);
            let (ours, wanted) = (slice.select(&shape), Slice::parse(text).unwrap().select(&shape));
            assert_eq!(ours.unwrap(), wanted.unwrap(), "{text}");
        }
    }
}
