//! PyTorch and Paddle states whose parts are small alone and expand together.

use crate::harness::{Any, Opens, Range, Refused};
use crate::pickles::{number, tensor, text, torch, torch_of, tuple};
use crate::zips::stored;
use std::sync::Arc;
use weighbridge::source::{FolderRef, MemoryFolder};

/// Makes a pickled numpy array of bytes; `payload` pushes its elements.
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

/// Makes a pickled `bytes` object.
fn bytes(bytes: &[u8]) -> Vec<u8> {
    [b"B", &u32::try_from(bytes.len()).unwrap().to_le_bytes()[..], bytes].concat()
}

/// Makes a pickle of a dict of these pairs.
fn state(pairs: &[Vec<u8>]) -> Vec<u8> {
    [&b"\x80\x03}("[..], &pairs.concat(), b"u."].concat()
}

#[test]
fn paddle_states_that_multiply() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let keys: Vec<_> = (0..30_000).map(|i| [text(&format!("{i:06}")), b"N".to_vec()].concat()).collect();
    range.file("30,000 plain keys", state(&keys), Any);

    // One description of 300 identical parts, for 300 parameters.
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

    // One text payload of many arrays: it could be decoded for each.
    let spelled =
        [&b"c_codecs\nencode\n("[..], &text(&"x".repeat(1_000_000)), &text("latin1"), b"tRq\x05"].concat();
    let first = [text("a"), array(&[1_000_000], &spelled)].concat();
    let others = (1..1_200).map(|i| [text(&format!("a{i}")), array(&[1_000, 1_000], b"h\x05")].concat());
    let file = state(&[vec![first], others.collect()].concat());
    range.file("1,200 arrays of one payload", file, Refused("paddle-repeated"));
}

/// Makes a list of `object` and `more` references to it.
fn listed(object: &[u8], more: usize) -> Vec<u8> {
    [&b"("[..], object, b"q\0", &b"h\0".repeat(more), b"l"].concat()
}

/// Tests references of two bytes each.
#[test]
fn paddle_references_that_multiply() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let (one, name, long) = (array(&[1], b"C\x01x"), "m".repeat(4_000), "k".repeat(500_000));
    let import = [b"c", name.as_bytes(), b"\n", name.as_bytes(), b"\n"].concat();
    let call = [&import[..], b")R"].concat();
    let pair = [text(&"v".repeat(255)), one.clone(), b"\x86".to_vec()].concat();
    // Each array is a separate object of shared parts.
    let at = one.windows(2).position(|two| two == b"R(").unwrap();
    let parts =
        [&one[..36], b"q\x02", &one[36..at], b"q\0R", &one[at + 1..one.len() - 1], b"q\x01b"].concat();
    let same = [&b"("[..], &parts, &b"h\x02h\0Rh\x01b".repeat(60_000), b"l"].concat();
    for (name, key, value) in [
        ("10,000 times an import of 8 KB", "a", listed(&import, 10_000)),
        ("10,000 times a call of it", "a", listed(&call, 10_000)),
        ("a text of 500 KB 100 times", "a", listed(&text(&long), 100)),
        ("a key of 500 KB over 100 arrays", &long, listed(&one, 100)),
        ("50,000 times an array", "a", listed(&one, 50_000)),
        ("a key of 1,000 parts over 4,000 arrays", &"a.".repeat(1_000), listed(&one, 4_000)),
        ("20,000 times an array of 64 dimensions", "a", listed(&array(&[1; 64], b"C\x01x"), 20_000)),
        ("20,000 times a pair of a name and an array", "a", listed(&pair, 20_000)),
        ("60,000 arrays of the same parts", "a", same),
        ("1,000,000 numbers", "a", [&b"("[..], &b"K\x01".repeat(1_000_000), b"l"].concat()),
    ] {
        range.file(name, state(&[text(key), value]), Refused("limit"));
    }
    let first = [text(&"k".repeat(1_000_000)), one.clone(), b"q\0".to_vec()].concat();
    let others = [text("a"), [&b"("[..], &b"h\0".repeat(100), b"l"].concat()].concat();
    range.file("a name of 1 MB that 100 arrays share", state(&[first, others]), Refused("limit"));
    let keys = (0..100_000u32).flat_map(|i| [&text(&format!("{i:x}"))[..], b"h\0"].concat()).collect();
    let first = [text("a"), one, b"q\0".to_vec()].concat();
    range.file("an array under 100,000 keys", state(&[first, keys]), Refused("limit"));
    // Up to the limit: numbers, texts with escapes, and tuples.
    for (name, value) in [
        ("300,000 numbers", [&b"("[..], &b"K\x01".repeat(300_000), b"l"].concat()),
        ("200,000 times a number", listed(b"G\0\0\0\0\0\0\0\0", 200_000)),
        ("70,000 times a text", listed(&text("\x01\x01\x01\x01"), 70_000)),
        ("40,000 times a tuple", listed(b")", 40_000)),
        ("5,000 times an array", listed(&array(&[1], b"C\x01x"), 5_000)),
    ] {
        let pad = [text("pad"), text(&"p".repeat(600_000))];
        let end = if name.ends_with("array") { Opens(5_001) } else { Opens(0) };
        range.file(name, state(&[text("a"), value, pad.concat()]), end);
    }
}

/// Makes the folder of a distributed checkpoint, with these pairs of index and file.
fn directory(files: &[u8]) -> FolderRef {
    let of =
        |class: &str| [b"cpaddle.distributed.checkpoint.metadata\n", class.as_bytes(), b"\n)\x81}("].concat();
    let pickle = [
        &b"\x80\x04"[..],
        &of("Metadata"),
        &text("state_dict_metadata"),
        b"}",
        &text("storage_metadata"),
        b"}(",
        files,
        b"uub.",
    ]
    .concat();
    Arc::new(MemoryFolder::new("bomb").with("0.metadata", pickle).with("0_0.distcp", b"\x80\x04}.".to_vec()))
}

#[test]
fn paddle_directories_that_multiply() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let class = b"cpaddle.distributed.checkpoint.metadata\nLocalTensorIndex\n";
    let index = |before: &[u8], class: &[u8], key: &str, offset: &[u8]| {
        let fields = [text("tensor_key"), text(key), text("global_offset"), offset.to_vec()].concat();
        [class, b")\x81}(", before, &fields, b"ub"].concat()
    };
    let offset = |len: usize| [&b"("[..], &b"K\0".repeat(len), b"tq\x01"].concat();
    for (name, dimensions, count, code) in
        [("40,000 numbers", 40_000, 2_000, "limit"), ("64 numbers", 64, 60_000, "limit")]
    {
        let first = index(b"", &[&class[..], b"q\0"].concat(), "first", &offset(dimensions));
        let file = [text("f"), b"q\x02".to_vec()].concat();
        let more = (0..count)
            .flat_map(|i| [&index(b"", b"h\0", &format!("{i:x}"), b"h\x01")[..], b"h\x02"].concat());
        let pairs = [first, file, more.collect()].concat();
        range.folder(&format!("an offset of {name} for {count} tensors"), directory(&pairs), Refused(code));
    }
    let long = index(&b"NN".repeat(400_000), class, "a", b")");
    let pairs = [&long[..], b"q\0", &text("f"), b"q\x01", &b"h\0h\x01".repeat(4_000)].concat();
    range.folder("4,000 times an object of 400,000 fields", directory(&pairs), Any);
}

/// Tests variable information next to a program and its parameters.
#[test]
fn paddle_names_that_multiply() {
    let Some(mut range) = Range::alone("paddle") else { return };
    let path = [env!("CARGO_MANIFEST_DIR"), "..", "testdata/paddle/good/p262/cnn_jit"];
    let path: std::path::PathBuf = path.iter().collect();
    let folder = |info: Vec<u8>| -> FolderRef {
        let folder = MemoryFolder::new("bomb").with("model.pdiparams.info", info);
        let read = |name: &str| std::fs::read(path.join(name)).unwrap();
        Arc::new(
            ["model.pdmodel", "model.pdiparams"].iter().fold(folder, |f, &name| f.with(name, read(name))),
        )
    };
    let good = std::fs::read(path.join("model.pdiparams.info")).unwrap();
    range.folder("names", folder(good), Opens(13));
    let facts = |facts: &[u8], rows: usize| {
        state(&[
            text(&"v.".repeat(120)),
            b"q\0}(".to_vec(),
            facts.to_vec(),
            b"uq\x01".to_vec(),
            b"h\0h\x01".repeat(rows),
        ])
    };
    let named = [text("structured_name"), text(&"s.".repeat(120))].concat();
    range.folder("500,000 rows of the same texts", folder(facts(&named, 500_000)), Opens(13));
    let many = [text("trainable"), b"q\x02\x88".to_vec(), b"h\x02\x88".repeat(160_000)].concat();
    range.folder("16,000 rows of 160,000 facts", folder(facts(&many, 16_000)), Opens(13));
}

#[test]
fn torch_states_that_multiply() {
    let Some(mut range) = Range::alone("torch") else { return };
    let one = tensor(1, &[1], &[1]);
    // 2^11 tensors with one name, from integer and text keys; the alternative names are in use.
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
    // The same number of entries is allowed in a longer file.
    let longer = torch_of(&pickle, stored("archive/data/1", vec![7; 200_000]));
    range.file("names that collide", longer, Opens(4096));

    // Each starts one element later.
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
