//! npy and npz: headers, shapes, and archives.

use crate::harness::{Opens, Range, Refused};
use crate::made::{Part, made};
use crate::zips::{Member, archive, archive_of, crc32, deflate, deflated, stored};

/// Makes an npy file of version 2 with this header.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(header.len() + 1).unwrap().to_le_bytes();
    [b"\x93NUMPY\x02\0", &len[..], header.as_bytes(), b"\n", data].concat()
}

fn header(shape: &str) -> String {
    format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}")
}

#[test]
fn npy_bombs() {
    let Some(mut range) = Range::alone("npy") else { return };
    for (name, length) in [("header of 2^32 - 1", u32::MAX), ("header of 2^31", 1 << 31)] {
        let bytes = [&b"\x93NUMPY\x02\0"[..], &length.to_le_bytes(), b"{'descr'"].concat();
        range.file(name, bytes, Refused("npy-header-length"));
    }
    let head = [&b"\x93NUMPY\x02\0"[..], &900_000_000u32.to_le_bytes()].concat();
    let blanks = made(vec![Part::Bytes(head), Part::Repeat(b" ".to_vec(), 900_000_000)]);
    range.source("900 MB of blanks", blanks, Refused("npy-header-length"));
    for (name, open, close) in [("lists", "[", "]"), ("tuples", "(", ",)"), ("dicts", "{'a':", "}")] {
        let deep = format!("{{'descr': {}1{}}}", open.repeat(100_000), close.repeat(100_000));
        range.file(&format!("deep {name}"), npy(&deep, &[]), Refused("npy-header"));
    }
    range.file("shape of 2^128", npy(&header(&"4294967296, ".repeat(4)), &[]), Refused("shape-overflow"));
    range.file("shape of 10^100", npy(&header(&format!("1{},", "0".repeat(100))), &[]), Refused("npy-shape"));
    range.file("2^58 elements", npy(&header("288230376151711744,"), &[0; 64]), Refused("truncated"));
    range.file("50,000 dimensions", npy(&header(&"1, ".repeat(50_000)), &[0; 4]), Refused("limit"));
}

/// Makes a member with an array of `len` 4-byte zeros, deflated to a thousandth.
fn zeros(name: &str, len: u64) -> Member {
    let head = npy(&header(&format!("{len},")), &[]);
    let block = vec![0; 1 << 20];
    let times = usize::try_from((len * 4) >> 20).unwrap();
    let (data, crc32) = (deflate(&head, &block, times), crc32(&head, &block, times));
    Member { name: name.to_owned(), method: 8, data, len: head.len() as u64 + len * 4, crc32, at: None }
}

#[test]
fn npz_bombs() {
    let Some(mut range) = Range::alone("npz") else { return };
    let whole = archive(&[zeros("a.npy", 1 << 28)]);
    assert!(whole.len() < 2 << 20);
    range.file("1 GiB of zeros in 1 MB", whole, Opens(1));
    let head = npy(&header("274877906944,"), &[]);
    let claim = Member { len: 1 << 40, ..deflated("a.npy", &head) };
    range.file("2^40 bytes claimed", archive(std::slice::from_ref(&claim)), Refused("deflate-claim"));
    range.file(
        "2^40 bytes claimed and stored",
        archive(&[Member { method: 0, ..claim }]),
        Refused("zip-stored-length"),
    );

    // Many directory entries for one member in the file.
    let first = zeros("0.npy", 1 << 24);
    let mut members = vec![first.clone()];
    members.extend((1..5_000).map(|i| Member { name: format!("{i}.npy"), at: Some(0), ..first.clone() }));
    range.file("5,000 members in one place", archive(&members), Refused("zip-overlap"));
    let mut members = vec![first.clone()];
    members.extend((1..5_000).map(|_| Member { at: Some(0), ..first.clone() }));
    range.file("one member 5,000 times", archive(&members), Refused("duplicate-member"));

    let one = stored("a.npy", npy(&header("1,"), &[0; 4]));
    for (name, count) in
        [("2^64 - 1 members", u64::MAX), ("2^32 members", 1 << 32), ("3,000,000 members", 3_000_000)]
    {
        range.file(name, archive_of(std::slice::from_ref(&one), count), Refused("zip-count"));
    }
    let deep = stored(&format!("{}a.npy", "a/".repeat(30_000)), npy(&header("1,"), &[0; 4]));
    range.file("a name of 30,000 folders", archive(&[deep]), Opens(1));
    let dots = stored(&format!("{}npy", "a.".repeat(30_000)), npy(&header("1,"), &[0; 4]));
    range.file("a name of 30,000 parts", archive(&[dots]), Refused("limit"));
    let longest = format!("{{{}", " ".repeat(3 << 20));
    range.file(
        "a deflated header of 3 MiB",
        archive(&[deflated("a.npy", &npy(&longest, &[]))]),
        Refused("npy-header-length"),
    );

    // Each header is deflated to a thousandth.
    for (name, dtype) in [("numbers", "|u1"), ("objects", "|O")] {
        let text = header("100000,").replace("<f4", dtype);
        let blanks = deflated("", &npy(&(text + &" ".repeat(1_000_000)), &[0; 100_000]));
        let blanks: Vec<_> =
            (0..500).map(|i| Member { name: format!("{i}.npy"), ..blanks.clone() }).collect();
        range.file(
            &format!("500 headers of 1 MB, of {name}"),
            archive(&blanks),
            Refused("npy-header-length"),
        );
    }

    // Metadata that could be read whole.
    let meta = zeros("weighbridge.metadata.npy", 1 << 24);
    range.file("metadata that is not text", archive(&[meta]), Opens(1));
    let text = npy(&header("67108864,").replace("<f4", "|u1"), &[]);
    let block = vec![b' '; 1 << 20];
    let (data, sum) = (deflate(&text, &block, 64), crc32(&text, &block, 64));
    let len = text.len() as u64 + (64 << 20);
    let meta =
        Member { name: "weighbridge.metadata.npy".to_owned(), method: 8, data, len, crc32: sum, at: None };
    range.file("metadata of 64 MiB in 64 kB", archive(std::slice::from_ref(&meta)), Opens(0));
    let filling = stored("x", vec![7; 2 << 20]);
    range.file("metadata of 64 MiB in 2 MB", archive(&[meta, filling]), Opens(0));
}

/// Tests nested members without lengths: local headers in stored blocks of the stream of the previous member. To find the end
/// of a member, its stream could be followed through all later ones.
#[test]
fn npz_nested_streams() {
    let Some(mut range) = Range::alone("npz") else { return };
    let whole = archive(&[stored("a.npy", npy(&header("1,"), &[0; 4]))]);
    let head = [&b"PK\x03\x04\x14\0\x08\0\x08\0"[..], &[0; 16], &[1, 0, 0, 0], b"a"].concat();
    let len = u16::try_from(head.len()).unwrap();
    let unit = [&head[..], &[0], &len.to_le_bytes(), &(!len).to_le_bytes()].concat();
    let zeros = deflate(&[], &[0; 1 << 20], 32);
    let bomb = [&unit.repeat(500), &head, &zeros[..zeros.len() - 2]].concat();
    range.any("500 streams of 32 MiB that break", [&whole[..whole.len() - 22], &bomb].concat());
    range.any("500 streams of 32 MiB that break, alone", [&whole[..40], &bomb].concat());
    range.any("20,000 streams that break", [&whole[..40], &unit.repeat(20_000), &head].concat());
}
