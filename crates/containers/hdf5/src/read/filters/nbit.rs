//! The filter nbit: only the significant bits of each number are stored.

use super::bits::Bits;
use std::slice::Iter;
use weighbridge_core::budget::Budget;

/// Element type, as described by the parameters of the filter.
enum Packed {
    /// A number of `bits` bits, from the bit `first` on.
    Number { size: usize, is_big_endian: bool, bits: usize, first: usize },
    /// An array.
    Array { size: usize, base: Box<Packed> },
    /// A compound of members, each with its offset.
    Members { size: usize, members: Vec<(usize, Packed)> },
    /// Unpacked bytes.
    Plain { size: usize },
}

impl Packed {
    fn size(&self) -> usize {
        match self {
            Self::Number { size, .. }
            | Self::Array { size, .. }
            | Self::Members { size, .. }
            | Self::Plain { size } => *size,
        }
    }

    /// Parses the type that the next parameters describe; `None` where it is invalid. A type has at least one byte and its
    /// members do not overlap, so the length of a chunk bounds the steps of unpacking it.
    fn parse(parameters: &mut Iter<'_, u32>, depth: usize) -> Option<Self> {
        Budget::check_depth(depth).ok()?;
        let mut next = || usize::try_from(*parameters.next()?).ok();
        let (class, size) = (next()?, next()?);
        if size == 0 {
            return None;
        }
        match class {
            1 => {
                let (order, bits, first) = (next()?, next()?, next()?);
                let fits = bits > 0 && first.checked_add(bits)? <= size.checked_mul(8)? && order < 2;
                fits.then_some(Self::Number { size, is_big_endian: order == 1, bits, first })
            }
            2 => {
                let base = Self::parse(parameters, depth + 1)?;
                match size % base.size() {
                    // An array of one element is dropped: each level would cost a step for every element.
                    0 if size == base.size() => Some(base),
                    0 => Some(Self::Array { size, base: Box::new(base) }),
                    _ => None,
                }
            }
            3 => {
                let (count, mut all, mut members) = (next()?, 0, Vec::new());
                for _ in 0..count {
                    let offset = usize::try_from(*parameters.next()?).ok()?;
                    let member = Self::parse(parameters, depth + 1)?;
                    all += member.size();
                    if all > size || offset.checked_add(member.size())? > size {
                        return None;
                    }
                    members.push((offset, member));
                }
                match members.pop() {
                    Some((0, member)) if members.is_empty() && member.size() == size => Some(member),
                    last => {
                        members.extend(last);
                        Some(Self::Members { size, members })
                    }
                }
            }
            4 => Some(Self::Plain { size }),
            _ => None,
        }
    }

    /// Unpacks the next element into `place`, which has its length.
    fn unpack(&self, bits: &mut Bits<'_>, place: &mut [u8]) -> Option<()> {
        match self {
            Self::Number { size, is_big_endian, bits: count, first } => {
                let end = first + count;
                for byte in (first / 8..end.div_ceil(8)).rev() {
                    let (from, to) = ((*first).max(8 * byte), end.min(8 * byte + 8));
                    let read = bits.take(u32::try_from(to - from).ok()?)? << (from - 8 * byte);
                    let at = if *is_big_endian { size - 1 - byte } else { byte };
                    *place.get_mut(at)? = u8::try_from(read).ok()?;
                }
            }
            Self::Array { base, .. } => {
                place.chunks_exact_mut(base.size()).try_for_each(|place| base.unpack(bits, place))?;
            }
            Self::Members { members, .. } => {
                for (offset, member) in members {
                    member.unpack(bits, place.get_mut(*offset..offset + member.size())?)?;
                }
            }
            Self::Plain { .. } => {
                for byte in place {
                    *byte = u8::try_from(bits.take(8)?).ok()?;
                }
            }
        }
        Some(())
    }
}

/// False where the parameters describe an invalid type.
pub(super) fn is_possible(parameters: &[u32]) -> bool {
    // The number of parameters, a flag for unpacked elements, the number of elements, the type.
    match parameters {
        [_, 0, _, of_type @ ..] => Packed::parse(&mut of_type.iter(), 0).is_some(),
        // Unpacked elements; or too few parameters, which `unpack` rejects.
        _ => true,
    }
}

/// Unpacks `packed` to at most `most` bytes; `None` where it is damaged.
pub(super) fn unpack(packed: Vec<u8>, parameters: &[u32], most: usize) -> Option<Vec<u8>> {
    let [len, is_plain, count, of_type @ ..] = parameters else { return None };
    if usize::try_from(*len).ok()? != parameters.len() {
        return None;
    }
    if *is_plain != 0 {
        return Some(packed);
    }
    let element = Packed::parse(&mut of_type.iter(), 0)?;
    let len = element.size().checked_mul(usize::try_from(*count).ok()?).filter(|&len| len <= most)?;
    let (mut bits, mut bytes) = (Bits::new(&packed), vec![0; len]);
    bytes.chunks_exact_mut(element.size()).try_for_each(|place| element.unpack(&mut bits, place))?;
    Some(bytes)
}
