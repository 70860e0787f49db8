//! Files that a scan looks into: what is inside multiplies.

use crate::harness::{Any, Range};

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
