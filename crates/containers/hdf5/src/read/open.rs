//! Opening a file: checks of the superblock and its extension, those of the HDF5 library.

use super::file::{File, FileContext};
use super::header::{Header, MessageType, Payload};
use super::image::Image;
use super::sources::Sources;
use super::superblock::{HalfCapacities, Superblock};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;

/// Flags of the superblock: open for writing, open for single-writer/multiple-reader access.
const FOR_WRITING: u32 = 1;
const WHILE_READ: u32 = 4;
/// All defined flags.
const FLAGS: u32 = 7;

/// Finds the superblock in `source`; virtual datasets read from the files of `sources`.
///
/// # Errors
/// Those of [`Superblock::find`].
pub(super) fn find(
    source: &SourceRef,
    limits: &Limits,
    sources: Option<Arc<dyn Sources>>,
) -> Result<Arc<FileContext>> {
    let superblock = Superblock::find(source).map_err(|error| error.in_file(source.label()))?;
    let mut place = Arc::new(FileContext::new(source, superblock, limits, sources)?);
    // An unreadable extension is ignored here; `check` reports it.
    let file = place.open();
    if let Ok(Some(header)) = header(&file) {
        let (sizes, found) = (half_capacities(&file, &header), read_image(&file, &header));
        drop(file);
        if let Some(place) = Arc::get_mut(&mut place) {
            place.half_capacities = sizes.ok().flatten().unwrap_or(place.half_capacities);
            place.image = found.unwrap_or_default();
        }
    }
    Ok(place)
}

/// True where the file is marked as open for writing.
pub(super) fn is_open(place: &FileContext) -> bool {
    place.superblock.version >= 3 && place.superblock.flags & (FOR_WRITING | WHILE_READ) != 0
}

/// Checks the superblock and its extension as the HDF5 library does when it opens a file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for files that the HDF5 library rejects;
/// [`weighbridge_core::Kind::Unsupported`] for files in several parts.
pub(super) fn check(file: &File) -> Result<()> {
    let place = &file.context;
    let block = &place.superblock;
    let bad = |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(0);
    if block.flags & !FLAGS != 0 {
        return Err(bad("the superblock has unknown flags").found(block.flags));
    }
    if block.versions != [0; 3] {
        let found = format!("{:?}", block.versions);
        return Err(bad("the superblock has unknown versions of its structures").found(found));
    }
    if block.half_capacities.leaf == 0 || block.half_capacities.node == 0 || block.half_capacities.chunk == 0
    {
        return Err(bad("the superblock states B-tree nodes without entries"));
    }
    if block.reserved != u64::MAX {
        return Err(bad("the superblock has the address of a structure that its version does not define")
            .found(block.reserved));
    }
    if block.root_cache > 2 {
        return Err(
            bad("the root group entry in the superblock has an unknown cache type").found(block.root_cache)
        );
    }
    if block.driver != u64::MAX {
        let text = "HDF5: the file was written by a special driver, perhaps in several parts";
        return Err(Error::unsupported("hdf5-driver", text)
            .at(block.driver)
            .hint("copy the file into a single one with h5repack"));
    }
    let Some(header) = header(file)? else { return Ok(()) };
    half_capacities(file, &header)?;
    free_space(file, &header)?;
    read_image(file, &header).map(drop)
}

/// Reads the header of the superblock extension, if any.
fn header(file: &File) -> Result<Option<Header>> {
    let address = Some(file.context.superblock.extension).filter(|&address| address != u64::MAX);
    address.map(|address| Header::of_anything(file, address)).transpose()
}

fn version_0(message: &Payload, version: u8, what: &str) -> Result<()> {
    match version {
        0 => Ok(()),
        version => {
            let text = format!("HDF5: the {what} has an unsupported version");
            Err(Error::unsupported("hdf5-unsupported", text).at(message.address).found(version))
        }
    }
}

fn half_capacities(file: &File, header: &Header) -> Result<Option<HalfCapacities>> {
    let Some(message) = header.first(file, MessageType::NodeSizes)? else { return Ok(None) };
    let mut reader = file.reader(&message);
    version_0(&message, reader.u8()?, "message about B-tree node sizes")?;
    let (chunk, node, leaf) = (reader.u16()?, reader.u16()?, reader.u16()?);
    if chunk == 0 || node == 0 || leaf == 0 {
        let text = "HDF5: the superblock extension states B-tree nodes without entries";
        return Err(Error::corrupt("hdf5-corrupt", text).at(message.address));
    }
    Ok(Some(HalfCapacities { leaf, node, chunk }))
}

/// Checks the free-space lists of the file.
fn free_space(file: &File, header: &Header) -> Result<()> {
    let Some(message) = header.first(file, MessageType::FileSpace)? else { return Ok(()) };
    let mut reader = file.reader(&message);
    let (version, strategy) = (reader.u8()?, reader.u8()?);
    // The number of lists, one for each kind of allocation.
    let lists = match (version, strategy) {
        (0, 1) => 6,
        (0, 2..=4) => 0,
        (1, 0..=3) => 12 * usize::from(reader.u8()? != 0),
        _ => {
            let text = "HDF5: the superblock extension has an unknown free-space strategy";
            let found = format!("version {version}, strategy {strategy}");
            return Err(Error::corrupt("hdf5-corrupt", text).at(message.address).found(found));
        }
    };
    reader.length()?;
    if version == 1 {
        reader.length()?;
        reader.skip(2)?;
        reader.offset()?;
    }
    for _ in 0..lists {
        super::free_space::check(file, reader.offset()?)?;
    }
    Ok(())
}

/// Reads the cache image of the extension; an empty one where there is none.
fn read_image(file: &File, header: &Header) -> Result<Image> {
    let Some(message) = header.first(file, MessageType::CacheImage)? else { return Ok(Image::default()) };
    let mut reader = file.reader(&message);
    version_0(&message, reader.u8()?, "cache image message")?;
    let (address, len) = (reader.offset()?, reader.length()?);
    if address == u64::MAX {
        return Ok(Image::default());
    }
    Limits::check("bytes in a cache image", "header_bytes", len, file.context.limits.header_bytes)?;
    let bytes = file.bytes_as("hdf5 cache image", address, len)?;
    Image::parse(&bytes, address, |bytes| file.reader(bytes))
}
