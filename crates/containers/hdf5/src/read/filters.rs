//! Which filters can be undone, and what their parameters may ask for.

use super::bytes::Reader;
use super::file::fault;
use super::types::Padding;
use hdf5_reader::filters::{
    FILTER_DEFLATE, FILTER_FLETCHER32, FILTER_NBIT, FILTER_SCALEOFFSET, FILTER_SHUFFLE, FILTER_SZIP,
    apply_pipeline_with_limit,
};
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use weighbridge_core::error::{Error, Result};

/// The filters of the format itself, all of which can be undone: deflate, shuffle, fletcher32, szip, nbit, scale-offset.
const KNOWN: std::ops::RangeInclusive<u16> = FILTER_DEFLATE..=FILTER_SCALEOFFSET;
/// The filter lzf, which h5py brings along.
pub const FILTER_LZF: u16 = 32000;
/// Filters in one dataset.
const MOST: u8 = 32;
/// The first number of filters that are not of the format itself.
const FIRST_FOREIGN: u16 = 256;
/// Types within types in the parameters of nbit, as of all types of HDF5.
const DEEPEST: u32 = 16;
/// Where the bytes of an element stand among the parameters of scale-offset.
const SCALED_SIZE: usize = 4;

/// Holds filters against what undoing them may cost, before a byte of a chunk is read.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`], code `hdf5-filter`, for filters that are not known, or that follow each other
/// in a way that no writer has use for; [`weighbridge_core::Kind::Corrupt`] for parameters that cannot be.
pub(super) fn check(filters: &[FilterDescription], size: u32) -> Result<()> {
    for (place, filter) in filters.iter().enumerate() {
        if !KNOWN.contains(&filter.id) && filter.id != FILTER_LZF {
            let name = filter.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
            return Err(Error::unsupported(
                "hdf5-filter",
                "HDF5: chunks are packed in a way that is not known here",
            )
            .found(format_args!("filter {}{name}", filter.id))
            .hint("write the file again with gzip, or without compression"));
        }
        let later = filters.get(place + 1..).unwrap_or_default();
        // Packed twice, a few bytes would be a million times as many, and shuffling goes through all of them
        // each time. How long szip makes its input is not known, so what is undone before it has no bound.
        let odd = later.iter().any(|later| {
            later.id == filter.id || (filter.id == FILTER_SZIP && later.id != FILTER_FLETCHER32)
        });
        if odd {
            let ids: Vec<u16> = filters.iter().map(|filter| filter.id).take(8).collect();
            return Err(Error::unsupported(
                "hdf5-filter",
                "HDF5: filters follow each other in a way that is not known here",
            )
            .expected("each filter once, and nothing but a checksum after szip")
            .found(format_args!("filters {ids:?}"))
            .hint("write the file again with gzip, or without compression"));
        }
        let possible = match filter.id {
            FILTER_DEFLATE => matches!(filter.client_data[..], [0..=9]),
            FILTER_SHUFFLE => filter.client_data == [size],
            FILTER_NBIT => nbit(&filter.client_data),
            FILTER_SCALEOFFSET => filter.client_data.get(SCALED_SIZE) != Some(&0),
            _ => true,
        };
        if !possible {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: the parameters of a filter describe no elements that there can be",
            )
            .expected(format_args!(
                "a level of deflate up to 9, shuffled elements of {size} bytes; of nbit types of a byte at least, members \
                 side by side, {DEEPEST} within each other at most"
            ))
            .found(format_args!("filter {}", filter.id)));
        }
    }
    Ok(())
}

/// Undoes `filters` but for those in `mask`, in a chunk of `len` bytes with elements of `size` bytes.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] where the bytes are damaged.
pub(super) fn undo(
    packed: Vec<u8>,
    filters: &[FilterDescription],
    mask: u32,
    size: usize,
    len: usize,
) -> Result<Vec<u8>> {
    let mut bytes = packed;
    for (place, filter) in filters.iter().enumerate().rev() {
        if (mask >> place) & 1 != 0 {
            continue;
        }
        // With the checksums that follow the elements.
        let most = len.saturating_add(4 * filters.len());
        bytes = match filter.id {
            FILTER_DEFLATE => inflate(&bytes, most)?,
            FILTER_LZF => super::lzf::unpack(&bytes, most)?,
            _ => {
                let most = most.max(bytes.len());
                apply_pipeline_with_limit(&bytes, std::slice::from_ref(filter), 0, size, None, Some(most))
                    .map_err(fault)?
            }
        };
    }
    Ok(bytes)
}

/// Inflates a stream of zlib that ends, with its checksum, in `packed`.
fn inflate(packed: &[u8], most: usize) -> Result<Vec<u8>> {
    let bad = |why: &str| {
        Error::corrupt("hdf5-chunk", format!("HDF5: a chunk cannot be unpacked (deflate): {why}"))
    };
    let mut stream = flate2::Decompress::new(true);
    // No more than a thousand bytes are made of one; and room for what ends the stream.
    let room = most.min(packed.len().saturating_mul(1032)).saturating_add(64);
    let mut bytes = Vec::with_capacity(room);
    let status = stream.decompress_vec(packed, &mut bytes, flate2::FlushDecompress::Finish);
    match status.map_err(|error| bad(&error.to_string()))? {
        flate2::Status::StreamEnd => Ok(bytes),
        _ if bytes.len() > most => Err(bad("it is longer than it should be")),
        _ => Err(bad("it does not end")),
    }
}

/// Reads a filter pipeline message.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for what the original refuses; [`weighbridge_core::Kind::Unsupported`] for unknown versions.
pub(super) fn parse(mut reader: Reader<'_>) -> Result<Vec<FilterDescription>> {
    let (version, count) = (reader.u8()?, reader.u8()?);
    if !(1..=2).contains(&version) {
        let text = "HDF5: a list of filters of unknown version";
        return Err(Error::unsupported("hdf5-unsupported", text).found(version));
    }
    if count > MOST {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: too many filters")
            .expected(format_args!("at most {MOST}"))
            .found(count));
    }
    reader.skip(if version == 1 { 6 } else { 0 })?;
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = reader.u16()?;
        // Those of the format itself have no name in later versions.
        let len = if version == 1 || id >= FIRST_FOREIGN { usize::from(reader.u16()?) } else { 0 };
        reader.skip(2)?;
        let parameters = reader.u16()?;
        if version == 1 && len % 8 != 0 {
            let text = "HDF5: the name of a filter does not end at a multiple of 8 bytes";
            return Err(Error::corrupt("hdf5-corrupt", text).found(len));
        }
        let name = reader.take(len)?;
        let name = (len > 0).then(|| String::from_utf8_lossy(Padding::Terminated.trim(name)).into_owned());
        let client_data = (0..parameters).map(|_| reader.u32()).collect::<Result<Vec<_>>>()?;
        if version == 1 && parameters % 2 != 0 {
            reader.skip(4)?;
        }
        filters.push(FilterDescription { id, name, client_data });
    }
    Ok(filters)
}

/// False where the parameters of nbit describe a type that cannot be.
fn nbit(parameters: &[u32]) -> bool {
    // Their number, whether nothing is packed, the number of elements, the type.
    match parameters {
        [_, 0, _, of_type @ ..] => nbit_type(&mut of_type.iter(), DEEPEST).is_some(),
        // Nothing is packed, or too few of them: that is seen before any of them is used.
        _ => true,
    }
}

/// The bytes of a type of nbit: at least one, so that as many bytes as a chunk has bound the steps of
/// unpacking it.
fn nbit_type(parameters: &mut std::slice::Iter<'_, u32>, depth: u32) -> Option<u32> {
    let depth = depth.checked_sub(1)?;
    let (class, size) = (*parameters.next()?, *parameters.next()?);
    match class {
        // A number: order, bits, the first of them.
        1 => (0..3).try_for_each(|_| parameters.next().map(|_| ()))?,
        // An array.
        2 => nbit_type(parameters, depth).filter(|&base| base <= size).map(|_| ())?,
        // Members, each with its offset; members over each other would be unpacked each.
        3 => {
            let (count, mut all) = (*parameters.next()?, 0u32);
            for _ in 0..count {
                parameters.next()?;
                all = all.checked_add(nbit_type(parameters, depth)?).filter(|&all| all <= size)?;
            }
        }
        // Bytes as they are.
        4 => {}
        _ => return None,
    }
    (size > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(id: u16, client_data: &[u32]) -> FilterDescription {
        FilterDescription { id, name: None, client_data: client_data.to_vec() }
    }

    fn code(filters: &[FilterDescription]) -> &'static str {
        check(filters, 4).map_or_else(|error| error.code().as_str(), |()| "fits")
    }

    #[test]
    fn filters_that_multiply_are_refused() {
        let [deflate, shuffle, sum, szip] =
            [(1, &[6][..]), (2, &[4]), (3, &[]), (4, &[])].map(|(id, data)| filter(id, data));
        let all = |filters: &[&FilterDescription]| filters.iter().map(|&f| f.clone()).collect::<Vec<_>>();
        assert_eq!(code(&all(&[&shuffle, &deflate, &sum])), "fits");
        assert_eq!(code(&all(&[&shuffle, &szip, &sum])), "fits");
        assert_eq!(code(&all(&[&szip, &deflate])), "hdf5-filter");
        assert_eq!(code(&all(&[&deflate, &deflate])), "hdf5-filter");
        assert_eq!(code(&all(&[&shuffle, &deflate, &shuffle])), "hdf5-filter");
        assert_eq!(code(&[filter(40000, &[])]), "hdf5-filter");
        assert_eq!((code(&[filter(1, &[10])]), code(&[filter(2, &[8])])), ("hdf5-corrupt", "hdf5-corrupt"));
    }

    #[test]
    fn parameters_that_cannot_be_are_refused() {
        let nbit = |of_type: &[u32]| code(&[filter(5, &[&[0, 0, 7][..], of_type].concat())]);
        assert_eq!(nbit(&[1, 4, 0, 17, 3]), "fits");
        assert_eq!(nbit(&[3, 6, 2, 0, 2, 4, 1, 2, 0, 10, 0, 4, 4, 2]), "fits");
        // As many members as there are numbers, without memory for them.
        assert_eq!(nbit(&[3, 4, u32::MAX]), "hdf5-corrupt");
        // Elements and members of no size, members over each other.
        for none in
            [&[3, 0, 0][..], &[4, 0], &[3, 4, 1, 0, 4, 0], &[3, 4, 2, 0, 4, 4, 0, 4, 1], &[2, 4, 4, 0]]
        {
            assert_eq!(nbit(none), "hdf5-corrupt", "{none:?}");
        }
        let nested = |levels| nbit(&[[2, 4].repeat(levels), vec![4, 4]].concat());
        assert_eq!((nested(15), nested(16), nested(100_000)), ("fits", "hdf5-corrupt", "hdf5-corrupt"));
        assert_eq!(code(&[filter(6, &[2, 0, 9, 0, 0, 0])]), "hdf5-corrupt");
        // Nothing is packed.
        assert_eq!(code(&[filter(5, &[2, 1])]), "fits");
        assert_eq!(code(&[filter(5, &[3, 1, 9])]), "fits");
    }
}
