//! LoD ("level of detail"): grouping of the rows of a tensor into sequences, and of sequences into longer
//! ones. The LoD is stored between the two version words of a stream.
//!
//! Each level is a list of offsets into the next level. It begins with 0 and ends with the number of rows of that
//! level. Neither Paddle nor reading checks this;
//! [`weighbridge_core::check::lod`] does.

use super::header::{array, words};
use weighbridge_core::checkpoint::{TensorEntry, Value};
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::Cursor;

/// Attribute with the levels: a list of lists of unsigned offsets. Present only if there are levels.
pub const LOD: &str = "lod";
/// Attribute with the trailing bytes after the last whole offset of each level: a list of bytes. Present only if there
/// are trailing bytes: Paddle accepts levels of any length and drops an incomplete offset.
pub(crate) const LOD_ODD: &str = "lod_odd_bytes";

/// Levels of a stream.
#[derive(Debug, Default)]
pub(super) struct Lod {
    levels: Vec<Value>,
    odd: Vec<Value>,
}

impl Lod {
    /// Reads the number of levels, then the levels.
    pub(super) fn read(cursor: &mut Cursor, limits: &Limits) -> Result<Self> {
        let at = cursor.position();
        let count = u64::from_le_bytes(array(cursor, "the number of LoD levels")?);
        if count > cursor.remaining() / 8 {
            return Err(Error::corrupt("lod-too-long", "the LoD levels exceed the file")
                .at(at)
                .expected(format_args!("at most {}", cursor.remaining() / 8))
                .found(count));
        }
        // An empty level takes several times its 8 bytes in memory; well-formed files have few levels.
        Limits::check("levels of LoD", "dimensions", count, limits.dimensions).map_err(|e| e.at(at))?;
        let mut lod = Self::default();
        let mut spent = 0u64;
        let mut odd = false;
        for _ in 0..count {
            let at = cursor.position();
            let len = u64::from_le_bytes(array(cursor, "the length of a LoD level")?);
            if len > cursor.remaining() {
                return Err(Error::corrupt("lod-too-long", "a LoD level exceeds the file")
                    .at(at)
                    .expected(format_args!("at most {} bytes", cursor.remaining()))
                    .found(format_args!("{len} bytes"))
                    .hint("the file is truncated, or the length is damaged"));
            }
            spent = spent.saturating_add(8).saturating_add(len);
            Limits::check("bytes of LoD", "header_bytes", spent, limits.header_bytes)
                .map_err(|e| e.at(at))?;
            let bytes = cursor.bytes(len, "a LoD level")?;
            let rest = bytes.as_chunks::<8>().1.to_vec();
            odd |= !rest.is_empty();
            lod.odd.push(Value::Bytes(rest));
            lod.levels.push(Value::List(words(&bytes).map(Value::U64).collect()));
        }
        if !odd {
            lod.odd.clear();
        }
        Ok(lod)
    }

    /// Stores the levels in the attributes of `entry`.
    pub(super) fn describe(self, entry: &mut TensorEntry) {
        if !self.levels.is_empty() {
            entry.attributes.insert(LOD.into(), Value::List(self.levels));
        }
        if !self.odd.is_empty() {
            entry.attributes.insert(LOD_ODD.into(), Value::List(self.odd));
        }
    }
}

/// Encodes the levels of `entry`: their number, then each level with its length.
pub(super) fn bytes(entry: &TensorEntry) -> Result<Vec<u8>> {
    let levels = levels(entry)?;
    let odd = odd_bytes(entry, levels.len())?;
    let mut out = (levels.len() as u64).to_le_bytes().to_vec();
    for (place, level) in levels.iter().enumerate() {
        let rest: &[u8] = odd.get(place).copied().unwrap_or(&[]);
        out.extend_from_slice(&(level.len() as u64 * 8 + rest.len() as u64).to_le_bytes());
        level.iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
        out.extend_from_slice(rest);
    }
    Ok(out)
}

/// Returns the levels of `entry`; empty if it has no LoD.
///
/// # Errors
/// [`weighbridge_core::Kind::Mismatch`], code `lod`, if the attribute is not a list of lists of offsets.
pub fn levels(entry: &TensorEntry) -> Result<Vec<Vec<u64>>> {
    let bad = || {
        Error::mismatch("lod", "the attribute `lod` is not a list of lists of unsigned offsets")
            .on_tensor(entry.name())
    };
    let levels = match entry.attributes.get(LOD) {
        None => return Ok(Vec::new()),
        Some(Value::List(levels)) => levels,
        Some(_) => return Err(bad()),
    };
    let level = |level: &Value| {
        let Value::List(offsets) = level else { return Err(bad()) };
        let offset = |offset: &Value| match offset {
            Value::U64(offset) => Ok(*offset),
            _ => Err(bad()),
        };
        offsets.iter().map(offset).collect()
    };
    levels.iter().map(level).collect()
}

fn odd_bytes(entry: &TensorEntry, levels: usize) -> Result<Vec<&[u8]>> {
    let bad = || {
        Error::mismatch("lod", format!("the attribute `{LOD_ODD}` must have at most 7 bytes for each level"))
            .on_tensor(entry.name())
    };
    let list = match entry.attributes.get(LOD_ODD) {
        None => return Ok(Vec::new()),
        Some(Value::List(list)) if list.len() == levels => list,
        Some(_) => return Err(bad()),
    };
    list.iter()
        .map(|part| match part {
            Value::Bytes(bytes) if bytes.len() < 8 => Ok(bytes.as_slice()),
            _ => Err(bad()),
        })
        .collect()
}
