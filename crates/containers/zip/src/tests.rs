//! Tests of planned archives against this reader and the zip crate. Golden and damaged archives are tested with npz.

use super::inflate::inflate_prefix;
use super::*;
use std::io::{Read, Write};
use std::sync::Arc;
use weighbridge_core::error::{Error, Result};
use weighbridge_core::limits::Limits;
use weighbridge_core::plan::{FileBuilder, WritePlan};
use weighbridge_core::text::escape as escape_text;
use weighbridge_io::source::{CountingSource, MemorySource, Source, SourceRef, read_vec};
use weighbridge_io::testing::{PlanSource, materialise};

fn bytes_of(zip: ZipBuilder) -> Vec<u8> {
    materialise(&WritePlan { format: "zip", kind: "zip", files: vec![zip.finish()], losses: vec![] })
        .remove(0)
}

fn add(zip: &mut ZipBuilder, name: &str, content: &[u8]) -> Result<()> {
    zip.member(name, content.len() as u64, |file| {
        file.literal(content);
        Ok(())
    })
}

fn memory(bytes: Vec<u8>) -> SourceRef {
    Arc::new(MemorySource::new("a.zip", bytes))
}

#[test]
fn written_archives_are_read_by_this_crate_and_the_zip_crate() {
    let mut zip = ZipBuilder::new(FileBuilder::new(""));
    let mut truth = Vec::new();
    for len in 0..150usize {
        // Names of every length modulo the alignment, ASCII and not.
        let name = if len % 3 == 0 { format!("é{}", "n".repeat(len)) } else { "n".repeat(len) };
        let content: Vec<u8> = (0..len * 7).map(|i| u8::try_from(i % 251).unwrap()).collect();
        add(&mut zip, &name, &content).unwrap();
        truth.push((name, content));
    }
    let bytes = bytes_of(zip);
    let mut judge = ::zip::ZipArchive::new(std::io::Cursor::new(bytes.clone())).unwrap();
    let source = memory(bytes);
    let members = read_directory(&source, &Limits::default()).unwrap();
    assert_eq!(members.len(), truth.len());
    for (i, (member, (name, content))) in members.iter().zip(&truth).enumerate() {
        assert_eq!((&member.name, member.method), (name, Method::Stored));
        assert!(member.data_offset.is_multiple_of(64));
        assert_eq!(member.crc32, crc32fast::hash(content));
        let opened = member.open(&source).unwrap();
        assert_eq!(&read_vec(&*opened, 0, opened.len()).unwrap(), content);
        let mut judged = judge.by_index(i).unwrap();
        assert_eq!((judged.name().unwrap().as_ref(), judged.crc32()), (name.as_str(), member.crc32));
        let mut read = Vec::new();
        judged.read_to_end(&mut read).unwrap();
        assert_eq!(&read, content);
    }
}

#[test]
fn rejects_members_that_zip_cannot_store() {
    let mut zip = ZipBuilder::new(FileBuilder::new(""));
    let code = |result: Result<()>| result.unwrap_err().code().as_str();
    add(&mut zip, "a", b"x").unwrap();
    assert_eq!(code(add(&mut zip, "a", b"")), "duplicate-member");
    assert_eq!(code(add(&mut zip, "a\0", b"")), "bad-name");
    assert_eq!(code(add(&mut zip, &"a".repeat(65_536), b"")), "name-too-long");
    assert_eq!(code(zip.member("b", 5, |_| Ok(()))), "member-length");
    assert_eq!(code(zip.member("c", u64::MAX, |_| Ok(()))), "archive-too-large");
    assert_eq!(code(zip.member("d", 1, |_| Err(Error::usage("mine", "mine")))), "mine");
}

#[test]
fn zip64_is_used_for_large_lengths_offsets_and_counts() {
    let mut zip = ZipBuilder::new(FileBuilder::new(""));
    let sizes = [1u64, 0xffff_fffe, 0xffff_ffff, 5 << 30, 3];
    for (i, &size) in sizes.iter().enumerate() {
        let fill = |file: &mut FileBuilder| {
            file.padding(0, size);
            Ok(())
        };
        zip.member(&format!("large{i}"), size, fill).unwrap();
    }
    for i in 0..70_000 {
        add(&mut zip, &format!("small{i}"), b"xy").unwrap();
    }
    let source: SourceRef = Arc::new(PlanSource::new(zip.finish()));
    let members = read_directory(&source, &Limits::default()).unwrap();
    assert_eq!(members.len(), 70_005);
    for (member, size) in members.iter().zip(sizes) {
        assert_eq!((member.len, member.compressed_len), (size, size));
        assert!(member.data_offset.is_multiple_of(64));
    }
    let last = members.last().unwrap();
    assert!(last.header_offset > 13 << 30);
    assert_eq!(read_vec(&*last.open(&source).unwrap(), 0, 2).unwrap(), b"xy");
    // The zip crate reads the same.
    let mut judge = ::zip::ZipArchive::new(Seeking(source, 0)).unwrap();
    assert_eq!(judge.len(), members.len());
    for i in [1, 2, 3, 4, 60_000, 70_004] {
        let judged = judge.by_index(i).unwrap();
        assert_eq!((judged.size(), judged.data_start()), (members[i].len, Some(members[i].data_offset)));
    }
}

#[test]
fn zip64_is_used_from_65535_members_on() {
    for (count, wide) in [(65_534usize, false), (65_535, true)] {
        let mut zip = ZipBuilder::new(FileBuilder::new(""));
        for i in 0..count {
            add(&mut zip, &i.to_string(), b"").unwrap();
        }
        let bytes = bytes_of(zip);
        assert_eq!(bytes.windows(4).any(|w| w == END64), wide);
        assert_eq!(read_directory(&memory(bytes), &Limits::default()).unwrap().len(), count);
    }
}

/// Python and PyTorch search for the end record in the last 64 KiB.
#[test]
fn finds_end_record_before_64_kib_of_other_bytes() {
    let mut zip = ZipBuilder::new(FileBuilder::new(""));
    add(&mut zip, "a", b"x").unwrap();
    let whole = bytes_of(zip);
    let with = |more: usize| memory([whole.clone(), vec![0; more]].concat());
    for (more, code) in [
        (1, "trailing-bytes"),
        (0xffff, "trailing-bytes"),
        (0x1_0000, "trailing-bytes"),
        (0x1_0001, "zip-no-end"),
    ] {
        assert_eq!(
            read_directory(&with(more), &Limits::default()).unwrap_err().code().as_str(),
            code,
            "{more}"
        );
    }
    let (members, rest) = read_with_rest(&with(100), &Limits::default()).unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(rest, Some(Rest::Trailing { at: whole.len() as u64, len: 100 }));
    assert!(has_member(&with(100), &Limits::default(), |name| name == "a"));
    // The end record of a nested archive in the data of a member does not belong to this one.
    let mut outer = ZipBuilder::new(FileBuilder::new(""));
    add(&mut outer, "inner.zip", &whole).unwrap();
    let mut outer = bytes_of(outer);
    let end = outer.windows(4).position(|w| w == END).unwrap() + 30;
    outer.truncate(end);
    assert_eq!(read_directory(&memory(outer), &Limits::default()).unwrap_err().code().as_str(), "zip-no-end");
}

/// Some programs find an end record that most no longer find: the archive is not reported as truncated.
#[test]
fn archives_that_only_some_programs_find_are_reported() {
    let mut zip = ZipBuilder::new(FileBuilder::new(""));
    add(&mut zip, "a", b"x").unwrap();
    let whole = bytes_of(zip);
    let oddities = |more: usize| {
        let survey = survey(&memory([whole.clone(), vec![0; more]].concat()), &Limits::default()).unwrap();
        assert_eq!(survey.members.len(), 1, "{more}");
        survey.oddities.into_iter().map(|odd| (odd.code, odd.text)).collect::<Vec<_>>()
    };
    assert_eq!(oddities(0), []);
    for more in [1, 0xffff, 0x1_0000] {
        let text = format!("{more} bytes follow the end of the archive");
        assert_eq!(oddities(more), [("zip-appended", text)]);
    }
    let at = whole.windows(4).position(|w| w == CENTRAL).unwrap();
    for more in [0x1_0001, 0x1_0fff] {
        let text = "there is no end record in the range that most programs search".to_owned();
        let other = format!("most programs find no usable directory, but some find one, at {at}");
        assert_eq!(oddities(more), [("zip-damaged", text), ("zip-end-records", other)], "{more}");
    }
    let text = "the archive has no end record; it is probably truncated".to_owned();
    assert_eq!(oddities(0x1_1000), [("zip-damaged", text)]);
}

/// Adapter of a source for the zip crate.
struct Seeking(SourceRef, u64);

impl Read for Seeking {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.0.len().saturating_sub(self.1)).unwrap();
        let take = buffer.len().min(left);
        self.0.read_at(self.1, &mut buffer[..take]).map_err(|e| std::io::Error::other(e.to_string()))?;
        self.1 += take as u64;
        Ok(take)
    }
}

impl std::io::Seek for Seeking {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        let place = match to {
            std::io::SeekFrom::Start(at) => Some(at),
            std::io::SeekFrom::End(by) => self.0.len().checked_add_signed(by),
            std::io::SeekFrom::Current(by) => self.1.checked_add_signed(by),
        };
        self.1 = place.ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(self.1)
    }
}

#[test]
fn listing_reads_no_member_data() {
    let mut zip = ZipBuilder::new(FileBuilder::new(""));
    let count = 100_000;
    for i in 0..count {
        let fill = |file: &mut FileBuilder| {
            file.padding(0, 100_000);
            Ok(())
        };
        zip.member(&format!("layer.{i}.weight.npy"), 100_000, fill).unwrap();
    }
    let counted = Arc::new(CountingSource::new(Arc::new(PlanSource::new(zip.finish()))));
    let source: SourceRef = counted.clone();
    let members = read_directory(&source, &Limits::default()).unwrap();
    assert_eq!(members.len(), count);
    assert!(counted.calls() < 110_000, "{} reads", counted.calls());
    assert!(counted.bytes_read() < 80_000_000, "{} bytes", counted.bytes_read());
    let limits = Limits { tensors: 99_999, ..Limits::default() };
    assert_eq!(read_directory(&source, &limits).unwrap_err().code().as_str(), "limit");
}

fn deflate(content: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(content).unwrap();
    packer.finish().unwrap()
}

/// A source over `packed` that claims `len` and the CRC of `content`.
fn inflating(packed: &[u8], content: &[u8], len: u64) -> (Arc<CountingSource>, InflateSource) {
    let counted = Arc::new(CountingSource::new(memory([b"head", packed, b"tail"].concat())));
    let member = Member {
        name: "m".into(),
        method: Method::Deflated,
        header_offset: 0,
        data_offset: 4,
        compressed_len: packed.len() as u64,
        len,
        crc32: crc32fast::hash(content),
    };
    (counted.clone(), InflateSource::new(counted, &member).unwrap())
}

/// Bytes that pack to about a third.
fn content(len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 29).to_le_bytes()[0]).collect()
}

#[test]
fn inflated_bytes_are_read_at_any_offset() {
    let content = content(300_000);
    let packed = deflate(&content);
    let (counted, source) = inflating(&packed, &content, content.len() as u64);
    assert!(source.is_sequential());
    for (at, len) in [(0, 10), (10, 5), (200_000, 1), (199_999, 2), (3, 299_997), (299_999, 1), (0, 0)] {
        let mut read = vec![0; len];
        source.read_at(at as u64, &mut read).unwrap();
        assert_eq!(read, content[at..at + len]);
    }
    assert_eq!(source.read_at(300_000, &mut [0]).unwrap_err().code().as_str(), "past-the-end");
    // Sequential reads: every compressed byte is read once.
    let before = counted.bytes_read();
    for (i, piece) in content.chunks(777).enumerate() {
        let mut read = vec![0; piece.len()];
        source.read_at(i as u64 * 777, &mut read).unwrap();
        assert_eq!(read, piece);
    }
    assert_eq!(counted.bytes_read() - before, packed.len() as u64);
    // Reading the beginning costs little.
    let before = counted.bytes_read();
    source.read_at(0, &mut [0; 64]).unwrap();
    assert!(counted.bytes_read() - before <= 1024);
    let head = inflate_prefix(&memory(packed), 0, 64).unwrap();
    assert_eq!(head, content[..64]);
}

#[test]
fn streams_are_checked_against_their_claims() {
    let content = content(5000);
    let packed = deflate(&content);
    let code = |packed: &[u8], of: &[u8], len: u64| {
        let (_, source) = inflating(packed, of, len);
        let whole = |_| read_vec(&source, 0, len).map(drop).map_err(|e| e.code().as_str());
        // The second read gives the same: an error leaves no partially read stream.
        assert_eq!(whole(()), whole(()));
        whole(()).err()
    };
    assert_eq!(code(&packed, &content, 5000), None);
    assert_eq!(code(&packed, b"other", 5000), Some("crc-mismatch"));
    assert_eq!(code(&packed, &content, 4999), Some("deflate-too-long"));
    assert_eq!(code(&packed, &content, 5001), Some("deflate-too-short"));
    assert_eq!(code(&[&packed[..], b"x"].concat(), &content, 5000), Some("deflate-too-long"));
    assert!(code(&packed[..packed.len() - 1], &content, 5000).is_some());
    assert_eq!(code(&packed[..10], &content, 5000), Some("deflate-too-short"));
    assert_eq!(code(&[0xff; 50], &content, 5000), Some("bad-deflate"));
    assert_eq!(code(&[], &content, 5000), Some("deflate-too-short"));
    let text = {
        let (_, source) = inflating(&packed[..10], &content, 5000);
        source.read_at(4000, &mut [0; 4]).unwrap_err().to_string()
    };
    assert!(text.contains("member m") && text.contains("a.zip"), "{}", escape_text(&text));
}

#[test]
fn only_requested_bytes_of_a_bomb_are_inflated() {
    let zeros = vec![0; 50 << 20];
    let packed = deflate(&zeros);
    let (counted, source) = inflating(&packed, &zeros, zeros.len() as u64);
    let mut some = [1; 100];
    source.read_at(0, &mut some).unwrap();
    assert_eq!(some, [0; 100]);
    assert!(counted.bytes_read() <= 1024);
    source.read_at((50 << 20) - 1, &mut [0]).unwrap();
}

/// Header signatures everywhere, and many directory entries that refer to one header of 64 KiB.
#[test]
fn header_reads_are_bounded() {
    let read = |bytes: &[u8]| {
        let counted = Arc::new(CountingSource::new(memory(bytes.to_vec())));
        let source: SourceRef = counted.clone();
        survey(&source, &Limits::default()).unwrap();
        let surveyed = counted.bytes_read();
        salvage(&source, &Limits::default()).unwrap();
        (surveyed, counted.bytes_read() - surveyed)
    };
    let marks = [&LOCAL[..], &[0; 26]].concat().repeat(20_000);
    let (surveyed, salvaged) = read(&marks);
    assert!(surveyed < 300 * marks.len() as u64, "{surveyed}");
    assert!(salvaged < 300 * marks.len() as u64, "{salvaged}");

    // The header is in the directory, in the name of its first entry.
    let mut name = [&LOCAL[..], &[0; 26]].concat();
    name[26..30].copy_from_slice(b"\x7f\x7f\x7f\x7f");
    let entry = |at: u32, name: &[u8]| {
        let len = u16::try_from(name.len()).unwrap().to_le_bytes();
        [&b"PK\x01\x02\x14\0\x14\0"[..], &[0; 20], &len, &[0; 12], &at.to_le_bytes(), name].concat()
    };
    let head = [&LOCAL[..], &[0; 22], &[1, 0, 0, 0], b"a"].concat();
    let start = u32::try_from(head.len()).unwrap();
    let mut directory = entry(0, &name);
    (0..10_000).for_each(|i| directory.extend(entry(start + 46, format!("{i}").as_bytes())));
    let size = u32::try_from(directory.len()).unwrap().to_le_bytes();
    let count = 10_001u16.to_le_bytes();
    let end = [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &size, &start.to_le_bytes(), &[0, 0]].concat();
    let bytes = [head, directory, end].concat();
    let (surveyed, _) = read(&bytes);
    assert!(surveyed < 8 * bytes.len() as u64, "{surveyed} bytes of {}", bytes.len());
}

/// Member whose length and checksum only follow its data.
fn described(name: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = LOCAL.to_vec();
    bytes.extend([20, 0, 8, 0, 0, 0]);
    bytes.extend([0; 16]);
    bytes.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(name.bytes());
    bytes.extend(data);
    bytes.extend(descriptor(data));
    bytes
}

fn descriptor(data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [DESCRIPTOR, crc32fast::hash(data).to_le_bytes(), len.to_le_bytes(), len.to_le_bytes()].concat()
}

#[test]
fn lengths_of_truncated_archives_are_found_behind_the_data() {
    // Data that begins as a complete member of its own does not hide the rest.
    let hiding = [b"begin".to_vec(), descriptor(b"begin"), b"the rest".to_vec()].concat();
    let whole = [described("a", b"first"), described("hiding", &hiding), described("b", b"last")].concat();
    let readable = |bytes: &[u8]| {
        let survey = survey(&memory(bytes.to_vec()), &Limits::default()).unwrap();
        let names = survey.members.into_iter().filter(|found| found.readable);
        names.map(|found| (found.member.name, found.member.len)).collect::<Vec<_>>()
    };
    assert_eq!(readable(&whole), [("a".to_owned(), 5), ("b".to_owned(), 4)]);
    // Cut right behind it, nothing tells the two apart.
    let behind = described("a", b"first").len() + described("hiding", b"begin").len();
    for cut in (0..whole.len()).filter(|cut| *cut != behind) {
        let found = readable(&whole[..cut]);
        assert!(found.iter().all(|(name, len)| name == "a" && *len == 5), "{cut}: {found:?}");
    }
}
