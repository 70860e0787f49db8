//! Files that a scan looks into: what is inside multiplies.

use crate::harness::{Any, Range};
use crate::pickles::{dict, tensor, torch_of};
use crate::zips::{Member, archive, crc32, deflate, deflated, stored};

/// Pickles that each call what no other calls.
fn calls(pickles: u32, each: u32) -> Vec<Vec<u8>> {
    let call = |n| format!("ca\n{n:x}\n)R0").into_bytes();
    let pickle = |i| (i * each..(i + 1) * each).flat_map(call);
    (0..pickles).map(|i| [b"\x80\x02".to_vec(), pickle(i).collect(), b"N.".to_vec()].concat()).collect()
}

#[test]
fn scans_of_many_pickles() {
    let mut range = Range::new("paddle");
    range.file("calls of 1,000 pickles", calls(1_000, 40).concat(), Any);
    let inner = calls(1_000, 40).into_iter().map(|pickle| {
        [b"B", &u32::try_from(pickle.len()).unwrap().to_le_bytes()[..], &pickle, b"0"].concat()
    });
    let inner: Vec<u8> = inner.flatten().collect();
    range.file("calls of pickles within a pickle", [&b"\x80\x02"[..], &inner, b"N."].concat(), Any);
}

/// `head`, and `block` so many times, deflated.
fn packed(name: &str, head: &[u8], block: &[u8], times: usize) -> Member {
    let len = (head.len() + block.len() * times) as u64;
    let (data, crc32) = (deflate(head, block, times), crc32(head, block, times));
    Member { name: name.to_owned(), method: 8, data, len, crc32, at: None }
}

#[test]
fn scans_of_archives() {
    let mut range = Range::new("npz");
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
    // Each is unpacked while the one within it is.
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

/// A packed storage that is a pickle: zeros, and then many pickles in its bytes.
#[test]
fn scans_of_packed_storages() {
    let mut range = Range::new("torch");
    let small = [&b"\x80\x02ca\nb\n)R0B"[..], &300u32.to_le_bytes(), &[0; 300], b"."].concat();
    let len = u32::try_from(small.len()).unwrap().to_le_bytes();
    let inner = [b"B", &len[..], &small, b"0"].concat().repeat(1_000);
    let zeros = [b"B", &(64u32 << 20).to_le_bytes()[..], &[0; 64 << 20], b"0"].concat();
    let storage = deflated("archive/data/1", &[&b"\x80\x03"[..], &zeros, &inner, b"N."].concat());
    range.any("1,000 pickles behind 64 MiB of zeros", torch_of(&dict(&tensor(1, &[1], &[1])), storage));
}
