//! The superblock and its extension: what the original checks before it opens a file, and metadata that the writer left
//! in an image of its cache instead of at its place.

use super::file::{File, Place};
use super::header::{Header, Payload};
use hdf5_reader::StorageBuffer;
use hdf5_reader::messages::MSG_BTREE_K;
use std::ops::Range;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;

/// The message that says how free room is managed, and where it is listed.
const FILE_SPACE: u16 = 0x17;
/// The message that says where the image of the cache is.
const CACHE_IMAGE: u16 = 0x18;
/// Flags of the superblock: opened for writing, written by one process while others read.
const FOR_WRITING: u32 = 1;
const WHILE_READ: u32 = 4;
/// All flags that there are.
const FLAGS: u32 = 7;
/// Half the number of children of a node in an index of chunks, where the file does not say it.
const CHUNK_HALF: u16 = 32;
/// Half the number of entries of a leaf, and of children of a node, of a group, where the file does not say it.
const LEAF_HALF: u16 = 4;
const NODE_HALF: u16 = 16;

/// Half the number of entries that there is room for in nodes of each kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halves {
    pub(super) leaf: u16,
    pub(super) node: u16,
    pub(super) chunk: u16,
}

/// What the superblock says beside the addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Where the superblock was when the file was written.
    pub(super) base: u64,
    /// The three versions in a superblock of the first kind, and its two sizes of nodes of groups.
    versions: [u8; 3],
    pub(super) halves: Halves,
    /// The place that only later superblocks have something at.
    reserved: u64,
    /// The kind of the entry of the root group.
    root_cache: u32,
}

impl Head {
    /// Reads the fields of the superblock in `bytes`.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Corrupt`] where they end too early.
    pub(super) fn parse(version: u8, mut reader: super::bytes::Reader<'_>) -> Result<Self> {
        let mut halves = Halves { leaf: LEAF_HALF, node: NODE_HALF, chunk: CHUNK_HALF };
        reader.skip(9)?;
        if version > 1 {
            reader.skip(3)?;
            let base = reader.offset()?;
            return Ok(Self { base, versions: [0; 3], halves, reserved: u64::MAX, root_cache: 0 });
        }
        let (free, root) = (reader.u8()?, reader.u8()?);
        reader.skip(1)?;
        let versions = [free, root, reader.u8()?];
        reader.skip(3)?;
        (halves.leaf, halves.node) = (reader.u16()?, reader.u16()?);
        reader.skip(4)?;
        if version == 1 {
            halves.chunk = reader.u16()?;
            reader.skip(2)?;
        }
        let (base, reserved) = (reader.offset()?, reader.offset()?);
        for _ in 0..4 {
            reader.offset()?;
        }
        Ok(Self { base, versions, halves, reserved, root_cache: reader.u32()? })
    }
}

/// True where the file was not closed by the program that wrote it.
pub(super) fn is_open(place: &Place) -> bool {
    place.superblock.version >= 3 && place.superblock.consistency_flags & (FOR_WRITING | WHILE_READ) != 0
}

/// Checks the superblock and its extension as the original does when it opens a file.
///
/// # Errors
/// [`weighbridge_core::Kind::Corrupt`] for what the original refuses; [`weighbridge_core::Kind::Unsupported`] for files in several parts.
pub(super) fn check(file: &File) -> Result<()> {
    let place = &file.place;
    let (block, head) = (&place.superblock, &place.head);
    let bad = |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(0);
    if block.consistency_flags & !FLAGS != 0 {
        return Err(bad("unknown flags in the superblock").found(block.consistency_flags));
    }
    if head.versions != [0; 3] {
        let found = format!("{:?}", head.versions);
        return Err(bad("versions in the superblock that there are none of").found(found));
    }
    if head.halves.leaf == 0 || head.halves.node == 0 || head.halves.chunk == 0 {
        return Err(bad("nodes that have no room for entries"));
    }
    if head.reserved != u64::MAX {
        return Err(
            bad("the superblock leads to something that only later versions have").found(head.reserved)
        );
    }
    if head.root_cache > 2 {
        return Err(bad("an unknown kind of entry for the root group").found(head.root_cache));
    }
    if block.version < 2 && !undefined(file, block.driver_info_address) {
        let text = "HDF5: a file that a special driver wrote, perhaps in several parts";
        return Err(Error::unsupported("hdf5-driver", text)
            .at(block.driver_info_address)
            .hint("copy it into one file with h5repack"));
    }
    let Some(header) = header(file)? else { return Ok(()) };
    halves(file, &header)?;
    free_room(file, &header)?;
    read_image(file, &header).map(drop)
}

/// What the extension changes: the sizes of nodes, the image of the cache. One that cannot be read changes nothing;
/// [`check`] says why.
pub(super) fn changes(file: &File) -> (Halves, Image) {
    let header = header(file).ok().flatten();
    let halves = header.as_ref().and_then(|header| halves(file, header).ok().flatten());
    let image = header.as_ref().and_then(|header| read_image(file, header).ok());
    (halves.unwrap_or(file.place.head.halves), image.unwrap_or_default())
}

fn undefined(file: &File, address: u64) -> bool {
    hdf5_reader::io::Cursor::is_undefined_offset(address, file.offset_size())
}

/// The header of the extension, where there is one.
fn header(file: &File) -> Result<Option<Header>> {
    let address = file.place.superblock.extension_address.filter(|&address| !undefined(file, address));
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
    let Some(message) = header.first(file, MSG_BTREE_K)? else { return Ok(None) };
    let mut reader = file.place.reader(&message);
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
    let Some(message) = header.first(file, FILE_SPACE)? else { return Ok(()) };
    let mut reader = file.place.reader(&message);
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

/// Metadata in an image of the writer's cache instead of at its place.
#[derive(Default)]
pub(super) struct Image {
    bytes: Option<StorageBuffer>,
    /// By address, none over another.
    entries: Vec<Entry>,
    /// Where the image is in the file, and its length.
    pub(super) place: Range<u64>,
}

struct Entry {
    /// Where the bytes belong.
    address: u64,
    /// Where they are in the image.
    range: Range<usize>,
}

impl Entry {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.range.len() as u64)
    }
}

impl Image {
    /// `read`, which was read at `address`, with the bytes of the image in it; `None` where there are none.
    pub(super) fn patched(&self, address: u64, read: &[u8]) -> Option<Vec<u8>> {
        let end = address.saturating_add(read.len() as u64);
        let first = self.entries.partition_point(|entry| entry.end() <= address);
        let mut patched = None;
        for entry in self.entries.get(first..)?.iter().take_while(|entry| entry.address < end) {
            let bytes = self.bytes.as_deref()?.get(entry.range.clone())?;
            let (from, to) = (address.max(entry.address), end.min(entry.end()));
            let at = |start: u64| usize::try_from(from - start).ok();
            let len = usize::try_from(to - from).ok()?;
            let (source, target) = (at(entry.address)?, at(address)?);
            let patched = patched.get_or_insert_with(|| read.to_vec());
            patched.get_mut(target..target + len)?.copy_from_slice(bytes.get(source..source + len)?);
        }
        patched
    }

    /// Where in the file the byte is that belongs at `address`.
    pub(super) fn place_of(&self, address: u64) -> u64 {
        let found = self.entries.iter().find(|entry| (entry.address..entry.end()).contains(&address));
        found.map_or(address, |entry| self.place.start + entry.range.start as u64 + (address - entry.address))
    }
}

/// The image that the extension leads to; an empty one where it leads to none.
fn read_image(file: &File, header: &Header) -> Result<Image> {
    let Some(message) = header.first(file, CACHE_IMAGE)? else { return Ok(Image::default()) };
    let mut reader = file.place.reader(&message);
    version_0(&message, reader.u8()?, "an image of the cache")?;
    let (address, len) = (reader.offset()?, reader.length()?);
    if address == u64::MAX {
        return Ok(Image::default());
    }
    Limits::check("bytes in an image of the cache", "header_bytes", len, file.place.limits.header_bytes)?;
    let bytes = file.bytes_as("hdf5 image of the cache", address, len)?;
    let bad = |text: &str| Error::corrupt("hdf5-corrupt", format!("HDF5: {text}")).at(address);
    let Some((body, sum)) = bytes.split_last_chunk::<4>() else {
        return Err(bad("an image of the cache is too short"));
    };
    if hdf5_reader::checksum::jenkins_lookup3(body) != u32::from_le_bytes(*sum) {
        let text = "HDF5: the image of the cache does not match its checksum";
        return Err(Error::corrupt("hdf5-checksum", text).at(address));
    }
    let mut reader = file.place.reader(body);
    if reader.take(4)? != b"MDCI" || reader.u8()? != 0 {
        return Err(bad("an image of the cache has lost its mark"));
    }
    reader.skip(1)?;
    reader.length()?;
    let count = reader.u32()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        // Kind, flags, ring, age, two counts of children.
        reader.skip(8)?;
        let parents = reader.u16()?;
        reader.skip(4)?;
        let (address, len) = (reader.offset()?, weighbridge_io::source::to_usize(reader.length()?)?);
        for _ in 0..parents {
            reader.offset()?;
        }
        let at = reader.at();
        reader.skip(len)?;
        entries.push(Entry { address, range: at..at + len });
    }
    entries.sort_by_key(|entry| entry.address);
    if entries.windows(2).any(|pair| pair[0].end() > pair[1].address) {
        return Err(bad("an image of the cache has two entries for one place"));
    }
    let end = address.saturating_add(len);
    Ok(Image { bytes: Some(bytes), entries, place: address..end })
}
