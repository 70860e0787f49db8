//! Edge columns, read block by block.

use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::Result;
use weighbridge_core::tensor::{DType, Element, Order, Region};

/// Value of an edge column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    /// An integer, possibly stored as a float.
    Whole(i64),
    /// Not a 64-bit integer: a fraction, NaN, or out of range.
    Broken,
}

/// Reads the elements `start .. start + count` of a column.
pub(super) fn ids(entry: &TensorEntry, start: u64, count: u64, out: &mut Vec<Id>) -> Result<()> {
    out.clear();
    if count == 0 {
        return Ok(());
    }
    let region = Region { start: vec![start], shape: vec![count] };
    let bytes = entry.read_region(&region, Order::Row)?;
    let dtype = entry.dtype();
    if dtype == DType::I64 {
        let (words, _) = bytes.as_chunks::<8>();
        out.extend(words.iter().map(|word| Id::Whole(i64::from_le_bytes(*word))));
        return Ok(());
    }
    let size = dtype.size().unwrap_or(1);
    out.extend((0..bytes.len() / size).map(|at| id(dtype.element_at(&bytes, at))));
    Ok(())
}

fn id(element: Option<Element>) -> Id {
    match element {
        Some(Element::Int(n)) => i64::try_from(n).map_or(Id::Broken, Id::Whole),
        Some(Element::Bool(b)) => Id::Whole(i64::from(b)),
        // Every integral float up to 2^63 fits.
        Some(Element::Float(x)) if x.fract() == 0.0 && x.abs() < 9.2e18 => {
            #[allow(clippy::cast_possible_truncation)]
            let whole = x as i64;
            Id::Whole(whole)
        }
        _ => Id::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weighbridge_core::checkpoint::TensorPath;
    use weighbridge_core::tensor::{Encoding, Shape};
    use weighbridge_io::source::{MemorySource, SourceRef};

    fn column(dtype: DType, bytes: Vec<u8>) -> TensorEntry {
        let count = bytes.len() as u64 / dtype.size().unwrap() as u64;
        let source: SourceRef = Arc::new(MemorySource::new("m", bytes));
        TensorEntry::dense(TensorPath::value(), dtype, Shape::from([count]), &source, 0, Encoding::ROW)
            .unwrap()
    }

    #[test]
    fn reads_ids_of_every_dtype() {
        let mut out = Vec::new();
        let floats: Vec<u8> =
            [3.0f64, -1.0, 0.5, f64::NAN, 1e300].iter().flat_map(|x| x.to_le_bytes()).collect();
        ids(&column(DType::F64, floats), 0, 5, &mut out).unwrap();
        assert_eq!(out, [Id::Whole(3), Id::Whole(-1), Id::Broken, Id::Broken, Id::Broken]);
        let words: Vec<u8> = [7i64, i64::MIN].iter().flat_map(|x| x.to_le_bytes()).collect();
        ids(&column(DType::I64, words), 1, 1, &mut out).unwrap();
        assert_eq!(out, [Id::Whole(i64::MIN)]);
        ids(&column(DType::U64, vec![0xff; 8]), 0, 1, &mut out).unwrap();
        assert_eq!(out, [Id::Broken]);
        ids(&column(DType::U8, vec![255, 0]), 0, 2, &mut out).unwrap();
        assert_eq!(out, [Id::Whole(255), Id::Whole(0)]);
    }
}
