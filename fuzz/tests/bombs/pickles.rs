//! Pickle bombs: PyTorch archives, plain PyTorch pickles, and Paddle pickles.

use crate::harness::{End, Opens, Range, Refused};
use crate::zips::{Member, archive, crc32, deflate, stored};

/// Makes a `torch.save` archive with this pickle and one storage.
pub(crate) fn torch(pickle: &[u8], storage: &[u8]) -> Vec<u8> {
    archive(&[
        stored("archive/data.pkl", pickle.to_vec()),
        stored("archive/byteorder", b"little".to_vec()),
        stored("archive/data/0", storage.to_vec()),
        stored("archive/version", b"3\n".to_vec()),
    ])
}

/// As [`torch`], with an additional member.
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
    // LONG1 with a sign byte.
    [&[0x8a, 9], &n.to_le_bytes()[..], &[0]].concat()
}

pub(crate) fn tuple(items: &[u64]) -> Vec<u8> {
    let items: Vec<u8> = items.iter().flat_map(|&n| number(n)).collect();
    [&b"("[..], &items, b"t"].concat()
}

/// Makes an f32 tensor, a view of the storage with a stated number of `elements`.
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

/// Makes a dict of one item.
pub(crate) fn dict(value: &[u8]) -> Vec<u8> {
    [&b"\x80\x02}"[..], &text("w"), value, b"s."].concat()
}

#[test]
fn torch_bombs() {
    let Some(mut range) = Range::alone("torch") else { return };
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

    // One tensor, referenced many times.
    let many: Vec<u8> =
        (0..20_000).flat_map(|i| [text(&format!("t{i}")), b"h\0s".to_vec()].concat()).collect();
    let one = [&tensor(1, &[1 << 14, 1 << 14], &[0, 0])[..], b"q\0"].concat();
    let pickle = [&b"\x80\x02}"[..], &text("w"), &one, b"s", &many, b"."].concat();
    range.file("20,000 views of 1 GiB over 4 bytes", torch(&pickle, &[0; 4]), Refused("torch-repeated"));
}

/// Tests each pickle in an archive, and as a Paddle state.
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
        let Some(mut range) = Range::alone(format) else { return };
        for (name, body) in &bombs {
            let pickle = [&b"\x80\x04}"[..], &text("w"), body, b"s."].concat();
            range.any(&format!("{name}, alone"), pickle.clone());
            if format == "torch" {
                range.any(&format!("{name}, in an archive"), torch(&pickle, &[0; 4]));
            }
        }
    }
}

/// Makes a `torch.save` archive with a deflated pickle: `head`, then `times` copies of `block`.
fn deflated_torch(head: &[u8], block: &[u8], times: usize) -> Vec<u8> {
    let (data, crc32) = (deflate(head, block, times), crc32(head, block, times));
    let len = (head.len() + block.len() * times) as u64;
    let pickle = Member { name: "archive/data.pkl".to_owned(), method: 8, data, len, crc32, at: None };
    archive(&[pickle, stored("archive/data/0", vec![0; 4]), stored("archive/version", b"3\n".to_vec())])
}

/// Tests pickles that take many times their bytes as objects, on the stack, or as copied text.
#[test]
fn pickles_that_multiply() {
    let Some(mut range) = Range::alone("torch") else { return };
    let legacy = |body: &[u8]| {
        let magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.";
        [&magic[..], body, b"\x80\x02]."].concat()
    };
    let ops: [(&str, &[u8], &[u8]); 4] = [
        ("marks", b"\x80\x02", b"("),
        ("lists", b"\x80\x02(", b"]"),
        ("calls", b"\x80\x02ca\nb\n", b")R"),
        ("copies of the top", b"\x80\x02]", b"2"),
    ];
    for (name, head, op) in ops {
        let block = op.repeat((1 << 20) / op.len());
        range.file(
            &format!("500 MiB of {name}, deflated"),
            deflated_torch(head, &block, 500),
            Refused("limit"),
        );
        range.file(
            &format!("17 MiB of {name}, deflated"),
            deflated_torch(head, &block, 17),
            Refused("limit"),
        );
        range.file(&format!("6 MiB of {name}, deflated"), deflated_torch(head, &block, 6), Refused("limit"));
        // Content that no pickler writes adds a note each time.
        let len = if *op == *b"2" { 1_000_000 } else { 4_000_000 };
        let body = [head, &block.repeat(4)[..len], b"."].concat();
        range.any(&format!("4 MB of {name}"), torch(&body, &[0; 4]));
        range.any(&format!("4 MB of {name}, in the old form"), legacy(&body));
    }
    // Texts in the file, fetched alternately from the start and the end.
    let far = [&b"\x80\x02"[..], &text(&"a".repeat(300)), b"q\x000B\0\0\xf0\0"].concat();
    let behind = [&b"0"[..], &text(&"b".repeat(300)), b"q\x010]("].concat();
    let fetched = b"h\x01h\0".repeat(2000);
    let whole = [&far[..], &vec![0; 15 << 20], &behind, &fetched, b"e."].concat();
    range.any("texts far apart, deflated", deflated_torch(&whole, b"", 1));

    // A key of 1 MB over 95 tensors, and a text of 1 MB shared 95 times.
    let long = "k".repeat(1_000_000);
    let many: Vec<u8> = (0..95).flat_map(|_| tensor(1, &[1], &[1])).collect();
    let keyed = [&b"\x80\x02}"[..], &text(&long), b"](", &many, b"es."].concat();
    range.file("a key of 1 MB over 95 tensors", torch(&keyed, &[0; 4]), Refused("limit"));
    let shared =
        [&b"\x80\x02}"[..], &text("v"), b"](", &text(&long), b"q\0", &b"h\0".repeat(94), b"es."].concat();
    range.file("a text of 1 MB 95 times", torch(&shared, &[0; 4]), Opens(0));
}

#[test]
fn states_of_paddle_that_multiply() {
    let Some(mut range) = Range::alone("paddle") else { return };
    for (name, value) in [
        ("lists", [&b"("[..], &b"]".repeat(4_000_000), b"l"].concat()),
        ("calls", [&b"ca\nb\n"[..], &b")R".repeat(2_000_000)].concat()),
        ("numbers", [&b"("[..], &b"K\x01".repeat(2_000_000), b"l"].concat()),
        (
            "places",
            (0..800_000u32).flat_map(|i| [b"r", &(u32::MAX - i).to_le_bytes()[..]].concat()).collect(),
        ),
    ] {
        let body = [&b"\x80\x02}"[..], &text("a"), if name == "places" { b"N" } else { b"" }, &value, b"s."]
            .concat();
        range.any(&format!("4 MB of {name}"), body);
    }
}

/// Tests tensors of one deflated storage, which could be inflated once per tensor.
#[test]
fn deflated_storages() {
    let Some(mut range) = Range::alone("torch") else { return };
    let (times, block) = (64, vec![0; 1 << 20]);
    let (data, sum) = (deflate(&[], &block, times), crc32(&[], &block, times));
    let storage =
        Member { name: "archive/data/0".to_owned(), method: 8, data, len: 64 << 20, crc32: sum, at: None };
    let mut file = |name: &str, pickle: Vec<u8>, end: End| {
        let pickle = stored("archive/data.pkl", pickle);
        let version = stored("archive/version", b"3\n".to_vec());
        range.file(name, archive(&[pickle, storage.clone(), version]), end);
    };
    let view = |first: u64, size: &[u64], stride: &[u64]| {
        let start = String::from_utf8_lossy(b"tQK\0").into_owned();
        let place = tensor(16 << 20, size, stride);
        let at = place.windows(4).position(|four| four == start.as_bytes()).unwrap();
        [&place[..at], b"tQ", &number(first), &place[at + 4..]].concat()
    };
    let backwards: Vec<u8> = (0..500u64)
        .flat_map(|i| [text(&format!("t{i}")), view((16 << 20) - 1 - i, &[1], &[1]), b"s".to_vec()].concat())
        .collect();
    file(
        "500 tensors from the end of 64 MiB",
        [&b"\x80\x02}"[..], &backwards, b"."].concat(),
        Refused("torch-inflated"),
    );
    let across = view(0, &[1024, 2, 8192], &[1, 8192 * 1024, 1024]);
    file("64 MiB across", dict(&across), Refused("torch-inflated"));
}
