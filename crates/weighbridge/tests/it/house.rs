//! Project rules that the compiler does not enforce.

use std::path::{Path, PathBuf};
use weighbridge::{ErrorCode, FindingCode, LossCode, NoteCode};

/// Lines of a file; longer ones are cut into rooms.
const LONGEST: usize = 900;

/// Places of `unsafe` code, with the reason: in the library in a single module.
const UNSAFE: [(&str, &str); 7] = [
    ("crates/io/src/source/map/guard.rs", "the signal of a page that is gone is handled"),
    ("crates/io/src/source/map/mod.rs", "a file is mapped"),
    (
        "crates/python/src/borrowed.rs",
        "the memory of an array of Python is read in place while it is written out",
    ),
    (
        "crates/python/src/dlpack.rs",
        "DLPack is a protocol of pointers: memory is handed to Python and taken from it",
    ),
    ("crates/python/src/floats.rs", "a register says how a thread computes: other libraries change it"),
    ("crates/python/src/lost.rs", "Python is called from where a signal is handled"),
    ("fuzz/src/counting.rs", "the allocator of the tests counts what is allocated; only tests use it"),
];
/// The module of the library.
const MODULE: &str = "crates/io/src/source/map/";

/// The sources of all crates, by their path from the root.
pub(super) fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> = ["crates", "fuzz", "benches"].map(|name| root.join(name)).into();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(&root).unwrap().display().to_string().replace('\\', "/");
                sources.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    sources.sort();
    assert!(sources.len() > 300, "{}", sources.len());
    sources
}

#[test]
fn unsafe_code_is_only_in_listed_modules() {
    let files = UNSAFE.map(|(file, why)| {
        assert!(!why.is_empty());
        file
    });
    let word = ["allow(", "unsafe_code"].concat();
    let allowed = sources().into_iter().filter(|(_, text)| text.contains(&word));
    assert_eq!(allowed.map(|(name, _)| name).collect::<Vec<_>>(), files);
    let libraries =
        files.iter().filter(|file| file.starts_with("crates/") && !file.starts_with("crates/python/"));
    assert!(libraries.clone().all(|file| file.starts_with(MODULE)));
    let lints =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")).unwrap();
    assert!(lints.contains("unsafe_code = \"deny\""));
    for (name, text) in sources().iter().filter(|(name, _)| files.contains(&name.as_str())) {
        let blocks = text.lines().filter(|line| line.contains("unsafe {") && !line.trim().starts_with("//"));
        let reasons = text.lines().filter(|line| line.contains("// SAFETY: ")).count();
        assert!(reasons >= blocks.count(), "{name}: each use says why it is sound");
    }
}

#[test]
fn files_are_short() {
    let generated = |text: &str| text.starts_with("// @generated");
    let long = sources().into_iter().filter(|(_, text)| text.lines().count() > LONGEST && !generated(text));
    assert_eq!(long.map(|(name, _)| name).collect::<Vec<_>>(), Vec::<String>::new());
}

/// Losses whose subject is partly in the target, and that the library does not add itself.
const CHANGED: [&str; 43] = [
    "apart",
    "attribute-form",
    "columns-renamed",
    "config-keys",
    "config-made",
    "damaged",
    "dtype-differs",
    "dtype-lost",
    "dtype-refused",
    "guessed-dtype",
    "guessed-names",
    "ids-changed",
    "index-dropped",
    "list-hole",
    "name-changed",
    "name-dropped",
    "names-like-numbers",
    "names-made",
    "no-names",
    "no-rows",
    "not-float32",
    "order-not-checked",
    "paddle-cannot-read",
    "parts-missing",
    "partition-missing",
    "read-as-parameter",
    "read-as-state",
    "recent-dtype",
    "renamed",
    "role",
    "role-dropped",
    "rounding",
    "rows-drawn",
    "shape",
    "shape-normalised",
    "state-guessed",
    "state-incomplete",
    "state-not-transposed",
    "structure-dropped",
    "structured-names",
    "tie-not-held",
    "variable-name",
    "weights-truncated",
];

/// Every loss states whether something is omitted: callers are warned of omissions.
#[test]
fn every_loss_code_is_an_omission_or_a_change() {
    let left_out = weighbridge::checkpoint::Loss::LEFT_OUT;
    let mut codes = std::collections::BTreeSet::new();
    for (name, text) in
        sources().iter().filter(|(name, _)| name.starts_with("crates/") && name.contains("/src/"))
    {
        if name.contains("/tests") || name.contains("testing") {
            continue;
        }
        for behind in text.split("Loss::new(").skip(1) {
            let Some(literal) = behind.trim_start().strip_prefix('"') else { continue };
            codes.insert(literal.split('"').next().unwrap().to_owned());
        }
    }
    let known: std::collections::BTreeSet<String> =
        left_out.iter().map(|code| code.as_str()).chain(CHANGED).map(str::to_owned).collect();
    assert_eq!(known.len(), left_out.len() + CHANGED.len(), "a code is in both");
    assert_eq!(codes.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
    // Codes that are not literals.
    codes.extend(["missing-damaged", "tensor-skipped"].map(str::to_owned));
    assert_eq!(known.difference(&codes).collect::<Vec<_>>(), Vec::<&String>::new(), "no code uses it");
}

/// The layers, from the bottom up: a crate may use those of lower layers, and no other crate of Weighbridge.
const LAYERS: [&[&str]; 10] = [
    &["core"],
    &["io", "testkit"],
    &["containers/pickle", "containers/zip", "containers/hdf5", "containers/msgpack", "containers/protobuf"],
    &["containers/torch"],
    &["scan"],
    &["format"],
    &[
        "formats/primitiv",
        "formats/safetensors",
        "formats/numpy",
        "formats/torch",
        "formats/hdf5",
        "formats/joblib",
        "formats/tables",
        "formats/paddle",
        "formats/onnx",
        "formats/gguf",
        "formats/mxnet",
        "formats/caffe",
        "formats/darknet",
        "formats/tensorflow",
        "formats/tflite",
        "formats/openvino",
        "formats/coreml",
        "formats/ncnn",
        "formats/flax",
        "formats/biggraph",
    ],
    &["weighbridge"],
    &["cli"],
    &["python"],
];

#[test]
fn dependencies_point_down() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = |folder: &str| std::fs::read_to_string(crates.join(folder).join("Cargo.toml")).unwrap();
    let name = |text: &str| text.split("name = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let mut below: Vec<String> = Vec::new();
    let mut seen = 0;
    for layer in LAYERS {
        let texts: Vec<String> = layer.iter().map(|folder| manifest(folder)).collect();
        for (folder, text) in layer.iter().zip(&texts) {
            let dependencies = text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
            let dependencies = dependencies.split("\n[").next().unwrap_or_default();
            for line in dependencies.lines().filter(|line| line.starts_with("weighbridge")) {
                let used = line.split([' ', '.', '=']).next().unwrap_or_default();
                assert!(below.iter().any(|known| known == used), "{folder} must not use {used}");
                seen += 1;
            }
        }
        below.extend(texts.iter().map(|text| name(text)));
    }
    assert!(seen > 40, "{seen}");
    // Every crate has its layer.
    let members = std::fs::read_to_string(crates.join("../Cargo.toml")).unwrap();
    let members = members.lines().filter(|line| line.trim_start().starts_with("\"crates/")).count();
    assert_eq!(members, LAYERS.iter().map(|layer| layer.len()).sum::<usize>());
}

/// Process-wide state in libraries, with the reason why a program cannot notice it without requesting it.
const STATICS: [(&str, &str); 6] = [
    ("crates/containers/pickle/src/allowed.rs", "a table of constants, made when it is asked for first"),
    ("crates/containers/pickle/src/libraries.rs", "a table of constants, made when it is asked for first"),
    ("crates/io/src/engine/mod.rs", "the number of processors, asked for once"),
    ("crates/io/src/panics.rs", "the program asks for it: `quiet_panics`"),
    ("crates/io/src/source/map/guard.rs", "the program asks for it: `guard_maps`"),
    ("crates/weighbridge/src/formats/mod.rs", "the registry of all formats, which never changes"),
];

/// The command and the Python package are programs, and the helpers of tests are in tests alone; all other crates are libraries.
#[test]
fn libraries_have_no_process_wide_state() {
    let is_test =
        |name: &str| name.contains("/tests") || name.contains("_tests") || name.contains("/examples/");
    let mut found: Vec<String> = Vec::new();
    for (name, text) in sources() {
        let library = name.starts_with("crates/")
            && !["crates/cli/", "crates/python/", "crates/testkit/"].iter().any(|p| name.starts_with(p));
        if !library || is_test(&name) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        // Not what the line before says is for tests alone.
        let before = std::iter::once("").chain(code.lines());
        let mut lines = before.zip(code.lines()).filter(|(before, _)| *before != "#[cfg(test)]");
        let hooks = ["thread_local!", "static mut ", "set_hook(", "libc::sigaction("];
        let changes = ["Atomic", "Mutex", "RwLock", "Cell", "Once", "Lazy"];
        let has_state = lines.any(|(_, line)| {
            let line = line.trim_start();
            let declared = ["pub ", "pub(crate) ", "pub(super) "].iter().find_map(|p| line.strip_prefix(p));
            let of = declared.unwrap_or(line).strip_prefix("static ").and_then(|rest| rest.split('=').next());
            hooks.iter().any(|hook| line.contains(hook) && !line.starts_with("//"))
                || of.is_some_and(|of| changes.iter().any(|word| of.contains(word)))
        });
        if has_state {
            found.push(name);
        }
    }
    found.sort();
    assert_eq!(found, STATICS.map(|(file, _)| file));
}

/// Library texts with flags: options of other programs, and text that only the command prints.
const FLAGS: [&str; 2] = ["h5clear --status", "`weighbridge program --strip source` removes them."];

/// Each face words options for its own users: texts of the library name none as a flag.
#[test]
fn library_texts_contain_no_flags() {
    let faces = ["crates/cli/", "crates/python/"];
    let library = sources().into_iter().filter(|(name, _)| {
        let is_test = name.contains("/tests") || name.contains("_tests.rs");
        name.starts_with("crates/")
            && name.contains("/src/")
            && !is_test
            && !faces.iter().any(|face| name.starts_with(face))
    });
    let mut found = Vec::new();
    for (name, text) in library {
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let Some((_, said)) = line.split_once('"') else { continue };
            let has_flag = said.match_indices("--").any(|(at, _)| {
                let before = said[..at].chars().next_back().is_none_or(|c| " (`".contains(c));
                before && said[at + 2..].starts_with(|c: char| c.is_ascii_lowercase())
            });
            if has_flag && !FLAGS.iter().any(|known| said.contains(known)) {
                found.push(format!("{name}: {said}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The core opens no file, starts no thread and keeps nothing for the whole process.
#[test]
fn the_core_is_pure() {
    let core = sources().into_iter().filter(|(name, _)| name.starts_with("crates/core/src/"));
    for (name, text) in core {
        // The handle of a file, for those who copy from it.
        let text = text.replace("&'a std::fs::File", "");
        for word in ["std::fs", "std::thread", "thread_local!", "OnceLock<", "LazyLock<", "static mut"] {
            assert!(!text.contains(word), "{name}: {word}");
        }
    }
}

/// Returns the text after each occurrence of `call`, past the line break that may follow.
fn after<'a>(text: &'a str, call: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(call).skip(1).map(str::trim_start)
}

#[test]
fn every_code_is_in_the_list_of_its_kind() {
    type Listed = fn(&'static str) -> bool;
    let kinds: [(&[&str], Listed); 4] = [
        (
            &["Error::corrupt(", "Error::unsupported(", "Error::limit(", "Error::mismatch(", "Error::usage("],
            |code| !matches!(ErrorCode::from(code), ErrorCode::Other(_)),
        ),
        (&["Note::new(", "Note::omission("], |code| !matches!(NoteCode::from(code), NoteCode::Other(_))),
        (&["Loss::new("], |code| !matches!(LossCode::from(code), LossCode::Other(_))),
        (
            &["Finding::error(", "Finding::warning(", "Finding::unchecked(", "Finding::note(", "scan.push("],
            |code| !matches!(FindingCode::from(code), FindingCode::Other(_)),
        ),
    ];
    let mut seen = 0;
    for (name, text) in sources() {
        // Tests and examples have codes of their own.
        let is_of_the_library =
            name.starts_with("crates/") && name.contains("/src/") && !name.contains("test");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (calls, is_listed) in kinds.iter().filter(|_| is_of_the_library) {
            let given =
                calls.iter().flat_map(|call| after(text, call)).filter_map(|rest| rest.strip_prefix('"'));
            let codes = given.filter_map(|rest| rest.split('"').next());
            for code in codes.filter(|code| !code.is_empty()) {
                let code: &'static str = code.to_owned().leak();
                assert!(is_listed(code), "{name}: `{code}` is not in crates/core/src/codes");
                seen += 1;
            }
        }
    }
    assert!(seen > 900, "{seen}");
}
