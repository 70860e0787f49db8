//! Views: elements of a tensor without a copy, where the layout in the file is the requested one.

use crate::source::{Map, MappedRange, PrivateMap, SourceRef, check_range};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weighbridge_core::checkpoint::TensorEntry;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::tensor::{Order, Region};

/// Open file with its map.
type Known = (SourceRef, Arc<Map>);

/// Maps of the files of a checkpoint, created with the first view into each file, if maps are guarded
/// ([`guard_maps`](crate::guard_maps)).
///
/// Use one for each opened checkpoint. A map lives as long as a view into it, also after this value is dropped.
#[derive(Debug, Default)]
pub struct Maps {
    /// Maps by the address of the open file, which the stored source keeps open.
    files: Mutex<HashMap<usize, Known>>,
}

/// Elements of a box of a tensor, dense and little-endian, in memory.
///
/// If they are mapped and another program writes to the file, they change; if it truncates the file, they read as
/// zeros, and [`check`](Self::check) fails.
#[derive(Debug, Clone)]
pub struct View {
    bytes: Bytes,
}

#[derive(Debug, Clone)]
enum Bytes {
    Mapped(MappedRange),
    // A vector, as `Arc<[u8]>` would copy the bytes again.
    Read(Arc<Vec<u8>>),
}

impl Maps {
    /// Creates an empty set of maps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the box `region` of `entry`, dense in `order`, in the entry's [`dtype`](TensorEntry::dtype): mapped if a file
    /// has it in this layout, else read.
    ///
    /// # Errors
    /// As [`TensorEntry::read_region`].
    pub fn view(&self, entry: &TensorEntry, region: &Region, order: Order) -> Result<View> {
        match self.mapped(entry, region, order)? {
            Some(view) => Ok(view),
            None => Ok(View { bytes: Bytes::Read(Arc::new(entry.read_region(region, order)?)) }),
        }
    }

    /// Same as [`view`](Self::view), but `None` where the box would have to be read instead of mapped.
    ///
    /// # Errors
    /// Fails where the file ends before the box does.
    pub fn mapped(&self, entry: &TensorEntry, region: &Region, order: Order) -> Result<Option<View>> {
        if let Some((extent, offset, len)) = entry.in_place(region, order) {
            check_range(&*extent.source, offset, len).map_err(|e| e.on_tensor(entry.name()))?;
            if let Some((map, start)) = self.map(&extent.source) {
                let part = start.checked_add(offset).and_then(|from| MappedRange::of(map, from, len));
                if part.is_some() {
                    return Ok(part.map(|part| View { bytes: Bytes::Mapped(part) }));
                }
            }
        }
        Ok(None)
    }

    /// Returns the map of the file of `source`, and the offset of the source in the file.
    fn map(&self, source: &SourceRef) -> Option<(Arc<Map>, u64)> {
        let range = source.file()?;
        let place = std::ptr::from_ref(range.file) as usize;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, map)) = files.get(&place) {
            return Some((map.clone(), range.offset));
        }
        // A failed map is retried later, as maps may be guarded then.
        let len = range.file.metadata().map_or(0, |metadata| metadata.len());
        let map = Arc::new(Map::of_later(range.file, 0, len)?);
        files.insert(place, (source.clone(), map.clone()));
        Some((map, range.offset))
    }
}

impl View {
    /// Returns the bytes; zeros where they were lost.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(part) => part.bytes(),
            Bytes::Read(bytes) => bytes,
        }
    }

    /// True where nothing was copied.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(..))
    }

    /// Fails where bytes of the file that were read were lost.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], `file-shrank`.
    pub fn check(&self) -> Result<()> {
        match &self.bytes {
            Bytes::Mapped(part) => part.intact(),
            Bytes::Read(_) => Ok(()),
        }
    }
}

/// Private, writable copy of the elements of a whole tensor: writes never reach the file. If the file has them in the
/// requested layout, pages are copied on the first write. If another program truncates the file, all pages beyond its
/// new end become zeros, also written ones, and [`check`](Self::check) fails.
#[derive(Debug)]
pub struct Private {
    bytes: PrivateBytes,
}

#[derive(Debug)]
enum PrivateBytes {
    Mapped(PrivateMap),
    Read(Vec<u8>),
}

impl Private {
    /// Maps or reads all of `entry`, dense in `order`, little-endian, in the entry's [`dtype`](TensorEntry::dtype).
    ///
    /// # Errors
    /// As [`TensorEntry::read_region`].
    pub fn of(entry: &TensorEntry, order: Order) -> Result<Self> {
        if let Some(mapped) = Self::mapped(entry, order)? {
            return Ok(mapped);
        }
        let whole = Region::whole(&entry.shape);
        Ok(Self { bytes: PrivateBytes::Read(entry.read_region(&whole, order)?) })
    }

    /// Same as [`of`](Self::of), but `None` where the elements would have to be read instead of mapped.
    ///
    /// # Errors
    /// Fails where the file ends before the elements do.
    pub fn mapped(entry: &TensorEntry, order: Order) -> Result<Option<Self>> {
        let whole = Region::whole(&entry.shape);
        if let Some((extent, offset, len)) = entry.in_place(&whole, order) {
            check_range(&*extent.source, offset, len).map_err(|e| e.on_tensor(entry.name()))?;
            if let Some(range) = extent.source.file()
                && let Some(place) = range.offset.checked_add(offset)
                && let Some(map) = PrivateMap::of(range.file, place, len)
            {
                return Ok(Some(Self { bytes: PrivateBytes::Mapped(map) }));
            }
        }
        Ok(None)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            PrivateBytes::Mapped(map) => map.bytes(),
            PrivateBytes::Read(bytes) => bytes,
        }
    }

    /// The bytes, writable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.bytes {
            PrivateBytes::Mapped(map) => map.bytes_mut(),
            PrivateBytes::Read(bytes) => bytes,
        }
    }

    /// Fails where bytes of the file that were read were lost.
    ///
    /// # Errors
    /// [`weighbridge_core::Kind::Io`], `file-shrank`.
    pub fn check(&self) -> Result<()> {
        match &self.bytes {
            PrivateBytes::Mapped(map) if map.lost() => Err(Error::shrank()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
mod tests {
    use super::*;
    use crate::source::FileSource;
    use std::io::Write;
    use weighbridge_core::checkpoint::TensorPath;
    use weighbridge_core::tensor::{DType, Encoding, Shape};

    fn table(len: usize) -> (tempfile::NamedTempFile, TensorEntry, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[9; 3]).unwrap();
        file.write_all(&bytes).unwrap();
        let source: SourceRef = Arc::new(FileSource::open(file.path()).unwrap());
        let shape = Shape::new([len as u64 / 64, 16]);
        let path = TensorPath::value();
        let entry = TensorEntry::dense(path, DType::F32, shape, &source, 3, Encoding::COLUMN).unwrap();
        (file, entry, bytes)
    }

    #[test]
    fn a_view_copies_nothing_and_outlives_its_checkpoint() {
        let _table = crate::source::guarded();
        let (file, entry, bytes) = table(64 << 10);
        let maps = Maps::new();
        let whole = Region::whole(&entry.shape);
        let view = maps.view(&entry, &whole, Order::Column).unwrap();
        let column = Region { start: vec![0, 3], shape: vec![1024, 1] };
        let part = maps.view(&entry, &column, Order::Row).unwrap();
        assert!(view.is_mapped() && part.is_mapped());
        let turned = maps.view(&entry, &whole, Order::Row).unwrap();
        assert!(!turned.is_mapped());
        assert_eq!(turned.bytes(), entry.read_region(&whole, Order::Row).unwrap());
        assert!(maps.mapped(&entry, &whole, Order::Row).unwrap().is_none());
        assert_eq!(maps.mapped(&entry, &whole, Order::Column).unwrap().unwrap().bytes(), bytes);
        drop((maps, entry));
        assert_eq!(view.bytes(), bytes);
        assert_eq!(part.bytes(), &bytes[3 * 4096..4 * 4096]);
        #[cfg(unix)]
        {
            file.as_file().set_len(0).unwrap();
            assert!(view.bytes().iter().all(|&b| b == 0));
            assert_eq!(view.check().unwrap_err().code().as_str(), "file-shrank");
        }
        let _ = file;
    }

    #[test]
    fn writes_to_a_private_copy_do_not_reach_the_file() {
        let _table = crate::source::guarded();
        let (file, entry, bytes) = table(64 << 10);
        let mut mine = Private::of(&entry, Order::Column).unwrap();
        let other = Private::of(&entry, Order::Column).unwrap();
        assert_eq!(mine.bytes(), bytes);
        mine.bytes_mut().fill(1);
        assert_eq!(other.bytes(), bytes);
        assert_eq!(std::fs::read(file.path()).unwrap()[3..], bytes);
        assert!(Private::mapped(&entry, Order::Row).unwrap().is_none());
        assert_eq!(Private::mapped(&entry, Order::Column).unwrap().unwrap().bytes(), bytes);
        let mut turned = Private::of(&entry, Order::Row).unwrap();
        turned.bytes_mut().fill(2);
        assert_eq!(other.bytes(), bytes);
        mine.check().unwrap();
        #[cfg(unix)]
        {
            file.as_file().set_len(0).unwrap();
            // Written pages are lost, too.
            assert!(mine.bytes().iter().all(|&b| b == 0));
            assert!(mine.check().is_err());
            assert!(other.bytes().iter().all(|&b| b == 0));
            assert_eq!(other.check().unwrap_err().code().as_str(), "file-shrank");
        }
    }
}
