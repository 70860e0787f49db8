//! Pickles: those of PyTorch in an archive and alone, and those of Paddle.

use crate::harness::{End, Opens, Range, Refused};
use crate::zips::{Member, archive, stored};

/// A file of `torch.save` with this pickle and one storage.
pub(crate) fn torch(pickle: &[u8], storage: &[u8]) -> Vec<u8> {
    archive(&[
        stored("archive/data.pkl", pickle.to_vec()),
        stored("archive/byteorder", b"little".to_vec()),
        stored("archive/data/0", storage.to_vec()),
        stored("archive/version", b"3\n".to_vec()),
    ])
}

/// As [`torch`], with one more member.
pub(crate) fn torch_of(pickle: &[u8], more: Member) -> Vec<u8> {
    archive(&[
        stored("archive/data.pkl", pickle.to_vec()),
        stored("archive/data/0", vec![0; 4]),
        more,
        stored("archive/version", b"3\n".to_vec()),
    ])
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [b"X", &u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
}

pub(crate) fn number(n: u64) -> Vec<u8> {
    // LONG1, with a byte for the sign.
    [&[0x8a, 9], &n.to_le_bytes()[..], &[0]].concat()
}

pub(crate) fn tuple(items: &[u64]) -> Vec<u8> {
    let items: Vec<u8> = items.iter().flat_map(|&n| number(n)).collect();
    [&b"("[..], &items, b"t"].concat()
}

/// A tensor of f32 as a view of the one storage, which is said to have `elements`.
pub(crate) fn tensor(elements: u64, size: &[u64], stride: &[u64]) -> Vec<u8> {
    [
        &b"ctorch._utils\n_rebuild_tensor_v2\n(("[..],
        &text("storage"),
        b"ctorch\nFloatStorage\n",
        &text("0"),
        &text("cpu"),
        &number(elements),
        b"tQK\0",
        &tuple(size),
        &tuple(stride),
        b"\x89ccollections\nOrderedDict\n)RtR",
    ]
    .concat()
}

/// A dict of one item.
pub(crate) fn dict(value: &[u8]) -> Vec<u8> {
    [&b"\x80\x02}"[..], &text("w"), value, b"s."].concat()
}

#[test]
fn torch_bombs() {
    let mut range = Range::new("torch");
    let mut view = |name: &str, elements: u64, size: &[u64], stride: &[u64], end: End| {
        range.file(name, torch(&dict(&tensor(elements, size, stride)), &[0; 4]), end);
    };
    view("stride 0 over 4 bytes", 1, &[4], &[0], Opens(1));
    view("stride 0 over 4 bytes, 1 GiB", 1, &[1 << 14, 1 << 14], &[0, 0], Opens(1));
    view("stride 0 over 4 bytes, 1 GiB in one dimension", 1, &[1 << 28], &[0], Opens(1));
    view("stride 0 over 4 bytes, 2^40 elements", 1, &[1 << 20, 1 << 20], &[0, 0], Refused("torch-repeated"));
    view("stride 0 over 4 bytes, 2^80 elements", 1, &[1 << 40, 1 << 40], &[0, 0], Refused("torch-tensor"));
    view("strides of 2^62", 1, &[4, 4], &[1 << 62, 1 << 62], Refused("torch-outside-storage"));
    view("a storage of 2^62 elements", 1 << 62, &[1], &[1], Refused("torch-storage-length"));
    view("1,000 dimensions", 1, &[1; 1000], &[0; 1000], Refused("limit"));

    // One tensor again and again.
    let many: Vec<u8> =
        (0..20_000).flat_map(|i| [text(&format!("t{i}")), b"h\0s".to_vec()].concat()).collect();
    let one = [&tensor(1, &[1 << 14, 1 << 14], &[0, 0])[..], b"q\0"].concat();
    let pickle = [&b"\x80\x02}"[..], &text("w"), &one, b"s", &many, b"."].concat();
    range.file("20,000 views of 1 GiB over 4 bytes", torch(&pickle, &[0; 4]), Refused("torch-repeated"));
}

/// Each in an archive, alone, and as a state of Paddle.
#[test]
fn pickle_bombs() {
    let long = u64::MAX / 2;
    let huge = (1u64 << 63).to_le_bytes();
    let laughs = |op: &[u8], times| [&b")"[..], &op.repeat(times)].concat();
    let lists = [&b"]"[..], &b"q\0]h\0ah\0a".repeat(60)].concat();
    let nested = |open: &[u8], close: &[u8]| [open.repeat(50_000), close.repeat(199_999)].concat();
    let bombs: Vec<(&str, Vec<u8>)> = vec![
        ("2^100 shared tuples", laughs(b"2\x86", 100)),
        ("2^20000 shared tuples", laughs(b"2\x86", 20_000)),
        ("2^22 shared tuples", laughs(b"2\x86", 22)),
        ("2^22 shared lists", [&b"]"[..], &b"q\x00]h\x00ah\x00a".repeat(22)].concat()),
        ("2^60 shared lists", lists),
        ("LONG4 of 2^31 - 1", [&b"\x8b"[..], &[0xff, 0xff, 0xff, 0x7f]].concat()),
        ("LONG4 of -1", [&b"\x8b"[..], &[0xff; 4]].concat()),
        ("BINBYTES of 2^32 - 1", [&b"B"[..], &[0xff; 4]].concat()),
        ("BINBYTES8 of 2^63", [&b"\x8e"[..], &huge].concat()),
        ("BINUNICODE8 of 2^63", [&b"\x8d"[..], &huge].concat()),
        ("BINUNICODE8 of 2^64 - 1", [&b"\x8d"[..], &[0xff; 8]].concat()),
        ("BYTEARRAY8 of 2^63", [&b"\x96"[..], &huge].concat()),
        ("FRAME of 2^63", [&b"\x95"[..], &huge, b"N"].concat()),
        ("FRAME of 2^63 - 1", [&b"\x95"[..], &long.to_le_bytes(), b"N"].concat()),
        ("memo 2^32 - 1", [&b"Nr"[..], &[0xff; 4]].concat()),
        ("memo of 10^18", b"Np999999999999999999\n".to_vec()),
        ("memo of 10^40", [&b"Np"[..], &b"9".repeat(40), b"\n"].concat()),
        ("memo that is not there", [&b"j"[..], &[0xff; 4]].concat()),
        ("a number of 10^6 digits", [&b"I"[..], &b"9".repeat(1_000_000), b"\n"].concat()),
        ("a long of 10^6 digits", [&b"L"[..], &b"9".repeat(1_000_000), b"L\n"].concat()),
        ("a module of 2 MB", [&b"c"[..], &b"a".repeat(2_000_000), b"\nb\n"].concat()),
        ("50,000 nested lists", nested(b"]", b"a")),
        ("50,000 nested tuples", [&b")"[..], &b"\x85".repeat(50_000)].concat()),
        ("50,000 nested dicts", nested(b"}N", b"s")),
        ("200,000 marks", b"(".repeat(200_000)),
        (
            "50,000 nested calls",
            [b"cbuiltins\neval\n".repeat(50_000), b")".to_vec(), b"R\x85".repeat(50_000)].concat(),
        ),
        ("200,000 empty dicts", [&b"("[..], &b"}".repeat(200_000), b"l"].concat()),
    ];
    for format in ["torch", "paddle"] {
        let mut range = Range::new(format);
        for (name, body) in &bombs {
            let pickle = [&b"\x80\x04}"[..], &text("w"), body, b"s."].concat();
            range.any(&format!("{name}, alone"), pickle.clone());
            if format == "torch" {
                range.any(&format!("{name}, in an archive"), torch(&pickle, &[0; 4]));
            }
        }
    }
}
