//! Global heaps: collections of texts that attributes refer to (section III.E).

/// The smallest collection that libhdf5 reads.
const SMALLEST: usize = 4096;
/// A collection is closed before it grows beyond this; a text that is longer has its own.
const FULL: usize = 64 << 10;
/// Bytes before the objects of a collection, and before the content of each object.
const HEAD: usize = 16;

/// Where a text stands.
#[derive(Clone, Copy)]
pub(super) struct HeapAddress {
    /// The address of its collection.
    collection: u64,
    /// Its number in there, from 1.
    object: u32,
    /// Bytes.
    len: u32,
}

impl HeapAddress {
    /// As the element of an attribute: length, address of the collection, number of the object.
    pub(super) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.collection.to_le_bytes());
        bytes[12..].copy_from_slice(&self.object.to_le_bytes());
        bytes
    }
}

/// Collections that follow each other from some address on.
pub(super) struct GlobalHeap<'a> {
    /// The bytes of the file so far, from its first one.
    file: &'a mut Vec<u8>,
    /// Where the open collection begins, and how many objects it has.
    open: Option<(usize, u16)>,
}

impl<'a> GlobalHeap<'a> {
    /// Collections at the end of `file`, whose length is a multiple of 8.
    pub(super) fn new(file: &'a mut Vec<u8>) -> Self {
        Self { file, open: None }
    }

    /// Puts `text` in; `None` where it is longer than 4 GiB.
    pub(super) fn add(&mut self, text: &[u8]) -> Option<HeapAddress> {
        let len = u32::try_from(text.len()).ok()?;
        let needed = HEAD + text.len().next_multiple_of(8);
        if self.open.is_some_and(|(start, _)| self.file.len() - start + needed > FULL) {
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
        // No reference is counted: libhdf5 does not either.
        self.file.extend([0; 6]);
        self.file.extend(u64::from(len).to_le_bytes());
        self.file.extend(text);
        self.file.resize(self.file.len().next_multiple_of(8), 0);
        Some(HeapAddress { collection: start as u64, object: object.into(), len })
    }

    /// Ends the open collection, if there is one.
    pub(super) fn close(&mut self) {
        let Some((start, _)) = self.open.take() else { return };
        let used = self.file.len() - start;
        if used < SMALLEST {
            // What is free is an object of number 0, whose length counts its head.
            let free = (SMALLEST - used).max(HEAD);
            self.file.extend([0; 8]);
            self.file.extend((free as u64).to_le_bytes());
            self.file.resize(start + used + free, 0);
        }
        let len = (self.file.len() - start) as u64;
        self.file[start + 8..start + HEAD].copy_from_slice(&len.to_le_bytes());
    }
}
