//! Two bytes of a pickle can reference an earlier object: a tensor, a long name, a large dict. Each reference adds an entry to
//! the index.

use crate::harness::{Opens, Range, Refused};
use crate::pickles::{dict, number, tensor, text, torch, tuple};
use crate::zips::{Member, archive, crc32, deflate, stored};

/// Makes a list of `first` and `times` references to it.
fn repeated(first: &[u8], times: usize) -> Vec<u8> {
    [&b"\x80\x02("[..], first, b"q\0", &b"h\0".repeat(times), b"l."].concat()
}

/// Makes an import of a class with names of 8 KB.
fn long_import() -> Vec<u8> {
    [&b"c"[..], &b"m".repeat(4_000), b"\n", &b"n".repeat(4_000), b"\n"].concat()
}

fn one() -> Vec<u8> {
    tensor(1, &[1], &[1])
}

/// Makes an archive whose deflated pickle is `head`, `times` copies of `block` and a tail; with `beside` bytes next to it.
fn deflated(head: &[u8], block: &[u8], times: usize, beside: usize) -> Vec<u8> {
    let (data, crc32) = (deflate(head, block, times), crc32(head, block, times));
    let len = (head.len() + block.len() * times) as u64;
    let pickle = Member { name: "archive/data.pkl".to_owned(), method: 8, data, len, crc32, at: None };
    let beside = stored("archive/data/1", vec![7; beside]);
    archive(&[
        pickle,
        stored("archive/data/0", vec![0; 4]),
        beside,
        stored("archive/version", b"3\n".to_vec()),
    ])
}

#[test]
fn references_take_memory() {
    let Some(mut range) = Range::alone("torch") else { return };
    // Values above the limit do not prevent reading tensors.
    let omits =
        |range: &mut Range, name: &str, pickle: Vec<u8>| range.file(name, torch(&pickle, &[0; 4]), Opens(0));
    let first = [&b"}"[..], &text("v"), b"]("].concat();
    let plain =
        |head: &[u8], times| [&b"\x80\x02"[..], &first, head, b"q\0", &b"h\0".repeat(times), b"es."].concat();
    let device = [&b"ctorch\ndevice\n"[..], &text(&"x".repeat(1_000_000)), b"\x85R"].concat();
    omits(&mut range, "a device of 1 MB, 500 times", plain(&device, 500));
    let device = [&b"ctorch\ndevice\n"[..], &text(&"x".repeat(1_000_000)), b"K\x01\x86R"].concat();
    omits(&mut range, "a device of 1 MB with a number, 500 times", plain(&device, 500));
    let import = [&b"ctorch\n"[..], &b"x".repeat(4_000), b"\n"].concat();
    omits(&mut range, "an import of 4 KB, 100,000 times", plain(&import, 100_000));

    let mut refused =
        |name: &str, pickle: Vec<u8>, code| range.file(name, torch(&pickle, &[0; 4]), Refused(code));
    refused("a tensor 500,000 times", repeated(&one(), 500_000), "limit");
    refused("a tensor 50,000 times", repeated(&one(), 50_000), "limit");
    let wide = tensor(1, &[1; 64], &[1; 64]);
    refused("a tensor of 64 dimensions 20,000 times", repeated(&wide, 20_000), "limit");
    let deep = [&text(&"a.".repeat(2_000))[..], b"("].concat();
    let deep = [&b"\x80\x02}"[..], &deep, &one(), b"q\0", &b"h\0".repeat(900), b"ls."].concat();
    refused("a tensor 900 times, in names of 2,000 parts", deep, "limit");
    let named = |times| {
        let key = text(&"k".repeat(1_000_000));
        let list = [&text("l")[..], b"(", &b"h\0".repeat(times), b"l"].concat();
        [&b"\x80\x02}("[..], &key, &one(), b"q\0", &list, b"u."].concat()
    };
    refused("a tensor of a name of 1 MB 600 times", named(600), "limit");
    let call = one();
    let (function, rest) = call.split_at("ctorch._utils\n_rebuild_tensor_v2\n".len());
    let rest = rest.strip_suffix(b"R").unwrap();
    let class =
        [&b"ctorch._tensor\n_rebuild_from_type_v2\n("[..], function, &long_import(), rest, b"}tR"].concat();
    refused("a tensor of a class of 8 KB 2,000 times", repeated(&class, 2_000), "limit");
    let kind = [&b"ctorch._utils\n_rebuild_"[..], &b"x".repeat(4_000), b"\n)R"].concat();
    refused("a tensor of a kind of 4 KB 100,000 times", repeated(&kind, 100_000), "limit");
    let beside = [&b"\x80\x02("[..], &one(), &b"N".repeat(1_000_000), b"l."].concat();
    refused("1,000,000 values beside a tensor", beside, "limit");
    let lost = repeated(&tensor(2, &[2], &[1]), 500_000);
    refused("a tensor whose storage is not whole 500,000 times", lost, "torch-storage-length");

    let edge = repeated(&one(), 15_000);
    let beside = [stored("archive/data/1", vec![7; 700_000])];
    let edge =
        [&[stored("archive/data.pkl", edge), stored("archive/data/0", vec![0; 4])], &beside[..]].concat();
    range.file("a tensor 15,000 times in a longer file", archive(&edge), Opens(15_001));
    let many = [&b"\x80\x02("[..], &one(), b"q\0", &b"h\0".repeat(10_000), b"l."].concat();
    range.file("a tensor 10,000 times, deflated", deflated(&many, b"", 1, 100_000), Refused("limit"));
    let blocks = b"N0".repeat(1 << 19);
    // Discarded values cost nothing, and compress to nothing.
    range.any("8 MB of nothing, deflated", deflated(b"\x80\x02", &blocks, 8, 100_000));
    range.file("30 MB of nothing, deflated", deflated(b"\x80\x02", &blocks, 30, 100_000), Refused("limit"));
}

/// Tests dicts, items and flags that could be traversed once per reference.
#[test]
fn references_take_time() {
    let Some(mut range) = Range::alone("torch") else { return };
    let mut any = |name: &str, pickle: Vec<u8>| range.any(name, torch(&pickle, &[0; 4]));
    let state = [&b"}("[..], &b"NN".repeat(100_000), b"uq\x01"].concat();
    let ordered = b"h\0)RK\0h\x02sh\x01b".repeat(1_000);
    let head = b"0ca\nb\nq\x020ccollections\nOrderedDict\nq\x000(";
    any(
        "ordered dicts that share 100,000 attributes",
        [&b"\x80\x02"[..], &state, head, &ordered, b"l."].concat(),
    );
    let items = |item: &[u8]| [&b"ca\nb\n)R("[..], item, &b"N".repeat(400_000), b"e"].concat();
    any("an object of 400,000 items 16,000 times", repeated(&items(b""), 16_000));
    any("an object of 400,000 items and a tensor 16,000 times", repeated(&items(&one()), 16_000));
    let states = [&b"ca\nb\n)R"[..], &b"Nb".repeat(200_000), &dict(&one())[2..], b"b"].concat();
    any("an object of 200,000 states 16,000 times", repeated(&states, 16_000));
    let slots = [&b"ca\nb\n)R("[..], &b"N".repeat(400_000), &dict(&one())[2..], b"tb"].concat();
    any("an object of 400,000 slots 16,000 times", repeated(&slots, 16_000));
    let flags = [&one()[..one().len() - 2], b"}(", &b"N\x89".repeat(160_000), b"utR"].concat();
    any("a tensor of 160,000 flags 16,000 times", repeated(&flags, 16_000));
    any("a class of 8 KB 500,000 times", repeated(&long_import(), 500_000));
    let made = [&long_import()[..], b")R"].concat();
    any("an object of a class of 8 KB 500,000 times", repeated(&made, 500_000));
    // Plain objects: empty, of shared parts, and nested.
    let plain = [&long_import()[..], b")\x81"].concat();
    any("a plain object of a class of 8 KB 500,000 times", repeated(&plain, 500_000));
    let full = [&b"ca\nb\n)\x81("[..], &b"N".repeat(400_000), b"e"].concat();
    any("a plain object of 400,000 items 16,000 times", repeated(&full, 16_000));
    any(
        "a million plain objects",
        [&b"\x80\x02ca\nb\nq\x000("[..], &b"h\0)\x81".repeat(1_000_000), b"l."].concat(),
    );
    let doubled = b"q\x01h\x00h\x01h\x01\x86\x81".repeat(40);
    any("plain objects of two plain objects", [&b"\x80\x02ca\nb\nq\x00)\x81"[..], &doubled, b"."].concat());
    // Containers, each with a path of its own.
    let keys: Vec<u8> = (0..60).flat_map(|_| [b"}", &text(&"k".repeat(250))[..]].concat()).collect();
    let lists = [&b"\x80\x02"[..], &keys, b"(", &b"]".repeat(100_000), b"l", &b"s".repeat(60), b"."].concat();
    any("100,000 lists below 60 long keys", lists);

    // Imports with different names of 500 letters each.
    let name = |i: u16| [&b"\x8c\xfa"[..], format!("{i:0>250}").as_bytes(), b"\x940"].concat();
    let names: Vec<u8> = (0..512).flat_map(name).collect();
    let get = |i: u32| [&b"j"[..], &i.to_le_bytes()].concat();
    let imports: Vec<u8> =
        (0..150_000).flat_map(|i| [&get(i / 512)[..], &get(i % 512), b"\x93"].concat()).collect();
    any("150,000 imports", [&b"\x80\x04"[..], &names, b"(", &imports, b"l."].concat());
}

/// Tests that shared and repeated content of well-formed files is kept.
#[test]
fn keeps_references_of_well_formed_files() {
    let Some(mut range) = Range::alone("torch") else { return };
    // Tied weights.
    let tied: Vec<u8> = (0..3_000)
        .flat_map(|i| [text(&format!("model.decoder.layers.{i}.weight")), b"h\0".to_vec()].concat())
        .collect();
    let tied = [&b"\x80\x02}("[..], &text("shared"), &one(), b"q\0", &tied, b"u."].concat();
    range.file("3,000 tied weights", torch(&tied, &[0; 4]), Opens(3_001));

    // Optimizer state whose tensors have small separate storages; with a namespace of arguments and a vocabulary.
    let stored_in = |key: u32, pickle: Vec<u8>| {
        let at = pickle.windows(6).position(|six| six == text("0")).unwrap();
        [&pickle[..at], &text(&key.to_string()), &pickle[at + 6..]].concat()
    };
    let parameter = |i: u32| {
        let slot = |n: u32, name: &str| [text(name), stored_in(3 * i + n, tensor(4, &[4], &[1]))].concat();
        [
            number(u64::from(i)),
            b"}(".to_vec(),
            slot(0, "step"),
            slot(1, "exp_avg"),
            slot(2, "exp_avg_sq"),
            b"u".to_vec(),
        ]
        .concat()
    };
    let count = 3_000;
    let state: Vec<u8> = (0..count).flat_map(parameter).collect();
    let numbers: Vec<u8> = (0..u64::from(count)).flat_map(number).collect();
    let groups = [&text("param_groups")[..], b"(}(", &text("params"), b"(", &numbers, b"lul"].concat();
    let arguments: Vec<u8> =
        (0..200).flat_map(|i| [text(&format!("argument_{i}")), tuple(&[i])].concat()).collect();
    let arguments = [&text("args")[..], b"cargparse\nNamespace\n)\x81}(", &arguments, b"ub"].concat();
    let words: Vec<u8> = (0..30_000).flat_map(|i| [text(&format!("w{i}")), number(i)].concat()).collect();
    let words = [&text("vocabulary")[..], b"}(", &words, b"u"].concat();
    let pickle =
        [&b"\x80\x02}("[..], &text("state"), b"}(", &state, b"u", &groups, &arguments, &words, b"u."]
            .concat();
    let mut members = vec![stored("archive/data.pkl", pickle)];
    members.extend((0..3 * count).map(|key| stored(&format!("archive/data/{key}"), vec![0; 16])));
    members.push(stored("archive/version", b"3\n".to_vec()));
    range.file("an optimizer of 3,000 parameters", archive(&members), Opens(9_000));
    // One expanded table, shared by all layers.
    let shared: Vec<u8> =
        (0..80).flat_map(|i| [text(&format!("rope.{i}")), b"h\0".to_vec()].concat()).collect();
    let table = tensor(4_000, &[4_000, 1_000], &[0, 1]);
    let shared = [&b"\x80\x02}("[..], &text("rope"), &table, b"q\0", &shared, b"u."].concat();
    range.file("81 names of 16 MB", torch(&shared, &[0; 16_000]), Opens(81));
    // Values of a byte each next to a tensor: those above the limit are omitted, and the tensor is read.
    let beside = |values: &[u8]| {
        let list = [&text("values")[..], b"](", values, b"e"].concat();
        torch(&[&b"\x80\x02}("[..], &list, &text("t"), &one(), b"u."].concat(), &[0; 4])
    };
    range.file("300,000 truths", beside(&b"\x88".repeat(300_000)), Opens(1));
    range.file("3,000,000 times nothing", beside(&b"N".repeat(3_000_000)), Opens(1));
}
