//! Memory and time of Python for pickles of allowed calls only.

use super::*;
use weighbridge_core::finding::Verdict;
use weighbridge_core::{Budget, Limits};

/// Codes of the findings above notes in the pickle of these pieces.
fn found(pieces: &[&[u8]]) -> Vec<&'static str> {
    let report = inspect(&memory(pieces.concat()), 0, &Options::default());
    let heavy = report.findings.iter().filter(|f| f.severity > weighbridge_core::finding::Severity::Note);
    let codes: Vec<_> = heavy.map(|f| f.code.as_str()).collect();
    assert_eq!(report.verdict == Verdict::Sound, codes.is_empty(), "{report:?}");
    codes
}

const OBJECTS: &[u8] =
    b"cnumpy\ndtype\n\x8c\x02O8\x89\x88\x87R(K\x03\x8c\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb";
const EMPTY: &[u8] = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R";

/// Arguments and states are checked as they are at the call. Objects that contain themselves may change later in their elements.
#[test]
fn rejects_arguments_that_change_after_the_call() {
    // An array whose list of objects is filled before its use, and after its use through the memo.
    let array = |list: &[u8], behind: &[u8]| {
        let state = [b"(K\x01K\x01\x85", OBJECTS, b"\x89", list, b"tb"].concat();
        found(&[b"\x80\x04", EMPTY, b"q\x09", &state, behind, b"."])
    };
    assert_eq!(array(b"]q\x00Na", b""), [""; 0]);
    assert_eq!(array(b"]q\x00", b"0h\x00Na"), ["unusual-call"]);
    assert_eq!(array(b"]q\x00", b"0h\x00(Ne"), ["unusual-call"]);
    assert_eq!(found(&[b"\x80\x04]2", EMPTY, b"(K\x01K\x01\x85", OBJECTS, b"\x89].", b""]), [""; 0]);
    // An array that contains itself, and one inside the list that is its element.
    assert_eq!(array(b"]q\x00h\x09a", b""), [""; 0]);
    let state = [b"(K\x01K\x01\x85", OBJECTS, b"\x89]h\x00atb"].concat();
    assert_eq!(found(&[b"\x80\x04]q\x00(K\x01", EMPTY, &state, b"e."]), [""; 0]);
    // The dict of an object inside that dict, as from `vars`.
    let vars: &[u8] = b"\x80\x02}q\x00X\x02\0\0\0mecargparse\nNamespace\n)\x81q\x01h\x00bs.";
    assert_eq!(found(&[vars]), [""; 0]);
}

/// A memo index may exceed the offset of its opcode by a fixed gap only.
#[test]
fn rejects_memo_indices_far_beyond_the_offset() {
    let put = |place: u32| [b"r".as_slice(), &place.to_le_bytes()].concat();
    let many = [b"(", [b'N'; 50_000].as_slice(), b"t0]"].concat();
    assert_eq!(found(&[b"\x80\x02]", &put(10_000), b"."]), [""; 0]);
    assert_eq!(found(&[b"\x80\x02]", &put(20_000), b"."]), ["memo-far"]);
    assert_eq!(found(&[b"\x80\x02", &many, &put(50_000), b"."]), [""; 0]);
    assert_eq!(found(&[b"\x80\x02", &many, &put(70_000), &put(1 << 30), b"."]), ["memo-far"]);
    assert_eq!(found(&[b"]p4611686018427387904\n."]), ["memo-far"]);
}

/// The first use of an argument is free; from the second on, the memory of the copy counts.
#[test]
fn rejects_calls_that_copy_too_much() {
    let items: Vec<u8> =
        (300..30_300u32).flat_map(|n| [b"J".as_slice(), &n.to_le_bytes()].concat()).collect();
    let copied = |class: &[u8], times: usize| {
        let again = b"h\x01h\x02R".repeat(times);
        found(&[b"\x80\x02(c", class, b"q\x01](", &items, b"e\x85q\x02R", &again, b"t."])
    };
    assert_eq!(copied(b"builtins\nset\n", 0), [""; 0]);
    // Copies take 3 MB, 4.8 MB and 0.24 MB each; the budget is 28 MB.
    assert_eq!(copied(b"builtins\nset\n", 5), [""; 0]);
    assert_eq!(copied(b"builtins\nset\n", 10), ["unusual-call"]);
    assert_eq!(copied(b"collections\nCounter\n", 10), ["unusual-call"]);
    assert_eq!(copied(b"collections\nOrderedDict\n", 7), ["unusual-call"]);
    assert_eq!(copied(b"builtins\nlist\n", 60), [""; 0]);
    assert_eq!(copied(b"builtins\nlist\n", 130), ["unusual-call"]);
}

/// Hashing a tuple hashes all of its content.
#[test]
fn rejects_keys_that_are_expensive_to_hash() {
    // Each tuple holds the previous one once or twice.
    let key = |step: &[u8], times: usize| [b"K\x01\x85", step.repeat(times).as_slice()].concat();
    let keyed = |key: &[u8]| found(&[b"\x80\x04}", key, b"Ns."]);
    assert_eq!(keyed(&key(b"2\x86", 10)), [""; 0]);
    assert_eq!(keyed(&key(b"2\x86", 60)), ["large-keys"]);
    assert_eq!(keyed(&key(b"\x85", 500)), [""; 0]);
    assert_eq!(keyed(&key(b"\x85", 30_000)), ["large-keys"]);
    // One key in many dicts; not a key; in a set, in a list that becomes a set, in a call that makes a tuple.
    let many = b"}h\x00Ns".repeat(20_000);
    assert_eq!(found(&[b"\x80\x04(", &key(b"2\x86", 7), b"q\x00", &many, b"t."]), [""; 0]);
    assert_eq!(found(&[b"\x80\x04(", &key(b"2\x86", 12), b"q\x00", &many, b"t."]), ["large-keys"]);
    assert_eq!(found(&[b"\x80\x04", &key(b"2\x86", 60), b"."]), [""; 0]);
    assert_eq!(found(&[b"\x80\x04\x8f(", &key(b"2\x86", 60), b"\x90."]), ["large-keys"]);
    assert_eq!(found(&[b"\x80\x04(", &key(b"2\x86", 60), b"\x91."]), ["large-keys"]);
    let pairs = [b"ccollections\nOrderedDict\n]]", key(b"2\x86", 60).as_slice(), b"aNaa\x85R."].concat();
    assert_eq!(found(&[b"\x80\x04", &pairs]), ["large-keys"]);
    let made = b"cbuiltins\ntuple\n](K\x05K\x06e\x85R";
    assert_eq!(found(&[b"\x80\x04}", made, b"Ns."]), [""; 0]);
}

/// The check itself is bounded: one list as argument of many calls, one key of many dicts.
#[test]
fn the_search_for_keys_is_bounded() {
    let too_large = |pieces: &[&[u8]]| {
        let bytes = pieces.concat();
        let python = || Budget::new(bytes.len() as u64, &Limits::default());
        keys::are_too_large(&read_bytes(&bytes).unwrap().graph, &python)
    };
    // Calls with a list of 1,000 items or of as many empty pairs; the budget is 16 Mi plus 8 times the pickle.
    let nothing = b"N".repeat(1_000);
    let pairs = [b"]q\x03".as_slice(), &b"h\x03".repeat(999)].concat();
    for items in [nothing.as_slice(), &pairs] {
        let called = |times: usize| {
            let again = b"h\x01h\x02R".repeat(times);
            let given: &[u8] = b"e\x85q\x02R";
            let pieces: [&[u8]; 6] = [b"\x80\x02(cbuiltins\nset\nq\x01](", items, given, &again, b"t", b"."];
            (too_large(&pieces), found(&pieces))
        };
        assert_eq!(called(100), (false, vec![]));
        // Reported once, as copies of calls.
        assert_eq!(called(20_000), (true, vec!["unusual-call"]));
    }
    // A flat tuple is hashed each time as well.
    let keyed = |items: usize| {
        let key = [b"(", b"N".repeat(items).as_slice(), b"tq\x00"].concat();
        found(&[b"\x80\x04(", &key, &b"}h\x00Ns".repeat(20_000), b"t."])
    };
    assert_eq!(keyed(700), [""; 0]);
    assert_eq!(keyed(1_000), ["large-keys"]);
}

/// Paddle writes one description per split parameter; a shared description would be walked for each of them.
#[test]
fn rejects_shared_descriptions_of_split_parameters() {
    let field =
        |name: &str| [b"X", &u32::try_from(name.len()).unwrap().to_le_bytes()[..], name.as_bytes()].concat();
    let split = |described: &[u8]| found(&[b"\x80\x02}", &field(parts::SPLIT), b"}(", described, b"us."]);
    let fields = [b"}(", field("a").as_slice(), b"N", &field("b"), b"Nuq\x02"].concat();
    let other = [field("y"), fields.clone()].concat();
    assert_eq!(split(&[field("x"), fields.clone(), other].concat()), [""; 0]);
    assert_eq!(split(&[field("x"), fields, field("y"), b"h\x02".to_vec()].concat()), ["parts-multiply"]);
}
