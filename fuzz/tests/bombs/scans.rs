//! Files with nested content that expands during a scan.

use crate::harness::{Any, Range};
use crate::pickles::{dict, tensor, text, torch_of};
use crate::zips::{Member, archive, crc32, deflate, deflated, stored};

/// Makes pickles with a different call in each.
fn calls(pickles: u32, each: u32) -> Vec<Vec<u8>> {
    let call = |n| format!("ca\n{n:x}\n)R0").into_bytes();
    let pickle = |i| (i * each..(i + 1) * each).flat_map(call);
    (0..pickles).map(|i| [b"\x80\x02".to_vec(), pickle(i).collect(), b"N.".to_vec()].concat()).collect()
}

#[test]
fn scans_of_many_pickles() {
    let Some(mut range) = Range::alone("paddle") else { return };
    range.file("calls of 1,000 pickles", calls(1_000, 40).concat(), Any);
    let inner = calls(1_000, 40).into_iter().map(|pickle| {
        [b"B", &u32::try_from(pickle.len()).unwrap().to_le_bytes()[..], &pickle, b"0"].concat()
    });
    let inner: Vec<u8> = inner.flatten().collect();
    range.file("calls of pickles within a pickle", [&b"\x80\x02"[..], &inner, b"N."].concat(), Any);
}

/// Makes a deflated member of `head` and `times` copies of `block`.
fn packed(name: &str, head: &[u8], block: &[u8], times: usize) -> Member {
    let len = (head.len() + block.len() * times) as u64;
    let (data, crc32) = (deflate(head, block, times), crc32(head, block, times));
    Member { name: name.to_owned(), method: 8, data, len, crc32, at: None }
}

#[test]
fn scans_of_archives() {
    let Some(mut range) = Range::alone("npz") else { return };
    let block = vec![0; 1 << 20];
    let zeros = packed("m", b"", &block, 30);
    let several = |first: Option<Member>, count: usize| {
        let more = (0..count).map(|i| Member { name: format!("m{i}.bin"), ..zeros.clone() });
        archive(&first.into_iter().chain(more).collect::<Vec<_>>())
    };
    range.any("8 members of 30 MiB", several(None, 8));
    let inner = several(None, 2);
    let outer: Vec<_> = (0..4).map(|i| deflated(&format!("{i}.zip"), &inner)).collect();
    range.any("2 members of 30 MiB in each of 4 archives", archive(&outer));
    let mut tower = several(None, 2);
    for _ in 0..3 {
        tower = several(Some(stored("a.zip", tower)), 2);
    }
    range.any("2 members of 30 MiB in each of 4 archives, one within the other", tower);
    // Each archive is decompressed during the decompression of the inner one.
    let mut tower = archive(&[stored("a.bin", vec![0; 15 << 20])]);
    for _ in 0..3 {
        tower = archive(&[deflated("a.zip", &tower), stored("b.bin", vec![0; 15 << 20])]);
    }
    range.any("archives of 15 MiB, one within the other", tower);
    let calls = b")R".repeat(500_000);
    let pickle = packed("m.pkl", b"\x80\x02ca\nb\n", &calls, 3);
    range.any(
        "2 packed pickles of 1,500,000 calls",
        archive(&[pickle.clone(), Member { name: "n.pkl".into(), ..pickle }]),
    );
}

/// Tests a compressed storage that is a pickle: zeros, followed by many pickles.
#[test]
fn scans_of_packed_storages() {
    let Some(mut range) = Range::alone("torch") else { return };
    let small = [&b"\x80\x02ca\nb\n)R0B"[..], &300u32.to_le_bytes(), &[0; 300], b"."].concat();
    let len = u32::try_from(small.len()).unwrap().to_le_bytes();
    let inner = [b"B", &len[..], &small, b"0"].concat().repeat(1_000);
    let zeros = [b"B", &(64u32 << 20).to_le_bytes()[..], &[0; 64 << 20], b"0"].concat();
    let storage = deflated("archive/data/1", &[&b"\x80\x03"[..], &zeros, &inner, b"N."].concat());
    range.any("1,000 pickles behind 64 MiB of zeros", torch_of(&dict(&tensor(1, &[1], &[1])), storage));
}

/// Tests calls with long or all different names, and with shared arguments.
#[test]
fn scans_of_calls() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let word = |i: u16| [&b"\x8c\xfa"[..], format!("{i:<250}").as_bytes(), b"\x940"].concat();
    let words: Vec<u8> = (0..256).flat_map(word).collect();
    let call = |n: u32| [b"h", &n.to_be_bytes()[2..3], b"h", &n.to_be_bytes()[3..], b"\x93)R0"].concat();
    let calls: Vec<u8> = (0..200_000).flat_map(call).collect();
    range.any("200,000 calls of long names", [b"\x80\x04", &words[..], &calls, b"N."].concat());
    let long = [b"c", &[b'm'; 4_000][..], b"\n", &[b'n'; 4_000], b"\nq\x000"].concat();
    let pickle = [b"\x80\x02", &long[..], &b"h\0)R0".repeat(500_000), b"N."].concat();
    range.any("500,000 calls of one name of 8 KB", pickle);
    let list = b"c__builtin__\nlist\nq\x010";
    let (items, calls) = (b"N".repeat(400_000), b"h\x01h\0R0".repeat(4_000));
    let pickle = [b"\x80\x02(", &items[..], b"tq\x000", list, &calls, b"N."].concat();
    range.any("4,000 calls that share 400,000 arguments", pickle);
}

/// Tests one-byte instructions without effect, compressed to a thousandth.
#[test]
fn scans_of_packed_instructions() {
    let Some(mut range) = Range::alone("torch") else { return };
    let block = b"N0".repeat(500_000);
    let storage = packed("archive/data/1", b"\x80\x02", &block, 300);
    range.any("a storage of 300 MB of instructions", torch_of(&dict(&tensor(1, &[1], &[1])), storage));
    let line = packed("archive/data/1", b"\x80\x02S'", &[b'a'; 1 << 20], 300);
    range.any("a storage of one line of 300 MiB", torch_of(&dict(&tensor(1, &[1], &[1])), line));
    let behind = [b"B", &(64u32 << 20).to_le_bytes()[..], &[0; 64 << 20], b"0"].concat();
    let texts = [&b"\x80\x02"[..], &behind, &b"S'a'\n0".repeat(20_000), b"N."].concat();
    let texts = deflated("archive/data/1", &texts);
    range.any("20,000 lines behind 64 MiB", torch_of(&dict(&tensor(1, &[1], &[1])), texts));
    let pickle = [&b"\x80\x02"[..], &behind, b"N."].concat();
    let small = b"\x80\x02B\x06\0\0\0\x80\x02NN0..".repeat(900);
    let row = deflated("archive/data/1", &[pickle, small].concat());
    range.any("900 pickles behind 64 MiB", torch_of(&dict(&tensor(1, &[1], &[1])), row));
    drop(range);
    let Some(mut range) = Range::alone("npz") else { return };
    let head = b"\x93NUMPY\x01\0\x3a\0{'descr':'|O','fortran_order':False,'shape':(1,)}        \n\x80\x02";
    range.any("objects that are 300 MB of instructions", archive(&[packed("a.npy", head, &block, 300)]));
    let member = packed("m.pkl", b"\x80\x02", &block, 25);
    let several = |count: usize| {
        let name = |i| format!("m{i}.pkl");
        (0..count).map(|i| Member { name: name(i), ..member.clone() }).collect::<Vec<_>>()
    };
    range.any("8 pickles of 25 MB of instructions", archive(&several(8)));
}

/// Tests one list hashed by many calls, and one description of a split Paddle parameter shared by many.
#[test]
fn scans_of_what_is_shared() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let list =
        [b"\x80\x02(cbuiltins\nset\nq\x01](", b"N".repeat(400_000).as_slice(), b"e\x85q\x02R"].concat();
    range.any("40,000 sets of one list", [&list[..], &b"h\x01h\x02R".repeat(40_000), b"t."].concat());
    let key = [b"\x80\x02(", b"N".repeat(400_000).as_slice(), b"tq\x000"].concat();
    range.any("40,000 dicts of one key", [&key[..], &b"}h\x00Ns0".repeat(40_000), b"N."].concat());
    let fields = [&text("a"), &b"q\x01}q\x02("[..], &b"h\x01N".repeat(200_000), b"u"].concat();
    let described = [b"}(", fields.as_slice(), &b"h\x01h\x02".repeat(20_000), b"u"].concat();
    let state = [b"\x80\x02}(", text("UnpackBigParamInfor@@").as_slice(), &described, b"u."].concat();
    range.any("20,000 parameters of one description", state);
}
