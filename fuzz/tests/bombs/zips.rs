//! Malformed zip archives.

use flate2::{Compress, Compression, FlushCompress};

/// A member: claims of its headers, and its actual bytes.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub name: String,
    /// 0 stored, 8 deflated.
    pub method: u16,
    pub data: Vec<u8>,
    pub len: u64,
    pub crc32: u32,
    /// Offset of another local header, if set.
    pub at: Option<u64>,
}

/// Makes a stored member.
pub(crate) fn stored(name: &str, data: Vec<u8>) -> Member {
    let (len, crc32) = (data.len() as u64, crc32fast::hash(&data));
    Member { name: name.to_owned(), method: 0, data, len, crc32, at: None }
}

/// Makes a deflated member.
pub(crate) fn deflated(name: &str, bytes: &[u8]) -> Member {
    let (data, crc32) = (deflate(bytes, &[], 0), crc32fast::hash(bytes));
    Member { name: name.to_owned(), method: 8, data, len: bytes.len() as u64, crc32, at: None }
}

/// Makes one deflate stream of `head` and `times` copies of `block`, in the time of three blocks: after a flush, equal bytes
/// after equal bytes have equal codes.
pub(crate) fn deflate(head: &[u8], block: &[u8], times: usize) -> Vec<u8> {
    let mut stream = Compress::new(Compression::best(), false);
    let mut code = |bytes: &[u8], flush| {
        let mut out = Vec::with_capacity(bytes.len() + 4096);
        let before = stream.total_in();
        stream.compress_vec(bytes, &mut out, flush).unwrap();
        assert_eq!(stream.total_in() - before, bytes.len() as u64);
        out
    };
    let mut all = code(head, FlushCompress::Sync);
    if times > 1 {
        all.extend(code(block, FlushCompress::Sync));
        let again = code(block, FlushCompress::Sync);
        (1..times).for_each(|_| all.extend(&again));
    }
    all.extend(code(&[], FlushCompress::Finish));
    all
}

/// Makes a zlib stream of `times` copies of `block`; its checksum is correct for zeros only.
pub(crate) fn zlib(block: &[u8], times: usize) -> Vec<u8> {
    let mut bytes = [&[0x78, 0xda][..], &deflate(block, block, times)].concat();
    // Adler-32 of zeros: a is 1, b the number of bytes.
    let b = u32::try_from(block.len() * times % 65521).unwrap();
    bytes.extend((b << 16 | 1).to_be_bytes());
    bytes
}

/// Returns the CRC-32 of the same content.
pub(crate) fn crc32(head: &[u8], block: &[u8], times: usize) -> u32 {
    let mut all = crc32fast::Hasher::new();
    all.update(head);
    let mut one = crc32fast::Hasher::new();
    one.update(block);
    (0..times).for_each(|_| all.combine(&one));
    all.finalize()
}

fn short(len: u64) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes()
}

fn header(member: &Member, at: Option<u64>) -> Vec<u8> {
    let long = member.len >= u64::from(u32::MAX) || at.is_some_and(|at| at >= u64::from(u32::MAX));
    let mut extra = Vec::new();
    if long {
        extra.extend([1, 0, if at.is_some() { 24 } else { 16 }, 0]);
        extra.extend(member.len.to_le_bytes());
        extra.extend((member.data.len() as u64).to_le_bytes());
        at.iter().for_each(|at| extra.extend(at.to_le_bytes()));
    }
    let (len, packed) = if long {
        (short(u64::MAX), short(u64::MAX))
    } else {
        (short(member.len), short(member.data.len() as u64))
    };
    let mut bytes = match at {
        Some(_) => b"PK\x01\x02\x2d\0\x2d\0".to_vec(),
        None => b"PK\x03\x04\x2d\0".to_vec(),
    };
    // UTF-8, the method, a time.
    bytes.extend([0, 8]);
    bytes.extend(member.method.to_le_bytes());
    bytes.extend([0, 0, 0x21, 0]);
    bytes.extend(member.crc32.to_le_bytes());
    bytes.extend(packed);
    bytes.extend(len);
    bytes.extend(u16::try_from(member.name.len()).unwrap().to_le_bytes());
    bytes.extend(u16::try_from(extra.len()).unwrap().to_le_bytes());
    if let Some(at) = at {
        // Comment, disk, attributes.
        bytes.extend([0; 10]);
        bytes.extend(if long { short(u64::MAX) } else { short(at) });
    }
    bytes.extend(member.name.as_bytes());
    bytes.extend(extra);
    bytes
}

/// Makes the end records with a stated number of `count` members.
fn end(count: u64, size: u64, at: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if count >= 0xffff || at >= u64::from(u32::MAX) {
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([0x2d, 0, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for n in [count, count, size, at] {
            bytes.extend(n.to_le_bytes());
        }
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend((at + size).to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
    }
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    let few = u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes();
    bytes.extend([few, few].concat());
    bytes.extend(short(size));
    bytes.extend(short(at));
    bytes.extend([0, 0]);
    bytes
}

/// Makes an archive of these members, with a stated number of `count`.
pub(crate) fn archive_of(members: &[Member], count: u64) -> Vec<u8> {
    let (mut bytes, mut central) = (Vec::new(), Vec::new());
    for member in members {
        let at = member.at.unwrap_or(bytes.len() as u64);
        central.extend(header(member, Some(at)));
        if member.at.is_none() {
            bytes.extend(header(member, None));
            bytes.extend(&member.data);
        }
    }
    let at = bytes.len() as u64;
    bytes.extend(&central);
    bytes.extend(end(count, central.len() as u64, at));
    bytes
}

/// Makes an archive of these members.
pub(crate) fn archive(members: &[Member]) -> Vec<u8> {
    archive_of(members, members.len() as u64)
}
