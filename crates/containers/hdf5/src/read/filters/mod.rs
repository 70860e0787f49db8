//! Supported filters, and bounds on their parameters.

mod bits;
mod lzf;
mod nbit;
mod scaled;
mod szip;

use super::bytes::Reader;
use super::sums;
use super::types::Padding;
use weighbridge_core::error::{Error, Result};

/// Ids of the filters defined by HDF5.
const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
const SZIP: u16 = 4;
const NBIT: u16 = 5;
const SCALE_OFFSET: u16 = 6;
/// Id of the filter lzf, which h5py includes.
pub const FILTER_LZF: u16 = 32000;
/// Maximum number of filters of a dataset.
const MAX_FILTERS: u8 = 32;
/// First id of registered filters, which HDF5 does not define.
const FIRST_REGISTERED: u16 = 256;
/// Index of the element size among the parameters of scale-offset.
const SCALE_OFFSET_SIZE: usize = 4;

/// A filter of a dataset.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    pub(super) id: u16,
    pub(super) name: Option<String>,
    pub(super) parameters: Vec<u32>,
}

/// Checks the filters and their parameters, which bound the cost of undoing them, before a chunk is read.
///
/// # Errors
/// [`weighbridge_core::Kind::Unsupported`], code `hdf5-filter`, for unsupported filters, or unsupported
/// sequences of filters; [`weighbridge_core::Kind::Corrupt`] for invalid parameters.
pub(super) fn check(filters: &[Filter], size: u32) -> Result<()> {
    for (place, filter) in filters.iter().enumerate() {
        if !(DEFLATE..=SCALE_OFFSET).contains(&filter.id) && filter.id != FILTER_LZF {
            let name = filter.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
            return Err(Error::unsupported("hdf5-filter", "HDF5: the dataset uses an unsupported filter")
                .found(format_args!("filter {}{name}", filter.id))
                .hint("rewrite the file with gzip, or without compression, for example with h5repack"));
        }
        let later = filters.get(place + 1..).unwrap_or_default();
        // Packed twice, a few bytes expand a million times, and every shuffle passes over all of them.
        // The output length of szip is unknown, so filters undone before it have no bound.
        let odd =
            later.iter().any(|later| later.id == filter.id || (filter.id == SZIP && later.id != FLETCHER32));
        if odd {
            let ids: Vec<u16> = filters.iter().map(|filter| filter.id).take(8).collect();
            return Err(Error::unsupported(
                "hdf5-filter",
                "HDF5: the dataset uses an unsupported sequence of filters",
            )
            .expected("each filter once, and only a checksum after szip")
            .found(format_args!("filters {ids:?}"))
            .hint("rewrite the file with gzip, or without compression, for example with h5repack"));
        }
        let possible = match filter.id {
            DEFLATE => matches!(filter.parameters[..], [0..=9]),
            SHUFFLE => filter.parameters == [size],
            NBIT => nbit::is_possible(&filter.parameters),
            SCALE_OFFSET => filter.parameters.get(SCALE_OFFSET_SIZE) != Some(&0),
            _ => true,
        };
        if !possible {
            return Err(Error::corrupt(
                "hdf5-corrupt",
                "HDF5: the filter has invalid parameters",
            )
            .expected(format_args!(
                "deflate: a level up to 9; shuffle: elements of {size} bytes; nbit: types of at least one byte, members without \
                 overlaps"
            ))
            .found(format_args!("filter {}", filter.id)));
        }
    }
    Ok(())
}

/// Undoes `filters`, except those in `mask`, for a chunk of `len` bytes with elements of `size` bytes.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] where the bytes are damaged.
pub(super) fn undo(
    packed: Vec<u8>,
    filters: &[Filter],
    mask: u32,
    size: usize,
    len: usize,
) -> Result<Vec<u8>> {
    let mut bytes = packed;
    for (place, filter) in filters.iter().enumerate().rev() {
        if (mask >> place) & 1 != 0 {
            continue;
        }
        // Including the checksums behind the elements.
        let most = len.saturating_add(4 * filters.len());
        let bad = |name: &str| {
            Error::corrupt("hdf5-chunk", format!("HDF5: the chunk cannot be unpacked (filter {name})"))
        };
        let parameters = &filter.parameters;
        bytes = match filter.id {
            DEFLATE => inflate(&bytes, most)?,
            FILTER_LZF => lzf::unpack(&bytes, most)?,
            SHUFFLE => unshuffle(&bytes, size),
            FLETCHER32 => {
                let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| bad("fletcher32"))?;
                if sums::fletcher32(body) != u32::from_le_bytes(*sum) {
                    let text = "HDF5: the chunk does not match its checksum";
                    return Err(Error::corrupt("hdf5-checksum", text));
                }
                bytes.truncate(bytes.len() - 4);
                bytes
            }
            SZIP => szip::unpack(&bytes, parameters, most).ok_or_else(|| bad("szip"))?,
            NBIT => nbit::unpack(bytes, parameters, most).ok_or_else(|| bad("nbit"))?,
            _ => scaled::unpack(bytes, parameters, most).ok_or_else(|| bad("scale-offset"))?,
        };
    }
    Ok(bytes)
}

/// Undoes the shuffle of elements of `size` bytes: the input has the first bytes of all elements, then the second ones, and
/// so on. A trailing partial element stays unchanged.
fn unshuffle(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    let count = bytes.len() / size.max(1);
    for (number, element) in whole.chunks_exact_mut(size.max(1)).enumerate() {
        for (place, byte) in element.iter_mut().enumerate() {
            *byte = bytes[place * count + number];
        }
    }
    whole
}

/// Inflates `packed`, a complete zlib stream with its checksum.
fn inflate(packed: &[u8], most: usize) -> Result<Vec<u8>> {
    let bad = |why: &str| {
        Error::corrupt("hdf5-chunk", format!("HDF5: the chunk cannot be unpacked (filter deflate): {why}"))
    };
    let mut stream = flate2::Decompress::new(true);
    // Deflate expands a byte to at most 1032; the rest is space for the end of the stream.
    let room = most.min(packed.len().saturating_mul(1032)).saturating_add(64);
    let mut bytes = Vec::with_capacity(room);
    let status = stream.decompress_vec(packed, &mut bytes, flate2::FlushDecompress::Finish);
    match status.map_err(|error| bad(&error.to_string()))? {
        flate2::Status::StreamEnd => Ok(bytes),
        _ if bytes.len() > most => Err(bad("the output is too long")),
        _ => Err(bad("the stream is cut short")),
    }
}

/// Reads a filter pipeline message.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for messages that the HDF5 library rejects;
/// [`weighbridge_core::Kind::Unsupported`] for unknown versions.
pub(super) fn parse(mut reader: Reader<'_>) -> Result<Vec<Filter>> {
    let (version, count) = (reader.u8()?, reader.u8()?);
    if !(1..=2).contains(&version) {
        let text = "HDF5: the filter message has an unsupported version";
        return Err(Error::unsupported("hdf5-unsupported", text).found(version));
    }
    if count > MAX_FILTERS {
        return Err(Error::corrupt("hdf5-corrupt", "HDF5: the dataset has too many filters")
            .expected(format_args!("at most {MAX_FILTERS}"))
            .found(count));
    }
    reader.skip(if version == 1 { 6 } else { 0 })?;
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = reader.u16()?;
        // In version 2 the filters defined by HDF5 have no name.
        let len = if version == 1 || id >= FIRST_REGISTERED { usize::from(reader.u16()?) } else { 0 };
        reader.skip(2)?;
        let count = reader.u16()?;
        if version == 1 && len % 8 != 0 {
            let text = "HDF5: the length of a filter name is not a multiple of 8";
            return Err(Error::corrupt("hdf5-corrupt", text).found(len));
        }
        let name = reader.take(len)?;
        let name = (len > 0).then(|| String::from_utf8_lossy(Padding::Terminated.trim(name)).into_owned());
        let parameters = (0..count).map(|_| reader.u32()).collect::<Result<Vec<_>>>()?;
        if version == 1 && count % 2 != 0 {
            reader.skip(4)?;
        }
        filters.push(Filter { id, name, parameters });
    }
    Ok(filters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(id: u16, parameters: &[u32]) -> Filter {
        Filter { id, name: None, parameters: parameters.to_vec() }
    }

    fn code(filters: &[Filter]) -> &'static str {
        check(filters, 4).map_or_else(|error| error.code().as_str(), |()| "fits")
    }

    #[test]
    fn rejects_filter_sequences_that_multiply_the_output() {
        let [deflate, shuffle, sum, szip] =
            [(1, &[6][..]), (2, &[4]), (3, &[]), (4, &[])].map(|(id, data)| filter(id, data));
        let all = |filters: &[&Filter]| filters.iter().map(|&f| f.clone()).collect::<Vec<_>>();
        assert_eq!(code(&all(&[&shuffle, &deflate, &sum])), "fits");
        assert_eq!(code(&all(&[&shuffle, &szip, &sum])), "fits");
        assert_eq!(code(&all(&[&szip, &deflate])), "hdf5-filter");
        assert_eq!(code(&all(&[&deflate, &deflate])), "hdf5-filter");
        assert_eq!(code(&all(&[&shuffle, &deflate, &shuffle])), "hdf5-filter");
        assert_eq!(code(&[filter(40000, &[])]), "hdf5-filter");
        assert_eq!((code(&[filter(1, &[10])]), code(&[filter(2, &[8])])), ("hdf5-corrupt", "hdf5-corrupt"));
    }

    #[test]
    fn rejects_invalid_filter_parameters() {
        let nbit = |of_type: &[u32]| code(&[filter(5, &[&[0, 0, 7][..], of_type].concat())]);
        assert_eq!(nbit(&[1, 4, 0, 17, 3]), "fits");
        assert_eq!(nbit(&[3, 6, 2, 0, 2, 4, 1, 2, 0, 10, 0, 4, 4, 2]), "fits");
        // A huge number of members must not allocate memory.
        assert_eq!(nbit(&[3, 4, u32::MAX]), "hdf5-corrupt");
        // Empty elements and members, overlapping members.
        for none in
            [&[3, 0, 0][..], &[4, 0], &[3, 4, 1, 0, 4, 0], &[3, 4, 2, 0, 4, 4, 0, 4, 1], &[2, 4, 4, 0]]
        {
            assert_eq!(nbit(none), "hdf5-corrupt", "{none:?}");
        }
        let nested = |levels| nbit(&[[2, 4].repeat(levels), vec![4, 4]].concat());
        assert_eq!((nested(128), nested(129), nested(100_000)), ("fits", "hdf5-corrupt", "hdf5-corrupt"));
        assert_eq!(code(&[filter(6, &[2, 0, 9, 0, 0, 0])]), "hdf5-corrupt");
        // Parameters of unpacked elements.
        assert_eq!(code(&[filter(5, &[2, 1])]), "fits");
        assert_eq!(code(&[filter(5, &[3, 1, 9])]), "fits");
    }
}
