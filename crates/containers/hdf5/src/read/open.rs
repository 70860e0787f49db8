//! Opening a file: the superblock and its extension, checked as the original checks them before it opens a file.

use super::file::{Address, File};
use super::header::{About, Header, Payload};
use super::image::Image;
use super::sources::Sources;
use super::superblock::{Halves, Superblock};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_io::source::SourceRef;

/// Flags of the superblock: opened for writing, written by one process while others read.
const FOR_WRITING: u32 = 1;
const WHILE_READ: u32 = 4;
/// All flags that there are.
const FLAGS: u32 = 7;
/// Finds the file in `source`; virtual datasets are followed to the files of `sources`.
///
/// # Errors
/// Those of [`Superblock::find`].
pub(super) fn find(
    source: &SourceRef,
    limits: &Limits,
    sources: Option<Arc<dyn Sources>>,
) -> Result<Arc<Address>> {
    let superblock = Superblock::find(source).map_err(|error| error.in_file(source.label()))?;
    let mut place = Arc::new(Address::new(source, superblock, limits, sources)?);
    // An extension that cannot be read changes nothing; `check` says why.
    let file = place.open();
    if let Ok(Some(header)) = header(&file) {
        let (sizes, found) = (halves(&file, &header), read_image(&file, &header));
        drop(file);
        if let Some(place) = Arc::get_mut(&mut place) {
            place.halves = sizes.ok().flatten().unwrap_or(place.halves);
            place.image = found.unwrap_or_default();
        }
    }
    Ok(place)
}

/// True where the file was not closed by the program that wrote it.
pub(super) fn is_open(place: &Address) -> bool {
    place.superblock.version >= 3 && place.superblock.flags & (FOR_WRITING | WHILE_READ) != 0
}

/// Checks the superblock and its extension as the original does when it opens a file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for what the original refuses; [`weighbridge_core::Kind::Unsupported`] for files in several parts.
pub(super) fn check(file: &File) -> Result<()> {
    let place = &file.place;
    let block = &place.superblock;
    let bad = |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(0);
    if block.flags & !FLAGS != 0 {
        return Err(bad("unknown flags in the superblock").found(block.flags));
    }
    if block.versions != [0; 3] {
        let found = format!("{:?}", block.versions);
        return Err(bad("versions in the superblock that there are none of").found(found));
    }
    if block.halves.leaf == 0 || block.halves.node == 0 || block.halves.chunk == 0 {
        return Err(bad("nodes that have no room for entries"));
    }
    if block.reserved != u64::MAX {
        return Err(
            bad("the superblock leads to something that only later versions have").found(block.reserved)
        );
    }
    if block.root_cache > 2 {
        return Err(bad("an unknown kind of entry for the root group").found(block.root_cache));
    }
    if block.driver != u64::MAX {
        let text = "HDF5: a file that a special driver wrote, perhaps in several parts";
        return Err(Error::unsupported("hdf5-driver", text)
            .at(block.driver)
            .hint("copy it into one file with h5repack"));
    }
    let Some(header) = header(file)? else { return Ok(()) };
    halves(file, &header)?;
    free_room(file, &header)?;
    read_image(file, &header).map(drop)
}

/// The header of the extension, where there is one.
fn header(file: &File) -> Result<Option<Header>> {
    let address = Some(file.place.superblock.extension).filter(|&address| address != u64::MAX);
    address.map(|address| Header::of_anything(file, address)).transpose()
}

fn version_0(message: &Payload, version: u8, what: &str) -> Result<()> {
    match version {
        0 => Ok(()),
        version => {
            let text = format!("HDF5: {what} of unknown version");
            Err(Error::unsupported("hdf5-unsupported", text).at(message.address).found(version))
        }
    }
}

fn halves(file: &File, header: &Header) -> Result<Option<Halves>> {
    let Some(message) = header.first(file, About::NodeSizes)? else { return Ok(None) };
    let mut reader = file.reader(&message);
    version_0(&message, reader.u8()?, "sizes of nodes")?;
    let (chunk, node, leaf) = (reader.u16()?, reader.u16()?, reader.u16()?);
    if chunk == 0 || node == 0 || leaf == 0 {
        let text = "HDF5: nodes that have no room for entries";
        return Err(Error::corrupt("hdf5-corrupt", text).at(message.address));
    }
    Ok(Some(Halves { leaf, node, chunk }))
}

/// Checks the lists of free room that the file keeps.
fn free_room(file: &File, header: &Header) -> Result<()> {
    let Some(message) = header.first(file, About::FileSpace)? else { return Ok(()) };
    let mut reader = file.reader(&message);
    let (version, strategy) = (reader.u8()?, reader.u8()?);
    // How many lists there are, one for each kind of bytes.
    let lists = match (version, strategy) {
        (0, 1) => 6,
        (0, 2..=4) => 0,
        (1, 0..=3) => 12 * usize::from(reader.u8()? != 0),
        _ => {
            let text = "HDF5: an unknown way to manage free room";
            let found = format!("version {version}, way {strategy}");
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
        super::free::check(file, reader.offset()?)?;
    }
    Ok(())
}

/// The image that the extension leads to; an empty one where it leads to none.
fn read_image(file: &File, header: &Header) -> Result<Image> {
    let Some(message) = header.first(file, About::CacheImage)? else { return Ok(Image::default()) };
    let mut reader = file.reader(&message);
    version_0(&message, reader.u8()?, "an image of the cache")?;
    let (address, len) = (reader.offset()?, reader.length()?);
    if address == u64::MAX {
        return Ok(Image::default());
    }
    Limits::check("bytes in an image of the cache", "header_bytes", len, file.place.limits.header_bytes)?;
    let bytes = file.bytes_as("hdf5 image of the cache", address, len)?;
    Image::parse(&bytes, address, |bytes| file.reader(bytes))
}
