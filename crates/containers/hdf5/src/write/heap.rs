//! Global heaps: collections of the texts of attributes (section III.E).

/// Minimum length of a collection that libhdf5 reads.
const MIN_COLLECTION_LEN: usize = 4096;
/// Maximum length of a collection with several texts; a longer text has a collection of its own.
const MAX_COLLECTION_LEN: usize = 64 << 10;
/// Bytes before the objects of a collection, and before the content of each object.
const HEAD: usize = 16;

/// Address of a text in a global heap.
#[derive(Clone, Copy)]
pub(super) struct HeapAddress {
    /// Address of the collection.
    collection: u64,
    /// Index of the object in the collection, from 1.
    object: u32,
    /// Length in bytes.
    len: u32,
}

impl HeapAddress {
    /// Encodes the element of an attribute: length, address of the collection, index of the object.
    pub(super) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.collection.to_le_bytes());
        bytes[12..].copy_from_slice(&self.object.to_le_bytes());
        bytes
    }
}

/// Consecutive collections at the end of a file.
pub(super) struct GlobalHeap<'a> {
    /// Bytes of the file so far.
    file: &'a mut Vec<u8>,
    /// Start of the open collection, and its number of objects.
    open: Option<(usize, u16)>,
}

impl<'a> GlobalHeap<'a> {
    /// Appends collections to `file`, whose length must be a multiple of 8.
    pub(super) fn new(file: &'a mut Vec<u8>) -> Self {
        Self { file, open: None }
    }

    /// Adds `text`; `None` where it is longer than 4 GiB.
    pub(super) fn add(&mut self, text: &[u8]) -> Option<HeapAddress> {
        let len = u32::try_from(text.len()).ok()?;
        let needed = HEAD + text.len().next_multiple_of(8);
        if self.open.is_some_and(|(start, _)| self.file.len() - start + needed > MAX_COLLECTION_LEN) {
            self.close();
        }
        let (start, count) = self.open.unwrap_or_else(|| {
            let start = self.file.len();
            self.file.extend(b"GCOL\x01\0\0\0");
            self.file.extend([0; 8]);
            (start, 0)
        });
        let object = count + 1;
        self.open = Some((start, object));
        self.file.extend(object.to_le_bytes());
        // The reference count stays 0, as libhdf5 writes it.
        self.file.extend([0; 6]);
        self.file.extend(u64::from(len).to_le_bytes());
        self.file.extend(text);
        self.file.resize(self.file.len().next_multiple_of(8), 0);
        Some(HeapAddress { collection: start as u64, object: object.into(), len })
    }

    /// Closes the open collection, if any.
    pub(super) fn close(&mut self) {
        let Some((start, _)) = self.open.take() else { return };
        let used = self.file.len() - start;
        if used < MIN_COLLECTION_LEN {
            // Free space is the object 0; its length includes its head.
            let free = (MIN_COLLECTION_LEN - used).max(HEAD);
            self.file.extend([0; 8]);
            self.file.extend((free as u64).to_le_bytes());
            self.file.resize(start + used + free, 0);
        }
        let len = (self.file.len() - start) as u64;
        self.file[start + 8..start + HEAD].copy_from_slice(&len.to_le_bytes());
    }
}
