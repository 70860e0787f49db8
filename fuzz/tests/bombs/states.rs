//! States of PyTorch and Paddle that are small each on its own, and many that multiply.

use crate::harness::{Any, Opens, Range, Refused};
use crate::pickles::{tensor, text, torch, tuple};

/// An array of bytes of numpy, whose elements `payload` puts on the stack.
fn array(extents: &[u64], payload: &[u8]) -> Vec<u8> {
    [
        &b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tC\x01btR(K\x01"[..],
        &tuple(extents),
        b"cnumpy\ndtype\n(",
        &text("u1"),
        b"\x89\x88tR(K\x03",
        &text("|"),
        b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89",
        payload,
        b"tb",
    ]
    .concat()
}

/// Bytes.
fn bytes(bytes: &[u8]) -> Vec<u8> {
    [b"B", &u32::try_from(bytes.len()).unwrap().to_le_bytes()[..], bytes].concat()
}

/// A pickle of a dict of these pairs.
fn state(pairs: &[Vec<u8>]) -> Vec<u8> {
    [&b"\x80\x03}("[..], &pairs.concat(), b"u."].concat()
}

#[test]
fn paddle_states_that_multiply() {
    let mut range = Range::new("paddle");
    let keys: Vec<_> = (0..30_000).map(|i| [text(&format!("{i:06}")), b"N".to_vec()].concat()).collect();
    range.file("30,000 plain keys", state(&keys), Any);

    // One description of 300 parts, which are one, for 300 parameters.
    let part = array(&[100_000], &bytes(&[7; 100_000]));
    let described = [
        &b"}("[..],
        &text("OriginShape"),
        &tuple(&[30_000_000]),
        &text("slices"),
        b"(",
        &text("p"),
        b"q\x01",
        &b"h\x01".repeat(299),
        b"luq\x02",
    ]
    .concat();
    let more = (1..300).flat_map(|i| [text(&format!("a{i}")), b"h\x02".to_vec()].concat()).collect();
    let info = [text("UnpackBigParamInfor@@"), b"}(".to_vec(), text("a"), described, more, b"u".to_vec()];
    let file = state(&[text("p"), part, info.concat()]);
    range.file("parameters that share their parts", file, Refused("split-parameter"));
}

#[test]
fn torch_states_that_multiply() {
    let mut range = Range::new("torch");
    let one = tensor(1, &[1], &[1]);
    // 2^11 tensors of one name, by keys that are numbers and texts; the names that they would be given are taken.
    let levels = 10u8;
    let count = 1usize << levels;
    let mut pickle = [&b"\x80\x02}("[..], &text("x"), &one, b"q\0uq\x010"].concat();
    for level in 1..=levels {
        let below = [b'h', level];
        pickle.extend([&b"}(K\x01"[..], &below, &text("1"), &below, b"uq", &[level + 1], b"0"].concat());
    }
    pickle.extend(b"}(");
    let path = "1.".repeat(11);
    for n in 2 * count..4 * count {
        pickle.extend([&text(&format!("{path}x~{n}"))[..], b"h\0"].concat());
    }
    let top = [b'h', levels + 1];
    pickle.extend([&text("pad")[..], b"](", &b"}".repeat(3 * count), b"e"].concat());
    pickle.extend([&b"K\x01"[..], &top, &text("1"), &top, b"u."].concat());
    range.file("names that collide", torch(&pickle, &[0; 4]), Opens(4096));
}
