//! States of PyTorch and Paddle that are small each on its own, and many that multiply.

use crate::harness::{Any, Opens, Range, Refused};
use crate::pickles::{number, tensor, text, torch, torch_of, tuple};
use crate::zips::stored;

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

    // One payload, spelled as text, of many arrays: it would be decoded for each.
    let spelled =
        [&b"c_codecs\nencode\n("[..], &text(&"x".repeat(1_000_000)), &text("latin1"), b"tRq\x05"].concat();
    let first = [text("a"), array(&[1_000_000], &spelled)].concat();
    let others = (1..1_200).map(|i| [text(&format!("a{i}")), array(&[1_000, 1_000], b"h\x05")].concat());
    let file = state(&[vec![first], others.collect()].concat());
    range.file("1,200 arrays of one payload", file, Refused("paddle-repeated"));
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
    // As many entries are allowed to a longer file.
    let longer = torch_of(&pickle, stored("archive/data/1", vec![7; 200_000]));
    range.file("names that collide", longer, Opens(4096));

    // Each begins an element further on.
    let mut moved = |name: &str, size: &[u64], stride: &[u64]| {
        let view = tensor(104_000, size, stride);
        let at = view.windows(4).position(|bytes| bytes == b"tQK\0").unwrap();
        let item = |i| [&text(&format!("t{i}"))[..], &view[..at + 2], &number(i), &view[at + 4..]].concat();
        let pickle = [&b"\x80\x02}("[..], &(0..4_000).flat_map(item).collect::<Vec<u8>>(), b"u."].concat();
        range.file(name, torch(&pickle, &[0; 416_000]), Refused("torch-repeated"));
    };
    moved("4,000 views of 400 kB", &[100_000], &[1]);
    moved("4,000 turned views of 400 kB", &[10, 100, 100], &[1, 1_000, 10]);
}
